"""Splits a recording into products and other outermost operators, each with its kernels, and converts them to records.

`read_table` takes tables of calls and kernels and returns an `InstanceTable`. `records` takes that table and returns
`OperationInstance`s; `with_flop` returns its kernels with their FLOP. Each kernel belongs to the outermost product
around its call, else to the outermost operator. Old PyTorch has one call per gradient (…_backward_input,
…_backward_weight). The kernels of such a call belong to that gradient. Operators without kernels are left out; products
without kernels stay. Equal products are cleaned once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.trace.calls import NONE, Calls
from analysis.trace.operations import kind_of_call
from cleaning.profile import FORWARD
from cleaning.trace.expected_flop import Size, Sizing
from cleaning.trace.products import FIELDS, NO_UNIT, Cleaned, Product, ProductKernel, clean_product
from results.errors import Inconsistent
from results.records.counts import OperationInstance

GRADIENTS = ("backward_input", "backward_weight")
"""Parts of the names of calls that compute a single gradient: unit 0 is the input's, unit 1 the weight's."""

SAME_LAUNCH = ("process", "correlation", "device", "stream", "start_ns", "time_ns", "name")
"""Kernel columns that are equal in two rows of one launch."""

_MOST = 2**63 - 1


class Instance(NamedTuple):
    """An outermost product or operator with its kernels."""

    call: int  # position of its call
    rows: list[int]  # of its kernels, by start
    time_ns: int  # of its kernels, each launch once
    product: Product | None = None
    cleaned: Cleaned | None = None


@dataclass(frozen=True)
class InstanceTable:
    """A recording grouped by owner, the outermost product or operator around a call.

    twins: whether a kernel row repeats an earlier row's launch. launched: position of each kernel's call. forward_of:
    position of an owner → position of its forward call's owner.
    """

    calls: Calls
    kernels: pd.DataFrame
    twins: list[bool]
    launched: list[int]
    instances: tuple[Instance, ...]
    forward_of: Mapping[int, int]

    @functools.cached_property
    def products(self) -> list[tuple[Product, Cleaned, int]]:
        """Each product with the time of its kernels."""
        return [(i.product, i.cleaned, i.time_ns) for i in self.instances if i.product and i.cleaned]


def read_table(calls: pd.DataFrame, kernels: pd.DataFrame) -> InstanceTable:
    """Read the recording and clean its products. Raises Inconsistent for calls that contradict each other."""
    known = Calls(calls)
    keys = (kernels["index"].to_numpy(np.int64), kernels["start_ns"].to_numpy(np.int64))
    kernels = kernels.iloc[np.lexsort(keys)].reset_index(drop=True)
    launched = known.positions(kernels["call"].to_numpy(np.int64), "a kernel's call")
    owner = np.where(launched >= 0, known.owner[launched], NONE) if len(known) else np.full(len(kernels), NONE)
    order = np.argsort(owner, kind="stable")
    tops, first = np.unique(owner[order], return_index=True)
    rows_of = dict(zip(tops.tolist(), np.split(order, first[1:]), strict=False))
    products = np.flatnonzero(known.product & (known.owner == np.arange(len(known)))).tolist()
    owners = {top: rows_of[top].tolist() if top in rows_of else [] for top in sorted({*rows_of, *products} - {NONE})}
    again = kernels.duplicated(list(SAME_LAUNCH), keep="first").to_numpy(bool)
    twins = np.asarray(again & (kernels["correlation"].to_numpy(np.int64) >= 0), bool).tolist()
    forward_of = _forward_of(known, owners)
    instances = tuple(_instances(known, kernels, twins, launched.tolist(), owners, forward_of))
    return InstanceTable(known, kernels, twins, launched.tolist(), instances, forward_of)


def _forward_of(calls: Calls, owners: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Return owner → the owner of its forward call, which began before it."""
    forward = calls.positions(calls.table["forward_index"].to_numpy(np.int64))
    forward_of = {}
    for top in owners:
        if forward[top] >= 0 and (partner := int(calls.owner[forward[top]])) in owners and partner < top:
            forward_of[top] = partner
    return forward_of


def _first(calls: Calls, owners: Mapping[int, Sequence[int]]) -> frozenset[int]:
    """Return the first product of each forward pass: no product, or one of another pass, precedes it."""
    phases, steps = calls.columns["phase"], calls.columns["step"]
    firsts, before = set(), ("", NONE)
    for top in owners:
        if calls.product[top]:
            now = ("forward" if phases[top] in FORWARD else phases[top], steps[top])
            if now[0] == "forward" and now != before:
                firsts.add(top)
            before = now
    return frozenset(firsts)


def _instances(
    calls: Calls,
    kernels: pd.DataFrame,
    twins: list[bool],
    launched: list[int],
    owners: Mapping[int, list[int]],
    forward_of: Mapping[int, int],
) -> Iterator[Instance]:
    """Yield the owners in order of start, products cleaned."""
    names, whats, times = (kernels[name].tolist() for name in ("name", "what", "time_ns"))
    source_flop = _whole_numbers(kernels["source_flop"].tolist())
    sizing = Sizing(calls, forward_of, _first(calls, owners))
    clean_once = functools.cache(clean_product)
    before: dict[int, int] = {}  # forward product → kernels of its gradients so far
    for top, rows in owners.items():
        time_ns = sum([times[row] for row in rows if not twins[row]])
        if not calls.product[top]:
            yield Instance(top, rows, time_ns)
            continue
        size, forward = sizing.size(top), forward_of.get(top, NONE)
        earlier = before.get(forward, 0)
        before[forward] = earlier + sum([not twins[row] for row in rows])
        rank = {time: index for index, time in enumerate(sorted({times[row] for row in rows}))}
        units = [_unit(calls, launched[row], top, size) for row in rows]
        is_call = [whats[row] == "call" and calls.product[launched[row]] for row in rows]
        product_units = [unit for unit, is_product in zip(units, is_call, strict=True) if is_product]
        parts = []
        for row, unit in zip(rows, units, strict=True):
            own = _call_flop(calls, sizing, launched[row], unit, product_units, size) if whats[row] == "call" else None
            parts.append(
                ProductKernel(names[row], whats[row], rank[times[row]], unit, twins[row], source_flop[row], own)
            )
        product = Product(
            calls.names[top],
            kind_of_call(calls.names[top]),
            calls.columns["phase"][top],
            tuple(parts),
            size,
            "" if forward == NONE else calls.names[forward],
            0 if forward == NONE else earlier,
        )
        yield Instance(top, rows, time_ns, product, clean_once(product))


def _whole_numbers(values: Sequence[Any]) -> list[int | None]:
    """Convert FLOP to ints; what is not a number becomes None."""
    return [None if value is None or value != value else round(value) for value in values]


def _unit(calls: Calls, call: int, top: int, size: Size) -> int:
    """Return the product's unit that a call's kernels belong to."""
    if not size.units or size.units < len(GRADIENTS):
        return NO_UNIT
    while call not in (NONE, top):
        for unit, word in enumerate(GRADIENTS):
            if word in calls.names[call]:
                return unit
        call = int(calls.parent[call])
    return NO_UNIT


def _call_flop(calls: Calls, sizing: Sizing, call: int, unit: int, units: Sequence[int], size: Size) -> int | None:
    """Return the FLOP of a call without kernels by its own sizes; else those of its unit, or of the whole product, if
    no other call makes that; else None.

    units: those of all rows of the product that are calls of products.
    """
    if not calls.product[call]:
        return 0 if size.unit_flop is not None else None
    own = sizing.flop_of(call)
    if own is not None or size.unit_flop is None or size.units is None:
        return own
    if unit != NO_UNIT:
        return size.unit_flop if units.count(unit) == 1 else None
    return size.units * size.unit_flop if len(units) == 1 else None


# --- records ---------------------------------------------------------------------------------------------------------


def records(table: InstanceTable) -> list[OperationInstance]:
    """Return one row per owner, in order of start."""
    index_of = {instance.call: index for index, instance in enumerate(table.instances)}
    times, untimed = (table.kernels[name].tolist() for name in ("time_ns", "untimed"))
    calls = table.calls
    # owners of which a kernel was launched and not recorded, so that the time of the others is not theirs
    cut = {*calls.owner[calls.table["lost_kernels"].to_numpy(np.int64) > 0].tolist()}
    names = ("phase", "module", "step", "sequence_nr", "input_shapes", "input_dtypes", "concrete_inputs")
    columns = [calls.columns[name] for name in (*names, "time_ns", "start_ns")]
    instances = []
    for index, (top, rows, time_ns, product, cleaned) in enumerate(table.instances):
        phase, module, step, sequence, shapes, dtypes, values, host_ns, start_ns = [column[top] for column in columns]
        for row, part in zip(rows, cleaned.parts if cleaned else (), strict=False):
            time_ns -= times[row] if part.fault == "autotune" and not table.twins[row] else 0
        known = rows and top not in cut and not any(untimed[row] for row in rows)
        instances.append(
            OperationInstance(
                index=index,
                name=calls.names[top],
                kind=product.kind if product else kind_of_call(calls.names[top]),
                phase=phase,
                module=module,
                step=None if step < 0 else int(step),
                sequence_nr=None if sequence < 0 else int(sequence),
                forward_index=index_of.get(table.forward_of.get(top, NONE)) if phase == "backward" else None,
                input_shapes=shapes or (),
                input_dtypes=dtypes or (),
                concrete_inputs=values or (),
                kernels=len(rows),
                kernel_time_s=time_ns * 1e-9 if known else None,
                host_time_s=int(host_ns) * 1e-9 if start_ns >= 0 else None,
                **(cleaned.columns if cleaned else {}),
            )
        )
    return instances


def with_flop(table: InstanceTable) -> pd.DataFrame:
    """Return the kernels with found_flop, deduplicated_flop, repaired_flop, instance and fault.

    A kernel of no product has the recorded number in all three; a second row of its launch only in found_flop. Raises
    Inconsistent for FLOP that 64 bits do not hold.
    """
    source_flop = _whole_numbers(table.kernels["source_flop"].tolist())
    once = [0 if twin and number else number for number, twin in zip(source_flop, table.twins, strict=True)]
    columns = {"found": source_flop, "deduplicated": once, "repaired": list(once)}
    fault = ["duplicate_launch" if twin else "" for twin in table.twins]
    instance = np.full(len(source_flop), NONE, np.int64)
    for index, owner in enumerate(table.instances):
        instance[owner.rows] = index
        for row, part in zip(owner.rows, owner.cleaned.parts if owner.cleaned else (), strict=False):
            for name in FIELDS.values():
                columns[name][row] = getattr(part, name)
            fault[row] = part.fault or fault[row]
    most = max((flop for column in columns.values() for flop in column if flop is not None), key=abs, default=0)
    if abs(most) > _MOST:
        raise Inconsistent(f"expected FLOP of a kernel that a number of 64 bits holds, got {most:.3g}")
    flop_columns = {f"{name}_flop": pd.array(column, dtype="Int64") for name, column in columns.items()}
    return table.kernels.assign(**flop_columns, instance=instance, fault=np.array(fault, object))
