"""Multiply-adds that a recording gives to several kernels count once, and each kernel that loses its number says why.

Of the kernels that were given a product's FLOP one is kept for each of its units: one that does multiply-adds by its
name before one that does not, one that is no trial before a trial, the longest before shorter ones. Kernels of groups
keep their shares. Reasons, the first that fits:

* `duplicate_launch`: a second row of one launch (same process, correlation and start), from a join that is not unique.
* `not_product`: a number that is not the product's (of a bias), on a kernel that does no multiply-adds.
* `split_k`: a reduction over partial products.
* `autotune`: kernels of more algorithms than the product has units: cuDNN tried several. Where it is known which
  ran last, the others are trials: they are marked, also where no number was given, so that their time can be left out.
* `fft_tiling`: as many FFT kernels as there are tiles of 32 × 32.
* `multi_kernel`: anything else.

Not claimed: that what is kept is right (`undercounts.py` asks), or that two trials of one algorithm are distinguished.
"""

from analysis.trace.kernel_names import AFTER, REDUCTION, family
from cleaning.counts.steps import known_sum
from cleaning.trace.products import UNTOLD, Part, Product, entry
from results.records.counts import CleaningLog

LAST_ALONE = ("implicit_gemm", "implicit_precomputed_gemm", "winograd", "direct")
"""Algorithms that take one kernel a product: of several in a row the last is the run, those before it trials."""

IN_PIECES = "explicit_gemm"
"""An algorithm that repeats its kernels for pieces of a batch. Of any other, two equal halves are a trial and a run."""


def deduplicated(product: Product) -> Product:
    """A product with each multiply-add counted once at most, and trials marked."""
    trials = _trials(product)
    room = _room(product)
    order = sorted(
        range(len(product.parts)),
        key=lambda at: (
            product.parts[at].twin,
            not product.parts[at].makes_products,
            at in trials,
            -product.parts[at].time_ns,
            at,
        ),
    )
    result = list(product.parts)
    for at in order:
        part = product.parts[at]
        flop = _kept_flop(product, part, room)
        fault = "" if flop == part.found else _reason(product, part, at, trials)
        result[at] = part._replace(deduplicated=flop, fault=fault or ("autotune" if at in trials else ""))
    return product._replace(parts=tuple(result))


def _unit_flop(product: Product) -> int | None:
    """FLOP of one unit: by sizes, else what the recording gives its products' kernels, if that is one number."""
    if product.unit_flop is not None:
        return product.unit_flop
    numbers = {part.found for part in product.parts if part.found and part.makes_products}
    return numbers.pop() if len(numbers) == 1 else None


def _room(product: Product) -> dict[int, int]:
    """FLOP that each unit may still be given; UNTOLD holds that of all units together."""
    flop = _unit_flop(product)
    if flop is None:
        return {}
    units = 1 if product.units is None else product.units
    return {**dict.fromkeys(range(units), flop), UNTOLD: units * flop}


def _kept_flop(product: Product, part: Part, room: dict[int, int]) -> int | None:
    """What a kernel keeps of its number; takes it from the room that its unit has."""
    if not part.found:
        return part.found
    if part.twin or _is_foreign(product, part):
        return 0
    if not room:
        return part.found
    left = min(room[UNTOLD], room.get(part.unit, room[UNTOLD]))
    if left <= 0 or (part.found > left and left < (_unit_flop(product) or 0)):
        return 0
    for unit in {UNTOLD, part.unit} & set(room):
        room[unit] -= part.found
    return part.found


def _is_foreign(product: Product, part: Part) -> bool:
    """Whether the number is not this product's: neither a unit nor a group's share, and the kernel makes no product."""
    unit = _unit_flop(product)
    if not unit or part.makes_products or part.what == "call":
        return False
    return part.found not in (unit, unit // product.groups)


# --- why -------------------------------------------------------------------------------------------------------------


def _reason(product: Product, part: Part, at: int, trials: frozenset[int]) -> str:
    if part.twin:
        return "duplicate_launch"
    if _is_foreign(product, part):
        return "not_product"
    if family(part.name) == REDUCTION and part.what == "kernel":
        return "split_k"
    out = {product.parts[trial].row for trial in trials}
    rivals = [p for p in _working(product) if part.unit in (p.unit, UNTOLD) and p.row not in out]
    if at in trials or _many_algorithms(product, rivals, part.unit):
        return "autotune"
    counted = [other for other in rivals if other.found]
    units = product.units if part.unit == UNTOLD and product.units else 1
    if counted and all(family(other.name) == "fft" for other in counted) and len(counted) == product.tiles * units:
        return "fft_tiling"
    return "multi_kernel"


def _working(product: Product) -> list[Part]:
    """The kernels that do multiply-adds, each launch once."""
    return [part for part in product.parts if part.what == "kernel" and part.makes_products and not part.twin]


def _many_algorithms(product: Product, rivals: list[Part], unit: int) -> bool:
    allowed = product.units if unit == UNTOLD and product.units else 1
    return product.kind == "convolution" and len({family(part.name) for part in rivals}) > allowed


def _trials(product: Product) -> frozenset[int]:
    """Places of the kernels that ran only to be timed, of units that are distinguished."""
    working = _working(product)
    by_unit: dict[int, list[Part]] = {}
    for part in working:
        by_unit.setdefault(0 if product.units == 1 else part.unit, []).append(part)
    found: set[int] = set()
    for unit, parts in by_unit.items():
        if unit != UNTOLD and _many_algorithms(product, parts, unit):
            found.update(_before_the_run(product, unit, parts))
    return frozenset(found)


def _before_the_run(product: Product, unit: int, working: list[Part]) -> set[int]:
    """Places of a unit's kernels before the last run of one algorithm, which is what the product is made with."""
    last = family(working[-1].name)
    others = [at for at, part in enumerate(working) if family(part.name) != last]
    run = working[others[-1] + 1 :]
    first = run[-1] if last in LAST_ALONE else run[0]
    before = max((part.row for part in working if part.row < first.row), default=-1)
    mine = [part for part in product.parts if not part.twin and (product.units == 1 or part.unit == unit)]
    tail = [part for part in mine if part.row > before]
    while tail[0].row != first.row and AFTER.search(tail[0].name):
        tail.pop(0)
    half = len(tail) // 2
    if last != IN_PIECES and [part.name for part in tail[:half]] == [part.name for part in tail[half:]]:
        tail = tail[half:]
    trials = {part.row for part in mine if part.row < tail[0].row}
    return {at for at, part in enumerate(product.parts) if part.row in trials}


def log(before: Product, after: Product) -> list[CleaningLog]:
    """A row for each reason for which kernels of a product lost their numbers."""
    lost: dict[str, list[Part]] = {}
    for part in after.parts:
        if part.deduplicated != part.found:
            lost.setdefault(part.fault, []).append(part)
    total = known_sum(part.found for part in before.parts)
    rows = []
    for reason, parts in lost.items():
        gone = sum((part.found or 0) - (part.deduplicated or 0) for part in parts)
        left = None if total is None else total - gone
        names = [*dict.fromkeys(part.name.removeprefix("void ")[:60] for part in parts)]
        listed = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        why = f"{reason}: {len(parts)} of {len(before.parts)} kernels ({listed})"
        rows.append(entry("deduplicated", after, "deduplicated_flop", total, left, why))
        total = left
    return rows
