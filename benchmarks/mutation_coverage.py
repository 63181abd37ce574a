"""How many planted faults the tests kill: one seeded fault at a time in a scratch copy of a commit, then its tests.

    python -m benchmarks.mutation_coverage --out DIR [--commit HEAD] [--faults 210] [--seed 22] [--tests FILE ...]
    python -m benchmarks.mutation_coverage --out DIR --known [--commit HEAD]
    python -m benchmarks.mutation_coverage --compare BEFORE.csv AFTER.csv

The first plants faults evenly over the packages, or, with `--tests`, over the modules that these test files import, and
writes a row for each to DIR/COMMIT.csv, or, with `--shard I/N`, every Nth fault to DIR/COMMIT-I.csv. Started again, it
goes on with those that have no row; with `--again OUTCOME` it judges those of an outcome anew. DIR/faults.csv keeps the
choice, so that another commit gets the same faults. With `--known` the faults are those of
`benchmarks/mutations/known_faults.csv`, each against the test files of its row. `benchmarks/mutations/selection.py`
says which tests are run and in which order; with `--near` only those of the mirrored folder. A kill counts if that test
passes on the clean code.
"""

import argparse
import ast
import csv
import importlib
import math
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import NoReturn

from benchmarks.mutations.known_faults import known_faults
from benchmarks.mutations.planted_faults import Site, planted, sites_of
from benchmarks.mutations.selection import PACKAGES, NamedFirst, imports_of, stages_for

ROOT = Path(__file__).parents[1]
SHOWN = 60
"""Characters of a piece of code in the table."""


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


# --- the runs ---


PRELOADED = ("torch", "torchvision", "pandas", "scipy.stats", "sympy", "matplotlib.figure", "pytest")
"""Imported once, before the forks: most of the time of a small test file is spent on these."""

WALL_PER_PROCESSOR_S = 8
"""A fork that waits instead of computing ends after so many times its limit of processor time."""


def _run_in_fork(tree: Path, output: Path, limit_s: float, arguments: list[str], function: str) -> NoReturn:
    """pytest in this forked process, a group of its own, as if it had been started in `tree`.

    The limit is of processor time, of this process and of each that it starts: on a loaded machine a fork gets as much
    as on an idle one.
    """
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit_s), math.ceil(limit_s) + 1))
    os.nice(10)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the command runs in the background
    os.chdir(tree)
    os.environ["COLUMNS"] = "500"
    out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(out, stream)
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ("", str(ROOT)))]
    sys.dont_write_bytecode = True  # a fault is often written in the same second and size as the one before
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]
    import pytest

    code, plugins = 1, [NamedFirst(function)] if function else []
    try:
        code = int(
            pytest.main(["-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-n", "0", *arguments], plugins=plugins)
        )
    finally:
        sys.stdout.flush()
        os._exit(code)


def _exit_code(pid: int, until_s: float) -> int | None:
    """Of a child; None if it reached its limit of processor time, or is still there then and is killed."""
    while time.monotonic() < until_s:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
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
        command = ["nice", sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", "-n", "0"]
        subprocess.run(command, cwd=self.tree, stdout=subprocess.DEVNULL, check=False)  # all modules are compiled once
        for name in PRELOADED:
            importlib.import_module(name)

    def pytest(self, *arguments: str, function: str = "") -> tuple[int | None, str]:
        """(exit code, or None at the limit, what it printed) of pytest in a fork; nothing that it started is left."""
        output = self.tree.with_suffix(".out")
        pid = os.fork()
        if pid == 0:
            _run_in_fork(self.tree, output, self.limit_s, ["-m", self.marks, "--timeout", "300", *arguments], function)
        try:
            code = _exit_code(pid, time.monotonic() + WALL_PER_PROCESSOR_S * self.limit_s)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        return code, output.read_text(errors="replace") if code is not None else ""

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

    def verdict(self, module: str, spoiled: str, files: list[str], function: str = "") -> tuple[str, str]:
        """(outcome, the test that killed it). A test that fails on the clean code is left out, and all run again."""
        while True:
            (self.tree / module).write_text(spoiled)
            code, out = self.pytest(
                "-x",
                *(f"--deselect={test}" for test, passed in self.reliable.items() if not passed),
                *files,
                function=function,
            )
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


def judged(row: Row, copy_: Copy, stages: list[list[str]]) -> Row:
    """The row with its outcome: the lists of test files are run one after the other until a test fails."""
    source = (copy_.tree / row.module).read_text() if (copy_.tree / row.module).is_file() else ""
    site = next((site for site in sites_of(row.module, source) if site.key == row.key), None)
    if site is None or row_of(site).before != row.before:
        return replace(row, outcome="gone")
    start_s, outcomes, killer = time.monotonic(), [], ""
    for files in filter(None, stages):
        outcome, killer = copy_.verdict(row.module, planted(source, site), files, site.function)
        outcomes.append(outcome)
        if outcome == "killed":
            break
    copy_.restore()
    worst = next((word for word in ("killed", "timeout", "survived") if word in outcomes), "untested")
    seconds = round(time.monotonic() - start_s, 1)
    return replace(row, outcome=worst, killed_by=killer, files=sum(map(len, stages[: len(outcomes)])), seconds=seconds)


def judge_known(copy_: Copy, table: Path) -> None:
    """Judge every row of known_faults.csv that the table lacks, in its order."""
    done = {row.key for row in read_rows(table)}
    for number, fault in enumerate(known_faults()):
        before, after = (" ".join(text.split())[:SHOWN] for text in (fault.before, fault.after))
        row = Row(f"{fault.module}:known:{number}", fault.module.split("/")[0], fault.module, 0, before, after)
        if row.key in done:
            continue
        start_s, files = time.monotonic(), fault.tests.split()
        outcome, killer = copy_.verdict(fault.module, fault.planted((copy_.tree / fault.module).read_text()), files)
        copy_.restore()
        seconds = round(time.monotonic() - start_s, 1)
        append_row(table, replace(row, outcome=outcome, killed_by=killer, files=len(files), seconds=seconds))
        print(f"{outcome:9} {seconds:6.1f} s  {row.key}  {before} → {after}", flush=True)


# --- tables ---


def read_rows(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        lines = list(csv.DictReader(file))
    numbers = {"line": int, "files": int, "seconds": float}
    rows = [Row(**{name: numbers.get(name, str)(text) for name, text in line.items()}) for line in lines]
    return list({row.key: row for row in rows}.values())  # the last row of a fault that was judged again


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


def shard_of(text: str) -> tuple[int, int]:
    first, _, count = text.partition("/")
    if not (first.isdecimal() and count.isdecimal() and int(first) < int(count)):
        raise argparse.ArgumentTypeError(f"expected I/N with I below N, got {text}")
    return int(first), int(count)


def options_of(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How many planted faults the tests kill.")
    parser.add_argument("--out", type=Path, help="folder of the tables, outside of the repository")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--faults", type=int, default=210)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--tests", nargs="+", default=[], help="plant in what these files import; run no others")
    parser.add_argument("--limit", type=float, default=900.0, help="processor seconds for the tests of one fault")
    parser.add_argument("--for", dest="for_s", type=float, default=float("inf"), help="seconds after which to stop")
    parser.add_argument("--marks", default="not slow and not standin")
    parser.add_argument("--known", action="store_true", help="plant the faults of known_faults.csv")
    parser.add_argument("--near", action="store_true", help="only tests in the mirrored folder, where there are any")
    parser.add_argument(
        "--again", nargs="+", default=[], metavar="OUTCOME", help="judge the faults of these outcomes anew"
    )
    parser.add_argument("--shard", type=shard_of, default=(0, 1), metavar="I/N", help="every Nth fault from the Ith on")
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
    if options.known:
        judge_known(copy_, table := options.out / f"{commit}-known.csv")
        return read_rows(table)
    tests = sorted(path.relative_to(copy_.tree).as_posix() for path in (copy_.tree / "tests").rglob("test_*.py"))
    importers = {test: imports_of(copy_.tree, test) for test in tests}
    shard, shards = options.shard
    name = f"{commit}.csv" if shards == 1 else f"{commit}-{shard}.csv"
    table, end_s = options.out / name, time.monotonic() + options.for_s
    done = {row.key for row in read_rows(table) if row.outcome not in options.again}
    for row in faults_of(copy_.tree, options, importers)[shard::shards]:
        if row.key in done or time.monotonic() > end_s:
            continue
        lists = stages_for(row.module, importers)
        if options.tests:
            lists = [[file for file in files if file in options.tests] for files in lists]
        near = [files for files in lists if files[:1] and files[0].startswith(f"tests/{Path(row.module).parent}/")]
        append_row(table, result := judged(row, copy_, near or lists if options.near else lists))
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
