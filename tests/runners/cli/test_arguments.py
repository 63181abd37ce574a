"""Command, injected fault: a mistake is one line with the nearest name and exit code 2; help and completion."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runners.__main__ import COMMANDS
from runners.cli.arguments import Parser, names, number, sizes

ROOT = Path(__file__).parents[3]


def parser() -> Parser:
    made = Parser(prog="x")
    made.add_argument("--format", choices=("table", "csv", "json"))
    made.add_argument("--batch-sizes", type=number(int, 1))
    made.add_argument("--size", type=sizes)
    made.add_argument("--share", type=number(float, 0, 1))
    made.add_argument("--models", type=names("model", ("resnet18", "resnet50")))
    return made


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--format", "xml"], "error: argument --format: unknown value: expected table, csv or json, got 'xml'"),
        (
            ["--fromat", "csv"],
            "error: unknown argument: expected -h, --help, --format, --batch-sizes, --size, --share or --models, "
            "got '--fromat', nearest --format",
        ),
        (
            ["--form=csv"],  # no abbreviations: a later option would change what they mean
            "error: unknown argument: expected -h, --help, --format, --batch-sizes, --size, --share or --models, "
            "got '--form', nearest --format",
        ),
        (["--format"], "error: argument --format: expected one argument"),
        (["--batch-sizes", "0"], "error: argument --batch-sizes: expected a whole number of at least 1, got '0'"),
        (["--batch-sizes", "4.5"], "error: argument --batch-sizes: expected a whole number of at least 1, got '4.5'"),
        (["--size", "a=1,a=2"], "error: argument --size: expected NAME=N,NAME=N, each name once, got 'a=1,a=2'"),
        (["--size", "a b=1"], "error: argument --size: expected NAME=N,NAME=N, each name once, got 'a b=1'"),
        (["--size", "a=1,"], "error: argument --size: expected NAME=N,NAME=N, each name once, got 'a=1,'"),
        (["--size", "a=1.5"], "error: argument --size: a: expected a whole number of at least 1, got '1.5'"),
        (["--share", "nan"], "error: argument --share: expected a number from 0 to 1, got 'nan'"),
        (["--share", "1.1"], "error: argument --share: expected a number from 0 to 1, got '1.1'"),
        (
            ["--models", "resnet18,resnet5O"],
            "error: argument --models: unknown model: expected resnet18 or resnet50, got 'resnet5O', "
            "nearest resnet50 or resnet18",
        ),
        (
            ["--models", "resnet18,,vgg11"],
            "error: argument --models: expected model names separated by commas, got 'resnet18,,vgg11'",
        ),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(arguments)
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err) == (2, "", line + "\n")


def listed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "runners", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60, check=False)


def test_the_list_of_commands_and_the_nearest_of_them() -> None:
    done = listed()
    assert done.returncode == 0
    assert "doctor" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    unknown = listed("docter")
    assert unknown.returncode == 2
    assert unknown.stderr.endswith("got 'docter', nearest doctor\n")


HELP = """
import runpy, sys
name, sys.argv = sys.argv[1], [sys.argv[1], "--help"]
try:
    runpy.run_module(f"runners.{name}", run_name="__main__")
except SystemExit as left:
    assert left.code == 0
libraries = {"torch", "numpy", "pandas", "matplotlib", "seaborn", "sympy", "scipy", "rich"}
print(sorted(libraries & set(sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_help_imports_nothing_heavy(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", HELP, name], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.startswith("usage: ")
    assert done.stderr == "[]\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("flopledger swe", {"sweep"}),
        ("flopledger sweep --prec", {"--precisions"}),
        ("flopledger sweep --suite fathom-", {"fathom-small"}),
        ("flopledger report --format ", {"table", "text", "markdown", "csv", "json"}),
    ],
)
def test_a_shell_is_told_how_a_line_goes_on(line: str, expected: set[str], tmp_path: Path) -> None:
    """As bash asks: argcomplete answers in a file where a test wants to read it."""
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "_ARGCOMPLETE_IFS": "\n"}
    answer = {"_ARGCOMPLETE_STDOUT_FILENAME": str(tmp_path / "answer")}
    code = "from runners.__main__ import console; console()"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **asked, **answer}, cwd=ROOT, check=True)
    assert set((tmp_path / "answer").read_text().split()) == expected
