"""Gates of rows by themselves: values that a column can hold, statuses that fit, warnings that the rows demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from analysis.devices import telemetry
from analysis.utilization import block_means_s, blocks_of, whole_steps
from cleaning.facts import BUSY_RATIO, WARM_RATIO, kind_of, narrowness
from cleaning.facts.values import faults
from cleaning.gates.evidence import Evidence
from cleaning.gates.finding import RUN, Finding
from results.records import MEASURED, Record, Run, Sample
from results.store import key_of

SHOWN = 3
"""Faults of one cell that its words name."""

WORKS = ("one", "last")
"""Works that have blocks of their own, and a warning of their own where those did not converge."""


def values(evidence: Evidence) -> Iterator[Finding]:
    """Every value of every raw row: its kind, its least, its words."""
    for cell_id, words in evidence.malformed.items():
        yield Finding(cell_id, False, words)
    for rows in (evidence.data.sittings, evidence.data.ceilings):
        found = [words for row in rows for words in faults(row)]
        yield Finding(RUN, not found, _some(found))
    for run in evidence.data.runs:
        key = key_of(run)
        parts: tuple[Sequence[Record], ...] = ([run], evidence.samples.get(key, ()), evidence.telemetry.get(key, ()))
        found = [words for part in (*parts, evidence.counts.get(key, ())) for row in part for words in faults(row)]
        yield Finding(run.cell_id, not found, _some(found))


def _some(words: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(words))
    return "; ".join(distinct[:SHOWN]) + (f" and {len(distinct) - SHOWN} more" if len(distinct) > SHOWN else "")


def statuses(evidence: Evidence) -> Iterator[Finding]:
    """ok: narrow by the raw blocks, without a reason. not_converged: with one, and not narrow. Others: no blocks."""
    for run in evidence.data.runs:
        words = _status(run, evidence.samples.get(key_of(run), ()))
        yield Finding(run.cell_id, not words, words)


def _status(run: Run, samples: Sequence[Sample]) -> str:
    blocks = whole_steps(samples)
    if run.status not in MEASURED:
        fault = "" if run.reason else f"{run.status} without a reason"
        return f"{run.status}, but it has {len(blocks)} measured blocks" if blocks else fault
    if not blocks:
        return f"{run.status}, but it has no measured block"
    narrow, shown = narrowness(run, blocks, samples)
    if run.status == "ok":
        if not narrow:
            return f"ok, by its blocks {shown}: not_converged"
        return f"ok with a reason: {run.reason}" if run.reason else ""
    return "" if run.reason else "not_converged without a reason"


def warnings(evidence: Evidence) -> Iterator[Finding]:
    """What the rows of a cell demand a warning for, and whether it has it."""
    for run in evidence.measured_cells:
        demanded = dict(_demanded(evidence, run))
        lacking = [
            f"no warning {mark!r}: {why}"
            for mark, why in demanded.items()
            if not any(each.startswith(mark) for each in run.warnings)
        ]
        idle = run.others_cpu_ratio is not None and "busy:" not in demanded
        lacking += [f"a warning without cause: {mark}" for mark in run.warnings if idle and mark.startswith("busy:")]
        if "suspended:" not in demanded:
            lacking += [f"a warning without cause: {mark}" for mark in run.warnings if mark.startswith("suspended:")]
        yield Finding(run.cell_id, not lacking, "; ".join(lacking))


def _demanded(evidence: Evidence, run: Run) -> Iterator[tuple[str, str]]:
    """(how the warning begins, why it must be there)."""
    samples = evidence.samples.get(key_of(run), ())
    if run.others_cpu_ratio is not None and run.others_cpu_ratio >= BUSY_RATIO:
        yield "busy:", f"others used {100 * run.others_cpu_ratio:.2g} % of the processors"
    if run.last_loss is None and run.first_loss is not None:
        yield "loss:", "the last loss is unknown, the first is not"
    if count := sum(each.part == "suspended" for each in samples):
        yield "suspended:", f"{count} of its blocks are marked so"
    if count := sum(each.part == "disturbed" and not each.work for each in samples):
        yield "disturbed:", f"{count} of its blocks are marked so"
    if count := sum(each.part == "moved" and not each.work for each in samples):
        yield "moved:", f"{count} of its blocks are marked so"
    if run.paired_ceiling and run.status == "ok" and not narrowness(run, whole_steps(samples))[0]:
        yield "step_time:", narrowness(run, whole_steps(samples))[1]
    if apart := _unsteady(run, samples):
        yield "not_steady:", apart
    for work in WORKS:
        blocks = blocks_of(samples, work)
        if blocks and not narrowness(run, blocks)[0]:
            yield f"{work}:", narrowness(run, blocks)[1]
    start_s, end_s = run.window_start_s, run.window_end_s
    polls = evidence.telemetry.get(key_of(run), ())
    if polls and start_s is not None and end_s is not None and end_s > start_s:
        reason = telemetry.energy(polls, start_s, end_s).reason
        if reason and any(poll.energy_j is not None or poll.power_w is not None for poll in polls):
            yield "energy:", reason
    if run.input_pipeline:
        yield "input_pipeline:", "its phase optimizer holds the wait for the batch"


def _unsteady(run: Run, samples: Sequence[Sample]) -> str:
    """How far apart the last two blocks of the warm-up are, where that is too far; the first block does not count."""
    blocks = [s for s in samples if s.part == "warmup" and not s.work and s.steps > 0][1:]
    if len(blocks) < 2:
        return "" if not blocks else "its warm-up has one block beside the first"
    means_s = block_means_s(blocks)
    (before_s, after_s), *_ = list(pairwise(means_s))[-1:]
    apart = abs(after_s / before_s - 1) if before_s > 0 else 0.0
    allowed = WARM_RATIO[kind_of(run)]
    return f"the last blocks of its warm-up differ by {100 * apart:.2g} %" if apart > allowed else ""
