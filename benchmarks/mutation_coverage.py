"""How many planted faults the tests kill: one seeded fault at a time in a scratch copy of a commit, then its tests.

    python -m benchmarks.mutation_coverage --out DIR [--commit HEAD] [--faults 210] [--seed 22] [--near]
    python -m benchmarks.mutation_coverage --out DIR --known [--commit HEAD]

The first plants faults evenly over the packages, and writes a row for each to DIR/COMMIT.csv, or, with `--shard I/N`,
every Nth fault to DIR/COMMIT-I.csv. Started again, it goes on with those that have no row. DIR/faults.csv keeps the
choice, so that another commit gets the same faults. With `--known` the faults are those of
`benchmarks/mutations/known_faults.csv`, each against the test files of its row. `benchmarks/mutations/selection.py`
says which tests are run and in which order; with `--near` only those of the mirrored folder. A kill counts if that test
passes on the clean code.
"""

import argparse
import ast
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
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NoReturn

import pandas as pd

from benchmarks.mutations.known_faults import known_faults
from benchmarks.mutations.planted_faults import Site, planted, sites_of
from benchmarks.mutations.selection import PACKAGES, imports_of, stages_for

ROOT = Path(__file__).parents[1]
SHOWN = 60
"""Characters of a piece of code in the table."""


@dataclass(frozen=True)
class Row:
    """A fault and what became of it: killed, survived, timeout, untested (no test file) or gone (no such site)."""

    key: str
    module: str
    before: str = ""
    after: str = ""
    outcome: str = ""
    killed_by: str = ""
    seconds: float = 0.0


def row_of(site: Site) -> Row:
    before, after = (" ".join(ast.unparse(node).split())[:SHOWN] for node in (site.node, site.fault))
    return Row(site.key, site.module, before, after)


def chosen(tree: Path, count: int, seed: int) -> list[Row]:
    """So many faults, in turn of each package; within a package evenly over modules, within a module over kinds."""
    turns: list[list[Row]] = []
    for package in PACKAGES:
        pick = random.Random(f"{seed}:{package}")
        paths = sorted(path.relative_to(tree).as_posix() for path in (tree / package).rglob("*.py"))
        sites = {path: sites_of(path, (tree / path).read_text()) for path in paths if not path.endswith("__main__.py")}
        rows: list[Row] = []
        while len(rows) < math.ceil(count / len(PACKAGES)) and any(sites.values()):
            for module in pick.sample(left := [path for path in sites if sites[path]], len(left)):
                kind = pick.choice(sorted({site.kind for site in sites[module]}))
                site = pick.choice([site for site in sites[module] if site.kind == kind])
                sites[module].remove(site)
                rows.append(row_of(site))
        turns.append(rows)
    return [rows[index] for index in range(max(map(len, turns))) for rows in turns if index < len(rows)][:count]


PRELOADED = ("torch", "torchvision", "pandas", "scipy.stats", "sympy", "matplotlib.figure", "pytest")
"""Imported once, before the forks: most of the time of a small test file is spent on these."""

WALL_PER_PROCESSOR_S = 8
"""A fork that waits instead of computing ends after so many times its limit of processor time."""


def _run_in_fork(tree: Path, output: Path, limit_s: float, arguments: list[str]) -> NoReturn:
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

    code = 1
    try:
        code = int(pytest.main(["-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", "-n", "0", *arguments]))
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

    def pytest(self, *arguments: str) -> tuple[int | None, str]:
        """(exit code, or None at the limit, what it printed) of pytest in a fork; nothing that it started is left."""
        output = self.tree.with_suffix(".out")
        pid = os.fork()
        if pid == 0:
            _run_in_fork(self.tree, output, self.limit_s, ["-m", self.marks, "--timeout", "300", *arguments])
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

    def verdict(self, module: str, spoiled: str, files: list[str]) -> tuple[str, str]:
        """(outcome, the test that killed it). A test that fails on the clean code is left out, and all run again."""
        while True:
            (self.tree / module).write_text(spoiled)
            failing = [f"--deselect={test}" for test, passed in self.reliable.items() if not passed]
            code, out = self.pytest("-x", *failing, *files)
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

    def judged(self, row: Row, spoiled: str, stages: list[list[str]]) -> Row:
        """The row with its outcome: the lists of test files are run one after the other until a test fails."""
        start_s, outcomes, killer = time.monotonic(), ["untested"], ""
        for files in filter(None, stages):
            outcome, killer = self.verdict(row.module, spoiled, files)
            outcomes.append(outcome)
            if outcome == "killed":
                break
        self.restore()
        worst = min(outcomes, key=("killed", "timeout", "survived", "untested").index)
        return replace(row, outcome=worst, killed_by=killer, seconds=round(time.monotonic() - start_s, 1))


def read_rows(path: Path) -> list[Row]:
    return [Row(**row) for row in pd.read_csv(path, keep_default_na=False).to_dict("records")] if path.exists() else []


def append_rows(path: Path, *rows: Row) -> None:
    pd.DataFrame(map(asdict, rows)).to_csv(path, mode="a", header=not path.exists(), index=False)


def measure(options: argparse.Namespace, folder: Path) -> list[Row]:
    """Judge every fault that has no row yet, and return all rows."""
    command = ["git", "rev-parse", "--short", options.commit]
    commit = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    copy_, choice = Copy(folder, commit, options.limit, options.marks), options.out / "faults.csv"
    tests = sorted(path.relative_to(copy_.tree).as_posix() for path in (copy_.tree / "tests").rglob("test_*.py"))
    importers = {test: imports_of(copy_.tree, test) for test in tests}
    first, every = options.shard
    table = options.out / f"{commit}{'-known' * options.known}{f'-{first}' if every > 1 else ''}.csv"
    if options.known:
        known = {f"{fault.module}:known:{number}": fault for number, fault in enumerate(known_faults())}
        rows = [Row(key, fault.module, fault.before, fault.after) for key, fault in known.items()]
    else:
        if not choice.exists():
            append_rows(choice, *chosen(copy_.tree, options.faults, options.seed))
        rows = read_rows(choice)
    done = {row.key for row in read_rows(table)}
    for row in (row for row in rows[first::every] if row.key not in done):
        path = copy_.tree / row.module
        source = path.read_text() if path.is_file() else ""
        if options.known:
            result = copy_.judged(row, known[row.key].planted(source), [known[row.key].tests.split()])
        elif site := next((s for s in sites_of(row.module, source) if row_of(s) == replace(row, seconds=0.0)), None):
            stages = stages_for(row.module, importers)
            near = [files for files in stages if files[0].startswith(f"tests/{Path(row.module).parent}/")]
            result = copy_.judged(row, planted(source, site), near or stages if options.near else stages)
        else:
            result = replace(row, outcome="gone")
        append_rows(table, result)
        print(f"{result.outcome:9} {result.seconds:6.1f} s  {row.key}  {row.before} → {row.after}", flush=True)
    return read_rows(table)


def shard_of(text: str) -> tuple[int, int]:
    first, _, count = text.partition("/")
    if not (first.isdecimal() and count.isdecimal() and int(first) < int(count)):
        raise argparse.ArgumentTypeError(f"expected I/N with I below N, got {text}")
    return int(first), int(count)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the tables, outside of the repository")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--faults", type=int, default=210)
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--limit", type=float, default=900.0, help="processor seconds for the tests of one fault")
    parser.add_argument("--marks", default="not slow and not standin")
    parser.add_argument("--known", action="store_true", help="plant the faults of known_faults.csv")
    parser.add_argument("--near", action="store_true", help="only tests in the mirrored folder, where there are any")
    parser.add_argument("--shard", type=shard_of, default=(0, 1), metavar="I/N", help="every Nth fault from the Ith on")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a fork ends and the copy goes with it
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(options, Path(folder))
    for (package, outcome), count in sorted(Counter((row.module.split("/")[0], row.outcome) for row in rows).items()):
        print(f"{package:10} {count} {outcome}")


if __name__ == "__main__":
    main()
