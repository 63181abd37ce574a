"""Command: each command in the documents is parsed by its own program, and is not run."""

import argparse
import itertools
import re
import shlex
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

STARTS = r"(?:[A-Z_]+=\S+ )*python -m "
OTHERS = {"build", "pip", "pytest", "twine", "venv"}
"""Programs that are not ours."""

ANY = "runners.NAME"
"""Said of all commands."""


class Parsed(Exception):
    """A program has read its arguments, and would go on now."""


def commands(text: str) -> Iterator[str]:
    """Each command of a document: of indented lines, of fenced ones and in backquotes; `&&` ends one."""
    text = text.replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines() if line.startswith(("    ", "python"))]
    quoted = [" ".join(words.split()) for words in re.findall(r"`(python -m\s[^`]+)`", text)]
    for line in [*lines, *quoted]:
        for part in re.split(r"&&|;| \| ", line):
            if re.match(STARTS, part.strip()):
                yield part.strip()


FOUND = [
    (document.name, command)
    for document in DOCUMENTS
    for command in dict.fromkeys(commands(document.read_text(encoding="utf-8")))
    if ANY not in command
]


def split(command: str) -> tuple[str, list[str]]:
    """A command's module and its arguments; brackets say that something may be left out."""
    words = shlex.split(re.sub(r"(?<= )\[|\](?=\s|$)", "", command), comments=True)
    at = words.index("-m") + 1
    return words[at], words[at + 1 :]


@pytest.mark.parametrize(("document", "command"), FOUND, ids=[f"{name}: {command}" for name, command in FOUND])
def test_a_command_parses(document: str, command: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    module, arguments = split(command)
    if not arguments or module in OTHERS:  # a command without arguments is mentioned, by its name
        assert module in OTHERS or find_spec(module)
        for option, file in itertools.pairwise(arguments if module == "pip" else []):
            assert option not in ("-r", "-c") or (ROOT / file).is_file(), file
        return
    assert find_spec(module), f"{document}: {command}"
    read = argparse.ArgumentParser.parse_args

    def stop(self: argparse.ArgumentParser, given: Any = None, space: Any = None) -> Any:
        raise Parsed(read(self, given, space))

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", stop)
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    with pytest.raises(Parsed):
        _run(module, arguments)
    assert capsys.readouterr().err == ""


def _run(module: str, arguments: list[str]) -> None:
    runs_itself = (ROOT / module.replace(".", "/") / "__main__.py").is_file()
    main = import_module(f"{module}.__main__" if runs_itself else module).main
    try:
        main(arguments) if main.__code__.co_argcount else main()
    except SystemExit as ended:
        if ended.code == 0 and "--help" in arguments:
            raise Parsed from ended
        pytest.fail(f"{module} {arguments} ends with {ended.code}")
