"""Gaps of a recording filled from sizes: what a product's units lack is put on the kernels that must have done it.

A unit without FLOP takes them on the longest kernel that does multiply-adds and has none; where no name says so, on the
longest of all. Reasons, the first that fits:

* `no_kernel`: the call launched no recorded kernel (a cut capture, a graph); the product counts, no kernel does.
* `grouped`: kernels of a convolution in groups were given a group's share, and are fewer than the groups.
* `wrong_number`: the kernel's number is not the product's.
* `split_k`: the kernel's number was spent on a reduction over partial products.
* `renamed_kernel`: PyProf knew the kernel by an older name.
* `no_marker`: the recorder knows the kernel's name, but not of what product it is.
* `unlisted_kernel`: a kernel of a product, by its name, that is in no list of PyProf's.
* `unknown_kernel`: the name says nothing.
* `not_counted`: a call that its recorder gives no number.

Where sizes give no count, a number stays as it was found, once, and a gap stays unknown: it is in the time that no
product explains.
"""

from analysis.trace.kernel_families import NO_PRODUCTS, OTHER
from analysis.trace.kernel_names import family, is_renamed, pyprof_convolution, pyprof_linear
from cleaning.counts.steps import known_sum
from cleaning.trace.products import UNTOLD, Part, Product, entry
from results.records.counts import CleaningLog


def lacks_kernels(product: Product) -> bool:
    """Whether a product has FLOP that no recorded kernel can take."""
    return not product.parts and bool(product.expected)


def repaired_flop(product: Product) -> int | None:
    """FLOP of a product after repair; one that launched no kernel has what its sizes give."""
    return known_sum(part.repaired for part in product.parts) if product.parts else product.expected


def repaired(product: Product) -> Product:
    """A product with what sizes say of each unit."""
    parts = [part._replace(repaired=part.deduplicated) for part in product.parts]
    if product.expected is None:
        parts = [part._replace(repaired=part.deduplicated or None) for part in parts]
    if product.expected is None or not parts:
        return product._replace(parts=tuple(parts))
    for unit in _order(product):
        _fill(product, parts, unit)
    return product._replace(parts=tuple(parts))


def _order(product: Product) -> list[int]:
    """Units whose kernels are known, what has too much before what lacks, then as often UNTOLD as there are others."""
    has: dict[int, int] = {}
    for part in product.parts:
        if part.unit != UNTOLD:
            has[part.unit] = has.get(part.unit, 0) + (part.deduplicated or 0)
    order = sorted(has, key=lambda unit: (-has[unit], unit))
    return [*order, *[UNTOLD] * max((product.units or 0) - len(order), 1)]


def _fill(product: Product, parts: list[Part], unit: int) -> None:
    """Give one unit what it lacks. `parts` is changed."""
    mine = [at for at, part in enumerate(parts) if unit in (UNTOLD, part.unit)]
    lacking = (product.expected or 0) - sum(part.repaired or 0 for part in parts)
    if unit != UNTOLD:
        own = (product.unit_flop or 0) - sum(parts[at].repaired or 0 for at in mine)
        lacking = own if own < 0 else max(min(lacking, own), 0)
    elif lacking > 0:
        lacking = min(lacking, product.unit_flop or 0)
    if not lacking or not mine:
        return
    at = _receiver(parts, mine, lacking)
    had = parts[at].repaired or 0
    reason = "wrong_number" if had and product.groups == 1 else _reason(product, parts, at)
    parts[at] = parts[at]._replace(repaired=had + lacking, fault=reason)


def _receiver(parts: list[Part], mine: list[int], lacking: int) -> int:
    """The kernel that a lacking number goes to; a number that is too much is taken from one that has it."""
    if lacking < 0:
        return max(mine, key=lambda at: (parts[at].repaired or 0, -at))
    return max(
        mine,
        key=lambda at: (
            not parts[at].twin,
            parts[at].fault != "autotune",
            parts[at].makes_products and not parts[at].repaired,
            parts[at].makes_products,
            not parts[at].repaired,
            family(parts[at].name) not in NO_PRODUCTS,
            parts[at].time_ns,
            -at,
        ),
    )


def _reason(product: Product, parts: list[Part], at: int) -> str:
    part = parts[at]
    if product.groups > 1 and any(other.deduplicated for other in parts):
        return "grouped"
    if part.what == "call":
        return "not_counted"
    if pyprof_linear(part.name) if product.kind == "matmul" else pyprof_convolution(part.name):
        took = any(other.fault == "split_k" for other in parts) or product.place
        return "split_k" if product.kind == "matmul" and took else "no_marker"
    if is_renamed(part.name):
        return "renamed_kernel"
    return "unknown_kernel" if family(part.name) in ("", OTHER) else "unlisted_kernel"


def log(product: Product) -> list[CleaningLog]:
    if lacks_kernels(product):
        why = "no_kernel: the call launched no recorded kernel"
        return [entry("repaired", product, "repaired_flop", None, product.expected, why)]
    if product.expected is None:
        return []
    rows = []
    total = known_sum(part.deduplicated for part in product.parts)
    for part in product.parts:
        if part.repaired == part.deduplicated:
            continue
        more = (part.repaired or 0) - (part.deduplicated or 0)
        after = (total or 0) + more
        why = f"{part.fault}: {more} FLOP by sizes on {part.name.removeprefix('void ')[:60]}"
        rows.append(entry("repaired", product, "repaired_flop", total, after, why))
        total = after
    return rows
