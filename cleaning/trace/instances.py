"""A recording's calls and kernels as products and other outermost operators, and these as records again.

Each kernel belongs to the outermost product around its call, else to the outermost operator. A kernel of a gradient
that old PyTorch made a call of its own for (…_backward_input, …_backward_weight) works for that unit. Operators without
kernels are left out, products never. Nothing is cleaned here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from analysis.trace.calls import NONE, Calls, Ints
from analysis.trace.kernel_names import makes_products
from analysis.trace.operations import is_product, kind_of_call
from cleaning.counts import known_sum
from cleaning.profile import FORWARD
from cleaning.trace.expected_flop import Size, Sizing
from cleaning.trace.products import UNTOLD, Part, Product, lacks_kernels, repaired_flop
from results.errors import Inconsistent
from results.records.counts import OperationInstance

FIELDS = {"raw": "found", "deduplicated": "deduplicated", "repaired": "repaired"}
"""State → the field of a part that has its number."""


def count_of(product: Product, state: str) -> int | None:
    """FLOP of a product in a state; None if it has no count there, or one that leaves out a part of it.

    It has none where its sizes give none and the recording leaves a kernel of it that makes products without a number.
    A number that the recording gives and no sizes can check counts as it is, once.
    """
    if state == "repaired" and (not product.parts or product.expected is not None):
        return repaired_flop(product)
    known = known_sum(getattr(part, FIELDS[state]) for part in product.parts)
    if product.expected is not None:
        return known
    return None if any(_lacks_number(part) for part in product.parts) else known or None


def _lacks_number(part: Part) -> bool:
    """Whether a row makes products and the recording gives it no number; 0 is what recorders write for unknown."""
    makes = is_product(part.name) if part.what == "call" else part.what == "kernel" and makes_products(part.name)
    return makes and not part.twin and not part.found


def known_part(product: Product, state: str) -> int | None:
    """FLOP of what is known of a product: at least that much."""
    if state == "repaired" and not product.parts:
        return repaired_flop(product)
    return known_sum(getattr(part, FIELDS[state]) for part in product.parts)


GRADIENTS = ("backward_input", "backward_weight")
"""In the names of calls for one gradient each, in the order of units."""

SAME_LAUNCH = ("process", "correlation", "device", "stream", "start_ns", "time_ns", "name")
"""Columns of kernels in which two rows of one launch are equal."""

_MOST = 2**63 - 1


@dataclass(frozen=True)
class InstanceTable:
    """A recording by owners. `owners`: position of each instance's call → rows of its kernels, by start."""

    calls: Calls
    kernels: pd.DataFrame
    twins: np.ndarray[Any, np.dtype[np.bool_]]
    owners: Mapping[int, list[int]]
    forward_of: Mapping[int, int]
    products: tuple[Product, ...]
    product_calls: frozenset[int]


def read_table(calls: pd.DataFrame, kernels: pd.DataFrame, cleaned: Callable[[Product], Product]) -> InstanceTable:
    """The recording, with what `cleaned` makes of each product. Raises Inconsistent for calls that contradict each
    other."""
    known, rows = Calls(calls), in_order(kernels)
    call = known.places(rows["call"].to_numpy(np.int64), "a kernel's call")
    owner = np.where(call >= 0, known.owner[call], NONE) if len(known) else np.full(len(rows), NONE, np.int64)
    owners = by_owner(owner)
    tops = sorted({*owners, *np.flatnonzero(known.product & (known.owner == np.arange(len(known)))).tolist()})
    owners = {top: owners.get(top, []) for top in tops}
    forward_of = _forward_of(known, owners)
    sizing = Sizing(known, forward_of, _first(known, owners))
    reader = _Reader(known, rows, twins(rows), call, sizing, forward_of, owners)
    products = tuple(cleaned(reader.product(at, top)) for at, top in enumerate(owners) if known.product[top])
    return InstanceTable(known, rows, reader.twins, owners, forward_of, products, reader.product_calls())


def in_order(kernels: pd.DataFrame) -> pd.DataFrame:
    """The kernels by start, of those without one by index; rows numbered anew."""
    keys = (kernels["index"].to_numpy(np.int64), kernels["start_ns"].to_numpy(np.int64))
    return kernels.iloc[np.lexsort(keys)].reset_index(drop=True)


def twins(kernels: pd.DataFrame) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows are a second of one launch: those that a join over launches makes where the number is not unique."""
    again = kernels.duplicated(list(SAME_LAUNCH), keep="first").to_numpy(bool)
    return np.asarray(again & (kernels["correlation"].to_numpy(np.int64) >= 0), bool)


def by_owner(owner: Ints) -> dict[int, list[int]]:
    """Owner → rows of kernels, in order. Rows without an owner are in none."""
    rows: dict[int, list[int]] = {}
    for row, top in enumerate(owner.tolist()):
        if top >= 0:
            rows.setdefault(top, []).append(row)
    return rows


def whole_numbers(values: Sequence[Any]) -> list[int | None]:
    """Numbers of FLOP as whole ones; what is no number is None."""
    return [None if value is None or value != value else round(value) for value in values]


def _forward_of(calls: Calls, owners: Mapping[int, Sequence[int]]) -> dict[int, int]:
    """Owner → the owner of its forward call, which began before it."""
    forward = calls.places(calls.table["forward_index"].to_numpy(np.int64))
    found = {}
    for top in owners:
        if forward[top] >= 0 and (partner := int(calls.owner[forward[top]])) in owners and partner < top:
            found[top] = partner
    return found


def _first(calls: Calls, owners: Mapping[int, Sequence[int]]) -> frozenset[int]:
    """The first product of each forward pass: before it there is none, or one of another pass."""
    phases, steps = calls.column("phase"), calls.column("step")
    found, before = set(), ("", NONE)
    for top in owners:
        if calls.product[top]:
            now = ("forward" if phases[top] in FORWARD else phases[top], steps[top])
            if now[0] == "forward" and now != before:
                found.add(top)
            before = now
    return frozenset(found)


class _Reader:
    """Columns as Python values, and products made of them one by one, in the order of start."""

    def __init__(
        self,
        calls: Calls,
        kernels: pd.DataFrame,
        again: Any,
        call: Any,
        sizing: Sizing,
        forward_of: Mapping[int, int],
        owners: Mapping[int, list[int]],
    ) -> None:
        self.calls, self.twins = calls, again
        self._rows = {name: kernels[name].tolist() for name in ("name", "what", "time_ns")}
        self._source_flop = whole_numbers(kernels["source_flop"].tolist())
        self._call = call.tolist()
        self._twin = again.tolist()
        self._sizing = sizing
        self._forward_of = forward_of
        self._before: dict[int, int] = {}  # forward product → kernels of its gradients so far
        self._owners = owners

    def product(self, index: int, top: int) -> Product:
        """The product whose call is at `top`."""
        calls, rows = self.calls, self._owners[top]
        size, forward = self._sizing.size(top), self._forward_of.get(top)
        place = 0
        if forward is not None:
            place = self._before.get(forward, 0)
            self._before[forward] = place + sum(not self._twin[row] for row in rows)
        return Product(
            instance=index,
            name=calls.names[top],
            kind=kind_of_call(calls.names[top]),
            phase=calls.column("phase")[top],
            module=calls.column("module")[top],
            parts=self._parts(rows, top, size),
            units=size.units,
            unit_flop=size.unit_flop,
            forward_name="" if forward is None else calls.names[forward],
            place=place,
            groups=size.groups,
            tiles=size.tiles,
            why_unknown=size.why,
            assumed=size.assumed,
        )

    def product_calls(self) -> frozenset[int]:
        """Rows of kernels that are calls of products themselves."""
        rows = (row for row, what in enumerate(self._rows["what"]) if what == "call")
        return frozenset(row for row in rows if self._call[row] >= 0 and self.calls.product[self._call[row]])

    def _parts(self, rows: Sequence[int], top: int, size: Size) -> tuple[Part, ...]:
        parts = [self._part(row, self._unit(self._call[row], top, size)) for row in rows]
        calls = [part.unit for part in parts if part.what == "call" and self.calls.product[self._call[part.row]]]
        return tuple(
            part._replace(call_flop=self._call_flop(part, calls, size)) if part.what == "call" else part
            for part in parts
        )

    def _part(self, row: int, unit: int) -> Part:
        return Part(
            row=row,
            name=self._rows["name"][row],
            what=self._rows["what"][row],
            time_ns=self._rows["time_ns"][row],
            unit=unit,
            twin=self._twin[row],
            source_flop=self._source_flop[row],
        )

    def _unit(self, call: int, top: int, size: Size) -> int:
        if not size.units or size.units < len(GRADIENTS):
            return UNTOLD
        for at in self.calls.between(call, top):
            for unit, word in enumerate(GRADIENTS):
                if word in self.calls.names[at]:
                    return unit
        return UNTOLD

    def _call_flop(self, part: Part, calls: Sequence[int], size: Size) -> int | None:
        """What a call in a kernel's place is given: its own product; else its unit, or the whole, if it alone makes it.

        calls: units of all rows of the instance that are calls of products.
        """
        call = self._call[part.row]
        if not self.calls.product[call]:
            return 0 if size.unit_flop is not None else None
        own = self._sizing.flop_of(call)
        if own is not None or size.unit_flop is None or size.units is None:
            return own
        if part.unit != UNTOLD:
            return size.unit_flop if calls.count(part.unit) == 1 else None
        return size.units * size.unit_flop if len(calls) == 1 else None


# --- records ---------------------------------------------------------------------------------------------------------


def records(table: InstanceTable) -> tuple[OperationInstance, ...]:
    """One row an owner, in the order of start."""
    of = {product.instance: product for product in table.products}
    index_of = {top: index for index, top in enumerate(table.owners)}
    times = table.kernels["time_ns"].tolist()
    untimed = table.kernels["untimed"].tolist()
    # owners of which a kernel was launched and not recorded, so that the time of the others is not theirs
    cut = {*table.calls.owner[table.calls.table["lost_kernels"].to_numpy(np.int64) > 0].tolist()}
    made = []
    for top, index in index_of.items():
        forward = table.forward_of.get(top)
        partner = None if forward is None else index_of[forward]
        rows = table.owners[top]
        product = of.get(index)
        out = {part.row for part in product.parts if part.fault == "autotune"} if product else set()
        time_ns = sum(times[row] for row in rows if row not in out and not table.twins[row])
        known = top not in cut and not any(untimed[row] for row in rows)
        made.append(_record(table.calls, top, index, partner, rows, time_ns if known else None, product))
    return tuple(made)


def _record(
    calls: Calls,
    top: int,
    index: int,
    partner: int | None,
    rows: Sequence[int],
    time_ns: int | None,
    product: Product | None,
) -> OperationInstance:
    of = calls.column
    step, sequence, phase = int(of("step")[top]), int(of("sequence_nr")[top]), of("phase")[top]
    return OperationInstance(
        index=index,
        name=calls.names[top],
        kind=kind_of_call(calls.names[top]),
        phase=phase,
        module=of("module")[top],
        step=None if step < 0 else step,
        sequence_nr=None if sequence < 0 else sequence,
        forward_index=partner if phase == "backward" else None,
        input_shapes=of("input_shapes")[top] or (),
        input_dtypes=of("input_dtypes")[top] or (),
        concrete_inputs=of("concrete_inputs")[top] or (),
        kernels=len(rows),
        kernel_time_s=time_ns * 1e-9 if rows and time_ns is not None else None,
        host_time_s=int(of("time_ns")[top]) * 1e-9 if of("start_ns")[top] >= 0 else None,
        **(product.columns if product else {}),
    )


def columns_of(product: Product) -> dict[str, Any]:
    """What cleaning made of a product, as columns of its row."""
    raw = count_of(product, "raw")
    verdict, reason = _verdict(product, raw)
    return {
        "units": product.units,
        "unit_flop": product.unit_flop,
        "expected_flop": product.expected,
        "raw_flop": raw,
        "deduplicated_flop": count_of(product, "deduplicated"),
        "repaired_flop": count_of(product, "repaired"),
        "verdict": verdict,
        "reason": reason,
    }


def _verdict(product: Product, raw: int | None) -> tuple[str, str]:
    if product.expected is None:
        return "unknown", product.why_unknown
    faults = dict.fromkeys(part.fault for part in product.parts if part.fault)
    reason = "no_kernel" if lacks_kernels(product) else ", ".join(faults)
    if (raw or 0) == product.expected:
        return "right", reason
    return ("under" if (raw or 0) < product.expected else "over"), reason


def with_flop(table: InstanceTable) -> pd.DataFrame:
    """The kernels with found_flop, deduplicated_flop, repaired_flop, instance and fault.

    A kernel of no product has what the recording says in all three, a second row of its launch only as found.
    """
    says = whole_numbers(table.kernels["source_flop"].tolist())
    once = [0 if twin and number else number for number, twin in zip(says, table.twins.tolist(), strict=True)]
    columns = {"found": says, "deduplicated": once, "repaired": list(once)}
    fault = np.where(table.twins, "duplicate_launch", "").astype(object)
    instance = np.full(len(says), NONE, np.int64)
    for index, rows in enumerate(table.owners.values()):
        instance[rows] = index
    for product in table.products:
        for part in product.parts:
            for name, column in columns.items():
                column[part.row] = getattr(part, name)
            fault[part.row] = part.fault or fault[part.row]
    most = max((flop for column in columns.values() for flop in column if flop is not None), key=abs, default=0)
    if abs(most) > _MOST:
        raise Inconsistent(f"expected FLOP of a kernel that a number of 64 bits holds, got {most:.3g}")
    made = {f"{name}_flop": pd.array(column, dtype="Int64") for name, column in columns.items()}
    return table.kernels.assign(**made, instance=instance, fault=fault)
