"""Hardware counters of kernels: executed FLOP by kernel and by operator, against what the algorithm needs."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from measure.trace.attribution.attribute import attribute
from measure.trace.attribution.recording import CALL_COLUMNS, KERNEL_COLUMNS, Recording
from measure.trace.readers import cupti_counters
from measure.trace.readers.read import detect

REAL = os.environ.get("FLOPLEDGER_TRACES", "")
real = pytest.mark.skipif(not REAL, reason="FLOPLEDGER_TRACES is not set")

ALEXNET = "hta_a100_alexnet_fwd_cuptirange_counters.json.gz"
TABLE = "a100_alexnet_fwd_cupti_counters.csv"

FULL = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def counters(**values: int) -> dict[str, int]:
    """A range's arguments with its counters, 0 where not given."""
    return {FULL.format(name): values.get(name, 0) for name in cupti_counters.COUNTERS}


def measured(name: str, ts: int, dur: int, **values: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": "cuda_profiler_range",
        "name": name,
        "pid": 0,
        "tid": 0,
        "ts": ts,
        "dur": dur,
        "args": counters(**values),
    }


def launch(ts: int, name: str = "cudaLaunchKernel", correlation: int = 1) -> dict[str, Any]:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": 9, "tid": 9, "ts": ts, "dur": 1, "args": args}


def call(name: str, ts: int, dur: int) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 9, "tid": 9, "ts": ts, "dur": dur, "args": {}}


EVENTS = (
    call("aten::mm", 10, 10),
    call("aten::add", 30, 10),
    launch(12, correlation=1),
    launch(14, "cudaOccupancyMaxActiveBlocksPerMultiprocessor", 2),
    launch(32, "cuLaunchKernelEx", 3),
    measured("add", 200, 100, fadd=7, hadd=2),  # listed before the first, by time the second
    measured("gemm", 100, 100, fadd=1, fmul=10, ffma=100, hfma=1000, dadd=3, dmul=5, dfma=11),
)


def write(path: Path, events: Sequence[Any], **header: Any) -> Path:
    devices = [{"id": 0, "name": "NVIDIA A100"}, {"id": 1, "name": "another"}]
    text = json.dumps({"deviceProperties": devices, **header, "traceEvents": list(events)})
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_counters_are_flop_and_find_their_calls(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, EVENTS)
    assert detect(path) == "cupti"
    recording = attribute(cupti_counters.read(path))
    assert list(recording.calls.columns) == list(CALL_COLUMNS)
    assert list(recording.kernels.columns) == list(KERNEL_COLUMNS)
    kernels = recording.kernels
    assert kernels["name"].tolist() == ["gemm", "add"]
    assert kernels["source_flop"].tolist() == [1 + 10 + 2 * 100 + 3 + 5 + 2 * 11, 7]  # no halves
    assert kernels["params"].tolist()[1] == "fadd=7,fmul=0,ffma=0,hadd=2,hmul=0,hfma=0,dadd=0,dmul=0,dfma=0"
    assert [recording.calls["name"][at] for at in kernels["call"]] == ["aten::mm", "aten::add"]
    assert kernels["link"].tolist() == ["containment"] * 2
    assert recording.device_name == "NVIDIA A100"
    assert recording.source == "cupti"


def test_equal_shares_of_time_are_no_times(tmp_path: Path) -> None:
    recording = cupti_counters.read(write(tmp_path / "trace.json", EVENTS))
    assert recording.kernels["time_ns"].tolist() == [0, 0]
    assert "no times of kernels: the profiler shared the time out evenly" in recording.problems
    events = [*EVENTS[:-1], measured("gemm", 100, 60, fadd=1)]
    timed = cupti_counters.read(write(tmp_path / "timed.json", events))
    assert timed.kernels["time_ns"].tolist() == [60_000, 100_000]


def test_ranges_and_launches_that_do_not_match_are_not_paired(tmp_path: Path) -> None:
    recording = cupti_counters.read(write(tmp_path / "trace.json", [*EVENTS, launch(50)]))
    assert recording.kernels["launch_start_ns"].tolist() == [-1, -1]
    assert "2 kernels with counters, 3 launches: which is whose is not known" in recording.problems
    assert recording.kernels["source_flop"].tolist()[1] == 7


def test_a_counter_that_is_missing_gives_no_flop(tmp_path: Path) -> None:
    lacking = measured("k", 100, 100, ffma=5)
    del lacking["args"][FULL.format("fmul")]
    recording = cupti_counters.read(write(tmp_path / "trace.json", [lacking]))
    assert recording.kernels["source_flop"].tolist() == [None]
    assert any(problem.startswith("not every kernel has the counters") for problem in recording.problems)
    assert "no operator calls in the file" in recording.problems
    assert cupti_counters.hardware_flop({"fadd": 1, "fmul": 2, "ffma": 3}) == 1 + 2 + 6
    assert cupti_counters.hardware_flop({"fadd": 1, "fmul": 2, "ffma": 3, "dfma": 4}) is None


def test_the_clock_of_the_calls_is_that_of_the_launches(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json", EVENTS, baseTimeNanoseconds=5_000_000)
    recording = attribute(cupti_counters.read(path))
    assert recording.kernels["launch_start_ns"].tolist() == [5_012_000, 5_032_000]
    assert (recording.kernels["call"] >= 0).all()


def test_a_trace_without_counters_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json", EVENTS[:3])
    with pytest.raises(ValueError, match=r"no counters of floating point.*profiler_metrics") as found:
        cupti_counters.read(path)
    assert "\n" not in str(found.value)


def test_a_cut_trace_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.json.gz", EVENTS)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match="cut or damaged"):
        cupti_counters.read(path)


# --- AlexNet on an A100 ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alexnet() -> Recording:
    return attribute(cupti_counters.read(Path(REAL) / ALEXNET))


def by_operator(recording: Recording, name: str) -> list[int]:
    """Hardware FLOP of the kernels launched in each call of an operator that launched any, in their order."""
    names, sums = recording.calls["name"].to_numpy(), defaultdict(int)
    for at, flop in zip(recording.kernels["call"], recording.kernels["source_flop"], strict=True):
        if names[at] == name:
            sums[at] += flop
    return [sums[at] for at in sorted(sums)]


@real
def test_every_range_of_alexnet_is_kept_and_linked(alexnet: Recording) -> None:
    assert len(alexnet.kernels) == 77
    assert set(alexnet.kernels["link"]) == {"containment"}
    with open(Path(REAL) / TABLE, newline="") as file:
        rows = list(csv.DictReader(file))
    assert alexnet.kernels["source_flop"].tolist() == [int(row["fp32_flop"]) for row in rows]
    told = [",".join(f"{name}={row[name]}" for name in cupti_counters.COUNTERS) for row in rows]
    assert alexnet.kernels["params"].tolist() == told
    assert alexnet.device_name == "NVIDIA A100-PG509-200"


@real
def test_alexnet_executes_what_is_known_of_the_algorithms(alexnet: Recording) -> None:
    batch = 128
    conv1 = 2 * batch * 64 * 55 * 55 * 3 * 11 * 11
    conv2 = 2 * batch * 192 * 27 * 27 * 64 * 5 * 5
    convolutions = by_operator(alexnet, "aten::cudnn_convolution")
    assert len(convolutions) == 2 * 5
    for first, second, *tensor_cores in (convolutions[:5], convolutions[5:]):
        assert first / conv1 == pytest.approx(1.015, abs=5e-4)  # implicit sgemm, padded tiles
        assert second / conv2 == pytest.approx(0.109, abs=5e-4)  # FFT
        for executed in tensor_cores:  # TF32, which scalar counters do not see
            assert executed / conv2 < 1e-3
    layers = by_operator(alexnet, "aten::addmm")
    assert len(layers) == 2 * 3
    for executed, (inputs, outputs), ratio in zip(
        layers, 2 * ((9216, 4096), (4096, 4096), (4096, 1000)), 2 * (1.00044, 1.00096, 1.06262), strict=True
    ):
        assert executed / (2 * batch * inputs * outputs) == pytest.approx(ratio, abs=2e-5)
