"""Lies that were told of a run that `--check` passed, one or more for each gate that was made against them.

Each is a change of the rows of `tests/support/made_up/made_up_evidence.py` with every seal made anew: gate → lies, by
their name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from analysis.stats import LAG1
from results.store.layout import key_of
from tests.support.lies import lies
from tests.support.lies.lie_rows import Rows
from tests.support.made_up import made_up_device, made_up_evidence

Told = Callable[[Rows], Rows]


def _rows(file: str, change: Callable[[Any], Any], where: Callable[[Any], bool] = lambda row: True) -> Told:
    """Rows of one file that are others."""

    def told(rows: Rows) -> Rows:
        held = getattr(rows, file)
        if isinstance(held, dict):
            changed: Any = {key: [change(r) if where(r) else r for r in each] for key, each in held.items()}
        else:
            changed = [change(row) if where(row) else row for row in held]
        return replace(rows, **{file: changed})

    return told


def _fields(file: str, where: Callable[[Any], bool] = lambda row: True, **values: Any) -> Told:
    return _rows(file, lambda row: replace(row, **values), where)


def _first(file: str, **values: Any) -> Told:
    """The first row of a file alone."""

    def told(rows: Rows) -> Rows:
        first, *rest = getattr(rows, file)
        return replace(rows, **{file: [replace(first, **values), *rest]})

    return told


def _at(factor: float, where: Callable[[Any], bool] = lambda row: True) -> Told:
    """Ceilings at another rate, times and all."""
    return _rows("ceilings", lambda row: made_up_device.at_rate(row, factor * row.flop_per_s), where)


def _renamed(rows: Rows) -> Rows:
    """resnet50 becomes vgg16 wherever it is named; the ids stay."""
    options = {**rows.manifest.options, "models": ["vgg16"]}
    options["earlier"] = [{**each, "models": ["vgg16"]} for each in options["earlier"]]
    made = replace(rows, manifest=replace(rows.manifest, options=options))
    return _fields("flop_counts", workload="vgg16")(_fields("runs", model="vgg16")(made))


def _sealed(lie: Told) -> Told:
    """A lie whose cells get the ids that their parameters give, in every file."""

    def told(rows: Rows) -> Rows:
        made = lie(rows).copy("runs", *lies.CHILDREN)
        made.runs = [lies.sealed(made, run) for run in made.runs]
        return made

    return told


def _everywhere(**values: Any) -> Told:
    """Parameters of all cells are others, and were asked for; the ids stay."""

    def told(rows: Rows) -> Rows:
        options = {**rows.manifest.options, **values}
        options["earlier"] = [{**each, **values} for each in options["earlier"]]
        made = replace(rows, manifest=replace(rows.manifest, options=options))
        return _fields("runs", **values)(made)

    return told


def _option(**values: Any) -> Told:
    def told(rows: Rows) -> Rows:
        return replace(rows, manifest=replace(rows.manifest, options={**rows.manifest.options, **values}))

    return told


def _check(name: str, **values: Any) -> Told:
    """One check of the self-test says something else."""
    return _fields("self_checks", lambda row: row.check == name, **values)


def _environment(**facts: Any) -> Told:
    def told(rows: Rows) -> Rows:
        sittings = [replace(each, environment={**each.environment, **facts}) for each in rows.sittings]
        return replace(rows, sittings=sittings)

    return told


def _stand_in(rows: Rows) -> Rows:
    """A run that was made on a stand-in: it has the peaks of the device that it stands in for."""
    name = f"Stand-in of {rows.sittings[0].device_name}"
    made = _first("self_test", device=name)(_environment(name=name)(rows))
    return _first("sittings", device_name=name)(_fields("ceilings", device_name=name)(made))


def _second_sitting(rows: Rows) -> Rows:
    """Ceilings of another session at half the rate, and its cell: the first with a later one of its precision."""
    first = rows.sittings[0]
    slow = [replace(made_up_device.at_rate(row, 0.5 * (row.flop_per_s or 0.0)), sitting="s2") for row in rows.ceilings]
    later = [{run.precision for run in rows.runs[at + 1 :]} for at in range(len(rows.runs))]
    moved = next(at for at, run in enumerate(rows.runs) if run.precision in later[at])
    runs = [replace(run, sitting="s2") if at == moved else run for at, run in enumerate(rows.runs)]
    return replace(rows, sittings=[first, replace(first, sitting="s2")], ceilings=[*rows.ceilings, *slow], runs=runs)


def _double_counter(rows: Rows) -> Rows:
    """One counter says twice as much at one batch of one cell, in every row, so that its rows fit each other."""
    cell = key_of(rows.runs[-1])

    def change(row: Any) -> Any:
        return replace(row, native_value=2 * row.native_value, flop=2 * row.flop)

    return _rows("flop_counts", change, lambda r: key_of(r) == cell and (r.counter, r.batch_size) == ("fvcore", 2))(
        rows
    )


def _double_convolution(rows: Rows) -> Rows:
    """A convolution of twice as many images, whose sizes and storages fit."""
    trace_id = rows.runs[-1].trace_id
    table = list(rows.operations[trace_id])
    twice = [(2 * shape[0], *shape[1:]) for shape in (table[1].input_shapes[0], table[1].output_shapes[0])]
    weight = table[1].input_shapes[1]
    table[1] = replace(table[1], input_shapes=(twice[0], weight), output_shapes=(twice[1],))
    sizes = {table[1].reads[0]: 2, table[1].writes[0]: 2}
    storages = [replace(s, nbytes=s.nbytes * sizes.get(s.id, 1)) for s in rows.storages[trace_id]]
    return replace(
        rows, operations={**rows.operations, trace_id: table}, storages={**rows.storages, trace_id: storages}
    )


def _half_clock(rows: Rows) -> Rows:
    """The clock halves for half of the window of a cell whose rows say why; its steps take as long as before."""
    run = rows.runs[0]
    middle_s = ((run.window_start_s or 0.0) + (run.window_end_s or 0.0)) / 2

    def change(row: Any) -> Any:
        return replace(row, sm_clock_hz=row.sm_clock_hz // 2)

    return _rows("telemetry", change, lambda row: key_of(row) == key_of(run) and row.time_s > middle_s)(rows)


PROOFS: dict[str, dict[str, Told]] = {
    "values": {
        "executed is null": _first("runs", executed=None),
        "one number of executed is null": _first("runs", executed={"convolution/bfloat16": None}),
        "warnings is null": _first("runs", warnings=None),
        "a batch below 0": _fields("flop_counts", batch_size=-1),
    },
    "hardware": {
        "a stand-in, which its name says everywhere": _stand_in,
        "a stand-in that only its environment tells": _environment(stand_in=True),
    },
    "self_test": {
        "of another device": _first("self_test", device="NVIDIA H100 80GB HBM3"),
        "by another driver": _first("self_test", driver="550.1"),
        "by another torch": _first("self_test", torch_version="2.14.0"),
        "by other code": _first("self_test", harness_version="0.1.0+gfedcba987654"),
        "that failed": _first("self_test", verdict="failed"),
        "a check that failed, in one that passed": _check("sleep", verdict="failed"),
        "a check that is called ok, and is not": _check("ieee fp32", found=3e-4),
        "rates of a faster device": _check("rate fp32", found=70e12),
        "a check that every GPU can answer, and no answer": _check(
            "count", verdict="unavailable", found=None, reason="no time"
        ),
        "without a check": lambda rows: replace(rows, self_checks=rows.self_checks[1:]),
        "one check twice, and another not at all": lambda rows: replace(
            rows, self_checks=[*rows.self_checks[:-1], rows.self_checks[0]]
        ),
    },
    "cell_id": {
        "resnet50 renamed to vgg16 in every file": _renamed,
        "another optimizer in every file": _everywhere(optimizer="adamw"),
    },
    "asked": {
        "an interval looser than asked": _option(target_ci_ratio=0.001),
        "cells that were asked for are not there": lambda rows: replace(
            rows, manifest=replace(rows.manifest, options={**rows.manifest.options, "repeat": 3})
        ),
    },
    "machine": {
        "a name without a peak": _first("sittings", device_name="NVIDIA H2000"),
        "another torch in its environment": _environment(torch="2.14.0"),
        "fewer multiprocessors than the device has": _environment(multiprocessors=114),
    },
    "peak_row": {
        "the row of another device": _first("sittings", peak_row="0123456789abcdef"),
        "no row where a peak was used": lambda rows: replace(rows, manifest=replace(rows.manifest, peak_row=None)),
    },
    "table": {
        "double FLOP in an operation table": _double_convolution,
        "a storage that is too small": _fields("storages", lambda row: row.role == "activation", nbytes=1),
    },
    "executed": {
        "executed is empty": _first("runs", executed={}),
    },
    "parameters": {
        "twice as many": _rows("runs", lambda row: replace(row, parameters=2 * row.parameters)),
        "a table of more weights": _rows(
            "storages", lambda row: replace(row, nbytes=row.nbytes + 4), lambda row: row.id == made_up_evidence.UNREAD
        ),
        "a counter that saw fewer": _rows(
            "flop_counts", lambda row: replace(row, parameters=row.parameters and row.parameters - 1)
        ),
    },
    "model": {
        "resnet50 renamed to vgg16 in every file, ids and all": _sealed(_renamed),
        "twenty classes instead of ten in every file, ids and all": _sealed(_everywhere(num_classes=20)),
    },
    "counters": {
        "FLOP that the native number does not give": _rows(
            "flop_counts", lambda row: replace(row, flop=2 * row.flop), lambda row: bool(row.operator)
        ),
        "totals that their operators do not give, by as much in every cell": _rows(
            "flop_counts",
            lambda row: replace(row, flop=row.flop + 1000, native_value=row.native_value + 1000),
            lambda row: row.counter == "ptflops" and not row.operator,
        ),
    },
    "counter_law": {"a counter off in one cell": _double_counter},
    "profile": {
        "calls inside of one that comes later": _fields("profiles", lambda row: row.parent == 0, parent=4),
        "a gradient of another module": _fields("profiles", lambda row: row.forward_index == 0, module="second"),
        "a backward pass without its phase": _fields("profiles", lambda row: row.phase == "backward", phase=""),
    },
    "blocks": {
        "a block that is left out": lambda rows: replace(rows, samples=rows.samples[:4] + rows.samples[5:]),
        "two steps at once under a profiler": _fields("samples", lambda row: row.part == "profiled", steps=2),
    },
    "summary": {
        "a warm-up of twice as many steps": _rows("runs", lambda r: replace(r, warmup_steps=2 * r.warmup_steps))
    },
    "interval_rule": {
        "intervals by the rule of earlier versions, which are narrower": _fields("runs", interval_rule=LAG1)
    },
    "ceiling_rate": {
        "all ceilings doubled": _rows("ceilings", lambda row: replace(row, flop_per_s=2 * row.flop_per_s)),
        "all ceilings doubled, and their FLOP": _rows(
            "ceilings", lambda row: replace(row, flop_per_s=2 * row.flop_per_s, flop=2 * row.flop)
        ),
        "all ceilings doubled, and their medians halved": _rows(
            "ceilings", lambda row: replace(row, flop_per_s=2 * row.flop_per_s, median_s=row.median_s / 2)
        ),
        "a mean that its fastest call and its median do not allow": _rows(
            "ceilings", lambda row: replace(row, mean_s=0.992 * row.median_s)
        ),
    },
    "ceiling_limit": {"above the sheet, times and all": _at(2.0)},
    "ceiling_load": {
        "calls that waited for somebody else": _rows(
            "ceilings", lambda row: replace(row, best_s=0.3 * row.median_s, mean_s=1.2 * row.median_s)
        ),
        "others were seen": _fields("ceilings", reason="note: others used 40% of the processors while this was timed"),
    },
    "ceilings_agree": {"half as fast in another session": _second_sitting},
    "possible_time": {"ceilings of a device that did something else": _at(0.003)},
    "statuses": {"not converged, and called ok": _fields("runs", status="not_converged")},
    "warnings": {
        "a loss that is not finite, and no warning": _first("runs", last_loss=None),
    },
    "polls": {"a clock halved for half a window": _half_clock},
}
