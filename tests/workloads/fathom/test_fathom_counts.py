"""Definition, known answer: parameters and FLOP of Fathom's workloads, by formulas and as others publish them.

The formulas are in `tests/support/oracles/fathom_formulas.py`. Fathom's setup, run and teardown are tested here, too,
and batches that a workload cannot take.
"""

import pytest
import torch

import flopledger
from analysis.operators.registry import total, unsupported
from measure.operations.fake_mode import to_fake
from measure.operations.tracer import StepParts, trace
from tests.support.oracles.fathom_formulas import PARAMETERS, PRODUCTS, TINY
from workloads import any_model
from workloads.any_model import mismatch
from workloads.catalogue import entries
from workloads.catalogue.base import Batch
from workloads.catalogue.catalogue import entry
from workloads.fathom.registry import FAMILIES, FathomModel, get
from workloads.step import TrainingStep, optimizer_of

CPU, META = torch.device("cpu"), torch.device("meta")
NAMES = list(FAMILIES)


def tiny(name):
    """At deepq's small scale, whose image is smaller."""
    return get(f"{name}@small" if name.startswith("deepq") else name, **TINY[entries.base(name)])


def on_meta(workload, batch_size):
    with META:
        return workload.build(**workload.hyper), workload.batch(workload.hyper, batch_size, META, None).inputs


def trained(model):
    return sum(parameter.numel() for parameter in model.parameters())


def products(workload, batch_size):
    """Multiply-adds of a step forward and backward, and of one in evaluation mode."""
    model, inputs = on_meta(workload, batch_size)
    step, alone = flopledger.count(model, inputs), flopledger.count(model.eval(), inputs)
    assert step.not_understood == alone.not_understood == {}
    return step.forward_flop // 2, step.backward_flop // 2, alone.forward_flop // 2


def parts(workload, batch_size=3):
    """How to build a training step with the workload's own optimizer, on fake or real tensors."""

    def build(mode):
        torch.manual_seed(0)
        model = workload.build(**workload.hyper)
        batch = workload.batch(workload.hyper, batch_size, CPU, torch.Generator().manual_seed(0))
        if mode is not None:
            to_fake(model, mode)
            batch = to_fake(batch, mode)
        optimizer = optimizer_of("own", workload, model.parameters())
        step = TrainingStep(model, workload.loss, optimizer, [batch], "cpu")
        return StepParts(step, model, optimizer, (batch.inputs, batch.target))

    return build


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_by_hand(name):
    for workload in (get(name), tiny(name)):
        with META:
            model = workload.build(**workload.hyper)
        assert trained(model) == PARAMETERS[name](**workload.hyper)


PUBLISHED = {
    "seq2seq": 34.6e6,
    "memnet": 1800,
    "fathom-speech": 2.19e6,
    "fathom-speech@as_paper": 25.4e6,
    "autoenc": 0.47e6,
    "residual": 6.18e6,
    "residual@as_paper": 21.80e6,
    "fathom-vgg": 138.4e6,
    "fathom-vgg@as_paper": 143.67e6,
    "fathom-alexnet": 61.1e6,
    "fathom-alexnet@as_paper": 60.97e6,
    "deepq": 1.69e6,
    "gpt2": 124.44e6,
    "vit": 86.57e6,
}
"""Fathom's code by an independent restatement; ResNet-34, VGG-19 and ViT-B/16 as torchvision gives them; the AlexNet of
two devices by its paper's sixty million, exactly; GPT-2 small."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_that_are_known(name):
    workload = get(name)
    with META:
        assert trained(workload.build(**workload.hyper)) == pytest.approx(PUBLISHED[name], rel=4e-3)


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_by_hand(name):
    workload = tiny(name)
    assert products(workload, 3) == tuple(3 * each for each in PRODUCTS[name](**workload.hyper))


GFLOP = {
    "seq2seq": (None, 70.4, 88.2),
    "memnet": (0.0001, 0.0003, 0.0001),
    "fathom-speech": (219, 655, 219),
    "autoenc": (0.120, 0.281, 0.120),
    "residual": (519, 1554, 519),
    "fathom-vgg": (248, 741, 248),
    "fathom-alexnet": (91.7, 266, 91.7),
    "deepq": (None, 2.18, 32 * 0.0187),
}
"""Of a step at the batch of the code, counted on another restatement: forward, whole step, forward in evaluation."""


@pytest.mark.parametrize("name", GFLOP)
def test_flop_at_the_canonical_sizes(name):
    batch_size = entry(name).batch_size
    forward, backward, alone = (2e-9 * batch_size * each for each in PRODUCTS[name](**entry(name).hyper))
    for found, expected in zip((forward, forward + backward, alone), GFLOP[name], strict=True):
        assert expected is None or found == pytest.approx(expected, rel=0.005, abs=3e-5)


def test_the_papers_networks_are_torchvisions():
    """ResNet-34 and VGG-19, layer by layer written elsewhere, and the 724 million multiply-adds that are known of the
    AlexNet of two devices."""
    from workloads import torchvision_models as vision_models

    for name, other in (("residual@as_paper", "resnet34"), ("fathom-vgg@as_paper", "vgg19")):
        assert products(get(name), 1) == products(vision_models.get(other), 1), name
    assert products(get("fathom-alexnet@as_paper"), 1)[2] == pytest.approx(724.4e6, rel=1e-3)


LONG = ("seq2seq@as_paper", "residual@as_paper")
"""Many operations that the others have, too."""


@pytest.mark.parametrize("name", [n if n not in LONG else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_a_step_on_fake_tensors_is_understood_and_is_the_real_one(name):
    """Optimizer included. Fake tensors stand for the CTC loss, too."""
    build = parts(tiny(name))
    fake = trace(build)
    assert fake.notes == ()
    assert unsupported(fake.operations) == {}
    real = trace(lambda _mode: build(None))

    def told(recorded):
        return [(o.name, o.phase, o.input_shapes, o.output_shapes) for o in recorded.operations]

    assert told(fake) == told(real)
    if name in PRODUCTS:
        forward, backward, _ = PRODUCTS[name](**tiny(name).hyper)
        by_phase = {
            phase: int(total(o for o in fake.operations if o.phase == phase).model_flop) // 2
            for phase in ("forward", "backward")
        }
        assert by_phase == {"forward": 3 * forward, "backward": 3 * backward}


SMALL = {"hidden": 16, "batch_size": 4, "a size of TensorFlow's": 3}


def test_a_model_is_set_up_run_and_torn_down():
    model = FathomModel("deepq@small", init_options=SMALL)
    threads = torch.get_num_threads()
    model.setup({"intra_op_parallelism_threads": 1, "allow_soft_placement": True})
    try:
        assert torch.get_num_threads() == 1
        before = next(model.model().parameters()).detach().clone()
        (loss, train), (_, _) = model.run(n_steps=2)
        assert loss.isfinite()
        assert train is None
        assert not torch.equal(before, next(model.model().parameters()))
    finally:
        model.teardown()
    assert torch.get_num_threads() == threads
    with pytest.raises(ValueError, match="deepq@small is not set up"):
        model.run()


def test_a_batch_that_a_workload_cannot_take_is_one_line():
    workload = any_model.get("residual@small")
    wrong = Batch((torch.ones(2, 4, 64, 64),), torch.zeros(2))
    assert mismatch(workload, wrong) == (
        "residual@small cannot take this batch: expected 2x3x64x64 float32, got 2x4x64x64 float32"
    )
    assert mismatch(workload, workload.batch(workload.hyper, 2, torch.device("cpu"), None)) == ""
    assert "one sample or more" in mismatch(workload, Batch((torch.ones(0, 3, 64, 64),), None))
    model = FathomModel("residual@small")
    model.setup()
    model._batches = iter([wrong])
    with pytest.raises(ValueError, match="expected 2x3x64x64 float32"):
        model.run()


def test_forward_only_gives_outputs_and_trains_nothing():
    model = FathomModel("autoenc", init_options={"pixels": 30, "batch_size": 2}, forward_only=True)
    before = [parameter.clone() for parameter in model.model().parameters()]
    model.setup()
    ((outputs,),) = model.run()
    assert outputs[0].shape == (2, 30)
    assert all(torch.equal(*pair) for pair in zip(before, model.model().parameters(), strict=True))
