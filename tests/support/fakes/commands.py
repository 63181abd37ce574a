"""How tests run a command in this process, and look at what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Answer = tuple[int, str, str]
"""(exit code, stdout, stderr)"""


def running(main: Callable[[list[str]], int], capsys: Any) -> Callable[..., Answer]:
    """A function of a command's arguments."""

    def run(*arguments: object) -> Answer:
        try:
            code: Any = main([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code
        return (code, *capsys.readouterr())

    return run


def refused(answer: Answer, *words: str, code: int = 2) -> None:
    """It ended with one line on stderr that has these words, and nothing else."""
    assert answer[0] == code, answer
    assert answer[1] == ""
    assert answer[2].startswith("error: ")
    assert answer[2].count("\n") == 1
    for word in words:
        assert word in answer[2]
