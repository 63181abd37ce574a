"""Definition, law: synthetic workloads train on random data that repeat; one sleeps as long as it says."""

import time

import pytest
import torch

from workloads import synthetic
from workloads.catalogue.catalogue import ENTRIES
from workloads.step import OPTIMIZERS, TrainingStep

NAMES = [name for name, known in ENTRIES.items() if known.task == "synthetic"]
TINY = {
    "synthetic_matmul": {"width": 6, "depth": 3},
    "synthetic_convolution": {"image_size": 5, "channels": 4},
    "synthetic_sleep": {"sleep_us": 1_000},
    "synthetic_copy": {"width": 50},
}


def made(name, size, **hyper):
    torch.manual_seed(0)
    workload = synthetic.get(name, **{**TINY[name], **hyper})
    model = workload.build(**workload.hyper)
    batch = workload.batch(workload.hyper, size, torch.device("cpu"), torch.Generator().manual_seed(0))
    return workload, model, batch


def test_every_name_of_the_catalogue_has_a_builder():
    assert list(synthetic.BUILDERS) == NAMES == list(TINY)


@pytest.mark.parametrize("name", NAMES)
def test_each_trains_and_its_random_data_repeat(name):
    workload, model, batch = made(name, 4)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    TrainingStep(model, workload.loss, OPTIMIZERS["sgd"](model.parameters()), [batch], "cpu")()
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    again = made(name, 4)[2]
    assert torch.equal(batch.inputs[0], again.inputs[0])
    assert torch.equal(batch.target, again.target)
    assert batch.inputs[0].count_nonzero() == batch.inputs[0].numel()
    assert workload.items(workload.hyper, 4) == 4


def test_the_forward_pass_sleeps_as_long_as_it_says():
    _workload, model, batch = made("synthetic_sleep", 1, sleep_us=50_000)
    start_s = time.perf_counter()
    model(*batch.inputs)
    assert time.perf_counter() - start_s >= 0.05
