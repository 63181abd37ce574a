"""One step of a recording in time: its window, gaps, lanes, and what lies outside, by hand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from reports.trace import timeline as trace_timeline
from reports.trace.timeline import Trace, kernel_words
from tests.support.made_up import made_up_trace

US = 1000


def kernel(start: int, length: int, instance: int = -1, **more: Any) -> dict[str, Any]:
    """Times in µs."""
    row = {"name": f"k{start}", "what": "kernel", "start_ns": start * US, "time_ns": length * US, "device": 0}
    rest = {"untimed": 0, "stream": 7, "instance": instance, "phase": "forward", "fault": "", "module": ""}
    return {**row, **rest, **more}


def trace_of(*kernels: dict[str, Any], steps: tuple[int | None, ...] = ()) -> Trace:
    """steps: of the instances 0, 1, …"""
    made = tuple(made_up_trace.instance(at, "forward", 1, 1, step=step) for at, step in enumerate(steps))
    cleaned = SimpleNamespace(**{**vars(made_up_trace.trace().cleaned), "instances": made})
    cleaned.kernels = pd.DataFrame(kernels)
    return replace(made_up_trace.trace(), cleaned=cleaned)


def test_a_step_lasts_until_the_next_one_begins_and_the_longest_gaps_are_named() -> None:
    """Steps begin at 0, 100 and 300 µs; the middle one of three is shown: 100 to 300. In it 20 + 50 µs ran, from 100
    and from 150; gaps are 120 to 150 and 200 to 300."""
    rows = [kernel(0, 10, 0), kernel(100, 20, 1), kernel(150, 50, 1), kernel(300, 5, 2)]
    found = trace_timeline.timeline(trace_of(*rows, steps=(3, 4, 5)))
    assert found is not None
    assert (found.step, found.steps, found.begin_ns, found.end_ns) == (4, 3, 100 * US, 300 * US)
    assert found.busy_ns == 70 * US
    assert [(gap.start_ns // US, gap.time_ns // US, gap.after, gap.before) for gap in found.gaps] == [
        (200, 100, "k150", ""),
        (120, 30, "k100", "k150"),
    ]
    assert trace_timeline.sentence(found) == (
        "Step 4, one of 3 marked: 200 µs, of which kernels ran for 35 %; nothing ran for 130 µs (65 %)."
    )


def test_what_streams_do_at_once_is_busy_once() -> None:
    """Stream 7: 0 to 100 µs; stream 9: 40 to 60 and 90 to 130. Something runs from 0 to 130."""
    rows = [kernel(0, 100, 0), kernel(40, 20, 0, stream=9), kernel(90, 40, 0, stream=9), kernel(160, 10, 0)]
    found = trace_timeline.timeline(trace_of(*rows, steps=(0,)))
    assert found is not None
    assert found.busy_ns == 140 * US
    assert [(gap.start_ns // US, gap.time_ns // US, gap.after) for gap in found.gaps] == [(130, 30, "k90")]
    assert [(lane.name, lane.busy_ns // US) for lane in found.lanes] == [("stream 7", 110), ("stream 9", 60)]


def test_kernels_of_no_marked_step_lie_before_among_or_after() -> None:
    rows = [kernel(0, 1), kernel(10, 5, 0), kernel(20, 3), kernel(30, 5, 1), kernel(50, 7), kernel(60, 8)]
    found = trace_timeline.timeline(trace_of(*rows, steps=(0, 1)))
    assert found is not None
    assert [(each.where.split()[0], each.kernels, each.time_ns // US) for each in found.outside] == [
        ("before", 1, 1),
        ("among", 1, 3),
        ("after", 2, 15),
    ]
    assert trace_timeline.outside_sentences(found, 100 * US)[2] == (
        "2 kernels after the last marked step: 15.0 µs, 15 % of the time of all kernels."
    )
    (lane,) = found.lanes
    assert [span.inside for span in lane.spans] == [True, False]  # 10 to 30 µs is shown: k10, and k20 of no step


def test_neighbours_nearer_than_a_pixel_are_one_and_phases_never_are() -> None:
    """A window of 10,640 µs: a pixel is 10 µs."""
    rows = [kernel(at * 7, 5, 0) for at in range(10)]
    rows += [kernel(70, 5, 0, phase="backward"), kernel(10_635, 5, 0, phase="backward")]
    found = trace_timeline.timeline(trace_of(*rows, steps=(0,)))
    assert found is not None
    (lane,) = found.lanes
    assert [(span.phase, span.kernels) for span in lane.spans] == [("forward", 10), ("backward", 1), ("backward", 1)]


def test_the_picture_is_to_scale() -> None:
    """Of 1,064 pixels a kernel of a quarter of the window has 266."""
    found = trace_timeline.timeline(trace_of(kernel(0, 25, 0), kernel(50, 50, 0, phase="backward"), steps=(0,)))
    assert found is not None
    drawn = trace_timeline.svg(found)
    assert f'<rect x="{trace_timeline.LABEL:.2f}" y="25" width="266.00"' in drawn
    assert f'<rect x="{trace_timeline.LABEL + 532:.2f}" y="25" width="532.00"' in drawn


def test_without_times_of_day_there_is_none() -> None:
    assert trace_timeline.timeline(trace_of(kernel(-1, 5, 0, start_ns=-1), steps=(0,))) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("void at::native::(anonymous namespace)::f<4, at::native::Add<float> >(int, float*)", "f<4, Add<float> >"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)"),
        ("volta_sgemm_64x64_nt", "volta_sgemm_64x64_nt"),
        ("", ""),
    ],
)
def test_a_kernels_name_is_read_without_its_parameters(name: str, said: str) -> None:
    assert kernel_words(name) == said
