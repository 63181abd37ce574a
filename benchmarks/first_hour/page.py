"""docs/first-hour.md: its tasks with their blocks, and what a block's printed text has in common with the next run's.

A block of Python begins with the name of the file that it is to be saved as; a block of shell is pasted as it is. The
text below is a part of what the last block of the task prints. Numbers differ from run to run and machine to machine;
headings of tables and rules under them do not. `layout` leaves those.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "first-hour.md"

_TASK = re.compile(r"^## (\d+)\. (.+?)\n(.*?)(?=^## |\Z)", re.M | re.S)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
_EXIT = re.compile(r"# exit code (\d+)\s*$", re.M)
_RATE = re.compile(r"\b[PTGMk]FLOP/s")
_RULE = re.compile(r"^ *─+ *$")


@dataclass(frozen=True)
class Task:
    """One task. files: name → content, to be saved first; shell: what is pasted; shown: what the page says is printed.

    exit_code: with which the last command ends.
    """

    number: int
    title: str
    files: tuple[tuple[str, str], ...]
    shell: str
    shown: str

    @property
    def exit_code(self) -> int:
        found = _EXIT.findall(self.shell)
        return int(found[-1]) if found else 0


def tasks(text: str) -> list[Task]:
    """The tasks of the page. Raises ValueError for one without a block of shell or without a printed text."""
    found = []
    for number, title, body in _TASK.findall(text):
        blocks = _BLOCK.findall(body)
        files = tuple(_file(block) for kind, block in blocks if kind == "python")
        shell = [block for kind, block in blocks if kind == "sh"]
        shown = [block for kind, block in blocks if kind == "text"]
        if len(shell) != 1 or len(shown) != 1:
            raise ValueError(
                f"task {number}: expected one block of shell and one of text, got {len(shell)}, {len(shown)}"
            )
        found.append(Task(int(number), title, files, shell[0], shown[0]))
    return found


def _file(block: str) -> tuple[str, str]:
    name = re.match(r"# (\S+\.py)\n", block)
    if name is None:
        raise ValueError(f"expected the name of a file in the first line, got {block.splitlines()[0]!r}")
    return name[1], block


def layout(text: str) -> list[str]:
    """The headings of the tables in a printed text, with one space between words.

    What depends on numbers is left out: the prefix of a rate, and a heading's first words where they stand on the line
    above in a narrow column ("step ms").
    """
    said = (" ".join(line.split()) for line in _headings(text.splitlines()))
    return [_RATE.sub("FLOP/s", line).replace("step ms", "ms") for line in said]


def _headings(lines: list[str]) -> Iterator[str]:
    for line, below in itertools.pairwise(lines):
        if _RULE.match(below):
            yield line
