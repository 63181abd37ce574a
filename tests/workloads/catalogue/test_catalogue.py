"""Known answer, injected fault: the table of workloads against torchvision's lists, and the sizes that it refuses."""

import re

import pytest
import torchvision.models as models
from torchvision.models import get_model_weights, list_models

from workloads.catalogue.catalogue import ENTRIES, hyper_of, reason_not_trainable
from workloads.fathom import registry

MODULES = {
    "classification": models,
    "detection": models.detection,
    "segmentation": models.segmentation,
    "video": models.video,
    "flow": models.optical_flow,
}


def of_task(task):
    return {name for name, known in ENTRIES.items() if known.task == task}


@pytest.mark.parametrize("task", MODULES)
def test_the_table_is_torchvisions_list(task):
    assert of_task(task) == set(list_models(module=MODULES[task]))


def test_default_sizes_are_those_of_published_weights():
    """A classifier's image is a crop that torchvision evaluates some weights of it at; likewise a clip, whose length
    the description of its weights says."""
    for name in of_task("classification") | of_task("video"):
        crops, lengths = set(), set()
        for weights in get_model_weights(name):
            crop = weights.transforms().crop_size
            crops.add(crop[0] if isinstance(crop, (tuple, list)) else crop)
            lengths |= {int(frames) for frames in re.findall(r"clip_len=(\d+)", weights.meta["_docs"])} or {None}
        assert ENTRIES[name].hyper["image_size"] in crops, name
        assert ENTRIES[name].hyper.get("frames") in lengths, name


def test_every_default_is_trainable():
    for name, known in ENTRIES.items():
        assert reason_not_trainable(name, known.hyper, batch_size=2) is None, name


def test_sizes_are_the_defaults_but_for_the_chosen():
    assert hyper_of("resnet18") == {"image_size": 224, "num_classes": 1000, "width": 64}
    assert hyper_of("vgg11", num_classes=10, image_size=None) == {"image_size": 224, "num_classes": 10}
    assert ENTRIES["vgg11"].hyper["num_classes"] == 1000  # the table is not what was given out
    with pytest.raises(ValueError, match="resnet18 has no frames; it has image_size, num_classes, width"):
        hyper_of("resnet18", frames=3)
    with pytest.raises(ValueError, match="image_size of resnet18: expected 1 or more, got 0"):
        hyper_of("resnet18", image_size=0)


def test_a_workload_of_sizes_that_do_not_go_together_is_refused():
    for name, hyper in (("fathom-speech", {"labels": 2000}), ("fathom-vgg", {"image_size": 100})):
        with pytest.raises(ValueError, match=name):
            registry.get(name, **hyper)


@pytest.mark.parametrize(
    ("name", "hyper", "batch_size", "said"),
    [
        ("vgg11", {"image_size": 31}, 2, "at least 32 pixels"),
        ("vit_b_16", {"image_size": 225}, 2, "divisible by 16, got 225"),
        ("vit_h_14", {"image_size": 3 * 14}, 2, None),  # its patches are of 14 × 14
        ("vit_l_16", {"image_size": 3 * 16}, 2, None),
        ("raft_large", {"image_size": 17 * 8}, 2, None),  # its features are at an eighth of the image
        ("raft_small", {"image_size": 17 * 8}, 2, None),
        ("s3d", {"frames": 12}, 2, "at least 13 frames"),
        ("mvit_v1_b", {"frames": 8}, 2, "takes only image_size 224 and frames 16"),
        ("ssd300_vgg16", {"image_size": 512}, 2, "takes only image_size 300"),
        ("deeplabv3_resnet50", {}, 1, "a batch of at least 2"),
        ("resnet18", {"image_size": 32}, 1, "images of at least 33"),
        ("resnet18", {"image_size": 32}, 2, None),
        ("resnet18", {"image_size": 33}, 1, None),
        ("mvit_v1_b", {"num_classes": 10}, 1, None),
        ("synthetic_sleep", {}, 1, None),
        ("fathom-speech", {"labels": 2000}, 2, "frames to be at least labels, 2000; got 1566"),
        ("fathom-vgg", {"image_size": 100}, 2, "divisible by 32, got 100"),
        ("deepq", {"image_size": 96}, 2, "takes only image_size 84"),
        ("residual@as_paper@small", {"image_size": 32}, 1, "a batch of at least 2"),
        ("residual@as_paper@small", {"image_size": 33}, 1, None),
        ("residual@small", {"image_size": 32}, 1, None),
    ],
)
def test_reasons(name, hyper, batch_size, said):
    reason = reason_not_trainable(name, hyper, batch_size)
    assert (reason is None) == (said is None)
    assert said is None or (said in reason and name in reason)
