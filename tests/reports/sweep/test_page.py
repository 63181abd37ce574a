"""report.html: every cell and every reason is in it, nothing of the data is markup, and it needs no other file."""

import dataclasses
import re
from typing import Any

import pytest

from cleaning.reconcile.view import Built, View
from reports.shared.html_tables import Names, Table
from reports.shared.numbers import merged, skeleton
from reports.sweep import page_cells, page_counts
from reports.sweep.page import page
from reports.sweep.table import warning_lines
from results.records.counts import Agreement, CleaningLog, ProfileCount
from results.records.samples import Ceiling
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
    return page(built, {"utilization_by_model": SVG, "a_new_one": SVG}, manifest=manifest, ceilings=[ceiling()])


def ceiling(**more: Any) -> Ceiling:
    values: dict[str, Any] = {"sitting": "s1", "device": "cuda", "precision": "fp32", "unit": "fp32"}
    values |= {"operation": "matmul", "shape": "64x64x64", "median_s": 2e-6, "flop_per_s": 52e12}
    return Ceiling(**values | more)


def row_of(table: Table | None, *start: str) -> dict[str, str]:
    """The row that begins with these cells: column → text."""
    assert table is not None
    (row,) = [row for row in table.rows if row[: len(start)] == start]
    return dict(zip(table.columns, row, strict=True))


def names(views: list[View] | tuple[View, ...]) -> Names:
    return Names(views)


# --- the form ------------------------------------------------------------------------------------------------------


def test_tags_are_balanced_and_identifiers_unique(whole: str) -> None:
    found = Reader(whole)
    assert found.faults == []
    ids = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(ids) == len(set(ids)) > 10


def test_every_reference_inside_the_page_has_its_target(whole: str) -> None:
    found = Reader(whole)
    ids = {attributes["id"] for _, attributes in found.tags if "id" in attributes}
    links = {attributes["href"] for attributes in found.of("a")}
    assert {f"#{name}" for name in ids} >= links
    assert len(links) > 8


def test_nothing_is_loaded_from_anywhere(whole: str) -> None:
    found = Reader(whole)
    assert {tag for tag, _ in found.tags} & {"link", "iframe", "object", "embed", "base", "form"} == set()
    for tag, attributes in found.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("srcset", "action", "background")]
        assert all(attributes.get(name, "data:image/svg+xml,").startswith("data:image/svg+xml,") for name in ("src",))
        assert attributes.get("href", "#").startswith("#"), tag


def test_a_reader_without_eyes_finds_language_headings_scopes_and_texts_for_images(whole: str) -> None:
    found = Reader(whole)
    assert found.of("html") == [{"lang": "en"}]
    assert len(found.of("h1")) == 1
    assert all(attributes.get("scope") in ("row", "col") for attributes in found.of("th"))
    assert len(found.of("caption")) == len(found.of("table")) == whole.count("<thead>")
    assert all(len(attributes["alt"]) > 10 for attributes in found.of("img"))
    assert all(attributes.get("tabindex") == "0" for attributes in found.of("div") if attributes["class"] == "scroll")


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


def test_the_table_of_cells_says_what_the_terminal_says(built: Built) -> None:
    table = page_cells.measured_cells(built.views)
    assert table.columns[:4] == ("model", "used", "batch", "precision")  # a telephone shows two columns
    row = row_of(table, "resnet18", "5.0 %", "1", "fp32")  # 0.05 + 0.007 · 0 by construction
    assert (row["step ms"], row["±"], row["peak"]) == ("100", "2.0 %", "100 sheet")
    lost = row_of(table, "vgg16", "–", "128", "fp32")
    assert (lost["step ms"], lost["why not more"]) == ("–", "out of memory")


def test_an_interval_without_an_upper_end_says_so() -> None:
    """The interval of the time reaches zero: no utilization is too high. Without one a single block was timed."""
    run = made_up_page.run_of("alexnet", 1, "fp32")
    open_end = made_up_page.fraction(run, "exact", "flopledger", "ceiling", 0.5, utilization_high_ratio=None)
    none = dataclasses.replace(open_end, method="batch", utilization_low_ratio=None)
    views = [View(run, (open_end, none))]
    row = row_of(page_cells.methods(views, names(views)), "alexnet")
    assert (row["exact"], row["batch"]) == ("50.0 %\n49.0 or more", "50.0 %")


def test_counters_are_told_by_their_ratio_and_by_how_far_they_are_off() -> None:
    def row(counter: str, batch: int, off: int, **more: Any) -> Agreement:
        values: dict[str, Any] = {"cell_id": f"c{batch}", "attempt": 1, "model": "resnet18", "batch_size": batch}
        values |= {"counter": counter, "phase": "forward", "exact_flop": 10**9, "difference_flop": off}
        return Agreement(**{**values, "ratio": 1 + off / 10**9, **more})

    rows = [row("own", 1, 0), row("own", 64, 0), row("near", 1, 3), row("far", 1, -(10**8)), row("far", 64, 2 * 10**8)]
    none = {"ratio": None, "difference_flop": None, "status": "timeout", "reason": "took more than 300 s"}
    rows += [row("lost", 1, 0, **none)]
    found = row_of(page_counts.agreement(rows, "forward"), "resnet18")
    assert found == {
        "model": "resnet18",
        "own": "1",
        "near": "1.000\n+3.00 FLOP at batch 1",
        "far": "0.9000 to 1.200\n+200 MFLOP at batch 64",
    }
    assert page_counts.agreement(rows, "backward") is None
    gaps = {f"aten::c{number}": number for number in range(6)}
    rows += [row("blind", 1, -9, not_understood=gaps), row("note", 1, -9, reason="note: b", not_understood={"sort": 1})]
    table = page_counts.disagreement([*rows, row("own", 2, 0, not_understood=gaps)])
    assert table is not None
    assert {line[0]: line[2:4] for line in table.rows} == {
        "near": ("differs", "it counts too much and does not say where"),
        "far": ("differs", "it counts too much and does not say where"),
        "lost": ("ran past its limit", "took more than 300 s"),
        "blind": ("differs", "it has no rule for aten::c0, aten::c1, aten::c2, aten::c3 and 2 more"),
        "note": ("differs", "note: b; it has no rule for sort"),
    }


def test_profiles_are_told_by_image(built: Built) -> None:
    row = row_of(page_counts.profile_counts(built.profile_counts), "resnet18")
    assert row["forward\nfound"] == "3.60 GFLOP"
    assert row["backward\nfound"] == "2.37 GFLOP"  # 7.1 ÷ 3
    assert row["backward\ncleaned"] == row["backward\nexact"] == "7.10 GFLOP"
    assert (row["products"], row["filled"]) == ("20 + 20", "0 + 20")
    view = built.views[0]
    gap = ProfileCount(
        **{name: getattr(view.run, name) for name in ("cell_id", "attempt", "model", "batch_size", "precision")},
        device="cuda",
        source="torch_profiler",
        work="one",
        items=1,
        phase="forward",
        status="unavailable",
        reason="no profile of one was recorded",
    )
    assert page_counts.profile_counts([gap]) is None
    why = row_of(page_counts.missing_profiles([gap], names(built.views)), "one")
    assert (why["reason"], why["cells"]) == ("no profile of one was recorded", "resnet18 b1 fp32")


def test_a_step_with_many_reasons_names_the_commonest_and_adds_up_the_rest() -> None:
    shared: dict[str, Any] = {"step": "s", "file": "f", "cell_id": "c", "attempt": 1, "subject": "x", "field": "flop"}
    log = [
        CleaningLog(**shared, before="", after="1", reason=f"reason {chr(65 + number)}")
        for number in range(20)
        for _ in range(number + 1)
    ]
    table = page_counts.cleaning(log)
    assert table is not None
    assert table.rows[0][2:] == ("reason T", "1", "20", "+20.0 FLOP")
    assert table.rows[-1][2:] == ("8 other reasons, each rarer", "1", "36", "+36.0 FLOP")  # 1 + 2 + … + 8
    assert sum(int(row[4]) for row in table.rows) == len(log)


def test_texts_that_differ_in_numbers_alone_are_one() -> None:
    caps = ["stopped at 6 s with ±9.62%, from 23 blocks", "stopped at 6 s with ±71.64%, from 9 blocks"]
    assert merged(caps) == "stopped at 6 s with ±9.62 to 71.64%, from 9 to 23 blocks"
    assert merged(["aten::conv2d × 2"]) == "aten::conv2d × 2"
    assert skeleton("conv2d × 2, fp32, 3x3") == "conv2d × #, fp32, 3x3"  # digits inside words are no numbers
    with pytest.raises(ValueError, match="numbers alone"):
        merged(["conv2d × 2", "conv3d × 2"])


def test_a_method_with_many_sources_has_one_column_and_a_table_of_its_own(built: Built) -> None:
    assert page_cells.theories(built.views, names(built.views)) is None  # two counters fit beside each other
    run = made_up_page.run_of("vgg11", 8, "fp32")
    sources = {"a": 0.40, "b": 0.40, "c": 0.41, "d": 0.5}
    rows = [made_up_page.fraction(run, "theory", source, "datasheet", ratio) for source, ratio in sources.items()]
    rows += [made_up_page.fraction(run, "exact", "flopledger", "datasheet", 0.39)]
    views = [View(run, tuple(rows))]
    row = row_of(page_cells.methods(views, names(views)), "vgg11")
    assert row["theory\n4 counters"] == "40.0 to 50.0 %"
    assert row["exact"] == "39.0 %\n38.2 to 39.8"
    apart = row_of(page_cells.theories(views, names(views)), "vgg11")
    assert [apart[f"theory\n{source}"][:4] for source in sources] == ["40.0", "40.0", "41.0", "50.0"]
    assert "exact" not in apart


# --- data that is no friend ----------------------------------------------------------------------------------------


def hostile(built: Built) -> Built:
    """The same with markup in every text that comes from data."""

    def poisoned(record: Any) -> Any:
        keep = {"cell_id", "status", "denominator", "device", "sitting", "precision", "level", "state", "phase", "work"}
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
    kept = {"cleaned", "views", "utilization", "problems"}
    rest = {
        f.name: tuple(map(poisoned, getattr(built, f.name))) for f in dataclasses.fields(built) if f.name not in kept
    }
    cleaned = dataclasses.replace(built.cleaned, log=tuple(map(poisoned, built.cleaned.log)))
    return dataclasses.replace(built, views=tuple(views), cleaned=cleaned, problems=(HOSTILE,), **rest)


def test_markup_in_data_stays_text(built: Built) -> None:
    manifest = Manifest(name=HOSTILE, created_at="", commands=(HOSTILE,), harness_version=HOSTILE)
    document = page(hostile(built), {HOSTILE: SVG}, manifest=manifest, ceilings=[ceiling(shape=HOSTILE)])
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
