"""Outputs that are closed, full, or of few letters: each in a process of its own, as a shell starts it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from results.printable import printable

ROOT = Path(__file__).parents[3]
CODE = "import sys\nfrom runners.cli.exits import exit_code, guarded\n"
CODE += "def main():\n    print('β × 3', file=sys.stderr)\n    print('α – 2')\n    return 0\n"


def shell(redirection: str, encoding: str = "utf-8", code: str = CODE + "sys.exit(exit_code(main))") -> tuple:
    words = [sys.executable, "-c", code]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *words],
        cwd=ROOT,
        capture_output=True,
        env={"PYTHONIOENCODING": encoding, "PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def test_letters_that_an_output_lacks_are_written_out():
    assert shell("", "ascii") == (0, b"\\u03b1 \\u2013 2\n", b"\\u03b2 \\xd7 3\n")
    assert shell("", "latin-1") == (0, b"\\u03b1 \\u2013 2\n", b"\\u03b2 \xd7 3\n")
    assert shell("") == (0, "α – 2\n".encode(), "β × 3\n".encode())


def test_a_full_output_is_exit_code_3_and_a_line():
    code, _, said = shell("> /dev/full")
    assert code == 3
    assert said.decode() == "β × 3\nerror: the output could not be written: No space left on device\n"


@pytest.mark.parametrize("debug", ["None", "False", "True"])
def test_a_full_output_inside_of_a_command_too(debug):
    code = CODE + f"sys.exit(exit_code(lambda: guarded(lambda: (print('x' * 10**6), 0)[1], {debug})))"
    assert shell("> /dev/full", code=code)[0] == 3


def test_a_full_output_of_an_answer_says_where_the_answer_is():
    run = "def run():\n    with answering('the run is whole'):\n        print('α')\n    return 0\n"
    code = CODE + f"from runners.cli.exits import answering\n{run}sys.exit(exit_code(lambda: guarded(run)))"
    said = "error: the output could not be written: No space left on device; the run is whole\n"
    assert shell("> /dev/full", code=code) == (3, b"", said.encode())
    assert shell("| true", code=code)[0] == 0
    assert shell("", code=code) == (0, "α\n".encode(), b"")


@pytest.mark.parametrize("redirection", ["2> /dev/full", "2>&-"])
def test_a_stderr_that_takes_nothing_stops_nothing(redirection):
    assert shell(redirection) == (0, "α – 2\n".encode(), b"")


def test_names_in_tables_and_json_do_not_steer_a_terminal():
    """Colours stay; into a pipe goes what was written."""
    name = "\x1b]0;title\x07\x9b2J\u202eGNP\0"
    code = CODE.replace("'α – 2'", f"'\x1b[1mbold\x1b[0m ' + {name!r}") + "sys.exit(exit_code(main))"
    assert shell("", code=code)[1].decode() == f"\x1b[1mbold\x1b[0m {name}\n"
    ours, theirs = pty.openpty()
    try:
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=theirs, stderr=subprocess.DEVNULL, timeout=60)
        shown = os.read(ours, 10_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert shown == "\x1b[1mbold\x1b[0m \\x1b]0;title\\x07\\x9b2J\\u202eGNP\\x00\r\n"


def test_a_closed_stdout_stops_nothing():
    assert shell(">&-") == (0, b"", "β × 3\n".encode())


def test_files_do_not_take_the_place_of_a_closed_stderr(tmp_path):
    file = tmp_path / "kept"
    code = (
        CODE
        + f"def main():\n    import os\n    f = open({str(file)!r}, 'w')\n    os.write(2, b'noise')\n    return 0\n"
    )
    assert shell("2>&- <&-", code=CODE + code + "sys.exit(exit_code(main))")[0] == 0
    assert file.read_bytes() == b""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain × text\n\tand more", "plain × text\n\tand more"),
        ("\x1b[31mred\x07\0\x7f", "\\x1b[31mred\\x07\\x00\\x7f"),
        ("\x9b1m", "\\x9b1m"),
        ("a\u202egnp.exe\u2066", "a\\u202egnp.exe\\u2066"),
    ],
)
def test_what_steers_a_terminal_is_written_out(text, shown):
    assert printable(text) == shown
