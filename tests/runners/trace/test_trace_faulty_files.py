"""Injected fault, definition: what `runners.trace` says of recordings made here with one fault each."""

import json
from pathlib import Path
from typing import Any

import pytest

from runners import trace as runners_trace
from tests.support.fakes.commands import running, telling

MM_FLOP = 2 * 1024**3
"""Of a product of two matrices of 1024 × 1024."""


class Trace:
    """Events as Kineto writes them. `mm`: a call, its launch, and a kernel of 1 ms."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def add(self, cat: str, name: str, ts: float, dur: object, tid: int = 1, **args: Any) -> dict[str, Any]:
        number = {} if cat not in ("cpu_op", "user_annotation") else {"External id": self.numbered + 1}
        event = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args | number}
        self.events.append(event)
        return event

    @property
    def numbered(self) -> int:
        return sum("External id" in event["args"] for event in self.events)

    def step(self, number: int, ts: float) -> None:
        self.add("user_annotation", f"ProfilerStep#{number}", ts, 5000)

    def on_device(self, name: str, ts: float, dur: object, cat: str = "kernel", device: int = 0) -> dict[str, Any]:
        self.add("cuda_runtime", "cudaLaunchKernel", ts, 2, correlation=len(self.events) + 1)
        number = len(self.events)
        return self.add(cat, name, ts + 100, dur, 7, correlation=number, device=device, stream=7)

    def mm(self, ts: float, dur: object = 1000) -> dict[str, Any]:
        self.add("cpu_op", "aten::mm", ts, 50, **{"Input Dims": [[1024, 1024]] * 2, "Input type": ["float"] * 2})
        return self.on_device("sgemm", ts + 10, dur)

    def text(self) -> str:
        end = {"ph": "i", "cat": "Trace", "name": "Record Window End", "pid": "", "tid": "", "ts": 10**6}
        header = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
        return json.dumps({**header, "traceEvents": [*self.events, end]})


@pytest.fixture
def answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """answer(text, *options) → what is told of a recording: its JSON document."""

    def of(text: str, *options: str) -> dict[str, Any]:
        (tmp_path / "trace.json").write_text(text, encoding="utf-8")
        found: dict[str, Any] = telling(runners_trace.main, capsys)(tmp_path / "trace.json", *options)
        return found

    return of


@pytest.fixture
def shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """shown(text) → what is printed of a recording, on one line."""

    def of(text: str) -> str:
        (tmp_path / "trace.json").write_text(text, encoding="utf-8")
        return " ".join(running(runners_trace.main, capsys)(tmp_path / "trace.json")[1].split())

    return of


@pytest.mark.parametrize("empty", [1, 3])
def test_a_mark_without_a_call_is_no_step(answer: Any, empty: int) -> None:
    trace = Trace()
    trace.step(1, 100)
    trace.mm(200)
    for number in range(empty):
        trace.step(2 + number, 5200 + 6000 * number)
    document = answer(trace.text())
    assert (document["steps"], document["totals"]["repaired"]["forward_flop"]) == (1, MM_FLOP)


def test_a_last_step_without_its_backward_pass_is_left_out(answer: Any) -> None:
    trace = Trace()
    for number in (1, 2, 3):
        begin = 10_000 * number
        trace.step(number, begin)
        trace.mm(begin + 10)
        if number < 3:
            trace.add("cpu_op", "autograd::engine::evaluate_function: MmBackward0", begin + 2000, 500)
            trace.mm(begin + 2010)
    document = answer(trace.text())
    assert document["steps"] == 2
    assert document["totals"]["repaired"] == {
        "forward_flop": 2 * MM_FLOP, "backward_flop": 2 * MM_FLOP, "recompute_flop": None
    }  # fmt: skip
    assert "step 3 was cut: it has no backward pass, and is left out" in " ".join(document["problems"])


def test_sizes_of_another_call_give_way_to_the_product_inside(answer: Any) -> None:
    trace = Trace()
    trace.step(1, 100)
    strange = [[2048, 1953]] * 3 + [[2048, 1024], [541, 1024], [541]]
    trace.add("cpu_op", "aten::linear", 200, 90, **{"Input Dims": strange, "Input type": ["float"] * 6})
    sizes = [[541], [2048, 1024], [1024, 541], [], []]
    trace.add("cpu_op", "aten::addmm", 220, 50, **{"Input Dims": sizes, "Input type": ["float"] * 5})
    trace.on_device("sgemm", 230, 500)
    document = answer(trace.text())
    assert document["totals"]["repaired"]["forward_flop"] == 2 * 2048 * 1024 * 541


@pytest.mark.parametrize("duration", [float("nan"), float("inf"), -5, None, 7.45e15])
def test_a_kernel_without_a_usable_duration_leaves_its_step_and_rate_unknown(answer: Any, duration: object) -> None:
    trace = Trace()
    trace.step(1, 100)
    trace.mm(200, duration)
    trace.mm(2500)
    document = answer(trace.text())
    assert document["step"] is None
    (rate,) = document["rates"]  # of the other product only
    assert (rate["flop"], rate["time_s"]) == (MM_FLOP, pytest.approx(1e-3))


@pytest.mark.parametrize(
    ("category", "runtime"),
    [("kernel", "xpu_runtime"), ("kernel", "privateuse1_runtime"), ("mtia_ccp_events", "mtia_runtime")],
)
def test_kernels_of_other_accelerators_find_their_calls(answer: Any, category: str, runtime: str) -> None:
    trace = Trace()
    trace.step(1, 100)
    trace.mm(200)
    text = trace.text().replace('"cuda_runtime"', f'"{runtime}"').replace('"kernel"', f'"{category}"')
    document = answer(text)
    assert document["kernels"] == {"read": 1, "attributed": 1, "unattributed": 0}


@pytest.mark.parametrize(
    ("left_out", "index", "flop"),
    [(None, False, 3 * MM_FLOP), (1, False, None), (0, False, 2 * MM_FLOP), (None, True, None)],
)
def test_numbers_without_a_gap_are_whole_wherever_they_begin(
    answer: Any, left_out: int | None, index: bool, flop: int | None
) -> None:
    """torch 1.8 to 1.10 counts on from recording to recording. Later ones number in blocks from 1 + 512 k on, and count
    what they export ("Ev Idx"): there a first number within a block says that the numbers before it are missing."""
    trace = Trace()
    for at in (200, 1500, 2800):
        trace.mm(at)
    calls = [event for event in trace.events if event["cat"] == "cpu_op"]
    for place, event in enumerate(calls):
        event["args"]["External id"] = 23_647 + place
        event["args"] |= {"Ev Idx": place} if index else {}
    if left_out is not None:
        trace.events.remove(calls[left_out])
    document = answer(trace.text())
    assert document["totals"]["repaired"]["forward_flop"] == flop
    assert [entry["calls"] for entry in document["missing"]] == (
        [] if flop else [94 if index else 1]
    )  # 23,647 = 1 + 512 · 46 + 94


def two_steps() -> Trace:
    """In each of two steps a product whose kernel runs for 1 ms; from the first kernel to the second 4 ms."""
    trace = Trace()
    for number, begin in ((1, 100), (2, 4100)):
        trace.step(number, begin)
        trace.mm(begin + 50)
    return trace


def test_utilization_is_model_flop_over_the_whole_step_and_the_peak(answer: Any) -> None:
    """66.9 TFLOP/s is the H100's datasheet of fp32; rates are of kernels' time, 1 ms of 4."""
    document = answer(two_steps().text())
    ratio = MM_FLOP / (4e-3 * 66.9e12)
    expected = {
        "utilization_ratio": ratio, "step_time_s": 4e-3, "busy_ratio": 0.25, "idle_s": 3e-3,
        "achieved_flop_per_s": MM_FLOP / 4e-3, "peak_flop_per_s": 66.9e12,
    }  # fmt: skip
    assert {name: document[name] for name in expected} == pytest.approx(expected)
    assert document["rates"][0]["peak_ratio"] == pytest.approx(4 * ratio)
    assert document["utilization_reason"] == ""


def test_what_is_not_known_of_a_step_leaves_its_utilization_out(answer: Any) -> None:
    lost, unlaunched, int32, untimed = two_steps(), two_steps(), two_steps(), two_steps()
    lost.events.remove(next(event for event in lost.events if event["name"] == "aten::mm"))
    unlaunched.on_device("sgemm", 500, 100)
    unlaunched.events = [event for event in unlaunched.events if event["ts"] != 500]
    for event in int32.events:
        event["args"] |= {"Input type": ["int"] * 2} if event["name"] == "aten::mm" else {}
    for event in untimed.events:
        event["dur"] = None if event["cat"] == "kernel" else event["dur"]
    reasons = {
        "the FLOP of a step are not all known": lost,
        "kernels that make products found no call": unlaunched,
        "NVIDIA H100 80GB HBM3 has no peak of a dtype that is not known": int32,
        "no step has a known time": untimed,
    }
    for reason, trace in reasons.items():
        document = answer(trace.text())
        assert (document["utilization_ratio"], document["utilization_reason"]) == (None, reason)


@pytest.mark.parametrize(("untimed", "steps", "shown"), [(1, 2, None), (2, 3, 1), (2, 2, 1), (1, 4, 2), (3, 4, 2)])
def test_a_step_beside_one_without_a_known_time_keeps_its_own(
    answer: Any, untimed: int, steps: int, shown: int | None
) -> None:
    """Each step is 3 ms from its first kernel to that of the next, which may be the one without a usable duration."""
    trace = Trace()
    for number in range(1, steps + 1):
        trace.step(number, 3000 * number)
        trace.mm(3000 * number + 50, -1 if number == untimed else 1000)
    step = answer(trace.text())["step"]
    assert (step and step["number"]) == shown
    assert step is None or step["time_s"] == pytest.approx(3e-3)


@pytest.mark.parametrize(("third", "flop"), [([99, 99], None), ([1024, 1024], MM_FLOP), ([0], MM_FLOP)])
def test_a_third_size_of_a_product_of_two_is_that_of_its_result_or_of_another_call(
    answer: Any, third: list[int], flop: int | None
) -> None:
    trace = Trace()
    trace.step(1, 100)
    trace.mm(200)
    call = next(event for event in trace.events if event["name"] == "aten::mm")
    call["args"] |= {"Input Dims": [[1024, 1024], [1024, 1024], third], "Input type": ["float"] * 3}
    assert answer(trace.text())["totals"]["repaired"]["forward_flop"] == flop


def test_the_peak_of_a_step_is_that_of_all_devices_which_ran_kernels(answer: Any) -> None:
    trace = two_steps()
    trace.on_device("elementwise", 300, 500, device=1)
    trace.on_device("Memcpy HtoD", 400, 500, "gpu_memcpy", device=2)
    assert answer(trace.text(), "--peak-tflops", "2")["peak_flop_per_s"] == 2 * 2e12


def test_a_value_that_is_no_number_of_json_is_no_end_of_the_file(answer: Any) -> None:
    trace = Trace()
    trace.step(1, 100)
    trace.mm(200)["args"]["memory bandwidth (GB/s)"] = float("inf")
    document = answer(trace.text().replace("Infinity", "inf"))
    assert document["totals"]["repaired"]["forward_flop"] == MM_FLOP


def test_a_peak_of_ones_own_gives_a_utilization_where_the_recording_names_no_device(answer: Any) -> None:
    text = two_steps().text().replace("NVIDIA H100 80GB HBM3", "")
    assert answer(text)["utilization_ratio"] is None
    assert answer(text, "--peak-tflops", "2")["utilization_ratio"] == pytest.approx(MM_FLOP / (4e-3 * 2e12))
    a100 = answer(text, "--device", "NVIDIA A100-SXM4-80GB")["utilization_ratio"]
    assert a100 == pytest.approx(MM_FLOP / (4e-3 * 19.5e12))  # datasheet of the A100, fp32
