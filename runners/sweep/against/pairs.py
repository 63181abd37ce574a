"""Two sides of one cell, interleaved: fresh processes in pairs, rounds of A B B A, until the ratio decides.

Each pair of processes gives one value to the sequential test (`analysis/stats/sequential.py`), so that what fresh
processes differ by is in the interval; every other pair begins with B. It stops at a look at which the whole interval
is on one side of the limit, or when its time is out. A side that fails ends the pair: the other is left to be measured
by itself.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from analysis.stats import FIRST_LOOK, OPEN, is_look, look_sizes, sequential_ratio
from analysis.utilization import block_summary, log_ratios, whole_steps
from measure.timing import Protocol, shortfall
from results.records import Cell, Sample
from runners.sweep.findings import CellFindings, CellMeasurement
from runners.workers import Stopwatch, WorkerFault

Call = Callable[..., Any]

TASK = "runners.sweep.against.task"
ORDERS = ("ABBA", "BAAB")
ROUNDS = 9
"""Of each pair of processes. Their median is its value: on a busy machine bursts meet some of them, and starting two
processes costs more than nine short rounds. More would tell more of a pair that differs from the next one anyway."""

LONGEST_FACTOR = 20
"""How many times as long as asked a block of the slower side may last, so that both sides have one number of steps."""

MOST_PAIRS = 60
CAP_S = 300.0
QUICK_CAP_S = 60.0
IN_TURN = "in_turn: blocks were interleaved with those of another process, in several processes (--against)"


@dataclass(frozen=True)
class Rules:
    """When a comparison of one cell ends.

    alarm_ratio: this cell's share. cap_s: after which no pair is begun, once there are enough for a look. timeout_s: of
    each answer, and of all pairs where they are too few.
    """

    limit_ratio: float
    alarm_ratio: float
    cap_s: float
    timeout_s: float
    most_pairs: int = MOST_PAIRS
    rounds: int = ROUNDS


@dataclass
class SideRun:
    """One side: its cell, where its files are, how its processes are asked, and what came of them so far.

    start: makes a worker; it is ended after each pair.
    """

    name: str
    cell: Cell
    root: Path
    start: Callable[[], Any]
    samples: list[Sample] = field(default_factory=list)
    findings: CellFindings = field(default_factory=CellFindings)
    warnings: list[str] = field(default_factory=list)
    wrong: str = ""
    worker: Any = None

    def call(self, task: str, *arguments: Any, timeout_s: float) -> Any:
        """What this side's process answers. Raises SideFault."""
        with inside(self.root):
            self.worker = self.worker or self.start()
            answer = self.worker.call(f"{TASK}:{task}", *arguments, timeout_s=timeout_s)
        if isinstance(answer, WorkerFault):
            raise SideFault(self.name, answer)
        return answer

    def stop(self) -> None:
        """Ends its process."""
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.stop()

    def keep(self, blocks: tuple[Sample, ...]) -> None:
        """Adds samples in the order of their time."""
        self.samples += sorted(blocks, key=lambda each: each.start_s)

    def learn(self, findings: CellFindings) -> None:
        """Adds what is known; what an earlier process said of the first step, and the largest memory, stay."""
        blank = CellFindings()
        for each in fields(findings):
            value = getattr(findings, each.name)
            if value == getattr(blank, each.name):
                continue
            known = getattr(self.findings, each.name)
            if each.name.endswith("_bytes") and known is not None:
                value = max(known, value)
            elif each.name in ("warmup_steps", "warmup_s") and known is not None:
                value = known + value
            self.findings = replace(self.findings, **{each.name: value})


class SideFault(Exception):
    """A side's process ended, or raised."""

    def __init__(self, side: str, fault: WorkerFault) -> None:
        super().__init__(fault.reason)
        self.side, self.fault = side, fault


@contextlib.contextmanager
def inside(root: Path) -> Iterator[None]:
    """Processes that are started in the block begin in `root`, and import from there what else they would find here.

    The folder that this program itself is imported from stays where it is.
    """
    here, paths = Path.cwd(), list(sys.path)
    own = Path(__file__).resolve().parents[3]
    if root != here and here != own:
        sys.path[:] = [str(root) if path in ("", str(here)) else path for path in paths]
    try:
        with contextlib.chdir(root):
            yield
    finally:
        sys.path[:] = paths


def least_interleaved_s(protocol: Protocol, rules: Rules) -> float:
    """Seconds that a comparison of one cell takes if the first look decides: warming up and rounds of both sides."""
    of_a_side_s = protocol.warm_min_s + rules.rounds * len(ORDERS[0]) / 2 * protocol.block_s
    return min(FIRST_LOOK, rules.most_pairs) * 2 * of_a_side_s


def time_interleaved(
    a: SideRun,
    b: SideRun,
    protocol: Protocol,
    rules: Rules,
    say: Callable[[str], None],
    revise: Callable[[float], None] = lambda left_s: None,
) -> str:
    """Fills both sides with blocks; what was decided, in a few words. Raises SideFault for a side that failed.

    revise: called after each pair with the seconds to the next look.
    """
    clock, longest_s = Stopwatch(), 0.0
    interval = ""
    for pair in range(rules.most_pairs):
        began_s = clock.elapsed_s
        try:
            _one_pair(a, b, protocol, rules, pair)
        finally:
            a.stop()
            b.stop()
        longest_s = max(longest_s, clock.elapsed_s - began_s)
        values = log_ratios(_numbered(a.samples), _numbered(b.samples))
        cap_s = rules.cap_s if len(values) >= FIRST_LOOK else rules.timeout_s
        ended = pair + 1 == rules.most_pairs or clock.elapsed_s + longest_s > cap_s
        found = sequential_ratio(values, rules.alarm_ratio, out_of_time=ended)
        if found is not None:
            low, high = (f"{ratio - 1:+.1%}" if ratio <= 100 else "> +9900%" for ratio in (found.low, found.high))
            interval = f"{low} to {high} after {len(values)} pairs of processes"
            say(interval)
            if (ended or is_look(len(values))) and found.beyond(rules.limit_ratio) != OPEN:
                return interval
        if ended:
            break
        revise(_to_next_look(len(values), rules) * clock.elapsed_s / (pair + 1))
    return f"undecided: {interval or f'{pair + 1} pairs of processes are too few'}"


def _to_next_look(pairs: int, rules: Rules) -> int:
    """How many more pairs of processes there are at least before the next look, or the last pair."""
    return next((size for size in look_sizes(rules.most_pairs) if size > pairs), rules.most_pairs) - pairs


def _one_pair(a: SideRun, b: SideRun, protocol: Protocol, rules: Rules, pair: int) -> None:
    """A process of each side, warmed up one after the other, then rounds of blocks with one number of steps."""
    sides = {"A": a, "B": b}
    order = ORDERS[pair % 2]
    asked: list[int] = []
    warmed: dict[str, tuple[Sample, ...]] = {}
    for name in dict.fromkeys(order):
        side = sides[name]
        start = side.call("begin", side.cell, protocol, pair == 0, timeout_s=rules.timeout_s)
        side.learn(start.findings)
        asked.append(start.steps)
        warmed[name] = start.warmup
        if not start.steady and (words := f"not_steady: warming up ended at its cap of {protocol.warm_cap_s:.3g} s"):
            side.warnings += [words] if words not in side.warnings else []
    blocks: dict[str, list[Sample]] = {"A": [], "B": []}
    steps = common_steps(asked)
    for _ in range(rules.rounds):
        for name in order:
            blocks[name].append(sides[name].call("block", steps, timeout_s=rules.timeout_s))
    for name, side in sides.items():
        ended = side.call("end", timeout_s=rules.timeout_s)
        side.learn(ended.findings)
        side.wrong = side.wrong or ended.wrong
        side.keep((*warmed[name], *blocks[name], *ended.suspended))


def common_steps(asked: Sequence[int]) -> int:
    """The number of steps of every block of a pair, from what the warm-up of each side asks for.

    On a busy machine a warm-up may meet a burst and ask for too few steps, whose time is then that of the burst: the
    larger number counts, up to LONGEST_FACTOR times the smaller one.
    """
    return min(max(asked), LONGEST_FACTOR * min(asked))


def measurement_of(side: SideRun, protocol: Protocol) -> CellMeasurement:
    """A side's row and blocks, as of a run by itself: converged where its own interval is as narrow as is asked."""
    samples = _numbered(side.samples)
    blocks = whole_steps(samples)
    summary = block_summary(blocks, protocol.interval_rule)
    missing = shortfall(blocks, summary, protocol)
    status, reason = ("not_converged", f"its own times: {missing}") if missing else ("ok", "")
    if side.wrong:
        status, reason = "invalid", f"flags read back after the cell disagree with the precision: {side.wrong}"
    last = blocks[-1]
    found = replace(
        side.findings,
        window_start_s=blocks[0].start_s,
        window_end_s=last.start_s + last.wall_s,
        interval_rule=protocol.interval_rule,
    )
    return CellMeasurement(status, reason, tuple(samples), (IN_TURN, *side.warnings), found)


def _numbered(samples: list[Sample]) -> list[Sample]:
    return [replace(sample, index=index) for index, sample in enumerate(samples)]
