"""Gates that a published run must pass: each asks one thing that a number can be wrong by, and names the cells.

`judge` goes through GATES in their order. A cell that failed a gate is not asked by those that lean on it (`after`), so
that one fault turns one gate red, its cause, and not everything that was calculated with it. A gate that finds
nothing to ask is open, never passed: a CPU has no clock telemetry, a run of one batch no law in the batch.

How to add one is in CONTRIBUTING.md. Passing all of them proves no number right; each is a fault excluded.
"""

from collections.abc import Iterable
from dataclasses import replace

from cleaning.gates import counts, device, times
from cleaning.gates.evidence import FAULTS, RUN, Evidence, Finding, Gate
from results.records.answers import FAIL, OPEN, PASS, Verdict

_TABLE = ("committed", "operations_once")
_COUNTED = (*_TABLE, "batch", "executed", "backward_forward")
_TIMED = ("committed", "synchronised", "possible_time")

GATES: tuple[Gate, ...] = (
    Gate(
        "committed",
        "every row is committed, is what was committed, and holds values that its columns can hold",
        device.committed,
        "a measured cell",
    ),
    Gate(
        "one_machine",
        "sessions agree in device, driver branch, torch and peaks, and were measured by committed code; on a GPU, by a "
        "known commit",
        device.one_machine,
        "a session",
    ),
    Gate(
        "hardware",
        "no session was on a stand-in device, which computes nothing",
        device.hardware,
        "a session",
    ),
    Gate(
        "self_test",
        "the run's self-test passed, on its device and by its driver, torch and code",
        device.self_test,
        "self_test.json: python -m runners.doctor --self-test --write DIR",
        on=("cuda",),
    ),
    Gate(
        "operations_once",
        "the operation table has each call once: no gap in its numbers, no product twice",
        counts.operations_once,
        "an operation table",
        ("committed",),
    ),
    Gate(
        "batch",
        "the batch in the operation table's shapes, and the items a step, are those of the cell",
        counts.batch,
        "an operation table that begins with a batch",
        _TABLE,
    ),
    Gate(
        "executed",
        "one real step on the device ran the model FLOP of the table, by kind and dtype",
        counts.executed,
        "a real step that was counted on the device",
        (*_TABLE, "batch"),
    ),
    Gate(
        "flags",
        "flags before and after each cell, its units, and the dtypes of its products are those of its precision",
        device.precision,
        "flags that were read back, or a real step that was counted on the device",
        ("committed", "executed"),
    ),
    Gate(
        "backward_forward",
        "backward FLOP is exactly what the forward pass of this model implies",
        counts.backward_forward,
        "an operation table with weights, of convolutions and matrix products alone",
        _TABLE,
    ),
    Gate(
        "affine",
        "exact counts are slope × batch + constant in integers, over at least three batch sizes",
        counts.affine,
        "three batches of one model",
        _COUNTED,
    ),
    Gate(
        "conventions",
        "no counter's forward products are twice or half the exact count: a multiply-add is 2 FLOP",
        counts.conventions,
        "a counter beside an exact count",
        _COUNTED,
    ),
    Gate(
        "profiles",
        "cleaned profiles have the exact count, forward and backward",
        counts.profiles,
        "a profile beside an exact count",
        _COUNTED,
        on=(),
    ),
    Gate(
        "synchronised",
        "blocks of steps and of a paired ceiling do not overlap, end after their device work and lie in the window",
        times.synchronised,
        "timed blocks",
        ("committed",),
    ),
    Gate(
        "ceiling_rate",
        "a ceiling is its FLOP ÷ the median time of its calls; none is above the peak of its unit, except convolutions "
        "whose kernels name a fast algorithm",
        times.ceiling_rate,
        "a ceiling",
    ),
    Gate(
        "ceiling_load",
        "the calls of a session's ceilings scatter as on an idle device",
        times.ceiling_load,
        "a ceiling",
    ),
    Gate(
        "possible_time",
        "no step is faster than its FLOP at the highest clock, nor 1.25 × the ceiling measured here; nor is a paired "
        "ceiling above the latter",
        times.possible_time,
        "a peak at the highest clock, or a ceiling",
        ("committed", "synchronised", "flags", *_COUNTED),
    ),
    Gate(
        "at_most_one",
        "utilization of tensor units is at most 1; above 1 on others is marked",
        times.at_most_one,
        "a utilization of a datasheet's peak or the user's",
        ("flags", "conventions", *_COUNTED, *_TIMED),
        on=("cuda",),
    ),
    Gate(
        "converged",
        "each interval is as narrow as requested, over enough blocks",
        times.converged,
        "timed blocks",
        ("committed", "synchronised"),
    ),
    Gate(
        "losses",
        "the loss of the last timed step is finite, and no classifier's is below 0",
        times.losses,
        "a loss",
        ("committed",),
    ),
    Gate(
        "alone",
        "no other process was on the GPU; others took less than 5 % of the processors",
        device.other_processes,
        "a count of other processes, or of their share of the processors",
    ),
    Gate(
        "clock",
        "SM clocks were polled throughout the window, are possible and not idle; what lowered them is in the warnings",
        device.clock,
        "telemetry of a GPU",
        ("committed",),
        on=("cuda",),
    ),
    Gate(
        "energy",
        "the energy counter moved, agrees with polled power, and stays within the power limit",
        device.energy,
        "an energy counter or polled power",
        ("committed",),
        on=("cuda",),
    ),
    Gate(
        "peak",
        "peaks are the table's dense ones, and no higher than multiprocessors × rate × highest clock",
        device.peak,
        "a datasheet's peak or the user's",
        ("one_machine",),
        on=("cuda",),
    ),
)


def judge(evidence: Evidence, gates: Iterable[Gate] = GATES) -> list[Verdict]:
    """One verdict a gate, in their order."""
    kind = "cuda" if any(session.device.startswith("cuda") for session in evidence.data.sessions) else "cpu"
    failed: dict[str, set[str]] = {}
    verdicts = []
    for gate in gates:
        out = set[str]().union(*(failed.get(name, set()) for name in gate.after))
        try:
            findings = list(gate.check(evidence.without(out)))
        except FAULTS as fault:  # of rows that the gate stumbles over
            findings = [Finding(RUN, False, f"cannot be asked: {type(fault).__name__}: {fault}")]
        verdict = replace(_verdict(gate, findings, len(out)), needed=kind in gate.on)
        failed[gate.name] = set(verdict.cell_ids) if verdict.verdict == FAIL else set()
        verdicts.append(verdict)
    return verdicts


def _verdict(gate: Gate, findings: list[Finding], left_out: int) -> Verdict:
    wrong = [finding for finding in findings if not finding.holds]
    cells = dict.fromkeys(finding.cell_id for finding in wrong or findings if finding.cell_id != RUN)
    by_cell: dict[str, list[str]] = {}
    for finding in (finding for finding in wrong or findings if finding.words):
        by_cell.setdefault(finding.cell_id, []).append(finding.words)
    missing = "" if findings else f"needs {gate.needs}"
    beside = f"not asked: {left_out} of the cells, which failed a gate that comes first" if left_out else ""
    return Verdict(
        gate=gate.name,
        checks=gate.checks,
        verdict=FAIL if wrong else PASS if findings else OPEN,
        asked=len({finding.cell_id for finding in findings}),
        cell_ids=tuple(cells),
        found={cell_id: "; ".join(dict.fromkeys(words)) for cell_id, words in by_cell.items()},
        reason="; ".join(filter(None, (missing, beside))),
    )
