"""Cleans one product of a recording: `clean_product` gives each kernel its FLOP as found, deduplicated and repaired.

It takes a `Product` (a call with its kernels) and returns a `Cleaned`. Found is the recording's number, else PyProf's.
PyProf gives the whole operation's FLOP to every kernel of a recognised name (NVIDIA/PyProf pyprof/prof/conv.py,
linear.py, blas.py, commit 218dcc1). PyProf's errors are repeated, so that they can be explained. Deduplicated keeps one
number per unit (the product or one of its gradients). The longest kernel that makes products and is not a trial keeps
it; the others get a reason (`_reason`). Repaired gives what a unit lacks by its sizes to its longest product kernel
without a number (`_gap_reason`).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from analysis.trace.kernel_names import (
    AFTER,
    CONVOLUTION_ALL_GROUPS,
    NO_MATMUL,
    NO_PRODUCTS,
    OTHER,
    REDUCTION,
    RENAMED,
    family,
    has,
    makes_products,
    pyprof_convolution,
    pyprof_linear,
    short_name,
)
from analysis.trace.operations import is_product
from cleaning.counts import known_sum
from cleaning.trace.expected_flop import Size
from results.records.counts import CleaningLog
from results.records.rows import to_text

NO_UNIT = -1
"""Unit of a kernel for which the unit is unknown."""

FILE = "kernels.csv.gz"

FIELDS = {"raw": "found", "deduplicated": "deduplicated", "repaired": "repaired"}
"""State → the field of `Part` with the number in this state."""


class ProductKernel(NamedTuple):
    """A kernel row's fields that decide how it is cleaned."""

    name: str
    what: str
    rank: int  # of its time among the product's, the longest last
    unit: int  # which of the product's units it works for
    twin: bool  # a second row of one launch
    source_flop: int | None  # what the recording says
    call_flop: int | None  # of a row that is a call: what that call's own sizes give


class Product(NamedTuple):
    """One outermost convolution, matrix product, attention or recurrent call. Equal ones are cleaned alike."""

    name: str
    kind: str
    phase: str
    kernels: tuple[ProductKernel, ...]  # in the order of start
    size: Size
    forward_name: str = ""  # of a backward product: name of the forward call
    earlier_kernels: int = 0  # of a backward product: how many kernels of the same layer's gradients came before it


@dataclass(slots=True, eq=False)
class Part:
    """A kernel with its FLOP in each state. None: unknown."""

    kernel: ProductKernel
    found: int | None = None
    deduplicated: int | None = None
    repaired: int | None = None
    fault: str = ""
    makes_products: bool = False  # it does multiply-adds, by its name; of a call its own sizes tell
    is_trial: bool = False  # it ran only to be timed


@dataclass(frozen=True)
class Cleaned:
    """A cleaned product: its parts; state → lower bound of its FLOP; columns of its row among the instances; the log,
    whose rows lack their subject."""

    parts: tuple[Part, ...]
    known: Mapping[str, int | None]
    columns: Mapping[str, Any]
    log: tuple[CleaningLog, ...]


def clean_product(product: Product) -> Cleaned:
    """Clean a product: what each kernel was given, once, corrected by the sizes of each unit."""
    parts = [Part(kernel) for kernel in product.kernels]
    earlier = product.earlier_kernels - 1
    for part in parts:
        kernel = part.kernel
        part.makes_products = bool(kernel.call_flop) if kernel.what == "call" else makes_products(kernel.name)
        earlier += not kernel.twin
        part.found = _found_flop(product, kernel, earlier)
    _deduplicate(product, parts)
    log = _removals(parts)
    _repair(product, parts)
    known = {state: known_sum(getattr(part, name) for part in parts) for state, name in FIELDS.items()}
    if not parts:
        known["repaired"] = product.size.expected
    return Cleaned(tuple(parts), known, _columns(product, parts, known), tuple(log + _repairs(product, parts)))


def _columns(product: Product, parts: list[Part], known: Mapping[str, int | None]) -> dict[str, Any]:
    """Return the counts of a product; None where it has no count by sizes and a product kernel has no recorded number.
    A recorded number that no sizes can check counts as it is, once."""
    counts, verdict, reason = dict(known), "unknown", product.size.why
    if product.size.expected is None:
        lacks = any(map(_lacks_number, parts))
        counts = {state: None if lacks else flop or None for state, flop in known.items()}
    else:
        more = (counts["raw"] or 0) - product.size.expected
        verdict = "right" if not more else "under" if more < 0 else "over"
        faults = dict.fromkeys(part.fault for part in parts if part.fault)
        reason = "no_kernel" if lacks_kernels(product) else ", ".join(faults)
    return {
        "units": product.size.units,
        "unit_flop": product.size.unit_flop,
        "expected_flop": product.size.expected,
        **{f"{state}_flop": flop for state, flop in counts.items()},
        "verdict": verdict,
        "reason": reason,
    }


def _lacks_number(part: Part) -> bool:
    """Return whether a row makes products and has no recorded number; recorders write 0 for unknown."""
    kernel = part.kernel
    makes = is_product(kernel.name) if kernel.what == "call" else kernel.what == "kernel" and part.makes_products
    return makes and not kernel.twin and not part.found


# --- found -----------------------------------------------------------------------------------------------------------

LINEAR = ("linear", "mkldnn_linear", "linear_backward", "mkldnn_linear_backward")
"""Operators that PyProf takes for torch.nn.functional.linear."""

GRADIENTS_OF_LINEAR = 2
"""Number of kernels in a linear layer's backward pass that PyProf counts, the first ones, whatever they do."""


def _found_flop(product: Product, kernel: ProductKernel, earlier: int) -> int | None:
    """Return a kernel's recorded number. earlier: how many kernels of its layer's gradients came before it."""
    if kernel.source_flop is not None or kernel.what == "call":
        return kernel.call_flop if kernel.source_flop is None else kernel.source_flop
    flop, groups = product.size.unit_flop, product.size.groups
    if flop is None:
        return None
    if kernel.what != "kernel":
        return 0
    if product.kind == "convolution":
        share = flop if groups == 1 or has(short_name(kernel.name), CONVOLUTION_ALL_GROUPS) else flop // groups
        return share if pyprof_convolution(kernel.name) else 0
    if product.kind != "matmul":
        return 0  # PyProf knows nothing of any other kind
    name = (product.forward_name or product.name).partition("::")[2]
    if name in LINEAR:
        counts = pyprof_linear(kernel.name) and (product.phase != "backward" or earlier < GRADIENTS_OF_LINEAR)
        return flop if counts else 0
    return flop if name != "matmul" or short_name(kernel.name) not in NO_MATMUL else 0


# --- deduplicated ----------------------------------------------------------------------------------------------------

LAST_ONLY = ("implicit_gemm", "implicit_precomputed_gemm", "winograd", "direct")
"""Algorithms of one kernel per product: of several in a row the last is the run, the others are trials."""

IN_PIECES = "explicit_gemm"
"""The algorithm that repeats its kernels for pieces of a batch. With any other, two equal halves are a trial and a
run."""


def _deduplicate(product: Product, parts: list[Part]) -> None:
    """Count each multiply-add at most once, and mark trials."""
    _mark_trials(product, parts)
    size, unit_flop = product.size, product.size.unit_flop
    if unit_flop is None:  # then what the recording gives its products' kernels, if that is one number
        numbers = {part.found for part in parts if part.found and part.makes_products}
        unit_flop = numbers.pop() if len(numbers) == 1 else None
    units, flop = 1 if size.units is None else size.units, unit_flop or 0
    room = {} if unit_flop is None else {**dict.fromkeys(range(units), flop), NO_UNIT: units * flop}
    order = sorted(parts, key=lambda p: (p.kernel.twin, not p.makes_products, p.is_trial, -p.kernel.rank))
    for part in order:
        kernel, part.deduplicated = part.kernel, part.found
        # a number that is neither a unit's nor a group's share, of a kernel that makes none, is not this product's
        may_be_foreign = bool(flop) and not part.makes_products and kernel.what != "call"
        is_foreign = may_be_foreign and part.found not in (flop, flop // size.groups)
        if part.found and room:
            left = min(room[NO_UNIT], room.get(kernel.unit, room[NO_UNIT]))
            if kernel.twin or is_foreign or left <= 0 or (part.found > left and left < flop):
                part.deduplicated = 0
            else:
                for unit in {NO_UNIT, kernel.unit} & set(room):
                    room[unit] -= part.found
        elif part.found and kernel.twin:
            part.deduplicated = 0
        if part.deduplicated == part.found:
            part.fault = "autotune" if part.is_trial else ""
        else:
            part.fault = "not_product" if is_foreign and not kernel.twin else _reason(product, parts, part)


def _reason(product: Product, parts: list[Part], part: Part) -> str:
    """Return why a kernel lost its number."""
    kernel = part.kernel
    if kernel.twin:
        return "duplicate_launch"
    if family(kernel.name) == REDUCTION and kernel.what == "kernel":
        return "split_k"
    rivals = [p for p in _working(parts) if kernel.unit in (p.kernel.unit, NO_UNIT) and not p.is_trial]
    if part.is_trial or _many_algorithms(product, rivals, kernel.unit):
        return "autotune"
    counted = [other for other in rivals if other.found]
    units = product.size.units if kernel.unit == NO_UNIT and product.size.units else 1
    all_fft = counted and all(family(other.kernel.name) == "fft" for other in counted)
    return "fft_tiling" if all_fft and len(counted) == product.size.tiles * units else "multi_kernel"


def _working(parts: list[Part]) -> list[Part]:
    """Return the kernels that make products, each launch once."""
    return [p for p in parts if p.kernel.what == "kernel" and p.makes_products and not p.kernel.twin]


def _many_algorithms(product: Product, rivals: list[Part], unit: int) -> bool:
    allowed = product.size.units if unit == NO_UNIT and product.size.units else 1
    return product.kind == "convolution" and len({family(part.kernel.name) for part in rivals}) > allowed


def _mark_trials(product: Product, parts: list[Part]) -> None:
    """Mark the kernels that ran only to be timed, in units that can be told apart."""
    is_single = product.size.units == 1
    by_unit: dict[int, list[Part]] = {}
    for part in _working(parts):
        by_unit.setdefault(0 if is_single else part.kernel.unit, []).append(part)
    for unit, working in by_unit.items():
        if unit != NO_UNIT and _many_algorithms(product, working, unit):
            of_unit = [part for part in parts if not part.kernel.twin and (is_single or part.kernel.unit == unit)]
            for part in _before_the_run(of_unit, working):
                part.is_trial = True


def _before_the_run(of_unit: list[Part], working: list[Part]) -> list[Part]:
    """Return a unit's kernels before the last run of one algorithm, which is the actual run."""
    last = family(working[-1].kernel.name)
    others = [family(part.kernel.name) != last for part in working]
    first = len(working) - 1 if last in LAST_ONLY else len(working) - others[::-1].index(True)
    tail = of_unit[of_unit.index(working[first - 1]) + 1 :]
    while tail[0] is not working[first] and AFTER.search(tail[0].kernel.name):
        tail.pop(0)
    half, names = len(tail) // 2, [part.kernel.name for part in tail]
    if last != IN_PIECES and names[:half] == names[half:]:
        tail = tail[half:]
    return of_unit[: of_unit.index(tail[0])]


# --- repaired --------------------------------------------------------------------------------------------------------


def lacks_kernels(product: Product) -> bool:
    """Return whether a product has FLOP that no recorded kernel can take."""
    return not product.kernels and bool(product.size.expected)


def _repair(product: Product, parts: list[Part]) -> None:
    """Give each unit its count by sizes: first units whose kernels are known, those with too much before those that
    lack, then NO_UNIT as often as there are others. An excess is taken from a kernel that has it."""
    expected, unit_flop = product.size.expected, product.size.unit_flop or 0
    for part in parts:
        part.repaired = part.deduplicated if expected is not None else part.deduplicated or None
    if expected is None:
        return
    has: Counter[int] = Counter()
    for part in parts:
        has[part.kernel.unit] += part.deduplicated or 0
    order = sorted({*has} - {NO_UNIT}, key=lambda unit: (-has[unit], unit))
    for unit in [*order, *[NO_UNIT] * max((product.size.units or 0) - len(order), 1)]:
        of_unit = [part for part in parts if unit in (NO_UNIT, part.kernel.unit)]
        lacking = expected - sum(part.repaired or 0 for part in parts)
        if unit != NO_UNIT:
            own = unit_flop - sum(part.repaired or 0 for part in of_unit)
            lacking = own if own < 0 else max(min(lacking, own), 0)
        elif lacking > 0:
            lacking = min(lacking, unit_flop)
        if lacking and of_unit:
            part = max(of_unit, key=_lacks if lacking > 0 else lambda part: (part.repaired or 0,))
            wrong = part.repaired and product.size.groups == 1
            part.fault = "wrong_number" if wrong else _gap_reason(product, parts, part)
            part.repaired = (part.repaired or 0) + lacking


def _lacks(part: Part) -> tuple[object, ...]:
    """Return the sort key by which a kernel takes a missing number."""
    return (
        not part.kernel.twin,
        part.fault != "autotune",
        part.makes_products and not part.repaired,
        part.makes_products,
        not part.repaired,
        family(part.kernel.name) not in NO_PRODUCTS,
        part.kernel.rank,
    )


def _gap_reason(product: Product, parts: list[Part], part: Part) -> str:
    name = part.kernel.name
    if product.size.groups > 1 and any(other.deduplicated for other in parts):
        return "grouped"
    if part.kernel.what == "call":
        return "not_counted"
    if pyprof_linear(name) if product.kind == "matmul" else pyprof_convolution(name):
        took = any(other.fault == "split_k" for other in parts) or product.earlier_kernels
        return "split_k" if product.kind == "matmul" and took else "no_marker"
    if has(short_name(name), RENAMED) and not pyprof_convolution(name):
        return "renamed_kernel"
    return "unknown_kernel" if family(name) in ("", OTHER) else "unlisted_kernel"


# --- log -------------------------------------------------------------------------------------------------------------


def _entry(step: str, before: object, after: object, reason: str) -> CleaningLog:
    numbers = {"field": f"{step}_flop", "before": to_text(before), "after": to_text(after)}
    return CleaningLog(step=step, file=FILE, cell_id="", attempt=0, subject="", **numbers, reason=reason)


def _removals(parts: list[Part]) -> list[CleaningLog]:
    """Return a row for each reason for which kernels of a product lost their numbers."""
    total = known_sum(part.found for part in parts)
    lost: dict[str, list[Part]] = {}
    for part in parts:
        if part.deduplicated != part.found:
            lost.setdefault(part.fault, []).append(part)
    rows = []
    for reason, losers in lost.items():
        left = (total or 0) - sum((part.found or 0) - (part.deduplicated or 0) for part in losers)
        names = [*dict.fromkeys(part.kernel.name.removeprefix("void ")[:60] for part in losers)]
        listed = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        why = f"{reason}: {len(losers)} of {len(parts)} kernels ({listed})"
        rows.append(_entry("deduplicated", total, left, why))
        total = left
    return rows


def _repairs(product: Product, parts: list[Part]) -> list[CleaningLog]:
    """Return a row for each kernel whose number was changed by its sizes."""
    if lacks_kernels(product):
        return [_entry("repaired", None, product.size.expected, "no_kernel: the call launched no recorded kernel")]
    rows, total = [], known_sum(part.deduplicated for part in parts)
    for part in parts if product.size.expected is not None else ():
        if part.repaired != part.deduplicated:
            more = (part.repaired or 0) - (part.deduplicated or 0)
            why = f"{part.fault}: {more} FLOP by sizes on {part.kernel.name.removeprefix('void ')[:60]}"
            rows.append(_entry("repaired", total, (total or 0) + more, why))
            total = (total or 0) + more
    return rows
