"""torchvision's models as workloads: each trains at the edge of what the catalogue says, and fails beyond it.

Most run on the meta device, where a size that cannot be is refused as on any other; detectors look at values and run
on the CPU. Families whose members differ only in width or depth are run by one member unless `slow` is asked for.
"""

from __future__ import annotations

import math
from collections import namedtuple

import pytest
import torch

from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file
from workloads.catalogue.catalogue import ENTRIES, reason_not_trainable
from workloads.training.step import OPTIMIZERS, TrainingStep
from workloads.vision import models
from workloads.vision import models as vision_models

FAST = {
    "alexnet",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "googlenet",
    "inception_v3",
    "maxvit_t",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "regnet_x_400mf",
    "resnet18",
    "shufflenet_v2_x0_5",
    "squeezenet1_1",
    "swin_t",
    "vgg11",
    "vit_b_16",
    "vit_h_14",
    "fcn_resnet50",
    "lraspp_mobilenet_v3_large",
    "fcos_resnet50_fpn",
    "ssdlite320_mobilenet_v3_large",
    "mvit_v2_s",
    "r3d_18",
    "s3d",
    "swin3d_t",
}
NAMES = [name for name, known in ENTRIES.items() if known.task in vision_models.ITEMS]
REFUSALS = (RuntimeError, ValueError, AssertionError, TypeError, IndexError)
META, CPU = torch.device("meta"), torch.device("cpu")


def marked(names, fast=FAST):
    return [pytest.param(name, marks=() if name in fast else pytest.mark.slow) for name in names]


def train(name, size, device=META, **hyper):
    """Forward, loss and backward of one batch, past the catalogue's own refusal; the loss."""
    known = ENTRIES[name]
    sizes = {**known.hyper, **hyper}
    generator = None if device == META else torch.Generator().manual_seed(0)
    with torch.device(device):
        model = vision_models.build(name, **sizes)
    batch = models.BATCHES[known.task](name, sizes, size, device, generator)
    loss = vision_models._OWN_LOSSES.get(name, vision_models._LOSSES[known.task])(model(*batch.inputs), batch.target)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
    return loss


def refuses(name, size, device=META, **hyper):
    try:
        train(name, size, device, **hyper)
    except REFUSALS:
        return True
    return False


def device_of(name):
    return CPU if ENTRIES[name].task == "detection" else META


def edge(name):
    """Sizes at the smallest promise of the catalogue: small for the CPU, and the claim's own edge."""
    known = ENTRIES[name]
    step = known.image_step
    image = known.hyper["image_size"] if known.fixed else -(-known.smallest_image // step) * step
    if known.task == "detection" and not known.fixed:
        image = known.single_from  # below a feature map of one position, boxes have nothing to lie on
    sizes = {"image_size": image}
    if "frames" in known.hyper:
        sizes["frames"] = known.hyper["frames"] if known.fixed else known.smallest_frames
    return sizes


@pytest.mark.parametrize("name", marked(NAMES))
def test_it_trains_at_its_smallest_sizes_in_a_batch_of_two(name):
    assert reason_not_trainable(name, {**ENTRIES[name].hyper, **edge(name)}, 2) is None
    assert train(name, 2, device_of(name), **edge(name)).shape == ()


@pytest.mark.parametrize("name", marked([name for name in NAMES if ENTRIES[name].smallest_image > 1]))
def test_a_smaller_image_fails(name):
    step = ENTRIES[name].image_step
    below = (ENTRIES[name].smallest_image - 1) // step * step
    sizes = {**edge(name), "image_size": below}
    assert reason_not_trainable(name, sizes, 2)
    assert refuses(name, 2, **sizes)


def test_fewer_frames_fail():
    assert [name for name in NAMES if ENTRIES[name].smallest_frames > 1] == ["s3d"]
    assert reason_not_trainable("s3d", {"frames": 12}, 2)
    assert refuses("s3d", 2, **{**edge("s3d"), "frames": 12})


@pytest.mark.parametrize("name", marked([name for name in NAMES if ENTRIES[name].single_from != 1]))
def test_a_batch_of_one_trains_from_the_size_it_says(name):
    device, from_size = device_of(name), ENTRIES[name].single_from
    if from_size is None:
        assert reason_not_trainable(name, {}, 1)
        assert refuses(name, 1, device)
        return
    sizes = {**edge(name), "image_size": from_size}
    assert reason_not_trainable(name, sizes, 1) is None
    assert not refuses(name, 1, device, **sizes)
    below = {**sizes, "image_size": from_size - 1}
    assert reason_not_trainable(name, below, 1)
    assert refuses(name, 1, device, **below)


@pytest.mark.parametrize("name", marked([name for name in NAMES if ENTRIES[name].single_from == 1]))
def test_the_others_train_in_a_batch_of_one_at_their_own_size(name):
    sizes = {"image_size": 224, "frames": 16} if name.startswith("s3d") else {}
    assert not refuses(name, 1, device_of(name), **sizes)


def test_fixed_sizes_are_fixed():
    assert [name for name in NAMES if ENTRIES[name].fixed] == [
        "ssd300_vgg16",
        "ssdlite320_mobilenet_v3_large",
        "mvit_v1_b",
        "mvit_v2_s",
    ]
    for name in ("ssd300_vgg16", "ssdlite320_mobilenet_v3_large"):
        size = ENTRIES[name].hyper["image_size"]
        with torch.device(META):
            resize = vision_models.build(name, **ENTRIES[name].hyper).transform
        assert resize.fixed_size == (size, size)  # whatever comes in
    for name in ("mvit_v1_b", "mvit_v2_s"):
        assert refuses(name, 2, image_size=112)
        assert refuses(name, 2, frames=8)


@pytest.mark.parametrize("name", marked(NAMES, fast={"regnet_x_400mf", "resnet18", "swin_t"}))
def test_every_model_builds_on_meta(name):
    with torch.device(META):
        model = vision_models.build(name, **ENTRIES[name].hyper)
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert model.training


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("resnet18", {"image_size": 33}),
        ("squeezenet1_1", {"image_size": 17}),
        ("mobilenet_v3_small", {"image_size": 33}),
        ("swin_t", {"image_size": 4}),
        ("lraspp_mobilenet_v3_large", {"image_size": 17}),
        ("r3d_18", {"image_size": 17, "frames": 1}),
        ("fcos_resnet50_fpn", {"image_size": 64}),
    ],
)
def test_a_real_step_changes_the_weights(name, sizes):
    workload = vision_models.get(name, **sizes)
    torch.manual_seed(0)
    model = workload.build(**workload.hyper)
    batch = workload.batch(workload.hyper, 1, CPU, torch.Generator().manual_seed(0))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    step = TrainingStep(model, workload.loss, OPTIMIZERS["sgd"](model.parameters()), [batch], "cpu")
    step()
    assert torch.isfinite(step.last_loss)
    assert sum(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True)) > 10
    assert workload.items(workload.hyper, 7) == 7


@pytest.mark.parametrize("name", ["resnet18", "inception_v3", "vit_b_16", "fcn_resnet50"])
def test_sizes_reach_the_model(name):
    size = {"vit_b_16": 32, "inception_v3": 299}.get(name, 64)
    workload = vision_models.get(name, num_classes=7, image_size=size)
    with torch.device(META):
        model = workload.build(**workload.hyper)
    (images,) = workload.batch(workload.hyper, 2, META, None).inputs
    output = model(images)
    output = getattr(output, "logits", output)
    output = output["out"] if isinstance(output, dict) else output
    assert images.shape == (2, 3, size, size)
    assert output.shape[:2] == (2, 7)


@pytest.mark.parametrize("name", ["keypointrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn", "fcos_resnet50_fpn"])
def test_what_is_in_an_image_is_valid(name):
    hyper = {**ENTRIES[name].hyper, "image_size": 50, "boxes": 200}
    images, objects = models.box_batch(name, hyper, 3, CPU, torch.Generator().manual_seed(0)).inputs
    assert [tuple(image.shape) for image in images] == [(3, 50, 50)] * 3
    for one in objects:
        left_top, right_bottom = one["boxes"][:, :2], one["boxes"][:, 2:]
        assert one["boxes"].shape == (200, 4)
        assert bool((left_top >= 0).all() and (right_bottom <= 50).all() and (right_bottom - left_top >= 4.9).all())
        assert one["labels"].min() >= 1
        assert one["labels"].max() < hyper["num_classes"]
        if name.startswith("keypoint"):
            points = one["keypoints"]
            assert points.shape == (200, 17, 3)
            assert bool((points[:, :, :2] >= left_top[:, None]).all() and (points[:, :, 2] == 1).all())
            assert bool((points[:, :, :2] <= right_bottom[:, None]).all())
        if name.startswith("mask"):
            assert one["masks"].shape == (200, 50, 50)
            assert one["masks"].dtype == torch.uint8
            assert one["masks"].unique().tolist() == [0, 1]


@pytest.mark.parametrize("task", sorted(models.BATCHES))
def test_batches_repeat_with_their_generator_and_are_never_zero(task):
    name = next(name for name, known in ENTRIES.items() if known.task == task)
    hyper = {**ENTRIES[name].hyper, "image_size": 16} | ({"frames": 2} if task == "video" else {})

    def first(seed):
        images = models.BATCHES[task](name, hyper, 2, CPU, torch.Generator().manual_seed(seed)).inputs[0]
        return torch.stack(list(images))

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))
    assert bool((first(1) != 0).all())
    assert abs(first(1).mean()) < 0.2
    assert 0.8 < first(1).std() < 1.2


class TestLosses:
    """Equal logits of 4 classes: each cross entropy is ln 4, so that a loss shows its weights."""

    logits, labels, unit = torch.zeros(3, 4), torch.tensor([0, 1, 3]), math.log(4)

    def test_plain(self):
        assert float(models.classification_loss(self.logits, self.labels)) == pytest.approx(self.unit)

    def test_googlenet_adds_three_tenths_of_each_head(self):
        output = namedtuple("O", "logits aux_logits2 aux_logits1")(self.logits, self.logits, self.logits)
        assert float(models.googlenet_loss(output, self.labels)) == pytest.approx(1.6 * self.unit)

    def test_inception_adds_four_tenths(self):
        output = namedtuple("O", "logits aux_logits")(self.logits, self.logits)
        assert float(models.inception_loss(output, self.labels)) == pytest.approx(1.4 * self.unit)

    def test_segmentation_adds_half(self):
        pixels, labels = torch.zeros(1, 4, 2, 2), torch.zeros(1, 2, 2, dtype=torch.int64)
        assert float(models.segmentation_loss({"out": pixels}, labels)) == pytest.approx(self.unit)
        both = {"out": pixels, "aux": pixels}
        assert float(models.segmentation_loss(both, labels)) == pytest.approx(1.5 * self.unit)

    def test_detection_sums(self):
        assert float(models.detection_loss({"a": torch.tensor(1.5), "b": torch.tensor(2.0)}, None)) == 3.5

    def test_flow_weighs_the_last_most(self):
        """Distances 1, 2 and 4 in the order of prediction: 0.64·1 + 0.8·2 + 1·4."""
        target = torch.zeros(1, 2, 3, 3)
        predictions = [target + 1, target - 2, target + 4]
        assert float(models.flow_loss(predictions, target)) == pytest.approx(0.64 + 1.6 + 4)


def test_mistakes_are_one_line():
    for hyper, said in (({"image_size": 225}, "divisible by 16"), ({"image_sise": 1}, "vit_b_16 has no image_sise")):
        with pytest.raises(ValueError, match=said) as fault:
            vision_models.get("vit_b_16", **hyper)
        assert "\n" not in str(fault.value)
    with pytest.raises(ValueError, match="unknown model"):
        vision_models.get("vit_b_17")
    with pytest.raises(ValueError, match="none of torchvision's"):
        vision_models.get("synthetic_copy")
