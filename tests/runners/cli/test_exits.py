"""How a command ends: the exit code and the one line for each thing it may raise; the files it derives."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from results.errors import StoreFault
from runners.cli import exits, output
from runners.cli.exits import LONGEST_LINE, Mistake, guarded

ROOT = Path(__file__).parents[3]


def raising(fault: BaseException) -> Callable[[], int]:
    def run() -> int:
        raise fault

    return run


def test_what_runs_through_gives_its_own_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert [guarded(lambda code=code: code) for code in (0, 1, 3)] == [0, 1, 3]
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("debug", [None, False, True])
@pytest.mark.parametrize(
    ("fault", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (StoreFault("x could not\nbe written"), 3, "error: x could not be written\n"),
    ],
)
def test_the_code_and_the_line_of_a_fault(
    fault: BaseException, code: int, line: str, debug: bool | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(raising(fault), debug) == code
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize("debug", [None, False, True])
def test_a_mistake_exits_as_the_parser_does(debug: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        guarded(raising(Mistake("expected a,\n got b")), debug)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.endswith("error: expected a, got b\n")
    assert ("Traceback" in err) is (debug is True)


def test_what_nobody_foresaw_is_a_line_where_debug_could_say_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(raising(LookupError("not\nhere")), False, "a.json: ") == 1
    assert capsys.readouterr().err == "error: a.json: LookupError: not here (--debug shows where)\n"
    for debug in (None, True):  # no option to point to, or it was given
        with pytest.raises(LookupError):
            guarded(raising(LookupError()), debug)


@pytest.mark.parametrize("debug", [None, False, True])
def test_a_closed_pipe_is_for_the_outermost_edge(debug: bool | None) -> None:
    with pytest.raises(BrokenPipeError):
        guarded(raising(BrokenPipeError()), debug)


def test_a_reader_that_has_gone_is_141_and_no_traceback() -> None:
    code = "import sys; from runners.cli.exits import exit_code; sys.exit(exit_code(lambda: print('x' * 9) or 0))"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()  # before it writes: it starts an interpreter first
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait(timeout=60)) == (b"", 141)
    process.stderr.close()


@pytest.mark.parametrize("name", [*exits.WITHOUT_TORCH, *exits.WITH_TORCH])
def test_a_requirement_that_is_missing_is_one_line_that_says_what_to_do(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = ModuleNotFoundError(f"No module named '{name}'")
    said = f"error: {name} is not installed: python -m pip install -r requirements.txt"
    assert exits.exit_code(raising(fault)) == 1
    assert guarded(raising(fault), False) == 1
    with pytest.raises(SystemExit):
        guarded(raising(Mistake(f"resnet18: ModuleNotFoundError: No module named '{name}.nn'")))
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(";")[0] for line in err.splitlines()] == 3 * [said]
    assert ("requirements-report.txt" in err) == (name in exits.WITHOUT_TORCH)


def test_modules_by_requirements_are_those_of_the_files() -> None:
    imported = {"nvidia-ml-py": "pynvml"}
    in_both = {"sympy", "argcomplete"}
    for file, modules in (("report", exits.WITHOUT_TORCH), ("measure", exits.WITH_TORCH)):
        lines = (ROOT / f"requirements-{file}.txt").read_text(encoding="utf-8").splitlines()
        named = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines if line]
        wanted = {imported.get(name, name) for name in named} - (in_both if file == "measure" else set())
        assert set(modules) == wanted


def test_a_module_of_the_callers_own_is_told_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError):
        exits.exit_code(raising(ModuleNotFoundError("No module named 'mine'")))


def test_codes_are_those_that_the_documents_name() -> None:
    assert (exits.FAILED, exits.MISTAKE, exits.UNWRITABLE, exits.INTERRUPTED, exits.TERMINATED) == (1, 2, 3, 130, 143)


def test_an_equal_file_is_left_alone_and_another_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.csv"
    output.put(path, "x\n")
    before = path.stat()
    output.put(path, b"x\n")
    after = path.stat()  # reading it may change the time of access
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )
    output.put(path, "y\n")
    assert path.read_bytes() == b"y\n"
    assert path.stat().st_ino != before.st_ino  # another file took its name at once
    assert [entry.name for entry in path.parent.iterdir()] == ["c.csv"]


def test_a_file_that_cannot_be_written_is_a_store_fault(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").touch()
    for path in (tmp_path / "taken", tmp_path / "file" / "below"):
        with pytest.raises(StoreFault, match=r"(taken|below) could not be written: .*; the rest stays$"):
            output.put(path, "x", "; the rest stays")


def test_an_error_that_quotes_megabytes_stays_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What is left out is what is more than fits."""
    name = "n" * 1_000_000

    def run() -> int:
        raise Mistake(f"unknown name: {name}, say")

    with pytest.raises(SystemExit):
        guarded(run)
    said = capsys.readouterr().err
    assert said.startswith("error: unknown name: nnn")
    assert said.endswith("nnn, say\n")
    assert f" … {len('unknown name: ') + 1_000_000 + len(', say') - LONGEST_LINE} characters … " in said
    assert len(said) < LONGEST_LINE + 100


@pytest.mark.parametrize(
    ("argv", "then", "code", "said"),
    [
        ("-m", "", 130, ""),
        ("-m", "signal.signal(signal.SIGINT, signal.SIG_IGN); import importlib; importlib.reload(runners)", 0, ""),
        ("-c", "", -2, "KeyboardInterrupt"),
        ("-m", "from runners.cli.exits import exit_code; exit_code(lambda: 0)", -2, "KeyboardInterrupt"),
        ("-m", "from runners.cli.exits import exit_code; exit(exit_code(lambda: signal.raise_signal(2)))", 130, ""),
    ],
)
def test_an_interrupt_while_a_command_is_imported_ends_it_without_a_traceback(argv, then, code, said):
    """`python -m` has this argv while it looks for a command; who imports a library keeps the handler, and a command
    has Python's own once it has begun."""
    begin = f"import os, signal, sys; sys.argv = [{argv!r}]\nimport runners"
    lines = f"{begin}\n{then}\nos.kill(os.getpid(), signal.SIGINT)"
    done = subprocess.run([sys.executable, "-c", lines], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert bool(done.stderr) == bool(said)
