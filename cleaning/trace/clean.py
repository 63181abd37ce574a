"""Cleans the FLOP of a recording: takes calls and kernels, returns products with the FLOP of each kernel, and a log.

`clean` takes a recording whose calls have phases and modules, and returns a `CleanedTrace`. FLOP have three states: raw
(the recording's numbers, else PyProf's), deduplicated and repaired. Totals cover products of the forward pass with the
loss, the backward pass, and recomputation. One call without a count makes its phase's total unknown (`totals.py`).
Totals exclude products of an optimizer and of no phase. Every kernel and every product stays in the result.
`clean_recording` returns one pass of a sweep as a `CleanedProfile`, the form of torch.profiler's own numbers. FLOP of
other operators are not computed. The only times are those of kernels that make products.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from analysis.operators.registry import PRODUCTS
from analysis.rank_timelines import length, spans
from analysis.trace.calls import MISSING, UNNUMBERED, Missing
from analysis.trace.operations import floating_dtype, is_product
from cleaning.profile import FORWARD, CleanedProfile, mark_outside_step
from cleaning.trace.instances import InstanceTable, read_table, records, with_flop
from cleaning.trace.products import lacks_kernels
from cleaning.trace.totals import (
    Outside,
    PhaseTotal,
    UnknownCall,
    Unnamed,
    outside,
    phase_total,
    product_time,
    unknown_calls,
    unnamed,
)
from results.process import collector_off
from results.records.cell import Run
from results.records.counts import CleanedOperation, CleaningLog, OperationInstance
from results.store.layout import recording_file

STATES = ("raw", "deduplicated", "repaired")

PHASES: Mapping[str, tuple[str, ...]] = {
    "forward_flop": FORWARD,
    "backward_flop": ("backward",),
    "recompute_flop": ("recompute",),
}
"""Total → the recorded phases that it sums."""

OUTSIDE: Mapping[str, tuple[str, ...]] = {"optimizer": ("optimizer",), "none": ("",)}
"""Other groups of products → their recorded phases, which are in no total."""

Fault = tuple[str, int, int]
Totals = dict[str, dict[str, int | None]]


@dataclass(frozen=True)
class CleanedTrace:
    """A recording's products as found, without duplicates, and by their sizes.

    kernels: the input table, by start, with found_flop, deduplicated_flop, repaired_flop (Int64), instance (-1: none)
    and fault. Rows with the fault "duplicate_launch" or "autotune" are not part of a step's time. changes: index of an
    instance → its log rows, which lack their subject (`log`). faults: (reason, operations, FLOP that repair changed:
    raw + the sum over faults is repaired). totals: state → phase → FLOP; None where a call has no count, or nothing of
    the phase was recorded. phase_totals: the same with a lower bound, and the calls without a count. unknown_calls:
    those of unknown operators. missing: calls that the recording is known to lack; each is also a row of `instances`,
    without a name and count. outside_phases: products of no phase and an optimizer's, which are in no total.
    assumed_gradients: calls whose requested gradients were not recorded; both gradients are counted, and only the
    weight's for a first layer. unexplained_time_ratio, outside_time_ratio: share of the time of kernels that make
    products, by name or call, in no call with a count, and in no recorded call; None: there are no such kernels.
    product_time_s: that time.
    """

    instances: tuple[OperationInstance, ...]
    kernels: pd.DataFrame
    faults: tuple[Fault, ...]
    changes: Mapping[int, tuple[CleaningLog, ...]]
    totals: Totals
    unexplained_time_ratio: float | None
    phase_totals: Mapping[str, Mapping[str, PhaseTotal]]
    unknown_calls: tuple[UnknownCall, ...]
    outside_time_ratio: float | None
    unnamed: Unnamed
    product_time_s: float
    assumed_gradients: int = 0
    outside_phases: Mapping[str, Outside] = field(default_factory=dict)
    missing: tuple[Missing, ...] = ()

    @property
    def log(self) -> tuple[CleaningLog, ...]:
        """A row for every change: first removed duplicates, then filled gaps."""
        rows = []
        for index, changes in self.changes.items():
            instance = self.instances[index]
            parts = (str(index), instance.name, instance.phase, instance.module)
            rows += [replace(row, subject=" ".join(filter(None, parts))) for row in changes]
        return tuple(sorted(rows, key=lambda row: row.step))


@collector_off()
def clean(
    calls: pd.DataFrame, kernels: pd.DataFrame, missing: Sequence[Missing] = (), *, numbered: bool = True
) -> CleanedTrace:
    """Clean an attributed recording (columns of measure.trace.recording).

    missing: what the recording is known to lack (`Recording.missing`). numbered: whether its calls are
    (`Recording.numbered`); if not, a row of `instances` without a name and count says so.

    The order of rows does not matter. Raises Inconsistent for calls that contradict each other.
    """
    table = read_table(calls, kernels)
    unknown = unknown_calls(table)
    totals = {
        state: {name: phase_total(table, unknown, state, phases, missing) for name, phases in PHASES.items()}
        for state in STATES
    }
    whole_ns, unexplained_ns, outside_ns = product_time(table)
    instances = records(table)
    for call in unknown:
        if call.instance >= 0:
            instances[call.instance] = replace(instances[call.instance], reason=call.reason)
    # whoever adds up the rows of a phase meets what it lacks
    signs = [(sign.phase, f"{MISSING}{sign.reason}") for sign in missing] + [("", UNNUMBERED)] * (not numbered)
    for phase, reason in signs:
        instances.append(OperationInstance(index=len(instances), name="", kind="", phase=phase, reason=reason))
    return CleanedTrace(
        instances=tuple(instances),
        kernels=with_flop(table),
        faults=tuple(_faults(table)),
        changes={index: i.cleaned.log for index, i in enumerate(table.instances) if i.cleaned and i.cleaned.log},
        totals={state: {name: total.flop for name, total in of.items()} for state, of in totals.items()},
        unexplained_time_ratio=unexplained_ns / whole_ns if whole_ns else None,
        phase_totals=totals,
        unknown_calls=unknown,
        outside_time_ratio=outside_ns / whole_ns if whole_ns else None,
        unnamed=unnamed(table),
        assumed_gradients=sum(product.size.assumed for product, _, _ in table.products),
        product_time_s=whole_ns * 1e-9,
        outside_phases={name: outside(table, unknown, STATES, phases, missing) for name, phases in OUTSIDE.items()},
        missing=tuple(missing),
    )


def _faults(table: InstanceTable) -> Iterator[Fault]:
    """Yield each reason with its products and the FLOP that repair changed, in order of first appearance."""
    of: dict[str, dict[int, int]] = {}
    for index, (product, cleaned, _) in enumerate(table.products):
        if lacks_kernels(product):
            of.setdefault("no_kernel", {})[index] = product.size.expected or 0
        elif product.size.unit_flop is None:
            of.setdefault("no_sizes", {})[index] = 0
        for part in cleaned.parts:
            if part.fault:
                changes = of.setdefault(part.fault, {})
                changes[index] = changes.get(index, 0) + (part.repaired or 0) - (part.found or 0)
    for reason, changes in of.items():
        yield reason, len(changes), sum(changes.values())


def clean_recording(
    run: Run, pass_name: str, calls: pd.DataFrame, kernels: pd.DataFrame, source: str
) -> CleanedProfile:
    """Return one row per product of one pass's recording, attributed and cut to one step. Raises Inconsistent.

    A call of an unknown operator whose kernels make products is a row without a count.
    """
    trace = clean(calls, kernels)
    dtypes = _dtypes(calls, trace)
    instances = [instance for instance in trace.instances if instance.kind in PRODUCTS]
    instances += [
        OperationInstance(
            index=index,
            name=call.name,
            kind="",
            phase=call.phase,
            module=call.module,
            verdict="unknown",
            reason=call.reason,
            host_time_s=call.time_ns * 1e-9,
        )
        for index, call in enumerate(trace.unknown_calls, len(trace.instances))
    ]
    rows = [_row(run, pass_name, source, instance, dtypes) for instance in instances]
    file = recording_file(run.cell_id, run.attempt, pass_name, source)
    log = tuple(
        replace(row, file=file, cell_id=run.cell_id, attempt=run.attempt, subject=f"{pass_name} {row.subject}")
        for row in trace.log
    )
    ran = kernels[kernels["what"] != "call"]
    busy_ns = length(spans(ran.assign(end_ns=ran["start_ns"] + ran["time_ns"])))
    busy_s = None if ran.empty or ran["untimed"].any() else busy_ns * 1e-9
    return CleanedProfile(tuple(map(mark_outside_step, rows)), log, trace.outside_time_ratio, len(ran) or None, busy_s)


def _row(
    run: Run, pass_name: str, source: str, instance: OperationInstance, dtypes: Mapping[int, str]
) -> CleanedOperation:
    return CleanedOperation(
        cell_id=run.cell_id,
        attempt=run.attempt,
        source=source,
        work=pass_name,
        index=instance.index,
        name=instance.name,
        kind=instance.kind,
        phase=instance.phase,
        module=instance.module,
        forward_index=instance.forward_index,
        dtype=dtypes.get(instance.index) or floating_dtype(instance.input_shapes or (), instance.input_dtypes or ()),
        found_flop=instance.raw_flop,
        deduplicated_flop=instance.deduplicated_flop,
        cleaned_flop=instance.repaired_flop,
        verdict=instance.verdict,
        reason=instance.reason,
        time_s=instance.host_time_s if instance.kernel_time_s is None else instance.kernel_time_s,
    )


def _dtypes(calls: pd.DataFrame, trace: CleanedTrace) -> dict[int, str]:
    """Return instance → the dtype it computes in: of the innermost product that launched a kernel, since autocast casts
    inside."""
    parents = calls["parent"].to_numpy(np.int64).tolist()
    names, shapes, dtypes = (calls[name].tolist() for name in ("name", "input_shapes", "input_dtypes"))
    row_of = {index: row for row, index in enumerate(calls["index"].tolist())}
    dtype_of: dict[int, tuple[int, str]] = {}
    for instance, call in zip(trace.kernels["instance"].tolist(), trace.kernels["call"].tolist(), strict=True):
        above = [row_of[call]] if call in row_of else []
        while above and parents[above[-1]] in row_of:
            above.append(row_of[parents[above[-1]]])
        for depth, row in zip(range(len(above), 0, -1), above, strict=True):
            dtype = floating_dtype(shapes[row] or (), dtypes[row] or ()) if is_product(names[row]) else ""
            if dtype:
                dtype_of[instance] = max(dtype_of.get(instance, (0, "")), (depth, dtype))
                break
    return {instance: dtype for instance, (_, dtype) in dtype_of.items()}
