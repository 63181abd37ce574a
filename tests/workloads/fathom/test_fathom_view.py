"""Fathom's setup, run, teardown over a workload; a person's own parts; batches that a workload cannot take."""

from __future__ import annotations

import pytest
import torch

from workloads.catalogue.base import Batch
from workloads.fathom.registry import FathomModel
from workloads.sources import any_model
from workloads.training.building import mismatch

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


def test_a_runstep_is_called_once_a_step_and_runs_it():
    model, seen = FathomModel("memnet", init_options={"batch_size": 3}), []

    def runstep(session, fetches, feed_dict):
        seen.append((fetches, feed_dict["inputs"][0].shape, feed_dict["labels"].shape))
        return session.run(fetches, feed_dict)

    model.setup()
    assert len(model.run(runstep, n_steps=3)) == 3
    assert seen == [(("loss", "train"), (3, 10, 6), (3,))] * 3


def test_forward_only_gives_outputs_and_trains_nothing():
    model = FathomModel("autoenc", init_options={"pixels": 30, "batch_size": 2}, forward_only=True)
    before = [parameter.clone() for parameter in model.model().parameters()]
    model.setup()
    ((outputs,),) = model.run()
    assert outputs[0].shape == (2, 30)
    assert all(torch.equal(*pair) for pair in zip(before, model.model().parameters(), strict=True))


def test_the_same_seed_gives_the_same_losses_and_another_other_ones():
    def losses(seed):
        model = FathomModel("memnet", init_options={"seed": seed})
        model.setup()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(7)  # of the noise on gradients
            return [float(loss) for loss, _ in model.run(n_steps=2)]

    assert losses(1) == losses(1) != losses(2)


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


OWN = """
import torch
from workloads.catalogue.base import Batch

class Mine:
    hyper = {"width": 3}
    def build(self, width):
        return torch.nn.Linear(width, 1)
    def batch(self, hyper, size, device, generator):
        return Batch((torch.randn(size, hyper["width"], device=device, generator=generator),), None)
    def loss(self, output, target):
        return output.square().mean()

class NoBatch:
    def build(self): ...
    def loss(self, output, target): ...

class WrongLoss(Mine):
    loss = 3

class WrongSizes(Mine):
    hyper = {"width": "three"}

def entries():
    mine = Mine()
    return {"build": mine.build, "batch": mine.batch, "loss": mine.loss, "hyper": mine.hyper, "item": "row"}

def nothing():
    return {"model": 3}
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "net.py").write_text(OWN)
    return str(tmp_path / "net.py")


@pytest.mark.parametrize("function", ["Mine", "entries"])
def test_a_workload_of_ones_own_parts(own, function):
    workload = any_model.get(f"{own}:{function}")
    model = workload.build(**workload.hyper)
    batch = workload.batch(workload.hyper, 4, torch.device("cpu"), None)
    assert workload.loss(model(*batch.inputs), batch.target).requires_grad
    assert workload.items(workload.hyper, 4) == 4
    assert workload.item == ("row" if function == "entries" else "sample")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (
            "NoBatch",
            r"net.py:NoBatch has build and loss, but is no workload: it lacks batch\(hyper, size, device, generator\)",
        ),
        ("WrongLoss", r"expected loss\(output, target\) → scalar, a function; got a int"),
        ("WrongSizes", "expected hyper, a mapping of names to whole numbers; got {'width': 'three'}"),
        ("nothing", "expected a torch.nn.Module, .* or a Workload; got a dict"),
    ],
)
def test_parts_that_are_missing_are_named(own, function, said):
    with pytest.raises(ValueError, match=said) as fault:
        any_model.get(f"{own}:{function}")
    assert "\n" not in str(fault.value)
