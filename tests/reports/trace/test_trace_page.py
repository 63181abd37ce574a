"""trace.html: one file, no network, one script that its policy admits, all names as text, numbers of the tables."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from dataclasses import replace

import pandas as pd

from analysis.devices import peaks
from reports.trace.page import to_html
from tests.support.made_up import made_up_trace

HOSTILE = "<script>alert(1)</script>"


def test_the_page_has_one_script_and_asks_no_network() -> None:
    text = to_html(made_up_trace.trace())
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", text)


def test_the_verdict_has_the_window_of_a_step_and_its_flop() -> None:
    """Kernels begin every 1.5 ms and run for 1. Of two steps the first is shown: 23 kernels (16 + 1 + 1 forward, 1 + 2
    + 2 backward), 34.5 ms until the second, of which 23 ms; 12 + 22 GFLOP in two steps."""
    text = to_html(made_up_trace.trace())
    assert "A step takes 34.5 ms, of which the device ran for 67\u00a0%; the recorded calls need 17.0 GFLOP" in text


def test_a_total_that_lacks_calls_is_not_in_the_verdict() -> None:
    made = made_up_trace.trace()
    totals = made.cleaned.phase_totals["repaired"]
    totals["forward_flop"] = replace(totals["forward_flop"], flop=None, unknown_calls=1)
    assert "recorded calls need" not in to_html(made)


def test_rates_are_held_against_the_peak_of_the_device() -> None:
    assert re.search(
        r"products ran at [\d.]+\u00a0% of the dense peak",
        to_html(made_up_trace.trace(), peaks.lookup("Tesla V100-SXM2-16GB")),
    )


def test_names_are_text() -> None:
    made = made_up_trace.trace(path=f"{HOSTILE}.json", device_name=HOSTILE)
    kernels = made.cleaned.kernels
    kernels["name"], kernels["module"], kernels["phase"] = HOSTILE, HOSTILE, HOSTILE
    text = to_html(made)
    assert HOSTILE not in text
    assert text.count("&lt;script&gt;") > 4


def test_without_times_tables_of_time_say_so() -> None:
    made = made_up_trace.trace()
    made.cleaned.kernels["time_ns"] = 0
    text = to_html(made)
    assert text.count("No times were recorded.") == 2
    assert "A step in time" not in text


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


def test_modules_that_differ_in_their_number_are_one_row() -> None:
    """Layers 0, 1 and 2 take 19, 6 and 6 ms of kernels."""
    made = made_up_trace.trace()
    kernels = made.cleaned.kernels
    kernels["module"] = kernels["module"].replace({"layer0": "net.0.fc", "layer1": "net.1.fc", "layer2": "Conv2d_2"})
    heads, *rows = rows_of(to_html(made), "modules-table")
    shown = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
    assert (shown["net.*.fc"]["modules"], shown["net.*.fc"]["time"]) == ("2", "25.0 ms")
    assert (shown["Conv2d_2"]["modules"], shown["Conv2d_2"]["time"]) == ("1", "6.00 ms")
