"""Gate of the timed blocks of a cell: their order, numbers of steps, times on both clocks, and phases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from analysis.utilization import ASIDE, block_means_s, in_one_placement, is_disturbed, whole_steps
from cleaning.facts import (
    BLOCK_S,
    MIN_TIME_S,
    QUICK,
    WARM_BLOCK_S,
    kind_of,
    narrowness,
    steps_after,
    steps_for,
)
from cleaning.gates.evidence import Evidence
from cleaning.gates.finding import Finding
from results.records import LOOP, PHASES, Run, Sample
from results.store import key_of

SAME = 1e-6
"""Relative difference of two numbers that are one sum apart."""

ENDS = ("warmup", "measure")
"""What a cell's own blocks begin and end with."""

TIMED = (*ENDS, *ASIDE)
"""Parts of blocks that follow each other, each with steps by the time of the one before."""

LEAD_IN_STEPS = 1
"""Untimed steps of a CUDA block, whose device work the host may still wait for while the block is timed."""

LATENCY_S = 0.005
"""What starting and ending a block may take beside its device work."""


def blocks(evidence: Evidence) -> Iterator[Finding]:
    """Samples of each cell: numbered from 0, in the order of time, warm-up first, device time what the host saw."""
    for run in evidence.measured_cells:
        rows = evidence.samples.get(key_of(run), ())
        if rows:
            words = next(itertools.chain(_blocks(run, rows), _paired(evidence, run, rows)), "")
            yield Finding(run.cell_id, not words, words)


def _paired(evidence: Evidence, run: Run, rows: Sequence[Sample]) -> Iterator[str]:
    """Kernels between the cell's blocks: of the session's ceilings, with their FLOP; none where none was asked for."""
    known = {
        (row.unit, f"{row.operation} {row.shape} {row.layout}".strip()): row.flop
        for row in evidence.data.ceilings
        if (row.sitting, row.device, row.precision) == (run.sitting, run.device, run.precision)
    }
    for row in (row for row in rows if row.part == "ceiling"):
        if not run.paired_ceiling:
            yield f"block {row.index} is of a kernel, and no paired ceiling was asked for"
        flop = known.get((row.unit, row.kernel))
        if flop is None or row.flop != flop * row.steps:
            yield f"block {row.index}: {row.flop} FLOP in {row.steps} calls of {row.kernel}, of which one has {flop}"


def _blocks(run: Run, rows: Sequence[Sample]) -> Iterator[str]:
    if [row.index for row in rows] != list(range(len(rows))):
        yield "its blocks are not numbered from 0 without a gap"
    on_cuda = kind_of(run) == "cuda"
    for row in rows:
        words = _block(row, on_cuda, first=row is rows[0], waited=run.data != LOOP)
        yield from (f"block {row.index}: {each}" for each in words)
    if any(after.start_s < before.start_s for before, after in itertools.pairwise(rows)):
        yield "its blocks are not in the order of time"
    span_s = rows[-1].start_s - rows[0].start_s
    if run.duration_s is not None and span_s > run.duration_s * (1 + SAME):
        yield f"its blocks begin over {span_s:.4g} s, the cell took {run.duration_s:.4g} s"
    yield from _order(run, rows)
    yield from _placed(run, rows)
    yield from _phases(run, rows)


def _block(row: Sample, on_cuda: bool, first: bool, waited: bool) -> Iterator[str]:
    """One block by itself. first: of the warm-up, which may compile and search algorithms. waited: for the device."""
    if row.part == "suspended":
        return  # its times are of a process that did not run
    if row.part == "disturbed" and not is_disturbed(row):
        where = "on a GPU" if on_cuda else f"with a wait of {row.run_wait_s} s of {row.wall_s:.4g} s for a processor"
        yield f"marked as disturbed {where}"
    if (row.part == "ceiling") != bool(row.unit and row.kernel and row.flop):
        yield f"part {row.part} of the kernel {row.kernel!r}, {row.flop} FLOP on {row.unit!r}"
    if (row.part == "phase") != bool(row.phase):
        yield f"part {row.part} of phase {row.phase!r}"
    if (row.device_s is not None) != on_cuda:
        yield f"device time {row.device_s} on a {'GPU' if on_cuda else 'CPU'}"
    if row.part == "profiled" and row.steps != 1:
        yield f"{row.steps} steps under a profiler, which takes one at a time"
    if row.part == "phase" or row.work == "epoch" or row.device_s is None:
        return
    if row.sync_wait_s is None:
        yield from ["no wait for the device"] if waited else []
    elif row.sync_wait_s > row.wall_s * (1 + SAME):
        yield f"waited {row.sync_wait_s:.4g} s of {row.wall_s:.4g} s"
    lead_in_s = row.device_s / row.steps * LEAD_IN_STEPS if row.part == "measure" else 0.0
    late = row.wall_s > 1.02 * row.device_s + lead_in_s + LATENCY_S and not first and row.part != "profiled"
    if late or row.device_s > 1.02 * row.wall_s:
        yield f"{row.wall_s:.4g} s on the host, {row.device_s:.4g} s on the device"


def _order(run: Run, rows: Sequence[Sample]) -> Iterator[str]:
    """Warm-up before measured blocks, none overlapping, for the cell's own steps and those of each other work."""
    for work in dict.fromkeys(row.work for row in rows):
        mine = [_as_measured(row) for row in rows if row.work == work and row.part in TIMED and work != "epoch"]
        parts = [row.part for row in mine]
        if parts != sorted(parts, reverse=True) and not (_is_interleaved(run) and (parts[0], parts[-1]) == ENDS):
            yield f"{work or 'steps'}: a warm-up after measured blocks"
        if not any(part == "warmup" for part in parts) and mine:
            yield f"{work or 'steps'}: no warm-up"
        if "warmup" in parts and "measure" not in parts:
            yield f"{work or 'steps'}: a warm-up, and nothing measured after it"
        for before, after in itertools.pairwise(mine):
            if after.start_s < before.start_s + before.wall_s * 0.98:
                yield f"block {after.index} begins before block {before.index} ended"
        if run.data == LOOP:  # a user's loop has blocks as long as it lasted
            continue
        if kind_of(run) != "cuda":  # a shared processor is slower now and then; on a GPU this would be too fine
            yield from (f"{work or 'steps'}: {words}" for words in _steps(run, mine))
            continue
        means = block_means_s([row for row in mine if row.part == "measure"])
        middle = median(means) if means else 0.0
        far = [mean for mean in means if mean > OUTLIER * middle or mean < middle / OUTLIER]
        if len(means) >= ENOUGH and far:
            yield f"{work or 'steps'}: a block of {far[0]:.4g} s a step, the median is {middle:.4g} s"


def _placed(run: Run, rows: Sequence[Sample]) -> Iterator[str]:
    """Where blocks are marked as of another placement of the processors, or should be since those of one placement are
    enough, the used ones are the undisturbed ones of the placement that has most of them."""
    mine = [row for row in rows if _is_own(row)]
    one = in_one_placement(mine)
    if not any(row.part == "moved" for row in mine) and not _is_enough(run, one, rows):
        return
    used = [row.index for row in mine if row.part == "measure"]
    right = [row.index for row in one]
    if used != right:
        other = sorted({*used} ^ {*right})
        yield f"block {other[0]} is {'used' if other[0] in used else 'not used'} against the placement of most blocks"


def _is_enough(run: Run, one: Sequence[Sample], rows: Sequence[Sample]) -> bool:
    """Whether blocks of one placement meet the rules without the others of all rows; False where the rules of a run are
    not known so well: of a quick one, of a loop, of blocks interleaved with those of another side."""
    placed = all(row.core_round_trip_s for row in one)
    if not placed or run.quick or run.data == LOOP or _is_interleaved(run) or len(one) < 2:
        return False
    measured_s, used = sum(device_s(row) for row in one), {row.index for row in one}
    as_used = [replace(row, part="measure" if row.index in used else "moved") if _is_own(row) else row for row in rows]
    return measured_s >= MIN_TIME_S[kind_of(run)] and narrowness(run, one, as_used)[0]


def _is_own(row: Sample) -> bool:
    """Whether it is a block of the cell's own whole steps after its warm-up."""
    return row.part in ("measure", *ASIDE) and not row.work and not row.phase


def _as_measured(row: Sample) -> Sample:
    """A block that is not used as the measured one that it was in the order of blocks."""
    return replace(row, part="measure") if row.part in ASIDE else row


def _is_interleaved(run: Run) -> bool:
    """Whether several processes timed the cell, interleaved with another side (`sweep --against`): each warms up."""
    return any(warning.startswith("in_turn: ") for warning in run.warnings)


def _steps(run: Run, rows: Sequence[Sample]) -> Iterator[str]:
    """How many steps a block has follows from the time of a step in the block before it. Blocks interleaved with
    another side's all have one number of steps, which follows from the warm-ups of both processes (`_common`)."""
    share, interleaved = QUICK if run.quick else 1, _is_interleaved(run)
    for before, after in itertools.pairwise(rows):
        step_s = device_s(before) / before.steps
        if interleaved and before.part == "measure":
            steps = 1 if after.part == "warmup" else before.steps
        elif after.part == "warmup":
            steps = steps_for(WARM_BLOCK_S / share, step_s)
        elif before.part == "warmup":
            steps = steps_for(BLOCK_S / share, step_s)
        else:
            steps = steps_after(BLOCK_S / share, before.steps, step_s)
        in_common = interleaved and (before.part, after.part) == ("warmup", "measure")
        if after.steps != steps and not (in_common and _common(after.steps, steps)):
            yield f"block {after.index} has {after.steps} steps, {steps} by the block before it"
    if rows and rows[0].part == "warmup" and rows[0].steps != 1:
        yield f"its warm-up begins with {rows[0].steps} steps"


LONGEST_FACTOR = 20
"""How many times as long as asked an interleaved block may last, as in `runners/sweep/against/pairs.py`."""


def _common(steps: int, own: int) -> bool:
    """Whether two sides may have this number of steps in common where the warm-up of this one asks for `own`: the
    larger of both, up to LONGEST_FACTOR times the smaller one."""
    return own < steps <= LONGEST_FACTOR * own or (steps < own and steps % LONGEST_FACTOR == 0)


OUTLIER, ENOUGH = 1.9, 5
"""A block on a GPU that is this many times slower or faster than the median of at least so many is none of them."""


def _phases(run: Run, rows: Sequence[Sample]) -> Iterator[str]:
    """The phases of a step, in a pass of their own, add up to about a step."""
    split = [row for row in rows if row.part == "phase" and not row.work]
    whole = whole_steps(rows)
    if not split or not whole:
        return
    step_s, (low, high) = median(block_means_s(whole)), PHASES_SUM[kind_of(run)]
    passes: dict[float, list[Sample]] = {}
    totals: list[float] = []
    for row in split:
        passes.setdefault(row.start_s, []).append(row)
    order = [row.phase for row in next(iter(passes.values()))]
    later = order[1:] + order[:1] if order[0] == "optimizer" else order  # zeroing gradients is of the optimizer
    if not {"forward", "backward"} <= set(order) or later != sorted(order, key=PHASES.index):
        yield f"phases in the order {', '.join(order)}"
    for each in passes.values():
        if [row.phase for row in each] != order or len({row.steps for row in each}) > 1:
            yield f"block {each[0].index}: phases {', '.join(row.phase for row in each)}"
        total_s = sum(map(device_s, each)) / each[0].steps
        totals.append(total_s)
        if kind_of(run) == "cuda" and not low * step_s <= total_s <= high * step_s:
            yield f"its phases take {total_s:.4g} s together, a step {step_s:.4g} s"
    if not low * step_s <= median(totals) <= high * step_s:
        yield f"its phases take {median(totals):.4g} s together, a step {step_s:.4g} s"
    if len(passes) > 1 and len(split) != len(passes) * len(order):
        yield "its phases are not as many in each block"


PHASES_SUM = {"cuda": (0.8, 1.25), "cpu": (0.6, 1.7)}
"""What the phases of a step may take together, in steps: their marks cost a little, a shared CPU varies by more."""


def device_s(row: Sample) -> float:
    return row.wall_s if row.device_s is None else row.device_s
