"""Law: calls that run code, unpickle, start a shell or unpack archives occur only in the files that are listed."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = (
    "analysis", "benchmarks", "cleaning", "flopledger", "measure", "reports", "results", "runners", "workloads", ".ci",
)  # fmt: skip
SINGLE = ("setup.py",)

ALLOWED = {
    ("analysis/formula/expressions.py", "eval"): "code that it builds itself, of numbers and symbols",
    (
        "runners/sweep/rank_peers.py",
        "pickle.loads",
    ): "what ranks of one torchrun tell each other, as in torch",
}
"""(file, call) → why it may be there. Nothing else may."""

NAMES = {"eval", "exec", "compile", "__import__"}
ATTRIBUTES = {
    "os.system", "os.popen", "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads",
    "shelve.open", "dill.load", "joblib.load", "cloudpickle.load", "torch.hub.load", "torch.jit.load", "yaml.load",
    "yaml.unsafe_load", "builtins.eval", "builtins.exec", "pandas.read_pickle", "pd.read_pickle", "sympy.parse_expr",
}  # fmt: skip
METHODS = {"extractall", "extract", "unpack_archive"}
SAFE = {("torch.load", "weights_only"): True, ("np.load", "allow_pickle"): False}
"""Call → the keyword that it must have, with this value."""


def dotted(node: ast.expr) -> str:
    """As `ast.unparse`, which takes its time."""
    if isinstance(node, ast.Name):
        return node.id
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ast.unparse(node)


def found(source: str) -> Iterator[str]:
    """The calls in a source that are none of data alone, by name."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name, keywords = dotted(node.func), {each.arg: each.value for each in node.keywords}
        if name in NAMES | ATTRIBUTES or name.rpartition(".")[2] in METHODS:
            yield name
        for (call, keyword), wanted in SAFE.items():
            value = keywords.get(keyword)
            if name == call and not (isinstance(value, ast.Constant) and value.value is wanted):
                yield f"{name} without {keyword}={wanted}"
        shell = keywords.get("shell")
        if shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False):
            yield f"{name} with shell"


def imported(source: str) -> Iterator[str]:
    """`from pickle import loads` and the like, whose calls would have another name."""
    dangerous = {call.rpartition(".")[::2] for call in ATTRIBUTES}
    modules = {"torch": {"load"}, "os": {"system", "popen"}}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                pair = (node.module, "", alias.name)
                if (pair[0], pair[2]) in {(a, b) for a, b in dangerous} or alias.name in modules.get(node.module, ()):
                    yield f"from {node.module} import {alias.name}"


def sources() -> Iterator[tuple[str, str]]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for file in SINGLE:
        yield file, (ROOT / file).read_text(encoding="utf-8")


def test_every_folder_with_code_is_read():
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", "*.py"]
    files = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    assert {file.partition("/")[0] for file in files} <= {*ROOMS, *SINGLE, "tests"}


def test_nothing_runs_or_unpickles_outside_of_named_places():
    there = {(file, call) for file, source in sources() for call in (*found(source), *imported(source))}
    assert there == set(ALLOWED)
