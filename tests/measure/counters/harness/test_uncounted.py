"""What a counter passed over: arithmetic is ignored, products and unknown operators are not understood."""

from __future__ import annotations

import torch

from measure.counters.harness.uncounted import UncountedCalls, uncounted


def test_calls_by_what_they_are() -> None:
    calls = {
        "aten.add": 2,
        "aten.mm": 3,
        "aten.view": 5,  # moves nothing and calculates nothing
        "aten.clone": 7,
        "house.own": 11,  # no table has it
        "prim.device": 13,
        "profiler._record_function_exit": 17,
    }
    assert uncounted(calls) == ({"aten.add": 2}, {"aten.mm": 3, "house.own": 11})


def test_each_call_is_counted_once_where_the_counter_does_not_look() -> None:
    looking = [False]
    with UncountedCalls(lambda: looking[0]) as seen:
        x = torch.ones(2).mul(3).mul(4)
        looking[0] = True
        x.mul(5)
    assert seen.calls["aten.mul"] == 2
    assert x.tolist() == [12.0, 12.0]
