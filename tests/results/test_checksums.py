"""Injected fault: a row, header or manifest that was changed, moved or cut is reported, and no such row is used."""

import json
import random
from pathlib import Path

import pytest

from results.errors import Inconsistent
from results.store.store import Store, read_run
from tests.support.made_up.made_up_runs import a_run, ceiling, new_store, rows_of
from tests.support.made_up.small_run import rebuilt, small_run


@pytest.fixture
def path(tmp_path):
    with new_store(tmp_path / "run") as store:
        store.append_ceilings([ceiling(1e12), ceiling(2e12)])
        store.commit(a_run("a"), rows_of("a"))
    with Store.resume(tmp_path / "run") as store:
        store.append_ceilings([ceiling(3e12)])
        store.commit(a_run("b"), rows_of("b"))
    return tmp_path / "run"


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("file", ["runs.csv", "sessions.csv", "ceilings.csv"])
def test_a_header_that_was_changed_costs_every_row(path, file):
    text = (path / file).read_bytes()
    (path / file).write_bytes(text.replace(b"device", b"divice", 1))
    problems = read_run(path).problems
    count = sum(problem.startswith(f"{file}, line ") for problem in problems)
    assert count == len(lines_of(path / file)) - 1


@pytest.mark.parametrize("version", [1, 3])
def test_a_version_that_was_changed_hides_nothing(path, version):
    document = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**document, "schema_version": version}))
    file = path / "ceilings.csv"
    file.write_bytes(file.read_bytes().replace(b"2000000000000.0", b"9000000000000.0"))
    data = read_run(path)
    assert [each.flop_per_s for each in data.ceilings] == [1e12, 3e12]
    assert data.problems[0] == "manifest.json: not as it was written: its checksum does not match"


def test_a_damaged_row_does_not_stop_the_next_session(path):
    file = path / "ceilings.csv"
    file.write_bytes(file.read_bytes().replace(b"3000000000000.0", b"9000000000000.0"))
    with Store.resume(path) as store:
        store.append_ceilings([ceiling(4e12)])
        store.commit(a_run("c"), rows_of("c"))
    data = read_run(path)
    assert [each.flop_per_s for each in data.ceilings] == [1e12, 2e12, 4e12]
    assert [run.cell_id for run in data.runs] == ["a", "b", "c"]


NUMBERS = ("utilization", "step_times", "work_times", "cleaned_operations", "profile_counts", "ratios", "agreement")
EDITS = 120


def edited(data: bytes, chance: random.Random) -> bytes:
    """One bit flipped, all cut off from a byte or a line on, two lines exchanged, or one line doubled."""
    at, lines = chance.randrange(len(data)), data.splitlines(keepends=True)
    first, second = chance.randrange(len(lines)), chance.randrange(len(lines))
    exchanged = {first: lines[second], second: lines[first]}
    return chance.choice(
        (
            data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :],
            data[:at],
            b"".join(lines[:first]),
            b"".join(exchanged.get(number, line) for number, line in enumerate(lines)),
            b"".join([*lines[:first], lines[first], *lines[first:]]),
        )
    )


def outcome(run: Path) -> tuple[str, bool]:
    """The numbers that are rebuilt, and whether a problem is reported; a run that is refused is one."""
    try:
        data = read_run(run)
        if data.problems or data.damaged or not data.runs:
            return "", True
        built = rebuilt(run)
    except (ValueError, Inconsistent, OSError):
        return "", True
    return repr([getattr(built, name) for name in NUMBERS]), bool(built.problems)


def test_no_edit_is_silent(tmp_path: Path) -> None:
    run, chance = small_run(tmp_path / "run", cells=1), random.Random(1)
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock")
    numbers, is_reported = outcome(run)
    assert numbers
    assert not is_reported
    reported = 0
    for _ in range(EDITS):
        path = chance.choice(files)
        whole = path.read_bytes()
        path.write_bytes(edited(whole, chance))
        found, is_reported = outcome(run)
        assert is_reported or found == numbers, path
        path.write_bytes(whole)
        reported += is_reported
    assert reported > 0.6 * EDITS


@pytest.mark.parametrize("order", [[0, 1, 3], [0, 2, 3], [0, 2, 1, 3], [0, 1, 1, 2, 3], [0, 1, 2, 3, 1]])
@pytest.mark.parametrize("file", ["runs.csv", "ceilings.csv"])
def test_rows_gone_doubled_or_moved_are_told(path, order, file):
    lines = lines_of(path / file)
    (path / file).write_bytes(b"".join(lines[at] for at in order if at < len(lines)))
    problems = read_run(path).problems
    cut = file == "runs.csv" and order == [0, 1, 3]  # which has two rows
    assert any(problem.startswith("samples.csv: 3 rows are not" if cut else f"{file}, line") for problem in problems)


def test_a_manifest_that_was_changed_is_told(path):
    document = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**document, "options": {"peak_tflops": 9}}))
    assert read_run(path).problems == ["manifest.json: not as it was written: its checksum does not match"]
