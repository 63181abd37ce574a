"""Definition, injected fault: the exit code and the one line of each exception of a command; files written whole."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from results.errors import StoreFault
from runners.cli import exits, output
from runners.cli.exits import Mistake, guarded

ROOT = Path(__file__).parents[3]


def raising(fault: BaseException) -> Callable[[], int]:
    def run() -> int:
        raise fault

    return run


@pytest.fixture(params=["", "0", "1"])
def debug(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether FLOPLEDGER_DEBUG asks for tracebacks."""
    monkeypatch.setenv("FLOPLEDGER_DEBUG", request.param)
    return bool(request.param == "1")


@pytest.mark.parametrize(
    ("fault", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (StoreFault("x could not\nbe written"), 3, "error: x could not be written\n"),
    ],
)
def test_the_code_and_the_line_of_a_fault(
    fault: BaseException, code: int, line: str, debug: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert guarded(raising(fault)) == code
    assert capsys.readouterr() == ("", line)


def test_a_mistake_exits_as_the_parser_does(debug: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        guarded(raising(Mistake("expected a,\n got b")))
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.endswith("error: expected a, got b\n")
    assert ("Traceback" in err) is debug


def test_what_nobody_foresaw_is_a_line_that_says_how_to_see_more(
    debug: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    fails = raising(LookupError("not\nhere"))
    if debug:
        with pytest.raises(LookupError):
            guarded(fails)
    else:
        assert guarded(fails, "a.json: ") == 1
        line = "error: a.json: LookupError: not here (FLOPLEDGER_DEBUG=1 shows where)\n"
        assert capsys.readouterr().err == line


def test_a_reader_that_has_gone_is_141_and_no_traceback() -> None:
    code = "import sys; from runners.cli.exits import exit_code; sys.exit(exit_code(lambda: print('x' * 9) or 0))"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, env=buffered, stdout=pipe, stderr=pipe)
    assert process.stdout is not None
    process.stdout.close()  # before it writes: it starts an interpreter first
    assert process.stderr is not None
    assert (process.stderr.read(), process.wait(timeout=60)) == (b"", 141)
    process.stderr.close()


@pytest.mark.parametrize("name", [*output.WITHOUT_TORCH, *output.WITH_TORCH])
def test_a_requirement_that_is_missing_is_one_line_that_says_what_to_do(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = ModuleNotFoundError(f"No module named '{name}'")
    said = f"error: {name} is not installed: python -m pip install -r requirements.txt"
    assert exits.exit_code(raising(fault)) == guarded(raising(fault)) == 1
    err = capsys.readouterr().err
    assert [line.partition(";")[0] for line in err.splitlines()] == 2 * [said]
    assert ("requirements-report.txt" in err) == (name in output.WITHOUT_TORCH)


def test_an_equal_file_is_left_alone_and_another_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.csv"
    output.write_file(path, "x\n")
    before = path.stat()
    output.write_file(path, b"x\n")
    assert (path.stat().st_ino, path.stat().st_ctime_ns) == (before.st_ino, before.st_ctime_ns)
    output.write_file(path, "y\n")
    assert path.read_bytes() == b"y\n"
    assert path.stat().st_ino != before.st_ino  # another file took its name at once
    assert [entry.name for entry in path.parent.iterdir()] == ["c.csv"]
