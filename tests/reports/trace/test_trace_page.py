"""Definition: the tables of trace.html, and a step's window, busy time and gaps, by hand from made-up recordings."""

import html
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pandas as pd

from analysis.devices import peaks
from reports.trace import timeline as trace_timeline
from reports.trace.page import to_html
from reports.trace.timeline import TraceView
from tests.support.made_up import made_up_trace


def test_a_total_that_lacks_calls_is_not_in_the_verdict() -> None:
    made = made_up_trace.trace()
    totals = made.cleaned.phase_totals["repaired"]
    totals["forward_flop"] = replace(totals["forward_flop"], flop=None, unknown_calls=1)
    assert "recorded calls need" not in to_html(made)


def rows_of(text: str, table: str) -> list[list[str]]:
    """The texts of the cells of a table, row by row."""
    begin = text.index(f'id="{table}"')
    rows = re.findall(r"<tr.*?</tr>", text[begin : text.index("</table>", begin)], re.DOTALL)
    return [
        [html.unescape(re.sub("<.*?>", "", cell)).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in rows
    ]


def test_a_gap_says_what_the_host_did() -> None:
    """The first kernel runs from 5 to 6 ms, the next from 6.5: a loader for 0.4 ms, a call in it for 0.1."""
    names = ["enumerate(DataLoader)#next", "aten::stack", "aten::add"]
    host = pd.DataFrame(
        {"name": names, "start_ns": [5_100_000, 6_300_000, 7_000_000], "time_ns": [1_300_000, 100_000, 9]}
    )
    heads, *rows = rows_of(to_html(replace(made_up_trace.trace(), host=host)), "gaps-table")
    first = dict(zip(heads, next(row for row in rows if row[0] == "1.00 ms"), strict=True))
    assert first["lasts"] == "500 µs"
    assert first["the host"] == "enumerate(DataLoader)#next 400 µs, aten::stack 100 µs"
    assert rows[1][heads.index("the host")] == "nothing recorded"


def test_operations_have_the_rate_of_their_kernel_and_its_share_of_the_peak() -> None:
    """Of layer 2 the backward call makes two products of 3 GFLOP in two kernels of 1 ms; the V100 has 15.7 TFLOP/s."""
    made = replace(made_up_trace.trace(), pyprof_rule=False)
    heads, *rows = rows_of(to_html(made, peaks.lookup("Tesla V100-SXM2-16GB")), "counts-3")
    first = dict(zip(heads, rows[0], strict=True))
    assert (first["operation"], first["phase"], first["times"], first["FLOP"]) == ("layer2", "backward", "2", "6.00 G")
    assert (first["time"], first["FLOP/s"], first["of peak"]) == ("4.00 ms", "3.00 TFLOP/s", "19 %")
    assert first["longest kernel"] == "implicit_convolve_sgemm<float>"


US = 1000


def kernel(start: int, length: int, instance: int = -1, **more: Any) -> dict[str, Any]:
    """Times in µs."""
    row = {"name": f"k{start}", "what": "kernel", "start_ns": start * US, "time_ns": length * US, "device": 0}
    rest = {"untimed": 0, "stream": 7, "instance": instance, "phase": "forward", "fault": "", "module": ""}
    return {**row, **rest, **more}


def trace_of(*kernels: dict[str, Any], steps: tuple[int | None, ...] = ()) -> TraceView:
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
