"""Attributed recordings cleaned: what each kernel was given, once, with gaps filled from sizes, and why they differ.

From the calls and kernels of a recording to products with their kernels, by small steps in order (found → deduplicated
→ repaired), with a log row for every change. Totals are of products (convolution, matmul, attention, recurrent) in the
forward pass (loss included), the backward pass, and what checkpointing recalculates; an optimizer's products and those
of no phase are in none. No kernel is dropped, and no product is left out in silence.

Not claimed: FLOP of what is no product; that a product without a kernel ran; anything of time, but which share of it
is spent in kernels that look like a product's and are none of any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.kernel_names import makes_products
from cleaning.instances import FORWARD
from cleaning.sums import known_sum
from cleaning.trace_duplicates import deduplicated
from cleaning.trace_found import found
from cleaning.trace_instances import Table, read_table, records, with_flop
from cleaning.trace_products import Cleaned, Product
from cleaning.trace_repairs import lacks_kernels, repaired, repaired_flop
from results.records import CleaningLog, OperationInstance

STATES = ("raw", "deduplicated", "repaired")

PHASES: Mapping[str, tuple[str, ...]] = {
    "forward_flop": FORWARD,
    "backward_flop": ("backward",),
    "recompute_flop": ("recompute",),
}
"""A total → the recorded phases that it is the sum of."""

Fault = tuple[str, int, int]
Totals = dict[str, dict[str, int | None]]

STEPS: tuple[Callable[[tuple[Product, ...]], Cleaned], ...] = (deduplicated, repaired)


@dataclass(frozen=True)
class CleanedTrace:
    """A recording with what was found, what is left of it once duplicates are out, and what sizes say.

    kernels: the table that came in, by start, with found_flop, deduplicated_flop, repaired_flop (Int64), instance (-1:
    none) and fault. Rows with the fault "duplicate_launch" or "autotune" are no part of a step's time.
    faults: (reason, operations, FLOP that repair changed: raw + the sum over faults is repaired). totals: state →
    phase → FLOP; None where nothing of the phase is known. unexplained_time_ratio: of the time of kernels that make
    products by their name, the share in no product with a count; None: there are none.
    """

    instances: tuple[OperationInstance, ...]
    kernels: pd.DataFrame
    faults: tuple[Fault, ...]
    log: tuple[CleaningLog, ...]
    totals: Totals
    unexplained_time_ratio: float | None


def clean(calls: pd.DataFrame, kernels: pd.DataFrame, source: str) -> CleanedTrace:
    """An attributed recording (columns of measure.traces.recording), cleaned. source: kineto, nsys, pyprof, cupti.

    The order of rows does not matter. Raises Inconsistent for calls that contradict each other.
    """
    table = read_table(calls, kernels, source)
    products = tuple(found(product) for product in table.products)
    log: list[CleaningLog] = []
    for step in STEPS:
        outcome = step(products)
        products = outcome.products
        log.extend(outcome.log)
    return CleanedTrace(
        instances=records(table, products),
        kernels=with_flop(table, products),
        faults=_faults(products),
        log=tuple(log),
        totals=_totals(products),
        unexplained_time_ratio=_unexplained(table, products),
    )


def instance_flop(product: Product, state: str) -> int | None:
    """FLOP of a product in one of STATES."""
    if state == "repaired":
        return repaired_flop(product)
    return known_sum(part.found if state == "raw" else part.deduplicated for part in product.parts)


def _totals(products: Sequence[Product]) -> Totals:
    return {
        state: {
            name: known_sum(instance_flop(product, state) for product in products if product.phase in phases)
            for name, phases in PHASES.items()
        }
        for state in STATES
    }


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


def _unexplained(table: Table, products: Sequence[Product]) -> float | None:
    """Share of the time of kernels that make products in which no product with a count is."""
    explained = {part.row for product in products if product.expected is not None for part in product.parts}
    rows = zip(table.kernels["name"], table.kernels["what"], table.kernels["time_ns"], table.twins, strict=True)
    whole = lost = 0
    for row, (name, what, time_ns, twin) in enumerate(rows):
        if not twin and (makes_products(name) if what == "kernel" else row in table.product_calls):
            whole += time_ns
            lost += 0 if row in explained else time_ns
    return lost / whole if whole else None
