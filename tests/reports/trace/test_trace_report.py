"""Definition: the document, the tables, the text and the rates of a recorded profile, derived by hand."""

import csv
import io
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from analysis.devices import peaks
from cleaning.trace.totals import Outside, PhaseTotal, Unnamed
from reports.trace import document as trace_document
from reports.trace import text as trace_text
from reports.trace.lines import impossible
from reports.trace.rates import GROUPS, rates, time_ratios
from reports.trace.timeline import TraceView
from results.records.counts import Kernel
from results.records.rows import header, read_rows
from tests.support.made_up import made_up_trace
from tests.support.made_up.made_up_trace import G

V100 = peaks.lookup("Tesla V100-SXM2-16GB")
A100 = peaks.lookup("NVIDIA A100-SXM4-40GB")

GOLDEN = """\
trace.json.gz: Kineto (torch.profiler), Abacus 1, 2 steps
32 kernels, 33.0 ms with copies and fills; 31 found their operation, 1 did not

FLOP a step                                  forward  backward  backward ÷ forward
──────────────────────────────────────────────────────────────────────────────────
raw           as found                      10.500 G  11.000 G               1.048
deduplicated  each multiply-add once        3.0000 G  11.000 G               3.667
repaired      gaps filled from shapes, too  6.0000 G  11.000 G               1.833

Totals are of the calls recorded; they are numbered, and none is missing up to the last one, which
  ends 50.0 µs before the recording.

backward ÷ forward  forward  backward  found  cleaned  rule
───────────────────────────────────────────────────────────
convolution               6         6  1.048    1.833     2

Faults, in the whole recording; FLOP: what cleaning took out (-) or added (+).

reason         operations      FLOP what it is
────────────────────────────────────────────────────────────────────────────────────────────────────
fft_tiling              1 -15.000 G cuDNN's FFT convolution launches a kernel for each tile of 32 ×
                                    32; each was counted whole
renamed_kernel          2 +6.0000 G PyProf's lists know the kernel by an older name: counted as 0

The largest operations; found: how often each of its products was counted, 1 is right.

operation  phase     sizes                  times    FLOP   found  reason
─────────────────────────────────────────────────────────────────────────────────
layer0     forward   2×3×224×224, 64×3×7×7      1  1.00 G  16.0 ×  fft_tiling
layer2     backward  2×3×224×224, 64×3×7×7      2  6.00 G  1.00 ×
layer1     backward  2×3×224×224, 64×3×7×7      2  4.00 G  1.00 ×
layer2     forward   2×3×224×224, 64×3×7×7      2  3.00 G     0 ×  renamed_kernel
layer1     forward   2×3×224×224, 64×3×7×7      2  2.00 G  1.00 ×
layer0     backward  2×3×224×224, 64×3×7×7      2  1.00 G  1.00 ×
layer0     forward   2×3×224×224, 64×3×7×7      1  1.00 G  1.00 ×

Step 0, one of 2 marked: 34.5 ms, of which kernels ran for 67 %; nothing ran for 11.5 ms (33 %).

phase     count     time  share
───────────────────────────────
forward      21  21.0 ms   64 %
backward     10  10.0 ms   30 %
–             2  2.00 ms  6.1 %

longest modules  phase     count     time  share
────────────────────────────────────────────────
layer0           forward      17  17.0 ms   52 %
layer1           backward      4  4.00 ms   12 %
layer2           backward      4  4.00 ms   12 %
–                –             2  2.00 ms  6.1 %
layer0           backward      2  2.00 ms  6.1 %
layer1           forward       2  2.00 ms  6.1 %
layer2           forward       2  2.00 ms  6.1 %

longest kernels and copies      phase     count     time  share
───────────────────────────────────────────────────────────────
implicit_convolve_sgemm<float>  forward      21  21.0 ms   64 %
implicit_convolve_sgemm<float>  backward     10  10.0 ms   30 %
Memcpy HtoD                     –             1  1.00 ms  3.0 %
lonely                          –             1  1.00 ms  3.0 %

unexplained: 1.5 % of the time of kernels that make products by their name
no utilization: analysis/devices/peaks.csv has no Abacus 1; --device NAME or --peak-tflops N gives a
  peak
no concrete inputs
"""


def test_the_whole_text_of_a_recording_with_one_fault_of_each_sort() -> None:
    """Forward, two steps: 16 + 1 and 2 + 2 found, 0 of 3 + 3: 21 G raw; once each 1 + 1 + 2 + 2 = 6; true 12."""
    assert trace_text.to_text(made_up_trace.trace(device_name="Abacus 1")) == GOLDEN


def test_a_recording_without_flop_of_its_own_has_one_count_and_no_fault_of_a_rule() -> None:
    text = trace_text.to_text(replace(made_up_trace.trace(), pyprof_rule=False))
    assert re.search(r"^counted from recorded sizes +6\.0000 G +11\.000 G +1\.833$", text, re.MULTILINE)
    assert not re.search("as found|PyProf|fft_tiling|renamed_kernel|found:", text)
    lines = [line.split() for line in text.splitlines() if line.startswith("layer")]
    assert ["layer0", "forward", "2×3×224×224,", "64×3×7×7", "2", "1.00", "G"] in lines  # found 16 times and once


def test_the_document_has_the_keys_of_the_issue_and_no_other() -> None:
    told = trace_document.document(made_up_trace.trace())
    first = ["totals", "steps", "kernels", "faults", "unexplained_time_ratio"]
    beside = ["at_least", "unknown_calls", "unknown_time_ratio", "outside_time_ratio", "outside_phases"]
    assert list(told) == [
        *first,
        *beside,
        "totals_are",
        "numbered",
        "after_last_s",
        "missing",
        "assumed_gradients",
        "unnamed_time_ratio",
        "unnamed_kernels",
        *GROUPS,
        *("device", "step", "step_time_s", "busy_ratio", "idle_s", "step_flop", "achieved_flop_per_s"),
        *("peak_flop_per_s", "peak_source", "utilization_ratio", "utilization_reason", "verdict"),
        *("rates", "rates_time_ratio", "rates_products_time_ratio", "source", "backward_forward", "largest"),
        *("without_count", "problems"),
    ]
    assert told["at_least"] == told["totals"]  # every call has a count
    assert told["totals"] == {
        "raw": {"forward_flop": 21 * G, "backward_flop": 22 * G, "recompute_flop": 0},
        "deduplicated": {"forward_flop": 6 * G, "backward_flop": 22 * G, "recompute_flop": 0},
        "repaired": {"forward_flop": 12 * G, "backward_flop": 22 * G, "recompute_flop": 0},
    }
    assert told["steps"] == 2
    # 16 + 1 + 1 kernels forward and 1 + 2 + 2 backward, then 3 and 5; one is lonely, the copy is no kernel
    assert told["kernels"] == {"read": 32, "attributed": 31, "unattributed": 1}
    assert told["faults"][0] == {"reason": "fft_tiling", "operations": 1, "flop": -15 * G}


def test_what_is_unknown_is_null_in_the_document_and_a_dash_in_the_text() -> None:
    trace = made_up_trace.trace(steps=None, device_name="")
    unknown = {"forward_flop": None, "backward_flop": None, "recompute_flop": None}
    nothing = dict.fromkeys(trace_document.STATES, dict.fromkeys(unknown, PhaseTotal()))
    cleaned = SimpleNamespace(**{**vars(trace.cleaned), "phase_totals": nothing, "faults": ()})
    cleaned.unexplained_time_ratio = None
    trace = replace(trace, cleaned=cleaned)
    told = trace_document.document(trace)
    assert (told["steps"], told["totals"]["raw"], told["unexplained_time_ratio"]) == (None, unknown, None)
    assert re.search(r"repaired .* –  +–  +–$", trace_text.to_text(trace), re.MULTILINE)


def test_kernels_become_rows_that_read_back_as_their_records() -> None:
    trace = made_up_trace.trace(begin_ns=made_up_trace.MS)
    text = trace_document.kernels_csv(trace)
    names, *rows = csv.reader(io.StringIO(text))
    assert tuple(names) == header(Kernel)
    back = read_rows(Kernel, names, rows)
    assert len(back) == len(trace.cleaned.kernels)
    first, lonely = back[0], back[-1]
    assert (first.start_s, first.time_s) == (0.004, 0.001)  # 5 ms on its clock, which began at 1 ms
    assert (first.call, first.stream, first.found_flop, first.fault) == (0, 7, G, "fft_tiling")
    assert (lonely.call, lonely.instance, lonely.stream, lonely.found_flop) == (None, None, None, None)
    assert lonely.device == 0


# --- what has no total -----------------------------------------------------------------------------------------------


def partial() -> TraceView:
    """The recording with a convolution of unknown sizes in its forward pass: 9 ms of 12 + 22 + 9."""
    lost = made_up_trace.instance(12, "forward", None, 1, kernel_time_s=9e-3, module="lost")
    trace = made_up_trace.trace((*made_up_trace.instances(), lost))
    totals = {state: dict(of) for state, of in trace.cleaned.phase_totals.items()}
    for state, known in {"raw": 21, "deduplicated": 6, "repaired": 12}.items():
        totals[state]["forward_flop"] = PhaseTotal(None, known * G, 1, 0.3)
    more = {"phase_totals": totals, "outside_time_ratio": 0.25, "unnamed": Unnamed(0.5, (("mystery_kernel_7", 2e-3),))}
    return replace(trace, cleaned=SimpleNamespace(**{**vars(trace.cleaned), **more}))


def test_a_total_with_an_unknown_part_is_null_with_what_is_known_beside_it() -> None:
    told = trace_document.document(partial())
    assert told["totals"]["repaired"] == {"forward_flop": None, "backward_flop": 22 * G, "recompute_flop": 0}
    assert told["at_least"]["repaired"] == {"forward_flop": 12 * G, "backward_flop": 22 * G, "recompute_flop": 0}
    assert told["at_least"]["raw"]["forward_flop"] == 21 * G
    assert told["unknown_calls"]["raw"] == {"forward_flop": 1, "backward_flop": 0, "recompute_flop": 0}
    assert told["unknown_time_ratio"]["repaired"]["forward_flop"] == 0.3
    assert (told["outside_time_ratio"], told["unnamed_time_ratio"]) == (0.25, 0.5)
    assert told["unnamed_kernels"] == [{"name": "mystery_kernel_7", "time_s": 2e-3}]


def test_products_that_are_in_no_total_have_a_line_and_a_field_of_their_own() -> None:
    whole = Outside(2, dict.fromkeys(trace_document.STATES, PhaseTotal(3 * G, 3 * G, 0, 0.0)), 5e-3)
    part = Outside(1, dict.fromkeys(trace_document.STATES, PhaseTotal(None, 0, 1, None)), None)
    trace = made_up_trace.trace()
    more = {"outside_phases": {"optimizer": part, "none": whole}}
    trace = replace(trace, cleaned=SimpleNamespace(**{**vars(trace.cleaned), **more}))
    assert "in no phase: 2 products, 3.00 GFLOP, 5.00 ms; in no total" in trace_text.to_text(trace)
    told = trace_document.document(trace)["outside_phases"]
    same = dict.fromkeys(trace_document.STATES, 3 * G)
    none = dict.fromkeys(trace_document.STATES, 0)
    assert told["none"] == {"calls": 2, "flop": same, "at_least": same, "unknown_calls": none, "time_s": 5e-3}
    assert (told["optimizer"]["flop"]["repaired"], told["optimizer"]["time_s"]) == (None, None)
    assert told["optimizer"]["unknown_calls"]["repaired"] == 1


def test_a_total_with_an_unknown_part_is_at_least_and_has_no_ratio_in_the_text() -> None:
    text = trace_text.to_text(partial(), V100)
    for row in ("raw .* at least 10.500 G  11.000 G +–$", "repaired .* at least 6.0000 G  11.000 G +–$"):
        assert re.search(row, text, re.MULTILINE)
    assert "forward has no total: 1 call has no count, 30 % of its time" in text
    assert re.search(r"convolution +7 +6 +– +– +2$", text, re.MULTILINE)


def test_a_rate_is_over_the_kernels_of_the_calls_that_are_counted_and_says_how_much_that_is() -> None:
    """12 + 22 GFLOP in 16 + 5 + 10 ms by fp32 (15.7 TFLOP/s): 7.0 %, whatever else ran; 9 ms have no count."""
    trace = partial()
    share = 34 * G / 31e-3 / 15.7e12
    lines = trace_text.rate_lines(trace, V100)
    whole_s = trace.cleaned.kernels["time_ns"].sum() / 1e9
    assert lines[0].startswith(f"{100 * share:.1f} % of the dense peak in the calls that are counted")
    products = f"{100 * 31e-3 / 50e-3:.0f} % of the time of kernels that make products"  # of 50 ms
    assert (
        lines[1]
        == f"it covers {products}, {100 * 31e-3 / whole_s:.0f} % of all kernels' time; it says nothing about the rest"
    )


def test_calls_that_take_the_place_of_kernels_are_covered_as_kernels_are() -> None:
    """A recording of a CPU has no kernels: of two products' 16 + 24 ms the first has a rate, 40 %."""
    trace = made_up_trace.trace(
        (
            made_up_trace.instance(0, "forward", 12 * G, 1, kernel_time_s=16e-3),
            made_up_trace.instance(1, "forward", None, 1, kernel_time_s=24e-3),
        )
    )
    frame = trace.cleaned.kernels
    times_ns = [16_000_000, 24_000_000]
    calls = frame[frame["instance"] >= 0].assign(what="call", name="aten::mkldnn_convolution", time_ns=times_ns)
    cleaned = SimpleNamespace(**{**vars(trace.cleaned), "kernels": calls, "product_time_s": 40e-3})
    speeds = rates(cleaned.instances, calls, V100)
    assert time_ratios(speeds, cleaned) == (pytest.approx(0.4), pytest.approx(0.4))


# --- rates -----------------------------------------------------------------------------------------------------------


def one(flop: int, time_s: float, dtype: str = "float", kernel: str = "implicit_convolve_sgemm"):
    trace = made_up_trace.trace(
        (made_up_trace.instance(0, "forward", flop, 1, kernel_time_s=time_s, input_dtypes=(dtype, dtype)),)
    )
    return trace.cleaned.instances, trace.cleaned.kernels.assign(name=kernel)


@pytest.mark.parametrize(
    ("dtype", "kernel", "device", "unit", "mark"),
    [
        ("float", "implicit_convolve_sgemm", V100, "fp32", "fast_algorithm"),
        ("float", "cutlass_80_tensorop_s1688gemm", A100, "tf32", ""),
        ("float", "volta_s884cudnn", A100, "fp32", "fast_algorithm"),
        ("c10::Half", "volta_h884gemm", V100, "fp16", ""),
    ],
)
def test_the_unit_is_that_of_the_dtype_and_of_the_kernels_name(dtype, kernel, device, unit, mark) -> None:
    (rate,) = rates(*one(100 * 10**9, 1e-3, dtype, kernel), device)  # 100 TFLOP/s
    assert (rate.unit, rate.mark) == (unit, mark)


def half(flop: int, time_s: float = 1e-3):
    """A recording of one product in fp16, of which every kernel is known."""
    trace = made_up_trace.trace(
        (made_up_trace.instance(0, "forward", flop, 1, kernel_time_s=time_s, input_dtypes=("c10::Half",)),)
    )
    frame = trace.cleaned.kernels
    return replace(trace, cleaned=SimpleNamespace(**{**vars(trace.cleaned), "kernels": frame[frame["instance"] >= 0]}))


def test_faster_than_tensor_units_can_be_is_an_error_and_says_which() -> None:
    (line,) = impossible(half(200 * G), V100)  # 200 TFLOP/s, the peak being 125
    assert line.startswith("fp16: 200 TFLOP/s in its products, 160 % of 125 TFLOP/s; above_one: 1 of 1 operations")
    assert "above_one" in trace_text.to_text(half(200 * G), V100)
    assert impossible(half(200 * G), None) == impossible(half(124 * G), V100) == []
