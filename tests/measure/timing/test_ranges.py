"""Ranges against a recording NVTX domain and annotation: nesting, order, exceptions, and no cost without them."""

from __future__ import annotations

import contextlib
import gzip
import json

import pytest

from measure.timing.profiler_ranges import DOMAIN, Ranges

PHASES = ("forward", "loss", "backward", "optimizer", "end")


class Recorder:
    """An NVTX domain whose calls are kept; fails on ending a range twice."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.names: dict[int, str] = {}
        self.built = 0

    def get_event_attributes(self, message):
        self.built += 1
        return message

    def start_range(self, attributes):
        self.said.append(f"+{attributes}")
        number = len(self.said)
        self.names[number] = attributes
        return number

    def end_range(self, number):
        self.said.append(f"-{self.names.pop(number)}")

    @contextlib.contextmanager
    def annotate(self, name):
        self.said.append(f"<{name}")
        try:
            yield
        finally:
            self.said.append(f">{name}")


def recorded(kineto: bool = False) -> tuple[Recorder, Ranges]:
    recorder = Recorder()
    return recorder, Ranges(True, recorder, recorder.annotate, lambda: kineto)


def announcing(mark=lambda phase: None):
    for phase in PHASES:
        mark(phase)
    return "result"


STEP = "+step +optimizer -optimizer +forward -forward +loss -loss +backward -backward +optimizer -optimizer -step"


def test_a_step_opens_and_closes_its_phases_in_order():
    recorder, ranges = recorded()
    assert ranges.step(announcing)() == "result"
    assert recorder.said == STEP.split()
    assert not recorder.names


def test_the_cell_holds_its_steps():
    recorder, ranges = recorded()
    step = ranges.step(announcing)
    with ranges.cell("resnet18 batch 8"):
        step()
        step()
    assert recorder.said == ["+resnet18 batch 8", *STEP.split() * 2, "-resnet18 batch 8"]


def test_a_work_holds_its_steps_and_is_heard_with_them():
    recorder, ranges = recorded(kineto=True)
    with ranges.work("one"):
        ranges.step(lambda mark: mark("end"))()
    opened = ["one", "step", "optimizer"]
    assert [s for s in recorder.said if s[0] in "<>"] == [
        *(f"<{DOMAIN}.{name}" for name in opened),
        *(f">{DOMAIN}.{name}" for name in reversed(opened)),
    ]
    assert [s for s in recorder.said if s[0] in "+-"] == ["+one", "+step", "+optimizer", "-optimizer", "-step", "-one"]


@pytest.mark.parametrize("last", range(len(PHASES)))
def test_an_exception_closes_every_range(last):
    recorder, ranges = recorded(kineto=True)

    def failing(mark):
        for phase in PHASES[: last + 1]:
            mark(phase)
        raise MemoryError("no room")

    with ranges.cell("cell"):
        with pytest.raises(MemoryError, match="no room"):
            ranges.step(failing)()
        assert list(recorder.names.values()) == ["cell"]
    assert not recorder.names
    assert sum(s[0] == "<" for s in recorder.said) == sum(s[0] == ">" for s in recorder.said) == last + 4 - (last == 4)


def test_kineto_is_annotated_only_while_a_profiler_listens():
    recorder, ranges = recorded(kineto=True)
    ranges.step(announcing)()
    kineto = [s for s in recorder.said if s[0] in "<>"]
    names = [s.replace("+", f"<{DOMAIN}.").replace("-", f">{DOMAIN}.") for s in STEP.split()]
    assert kineto == names
    silent, ranges = recorded(kineto=False)
    ranges.step(announcing)()
    assert not [s for s in silent.said if s[0] in "<>"]


def test_disabled_ranges_return_the_step_itself():
    ranges = Ranges(False)
    assert ranges.step(announcing) is announcing
    with ranges.cell("cell"):
        pass


def test_the_real_packages_take_our_calls():
    pytest.importorskip("nvtx")
    assert Ranges(True).step(announcing)() == "result"


def test_an_nvtx_package_without_domains_is_called_by_its_own_names(monkeypatch):
    import sys
    from types import SimpleNamespace

    said = []
    package = SimpleNamespace(
        start_range=lambda message, domain: said.append((message, domain)) or len(said),
        end_range=lambda started: said.append(started),
    )
    monkeypatch.setitem(sys.modules, "nvtx", package)
    Ranges(True).step(lambda mark: None)()
    assert said == [("step", DOMAIN), ("optimizer", DOMAIN), 2, 1]


def test_without_the_nvtx_package_a_step_still_runs(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "nvtx", None)
    ranges = Ranges(True)
    with ranges.cell("cell"):
        assert ranges.step(announcing)() == "result"


def training_step(device: str):
    """One convolution and a linear layer, trained with marks as every workload gives them."""
    import torch

    from workloads.catalogue.base import Batch
    from workloads.training.step import OPTIMIZERS, TrainingStep

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 6 * 6, 4)).to(device)
    batch = Batch((torch.randn(2, 3, 8, 8, device=device),), torch.tensor([0, 1], device=device))
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    return TrainingStep(model, torch.nn.functional.cross_entropy, optimizer, [batch], device)


def traced(device: str, tmp_path) -> list[dict]:
    """Events of a Kineto trace of one step under ranges."""
    import torch

    step = Ranges(True).step(training_step(device))
    step()
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if device == "cuda" else []
    with torch.profiler.profile(activities=activities, acc_events=True) as profile:
        step()
        if device == "cuda":
            torch.cuda.synchronize()
    path = tmp_path / "trace.json.gz"
    profile.export_chrome_trace(str(path))
    return json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]


def within(events: list[dict], phase: str) -> list[dict]:
    """Events of any thread that begin inside a phase's annotation."""
    spans = [e for e in events if e.get("cat") == "user_annotation" and e["name"] == f"{DOMAIN}.{phase}"]
    assert spans, phase
    return [e for e in events if "dur" in e and any(s["ts"] <= e["ts"] <= s["ts"] + s["dur"] for s in spans)]


def test_phases_hold_their_operators_in_a_kineto_trace(tmp_path):
    events = traced("cpu", tmp_path)
    assert "aten::convolution" in {e["name"] for e in within(events, "forward")}
    assert "aten::convolution" not in {e["name"] for e in within(events, "backward")}
    assert "aten::convolution_backward" in {e["name"] for e in within(events, "backward")}
    assert "aten::_foreach_mul_" not in {e["name"] for e in within(events, "loss")}


@pytest.mark.gpu
def test_the_backward_phase_holds_kernels(tmp_path):
    """Needs a CUDA device. Launches of any thread within the range, joined to kernels by correlation number."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    events = traced("cuda", tmp_path)
    kernels = {e["args"]["correlation"]: e["name"] for e in events if e.get("cat") == "kernel"}
    for phase in ("forward", "backward", "optimizer"):
        launches = [e for e in within(events, phase) if e.get("cat") in ("cuda_runtime", "cuda_driver")]
        launched = [kernels[e["args"]["correlation"]] for e in launches if e["args"].get("correlation") in kernels]
        assert launched, phase
