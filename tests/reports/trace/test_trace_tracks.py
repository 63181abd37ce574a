"""Where a recording's time goes, and its tracks for Perfetto, from sums worked out by hand."""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.devices import peaks
from reports.trace import perfetto
from reports.trace.kernel_times import time_shares
from reports.trace.perfetto import perfetto_events
from runners.trace.command import _tracks
from tests.support.made_up import made_up_trace

A100 = peaks.lookup("NVIDIA A100-SXM4-40GB")


def test_time_by_module_adds_up_to_the_whole() -> None:
    """33 kernels and copies of 1 ms; forward 16 + 1 of layer0 in the two steps."""
    rows = time_shares(made_up_trace.trace().cleaned.kernels, ("module", "phase"))
    assert (rows[0].name, rows[0].phase, rows[0].kernels) == ("layer0", "forward", 17)
    assert rows[0].time_s == pytest.approx(17e-3)
    assert rows[0].time_ratio == pytest.approx(17 / 33)
    assert sum(row.time_ratio for row in rows) == pytest.approx(1)


def test_a_kernel_that_is_no_part_of_a_step_is_in_no_share() -> None:
    kernels = made_up_trace.trace().cleaned.kernels.copy()
    kernels.loc[kernels.index[:3], "fault"] = ["duplicate_launch", "autotune", "duplicate_launch"]
    (first, *_) = time_shares(kernels, ("module", "phase"))
    assert (first.kernels, first.time_ratio) == (14, pytest.approx(14 / 30))
    assert time_shares(kernels.assign(time_ns=0), ("phase",)) == []


def counters(events: list[perfetto.Event]) -> list[tuple[float, float]]:
    return [(event["ts"], event["args"]["FLOP/s"]) for event in events if event["ph"] == "C"]


def test_a_track_has_the_rate_of_the_operation_while_its_kernels_run() -> None:
    """The first operation: 1 GFLOP in 16 kernels of 1 ms is 62.5 GFLOP/s, from 5 ms on; 0 between kernels."""
    events = perfetto_events(made_up_trace.trace())
    assert counters(events)[:4] == [(5000, 62.5e9), (6000, 0), (6500, 62.5e9), (7500, 0)]
    assert len(counters(events)) == 2 * 31  # neither the copy nor the kernel without an operation
    assert not [event for event in events if event["ph"] == "X"]  # no device: no bound
    assert [event["ts"] for event in events if "ts" in event] == sorted(e["ts"] for e in events if "ts" in e)


def test_the_bound_is_the_larger_of_two_least_times() -> None:
    """1 GFLOP at 19.5 TFLOP/s is 51.3 µs of 16 ms. Inputs: (2·3·224·224 + 64·3·7·7) · 4 B at 1555 GB/s: 0.80 µs."""
    assert A100 is not None
    trace = made_up_trace.trace()
    first = next(event for event in perfetto_events(trace, A100) if event["ph"] == "X")
    assert (first["name"], first["dur"]) == ("arithmetic", 1000)
    assert first["args"]["least_time_ratio"] == pytest.approx(1e9 / 19.5e12 / 16e-3, rel=1e-3)
    slow = dataclasses.replace(A100, bandwidth_bytes_per_s=1e9)  # 1.24 ms for the inputs
    first = next(event for event in perfetto_events(trace, slow) if event["ph"] == "X")
    assert first["name"] == "memory"
    assert first["args"]["least_time_ratio"] == pytest.approx((301056 + 9408) * 4 / 1e9 / 16e-3)


def test_a_recording_without_times_of_day_has_no_tracks() -> None:
    trace = made_up_trace.trace()
    kernels = trace.cleaned.kernels.assign(start_ns=-1)
    bare = dataclasses.replace(trace, cleaned=SimpleNamespace(**{**vars(trace.cleaned), "kernels": kernels}))
    assert perfetto_events(bare, A100) == []


@pytest.mark.parametrize("form", [dict, list])
def test_the_users_own_events_are_all_there_beside_the_tracks(tmp_path: Path, form: type) -> None:
    own = [{"ph": "X", "name": "theirs", "ts": 1.5, "dur": 2.0, "pid": 7, "tid": 8}]
    content = {"traceEvents": own, "baseTimeNanoseconds": 5} if form is dict else own
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    trace = dataclasses.replace(made_up_trace.trace(), path=str(path), source="kineto")
    held = json.loads(_tracks(trace, A100))
    assert held["traceEvents"][:1] == own
    assert held.get("baseTimeNanoseconds") == (5 if form is dict else None)
    assert held["traceEvents"][1:] == json.loads(json.dumps(perfetto_events(trace, A100)))
