"""Attributed recordings cleaned: what each kernel was given, once, with gaps filled from sizes, and why they differ.

From the calls and kernels of a recording to products with their kernels, by small steps in order (found → deduplicated
→ repaired), with a log row for every change. Totals are of products (convolution, matmul, attention, recurrent) in the
forward pass (loss included), the backward pass, and what checkpointing recalculates; an optimizer's products and those
of no phase are in none and stand apart. No kernel is dropped, and no product is left out in silence.

A total is of all calls of its phase or unknown (`totals.py`).

Not claimed: FLOP of what is no product; that a product without a kernel ran; anything of time, but which share of it
is spent in kernels that look like a product's and are none of any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

from analysis.trace.missing import MISSING, UNNUMBERED, Missing
from cleaning.profile.instances import FORWARD
from cleaning.trace.double_counts import deduplicated
from cleaning.trace.instances import read_table, records, with_flop
from cleaning.trace.products import Cleaned, Product
from cleaning.trace.recorded_flop import assign_flop
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
from cleaning.trace.undercounts import lacks_kernels, repaired
from results.records.counts import CleaningLog
from results.records.operations import OperationInstance

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

STEPS: tuple[Callable[[tuple[Product, ...]], Cleaned], ...] = (deduplicated, repaired)


@dataclass(frozen=True)
class CleanedTrace:
    """A recording with what was found, what is left of it once duplicates are out, and what sizes say.

    kernels: the table that came in, by start, with found_flop, deduplicated_flop, repaired_flop (Int64), instance (-1:
    none) and fault. Rows with the fault "duplicate_launch" or "autotune" are no part of a step's time.
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
    log: tuple[CleaningLog, ...]
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


def clean(
    calls: pd.DataFrame, kernels: pd.DataFrame, missing: Sequence[Missing] = (), *, numbered: bool = True
) -> CleanedTrace:
    """An attributed recording (columns of measure.trace.attribution.recording), cleaned.

    missing: what the recording is known to lack (`Recording.missing`). numbered: whether its calls are
    (`Recording.numbered`); if not, a row of `instances` without a name and count says so.

    The order of rows does not matter. Raises Inconsistent for calls that contradict each other.
    """
    table = read_table(calls, kernels)
    products = tuple(assign_flop(product) for product in table.products)
    log: list[CleaningLog] = []
    for step in STEPS:
        outcome = step(products)
        products = outcome.products
        log.extend(outcome.log)
    unknown = unknown_calls(table)
    totals = {
        state: {name: phase_total(products, unknown, state, phases, missing) for name, phases in PHASES.items()}
        for state in STATES
    }
    time = product_time(table, products)
    lacking = {call.instance: call.reason for call in unknown}
    instances = records(table, products)
    return CleanedTrace(
        instances=(
            *(replace(row, reason=lacking[row.index]) if row.index in lacking else row for row in instances),
            *(_absent(index, each) for index, each in enumerate(missing, len(instances))),
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
        kernels=with_flop(table, products),
        faults=_faults(products),
        log=tuple(log),
        totals={state: {name: total.flop for name, total in of.items()} for state, of in totals.items()},
        unexplained_time_ratio=time.unexplained_ratio,
        phase_totals=totals,
        unknown_calls=unknown,
        outside_time_ratio=time.outside_ratio,
        unnamed=unnamed(table),
        assumed_gradients=sum(product.assumed for product in products),
        product_time_s=time.whole * 1e-9,
        outside_phases={name: outside(products, unknown, STATES, phases, missing) for name, phases in OUTSIDE.items()},
        missing=tuple(missing),
    )


def _absent(index: int, missing: Missing) -> OperationInstance:
    """The row of calls that are not in the recording: whoever adds up the rows of its phase meets it."""
    return OperationInstance(index=index, name="", kind="", phase=missing.phase, reason=f"{MISSING}{missing.reason}")


def _faults(products: Iterable[Product]) -> tuple[Fault, ...]:
    """Each reason with its products and the FLOP that repair changed, in order of first appearance."""
    of: dict[str, dict[int, int]] = {}
    for product in products:
        if lacks_kernels(product):
            of.setdefault("no_kernel", {})[product.index] = product.expected or 0
        elif product.unit_flop is None:
            of.setdefault("no_sizes", {})[product.index] = 0
        for part in product.parts:
            if part.fault:
                changed = of.setdefault(part.fault, {})
                more = (part.repaired or 0) - (part.found or 0)
                changed[product.index] = changed.get(product.index, 0) + more
    return tuple((reason, len(changed), sum(changed.values())) for reason, changed in of.items())
