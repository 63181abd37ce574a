"""Every torchvision model traces: nothing not understood, FLOP as counted elsewhere, storages that add up.

The expected multiply-adds are those of an independent counter (a formula for each matrix product and convolution on
meta tensors, backward by output mask, run on each model in evaluation mode at batch 1 with 10 classes), not ours.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from analysis.operators.registry import not_understood, total
from measure.fake.mode import FakeMode, to_fake
from measure.operations.tracer import StepParts, Trace, trace
from workloads.catalogue.catalogue import ENTRIES
from workloads.training.step import OPTIMIZERS, TrainingStep
from workloads.vision import models as vision_models

FAST = ("alexnet", "googlenet", "mobilenet_v2", "regnet_y_400mf", "resnet18", "swin_t", "vit_b_32", "r3d_18")

MULTIPLY_ADDS = {
    # model: (forward, backward) at batch 1, its own image size, 10 classes
    "alexnet": (710_133_440, 1_349_990_080),
    "convnext_tiny": (4_454_770_944, 8_895_091_200),
    "densenet121": (2_833_147_904, 5_548_281_856),
    "efficientnet_b0": (384_547_552, 758_257_088),
    "mnasnet1_0": (313_148_672, 615_459_328),
    "mobilenet_v2": (299_507_072, 588_176_128),
    "regnet_y_400mf": (401_407_248, 791_976_480),
    "resnet18": (1_813_566_464, 3_509_118_976),
    "resnet152": (11_511_599_104, 22_905_184_256),
    "shufflenet_v2_x1_0": (143_894_232, 279_659_952),
    "squeezenet1_0": (733_261_856, 1_298_859_040),
    "swin_t": (4_489_806_336, 8_965_161_984),
    "vgg19": (19_628_007_424, 39_169_310_720),
    "vit_b_16": (17_563_067_904, 35_010_530_304),
    "wide_resnet50_2": (11_395_993_600, 22_673_973_248),
}


def parts(
    name: str, batch_size: int, real_size: int | None = None, **hyper: int
) -> Callable[[FakeMode | None], StepParts]:
    """A training step of a model; on real tensors with images of `real_size`."""

    def build(mode: FakeMode | None) -> StepParts:
        torch.manual_seed(0)
        smaller = {"image_size": real_size} if mode is None and real_size is not None else {}
        workload = vision_models.get(name, **hyper, **smaller)
        with torch.device("cpu" if mode is None else "meta"):
            model = workload.build(**workload.hyper)
        if mode is None:
            batch = workload.batch(workload.hyper, batch_size, torch.device("cpu"), None)
        else:
            to_fake(model, mode)
            with mode:
                batch = workload.batch(workload.hyper, batch_size, torch.device("cpu"), None)
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        step = TrainingStep(model, workload.loss, optimizer, [batch], "cpu")
        return StepParts(step, model, optimizer, (batch.inputs, batch.target))

    return build


def names(task: str) -> list[str]:
    return [name for name, entry in ENTRIES.items() if entry.task == task]


def fast_or_slow(listed: list[str]) -> list[object]:
    return [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in listed]


def check(recorded: Trace, parameters: list[torch.Tensor]) -> None:
    assert not_understood(recorded.operations) == {}
    storages = {s.id: s for s in recorded.storages}
    for operation in recorded.operations:
        for read in operation.reads:
            assert storages[read].born_index < operation.index
    weights = [s for s in recorded.storages if s.role == "weight"]
    assert all((s.born_index, s.died_index) == (-1, None) for s in weights)
    assert sum(s.nbytes for s in weights) == sum(p.numel() * p.element_size() for p in parameters)
    new = [s for s in recorded.storages if s.role == "gradient" and s.born_index >= 0]
    assert sum(s.nbytes for s in new) >= sum(s.nbytes for s in weights)  # more: one may be a view of a larger block
    phases = [o.phase for o in recorded.operations]
    assert sorted(set(phases)) == ["backward", "forward", "loss", "optimizer"]
    assert {o.module for o in recorded.operations if o.phase == "forward" and o.kind == "convolution"} == {
        o.module for o in recorded.operations if o.phase == "backward" and o.kind == "convolution"
    }


def traced(build: Callable[[FakeMode | None], StepParts]) -> tuple[Trace, list[torch.Tensor]]:
    made: list[StepParts] = []

    def keep(mode: FakeMode | None) -> StepParts:
        made.append(build(mode))
        return made[-1]

    return trace(keep), list(made[-1].model.parameters())


@pytest.mark.parametrize("name", fast_or_slow(names("classification") + names("video") + names("segmentation")))
def test_traces_on_fake_tensors(name: str) -> None:
    recorded, parameters = traced(parts(name, 2))
    assert recorded.notes == ()
    check(recorded, parameters)
    assert trace(parts(name, 2)) == recorded


@pytest.mark.slow
@pytest.mark.parametrize("name", names("flow"))
def test_optical_flow_traces(name: str) -> None:
    recorded, _ = traced(parts(name, 1))
    assert recorded.notes == ()
    assert not_understood(recorded.operations) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", names("detection"))
def test_detection_traces_on_real_tensors(name: str) -> None:
    """Detectors match boxes by value, which fake tensors have not; one small real step takes their place."""
    recorded, _ = traced(parts(name, 2, real_size=None if ENTRIES[name].fixed else 128))
    assert recorded.notes == ("fake tensors cannot run aten._local_scalar_dense.default", "real tensors (cpu)")
    assert not_understood(recorded.operations) == {}
    storages = {s.id: s for s in recorded.storages}
    assert all(storages[read].born_index < o.index for o in recorded.operations for read in o.reads)


@pytest.mark.parametrize("name", fast_or_slow(list(MULTIPLY_ADDS)))
def test_model_flop_is_twice_the_multiply_adds(name: str) -> None:
    recorded = trace(parts(name, 1, num_classes=10))
    counted = {
        phase: total(o for o in recorded.operations if o.phase == phase).model_flop
        for phase in ("forward", "loss", "backward", "optimizer")
    }
    forward, backward = MULTIPLY_ADDS[name]
    assert counted == {"forward": 2 * forward, "loss": 0, "backward": 2 * backward, "optimizer": 0}


HERE = Path(__file__).parents[3]

MEMORY = """
from pathlib import Path
from measure.operations.tracer import trace
from tests.measure.operations.test_trace_zoo import parts
assert len(trace(parts("resnet152", 64)).operations) > 3000
print(next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")))
"""


@pytest.mark.slow
def test_resnet152_takes_no_memory_for_its_tensors() -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY], cwd=HERE, capture_output=True, text=True, check=True)
    peak_kib = int(done.stdout.split()[1])  # not ru_maxrss, which a child takes over from its parent
    assert peak_kib * 1024 < 1.5e9  # the activations of this batch alone would be 15 GB
