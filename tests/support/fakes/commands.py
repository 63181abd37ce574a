"""How tests run a command in this process, and look at what it refuses."""

import json
from collections.abc import Callable
from pathlib import Path
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


def module_of(name: str) -> str:
    """A command's module: of its package, or the file that it is."""
    package = Path(__file__).parents[3] / "runners" / name / "__main__.py"
    return f"runners.{name}.__main__" if package.is_file() else f"runners.{name}"


def telling(main: Callable[[list[str]], int], capsys: Any) -> Callable[..., Any]:
    """A function of a command's arguments: the JSON document that it answers with."""
    run = running(main, capsys)

    def document(*arguments: object) -> Any:
        code, out, err = run(*arguments, "--format", "json")
        assert code == 0, err
        return json.loads(out)

    return document


def code_without(forbidden: str, module: str, warnings: bool = False) -> str:
    """What `python -c` takes to run a command that cannot import these packages. module: has its `main`; warnings: they
    are errors."""
    return f"""
import sys, warnings

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {forbidden.split()}:
            raise ImportError(f"{{name}} is forbidden here")

sys.meta_path.insert(0, Forbid())
{'warnings.simplefilter("error")' if warnings else ""}
from {module} import main
sys.exit(main(sys.argv[1:]))
"""


def refused(answer: Answer, *words: str, code: int = 2) -> None:
    """It ended with one line on stderr that has these words, and nothing else."""
    assert answer[0] == code, answer
    assert answer[1] == ""
    assert answer[2].startswith("error: ")
    assert answer[2].count("\n") == 1
    for word in words:
        assert word in answer[2]
