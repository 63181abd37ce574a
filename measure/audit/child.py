"""What the process of one framework does: load its formula, answer each question with a line, end.

It has no network, writes into a temporary folder of its own alone, and imports a package of others; it runs in a child
of `isolation.py` only.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, TextIO

from analysis.audit import Model, decode, encode
from results import Rights, confine

LONGEST = 300
"""Characters of a reason."""


@dataclass(frozen=True)
class Question:
    """One model and how many tokens its sequence has."""

    model: Model
    tokens: int


def task_of(framework: str, folders: Sequence[Path], questions: list[Question]) -> str:
    """What the process is given. folders: of the framework's package, then of the one that it needs."""
    asked = [{"model": encode(each.model), "tokens": each.tokens} for each in questions]
    return json.dumps({"framework": framework, "folders": [str(each) for each in folders], "questions": asked})


def answer(task: Any, out: TextIO) -> None:
    """A line for each question: {"flop": exact fraction in a word, or "reason"}."""
    from measure.audit.packages import OPENERS

    folders = [Path(each) for each in task["folders"]]
    sys.path.insert(0, str(folders[0]))
    try:
        formula, shims = OPENERS[task["framework"]](*folders)
    except Exception as fault:  # noqa: BLE001  the edge: whatever a package raises becomes its row
        _tell(out, [{"reason": _line(fault)} for _ in task["questions"]])
        return
    for question in task["questions"]:
        try:
            flop = Fraction(formula(decode(question["model"]), question["tokens"]))
            _tell(out, [{"flop": str(flop), "shims": shims}])
        except Exception as fault:  # noqa: BLE001  the edge
            _tell(out, [{"reason": _line(fault), "shims": shims}])


def _tell(out: TextIO, rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(json.dumps(row), file=out, flush=True)


def _line(fault: Exception) -> str:
    return f"{type(fault).__name__}: {' '.join(str(fault).split())}"[:LONGEST]


def main() -> None:
    """Reads the task on standard input; what packages print goes to standard error."""
    confine(Rights(writable=(Path(tempfile.gettempdir()), Path("/dev/null")), network=False))
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    answer(json.loads(sys.stdin.read()), out)


if __name__ == "__main__":
    main()
