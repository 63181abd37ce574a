"""What do random kills of a sweep's processes cost?

    python -m benchmarks.endurance.kills --kills 1000 --state kills.jsonl     # goes on where it stopped

A round is one run of a few cells. Its sweep is started, one of its processes gets SIGKILL at a random moment (the
parent, the worker that measures, the one that traces, a counter's, the server that forks them, or all), and the sweep
is started again with `--resume --retry-failed` whenever it ended. When the round has had its kills, the sweep is
resumed undisturbed. Three things have to hold: nothing that was committed is lost or measured again, no process
outlives its parent, and at the end each number that does not depend on time is equal to that of an undisturbed run.

A line of --state is a finished round; a round that was interrupted is begun again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from results.records import MEASURED, FlopCount
from results.store import read_run

ROOT = Path(__file__).parents[2]

WORDS = (
    "--device", "cpu", "--quick", "--target-ci", "0.9", "--repeat", "1", "--models", "synthetic_convolution",
    "--counters", "fvcore,flop_counter_mode", "--batch-sizes",
)  # fmt: skip
"""The shortest cells that have a worker, a tracer and counters: a second or two each."""

SIZES = ("1", "2", "3", "4", "5", "6")

ROLES = ("parent", "measure", "trace", "counter", "server", "all")
"""What is killed, each as often as the others."""

LONGEST_WAIT_S = {"parent": 10.0, "server": 10.0, "all": 10.0, "measure": 2.0, "trace": 0.6, "counter": 0.6}
"""A kill comes at a moment between 0 and this after its process was first seen."""

ABSENT_S = 20.0
"""How long a process that is to be killed is waited for; another role takes its place afterwards."""

GONE_S = 120.0
"""How long what a dead parent started may take to end."""

END_S = 3600.0

NOT_EXACT = ("attempt", "duration_s", "peak_memory_bytes", "index")
"""Columns of the counters' rows that differ between two undisturbed runs."""

EXACT_RUN = (
    "model",
    "batch_size",
    "precision",
    "hyper",
    "trace_id",
    "parameters",
    "items_per_step",
    "executed",
    "status",
)
"""Columns of runs.csv that do not depend on time; of a status it is said whether the cell is measured."""


@dataclass
class Round:
    """What a round did. kills: of each role; starts: of the sweep; problems: what did not hold."""

    number: int
    kills: dict[str, int] = field(default_factory=dict)
    starts: int = 0
    seconds: float = 0.0
    problems: list[str] = field(default_factory=list)


class Family:
    """A sweep in a session of its own, and all processes that were seen to belong to it."""

    def __init__(self, words: Sequence[str], folder: Path, log: Path) -> None:
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
        self._log = log.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "runners.sweep", *words],
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        self.members: dict[int, psutil.Process] = {}

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def role(self, wanted: str) -> psutil.Process | None:
        """The living process of this role, if there is one now."""
        found = None
        for child in self.meet():
            if role_of(child) == wanted:
                found = child
        return psutil.Process(self.process.pid) if wanted in ("parent", "all") and not self.ended else found

    def meet(self) -> list[psutil.Process]:
        """Learns which processes belong to it by now."""
        try:
            children: list[psutil.Process] = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            children = []
        self.members.update({child.pid: child for child in children})
        return children

    def survivors(self) -> list[int]:
        """Those that still live some time after the parent's end."""
        end_s = time.monotonic() + GONE_S
        while alive := [pid for pid, member in self.members.items() if _lives(member)]:
            if time.monotonic() > end_s:
                return alive
            time.sleep(0.05)
        return []

    def close(self) -> None:
        for member in self.members.values():
            _kill(member)
        self.process.kill()
        self.process.wait()
        self._log.close()


def role_of(process: psutil.Process) -> str:
    """Which of a sweep's processes this is, by the file that takes what it prints; "" for one of no role."""
    try:
        words = process.cmdline()
        if any("multiprocessing.forkserver" in word for word in words) and process.parent() is not None:
            noise = Path(os.readlink(f"/proc/{process.pid}/fd/1")).name
            kind, _, rest = noise.partition("-")
            return {"worker": rest.partition("-")[0], "counter": "counter"}.get(kind, "server")
    except (psutil.Error, OSError):
        pass
    return ""


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _kill(process: psutil.Process) -> bool:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return False
    return True


def strike(family: Family, role: str, chance: random.Random) -> bool:
    """Waits for a process of this role, then a random moment, then kills it; False where it never came or had ended."""
    end_s = time.monotonic() + ABSENT_S
    while (victim := family.role(role)) is None:
        if family.ended or time.monotonic() > end_s:
            return False
        time.sleep(0.05)
    moment_s = time.monotonic() + chance.uniform(0, LONGEST_WAIT_S[role])
    while time.monotonic() < moment_s and not family.ended:
        family.meet()
        time.sleep(0.05)
    if family.ended or not _lives(victim):
        return False
    if role == "all":
        family.meet()
        return all([_kill(victim), *map(_kill, family.members.values())][:1])
    return _kill(victim)


def words_of(run: Path, sizes: Sequence[str]) -> list[str]:
    """The sweep's words: to begin, or to go on."""
    if (run / "manifest.json").exists():
        return ["--resume", str(run), "--retry-failed"]
    return [*WORDS, ",".join(sizes), "--out", str(run)]


def play(number: int, kills: int, folder: Path, seed: int, sizes: Sequence[str] = SIZES) -> Round:
    """One round of so many kills in a folder of its own; at its end the run is there, finished."""
    chance, run, log = random.Random(f"{seed} {number}"), folder / "run", folder / "said.txt"
    done, began_s, kept = Round(number), time.monotonic(), dict[str, int]()
    tally = Counter[str]()
    while tally.total() < kills and not (done.starts and _finished(run, sizes)):
        family = Family(words_of(run, sizes), folder, log)
        done.starts += 1
        try:
            while tally.total() < kills and not family.ended:
                role = chance.choice(ROLES)
                tally[role] += strike(family, role, chance)
                if role in ("parent", "all"):
                    break
            if tally.total() >= kills or family.ended or role not in ("parent", "all"):
                family.process.wait(END_S)
            else:
                family.process.wait(GONE_S)
            if alive := family.survivors():
                done.problems.append(f"start {done.starts}: {len(alive)} processes outlived their parent")
        finally:
            family.close()
        kept = _kept(run, kept, done.problems)
    _finish(run, folder, log, done, sizes)
    _kept(run, kept, done.problems)
    done.kills, done.seconds = dict(sorted((+tally).items())), time.monotonic() - began_s
    return done


def _finish(run: Path, folder: Path, log: Path, done: Round, sizes: Sequence[str]) -> None:
    """Resumes the run undisturbed. One more time is allowed: a cell may have failed for the machine's load."""
    for _ in range(3):
        family = Family(words_of(run, sizes), folder, log)
        done.starts += 1
        try:
            code = family.process.wait(END_S)
        finally:
            family.close()
        if code == 0 and _finished(run, sizes):
            return
    done.problems.append(f"not finished when undisturbed: exit code {code}; {log.read_text(errors='replace')[-400:]}")


def _finished(run: Path, sizes: Sequence[str]) -> bool:
    """Whether every cell is measured and has its table."""
    if not (run / "manifest.json").exists():
        return False
    measured = [each for each in read_run(run).runs if each.status in MEASURED and each.trace_id]
    return len(measured) == len(sizes)


def _kept(run: Path, before: Mapping[str, int], problems: list[str]) -> dict[str, int]:
    """cell → attempt, of the cells that lack nothing; adds what was lost or measured again, and what is damaged.

    A measured cell that lacks its trace or a count may be measured again.
    """
    if not (run / "manifest.json").exists():
        if before:
            problems.append("the manifest is lost")
        return {}
    data = read_run(run)
    problems += [line for line in data.problems if not line.endswith(("was dropped", "committed, left out"))]
    problems += [f"damaged: {name}" for name in sorted(data.damaged)]
    lacking = {row.cell_id for row in data.records(FlopCount) if row.status != "ok"}
    measured = [each for each in data.runs if each.status in MEASURED]
    now = {each.cell_id: each.attempt for each in measured if each.trace_id and each.cell_id not in lacking}
    problems += [f"{cell} is lost" for cell in before if cell not in {each.cell_id for each in measured}]
    problems += [f"{cell} was measured again" for cell in before if now.get(cell, before[cell]) != before[cell]]
    return now


def exact(run: Path) -> dict[str, Any]:
    """Every number of a run that does not depend on time: rows of cells, of counters, and tables of operations."""
    data = read_run(run)
    found: dict[str, Any] = {}
    for each in data.runs:
        row = {name: getattr(each, name) for name in EXACT_RUN}
        found[f"cell {each.cell_id}"] = repr({**row, "status": each.status in MEASURED})
    counts = [
        {key: value for key, value in asdict(row).items() if key not in NOT_EXACT} for row in data.records(FlopCount)
    ]
    found["the counters' rows"] = sorted(map(repr, counts))
    tables = sorted((run / "operations").glob("*.csv.gz"))
    return found | {table.name: gzip.decompress(table.read_bytes()) for table in tables}


def differences(run: Path, undisturbed: Mapping[str, Any]) -> list[str]:
    """The exact numbers that differ, by name."""
    mine = exact(run)
    return [f"{name} differs" for name in sorted({*mine, *undisturbed}) if mine.get(name) != undisturbed.get(name)]


def rounds(
    kills: int, each: int, seed: int, state: Path | None, say: Callable[[str], None], sizes: Sequence[str] = SIZES
) -> list[Round]:
    """Plays until so many kills are done, those of earlier calls with the same state among them."""
    done = _earlier(state)
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        base = Path(name)
        whole = play(-1, 0, _folder(base, "undisturbed"), seed, sizes)
        if whole.problems:
            raise RuntimeError(f"the undisturbed run has problems: {whole.problems}")
        undisturbed = exact(base / "undisturbed/run")
        while (left := kills - sum(sum(one.kills.values()) for one in done)) > 0:
            number = max((one.number for one in done), default=-1) + 1
            folder = _folder(base, f"round-{number}")
            played = play(number, min(each, left), folder, seed, sizes)
            played.problems += differences(folder / "run", undisturbed)
            done.append(played)
            if state:
                with state.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(played)) + "\n")
            told = f"{played.starts} starts, {played.seconds:.0f} s; {played.problems or 'all held'}"
            say(f"round {number}: {played.kills}, {told}")
            shutil.rmtree(folder)
    return done


def _folder(base: Path, name: str) -> Path:
    (base / name).mkdir()
    return base / name


def _earlier(state: Path | None) -> list[Round]:
    if state is None or not state.exists():
        return []
    return [Round(**json.loads(line)) for line in state.read_text(encoding="utf-8").splitlines()]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1_000)
    parser.add_argument("--each", type=int, default=20, help="kills of one run (20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--state", type=Path, help="a file that keeps finished rounds")
    options = parser.parse_args(arguments)
    done = rounds(options.kills, options.each, options.seed, options.state, lambda line: print(line, flush=True))
    tally = sum((Counter(one.kills) for one in done), Counter[str]())
    problems = [f"round {one.number}: {line}" for one in done for line in one.problems]
    print(f"{tally.total()} kills in {len(done)} runs: {dict(sorted(tally.items()))}")
    print(f"{len(problems)} problems")
    for line in problems:
        print(f"  {line}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
