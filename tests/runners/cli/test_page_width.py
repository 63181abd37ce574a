"""What every command shows in a real pseudo-terminal of 60, 80, 100 and 160 columns: no line is longer, no word broken.

A word is broken where letters stand on a page that no word of the same page at 1,000 columns, nor of this project's
source, is made of. `tests/reports/shared/test_page_layout.py` has the layout by itself.
"""

from __future__ import annotations

import functools
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from results.printable import letters
from tests.support.fakes.terminal_pages import BEGIN, END, PAGES

ROOT = Path(__file__).parents[3]
WIDTHS = (60, 80, 100, 160)
WIDE = 1000
LIMIT_S = 300

_MODES = ("compute",)
COSTLY = {
    "doctor",
    "formula",
    "reach",
    "footprint",
    "explain",
    "checkpoints",
    *(f"project {mode}" for mode in _MODES),
}
"""Told again at each width they would take seconds; each is told at two."""

WORD = re.compile(r"[A-Za-z]{3,}")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def told(widths: str, names: list[str]) -> dict[tuple[str, int], str]:
    """(what, width) → the page, as the other end of the pseudo-terminal reads it."""
    ours, theirs = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    environ |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.support.fakes.terminal_pages", widths, *names]
    process = subprocess.Popen(command, cwd=ROOT, env=environ, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    read = b""
    try:
        while chunk := _read(ours):
            read += chunk
    finally:
        os.close(ours)
        code = process.wait(LIMIT_S)
    text = read.decode().replace("\r\n", "\n")
    assert code == 0, text[-3000:]
    pages = {}
    for part in text.split(BEGIN)[1:]:
        head, page = part.split("\n", 1)
        name, width = head.rsplit(",", 1)
        pages[name, int(width)] = page.split(END)[0]
    return pages


def _read(file: int) -> bytes:
    try:
        return os.read(file, 65536)
    except OSError:  # the other end is closed
        return b""


@functools.cache
def pages() -> dict[tuple[str, int], str]:
    """Every page at every width that it is told at."""
    cheap = [name for name in PAGES if name not in COSTLY]
    return told(",".join(map(str, (*WIDTHS, WIDE))), cheap) | told("60,80", sorted(COSTLY))


@functools.cache
def known() -> frozenset[str]:
    """Every word of the project's own source and data."""
    command = ["git", "ls-files", "*.py", "*.csv", "*.toml"]
    files = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    words = frozenset(word for file in files for word in WORD.findall((ROOT / file).read_text("utf-8", "replace")))
    return words | {"repvgg"}  # a published model, whose table is gzipped


def lines(page: str) -> list[str]:
    """The lines that stand on the terminal at some time: what a carriage return replaces is one of them."""
    return ESCAPES.sub("", page.replace("\r", "\n")).split("\n")


CASES = [(name, width) for name in PAGES for width in (WIDTHS[:2] if name in COSTLY else WIDTHS)]


@pytest.mark.parametrize(("name", "width"), CASES)
def test_no_line_is_longer_than_the_terminal(name: str, width: int) -> None:
    assert [line for line in lines(pages()[name, width]) if letters(line) > width] == []


@pytest.mark.parametrize(("name", "width"), CASES)
def test_no_word_is_broken(name: str, width: int) -> None:
    wide = pages().get((name, WIDE), "")
    words = set(WORD.findall(ESCAPES.sub("", pages()[name, width])))
    assert words, "the page has words"
    broken = words - set(WORD.findall(ESCAPES.sub("", wide))) - known()
    broken -= {word for word in broken if word[0] in "kMGT" and word[1:] in known()}  # a unit with its prefix
    assert {word for word in broken if not _of_this_machine(word)} == set()


def _of_this_machine(word: str) -> bool:
    """Names of its processor, packages and files, which the doctor tells."""
    return any(word in WORD.findall(text) for text in (sys.version, sys.executable, str(ROOT), *_machine()))


@functools.cache
def _machine() -> tuple[str, ...]:
    command = [sys.executable, "-m", "runners.doctor", "--format", "csv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return (done.stdout,)


def test_wider_terminals_are_used() -> None:
    """What a narrow one leaves out is there: the sweep's table has all of its columns at 160."""
    assert "left out" in pages()["report", 60]
    assert "left out" not in pages()["report", 160]
    assert max(map(letters, lines(pages()["report", 160]))) > 100
