"""Lists facts about workloads by name, before anything is built: Fathom's eight, a GPT-2 and a ViT (`ENTRIES`).

Fathom is a suite of eight deep-learning workloads. This module needs no torch, so that the catalogue imports in
milliseconds. NAME is the model as Fathom's code has it. NAME@as_paper is the model as its paper describes it, where
code and paper differ. seq2seq@fused is seq2seq with a reader that is one operation. NAME@small is the same model at
sizes for a CPU. Names that torchvision or Catamount also have begin with fathom-. Source: Adolf et al., IISWC 2016,
arXiv:1608.06581, and the code that its authors published.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

Limit = tuple[str, str, int | str]
"""(size, relation, bound), as in ("seq", "at most", "max_positions")."""

RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "at least": lambda size, bound: size >= bound,
    "at most": lambda size, bound: size <= bound,
    "a multiple of": lambda size, bound: size % bound == 0,
}


@dataclass(frozen=True)
class CatalogueEntry:
    """Facts about one workload.

    task: classification, segmentation, detection, video, flow, language, translation, speech, embedding, synthetic, or
    one of TASKS.
    hyper: default of every size it takes; image_size is height and width in pixels, frames the length of a clip, width
    the channels of a residual network's first stage.
    source: where architecture and defaults are defined.
    limits: (size, relation of RELATIONS, a number or another size); all must hold, or the model cannot be built.
    smallest_image, smallest_frames: smaller sizes fail.
    image_step: every multiple of this number of pixels works.
    fixed: image_size and frames can only be the defaults.
    single_from: smallest image that trains in a batch of one; below, batch normalisation meets a single value per
    channel and refuses. None: no image is large enough.
    batch_size: the source's, or 0. optimizer: the source's, in words, or "". variant: as_coded or as_paper, where a
    paper and its code describe two models; fused, where recurrent layers are one operation.
    """

    task: str
    hyper: Mapping[str, int]
    source: str
    smallest_image: int = 1
    image_step: int = 1
    fixed: bool = False
    single_from: int | None = 1
    smallest_frames: int = 1
    limits: tuple[Limit, ...] = ()
    batch_size: int = 0
    optimizer: str = ""
    variant: str = ""


AS_CODED, AS_PAPER, FUSED, SMALL = "as_coded", "as_paper", "fused", "@small"
"""Variants, and the ending of names of the small scale."""

FATHOM = ("seq2seq", "memnet", "fathom-speech", "autoenc", "residual", "fathom-vgg", "fathom-alexnet", "deepq")
"""Fathom's eight workloads, in the order of the paper."""

TASKS = (
    "machine translation",
    "question answering",
    "speech recognition",
    "autoencoding",
    "image recognition",
    "reinforcement learning",
    "language modelling",
)

_LIBRARY = "workloads.fathom; "
_FATHOM = _LIBRARY + "Adolf et al. 2016, arXiv:1608.06581"


def _as_coded(task: str, batch_size: int, optimizer: str, hyper: Mapping[str, int], **facts: object) -> CatalogueEntry:
    known = CatalogueEntry(task, hyper, _FATHOM, batch_size=batch_size, optimizer=optimizer, variant=AS_CODED)
    return replace(known, **facts)  # type: ignore[arg-type]


_CODED = {
    "seq2seq": _as_coded(
        "machine translation", 64, "SGD 0.5, gradients of norm 5 at most",
        {"hidden": 256, "layers": 3, "vocab": 40_000, "source_words": 40, "target_words": 50, "negatives": 512},
        limits=(("vocab", "at least", 5), ("target_words", "at least", 2)),
    ),
    "memnet": _as_coded(
        "question answering", 32, "Adam 0.01, each gradient of norm 40 at most, noise of 0.001 added",
        {"embedding": 20, "vocab": 20, "sentence": 6, "memory": 10, "hops": 3},
        limits=(("vocab", "at least", 20), ("sentence", "at least", 6), ("memory", "at least", 2)),
    ),
    "fathom-speech": _as_coded(
        "speech recognition", 32, "SGD 0.01",
        {"hidden": 1024, "frames": 1566, "coefficients": 26, "labels": 75, "phonemes": 62},
        limits=(("frames", "at least", "labels"), ("phonemes", "at least", 3)),
    ),
    "autoenc": _as_coded("autoencoding", 128, "Adam 0.001", {"pixels": 784, "latent": 200}),
    "residual": _as_coded(
        "image recognition", 16, "Adam 0.01", {"image_size": 224, "num_classes": 1001, "width": 64},
        image_step=4, smallest_image=4, limits=(("width", "a multiple of", 2),),
    ),
    "fathom-vgg": _as_coded(
        "image recognition", 8, "Adam 0.0001", {"image_size": 224, "num_classes": 1001, "width": 64},
        image_step=32, smallest_image=32,
    ),
    "fathom-alexnet": _as_coded(
        "image recognition", 64, "Adam 0.001", {"image_size": 224, "num_classes": 1001, "width": 64},
        image_step=32, smallest_image=64,
    ),
    "deepq": _as_coded(
        "reinforcement learning", 32, "RMSProp 0.00025", {"image_size": 84, "hidden": 512, "actions": 4},
        fixed=True, limits=(("actions", "at least", 4),),
    ),
    "gpt2": CatalogueEntry(
        "language modelling", {"d_model": 768, "layers": 12, "heads": 12, "seq": 1024, "vocab": 50_257},
        _LIBRARY + "Radford et al. 2019, Language models are unsupervised multitask learners",
        limits=(("d_model", "a multiple of", "heads"),), batch_size=8, optimizer="AdamW 0.0006",
    ),
    "vit": CatalogueEntry(
        "image recognition",
        {"image_size": 224, "num_classes": 1000, "patch": 16, "d_model": 768, "layers": 12, "heads": 12},
        _LIBRARY + "Dosovitskiy et al. 2021, arXiv:2010.11929",
        limits=(("d_model", "a multiple of", "heads"), ("image_size", "a multiple of", "patch")),
        batch_size=64, optimizer="AdamW 0.001",
    ),
}  # fmt: skip

_PAPER: dict[str, tuple[dict[str, int], dict[str, object]]] = {
    "seq2seq": ({}, {}),
    "fathom-speech": ({"hidden": 2048}, {}),
    "residual": ({"num_classes": 1000}, {"image_step": 1, "smallest_image": 1, "single_from": 33}),
    "fathom-vgg": ({"num_classes": 1000}, {}),
    "fathom-alexnet": (
        {"num_classes": 1000},
        {"optimizer": "SGD 0.01, momentum 0.9", "limits": (("width", "a multiple of", 4),)},
    ),
    "deepq": ({}, {}),
}
"""Name → the sizes and facts in which the paper's model differs from the code's. Those of memnet and autoenc do not
differ."""

_SMALL = {
    "seq2seq": (16, {"hidden": 64, "vocab": 2000, "source_words": 10, "target_words": 12, "negatives": 64}),
    "memnet": (32, {}),
    "fathom-speech": (8, {"hidden": 256, "frames": 96, "labels": 16}),
    "autoenc": (128, {}),
    "residual": (4, {"image_size": 64, "num_classes": 10, "width": 32}),
    "fathom-vgg": (4, {"image_size": 64, "num_classes": 10, "width": 16}),
    "fathom-alexnet": (16, {"image_size": 96, "num_classes": 10, "width": 16}),
    "deepq": (32, {"image_size": 36, "hidden": 128}),
    "gpt2": (8, {"d_model": 64, "layers": 2, "heads": 4, "seq": 64, "vocab": 256}),
    "vit": (8, {"image_size": 32, "num_classes": 10, "patch": 8, "d_model": 64, "layers": 2, "heads": 4}),
}
"""Name → batch size and the sizes that differ at the small scale, where a step takes a CPU about a second at most.
memnet and autoenc are small already."""


def _variant(known: CatalogueEntry, sizes: Mapping[str, int], **facts: object) -> CatalogueEntry:
    return replace(known, hyper={**known.hyper, **sizes}, **facts)  # type: ignore[arg-type]


def base(name: str) -> str:
    """Return the model of a workload, whatever its variant and scale: "residual" of "residual@as_paper@small"."""
    return name.partition("@")[0]


_LARGE = {
    **_CODED,
    **{
        f"{name}@{AS_PAPER}": _variant(_CODED[name], sizes, variant=AS_PAPER, **facts)
        for name, (sizes, facts) in _PAPER.items()
    },
    f"seq2seq@{FUSED}": replace(_CODED["seq2seq"], variant=FUSED),
}

ENTRIES: Mapping[str, CatalogueEntry] = {
    **_LARGE,
    **{
        f"{name}{SMALL}": _variant(known, _SMALL[base(name)][1], batch_size=_SMALL[base(name)][0])
        for name, known in _LARGE.items()
    },
}
