"""Attributed recordings cleaned: what each kernel was given, once, with gaps filled from sizes, and why they differ.

From the calls and kernels of a recording to products with their kernels, by small steps in order (found → deduplicated
→ repaired), with a log row for every change. Totals are of products (convolution, matmul, attention, recurrent) in the
forward pass (loss included), the backward pass, and what checkpointing recalculates; an optimizer's products and those
of no phase are in none and stand apart. No kernel is dropped, and no product is left out in silence.

A total is of all calls of its phase or unknown (`totals.py`).

Not claimed: FLOP of what is no product; that a product without a kernel ran; anything of time, but which share of it
is spent in kernels that look like a product's and are none of any.

`clean_recording` gives the products of a work's recording, kept by a sweep, the names of a cell, so that they are added
up, divided and shown as torch.profiler's own numbers are, beside them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from analysis.operators.registry import PRODUCTS
from analysis.ranks.timelines import length, spans
from analysis.trace.calls import MISSING, UNNUMBERED, Missing
from analysis.trace.kernel_names import pyprof_all_groups, pyprof_convolution, pyprof_linear, pyprof_matmul
from analysis.trace.operations import floating_dtype, is_product
from cleaning.profile import FORWARD, CleanedProfile, mark_outside_step
from cleaning.trace.instances import columns_of, known_part, read_table, records, with_flop
from cleaning.trace.products import Part, Product, deduplicated, label, lacks_kernels, removal_log, repair_log, repaired
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
from results.records.cell import Run
from results.records.counts import CleanedOperation, CleaningLog, OperationInstance
from results.store.layout import recording_file

STATES = ("raw", "deduplicated", "repaired")

PHASES: Mapping[str, tuple[str, ...]] = {
    "forward_flop": FORWARD,
    "backward_flop": ("backward",),
    "recompute_flop": ("recompute",),
}
"""A total → the recorded phases that it is the sum of."""

OUTSIDE: Mapping[str, tuple[str, ...]] = {"optimizer": ("optimizer",), "none": ("",)}
"""What else a product may belong to → the recorded phases of it: they are in no total."""

Fault = tuple[str, int, int]
Totals = dict[str, dict[str, int | None]]

SETTLED = Part._fields.index("found")
"""Of the fields of a part those before the ones that cleaning sets."""

MODULE, PARTS, CLEANED = map(Product._fields.index, ("module", "parts", "columns"))
"""Where these stand among the fields of a product. The instance is the first; cleaning sets `columns` and `known`."""


class _Cleaning:
    """Products cleaned one by one: found → deduplicated → repaired. Those alike in all that decides are cleaned once.

    changes: index of a product → the log rows of an alike one, of each of both steps.
    """

    def __init__(self) -> None:
        self.changes: dict[int, tuple[list[CleaningLog], list[CleaningLog]]] = {}
        self._known: dict[object, tuple[Product, tuple[list[CleaningLog], list[CleaningLog]]]] = {}

    def __call__(self, product: Product) -> Product:
        """The product with all numbers of its parts."""
        parts = product.parts
        rank = {time_ns: at for at, time_ns in enumerate(sorted({part.time_ns for part in parts}))}
        decides = tuple(
            [
                (part.name, part.what, part.unit, part.twin, part.source_flop, part.call_flop, rank[part.time_ns])
                for part in parts
            ]
        )
        key = (decides, product[1:MODULE], product[PARTS + 1 : CLEANED])
        if key not in self._known:
            found = assign_flop(product)
            once = deduplicated(found)
            whole = repaired(once)
            known = {state: known_part(whole, state) for state in STATES}
            whole = whole._replace(columns=columns_of(whole), known=known)
            self._known[key] = whole, (removal_log(found, once), repair_log(whole))
        alike, log = self._known[key]
        if any(log):
            self.changes[product.instance] = log
        pairs = zip(parts, alike.parts, strict=True)
        settled = tuple([Part._make((*part[:SETTLED], *other[SETTLED:])) for part, other in pairs])
        before, after = product[:PARTS], product[PARTS + 1 : CLEANED]
        return Product._make((*before, settled, *after, alike.columns, alike.known))


@dataclass(frozen=True)
class CleanedTrace:
    """A recording with what was found, what is left of it once duplicates are out, and what sizes say.

    kernels: the table that came in, by start, with found_flop, deduplicated_flop, repaired_flop (Int64), instance (-1:
    none) and fault. Rows with the fault "duplicate_launch" or "autotune" are no part of a step's time.
    changes: index of an instance → the log rows of one alike, of both steps (`log`).
    faults: (reason, operations, FLOP that repair changed: raw + the sum over faults is repaired). totals: state →
    phase → FLOP; None where a call of it has no count, or nothing of the phase was recorded. phase_totals: the same
    with what is known at least, and the calls without a count. unknown_calls: those of operators that are not known.

    missing: calls that the recording is known to lack; each is a row of `instances`, too, without a name and count.
    outside_phases: products of no phase and an optimizer's, which are in no total.
    assumed_gradients: calls of which the recording does not say for what gradients were asked; both are counted, of a
    first layer that of the weight.

    Of the time of kernels that make products, by their names or as those of a product's call (None: there are none):
    unexplained_time_ratio is the share in no call with a count, outside_time_ratio that in no recorded call,
    product_time_s the whole.
    """

    instances: tuple[OperationInstance, ...]
    kernels: pd.DataFrame
    faults: tuple[Fault, ...]
    changes: Mapping[int, tuple[list[CleaningLog], list[CleaningLog]]]
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
        """A row for every change: first what was there twice, then what was filled in."""
        return tuple(
            replace(row, subject=label(index, instance.name, instance.phase, instance.module))
            for step in (0, 1)
            for index, rows in self.changes.items()
            for instance in (self.instances[index],)
            for row in rows[step]
        )


def clean(
    calls: pd.DataFrame, kernels: pd.DataFrame, missing: Sequence[Missing] = (), *, numbered: bool = True
) -> CleanedTrace:
    """An attributed recording (columns of measure.trace.attribution.recording), cleaned.

    missing: what the recording is known to lack (`Recording.missing`). numbered: whether its calls are
    (`Recording.numbered`); if not, a row of `instances` without a name and count says so.

    The order of rows does not matter. Raises Inconsistent for calls that contradict each other.
    """
    cleaning = _Cleaning()
    table = read_table(calls, kernels, cleaning)
    products = table.products
    unknown = unknown_calls(table)
    totals = {
        state: {name: phase_total(products, unknown, state, phases, missing) for name, phases in PHASES.items()}
        for state in STATES
    }
    time = product_time(table)
    lacking = {call.instance: call.reason for call in unknown}
    instances = records(table)
    return CleanedTrace(
        instances=(
            *(replace(row, reason=lacking[row.index]) if row.index in lacking else row for row in instances),
            *(  # whoever adds up the rows of a phase meets what it lacks
                OperationInstance(index=index, name="", kind="", phase=each.phase, reason=f"{MISSING}{each.reason}")
                for index, each in enumerate(missing, len(instances))
            ),
            *(
                []
                if numbered
                else [
                    OperationInstance(
                        index=len(instances) + len(missing), name="", kind="", phase="", reason=UNNUMBERED
                    )
                ]
            ),
        ),
        kernels=with_flop(table),
        faults=_faults(products),
        changes=cleaning.changes,
        totals={state: {name: total.flop for name, total in of.items()} for state, of in totals.items()},
        unexplained_time_ratio=time.unexplained / time.whole if time.whole else None,
        phase_totals=totals,
        unknown_calls=unknown,
        outside_time_ratio=time.outside / time.whole if time.whole else None,
        unnamed=unnamed(table),
        assumed_gradients=sum(product.assumed for product in products),
        product_time_s=time.whole * 1e-9,
        outside_phases={name: outside(products, unknown, STATES, phases, missing) for name, phases in OUTSIDE.items()},
        missing=tuple(missing),
    )


def _faults(products: Iterable[Product]) -> tuple[Fault, ...]:
    """Each reason with its products and the FLOP that repair changed, in order of first appearance."""
    of: dict[str, dict[int, int]] = {}
    for product in products:
        if lacks_kernels(product):
            of.setdefault("no_kernel", {})[product.instance] = product.expected or 0
        elif product.unit_flop is None:
            of.setdefault("no_sizes", {})[product.instance] = 0
        for part in product.parts:
            if part.fault:
                changed = of.setdefault(part.fault, {})
                more = (part.repaired or 0) - (part.found or 0)
                changed[product.instance] = changed.get(product.instance, 0) + more
    return tuple((reason, len(changed), sum(changed.values())) for reason, changed in of.items())


LINEAR = ("linear", "mkldnn_linear", "linear_backward", "mkldnn_linear_backward")
"""Operators that PyProf sees as torch.nn.functional.linear."""

GRADIENTS_OF_LINEAR = 2
"""Of a linear layer's backward pass PyProf counts the first two kernels, whatever they do."""


def assign_flop(product: Product) -> Product:
    """The product with what the recording gives each of its kernels: its own number, else what PyProf would have given.

    PyProf gives every kernel of a recognised name the FLOP of the whole operation (NVIDIA/PyProf pyprof/prof/conv.py,
    linear.py, blas.py, commit 218dcc1; its lists are in `analysis/trace/kernel_names.py`). That is wrong in both
    directions, and is repeated here so that the numbers of its users can be. On a recording without a device each
    product's own call gets what its sizes give. Not claimed: PyProf's numbers for what is no product; the FLOP of bias
    kernels inside a product, which are no model FLOP; nor that PyProf could have read the recording.
    """
    parts, place = [], product.place - 1
    for part in product.parts:
        place += not part.twin
        parts.append(part._replace(found=_part_flop(product, part, place)))
    return product._replace(parts=tuple(parts))


def _part_flop(product: Product, part: Part, place: int) -> int | None:
    if part.source_flop is not None:
        return part.source_flop
    if part.what == "call":
        return part.call_flop
    if product.unit_flop is None:
        return None
    if part.what != "kernel":
        return 0
    if product.kind == "convolution":
        return _convolution(product, part)
    return _matmul(product, part, place) if product.kind == "matmul" else 0  # of any other kind PyProf knows nothing


def _convolution(product: Product, part: Part) -> int:
    if not pyprof_convolution(part.name):
        return 0
    flop = product.unit_flop or 0
    return flop if product.groups == 1 or pyprof_all_groups(part.name) else flop // product.groups


def _matmul(product: Product, part: Part, place: int) -> int:
    flop = product.unit_flop or 0
    name = (product.forward_name or product.name).partition("::")[2]
    if name in LINEAR:
        counts = pyprof_linear(part.name) and (product.phase != "backward" or place < GRADIENTS_OF_LINEAR)
        return flop if counts else 0
    return flop if name != "matmul" or pyprof_matmul(part.name) else 0


def clean_recording(run: Run, work: str, calls: pd.DataFrame, kernels: pd.DataFrame, source: str) -> CleanedProfile:
    """One row a product of one work's recording, attributed and cut to one step. Raises Inconsistent.

    A call of an operator that is not known, whose kernels make products, is a row without a count.
    """
    trace = clean(calls, kernels)
    dtypes = _dtypes(calls, trace)
    rows = [_row(run, work, source, found, dtypes) for found in trace.instances if found.kind in PRODUCTS]
    rows += [
        CleanedOperation(
            cell_id=run.cell_id,
            attempt=run.attempt,
            source=source,
            work=work,
            index=index,
            name=call.name,
            kind="",
            phase=call.phase,
            module=call.module,
            verdict="unknown",
            reason=call.reason,
            time_s=call.time_ns * 1e-9,
        )
        for index, call in enumerate(trace.unknown_calls, len(trace.instances))
    ]
    file = recording_file(run.cell_id, run.attempt, work, source)
    log = tuple(
        replace(row, file=file, cell_id=run.cell_id, attempt=run.attempt, subject=f"{work} {row.subject}")
        for row in trace.log
    )
    ran = kernels[kernels["what"] != "call"]
    busy_ns = length(spans(ran.assign(end_ns=ran["start_ns"] + ran["time_ns"])))
    busy_s = None if ran.empty or ran["untimed"].any() else busy_ns * 1e-9
    return CleanedProfile(tuple(map(mark_outside_step, rows)), log, trace.outside_time_ratio, len(ran) or None, busy_s)


def _row(run: Run, work: str, source: str, instance: OperationInstance, dtypes: Mapping[int, str]) -> CleanedOperation:
    return CleanedOperation(
        cell_id=run.cell_id,
        attempt=run.attempt,
        source=source,
        work=work,
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
    """Instance → the dtype it computes in: of the innermost product that launched a kernel: autocast casts inside."""
    parents = calls["parent"].to_numpy(np.int64).tolist()
    names, shapes, dtypes = (calls[name].tolist() for name in ("name", "input_shapes", "input_dtypes"))
    row_of = {index: row for row, index in enumerate(calls["index"].tolist())}
    found: dict[int, tuple[int, str]] = {}
    for instance, call in zip(trace.kernels["instance"].tolist(), trace.kernels["call"].tolist(), strict=True):
        above = [row_of[call]] if call in row_of else []
        while above and parents[above[-1]] in row_of:
            above.append(row_of[parents[above[-1]]])
        for depth, row in zip(range(len(above), 0, -1), above, strict=True):
            dtype = floating_dtype(shapes[row] or (), dtypes[row] or ()) if is_product(names[row]) else ""
            if dtype:
                found[instance] = max(found.get(instance, (0, "")), (depth, dtype))
                break
    return {instance: dtype for instance, (_, dtype) in found.items()}
