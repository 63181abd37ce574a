"""Gates that a published run must pass: each asks one thing that a number can be wrong by, and names the cells.

`judge` goes through GATES in their order. A cell that failed a gate is not asked by those that lean on it (`after`), so
that one fault turns one gate red, its cause, and not everything that was calculated with it. A gate that finds
nothing to ask is open, never passed: a CPU has no clock telemetry, a run of one batch no law in the batch.

How to add one is in CONTRIBUTING.md. Passing all of them proves no number right; each is a fault excluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cleaning.gates import ceilings, cell_summary, integrity, values
from cleaning.gates import counters as gates_counters
from cleaning.gates import counts as gates_counts
from cleaning.gates import device as gates_device
from cleaning.gates import hardware as gates_hardware
from cleaning.gates import model as gates_model
from cleaning.gates import options as gates_options
from cleaning.gates import times as gates_times
from cleaning.gates.evidence import FAULTS, Evidence
from cleaning.gates.finding import RUN, Finding, Gate
from results.records import FAIL, OPEN, PASS, Verdict

_TABLE = ("values", "committed", "operations_once", "table")
_COUNTED = (*_TABLE, "batch", "executed", "backward_forward")
_TIMED = ("values", "committed", "synchronised", "blocks", "possible_time")
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
        "sittings agree in device, driver branch, torch and peaks, and were measured by committed code",
        integrity.one_machine,
        "a sitting",
    ),
    Gate(
        "hardware",
        "no sitting was on a stand-in device, which computes nothing",
        gates_hardware.hardware,
        "a sitting",
    ),
    Gate(
        "self_test",
        "the run's self-test passed, on its device and by its driver, torch and code",
        gates_hardware.self_test,
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
        "cells are those that the manifest asks for, all of them, measured as it asks",
        gates_options.grid_coverage,
        "the options of a sweep in the manifest",
        ("values",),
    ),
    Gate(
        "machine",
        "sittings, cells, ceilings and manifest say the same of the machine and of each other",
        gates_options.machine,
        "a sitting",
        ("values",),
    ),
    Gate(
        "peak_row",
        "the row of peaks is the one of the device's own name, with its figures",
        gates_options.peak_row,
        "a sitting",
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
        "the operation table has each call once: no gap in its numbers, no product again",
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
        "a cell's parameters are the weights of its table, and what counters saw",
        cell_summary.parameters,
        "weights or a counter",
        _TABLE,
    ),
    Gate(
        "model",
        "a cell has the parameters of the model that it names, at its number of classes",
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
        "one real step on the device did the table's model FLOP, by kind and dtype",
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
        "backward FLOP is what the forward pass implies, for this model, to the unit",
        gates_counts.backward_forward,
        "an operation table with weights, of convolutions and matrix products alone",
        _TABLE,
    ),
    Gate(
        "counts_repeat",
        "cells of equal sizes have equal counts, whatever their precision, repeat or layout",
        gates_counts.counts_repeat,
        "two cells of equal sizes",
        _COUNTED,
    ),
    Gate(
        "affine",
        "exact counts are slope × batch + constant in whole numbers, over at least three batches",
        gates_counts.affine,
        "three batches of one model",
        (*_COUNTED, "counts_repeat"),
    ),
    Gate(
        "counters",
        "each counter's rows are of the cell's model, in FLOP by their unit, totals as their operators",
        gates_counters.counters,
        "a counter",
        ("values",),
    ),
    Gate(
        "counter_law",
        "a counter says the same of one model in all cells, and stays on one line in the batch",
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
        "a profile has the works of its row, calls inside of each other and in order",
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
        "blocks are numbered, after a warm-up, with the device time that the host saw",
        cell_summary.blocks,
        "timed blocks",
        ("values", "synchronised"),
    ),
    Gate(
        "summary",
        "window, warm-up, waits and memory of a row are what its blocks and polls give",
        cell_summary.summary,
        "a measured cell",
        ("values", "synchronised", "blocks"),
    ),
    Gate(
        "ceiling_rate",
        "each kernel has one ceiling a sitting, the FLOP of its shape over the median of its calls",
        ceilings.ceiling_rate,
        "a ceiling",
    ),
    Gate(
        "ceiling_limit",
        "no ceiling is above its unit's peak, but of a convolution whose kernels name a fast algorithm",
        ceilings.ceiling_limit,
        "a ceiling on a device with a datasheet's peak",
        on=("cuda",),
    ),
    Gate(
        "ceiling_load",
        "the calls of a ceiling scatter as on a device that does nothing else",
        ceilings.ceiling_load,
        "a ceiling",
    ),
    Gate(
        "ceilings_agree",
        "the same kernel is as fast in every sitting, within the spread of its calls",
        ceilings.ceilings_agree,
        "the same kernel twice",
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
        "ok is narrow by the raw blocks, anything else has a reason",
        values.statuses,
        "a cell",
        ("values", "synchronised", "blocks"),
    ),
    Gate(
        "converged",
        "each interval is as narrow as was asked for, over enough blocks, by the raw samples",
        gates_times.converged,
        "timed blocks",
        ("committed", "synchronised", "statuses"),
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
        "a larger batch trains no fewer items a second than 0.8 × a smaller one",
        gates_times.by_batch,
        "two batches of one model",
        (*_TIMED, "converged", "repeats", "batch"),
    ),
    Gate(
        "record",
        "resnet50 trains fewer images a second than the MLPerf record of that GPU",
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
        "SM clocks were polled through the window, and are the device's own, not idle ones",
        gates_device.clock,
        "telemetry of a GPU",
        ("committed",),
        on=("cuda",),
    ),
    Gate(
        "polls",
        "polls are in the order of time, and a clock that fell made steps slower",
        cell_summary.polls,
        "telemetry of a GPU",
        ("values", "clock"),
        on=("cuda",),
    ),
    Gate(
        "throttling",
        "what held clocks down is in the cell's warnings, and no clock fell without a reason",
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
        "the warnings that a cell's rows demand are there",
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
        "the utilization.csv that lies in the run is what its raw rows give",
        integrity.rebuilt,
        "a utilization.csv",
        ("committed", "peak", "throttling"),
    ),
    Gate(
        "derived",
        "every other derived table of the run is what its raw rows give",
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
    told: dict[str, list[str]] = {}
    for each in (each for each in wrong or found if each.words):
        told.setdefault(each.cell_id, []).append(each.words)
    missing = "" if found else f"needs {gate.needs}"
    beside = f"not asked: {left_out} of the cells, which failed a gate that comes first" if left_out else ""
    return Verdict(
        gate=gate.name,
        checks=gate.checks,
        verdict=FAIL if wrong else PASS if found else OPEN,
        asked=len({each.cell_id for each in found}),
        cell_ids=tuple(cells),
        found={cell_id: "; ".join(dict.fromkeys(words)) for cell_id, words in told.items()},
        reason="; ".join(filter(None, (missing, beside))),
    )
