"""Definition: verdicts, the headline, the closing sentence, the table and a figure's points, from rows made by hand."""

import dataclasses
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.utilization.numerators import TableCount
from cleaning.reconcile.derived import Built, View, with_small_batches
from reports.shared import figure_panels, figure_style
from reports.shared.layout import to_csv
from reports.shared.numbers import digits, verdict
from reports.sweep import utilization_figures as utilization
from reports.sweep.headline import closing
from reports.sweep.table import to_text
from results.records.answers import Utilization
from results.records.cell import Run, SessionRow
from results.store.layout import read_records, table

BUSY = "busy: others used 21% of the processors while …"


def fraction(ratio: float | None, denominator: str = "datasheet", **more: object) -> Utilization:
    """One second a step, ± 1 %; the peak is 100 TFLOP/s."""
    values: dict[str, Any] = {"cell_id": "c", "attempt": 1, "model": "resnet18", "batch_size": 8, "precision": "fp32"}
    values |= {"device": "cuda", "method": "exact", "numerator_source": "flopledger", "denominator": denominator}
    values |= {"time_s": 1.0, "time_low_s": 0.99, "time_high_s": 1.01, "items_per_s": 8.0}
    if ratio is not None:
        values |= {"utilization_ratio": ratio, "utilization_low_ratio": ratio / 1.01, "peak_flop_per_s": 1e14}
        values |= {
            "utilization_high_ratio": ratio / 0.99,
            "achieved_flop_per_s": ratio * 1e14,
            "peak_source": "a sheet",
        }
    return Utilization(**{**values, **more})


def view(*fractions: Utilization, status: str = "ok", intensity: float | None = None, **more: object) -> View:
    first = fractions[0] if fractions else fraction(None)
    shared = {name: getattr(first, name) for name in ("cell_id", "model", "batch_size", "precision", "device")}
    run = Run(**{**shared, "attempt": 1, "session": "s1", "status": status, **more})
    counted = (
        None if intensity is None else TableCount({("convolution", "float32"): int(100 * intensity)}, 0, 60, 40, {})
    )
    return View(run, tuple(fractions), counted)


def failed(status: str = "out_of_memory", reason: str = "tried to allocate 61 GiB", **more: object) -> View:
    row = fraction(None, status=status, reason=reason, time_s=None, items_per_s=None, **more)
    return view(row, status=status, reason=reason)


def built(*views: View, problems: tuple[str, ...] = ()) -> Built:
    session = SessionRow(
        session="s1",
        started_at="",
        host="h",
        device="cuda",
        device_name="A GPU",
        driver="550.1",
        torch_version="2.15.0",
    )
    rows = tuple(row for each in views for row in each.fractions)
    return Built(rows, (), views, (session,), problems)


# --- verdicts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (view(fraction(0.4), fraction(0.81, "ceiling")), "near the measured peak"),
        (view(fraction(0.4), fraction(0.79, "ceiling"), intensity=12.0), "12 FLOP/byte"),
        (dataclasses.replace(view(fraction(0.5), intensity=9.9), memory_bytes_per_s=1e13), "memory-bound"),
        (dataclasses.replace(view(fraction(0.5), intensity=10.1), memory_bytes_per_s=1e13), "slow kernels"),
        (
            dataclasses.replace(view(fraction(0.5), intensity=9.9), small_batch=True),
            "small batch",
        ),
        (view(fraction(0.5, "ceiling")), "bytes not counted"),
        (view(fraction(0.4), status="not_converged", host_bound=True), "not converged"),
        (view(fraction(0.4), host_bound=True), "host-bound"),
        (view(fraction(0.4), fraction(0.9, "sustained", power_capped_ratio=0.5)), "power cap, 90 % sustained"),
        (
            view(fraction(0.4), fraction(0.9, "sustained", power_capped_ratio=0.4), fraction(0.85, "ceiling")),
            "near the measured peak",
        ),
        (view(fraction(1.2, warnings=("above_one: 1.2 on bf16",)), host_bound=True), "above 1: see warnings"),
        (view(fraction(0.4), fraction(1.1, "ceiling", warnings=("ceiling_too_low: x",))), "measured peak too low"),
        (view(fraction(0.4, warnings=("clock_limited: sw_power_cap",)), fraction(0.9, "ceiling")), "clock held down"),
        (view(fraction(0.4, method="batch"), fraction(0.8, "ceiling", method="batch")), "near the measured peak"),
        (view(fraction(0.4, warnings=("profile_differs: backward 1 against 2",))), "count and profile differ"),
        (
            view(
                fraction(0.4),
                intensity=12.0,
                warnings=("page_faults: 138000 a step, and 36% of the processor time was the system's: memory …",),
            ),
            "page faults: 36 %",
        ),
        (view(fraction(0.4, warnings=(BUSY,), device="cpu")), "busy machine"),
        (view(fraction(0.4, warnings=(BUSY,)), host_bound=True), "busy machine"),
        (view(fraction(0.4, warnings=(BUSY,)), fraction(0.9, "ceiling")), "near the measured peak"),
        (failed(), "out of memory"),
        (failed("crashed"), "the worker died"),
        (view(fraction(None, status="unavailable", reason="no peak")), "no peak known"),
    ],
)
def test_verdict(cell: View, words: str) -> None:
    assert verdict(cell) == words


def test_headline_is_the_sheet_then_the_user_then_the_ceiling_and_exact_before_theory() -> None:
    user, ceiling = fraction(0.3, "user"), fraction(0.5, "ceiling")
    assert view(ceiling, user, fraction(0.1)).headline.denominator == "datasheet"
    assert view(ceiling, user, fraction(None)).headline is user
    assert view(ceiling, fraction(None, "user")).headline is ceiling
    assert view(fraction(0.3, method="theory"), ceiling).headline is ceiling
    assert view(fraction(0.9, "clock")).headline is None  # never without the sheet beside it


def test_no_counters_theory_stands_for_an_exact_count_that_lacks_calls() -> None:
    """A counter that names no operators cannot say that it missed the same calls."""
    lacking = fraction(None, at_least_flop=10, unknown_calls=1, status="unavailable", reason="not_understood: my.op")
    counted = view(lacking, fraction(0.3, method="theory", numerator_source="ptflops"))
    assert counted.headline is None
    assert verdict(counted) == "no whole count"
    assert "known only in part" in closing([counted]).sentence
    assert view(lacking, profile := fraction(0.4, method="batch")).headline is profile
    absent = fraction(None, status="unavailable", reason="no operation table was recorded for this cell")
    assert view(absent, theory := fraction(0.3, method="theory")).headline is theory


def test_headline_is_the_best_numerator_exact_batch_epoch_theory_one() -> None:
    methods = ("one", "theory", "epoch", "batch", "exact")
    rows = [fraction(0.1 * (i + 1), method=method) for i, method in enumerate(methods)]
    for count in range(1, 6):
        assert view(*rows[:count]).headline.method == methods[count - 1]
    assert view(*(fraction(None, method=method) for method in methods)).timed_row.method == "exact"
    rate = fraction(None, method="one", achieved_flop_per_s=1e12)
    assert view(fraction(None, method="batch"), rate).timed_row is rate  # one with a rate is told before one without


def test_methods_are_compared_over_the_ceiling_that_more_of_them_have() -> None:
    paired, exact = fraction(0.4, "paired_ceiling"), fraction(0.5, "ceiling")
    theory = fraction(0.6, "ceiling", method="theory")
    assert view(paired, exact).methods_denominator == "paired_ceiling"  # both have the exact count alone
    assert view(paired, exact, theory).methods_denominator == "ceiling"
    assert view(fraction(0.1), exact, theory).methods_denominator == "ceiling"
    assert view(fraction(None), fraction(0.3, "user")).methods_denominator == "user"
    assert view(fraction(None)).methods_denominator is None


# --- the closing sentence ----------------------------------------------------------------------------------------


def test_a_batch_is_small_where_the_interval_of_a_larger_one_is_above_its_own() -> None:
    """From 0.99 to 1.01 times the ratio: 0.5 at batch 32 overlaps with 0.5 at 16, and 0.3 at 32 has no larger one."""
    points = [(8, 0.2), (8, 0.4), (16, 0.41), (16, 0.5), (32, 0.5), (32, 0.3)]
    rows = [fraction(ratio, batch_size=batch, cell_id=str(place)) for place, (batch, ratio) in enumerate(points)]
    cells = with_small_batches([view(row) for row in rows])
    assert [cell.small_batch for cell in cells] == [True, True, True, False, False, False]


def test_no_headline_rests_on_a_cell_that_did_not_converge() -> None:
    wide = view(fraction(0.9, model="vgg16"), status="not_converged")
    said = closing([view(fraction(0.4)), wide]).sentence
    assert said.startswith("resnet18 at batch 8 in fp32 uses 40 %")
    again = "--resume with --retry unconverged measures these cells again."
    assert closing([wide]).sentence == f"No interval is as narrow as requested (vgg16 b8 fp32 ±1.0 %): {again}"
    busy = replace(wide, run=replace(wide.run, device="cpu", others_cpu_ratio=0.4, warnings=("busy: others",)))
    assert closing([busy, wide]).sentence.endswith(again), "others are no reason for a cell that they left alone"
    more = replace(busy, run=replace(busy.run, others_cpu_ratio=0.16))
    assert closing([busy, more]).sentence.startswith(
        "No interval is as narrow as requested (vgg16 b8 fp32 ±1.0 %, vgg16 b8 fp32 ±1.0 %), because others used "
        "16 % to 40 % of the processors: end what runs there, or, if nothing does and the host of a virtual machine"
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1234"),
        (99.96, "100"),
        (9.996, "10.0"),
        (1.0, "1.00"),
        (0.07234, "0.0723"),
        (0, "0"),
        (-2.5, "-2.50"),
        (123456, "123456"),
    ],
)
def test_three_significant_digits_without_exponents(value: float, text: str) -> None:
    assert digits(value) == text


def test_bytes_are_no_reason_where_they_point_the_other_way() -> None:
    cells = [view(fraction(0.6), intensity=10.0), view(fraction(0.2, model="vgg16"), intensity=40.0)]
    assert "which bytes do not explain" in closing(cells).sentence


def test_models_whose_intervals_overlap_are_not_told_apart() -> None:
    said = closing([view(fraction(0.600)), view(fraction(0.601, model="vgg16"))]).sentence
    assert said == "At fp32, batch 8, vgg16 and resnet18 cannot be distinguished: the intervals overlap."


def test_ratios_over_ceilings_of_two_sessions_are_not_compared() -> None:
    one, other = (
        view(fraction(0.3, "ceiling", model=model, cell_id=model, peak_flop_per_s=peak)) for model, peak in CEILINGS
    )
    assert " and " not in closing([one, other]).sentence


CEILINGS = (("resnet18", 322e9), ("vgg16", 237e9))


# --- table, CSV, JSON --------------------------------------------------------------------------------------------


def test_the_table_reads_like_this() -> None:
    text = to_text(
        built(
            view(fraction(0.6), fraction(0.81, "ceiling"), intensity=30.0),
            view(fraction(0.06, model="mobilenet_v2"), status="not_converged", intensity=2.0),
            failed(model="vgg16", batch_size=512),
        )
    )
    expected = """\
resnet18 at batch 8 in fp32 uses 60 % of the datasheet peak: at all of it its step would take 600 ms
  instead of 1.00 s.
95 % intervals: resnet18 b8 fp32 59.4 to 60.6 %.

A GPU · torch 2.15.0 · driver 550.1

model         batch  precision   used      ±  step ms  TFLOP/s  items/s  why not more
───────────────────────────────────────────────────────────────────────────────────────────────
mobilenet_v2      8  fp32       6.0 %  1.0 %     1000     6.00     8.00  not converged
resnet18          8  fp32        60 %  1.0 %     1000     60.0     8.00  near the measured peak
vgg16           512  fp32           –      –        –        –        –  out of memory

repeats: ± covers one window of each cell; with --repeat 5 it covers the variation between windows
sheet: the datasheet peak, 100 TFLOP/s (a sheet)
vgg16 b512 fp32: out of memory: tried to allocate 61 GiB
"""
    assert text == expected


# --- figures -----------------------------------------------------------------------------------------------------


def grid(models: Iterable[str], precisions: Iterable[str], batches: Iterable[int], **more: object) -> list[Utilization]:
    """A sweep with falling utilization; every cell its own id."""
    cells = [(m, p, b) for m in models for p in precisions for b in batches]
    return [
        fraction(0.8 / (1 + i), cell_id=f"c{i}", model=m, precision=p, batch_size=b, **more)
        for i, (m, p, b) in enumerate(cells)
    ]


def drawn(tmp_path: Path, rows: list[Utilization]) -> dict[str, Any]:
    path = tmp_path / "utilization.csv"
    path.write_text(to_csv(rows, Utilization), encoding="utf-8")
    return utilization.by_model(table(Utilization, read_records(path, Utilization)))


def dots(axes: Any) -> list[tuple[float, float]]:
    """Where the points of a panel are."""
    marks = [line for line in axes.lines if line.get_marker() not in ("None", "|", "_")]  # no line, no end of a bar
    return [(float(x), float(y)) for line in marks for x, y in line.get_xydata()]


def test_a_figure_is_as_wide_as_a_page_or_less_for_one_column_or_as_it_is_told() -> None:
    widths = [figure_panels.grid(*panels, 1.0, width_in=width)[0].get_figwidth() for panels, width in (
        ((3, 2), None), ((3, 1), None), ((3, 2), 5.0))]  # fmt: skip
    assert widths == [figure_style.PAGE_IN, 1.35 * figure_style.COLUMN_IN, 5.0]


def test_points_are_the_ratios_of_the_file_in_percent(tmp_path: Path) -> None:
    rows = grid(["a", "b", "c"], ["fp32", "tf32"], [8])
    figure = drawn(tmp_path, rows)["utilization_by_model"]
    (axes,) = figure.axes
    assert sorted(x for x, _ in dots(axes)) == pytest.approx(sorted(100 * row.utilization_ratio for row in rows))
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]  # best on top
    assert axes.get_ylim()[0] > axes.get_ylim()[1]
    assert figure.get_supxlabel() == "utilization, % of the datasheet peak; bars: 95 % interval"
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == ["fp32, of 100 TFLOP/s", "tf32, of 100 TFLOP/s"]
