"""Totals of the phases of a recording, which are whole or unknown, and the time of products that nothing explains.

A total is the sum over all calls of its phase, or unknown: one call without a count is enough, or one that is missing
from the recording. Beside it stand the sum of what is known ("at least"), how many calls have no count, and the share
of the phase's product time that they take.
An operator that is not known is such a call if it makes products by the names of its kernels or its own, if no product
was recorded in it and its backward pass has one, and if nothing says what it does: neither do the names of its kernels,
or, on a host, it made no call. One of which all kernels do something else by their names is none.

Products of no phase and an optimizer's are in no total: they have one of their own (`Outside`).

Kernels without a recorded call belong to no phase: no total is unknown for them, but their share of the time of all
kernels that make products is reported.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.trace.calls import NONE, Missing, of_phases
from analysis.trace.kernel_families import NO_PRODUCTS
from analysis.trace.kernel_names import family, makes_products, says_nothing
from analysis.trace.operations import kind_of_call
from cleaning.counts import known_sum, whole_sum
from cleaning.trace.instances import InstanceTable
from cleaning.trace.products import Product

UNKNOWN_OPERATOR = "it makes products by its name or its kernels', and the operator is not known"
"""Why a call that is no product has no count."""

UNTOLD_OPERATOR = "the operator is not known, and nothing says whether it makes products"
"""Why a call that may be a product, or not, has no count."""

WITHOUT_COUNT = (UNKNOWN_OPERATOR, UNTOLD_OPERATOR)

_OURS = frozenset(
    ("aten", "prim", "prims", "profiler", "autograd", "c10", "c10d", "cuda", "nccl", "gloo", "mpi", "ucc")
)
"""Namespaces of operators that are PyTorch's own, whose products are known by name, or that move data and no more."""

LONGEST = 3
"""Kernels whose names say nothing that are named."""


@dataclass(frozen=True)
class PhaseTotal:
    """FLOP of a phase. flop: None if a call has no count or is missing, or nothing was recorded; at_least: sum of what
    is known.

    unknown_time_ratio: of the time of the phase's products, the share in calls without a count; None: not recorded.
    missing: why it is known that calls of it are not in the recording.
    """

    flop: int | None = None
    at_least: int | None = None
    unknown_calls: int = 0
    unknown_time_ratio: float | None = None
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True)
class UnknownCall:
    """An operator that is not known and makes products by names, or may. time_ns: of what may be its products."""

    name: str
    phase: str
    module: str
    time_ns: int
    instance: int = NONE  # index of its row among the instances
    reason: str = UNKNOWN_OPERATOR


@dataclass(frozen=True)
class Outside:
    """Products that belong to none of the phases that have a total. totals: by state. time_s: of their kernels; None:
    there are none, or one of them has no recorded time."""

    calls: int
    totals: Mapping[str, PhaseTotal]
    time_s: float | None


@dataclass(frozen=True)
class Unnamed:
    """Kernels whose names do not tell what they do: their share of all kernels' time, and the longest, (name, s)."""

    time_ratio: float | None = None
    longest: tuple[tuple[str, float], ...] = ()


def phase_total(
    products: Sequence[Product],
    unknown: Sequence[UnknownCall],
    state: str,
    phases: Sequence[str],
    missing: Sequence[Missing] = (),
) -> PhaseTotal:
    """The total of some recorded phases in a state."""
    lost = of_phases(missing, phases)
    mine = [product for product in products if product.phase in phases]
    others = [call for call in unknown if call.phase in phases]
    counts = [product.columns[f"{state}_flop"] for product in mine]
    if not mine and not others and not lost:
        return PhaseTotal()
    apart = [call.time_ns for call in others]
    lacking = [product for product, count in zip(mine, counts, strict=True) if count is None]
    return PhaseTotal(
        flop=None if others or lost else whole_sum(counts),
        at_least=known_sum(product.known[state] for product in mine) or 0,
        unknown_calls=len(lacking) + len(others),
        unknown_time_ratio=_time_ratio([*map(_time, lacking), *apart], [*map(_time, mine), *apart]),
        missing=lost,
    )


def outside(
    products: Sequence[Product],
    unknown: Sequence[UnknownCall],
    states: Iterable[str],
    phases: Sequence[str],
    missing: Sequence[Missing] = (),
) -> Outside:
    """The products of some phases that have no total, and what is known of them."""
    times = [_time(product) for product in products if product.phase in phases]
    times += [call.time_ns for call in unknown if call.phase in phases]
    return Outside(
        calls=len(times),
        totals={state: phase_total(products, unknown, state, phases, missing) for state in states},
        time_s=sum(times) * 1e-9 if times and all(times) else None,
    )


def _time_ratio(lacking: Sequence[int], whole: Iterable[int]) -> float | None:
    """Share of time, in ns; None where a call without a count has no recorded time."""
    if not lacking:
        return 0.0
    return sum(lacking) / sum(whole) if all(lacking) else None


def _time(product: Product) -> int:
    return sum(part.time_ns for part in product.parts if not part.twin)


# --- calls of operators that are not known ---------------------------------------------------------------------------


def unknown_calls(table: InstanceTable) -> tuple[UnknownCall, ...]:
    """Calls of no known kind that launched kernels which make products, or say so themselves, or of which nothing says
    what they do, in the order of start.

    A call says so by its own name ("vllm::unified_attention") where no product was recorded inside it, and no kernel
    of it says what else it does.
    """
    calls = table.calls
    times: dict[int, int] = dict.fromkeys(_named_products(table), 0)
    reasons = dict.fromkeys(times, UNKNOWN_OPERATOR)
    for at, time_ns, reason in (*_suspects(table), *_silent(table), *_differentiated(table)):
        times[at] = times.get(at, 0) + time_ns
        reasons[at] = UNKNOWN_OPERATOR if UNKNOWN_OPERATOR in (reason, reasons.get(at)) else reason
    index_of = {top: index for index, top in enumerate(table.owners)}
    made = []
    for at, time_ns in sorted(times.items()):
        phase, module = calls.column("phase")[at], calls.column("module")[at]
        made.append(UnknownCall(calls.names[at], phase, module, time_ns, index_of.get(at, NONE), reasons[at]))
    return tuple(made)


def _suspects(table: InstanceTable) -> Iterator[tuple[int, int, str]]:
    """Position of an operator that is not known, time of a kernel of it that makes products or does not tell what it
    does, which of both. A kernel that a known operator inside of it launched is known by that one."""
    calls, rows = table.calls, table.kernels
    launched = calls.places(rows["call"].to_numpy(np.int64)).tolist()
    each = zip(rows["name"], rows["what"], rows["time_ns"].tolist(), table.twins, launched, strict=True)
    for name, what, time_ns, twin, inner in each:
        if twin or inner < 0 or what != "kernel":
            continue
        owner = int(calls.owner[inner])
        at = owner if owner >= 0 else inner
        if calls.product[at] or kind_of_call(calls.names[at]):
            continue
        if makes_products(name):
            yield at, time_ns, UNKNOWN_OPERATOR
        elif says_nothing(name) and not kind_of_call(calls.names[inner]):
            yield at, time_ns, UNTOLD_OPERATOR


def _silent(table: InstanceTable) -> Iterator[tuple[int, int, str]]:
    """Calls of a recording without kernels that are of no library of PyTorch's and made no call that was recorded."""
    if "kernel" in set(table.kernels["what"]):
        return
    calls = table.calls
    around = set(calls.parent.tolist())
    times_ns = calls.column("time_ns")
    for at, name in enumerate(calls.names):
        space, _, bare = name.partition("::")
        if bare and space not in _OURS and at not in around and calls.owner[at] == at and not kind_of_call(name):
            yield at, int(times_ns[at]), UNTOLD_OPERATOR


def _differentiated(table: InstanceTable) -> Iterator[tuple[int, int, str]]:
    """Operators that are not known, in which no product was recorded, and whose backward pass has one."""
    calls = table.calls
    forward = calls.places(calls.table["forward_index"].to_numpy(np.int64))
    around = _around_products(table)
    found = dict.fromkeys(int(forward[at]) for at in np.flatnonzero(calls.product).tolist() if forward[at] >= 0)
    for at in found:
        space, _, bare = calls.names[at].partition("::")
        if bare and space not in _OURS and not kind_of_call(calls.names[at]) and at not in around:
            owner = int(calls.owner[at])
            if not calls.product[owner if owner >= 0 else at]:
                yield at, 0, UNTOLD_OPERATOR


def _around_products(table: InstanceTable) -> set[int]:
    """Positions of the calls in which a product was recorded."""
    calls = table.calls
    around: set[int] = set()
    for at in np.flatnonzero(calls.product).tolist():
        while (at := int(calls.parent[at])) >= 0 and at not in around:
            around.add(at)
    return around


def _named_products(table: InstanceTable) -> Iterator[int]:
    """Positions of outermost operators that say by their own names that they are products, and are none that is known.

    Not those in which a product was recorded, nor those of which all kernels do something else by their names.
    """
    calls, names = table.calls, table.kernels["name"].tolist()
    says = {name: makes_products(name) and not kind_of_call(name) for name in set(calls.names)}
    around = _around_products(table) if any(says.values()) else set()
    for at, name in enumerate(calls.names):
        if says[name] and calls.owner[at] == at and at not in around:
            kernels = [family(names[row]) for row in table.owners.get(at, ())]
            if not kernels or not all(word in NO_PRODUCTS for word in kernels):
                yield at


# --- time ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ProductTime:
    """Time of the kernels that make products, in ns: by their names, or as the kernels of a call that is a product."""

    whole: int = 0
    unexplained: int = 0  # in no call with a count
    outside: int = 0  # in no recorded call


def product_time(table: InstanceTable) -> ProductTime:
    """How long products ran, and how much of it is explained by a count.

    The kernels of a product are counted in by their names; where none of their names says so, all of them are.
    """
    kernels, products = table.kernels, table.products
    explained, counted = np.zeros(len(kernels), bool), np.zeros(len(kernels), bool)
    explained[[part.row for product in products if product.expected is not None for part in product.parts]] = True
    counted[[*table.product_calls, *(row for product in products for row in _nameless(product))]] = True
    makes = kernels["name"].map({name: makes_products(name) for name in kernels["name"].unique()}).to_numpy(bool)
    counted = (counted | (makes & (kernels["what"] == "kernel").to_numpy())) & ~table.twins
    time_ns, launched = kernels["time_ns"].to_numpy(np.int64), kernels["call"].to_numpy(np.int64) >= 0
    wanted = (counted, counted & ~explained, counted & ~launched)
    return ProductTime(*(int(time_ns[rows].sum()) for rows in wanted))


def _nameless(product: Product) -> Iterator[int]:
    """Rows of a product's kernels where no name of them is that of a kernel which makes products."""
    kernels = [part for part in product.parts if part.what == "kernel"]
    return iter(() if any(part.makes_products for part in kernels) else (part.row for part in kernels))


def unnamed(table: InstanceTable) -> Unnamed:
    """The kernels whose names do not tell what they do, each name once, the longest first."""
    times: dict[str, int] = {}
    whole = 0
    rows = zip(table.kernels["name"], table.kernels["what"], table.kernels["time_ns"], table.twins, strict=True)
    for name, what, time_ns, twin in rows:
        if what == "kernel" and not twin:
            whole += time_ns
            times[name] = times.get(name, 0) + time_ns
    lost = {name: time_ns for name, time_ns in times.items() if says_nothing(name)}
    longest = sorted(lost.items(), key=lambda item: (-item[1], item[0]))[:LONGEST]
    share = sum(lost.values()) / whole if whole else None
    return Unnamed(share, tuple((name, time_ns * 1e-9) for name, time_ns in longest))
