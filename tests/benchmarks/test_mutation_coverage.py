"""Planted faults: what each kind makes of a piece of code, where none is planted, and that the choice is even."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from benchmarks import mutation_coverage
from benchmarks.mutation_coverage import Row, chosen, compare
from benchmarks.mutations import planted_faults
from benchmarks.mutations.known_faults import KnownFault, known_faults
from benchmarks.mutations.planted_faults import planted, sites_of
from benchmarks.mutations.selection import imports_of, stages_for

ROOT = Path(mutation_coverage.__file__).parents[1]


def faults(source: str) -> list[tuple[str, str]]:
    """(kind, the spoiled source) of each site."""
    return [(site.kind, planted(source, site)) for site in sites_of("a/b.py", source)]


@pytest.mark.parametrize(
    ("code", "kind", "spoiled"),
    [
        ("x = a + b", "operator", "x = (a - b)"),
        ("x //= b", "operator", "x *= b"),
        ("x = a and b", "logic", "x = (a or b)"),
        ("x = f(3)", "constant", "x = f(6)"),
        ("x = f(0)", "constant", "x = f(1)"),
        ("x = f(0.5)", "constant", "x = f(1.0)"),
        ("x = f(True)", "constant", "x = f(False)"),
        ("x = a < b", "comparison", "x = (a >= b)"),
        ("x = a in b", "comparison", "x = (a not in b)"),
        ("x = R(one=a, two=b)", "order", "x = (R(one=b, two=a))"),
        ("record.close()", "statement", "pass"),
        ("raise ValueError", "statement", "pass"),
    ],
)
def test_a_fault_is_in_its_place_and_all_else_to_the_letter(code: str, kind: str, spoiled: str) -> None:
    source = f"def f(é: int = 3) -> int:  # ü\n    {code}  # why\n"
    assert (kind, source.replace(code, spoiled)) in faults(source)


def test_values_of_a_returned_tuple_change_places() -> None:
    assert faults("def f():\n    return a, b, c\n") == [("order", "def f():\n    return (b, a, c)\n")]


@pytest.mark.parametrize(
    "code",
    [
        "def f(x: Literal[3]) -> Literal[3]:\n    return x\n",
        "@cache(maxsize=3)\ndef f():\n    return x\n",
        "def f():\n    return f'{3 + x}'\n",
        "def f():\n    return 'a' + b\n",
        "def f():\n    return R(one=a, two=a)\n",
        "def f():\n    return a, a\n",
    ],
    ids=["annotation", "decorator", "formatted string", "joined text", "equal keywords", "equal values"],
)
def test_no_fault_where_it_would_be_none_or_has_no_place(code: str) -> None:
    assert faults(code) == []


def test_every_fault_of_a_real_module_can_be_read_and_is_another_program() -> None:
    source = Path(mutation_coverage.__file__).read_text()
    found = faults(source)
    assert {kind for kind, _ in found} == set(planted_faults.KINDS)
    clean = ast.dump(ast.parse(source))
    assert all(ast.dump(ast.parse(spoiled)) != clean for _, spoiled in found[::5])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for package, functions in {"results": 9, "analysis": 2}.items():
        (tmp_path / package).mkdir()
        for name in "ab":
            lines = [f"def f{i}(x):\n    return x + {i + 1} < 9\n" for i in range(functions)]
            (tmp_path / package / f"{name}.py").write_text("\n".join(lines))
    return tmp_path


def test_the_choice_is_even_and_the_same_again(tree: Path) -> None:
    groups = {package: mutation_coverage.modules_of(tree, package) for package in ("results", "analysis")}
    assert groups["results"] == ["results/a.py", "results/b.py"]
    rows = chosen(tree, groups, 12, seed=1)
    assert chosen(tree, groups, 12, seed=1) == rows != chosen(tree, groups, 12, seed=2)
    assert [row.package for row in rows] == ["analysis", "results"] * 6, "in turns"
    assert set(Counter(row.module for row in rows).values()) == {3}
    assert len({row.key for row in rows}) == 12
    # each function has `<`, `+` and two constants: four functions of `analysis` have 16 sites, and no more are chosen
    assert len(chosen(tree, {"analysis": groups["analysis"]}, 99, seed=1)) == 16


def test_tests_of_a_module_are_its_mirror_then_its_folder_then_all_that_import_it() -> None:
    seen = {"measure/fake/mode.py", "measure/fake/plans.py"}
    importers = {
        "tests/analysis/test_all.py": {*seen, "measure/fake/a.py"},
        "tests/analysis/test_other.py": seen,
        "tests/measure/fake/test_forms.py": seen,
        "tests/measure/fake/test_mode.py": {"measure/fake/mode.py"},
        "tests/measure/test_apart.py": set[str](),
    }
    assert stages_for("measure/fake/mode.py", importers) == [
        ["tests/measure/fake/test_mode.py"],
        ["tests/measure/fake/test_forms.py"],
        ["tests/analysis/test_other.py", "tests/analysis/test_all.py"],
    ], "the file that imports less comes first"
    assert stages_for("measure/fake/new/deep.py", importers) == [
        ["tests/measure/fake/test_forms.py", "tests/measure/fake/test_mode.py"]
    ]


def test_tests_that_name_the_spoiled_function_come_first_in_their_file(tmp_path: Path) -> None:
    for file in ("a", "b"):
        (tmp_path / f"test_{file}.py").write_text(
            "import base64\n\ndef test_one():\n    pass\n\ndef test_two():\n    base64.encode\n"
            "\ndef test_three():\n    base64.b64encode\n"
        )
    command = [
        sys.executable,
        "-c",
        RUN.format(repr(["-q", "--collect-only", "--rootdir=.", "test_b.py", "test_a.py"])),
    ]
    said = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    order = ["test_two", "test_one", "test_three"]
    assert said.stdout.splitlines()[:6] == [f"test_{file}.py::{name}" for file in "ba" for name in order], said.stderr


RUN = """
import pytest
from benchmarks.mutations.selection import NamedFirst
pytest.main({}, plugins=[NamedFirst('Encoder.encode')])
"""


@pytest.mark.parametrize("text", ["2/2", "1", "1/", "-1/2", "a/b"])
def test_a_shard_is_below_their_number(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mutation_coverage.shard_of("1/2") == (1, 2)
    with pytest.raises(SystemExit):
        mutation_coverage.options_of(["--out", "x", f"--shard={text}"])
    assert f"expected I/N with I below N, got {text}" in capsys.readouterr().err


def test_a_fault_that_was_judged_again_has_its_last_outcome(tmp_path: Path) -> None:
    for key, outcome in (("a", "survived"), ("b", "killed"), ("a", "killed")):
        mutation_coverage.append_row(tmp_path / "t.csv", Row(key, "results", "results/a.py", outcome=outcome))
    assert {row.key: row.outcome for row in mutation_coverage.read_rows(tmp_path / "t.csv")} == {
        "a": "killed",
        "b": "killed",
    }


def test_imports_through_a_door_and_in_words_count() -> None:
    tree = Path(mutation_coverage.__file__).parents[1]
    found = imports_of(tree, "tests/benchmarks/test_overhead.py")
    assert {"measure/timing/clocks.py", "measure/timing/protocols.py"} <= found
    assert "results/records/cell.py" in imports_of(tree, "tests/results/test_records.py")


def test_two_tables_are_compared_over_what_both_have_judged() -> None:
    def row(key: str, outcome: str) -> Row:
        return Row(key, "results", "results/a.py", outcome=outcome)

    before = [row("a", "killed"), row("b", "survived"), row("c", "killed"), row("d", "timeout")]
    after = [row("a", "killed"), row("b", "killed"), row("c", "survived"), row("d", "killed")]
    lines = compare(before, after).splitlines()
    assert lines[0] == "3 faults judged in both"
    assert lines.count("all        2 killed, 1 survived") == 2
    assert lines[-2:] == ["b: survived → killed", "c: killed → survived"]


@pytest.mark.parametrize("fault", known_faults(), ids=lambda fault: fault.module)
def test_a_known_fault_has_its_place_in_the_code_and_its_tests(fault: KnownFault) -> None:
    """Whether they notice it is judged by the command: a change of the code must not leave a row without a place."""
    source = (ROOT / fault.module).read_text()
    assert ast.dump(ast.parse(fault.planted(source))) != ast.dump(ast.parse(source))
    assert fault.tests.split()
    assert all((ROOT / file).exists() for file in fault.tests.split())


def test_text_that_stands_twice_is_no_place() -> None:
    with pytest.raises(ValueError, match=r"once in a\.py, it is there 2 times"):
        KnownFault("a.py", "x", "y", "").planted("x = x")
