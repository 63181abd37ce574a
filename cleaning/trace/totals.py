"""Totals a recording's phases, and measures the time of kernels that no counted product explains.

`phase_total` takes an `InstanceTable` (a recording's products with their kernels) and returns a `PhaseTotal`. If one
call of a phase has no count or is missing, the phase's FLOP are unknown. The result then has a lower bound, the number
of such calls, and their share of the phase's product time. `unknown_calls` returns calls of unknown operators that make
products, or may make them. `outside` totals products of an optimizer and of no phase separately. `product_time` returns
the time of product kernels. A kernel without a recorded call makes no total unknown.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.trace.calls import NONE, Missing, named
from analysis.trace.kernel_names import NO_PRODUCTS, family, makes_products
from analysis.trace.operations import kind_of_call
from cleaning.counts import known_sum, whole_sum
from cleaning.trace.instances import InstanceTable

UNKNOWN_OPERATOR = "it makes products by its name or its kernels', and the operator is not known"
"""Why a call of an unknown operator that makes products has no count."""

UNCLEAR_OPERATOR = "the operator is not known, and nothing says whether it makes products"
"""Why a call that may be a product has no count."""

WITHOUT_COUNT = (UNKNOWN_OPERATOR, UNCLEAR_OPERATOR)

_TORCH_NAMESPACES = frozenset(
    ("aten", "prim", "prims", "profiler", "autograd", "c10", "c10d", "cuda", "nccl", "gloo", "mpi", "ucc")
)
"""Namespaces of PyTorch's own operators. Their products are known by name; the others only move data."""

LONGEST = 3
"""Maximum number of kernels with uninformative names that are listed."""


@dataclass(frozen=True)
class PhaseTotal:
    """FLOP of a phase. flop: None if a call has no count or is missing, or nothing was recorded; at_least: lower bound.

    unknown_time_ratio: of the time of the phase's products, the share in calls without a count; None: not recorded.
    missing: how it is known that the recording lacks calls of the phase.
    """

    flop: int | None = None
    at_least: int | None = None
    unknown_calls: int = 0
    unknown_time_ratio: float | None = None
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True)
class UnknownCall:
    """An unknown operator that makes, or may make, products. time_ns: of what may be its products."""

    name: str
    phase: str
    module: str
    time_ns: int
    instance: int = NONE  # index of its row among the instances
    reason: str = UNKNOWN_OPERATOR


@dataclass(frozen=True)
class Outside:
    """Products outside all phases that have a total. totals: by state. time_s: of their kernels; None: there are none,
    or one of them has no recorded time."""

    calls: int
    totals: Mapping[str, PhaseTotal]
    time_s: float | None


@dataclass(frozen=True)
class Unnamed:
    """Kernels with uninformative names: their share of all kernels' time, and the longest, (name, s)."""

    time_ratio: float | None = None
    longest: tuple[tuple[str, float], ...] = ()


def phase_total(
    table: InstanceTable,
    unknown: Sequence[UnknownCall],
    state: str,
    phases: Sequence[str],
    missing: Sequence[Missing] = (),
) -> PhaseTotal:
    """Return the total of some recorded phases in a state."""
    lost = tuple(sign for sign in missing if sign.phase in phases)
    times = [call.time_ns for call in unknown if call.phase in phases]
    products = [(cleaned, time_ns) for product, cleaned, time_ns in table.products if product.phase in phases]
    if not products and not times and not lost:
        return PhaseTotal()
    counts = [cleaned.columns[f"{state}_flop"] for cleaned, _ in products]
    lacking = [time_ns for (_, time_ns), count in zip(products, counts, strict=True) if count is None] + times
    ratio: float | None = 0.0
    if lacking:
        ratio = sum(lacking) / (sum(time_ns for _, time_ns in products) + sum(times)) if all(lacking) else None
    return PhaseTotal(
        flop=None if times or lost else whole_sum(counts),
        at_least=known_sum(cleaned.known[state] for cleaned, _ in products) or 0,
        unknown_calls=len(lacking),
        unknown_time_ratio=ratio,
        missing=lost,
    )


def outside(
    table: InstanceTable,
    unknown: Sequence[UnknownCall],
    states: Sequence[str],
    phases: Sequence[str],
    missing: Sequence[Missing] = (),
) -> Outside:
    """Return the products of some phases that have no total, and what is known of them."""
    times = [time_ns for product, _, time_ns in table.products if product.phase in phases]
    times += [call.time_ns for call in unknown if call.phase in phases]
    totals = {state: phase_total(table, unknown, state, phases, missing) for state in states}
    return Outside(len(times), totals, sum(times) * 1e-9 if times and all(times) else None)


# --- calls of operators that are not known ---------------------------------------------------------------------------


def unknown_calls(table: InstanceTable) -> tuple[UnknownCall, ...]:
    """Return calls of unknown operators that may be products, in order of start.

    Such a call meets one of four conditions. It launched kernels that make products, or whose names do not tell. Its
    name says that it makes products ("vllm::unified_attention"), and its kernels, if any, do not show another purpose.
    It is of a library other than PyTorch, made no recorded call, and the recording has no kernels. It is of such a
    library, and its backward pass has a product. A call around a recorded product meets none of the last three. A
    kernel that a known operator inside a call launched belongs to that operator.
    """
    calls, kernels, owner = table.calls, table.kernels, table.calls.owner.tolist()
    may_make: Counter[int] = Counter()  # calls → time of what may be their products, ns
    makes: set[int] = set()
    columns = (kernels["name"], kernels["what"], kernels["time_ns"].tolist(), table.twins, table.launched)
    for name, what, time_ns, twin, inner in zip(*columns, strict=True):
        if twin or inner < 0 or what != "kernel" or family(name) in NO_PRODUCTS:
            continue
        position = owner[inner] if owner[inner] >= 0 else inner
        if not kind_of_call(calls.names[position]) and (makes_products(name) or not kind_of_call(calls.names[inner])):
            may_make[position] += time_ns
            makes |= {position} if makes_products(name) else set()
    around_products, parents = set(), set(calls.parent.tolist())
    for position in np.flatnonzero(calls.product).tolist():
        while (position := int(calls.parent[position])) >= 0 and position not in around_products:
            around_products.add(position)
    forward = calls.positions(calls.table["forward_index"].to_numpy(np.int64))
    differentiated = set(forward[calls.product].tolist())
    index_of = {instance.call: index for index, instance in enumerate(table.instances)}
    kernel_names, times_ns = kernels["name"].tolist(), calls.columns["time_ns"]
    has_kernels = (kernels["what"] == "kernel").any()
    for position, name in enumerate(calls.names):
        if kind_of_call(name) or position in around_products:
            continue
        space, _, bare = name.partition("::")
        is_foreign = bool(bare) and space not in _TORCH_NAMESPACES
        if owner[position] == position and makes_products(name):
            rows = table.instances[index_of[position]].rows if position in index_of else []
            if not rows or not all(family(kernel_names[row]) in NO_PRODUCTS for row in rows):
                makes.add(position)
        if is_foreign and owner[position] == position and not has_kernels and position not in parents:
            may_make[position] += int(times_ns[position])
        if (
            is_foreign
            and position in differentiated
            and not calls.product[owner[position] if owner[position] >= 0 else position]
        ):
            may_make[position] += 0
    phases, modules = calls.columns["phase"], calls.columns["module"]
    return tuple(
        UnknownCall(
            calls.names[position],
            phases[position],
            modules[position],
            may_make[position],
            index_of.get(position, NONE),
            UNKNOWN_OPERATOR if position in makes else UNCLEAR_OPERATOR,
        )
        for position in sorted(makes | {*may_make})
    )


# --- time ------------------------------------------------------------------------------------------------------------


def product_time(table: InstanceTable) -> list[int]:
    """Return the time of the kernels that make products, in ns: of all, in no call with a count, and in no recorded
    call.

    A product's kernels count by their names; where no name says so, all of them count.
    """
    kernels, launched = table.kernels, np.asarray(table.launched, np.int64)
    is_kernel = (kernels["what"] == "kernel").to_numpy()
    makes = named(kernels["name"], makes_products)
    of_product = np.append(table.calls.product, False)[launched]
    counted = (is_kernel & makes) | ((kernels["what"] == "call").to_numpy() & of_product)
    explained = np.zeros(len(kernels), bool)
    for instance in table.instances:
        if instance.product is not None:
            explained[instance.rows] = instance.product.size.expected is not None
            rows = [row for row in instance.rows if is_kernel[row]]
            if not makes[rows].any():
                counted[rows] = True
    counted &= ~np.asarray(table.twins, bool)
    time_ns, launched_by = kernels["time_ns"].to_numpy(np.int64), kernels["call"].to_numpy(np.int64)
    wanted = (counted, counted & ~explained, counted & (launched_by < 0))
    return [int(time_ns[rows].sum()) for rows in wanted]


def unnamed(table: InstanceTable) -> Unnamed:
    """Return the kernels with uninformative names, each name once, the longest first."""
    kernels = table.kernels[(table.kernels["what"] == "kernel") & ~np.asarray(table.twins, bool)]
    times = kernels.groupby("name")["time_ns"].sum()
    lost = times[[not family(name) for name in times.index]].sort_values(ascending=False, kind="stable")
    share = int(lost.sum()) / int(times.sum()) if times.sum() else None
    return Unnamed(share, tuple((str(name), time_ns * 1e-9) for name, time_ns in lost[:LONGEST].items()))
