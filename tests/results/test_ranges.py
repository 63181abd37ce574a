"""Every number of every record has a sign and a range by its unit, and a file with another is refused in one line;
records read by column hold what each line does."""

from __future__ import annotations

import csv
import dataclasses
import importlib
import io
import json
import math
import pkgutil
import shutil
import typing
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results import records
from results.records.counts import FlopCount
from results.records.rows import Record, header, kinds_of
from results.records.samples import Ceiling, Sample, Telemetry
from results.store import columns, layout
from results.store.columns import read_records
from results.store.manifest import MANIFEST, read_manifest
from results.store.ranges import check_ranges, range_of
from results.store.reading import read_run
from tests.support.made_up.seals import reseal
from tests.support.made_up.small_run import PUBLISHED, rebuilt, small_run

WITHOUT_NUMBERS = {
    *("attributes", "concrete_inputs", "committed", "environment", "flags_after", "flags_before", "found", "hyper"),
    *("instructions", "preflight", "unprofiled"),
}
"""Fields of anything, whose values are words, or settings of others that may be negative."""


def all_records():
    modules = [
        importlib.import_module(f"results.records.{each.name}") for each in pkgutil.iter_modules(records.__path__)
    ]
    classes = {kind for module in modules for kind in vars(module).values() if isinstance(kind, type)}
    return sorted((kind for kind in classes if issubclass(kind, Record) and kind is not Record), key=repr)


@pytest.mark.parametrize(
    ("text", "known"), [("nan", True), ("NaN", True), ("-nan", False), (" nan", False), ("+NaN", False)]
)
def test_whole_rows_have_no_nan_that_no_writer_wrote(text, known):
    line = f"measure,1,0.0,0.1,{text}\n".encode()
    names = ("part", "steps", "start_s", "wall_s", "device_s")
    assert columns.records("f", Sample, names, [line]) == (SAMPLE,)
    if known:
        return
    with pytest.raises(ValueError, match="device_s: expected a number, got NaN"):
        columns.records("f", Sample, names, [line], whole=True)


@pytest.mark.parametrize("record", all_records(), ids=lambda record: record.__name__)
def test_every_field_of_numbers_has_a_range(record):
    hints = typing.get_type_hints(record)
    for field in dataclasses.fields(record):
        kinds = kinds_of(hints[field.name])
        texts = "str" in str(hints[field.name]) and tuple in kinds
        numbers = bool({int, float, tuple, typing.Any} & {*kinds}) or any(
            isinstance(kind, type) and issubclass(kind, Mapping) for kind in kinds
        )
        if numbers and not texts and field.name not in WITHOUT_NUMBERS:
            assert range_of(record, field.name) is not None, f"{record.__name__}.{field.name} has no range"


SAMPLE = Sample(part="measure", steps=1, start_s=0.0, wall_s=0.1)
CEILING = Ceiling(sitting="s", device="cpu", precision="fp32", unit="fp32", operation="matmul", shape="")
COUNT = FlopCount(counter="c", workload="w", batch_size=1, phase="forward")
POLL = Telemetry(cell_id="c", attempt=1, time_s=0.0)


@pytest.mark.parametrize(
    ("row", "field", "value", "said"),
    [
        (SAMPLE, "wall_s", -1.0, "expected a finite number of at least 0, got -1.0"),
        (SAMPLE, "wall_s", math.inf, "expected a finite number of at least 0, got inf"),
        (SAMPLE, "device_s", math.nan, "expected a finite number of at least 0, got nan"),
        (SAMPLE, "steps", 0, "expected a finite number of at least 1, got 0"),
        (CEILING, "flop_per_s", 0.0, "expected a finite number above 0, got 0.0"),
        (CEILING, "moved_bytes", -8, "expected a finite number of at least 0, got -8"),
        (COUNT, "batch_size", 0, "expected a finite number of at least 1, got 0"),
        (COUNT, "flop", -240, "expected a finite number of at least 0, got -240"),
        (COUNT, "ignored", {"aten.add": -1}, "expected a finite number of at least 0, got -1"),
        (POLL, "temperature_c", -300.0, "expected a finite number of at least -273.15, got -300.0"),
    ],
)
def test_what_is_outside_is_refused(row, field, value, said):
    check_ranges(row)
    with pytest.raises(ValueError, match=f"column {field}: ") as raised:
        check_ranges(dataclasses.replace(row, **{field: value}))
    assert said in str(raised.value)


def test_a_number_of_thousands_of_digits_is_described():
    """10^5000 has 5000 · log2(10) = 16609.6 binary digits."""
    with pytest.raises(ValueError, match="got an integer of 16610 binary digits"):
        check_ranges(dataclasses.replace(COUNT, flop=-(10**5000)))


def test_the_published_run_is_within_all_ranges():
    assert read_run(PUBLISHED).problems == []


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("ranges") / "run", cells=2)


@pytest.fixture
def run(source, tmp_path):
    return shutil.copytree(source, tmp_path / "run")


def change(run, file, column, value):
    """One field of the first row, sealed again as somebody does who knows how."""
    top, first, *rest = (run / file).read_bytes().split(b"\n")
    (names,), (fields,) = layout.decode([top]), layout.decode([first])
    fields[names.index(column)] = value
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    (run / file).write_bytes(b"\n".join([top, text.getvalue().encode(), *rest]))
    reseal(run)


@pytest.mark.parametrize(("file", "column"), [("samples.csv", "wall_s"), ("flop_counts.csv", "flop")])
def test_an_attempt_with_a_row_outside_is_left_out_alone(run, file, column):
    change(run, file, column, "-1")
    data = read_run(run)
    assert len(data.runs) == 1
    (problem,) = data.problems
    assert f"left out: {file}, column {column}: expected a finite number of at least 0, got -1" in problem


@pytest.mark.parametrize(("file", "column"), [("runs.csv", "batch_size"), ("ceilings.csv", "flop_per_s")])
def test_a_row_outside_is_left_out_with_its_line(run, file, column):
    change(run, file, column, "0")
    start = f"{file}, line 2: left out, column {column}: "
    assert sum(problem.startswith(start) for problem in read_run(run).problems) == 1


def test_a_peak_below_zero_is_refused(run):
    document = json.loads((run / MANIFEST).read_text())
    document["options"]["peak_tflops"] = -1
    (run / MANIFEST).write_text(json.dumps(document))
    reseal(run)
    with pytest.raises(ValueError, match="peak_tflops: expected a finite number above 0, got -1"):
        read_manifest(run)


def test_a_number_that_every_row_has_may_not_be_empty(tmp_path):
    """A block without steps was a TypeError in what is derived from it; a time that a device does not offer is none."""
    head = "cell_id,attempt,index,part,phase,steps,start_s,wall_s,device_s,sync_wait_s,work\n"
    (tmp_path / "samples.csv").write_text(f"{head}c,1,0,measure,,3,1.0,0.5,,,\n")
    assert read_records(tmp_path / "samples.csv", Sample)[0].device_s is None
    (tmp_path / "samples.csv").write_text(f"{head}c,1,0,measure,,,1.0,0.5,,,\n")
    with pytest.raises(ValueError, match="steps: expected a number, got nothing"):
        read_records(tmp_path / "samples.csv", Sample)


def test_a_cell_of_no_known_precision_is_left_out_and_named(tmp_path):
    """Such a word was a KeyError in the report. The other cell is derived as before."""
    run = small_run(tmp_path / "run")
    lines = (run / "runs.csv").read_text().splitlines()
    lines[1] = lines[1].replace(",fp32,", ",fp33,", 1)
    (run / "runs.csv").write_text("\n".join(lines) + "\n")
    reseal(run)
    built = rebuilt(run)
    assert len(built.views) == 1
    (problem,) = [line for line in built.problems if "was left out: expected a precision" in line]
    assert "got 'fp33'" in problem


FILE = "samples.csv"
NAMES = header(Sample)
WHOLE = {"cell_id": "a", "attempt": "1", "index": "0", "part": "measure", "steps": "9", "start_s": "0.5", "wall_s": "2"}


def line(**texts: str) -> str:
    return ",".join({**dict.fromkeys(NAMES, ""), **WHOLE, **texts}[name] for name in NAMES)


def block(*lines: str) -> bytes:
    return "".join(f"{each}\n" for each in lines).encode()


LINES = st.fixed_dictionaries(
    {
        "index": st.sampled_from(["0", "1", "12"]),
        "part": st.sampled_from(["measure", "warmup", "a b"]),
        "wall_s": st.sampled_from(["0", "1", "1.0", "1e-3"]),
        "device_s": st.sampled_from(["", "", "0.25", "3", "nan", " nan"]),
        "flop": st.sampled_from(["", "7", str(2**70), "1" * 400]),
        "work": st.sampled_from(["", "one"]),
    }
)


@pytest.mark.parametrize("small", [0, 4096])
@given(blocks=st.lists(st.lists(LINES, min_size=1, max_size=4), max_size=4))
def test_columns_hold_what_each_line_does(blocks: list[list[dict[str, str]]], small: int) -> None:
    """Blocks are attempts, read each by itself or together, with numbers anew for each or kept; a column may be of one
    text, of numbers, of gaps and of texts that are no finite number."""
    lines = [[line(attempt=str(place), **each) for each in texts] for place, texts in enumerate(blocks, start=1)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_SMALL", small)
        patch.setattr(columns, "_KEPT", small)
        found = columns.records(FILE, Sample, NAMES, [block(*each) for each in lines])
    split = [dict(zip(NAMES, each.split(","), strict=True)) for attempt in lines for each in attempt]
    expected = [Sample.from_row({name: text.replace(" nan", "nan") for name, text in each.items()}) for each in split]
    assert list(found) == expected
    assert [list(map(type, vars(row).values())) for row in found] == [
        list(map(type, vars(row).values())) for row in expected
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("wall_s", "-1", "wall_s: expected"),
        ("wall_s", "", "wall_s: expected a number, got nothing"),
        ("wall_s", "nan", "wall_s"),
        ("wall_s", "x", "wall_s: expected float"),
        ("index", "1.5", "index: expected int"),
        ("steps", "0", "steps: expected"),
    ],
)
def test_one_number_among_many_that_its_field_cannot_hold_is_told(name: str, text: str, said: str) -> None:
    given = [dict.fromkeys(("index", "steps", "start_s", "wall_s"), str(place + 1)) for place in range(9)]
    given[4][name] = text
    lines = [line(**each) for each in given]
    with pytest.raises(ValueError, match=rf"^{FILE}, .*{said}"):
        columns.records(FILE, Sample, NAMES, [block(*lines)])
