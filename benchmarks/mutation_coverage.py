"""How many planted faults the tests kill: one seeded fault at a time in a scratch copy of a commit, then its tests.

    python -m benchmarks.mutation_coverage --out DIR [--commit HEAD] [--faults 210] [--seed 22] [--tests FILE ...]
    python -m benchmarks.mutation_coverage --compare BEFORE.csv AFTER.csv

The first plants faults evenly over the packages, or, with `--tests`, over the modules that these test files import, and
writes a row for each to DIR/COMMIT.csv; started again, it goes on with those that have no row. DIR/faults.csv keeps the
choice, so that another commit gets the same faults. A fault's tests are, in this order, the file that mirrors
its module, the rest of the mirrored folder that imports it, and the files elsewhere that do; with `--tests` only those.
A kill counts if the test that failed passes on the clean code. Claims nothing about faults that need two edits.
"""

from __future__ import annotations

import argparse
import ast
import copy
import csv
import importlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import NoReturn

PACKAGES = ("results", "analysis", "cleaning", "measure", "workloads", "runners", "reports")
ROOT = Path(__file__).parents[1]
SHOWN = 60
"""Characters of a piece of code in the table."""


# --- sites: where a fault can be planted ---


@dataclass(frozen=True)
class Site:
    """A node of a function that a fault replaces; `number` counts the sites of one kind within the function."""

    module: str
    function: str
    kind: str
    number: int
    node: ast.AST
    fault: ast.AST

    @property
    def key(self) -> str:
        return f"{self.module}:{self.function}:{self.kind}:{self.number}"


ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
COMPARISONS = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def other_operator(node: ast.AST) -> ast.AST | None:
    """a + b → a - b, and in-place forms; text joined by + is left alone."""
    if not isinstance(node, ast.BinOp | ast.AugAssign) or type(node.op) not in ARITHMETIC:
        return None
    parts = [part for part in ast.walk(node) if isinstance(part, ast.Constant)]
    if any(isinstance(part.value, str) for part in parts):
        return None
    fault = copy.deepcopy(node)
    fault.op = ARITHMETIC[type(node.op)]()
    return fault


def other_logic(node: ast.AST) -> ast.AST | None:
    """`and` ↔ `or`."""
    if not isinstance(node, ast.BoolOp):
        return None
    fault = copy.deepcopy(node)
    fault.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    return fault


def other_constant(node: ast.AST) -> ast.AST | None:
    """A number doubled, 0 → 1, True ↔ False."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, bool | int | float):
        return None
    if isinstance(node.value, bool):
        return ast.Constant(not node.value)
    return ast.Constant(2 * node.value or 1)


def other_comparison(node: ast.AST) -> ast.AST | None:
    """< ↔ >=, == ↔ !=, in ↔ not in: the first of a chain."""
    if not isinstance(node, ast.Compare) or type(node.ops[0]) not in COMPARISONS:
        return None
    fault = copy.deepcopy(node)
    fault.ops[0] = COMPARISONS[type(node.ops[0])]()
    return fault


def other_order(node: ast.AST) -> ast.AST | None:
    """The first two values of a returned tuple, or of a record's keywords, changed for each other."""
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1:
        fault = copy.deepcopy(node)
        assert isinstance(fault.value, ast.Tuple)
        fault.value.elts[:2] = fault.value.elts[1::-1]
        return None if ast.dump(fault) == ast.dump(node) else fault
    if isinstance(node, ast.Call) and len(node.keywords) > 1 and all(word.arg for word in node.keywords[:2]):
        fault = copy.deepcopy(node)
        first, second = fault.keywords[:2]
        first.value, second.value = second.value, first.value
        return None if ast.dump(fault) == ast.dump(node) else fault
    return None


def no_statement(node: ast.AST) -> ast.AST | None:
    """A call for its effect, an in-place operation, a `raise` or a `continue` left out."""
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return ast.Pass() if called or isinstance(node, ast.AugAssign | ast.Raise | ast.Continue) else None


KINDS: dict[str, Callable[[ast.AST], ast.AST | None]] = {
    "operator": other_operator,
    "logic": other_logic,
    "constant": other_constant,
    "comparison": other_comparison,
    "order": other_order,
    "statement": no_statement,
}


def code_of(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body and defaults, in the order of the text; no annotations, no formatted strings."""
    for name, value in ast.iter_fields(function):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.FunctionDef | ast.ClassDef):
                continue  # before Python 3.12 what is in a formatted string has no place in the text
            yield child
            yield from code_of(child)


def functions_of(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """(qualified name, function or module) of each; tables at the top of a module belong to `<module>`."""
    if isinstance(tree, ast.Module):
        yield "<module>", tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef):
            yield prefix + child.name, child
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield from functions_of(child, f"{prefix}{child.name}.")


def sites_of(module: str, source: str) -> list[Site]:
    """Every site of a module."""
    found = []
    for name, function in functions_of(ast.parse(source)):
        counts: dict[str, int] = defaultdict(int)
        for node in code_of(function):
            for kind, change in KINDS.items():
                fault = change(node) if hasattr(node, "lineno") else None
                if fault is not None:
                    found.append(Site(module, name, kind, counts[kind], node, fault))
                    counts[kind] += 1
    return found


def planted(source: str, site: Site) -> str:
    """The source with one fault; all else stays as it is, to the letter."""
    node = site.node
    lines = source.encode().splitlines(keepends=True)  # ast counts columns in bytes
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    text = ast.unparse(site.fault)
    text = f"({text})" if isinstance(node, ast.expr) and not isinstance(node, ast.Constant) else text
    whole = source.encode()
    return (whole[:begin] + text.encode() + whole[end:]).decode()


# --- the choice ---


@dataclass(frozen=True)
class Row:
    """A fault and what became of it: killed, survived, timeout, untested (no test file) or gone (no such site)."""

    key: str
    package: str
    module: str
    line: int = 0
    before: str = ""
    after: str = ""
    outcome: str = ""
    killed_by: str = ""
    files: int = 0
    seconds: float = 0.0


def row_of(site: Site) -> Row:
    before, after = (" ".join(ast.unparse(node).split())[:SHOWN] for node in (site.node, site.fault))
    return Row(site.key, site.module.split("/")[0], site.module, site.node.lineno, before, after)


def modules_of(tree: Path, package: str) -> list[str]:
    """Product modules of a package, without those that only start a command and made or published data."""
    paths = sorted(path.relative_to(tree).as_posix() for path in (tree / package).rglob("*.py"))
    return [path for path in paths if not path.endswith("__main__.py") and "/runs/" not in path]


def chosen(tree: Path, groups: dict[str, list[str]], count: int, seed: int) -> list[Row]:
    """So many faults, evenly over the groups of modules; within a group over modules, within a module over kinds.

    The groups take turns, so that a part of the list is even, too.
    """
    rows: list[tuple[int, str, Row]] = []
    for index, (group, modules) in enumerate(sorted(groups.items())):
        pick = random.Random(f"{seed}:{group}")
        wanted = count // len(groups) + (index < count % len(groups))
        left = {module: sites_of(module, (tree / module).read_text()) for module in modules}
        turn: list[str] = []
        taken = 0
        while taken < wanted and (alive := sorted(module for module, sites in left.items() if sites)):
            turn = [module for module in turn if module in alive] or pick.sample(alive, len(alive))
            sites = left[turn[0]]
            kind = pick.choice(sorted({site.kind for site in sites}))
            site = pick.choice([site for site in sites if site.kind == kind])
            sites.remove(site)
            turn.pop(0)
            rows.append((taken, group, row_of(site)))
            taken += 1
    return [row for _, _, row in sorted(rows, key=lambda each: each[:2])]


def module_file(tree: Path, name: str) -> str | None:
    """The file of a dotted name, of a module, a package or something in one."""
    parts = name.split(".")
    if parts[0] not in PACKAGES:
        return None
    for path in ("/".join(parts) + ".py", "/".join(parts[:-1]) + ".py", "/".join(parts) + "/__init__.py"):
        if (tree / path).is_file():
            return path
    return None


def imports_of(tree: Path, file: str) -> set[str]:
    """Product files that a file names in its imports, or in text like `package.module:function`."""
    names: set[str] = set()
    stub = (tree / file).with_suffix(".pyi")  # of a package that exports names of its modules
    for node in ast.walk(ast.parse((stub if stub.is_file() else tree / file).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level and node.module:
            names.add(f"{Path(file).parent.as_posix().replace('/', '.')}.{node.module}")
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and re.match(r"\w+(\.\w+)+(:|$)", node.value)
        ):
            names.add(node.value.partition(":")[0])
    files = {path for name in names if (path := module_file(tree, name))}
    doors = [path for path in files if path.endswith("__init__.py") and path != file]
    return files.union(*(imports_of(tree, path) for path in doors))  # a door hands on what other files define


def files_for(module: str, importers: dict[str, set[str]]) -> list[str]:
    """Test files of a module: the mirror, importers in the mirrored folder, all others; else the nearest folder's."""
    folder, stem = f"tests/{Path(module).parent.as_posix()}/", Path(module).stem
    files = sorted(test for test, seen in importers.items() if module in seen)
    mirrors = [test for test in importers if test.startswith(folder) and Path(test).stem == f"test_{stem}"]
    ordered = dict.fromkeys([*mirrors, *(test for test in files if test.startswith(folder)), *files])
    while not ordered and folder != "tests/":
        ordered = dict.fromkeys(sorted(test for test in importers if test.startswith(folder)))
        folder = f"{Path(folder).parent.as_posix()}/"
    return list(ordered)


# --- the runs ---


PRELOADED = ("torch", "torchvision", "pandas", "scipy.stats", "sympy", "matplotlib.figure", "pytest")
"""Imported once, before the forks: most of the time of a small test file is spent on these."""


def _run_in_fork(tree: Path, said: Path, arguments: list[str]) -> NoReturn:
    """pytest in this forked process, a group of its own, as if it had been started in `tree`."""
    os.setsid()
    os.nice(10)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(tree)
    os.environ["COLUMNS"] = "500"
    out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(out, stream)
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
    sys.dont_write_bytecode = True  # a fault is often written in the same second and size as the one before
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]
    import pytest

    code = 1
    try:
        code = int(pytest.main(["-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-n", "0", *arguments]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def _exit_code(pid: int, until_s: float) -> int | None:
    """Of a child; None, and it is killed, if it is still there then."""
    while time.monotonic() < until_s:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


class Copy:
    """A scratch copy of a commit in which one module at a time is spoiled."""

    def __init__(self, folder: Path, commit: str, limit_s: float, marks: str) -> None:
        self.tree, self.limit_s, self.marks = folder / "copy", limit_s, marks
        subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(self.tree)], check=True)
        subprocess.run(["git", "checkout", "-q", commit], cwd=self.tree, check=True)
        self.reliable: dict[str, bool] = {}
        for name in PRELOADED:
            importlib.import_module(name)

    def pytest(self, *arguments: str) -> tuple[int | None, str]:
        """(exit code, or None at the limit, what it printed) of pytest in a fork; nothing that it started is left."""
        said = self.tree.with_suffix(".out")
        pid = os.fork()
        if pid == 0:
            _run_in_fork(self.tree, said, ["-m", self.marks, *arguments])
        try:
            code = _exit_code(pid, time.monotonic() + self.limit_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        return code, said.read_text(errors="replace") if code is not None else ""

    def restore(self) -> None:
        subprocess.run(["git", "checkout", "-q", "."], cwd=self.tree, check=True)
        subprocess.run(["git", "clean", "-fdq"], cwd=self.tree, check=True)

    def passes(self, test: str) -> bool:
        """Whether a test, or the collection of a file, passes on the clean code; asked once for each."""
        if test not in self.reliable:
            self.restore()
            code, _ = self.pytest(*([] if "::" in test else ["--collect-only"]), test)
            self.reliable[test] = code == 0
        return self.reliable[test]

    def unreliable(self) -> list[str]:
        return [f"--deselect={test}" for test, passed in self.reliable.items() if not passed]

    def verdict(self, module: str, spoiled: str, files: list[str]) -> tuple[str, str]:
        """(outcome, the test that killed it). A test that fails on the clean code is left out, and all run again."""
        while True:
            (self.tree / module).write_text(spoiled)
            code, out = self.pytest("-x", *self.unreliable(), *files)
            if code is None:
                return "timeout", ""
            failed = re.findall(r"^(?:FAILED|ERROR) (\S+?\.py(?:::.*?)?)(?: - .*)?$", out, re.MULTILINE)
            if code == 0 or (code == 5 and not failed):
                return ("survived" if code == 0 else "untested"), ""
            killer = failed[0] if failed else files[0]
            if self.passes(killer):
                return "killed", killer
            if not failed or "::" not in killer:
                return "untested", killer


def judged(row: Row, copy_: Copy, files: list[str]) -> Row:
    """The row with its outcome."""
    source = (copy_.tree / row.module).read_text() if (copy_.tree / row.module).is_file() else ""
    site = next((site for site in sites_of(row.module, source) if site.key == row.key), None)
    if site is None or row_of(site).before != row.before:
        return replace(row, outcome="gone")
    if not files:
        return replace(row, outcome="untested")
    start_s = time.monotonic()
    outcome, killer = copy_.verdict(row.module, planted(source, site), files)
    copy_.restore()
    seconds = round(time.monotonic() - start_s, 1)
    return replace(row, outcome=outcome, killed_by=killer, files=len(files), seconds=seconds)


# --- tables ---


def read_rows(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    numbers = {"line": int, "files": int, "seconds": float}
    return [Row(**{name: numbers.get(name, str)(text) for name, text in line.items()}) for line in lines]


def append_row(path: Path, row: Row) -> None:
    begun = path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        if not begun:
            writer.writeheader()
        writer.writerow(asdict(row))


def summary(rows: Iterable[Row]) -> str:
    """A line for each package: killed, survived and the rest."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        counts[row.package][row.outcome] += 1
        counts["all"][row.outcome] += 1
    lines = [
        f"{package:10} " + ", ".join(f"{n} {word}" for word, n in sorted(c.items())) for package, c in counts.items()
    ]
    return "\n".join(lines)


def compare(before: list[Row], after: list[Row]) -> str:
    """Both summaries over the faults that both have judged, and each whose outcome differs."""
    old, new = ({row.key: row for row in rows if row.outcome in ("killed", "survived")} for rows in (before, after))
    both = [key for key in old if key in new]
    lines = [f"{len(both)} faults judged in both", "before:", summary(old[key] for key in both)]
    lines += ["after:", summary(new[key] for key in both)]
    changed = [key for key in both if old[key].outcome != new[key].outcome]
    lines += [f"{key}: {old[key].outcome} → {new[key].outcome}" for key in changed]
    return "\n".join(lines)


# --- the command ---


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How many planted faults the tests kill.")
    parser.add_argument("--out", type=Path, help="folder of the tables, outside of the repository")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--faults", type=int, default=210)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--tests", nargs="+", default=[], help="plant in what these files import; run no others")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for the tests of one fault")
    parser.add_argument("--for", dest="for_s", type=float, default=float("inf"), help="seconds after which to stop")
    parser.add_argument("--marks", default="not slow and not standin")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    options = parser.parse_args(arguments)
    if not options.compare and not options.out:
        parser.error("expected --out DIR or --compare BEFORE AFTER")
    return options


def faults_of(tree: Path, options: argparse.Namespace, importers: dict[str, set[str]]) -> list[Row]:
    """The faults of DIR/faults.csv, which the first commit that is measured fills."""
    table = options.out / "faults.csv"
    if not table.exists():
        groups = {package: modules_of(tree, package) for package in PACKAGES}
        if options.tests:
            known = {path for modules in groups.values() for path in modules}
            groups = {test: sorted(importers[test] & known) for test in options.tests}
        for row in chosen(tree, groups, options.faults, options.seed):
            append_row(table, row)
    return read_rows(table)


def measure(options: argparse.Namespace, folder: Path) -> list[Row]:
    """Judge every fault that has no row yet, and return all rows."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", options.commit], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    copy_ = Copy(folder, commit, options.limit, options.marks)
    tests = sorted(path.relative_to(copy_.tree).as_posix() for path in (copy_.tree / "tests").rglob("test_*.py"))
    importers = {test: imports_of(copy_.tree, test) for test in tests}
    table, end_s = options.out / f"{commit}.csv", time.monotonic() + options.for_s
    done = {row.key for row in read_rows(table)}
    for row in faults_of(copy_.tree, options, importers):
        if row.key in done or time.monotonic() > end_s:
            continue
        files = files_for(row.module, importers)
        files = [file for file in options.tests if file in files] if options.tests else files
        append_row(table, result := judged(row, copy_, files))
        done.add(row.key)
        print(f"{result.outcome:9} {result.seconds:6.1f} s  {row.key}  {row.before} → {row.after}", flush=True)
    return read_rows(table)


def main(arguments: list[str] | None = None) -> None:
    options = options_of(sys.argv[1:] if arguments is None else arguments)
    if options.compare:
        print(compare(*(read_rows(path) for path in options.compare)))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a fork ends and the copy goes with it
    with tempfile.TemporaryDirectory() as folder:
        print(summary(measure(options, Path(folder))))


if __name__ == "__main__":
    main()
