"""No text of a run's figures covers another or leaves the page, from 1 to 60 models and from 1 to 8 variants.

Boxes are those of matplotlib's own renderer. Made-up rows: the sizes are the test, the numbers are not.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reports.sweep.figures import epoch_times, gallery, utilization
from reports.sweep.figures import methods as figures_methods
from results.records.answers import Utilization, WorkTime
from results.records.rows import Record
from tests.support.figure_texts import covered
from tests.support.made_up import made_up_tables
from tests.support.made_up.made_up_tables import Grid

VARIANTS = (
    "num_classes=10",
    "layout=channels_last, num_classes=10",
    "compile=true, num_classes=10",
    "layout=channels_last, compile=true, num_classes=10",
    "optimizer=adamw, num_classes=10",
    "layout=channels_last, compile=true, optimizer=adamw, num_classes=10",
    "data=loop, num_classes=10, image_size=192",
    "layout=channels_last, deterministic=true, cudnn_benchmark=false, optimizer=adamw, num_classes=10",
)
SIZES = [(1, 1), (1, 8)]
LARGE = [(2, 3), (13, 2), (60, 1), (13, 8), (30, 4), (60, 8)]
TALLEST_IN = 11.5
CEILINGS = (237e9, 322e9, 512e9)


@pytest.fixture(autouse=True)
def many_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty names: those of the made-up suite, and longer ones with its sizes."""
    known = list(made_up_tables.MODELS)
    for number in range(60):
        base = known[number % len(known)]
        name = base if number < len(known) else f"{base}_of_family_{number}"
        monkeypatch.setitem(made_up_tables.MODELS, name, made_up_tables.MODELS[base])


def grid(models: int, variants: int) -> Grid:
    names = tuple(made_up_tables.MODELS)[:models]
    return Grid(names, (1, 12, 64), ("fp32", "amp-bf16"), VARIANTS[:variants], lost={(names[0], 64): "timeout"})


def over_ceilings(rows: list[Record]) -> list[Record]:
    """The same rows, their variants divided by ceilings of three sessions."""
    kinds = list(dict.fromkeys(row.variant for row in rows))
    return [
        replace(row, denominator="ceiling", peak_source="", peak_flop_per_s=CEILINGS[kinds.index(row.variant) % 3])
        if row.utilization_ratio is not None
        else replace(row, denominator="ceiling")
        for row in rows
        if row.denominator == "datasheet"
    ]


def check(folder: Path, models: int, variants: int) -> None:
    rows = made_up_tables.fractions(grid(models, variants))
    frame, unpaired = (
        gallery.read(made_up_tables.write(folder / "u.csv", each, Utilization), Utilization)
        for each in (rows, over_ceilings(rows))
    )
    times = gallery.read(
        made_up_tables.write(folder / "t.csv", made_up_tables.work_times(grid(models, variants)), WorkTime), WorkTime
    )
    drawn = [
        utilization.figures(frame),
        utilization.figures(unpaired),
        figures_methods.by_method(frame),
        epoch_times.epoch_times(times),
    ]
    labels: list[set[str]] = []
    for figures in drawn:
        for name, figure in figures.items():
            assert covered(figure) == [], name
            assert figure.get_size_inches()[1] <= TALLEST_IN, name
        rows_of = [f for name, f in figures.items() if name.startswith("utilization_by_model")]
        labels += [{t.get_text() for f in rows_of for t in f.axes[0].get_yticklabels()}] if rows_of else []
    assert [len(found) for found in labels] == [models * variants] * 2, "each model and variant has a row"


@pytest.mark.parametrize(("models", "variants"), SIZES)
def test_no_text_covers_another(tmp_path: Path, models: int, variants: int) -> None:
    check(tmp_path, models, variants)


@pytest.mark.slow
@pytest.mark.parametrize(("models", "variants"), LARGE)
def test_no_text_of_many_models_and_variants_covers_another(tmp_path: Path, models: int, variants: int) -> None:
    check(tmp_path, models, variants)


def test_cells_over_ceilings_of_two_sessions_are_series_of_their_own(tmp_path: Path) -> None:
    rows = over_ceilings(made_up_tables.fractions(Grid(("resnet18",), (8, 64), ("fp32",), VARIANTS[:2])))
    frame = gallery.read(made_up_tables.write(tmp_path / "u.csv", rows, Utilization), Utilization)
    figures = utilization.figures(frame)
    for figure in figures.values():
        (legend,) = figure.legends
        assert [text.get_text() for text in legend.get_texts()] == ["fp32, of 237 GFLOP/s", "fp32, of 322 GFLOP/s"]
        assert "another session" in figure.get_supxlabel()
    faces = {
        line.get_markerfacecolor() == "white"
        for line in figures["utilization_by_model"].axes[0].lines
        if line.get_marker() == "o"
    }
    assert faces == {False, True}
    one = frame.assign(peak_flop_per_s=322e9)
    for figure in utilization.figures(one).values():
        assert len(figure.legends[0].get_texts()) == 1
        assert "another session" not in figure.get_supxlabel()
