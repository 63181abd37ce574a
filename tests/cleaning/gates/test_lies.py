"""Every lie about a run is caught by a named gate, or stands in lies_uncaught.csv with the reason."""

from __future__ import annotations

import contextlib
import csv
import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from cleaning.gates.evidence import Evidence
from cleaning.gates.gates import GATES, judge, verdicts
from results.records.verdicts import FAIL
from runners.report import command
from runners.report.check import evidence_of
from runners.report.derived import table_differences
from tests.support.lies import lie_matrix, lie_rows, lies
from tests.support.lies.lie_matrix import CLASSES, PAGE, answers, read_classes, read_uncaught, uncaught
from tests.support.lies.lie_proofs import PROOFS
from tests.support.lies.lie_rows import Rows
from tests.support.made_up import made_up_evidence
from tests.support.made_up.seals import reseal_rows

FILES = ("manifest", "sittings", "ceilings", "runs", "samples", "telemetry", "flop_counts", "operations", "storages")
FILES += ("profiles", "self_test", "self_checks")


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    return lie_matrix.gpu(tmp_path_factory.mktemp("gpu") / "run")


@pytest.fixture(scope="module")
def lied(gpu: Rows) -> Callable[[str, str], Evidence]:
    """The evidence of a lie by its gate and name, gathered once."""
    return functools.cache(lambda gate, told: lie_rows.evidence_of(PROOFS[gate][told](gpu)))


def expected(base: str, file: str, scopes: tuple[str, ...]) -> dict[lie_matrix.Place, set[str]]:
    """What no gate catches, of these scopes."""
    told = {place: {word for word in words if word.endswith(scopes)} for place, (words, _) in read_uncaught().items()}
    return {place: words for place, words in told.items() if place[:2] == (base, file) and words}


def missed(base: str, rows: Rows, file: str, scopes: tuple[str, ...]) -> dict[lie_matrix.Place, set[str]]:
    return {place: set(words) for place, words in uncaught(answers(base, rows, (file,), scopes)).items()}


def test_a_run_without_a_lie_fails_no_gate(gpu: Rows) -> None:
    assert lie_rows.failed(gpu) == frozenset()


@pytest.mark.parametrize("file", FILES)
def test_lies_about_one_row_are_caught_or_explained(file: str, gpu: Rows) -> None:
    assert missed("gpu", gpu, file, ("one",)) == expected("gpu", file, ("one",))


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_lies_about_all_rows_are_caught_or_explained(file: str, gpu: Rows) -> None:
    assert missed("gpu", gpu, file, ("all",)) == expected("gpu", file, ("all",))


@pytest.mark.slow
def test_lies_about_a_published_run_are_caught_or_explained() -> None:
    rows = lie_matrix.cpu()
    for file in FILES:
        assert missed("cpu", rows, file, ("one", "all")) == expected("cpu", file, ("one", "all"))


def test_every_lie_that_is_not_caught_has_a_reason() -> None:
    assert [place for place, (_, why) in read_uncaught().items() if not why] == []
    assert set(read_classes().values()) == set(CLASSES)


@pytest.mark.parametrize(("gate", "told"), [(gate, told) for gate, each in PROOFS.items() for told in each])
def test_a_lie_is_caught_by_its_gate(gate: str, told: str, lied: Callable[[str, str], Evidence]) -> None:
    found = {v.gate: v for v in judge(lied(gate, told)) if v.verdict == FAIL}
    assert gate in found
    assert all(found[gate].found.values()), "in words"


def test_a_gate_that_is_taken_out_is_missed(lied: Callable[[str, str], Evidence]) -> None:
    """Each gate is the only one against one of its lies at least."""
    alone = set()
    for gate, told in PROOFS.items():
        rest = [each for each in GATES if each.name != gate]
        for name in told:
            if not any(v.verdict == FAIL for v in verdicts(lied(gate, name), rest)):
                alone.add(gate)
    assert set(PROOFS) == alone


def test_a_derived_table_is_compared_in_every_column() -> None:
    row = {"cell_id": "a", "flop": "12", "ratio": "0.5", "name": "x", "batches": "[1,2]"}
    assert list(table_differences([row], [dict(row)])) == []
    for name, lie in {"flop": "24", "ratio": "0.25", "name": "y", "batches": "[2,4]", "cell_id": "b"}.items():
        assert [words for _, words in table_differences([{**row, name: lie}], [row])] != []
    assert [words for _, words in table_differences([], [row])] == ["0 rows, the raw rows give 1"]
    assert list(table_differences([{**row, "ratio": "0.5000000000001", "old": "1"}], [row])) == [], (
        "rounding, another version"
    )


BAD = ("null", "[]", "{}", "x", "-1", "nan", "1e400", '{"a":null}', '{"a":[1]}', "[null]", "")


@pytest.mark.parametrize("file", ["runs.csv", "sittings.csv", "ceilings.csv"])
def test_no_value_of_a_row_ends_in_a_traceback(
    file: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each column of a row with each of these: a gate fails or the command says in a line why not."""
    path = made_up_evidence.write(
        tmp_path_factory.mktemp("bad") / "run", made=made_up_evidence.parts((("fp32", 8, 0),))
    )
    before = (path / file).read_text(encoding="utf-8")
    head, *rows = list(csv.reader(before.splitlines()))
    for column in range(len(head)):
        bad = BAD[column % 3 :: 3] if head[column] not in ("executed", "warnings", "environment") else BAD
        for text in bad:
            changed = [[*rows[0][:column], text, *rows[0][column + 1 :]], *rows[1:]]
            with (path / file).open("w", encoding="utf-8", newline="") as out:
                csv.writer(out, lineterminator="\n").writerows([head, *changed])
            reseal_rows(path / file)  # so that the value is looked at
            with contextlib.suppress(SystemExit):
                assert command.main([str(path), "--check"]) in (0, 1)
            assert "Traceback" not in capsys.readouterr().err


def test_executed_that_is_null_is_a_gates_failure(gpu: Rows, tmp_path: Path) -> None:
    path = made_up_evidence.write(tmp_path / "run")
    text = (path / "runs.csv").read_text(encoding="utf-8")
    start = text.index('"{""convolution/bfloat16""')
    end = text.index('}"', start) + 2
    (path / "runs.csv").write_text(text[:start] + "null" + text[end:], encoding="utf-8")
    reseal_rows(path / "runs.csv")
    found = {v.gate: v for v in judge(evidence_of(path)) if v.verdict == FAIL}
    assert "executed" in found["committed"].found["run"]
    assert "got 'null'" in found["committed"].found["run"]


def test_the_page_names_every_gate_and_every_field_that_it_knows() -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = list(csv.DictReader(lie_matrix.UNCAUGHT.read_text(encoding="utf-8").splitlines()))
    assert all(f"| `{row['field']}` |" in text and row["why"] in text for row in rows)
    assert "python -m tests.support.lies.lie_matrix --write" in text


def test_a_lie_changes_the_rows_and_leaves_the_others(gpu: Rows) -> None:
    before = repr(gpu)
    lie = next(each for each in lies.lies(gpu, ("runs",)) if each.field == "batch_size" and each.kind == "doubled")
    told = lie.apply()
    changed = [(old, new) for old, new in zip(gpu.runs, told.runs, strict=True) if old != new]
    ((old, new),) = changed[:1]
    assert (new.batch_size, new.cell_id) == (2 * old.batch_size, new.cell.cell_id), "sealed anew"
    assert {row.cell_id for row in told.samples} == {run.cell_id for run in told.runs}
    assert repr(gpu) == before
