"""trace.html: one file, no network, one script that its policy admits, all names as text, numbers of the tables."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace

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
