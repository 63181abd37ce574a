"""Injected fault: a number outside the range of its unit or field is refused in one line, in whichever file."""

import csv
import dataclasses
import io
import json
import math
import shutil

import pytest

from results.records.cell import Ceiling, Sample, Telemetry
from results.records.counts import FlopCount
from results.records.rows import header
from results.store import layout
from results.store.layout import read_records
from results.store.manifest import MANIFEST, read_manifest
from results.store.reading import read_run
from tests.support.made_up.checksums import recompute_checksums
from tests.support.made_up.small_run import rebuilt, small_run

SAMPLE = Sample(part="measure", steps=1, start_s=0.0, wall_s=0.1)
CEILING = Ceiling(session="s", device="cpu", precision="fp32", unit="fp32", operation="matmul", shape="")
COUNT = FlopCount(counter="c", workload="w", batch_size=1, phase="forward")
POLL = Telemetry(cell_id="c", attempt=1, time_s=0.0)


@pytest.mark.parametrize(
    ("row", "field", "value", "said"),
    [
        (SAMPLE, "wall_s", -1.0, "expected a finite number of at least 0, got -1.0"),
        (SAMPLE, "wall_s", math.inf, "expected a finite number of at least 0, got inf"),
        (SAMPLE, "wall_s", math.nan, "expected a finite number of at least 0, got nan"),
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
    names = header(type(row))
    assert layout.read_block(type(row), names, layout.encode([row])) == [row]
    with pytest.raises(ValueError, match=f"column {field}: ") as raised:
        layout.read_block(type(row), names, layout.encode([dataclasses.replace(row, **{field: value})]))
    assert said in str(raised.value)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return small_run(tmp_path_factory.mktemp("ranges") / "run", cells=2)


@pytest.fixture
def run(source, tmp_path):
    return shutil.copytree(source, tmp_path / "run")


def change(run, file, column, value):
    """One field of the first row, with checksums anew, as somebody does who knows how."""
    top, first, *rest = (run / file).read_bytes().split(b"\n")
    (names,), (fields,) = layout.decode([top]), layout.decode([first])
    fields[names.index(column)] = value
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    (run / file).write_bytes(b"\n".join([top, text.getvalue().encode(), *rest]))
    recompute_checksums(run)


@pytest.mark.parametrize(("file", "column"), [("samples.csv", "wall_s"), ("flop_counts.csv", "flop")])
def test_an_attempt_with_a_row_outside_is_left_out_alone(run, file, column):
    change(run, file, column, "-1")
    data = read_run(run)
    assert len(data.runs) == 1
    (problem,) = data.problems
    assert f"left out: {file}: column {column}: expected a finite number of at least 0, got -1" in problem


@pytest.mark.parametrize(("file", "column"), [("runs.csv", "batch_size"), ("ceilings.csv", "flop_per_s")])
def test_a_row_outside_is_left_out_with_its_line(run, file, column):
    change(run, file, column, "0")
    start = f"{file}, line 2: left out, column {column}: "
    assert sum(problem.startswith(start) for problem in read_run(run).problems) == 1


def test_a_number_that_every_row_has_may_not_be_empty(tmp_path):
    """A block without steps was a TypeError in what is derived from it; a time that a device does not offer is none."""
    head = "cell_id,attempt,index,part,phase,steps,start_s,wall_s,device_s,sync_wait_s,work\n"
    (tmp_path / "samples.csv").write_text(f"{head}c,1,0,measure,,3,1.0,0.5,,,\n")
    assert read_records(tmp_path / "samples.csv", Sample)[0].device_s is None
    (tmp_path / "samples.csv").write_text(f"{head}c,1,0,measure,,,1.0,0.5,,,\n")
    with pytest.raises(ValueError, match="column steps: an empty field where int was expected"):
        read_records(tmp_path / "samples.csv", Sample)


def test_a_cell_of_no_known_precision_is_left_out_and_named(tmp_path):
    """Such a word was a KeyError in the report. The other cell is derived as before."""
    run = small_run(tmp_path / "run")
    lines = (run / "runs.csv").read_text().splitlines()
    lines[1] = lines[1].replace(",fp32,", ",fp33,", 1)
    (run / "runs.csv").write_text("\n".join(lines) + "\n")
    recompute_checksums(run)
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


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("wall_s", "-1", "wall_s: expected"),
        ("wall_s", "", "wall_s: an empty field where float was expected"),
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
    with pytest.raises(ValueError, match=rf"^{FILE}: .*{said}"):
        layout.records(FILE, Sample, NAMES, block(*lines))


def test_a_peak_below_zero_is_refused(run):
    document = json.loads((run / MANIFEST).read_text())
    document["options"]["peak_tflops"] = -1
    (run / MANIFEST).write_text(json.dumps(document))
    recompute_checksums(run)
    with pytest.raises(ValueError, match="peak_tflops: expected a finite number above 0, got -1"):
        read_manifest(run)
