"""Definition: which faults are put into a piece of code, by kind, where none is, and which tests judge a module."""

import ast
from pathlib import Path

import pytest

from benchmarks import mutation_coverage
from benchmarks.mutations import planted_faults
from benchmarks.mutations.known_faults import KnownFault, known_faults
from benchmarks.mutations.planted_faults import planted, sites_of
from benchmarks.mutations.selection import stages_for

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


@pytest.mark.parametrize("fault", known_faults(), ids=lambda fault: fault.module)
def test_a_known_fault_has_its_place_in_the_code_and_its_tests(fault: KnownFault) -> None:
    """Whether they notice it is judged by the command: a change of the code must not leave a row without a place."""
    source = (ROOT / fault.module).read_text()
    assert ast.dump(ast.parse(fault.planted(source))) != ast.dump(ast.parse(source))
    assert fault.tests.split()
    assert all((ROOT / file).exists() for file in fault.tests.split())
