"""Lists the workloads that this project and torchvision name (`ENTRIES`), with facts that are known before building.

The table needs no torch, so that a wrong name is answered at once. `entry` takes a name and returns a `CatalogueEntry`:
default sizes, and sizes and batches that the workload cannot take. `reason_not_trainable` returns why a size or batch
is refused. `tests/workloads/vision/test_vision.py` runs each model at the edge of every such claim. Nothing is claimed
about memory or time, and a size that is not refused may still fail.
"""

from collections.abc import Mapping

from results.text_files import nearest
from workloads.catalogue import entries
from workloads.catalogue.entries import RELATIONS, CatalogueEntry, Limit

OPTIMIZERS = ("sgd", "sgd-plain", "adam", "adamw")
"""Names of `workloads/step.py:OPTIMIZERS`; a test compares the two."""

OWN = "own"
"""Name by which a user selects the workload's optimizer."""

IMAGES = ("classification", "image recognition")
"""Tasks of one image and one label each."""


def _images(paper: str, image_size: int = 224, **facts: int | bool | None) -> CatalogueEntry:
    return _entry("classification", {"image_size": image_size, "num_classes": 1000}, paper, facts)


def _residual() -> CatalogueEntry:
    hyper = {"image_size": 224, "num_classes": 1000, "width": 64}
    return _entry("classification", hyper, "He et al. 2016, arXiv:1512.03385", {"single_from": 33})


def _clips(paper: str, image_size: int, frames: int, **facts: int | bool | None) -> CatalogueEntry:
    return _entry("video", {"image_size": image_size, "frames": frames, "num_classes": 400}, paper, facts)


def _pixels(paper: str, **facts: int | bool | None) -> CatalogueEntry:
    return _entry("segmentation", {"image_size": 480, "num_classes": 21}, paper, facts)


def _boxes(paper: str, image_size: int = 800, num_classes: int = 91, **facts: int | bool | None) -> CatalogueEntry:
    return _entry("detection", {"image_size": image_size, "num_classes": num_classes, "boxes": 8}, paper, facts)


def _flow(paper: str, **facts: int | bool | None) -> CatalogueEntry:
    return _entry("flow", {"image_size": 368}, paper, facts)


def _synthetic_entry(description: str, **hyper: int) -> CatalogueEntry:
    return _entry("synthetic", hyper, description, {}, library="workloads")


def _catamount(task: str, paper: str, *limits: Limit, **hyper: int) -> CatalogueEntry:
    return _entry(
        task,
        hyper,
        f"{paper}; sizes of Hestness et al. 2019, arXiv:1909.01736",
        {"limits": limits},
        library="workloads",
    )


def _entry(
    task: str,
    hyper: Mapping[str, int],
    paper: str,
    facts: Mapping[str, int | bool | tuple[Limit, ...] | None],
    library: str = "torchvision",
) -> CatalogueEntry:
    return CatalogueEntry(task=task, hyper=hyper, source=f"{library}; {paper}", **facts)  # type: ignore[arg-type]


_BERT = "Devlin et al. 2018, arXiv:1810.04805"
_CONVNEXT = "Liu et al. 2022, arXiv:2201.03545"
_DEEPLAB = "Chen et al. 2017, arXiv:1706.05587"
_DENSENET = "Huang et al. 2017, arXiv:1608.06993"
_EFFICIENTNET = "Tan and Le 2019, arXiv:1905.11946"
_EFFICIENTNET_V2 = "Tan and Le 2021, arXiv:2104.00298"
_FASTER_RCNN = "Ren et al. 2015, arXiv:1506.01497"
_FASTER_RCNN_V2 = "Li et al. 2021, arXiv:2111.11429"
_FCN = "Long et al. 2015, arXiv:1411.4038"
_MASK_RCNN = "He et al. 2017, arXiv:1703.06870"
_MNASNET = "Tan et al. 2019, arXiv:1807.11626"
_MOBILENET_V3 = "Howard et al. 2019, arXiv:1905.02244"
_RAFT = "Teed and Deng 2020, arXiv:2003.12039"
_REGNET = "Radosavovic et al. 2020, arXiv:2003.13678"
_RESNET_3D = "Tran et al. 2018, arXiv:1711.11248"
_RESNEXT = "Xie et al. 2017, arXiv:1611.05431"
_SHUFFLENET = "Ma et al. 2018, arXiv:1807.11164"
_SQUEEZENET = "Iandola et al. 2016, arXiv:1602.07360"
_SWIN = "Liu et al. 2021, arXiv:2103.14030"
_SWIN_3D = "Liu et al. 2022, arXiv:2106.13230"
_SWIN_V2 = "Liu et al. 2022, arXiv:2111.09883"
_VGG = "Simonyan and Zisserman 2015, arXiv:1409.1556"
_VIT = "Dosovitskiy et al. 2021, arXiv:2010.11929"
_WIDE_RESNET = "Zagoruyko and Komodakis 2016, arXiv:1605.07146"

_CLASSIFICATION = {
    "alexnet": _images("Krizhevsky 2014, arXiv:1404.5997", smallest_image=63),
    "convnext_base": _images(_CONVNEXT, smallest_image=32),
    "convnext_large": _images(_CONVNEXT, smallest_image=32),
    "convnext_small": _images(_CONVNEXT, smallest_image=32),
    "convnext_tiny": _images(_CONVNEXT, smallest_image=32),
    "densenet121": _images(_DENSENET, smallest_image=29, single_from=61),
    "densenet161": _images(_DENSENET, smallest_image=29, single_from=61),
    "densenet169": _images(_DENSENET, smallest_image=29, single_from=61),
    "densenet201": _images(_DENSENET, smallest_image=29, single_from=61),
    "efficientnet_b0": _images(_EFFICIENTNET, single_from=33),
    "efficientnet_b1": _images(_EFFICIENTNET, 240, single_from=33),
    "efficientnet_b2": _images(_EFFICIENTNET, 288, single_from=33),
    "efficientnet_b3": _images(_EFFICIENTNET, 300, single_from=33),
    "efficientnet_b4": _images(_EFFICIENTNET, 380, single_from=33),
    "efficientnet_b5": _images(_EFFICIENTNET, 456, single_from=33),
    "efficientnet_b6": _images(_EFFICIENTNET, 528, single_from=33),
    "efficientnet_b7": _images(_EFFICIENTNET, 600, single_from=33),
    "efficientnet_v2_l": _images(_EFFICIENTNET_V2, 480, single_from=33),
    "efficientnet_v2_m": _images(_EFFICIENTNET_V2, 480, single_from=33),
    "efficientnet_v2_s": _images(_EFFICIENTNET_V2, 384, single_from=33),
    "googlenet": _images("Szegedy et al. 2014, arXiv:1409.4842", smallest_image=15, single_from=47),
    # The auxiliary head pools 17 × 17 to 5 × 5 for a 5 × 5 convolution: 299 is the smallest, and leaves 1 × 1.
    "inception_v3": _images("Szegedy et al. 2015, arXiv:1512.00567", 299, smallest_image=299, single_from=347),
    # Windows of 7 × 7 at stride 32.
    "maxvit_t": _images("Tu et al. 2022, arXiv:2204.01697", image_step=224),
    "mnasnet0_5": _images(_MNASNET, single_from=33),
    "mnasnet0_75": _images(_MNASNET, single_from=33),
    "mnasnet1_0": _images(_MNASNET, single_from=33),
    "mnasnet1_3": _images(_MNASNET, single_from=33),
    "mobilenet_v2": _images("Sandler et al. 2018, arXiv:1801.04381", single_from=33),
    "mobilenet_v3_large": _images(_MOBILENET_V3, single_from=33),
    "mobilenet_v3_small": _images(_MOBILENET_V3, single_from=33),
    "regnet_x_16gf": _images(_REGNET, single_from=33),
    "regnet_x_1_6gf": _images(_REGNET, single_from=33),
    "regnet_x_32gf": _images(_REGNET, single_from=33),
    "regnet_x_3_2gf": _images(_REGNET, single_from=33),
    "regnet_x_400mf": _images(_REGNET, single_from=33),
    "regnet_x_800mf": _images(_REGNET, single_from=33),
    "regnet_x_8gf": _images(_REGNET, single_from=33),
    "regnet_y_128gf": _images(_REGNET, single_from=33),
    "regnet_y_16gf": _images(_REGNET, single_from=33),
    "regnet_y_1_6gf": _images(_REGNET, single_from=33),
    "regnet_y_32gf": _images(_REGNET, single_from=33),
    "regnet_y_3_2gf": _images(_REGNET, single_from=33),
    "regnet_y_400mf": _images(_REGNET, single_from=33),
    "regnet_y_800mf": _images(_REGNET, single_from=33),
    "regnet_y_8gf": _images(_REGNET, single_from=33),
    "resnet101": _residual(),
    "resnet152": _residual(),
    "resnet18": _residual(),
    "resnet34": _residual(),
    "resnet50": _residual(),
    "resnext101_32x8d": _images(_RESNEXT, single_from=33),
    "resnext101_64x4d": _images(_RESNEXT, single_from=33),
    "resnext50_32x4d": _images(_RESNEXT, single_from=33),
    "shufflenet_v2_x0_5": _images(_SHUFFLENET, single_from=33),
    "shufflenet_v2_x1_0": _images(_SHUFFLENET, single_from=33),
    "shufflenet_v2_x1_5": _images(_SHUFFLENET, single_from=33),
    "shufflenet_v2_x2_0": _images(_SHUFFLENET, single_from=33),
    "squeezenet1_0": _images(_SQUEEZENET, smallest_image=21),
    "squeezenet1_1": _images(_SQUEEZENET, smallest_image=17),
    "swin_b": _images(_SWIN, smallest_image=4),
    "swin_s": _images(_SWIN, smallest_image=4),
    "swin_t": _images(_SWIN, smallest_image=4),
    "swin_v2_b": _images(_SWIN_V2, 256, smallest_image=4),
    "swin_v2_s": _images(_SWIN_V2, 256, smallest_image=4),
    "swin_v2_t": _images(_SWIN_V2, 256, smallest_image=4),
    "vgg11": _images(_VGG, smallest_image=32),
    "vgg11_bn": _images(_VGG, smallest_image=32),
    "vgg13": _images(_VGG, smallest_image=32),
    "vgg13_bn": _images(_VGG, smallest_image=32),
    "vgg16": _images(_VGG, smallest_image=32),
    "vgg16_bn": _images(_VGG, smallest_image=32),
    "vgg19": _images(_VGG, smallest_image=32),
    "vgg19_bn": _images(_VGG, smallest_image=32),
    "vit_b_16": _images(_VIT, image_step=16),
    "vit_b_32": _images(_VIT, image_step=32),
    "vit_h_14": _images(_VIT, image_step=14),
    "vit_l_16": _images(_VIT, image_step=16),
    "vit_l_32": _images(_VIT, image_step=32),
    "wide_resnet101_2": _images(_WIDE_RESNET, single_from=33),
    "wide_resnet50_2": _images(_WIDE_RESNET, single_from=33),
}
"""torchvision's classification models, each at the size its published weights are evaluated at."""

_DENSE = {
    # The pooling branch of the pyramid normalises a 1 × 1 image: no batch of one.
    "deeplabv3_mobilenet_v3_large": _pixels(_DEEPLAB, single_from=None),
    "deeplabv3_resnet101": _pixels(_DEEPLAB, single_from=None),
    "deeplabv3_resnet50": _pixels(_DEEPLAB, single_from=None),
    "fcn_resnet101": _pixels(_FCN, single_from=9),
    "fcn_resnet50": _pixels(_FCN, single_from=9),
    "lraspp_mobilenet_v3_large": _pixels(_MOBILENET_V3, single_from=17),
    "fasterrcnn_mobilenet_v3_large_320_fpn": _boxes(_FASTER_RCNN, 320, single_from=33),
    "fasterrcnn_mobilenet_v3_large_fpn": _boxes(_FASTER_RCNN, single_from=33),
    "fasterrcnn_resnet50_fpn": _boxes(_FASTER_RCNN, single_from=33),
    "fasterrcnn_resnet50_fpn_v2": _boxes(_FASTER_RCNN_V2, single_from=33),
    "fcos_resnet50_fpn": _boxes("Tian et al. 2019, arXiv:1904.01355", single_from=33),
    "keypointrcnn_resnet50_fpn": _boxes(_MASK_RCNN, num_classes=2, single_from=33),
    "maskrcnn_resnet50_fpn": _boxes(_MASK_RCNN, single_from=33),
    "maskrcnn_resnet50_fpn_v2": _boxes(_FASTER_RCNN_V2, single_from=33),
    "retinanet_resnet50_fpn": _boxes("Lin et al. 2017, arXiv:1708.02002", single_from=33),
    "retinanet_resnet50_fpn_v2": _boxes("Zhang et al. 2020, arXiv:1912.02424", single_from=33),
    # Both resize every image to their one size inside the model.
    "ssd300_vgg16": _boxes("Liu et al. 2016, arXiv:1512.02325", 300, fixed=True),
    "ssdlite320_mobilenet_v3_large": _boxes(_MOBILENET_V3, 320, fixed=True, single_from=None),
    "raft_large": _flow(_RAFT, smallest_image=128, image_step=8),
    "raft_small": _flow(_RAFT, smallest_image=128, image_step=8),
}
"""Segmentation at the crop torchvision's reference trains with, detection at its shorter side, RAFT at the height of
its FlyingChairs crop; all square."""

_VIDEO = {
    "mc3_18": _clips(_RESNET_3D, 112, 16),
    "mvit_v1_b": _clips("Fan et al. 2021, arXiv:2104.11227", 224, 16, fixed=True),
    "mvit_v2_s": _clips("Li et al. 2022, arXiv:2112.01526", 224, 16, fixed=True),
    "r2plus1d_18": _clips(_RESNET_3D, 112, 16),
    "r3d_18": _clips(_RESNET_3D, 112, 16),
    "s3d": _clips("Xie et al. 2018, arXiv:1712.04851", 224, 128, smallest_image=209, smallest_frames=13),
    "swin3d_b": _clips(_SWIN_3D, 224, 32),
    "swin3d_s": _clips(_SWIN_3D, 224, 32),
    "swin3d_t": _clips(_SWIN_3D, 224, 32),
}
"""torchvision's video models, each at the clip its published weights are evaluated at."""

_HEADS_OF_64: tuple[Limit, ...] = (("hidden", "a multiple of", 64), ("seq", "at most", "max_positions"))

_SEQUENCES = {
    "wordlm": _catamount(
        "language", "Jozefowicz et al. 2016, arXiv:1602.02410", hidden=2004, vocab=10_004, seq=80, layers=2
    ),
    "charlm": _catamount("language", "Zilly et al. 2016, arXiv:1607.03474", hidden=2004, vocab=98, seq=150, depth=10),
    "nmt": _catamount("translation", "Luong et al. 2015, arXiv:1508.04025", hidden=1024, vocab=36_548, seq=19),
    # Half of the frames are left after each of two layers.
    "speech": _catamount(
        "speech", "Battenberg et al. 2017, arXiv:1707.07413", ("frames", "at least", 4), hidden=1024,
        attention_hidden=512, decoder_hidden=512, keys=128, frames=96, vocab=31, audio=40, conv_width=50, filters=4,
    ),
    "word2vec": _catamount(
        "embedding", "Mikolov et al. 2013, arXiv:1301.3781", hidden=400, vocab=40_004, negatives=64, positions=32
    ),
    "bert": _catamount(
        "language", _BERT, *_HEADS_OF_64, layers=12, hidden=768, vocab=30_522, seq=128, max_positions=512
    ),
    "bert_large": _catamount(
        "language", _BERT, *_HEADS_OF_64, layers=24, hidden=1024, vocab=30_522, seq=128, max_positions=512
    ),
    "gpt": _entry(
        "language",
        {"d_model": 768, "layers": 12, "heads": 12, "seq": 1024, "vocab": 50_257},
        "Radford et al. 2019, Language models are unsupervised multitask learners",
        {"limits": (("d_model", "a multiple of", "heads"),)},
        library="workloads",
    ),
}  # fmt: skip
"""Models of text and speech: Catamount's at the sizes that its published counts are for, and GPT-2 small."""

_SYNTHETIC = {
    "synthetic_matmul": _synthetic_entry("square linear layers: FLOP known exactly", width=1024, depth=4),
    "synthetic_convolution": _synthetic_entry("one 3 × 3 convolution: FLOP known exactly", image_size=64, channels=64),
    "synthetic_sleep": _synthetic_entry("a forward pass that sleeps: time known", sleep_us=20_000),
    "synthetic_copy": _synthetic_entry("a copy: bytes known", width=4_194_304),
}
"""Workloads with known answers, to calibrate the harness."""

ENTRIES: Mapping[str, CatalogueEntry] = {
    **_CLASSIFICATION,
    **_DENSE,
    **_VIDEO,
    **_SEQUENCES,
    **_SYNTHETIC,
    **entries.ENTRIES,
}


FACTORIES = {
    "synthetic": "workloads.synthetic:get",
    "language": "workloads.sequences:get",
    "translation": "workloads.sequences:get",
    "speech": "workloads.sequences:get",
    "embedding": "workloads.sequences:get",
    **dict.fromkeys(entries.TASKS, "workloads.fathom.registry:get"),
}
"""Task → the factory of its workloads; torchvision's for all others."""


def entry(name: str) -> CatalogueEntry:
    """Return the entry of a workload. Raises ValueError with the nearest names."""
    check_name(name)
    return ENTRIES[name]


def check_name(name: str) -> None:
    """Raise ValueError, one line with the nearest names, if there is no such workload."""
    known = list(ENTRIES)
    if name not in known:
        near = nearest(name, known, cutoff=0.5)
        hint = f"nearest: {', '.join(near)}" if near else f"there are {len(known)}: {', '.join(known[:3])}, …"
        raise ValueError(f"unknown model {name!r}; {hint}")


def factory(name: str) -> str:
    """Return "module:function" whose function(name, **hyper) returns the Workload. Raises ValueError for an unknown
    name."""
    return FACTORIES.get(entry(name).task, "workloads.torchvision_models:get")


def hyper_of(name: str, /, **chosen: int | None) -> dict[str, int]:
    """Return all sizes of a workload, the chosen ones in place of its defaults; None leaves a default.

    Raises ValueError for a size that the workload does not have, or one below 1.
    """
    return with_sizes(name, entry(name).hyper, chosen)


def with_sizes(name: str, own: Mapping[str, int], chosen: Mapping[str, int | None]) -> dict[str, int]:
    """Return the sizes of a model, the chosen ones in place of its defaults (`own`). Raises as `hyper_of`."""
    sizes = dict(own)
    for key, value in chosen.items():
        if value is None:
            continue
        if key not in sizes:
            raise ValueError(f"{name} has no {key}; it has {', '.join(sizes) or 'no sizes'}")
        if value < 1:
            raise ValueError(f"{key} of {name}: expected 1 or more, got {value}")
        sizes[key] = value
    return sizes


def reason_not_trainable(name: str, hyper: Mapping[str, int], batch_size: int) -> str | None:
    """Return why a workload cannot train at these sizes, in one line; None if no reason is known."""
    known, sizes = entry(name), {**entry(name).hyper, **hyper}
    image, frames = sizes.get("image_size"), sizes.get("frames")
    if known.fixed and any(sizes[key] != known.hyper[key] for key in ("image_size", "frames") if key in sizes):
        fixed = " and ".join(f"{key} {known.hyper[key]}" for key in ("image_size", "frames") if key in sizes)
        return f"{name} takes only {fixed}"
    if image is not None and image < known.smallest_image:
        return f"{name} needs images of at least {known.smallest_image} pixels a side, got {image}"
    if image is not None and image % known.image_step:
        return f"{name} needs an image size divisible by {known.image_step}, got {image}"
    if frames is not None and frames < known.smallest_frames:
        return f"{name} needs at least {known.smallest_frames} frames, got {frames}"
    if (broken := _beyond(known, sizes)) is not None:
        return f"{name} needs {broken}"
    if batch_size == 1 and known.single_from is None:
        return f"{name} normalises single values in a batch of 1: it needs a batch of at least 2"
    if batch_size == 1 and image is not None and known.single_from is not None and image < known.single_from:
        return (
            f"{name} normalises single values in a batch of 1 at image size {image}: "
            f"it needs a batch of at least 2, or images of at least {known.single_from}"
        )
    return None


def _beyond(known: CatalogueEntry, sizes: Mapping[str, int]) -> str | None:
    """Return the first limit of the workload that these sizes break, in words."""
    for size, relation, bound in known.limits:
        limit = sizes[bound] if isinstance(bound, str) else bound
        if not RELATIONS[relation](sizes[size], limit):
            named = f"{bound}, {limit}" if isinstance(bound, str) else f"{limit}"
            return f"{size} to be {relation} {named}; got {sizes[size]}"
    return None
