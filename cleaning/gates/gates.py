"""Gates that a published run must pass: each asks one thing that a number can be wrong by, and names the cells.

`judge` goes through GATES in their order. A cell that failed a gate is not asked by those that lean on it (`after`), so
that one fault turns one gate red, its cause, and not everything that was calculated with it. A gate that finds
nothing to ask is open, never passed: a CPU has no clock telemetry, a run of one batch no law in the batch.

How to add one is in CONTRIBUTING.md. Passing all of them proves no number right; each is a fault excluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cleaning.gates import blocks, ceilings, cell_summary, integrity, values
from cleaning.gates import counters as gates_counters
from cleaning.gates import counts as gates_counts
from cleaning.gates import device as gates_device
from cleaning.gates import model as gates_model
from cleaning.gates import options as gates_options
from cleaning.gates import times as gates_times
from cleaning.gates.evidence import FAULTS, Evidence
from cleaning.gates.finding import RUN, Finding, Gate
from results.records import FAIL, OPEN, PASS, Verdict

_TABLE = ("values", "committed", "operations_once", "table")
_COUNTED = (*_TABLE, "batch", "executed", "backward_forward")
_TIMED = ("values", "committed", "synchronised", "blocks", "interval_rule", "possible_time")
_DEVICE = (*_TIMED, "statuses", "record", "losses", "alone", "clock", "polls", "throttling", "energy")

GATES: tuple[Gate, ...] = (
    Gate(
        "values",
        "every value is one that its column can hold: no null, no impossible sign, no unknown word",
        values.values,
        "a row",
    ),
    Gate(
        "committed",
        "every row is committed, and is what was committed",
        integrity.committed,
        "a measured cell",
    ),
    Gate(
        "one_machine",
        "sessions agree in device, driver branch, torch and peaks, and were measured by committed code",
        integrity.one_machine,
        "a session",
    ),
    Gate(
        "hardware",
        "no session was on a stand-in device, which computes nothing",
        gates_device.hardware,
        "a session",
    ),
    Gate(
        "self_test",
        "the run's self-test passed, on its device and by its driver, torch and code",
        gates_device.self_test,
        "self_test.json: python -m runners.doctor --self-test --write DIR",
        on=("cuda",),
    ),
    Gate(
        "cell_id",
        "each cell's id is that of its parameters",
        gates_options.cell_id,
        "a cell",
        ("values",),
    ),
    Gate(
        "asked",
        "the cells are exactly those that the manifest asks for, measured with its options",
        gates_options.grid_coverage,
        "the options of a sweep in the manifest",
        ("values",),
    ),
    Gate(
        "machine",
        "sessions, cells, ceilings and manifest agree about the machine, its load and each other",
        gates_options.machine,
        "a session",
        ("values",),
    ),
    Gate(
        "peak_row",
        "the row of peaks is that of the device's name, with its figures",
        gates_options.peak_row,
        "a session",
        ("values",),
    ),
    Gate(
        "flags",
        "flags read back before and after each cell are those of its precision, and so are its units",
        gates_device.flags,
        "flags that were read back",
    ),
    Gate(
        "operations_once",
        "the operation table has each call once: no gap in its numbers, no product twice",
        gates_counts.operations_once,
        "an operation table",
        ("committed",),
    ),
    Gate(
        "table",
        "an operation table's rows, links and storages fit each other",
        cell_summary.table,
        "an operation table",
        ("operations_once",),
    ),
    Gate(
        "parameters",
        "the number of parameters equals the weights of the operation table and what counters report",
        gates_model.parameters,
        "weights or a counter",
        _TABLE,
    ),
    Gate(
        "model",
        "the number of parameters is that of the named model with its number of classes",
        gates_model.model,
        "a classifier of torchvision at sizes whose parameters are known",
        (*_TABLE, "cell_id", "parameters"),
        on=(),
    ),
    Gate(
        "batch",
        "the batch in the operation table's shapes, and the items a step, are those of the cell",
        gates_counts.batch,
        "an operation table that begins with a batch",
        _TABLE,
    ),
    Gate(
        "executed",
        "one real step on the device ran the model FLOP of the table, by kind and dtype",
        gates_counts.executed,
        "a real step that was counted on the device",
        (*_TABLE, "batch"),
    ),
    Gate(
        "dtypes",
        "products were computed in the dtype that the precision names",
        gates_device.dtypes,
        "a real step that was counted on the device",
        ("committed", "executed"),
    ),
    Gate(
        "backward_forward",
        "backward FLOP is exactly what the forward pass of this model implies",
        gates_counts.backward_forward,
        "an operation table with weights, of convolutions and matrix products alone",
        _TABLE,
    ),
    Gate(
        "counts_repeat",
        "cells of equal sizes have equal counts for any precision, repetition or layout",
        gates_counts.counts_repeat,
        "two cells of equal sizes",
        _COUNTED,
    ),
    Gate(
        "affine",
        "exact counts are slope × batch + constant in integers, over at least three batch sizes",
        gates_counts.affine,
        "three batches of one model",
        (*_COUNTED, "counts_repeat"),
    ),
    Gate(
        "counters",
        "each counter's rows are of the cell's model, in FLOP by their unit, totals equal the sum of operators, "
        "and say what their counter says beside them",
        gates_counters.counters,
        "a counter",
        ("values",),
    ),
    Gate(
        "counter_law",
        "a counter reports the same for one model in all cells, and is linear in the batch",
        gates_counters.counter_law,
        "a counter",
        ("counters",),
    ),
    Gate(
        "conventions",
        "no counter's forward products are twice or half the exact count: a multiply-add is 2 FLOP",
        gates_counts.conventions,
        "a counter beside an exact count",
        _COUNTED,
    ),
    Gate(
        "profiles",
        "cleaned profiles have the exact count, forward and backward",
        gates_counts.profiles,
        "a profile beside an exact count",
        _COUNTED,
        on=(),
    ),
    Gate(
        "profile",
        "a profile has the passes of its row, and its calls are nested, in order, of the FLOP that torch.profiler "
        "counts of their sizes, and in the dtypes of the operation table",
        cell_summary.profile,
        "a profile",
        ("values",),
        on=(),
    ),
    Gate(
        "synchronised",
        "blocks do not overlap, none ends before its device work, all lie in the window",
        gates_times.synchronised,
        "timed blocks",
        ("committed",),
    ),
    Gate(
        "blocks",
        "blocks are numbered, follow a warm-up, and their device time agrees with the host's",
        blocks.blocks,
        "timed blocks",
        ("values", "synchronised"),
    ),
    Gate(
        "summary",
        "window, warm-up, waits and memory of a row follow from its blocks and polls",
        cell_summary.summary,
        "a measured cell",
        ("values", "synchronised", "blocks"),
    ),
    Gate(
        "interval_rule",
        "intervals are made by the rule by which cells of this schema version stop measuring, or a loop's",
        gates_times.interval_rule,
        "a measured cell",
        ("values",),
    ),
    Gate(
        "ceiling_rate",
        "each kernel has one ceiling per session: the FLOP of its shape ÷ the median time of its calls",
        ceilings.ceiling_rate,
        "a ceiling",
    ),
    Gate(
        "ceiling_limit",
        "no ceiling is above the peak of its unit, except convolutions whose kernels name a fast algorithm",
        ceilings.ceiling_limit,
        "a ceiling on a device with a datasheet's peak",
        on=("cuda",),
    ),
    Gate(
        "ceiling_load",
        "the calls of a session's ceilings scatter as on an idle device",
        ceilings.ceiling_load,
        "a ceiling",
    ),
    Gate(
        "ceilings_agree",
        "the ceiling of a unit is equally high in every session, within the spread of its calls",
        ceilings.ceilings_agree,
        "the ceiling of a unit in two sessions",
        on=(),
    ),
    Gate(
        "core_peaks",
        "a CPU's derived peak is cores × the table's FLOP a clock × the clock, and no kernel beat it",
        ceilings.core_peaks,
        "a CPU whose cores were timed alone",
        on=(),
    ),
    Gate(
        "possible_time",
        "no step is faster than its FLOP at the highest clock, nor 1.25 × the ceiling measured here",
        gates_times.possible_time,
        "a peak at the highest clock, or a ceiling",
        ("committed", "synchronised", "flags", *_COUNTED),
    ),
    Gate(
        "at_most_one",
        "utilization of tensor units is at most 1; above 1 on others is marked",
        gates_times.at_most_one,
        "a utilization of a datasheet's peak or the user's",
        ("flags", "conventions", *_COUNTED, *_TIMED),
        on=("cuda",),
    ),
    Gate(
        "statuses",
        "status ok agrees with the raw blocks, and any other status has a reason",
        values.statuses,
        "a cell",
        ("values", "synchronised", "blocks", "interval_rule"),
    ),
    Gate(
        "converged",
        "each interval is as narrow as requested, over enough blocks, recalculated from the raw samples",
        gates_times.converged,
        "timed blocks",
        ("committed", "synchronised", "interval_rule", "statuses"),
    ),
    Gate(
        "repeats",
        "images/s of repeats in fresh processes agree within their noise",
        gates_times.repeats,
        "a cell that was repeated",
        _TIMED,
    ),
    Gate(
        "by_batch",
        "a larger batch trains at least 0.8 × as many items per second as a smaller one",
        gates_times.by_batch,
        "two batches of one model",
        (*_TIMED, "converged", "repeats", "batch"),
    ),
    Gate(
        "record",
        "resnet50 trains fewer images per second than the MLPerf record of that GPU",
        gates_times.record,
        "resnet50 at 224 pixels on a GPU with a record",
        _TIMED,
        on=(),
    ),
    Gate(
        "losses",
        "the loss of the last timed step is finite, and no classifier's is below 0",
        gates_times.losses,
        "a loss",
        ("committed",),
    ),
    Gate(
        "alone",
        "no other process was on the GPU; others took less than 5 % of the processors",
        gates_device.other_processes,
        "a count of other processes, or of their share of the processors",
    ),
    Gate(
        "clock",
        "SM clocks were polled throughout the window, are possible on this device, and are not idle clocks",
        gates_device.clock,
        "telemetry of a GPU",
        ("committed",),
        on=("cuda",),
    ),
    Gate(
        "polls",
        "polls are ordered in time, and steps became slower when the clock fell",
        cell_summary.polls,
        "telemetry of a GPU",
        ("values", "clock"),
        on=("cuda",),
    ),
    Gate(
        "throttling",
        "the reasons for reduced clocks are in the cell's warnings, and no clock fell without a reason",
        gates_device.throttling,
        "event reasons of a GPU",
        ("committed", "clock"),
        on=("cuda",),
    ),
    Gate(
        "energy",
        "the energy counter moved, agrees with polled power, and gives the energy of the row",
        gates_device.energy,
        "an energy counter or polled power",
        ("committed",),
        on=("cuda",),
    ),
    Gate(
        "warnings",
        "the cell has every warning that its rows require",
        values.warnings,
        "a measured cell",
        _DEVICE,
    ),
    Gate(
        "peak",
        "peaks are the table's dense ones, and no higher than multiprocessors × rate × highest clock",
        integrity.peak,
        "a datasheet's peak or the user's",
        ("one_machine",),
        on=("cuda",),
    ),
    Gate(
        "rebuilt",
        "the stored utilization.csv equals the one rebuilt from the raw rows",
        integrity.rebuilt,
        "a utilization.csv",
        ("committed", "peak", "throttling"),
    ),
    Gate(
        "derived",
        "every other stored derived table equals the one rebuilt from the raw rows",
        integrity.derived,
        "a derived table",
        ("committed", "peak", "throttling", "rebuilt"),
        on=(),
    ),
)


def judge(evidence: Evidence, gates: Iterable[Gate] = GATES) -> list[Verdict]:
    """One verdict a gate, in their order."""
    return list(verdicts(evidence, gates))


def verdicts(evidence: Evidence, gates: Iterable[Gate] = GATES) -> Iterator[Verdict]:
    """The same one by one, so that who looks for the first failure asks no gate after it."""
    kind = "cuda" if any(each.device.startswith("cuda") for each in evidence.data.sittings) else "cpu"
    failed: dict[str, set[str]] = {}
    for gate in gates:
        out = set[str]().union(*(failed.get(name, set()) for name in gate.after))
        verdict = replace(_verdict(gate, _findings_of(gate, evidence.without(out)), len(out)), needed=kind in gate.on)
        failed[gate.name] = set(verdict.cell_ids) if verdict.verdict == FAIL else set()
        yield verdict


def _findings_of(gate: Gate, evidence: Evidence) -> list[Finding]:
    """What a gate finds; of rows that it stumbles over, that it did."""
    try:
        return list(gate.check(evidence))
    except FAULTS as fault:
        return [Finding(RUN, False, f"cannot be asked: {type(fault).__name__}: {fault}")]


def _verdict(gate: Gate, found: list[Finding], left_out: int) -> Verdict:
    wrong = [each for each in found if not each.holds]
    cells = dict.fromkeys(each.cell_id for each in wrong or found if each.cell_id != RUN)
    by_cell: dict[str, list[str]] = {}
    for each in (each for each in wrong or found if each.words):
        by_cell.setdefault(each.cell_id, []).append(each.words)
    missing = "" if found else f"needs {gate.needs}"
    beside = f"not asked: {left_out} of the cells, which failed a gate that comes first" if left_out else ""
    return Verdict(
        gate=gate.name,
        checks=gate.checks,
        verdict=FAIL if wrong else PASS if found else OPEN,
        asked=len({each.cell_id for each in found}),
        cell_ids=tuple(cells),
        found={cell_id: "; ".join(dict.fromkeys(words)) for cell_id, words in by_cell.items()},
        reason="; ".join(filter(None, (missing, beside))),
    )
