"""Definition, law: each model of torchvision trains at the edge of the sizes in the catalogue, and fails beyond it.

Most run on the meta device, where a size that cannot be is refused as on any other; detectors look at values and run
on the CPU. Families whose members differ only in width or depth are run by one member unless `slow` is asked for.
"""

import math
import random
from collections import namedtuple

import numpy as np
import pytest
import torch
from torchvision.models import get_model

from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file
from workloads import torchvision_models as models
from workloads import torchvision_models as vision_models
from workloads.catalogue.catalogue import ENTRIES, reason_not_trainable

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
    batch = models._batch(name, sizes, size, device, generator)
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


@pytest.mark.parametrize("name", [name for name in NAMES if ENTRIES[name].smallest_image > 1])
def test_a_smaller_image_fails(name):
    step = ENTRIES[name].image_step
    below = (ENTRIES[name].smallest_image - 1) // step * step
    sizes = {**edge(name), "image_size": below}
    assert reason_not_trainable(name, sizes, 2)
    assert refuses(name, 2, **sizes)


def described(model):
    """Modules, in order, with their types and plain settings, and all that a tensor is but its values."""
    modules = [(name, type(m), m.training, _settings(m)) for name, m in model.named_modules(remove_duplicate=False)]
    tensors = [
        (name, type(t), t.shape, t.stride(), t.dtype, t.device, t.requires_grad, t.is_leaf)
        for named in (model.named_parameters, model.named_buffers)
        for name, t in named(remove_duplicate=False)
    ]
    return modules, tensors, list(model.state_dict())


def _settings(module):
    return {name: value for name, value in vars(module).items() if type(value) in (int, float, str, tuple)}


@pytest.mark.parametrize("name", marked(NAMES, fast=FAST | {"regnet_y_400mf"}))
def test_the_model_is_the_one_that_is_built_with_initialisation(name):
    options = vision_models._options(name, ENTRIES[name].hyper)
    with torch.device("cpu" if name.startswith("regnet") else "meta"):
        expected = get_model(name, **options).train().to(META)
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].tolist()
    with META:
        built = vision_models.build(name, **ENTRIES[name].hyper)
    assert described(built) == described(expected)
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert np.random.get_state()[1].tolist() == states[2]


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


@pytest.mark.parametrize("task", sorted(models.ITEMS))
def test_batches_repeat_with_their_generator_and_are_never_zero(task):
    name = next(name for name, known in ENTRIES.items() if known.task == task)
    hyper = {**ENTRIES[name].hyper, "image_size": 16} | ({"frames": 2} if task == "video" else {})

    def first(seed):
        images = models._batch(name, hyper, 2, CPU, torch.Generator().manual_seed(seed)).inputs[0]
        return torch.stack(list(images))

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))
    assert bool((first(1) != 0).all())
    assert abs(first(1).mean()) < 0.2
    assert 0.8 < first(1).std() < 1.2


LOGITS, LABELS, UNIT = torch.zeros(3, 4), torch.tensor([0, 1, 3]), math.log(4)
"""Equal logits of 4 classes: each cross entropy is ln 4, so that a loss shows its weights."""
PIXELS, PIXEL_LABELS, FLOW = torch.zeros(1, 4, 2, 2), torch.zeros(1, 2, 2, dtype=torch.int64), torch.zeros(1, 2, 3, 3)
LOSSES = [
    (models.classification_loss, LOGITS, LABELS, UNIT),
    (models.googlenet_loss, namedtuple("O", "logits aux_logits2 aux_logits1")(LOGITS, LOGITS, LOGITS), LABELS,
     (1 + 0.3 + 0.3) * UNIT),
    (models.inception_loss, namedtuple("O", "logits aux_logits")(LOGITS, LOGITS), LABELS, (1 + 0.4) * UNIT),
    (models.segmentation_loss, {"out": PIXELS}, PIXEL_LABELS, UNIT),
    (models.segmentation_loss, {"out": PIXELS, "aux": PIXELS}, PIXEL_LABELS, (1 + 0.5) * UNIT),
    (models.detection_loss, {"a": torch.tensor(1.5), "b": torch.tensor(2.0)}, None, 1.5 + 2),
    (models.flow_loss, [FLOW + 1, FLOW - 2, FLOW + 4], FLOW, 0.64 * 1 + 0.8 * 2 + 1 * 4),  # the last weighs most
]  # fmt: skip


@pytest.mark.parametrize(("loss", "output", "target", "expected"), LOSSES)
def test_a_loss_weighs_the_outputs_as_its_model_is_trained(loss, output, target, expected):
    assert float(loss(output, target)) == pytest.approx(expected)
