"""The release: all packages of the checkout below `flopledger._internal`, where no name can be a user's, too.

In a checkout the packages (`results`, `analysis`, …) are at the top level and stay as they are. Users' projects have
modules of these names, and the first one on the path would win. So the copies in the wheel are renamed: in imports, in
names of modules held as text ("runners.workers.devices:probe"), and in the commands that help texts show. Docstrings of
functions and classes with an underscore are left out, as blank lines: they were 3 % of the wheel. Nothing else is
changed: a line has the number that it has in the checkout, and the same checkout always gives the same files. An
editable install keeps the names and docstrings of the checkout.
"""

import ast
import io
import re
import shutil
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
PRIVATE = "flopledger._internal"
PACKAGES = ("results", "analysis", "cleaning", "measure", "workloads", "reports", "runners")
DATA = {
    "flopledger": ["py.typed"],
    "analysis": ["**/*.csv", "**/*.toml", "reach/*.json", "reach/*.gz"],
    "cleaning": ["**/*.csv"],
    "reports": ["**/templates/*"],
}
EXTRAS: dict[str, tuple[str, ...]] = {
    "counters": ("counters",),
    "models": ("models",),
    "report": ("report",),
    "cluster": ("cluster",),
    "lightning": ("integrations", "lightning"),
    "hf": ("integrations", "transformers", "accelerate"),
}
"""Extra → which requirements-….txt it is, and which packages of it; without names, all of them."""
EDITABLE = "editable_wheel" in sys.argv
MODULE = re.compile(rf"((?:{'|'.join(PACKAGES)})(?:\.\w+)+)(:\w+)?")
SHOWN = (
    (re.compile(r"python -m runners\.sweep\.nsight"), f"python -m {PRIVATE}.runners.sweep.nsight"),
    (re.compile(r"python -m runners\.(?=[\w{])"), "flopledger "),  # {: a name in a formatted string
    (re.compile(r"python -m runners\b"), "flopledger"),
    (re.compile(r"pip install -r requirements\.txt"), "pip install flopledger"),
)
"""What help texts and messages say in a checkout, and where the project is installed."""


class BuildBelowOneName(build_py):
    """Copies the packages, and renames them in the copies."""

    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        target = Path(self.build_lib) / "flopledger"
        shutil.rmtree(target, ignore_errors=True)  # modules that are gone would stay in the wheel
        super().run()
        (target / "_internal" / "__init__.py").write_text(
            '"""Private: the public names are those of `flopledger`."""\n'
        )
        for file in sorted(target.rglob("*.py*")):
            if file.suffix == ".py":
                source = renamed(file.read_text(encoding="utf-8"))
                file.write_text(without_private_docstrings(source), encoding="utf-8")


def renamed(source: str) -> str:
    """A module's source with the names that the wheel has."""
    for pattern, shown in SHOWN:
        source = pattern.sub(shown, source)
    lines = source.splitlines(keepends=True)
    for token, text in reversed(list(_replaced(source))):
        (row, start), (last, end) = token.start, token.end
        if row == last:  # names of modules and strings that hold them are never longer than a line
            lines[row - 1] = f"{lines[row - 1][:start]}{text}{lines[row - 1][end:]}"
    return "".join(lines)


def without_private_docstrings(source: str) -> str:
    """A module's source with blank lines for the docstrings of functions and classes with an underscore.

    One that is the whole body stays, and so does one that shares a line with other code.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if not node.name.startswith("_") or node.name.endswith("__") or ast.get_docstring(node) is None:
            continue
        text = node.body[0]
        rows = slice(text.lineno - 1, text.end_lineno)
        if len(node.body) > 1 and re.fullmatch(r'\s*"""(?:(?!""").)*"""\s*', "".join(lines[rows]), re.DOTALL):
            lines[rows] = ["\n"] * len(lines[rows])
    return "".join(lines)


def _replaced(source: str) -> Iterator[tuple[tokenize.TokenInfo, str]]:
    """The tokens that name one of our modules, each with what it becomes."""
    begins, keyword = True, ""  # of a statement
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.NL, tokenize.COMMENT):
            begins, keyword = begins or token.type == tokenize.NEWLINE, ""
            continue
        if keyword and token.string in PACKAGES:
            if keyword == "import":
                raise SyntaxError(f"expected `from {token.string}.… import …`, got line {token.start[0]}: {token.line}")
            yield token, f"{PRIVATE}.{token.string}"
        elif token.type == tokenize.STRING and _names_a_module(token.string):
            quote = token.string[0]
            yield token, f"{quote}{PRIVATE}.{token.string[1:-1]}{quote}"
        keyword = token.string if begins and token.string in ("from", "import") else ""
        begins = token.string in (";", ":")


def _names_a_module(string: str) -> bool:
    """Whether a literal is the name of a module that can be imported, or of something in it.

    The name of a package alone is a label, as in `library="workloads"`.
    """
    if string[0] not in "\"'" or not (found := MODULE.fullmatch(str(ast.literal_eval(string)))):
        return False
    place = ROOT / found[1].replace(".", "/")
    return place.with_suffix(".py").is_file() or bool(found[2] and (place / "__init__.py").is_file())


def _requirements(file: str, *names: str) -> list[str]:
    lines = (ROOT / f"requirements-{file}.txt").read_text(encoding="utf-8").splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    return [line for line in wanted if line.startswith(names or "")]


def _placed(name: str) -> str:
    """A package's name in the distribution."""
    return f"{PRIVATE}.{name}" if name.partition(".")[0] in PACKAGES and not EDITABLE else name


if __name__ == "__main__":
    setup(
        cmdclass={"build_py": BuildBelowOneName},
        packages=[*map(_placed, find_packages(str(ROOT), include=[f"{name}*" for name in ("flopledger", *PACKAGES)]))],
        package_dir={_placed(name): name for name in PACKAGES},
        package_data={_placed(name): patterns for name, patterns in DATA.items()},
        extras_require={name: _requirements(*parts) for name, parts in EXTRAS.items()},
        include_package_data=False,
    )
