"""What a counter passed over: arithmetic is ignored, products and unknown operators are not understood."""

from __future__ import annotations

from measure.counters.harness.uncounted import uncounted


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
