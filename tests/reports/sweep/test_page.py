"""Definition, law, injected fault: report.html has every cell and every reason, and no text of the data is markup."""

import dataclasses
import re
from typing import Any

import pytest

from cleaning.reconcile.derived import Built, View
from reports.shared.html import CellNames, PageTable, page_table
from reports.shared.layout import TableColumn, TextTable
from reports.shared.numbers import merged, skeleton
from reports.sweep.page import _verdict, measured_cells, page, reasons
from reports.sweep.table import warning_lines
from results.records.counts import ProfileCount
from results.store.manifest import Manifest
from tests.support.fakes.page_reader import Reader
from tests.support.made_up import made_up_page

HOSTILE = '<script>alert("x")</script>&amp;\'><img src=http://example.org/x onerror=1>'

SVG = """<?xml version="1.0" encoding="utf-8" standalone="no"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN"
  "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="360pt" height="216.5pt" viewBox="0 0 360 216.5"
 xmlns="http://www.w3.org/2000/svg" version="1.1">
 <defs><path id="g" d="M 0 0
L 10 10
"/></defs>
 <g id="figure_1"><text>50 % of 'it' &amp; more – é</text><use xlink:href="#g" style="fill: #ffffff"/></g>
</svg>
"""


@pytest.fixture(scope="module")
def built() -> Built:
    """Two models, two batches, two precisions, every derived table, one cell out of memory."""
    return made_up_page.suite(("resnet18", "vgg16"), (1, 128), ("fp32", "amp-bf16"))


@pytest.fixture(scope="module")
def whole(built: Built) -> str:
    """Everything that a page can hold."""
    manifest = Manifest(
        name="made-up", created_at="", commands=("python -m runners.sweep --quick",), harness_version="0.1"
    )
    built = dataclasses.replace(built, problems=("samples.csv: 3 rows of no committed attempt",))
    return page(built, {"utilization_by_model": SVG, "a_new_one": SVG}, manifest=manifest)


def row_of(table: PageTable | None, *start: str) -> dict[str, str]:
    """The row that begins with these cells: column → text."""
    assert table is not None
    (row,) = [row for row in table.rows if row[: len(start)] == start]
    return dict(zip(table.columns, row, strict=True))


# --- the form ------------------------------------------------------------------------------------------------------


def test_tags_are_balanced_and_identifiers_unique(whole: str) -> None:
    found = Reader(whole)
    assert found.faults == []
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids)) > 10


# --- what is in it -------------------------------------------------------------------------------------------------


def test_repeats_of_several_devices_have_no_mean_and_say_so(built: Built) -> None:
    """In the table of cells and above the figures of the page, and in the terminal."""
    assert "No mean is taken over devices" not in page(built, {"a_new_one": SVG})
    first, second, *others = built.utilization
    marked = [dataclasses.replace(row, variant=f"device={name}") for row, name in ((first, "a"), (second, "b 0123"))]
    apart = dataclasses.replace(built, utilization=(*marked, *others))
    cells = {(row.model, row.batch_size, row.precision) for row in marked}
    whose = "one cell" if len(cells) == 1 else f"{len(cells)} cells"
    said = f"No mean is taken over devices: repeats of {whose} were measured on a, b 0123, and have a row and a point"
    assert page(apart, {"a_new_one": SVG}).count(said) == 2
    assert f"note: {said} for each." in warning_lines(apart)


def test_every_cell_is_in_the_table_and_every_measured_one_in_that_of_methods(whole: str, built: Built) -> None:
    tables = [Reader(table).rows[1:] for table in re.findall(r"<table\b.*?</table>", whole, re.DOTALL)]
    cells = {(view.run.model, str(view.run.batch_size), view.run.precision) for view in built.views}
    tables[0] = [[row[0], *row[2:]] for row in tables[0]]  # `used` is the second column
    measured = {(v.run.model, str(v.run.batch_size), v.run.precision) for v in built.views if v.measured}
    assert {tuple(row[:3]) for row in tables[0]} == cells
    assert {tuple(row[:3]) for row in tables[1]} == measured
    assert len(tables[0]) == 8


def test_two_columns_of_one_name_stay_two() -> None:
    table = page_table(
        TextTable([TableColumn("batch"), TableColumn("batch"), TableColumn("")], [["8", "24 %", "–"]]), "methods"
    )
    assert table is not None
    assert (table.columns, table.rows) == (("batch", "batch"), (("8", "24 %"),))


def test_the_table_of_cells_says_what_the_terminal_says(built: Built) -> None:
    table = measured_cells(built.views)
    assert table.columns[:4] == ("model", "used", "batch", "precision")  # a telephone shows two columns
    row = row_of(table, "resnet18", "5.0 %", "1", "fp32")  # 0.05 + 0.007 · 0 by construction
    assert (row["step ms"], row["±"], row["peak"]) == ("100", "2.0 %", "100 sheet")
    lost = row_of(table, "vgg16", "–", "128", "fp32")
    assert (lost["step ms"], lost["why not more"]) == ("–", "out of memory")


def test_the_verdict_counts_measured_and_failed_cells(built: Built) -> None:
    """2 models × 2 batches × 2 precisions, one of them out of memory."""
    name, (text,) = _verdict(built).rests_on[-1]
    assert (name, text) == ("Cells", "7 of 8 measured, 1 of them with a wider interval than requested; 1 failed")


def test_what_has_no_number_says_why_once_with_its_cells(built: Built) -> None:
    """Both models lack a profile of one sample, an out-of-memory cell all, and no peak is given."""
    view, *others = [view for view in built.views if view.measured]
    gaps = [
        ProfileCount(
            **{name: getattr(each.run, name) for name in ("cell_id", "attempt", "model", "batch_size", "precision")},
            device="cuda",
            source="torch_profiler",
            work="one",
            items=1,
            phase="forward",
            status="unavailable",
            reason=f"no profile of {number} samples was recorded",
        )
        for number, each in enumerate((view, others[0]), 1)
    ]
    table = reasons(dataclasses.replace(built, profile_counts=gaps), CellNames(built.views))
    why = row_of(table, "profile of one")
    assert why["reason"] == "no profile of 1 to 2 samples was recorded"
    assert why["cells"] == "resnet18 b1 amp-bf16, resnet18 b1 fp32"
    assert row_of(table, "out of memory")["cells"] == "vgg16 b128 fp32"
    assert row_of(table, "the given peak")["cells"] == "all 7 measured cells"


# --- data that is no friend ----------------------------------------------------------------------------------------


def hostile(built: Built) -> Built:
    """The same with markup in every text that comes from data."""

    def poisoned(record: Any) -> Any:
        keep = {"cell_id", "status", "denominator", "device", "session", "precision", "level", "state", "phase", "work"}
        texts = {
            f.name: HOSTILE + getattr(record, f.name)
            for f in dataclasses.fields(record)
            if isinstance(getattr(record, f.name), str) and f.name not in keep
        }
        return dataclasses.replace(record, **texts)

    views = []
    for view in built.views:
        rows = tuple(dataclasses.replace(row, warnings=(HOSTILE,), reason=HOSTILE) for row in view.fractions)
        views.append(View(poisoned(view.run), rows, view.counted))
    kept = {"flop_counts", "views", "utilization", "problems"}
    rest = {
        f.name: tuple(map(poisoned, getattr(built, f.name))) for f in dataclasses.fields(built) if f.name not in kept
    }
    return dataclasses.replace(built, views=tuple(views), problems=(HOSTILE,), **rest)


def test_markup_in_data_stays_text(built: Built) -> None:
    manifest = Manifest(name=HOSTILE, created_at="", commands=(HOSTILE,), harness_version=HOSTILE)
    document = page(hostile(built), {HOSTILE: SVG}, manifest=manifest)
    found = Reader(document)
    assert found.faults == []
    assert sum(tag == "script" for tag, _ in found.tags) == 1  # ours
    assert len(found.of("img")) == 1
    assert not [attributes for _, attributes in found.tags if "onerror" in attributes]
    assert document.count("<script>") == 1
    assert found.text.count('<script>alert("x")</script>&amp;') > 30  # it is there, as what it is: text


def test_a_figure_cannot_leave_its_attribute(built: Built) -> None:
    evil = SVG.replace("<text>", "<text>'><script>alert(1)</script> \" &quot; # %27 ")
    found = Reader(page(built, {"evil": evil}))
    assert found.faults == []
    assert found.of("script") == [{}]
    assert "%27%3E%3Cscript" in found.of("img")[0]["src"]


def test_texts_that_differ_in_numbers_alone_are_one() -> None:
    caps = ["stopped at 6 s with ±9.62%, from 23 blocks", "stopped at 6 s with ±71.64%, from 9 blocks"]
    assert merged(caps) == "stopped at 6 s with ±9.62 to 71.64%, from 9 to 23 blocks"
    assert merged(["aten::conv2d × 2"]) == "aten::conv2d × 2"
    assert skeleton("conv2d × 2, fp32, 3x3") == "conv2d × #, fp32, 3x3"  # digits inside words are no numbers
    with pytest.raises(ValueError, match="numbers alone"):
        merged(["conv2d × 2", "conv3d × 2"])
