"""What the cleaning of a recording works on: products with their kernels, and nothing that is not needed to judge them.

A `Product` is an outermost convolution, matrix product, attention or recurrent call of a recording, or what a recorder
without calls took for one; its `Part`s are the rows of kernels that belong to it, in the order of start. A cleaning
step replaces them, never the recording: `deduplicated`, then `repaired`.

Multiply-adds that a recording gives to several kernels count once, and each kernel that loses its number says why.

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

Not claimed: that what is kept is right (`repaired` asks), or that two trials of one algorithm are distinguished.

Gaps of a recording filled from sizes: what a product's units lack is put on the kernels that must have done it.

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

from collections.abc import Mapping
from typing import Any, NamedTuple

from analysis.trace.kernel_families import NO_PRODUCTS, OTHER
from analysis.trace.kernel_names import (
    AFTER,
    REDUCTION,
    family,
    is_renamed,
    makes_products,
    pyprof_convolution,
    pyprof_linear,
)
from cleaning.counts import known_sum
from results.records.counts import CleaningLog
from results.records.rows import to_text

UNTOLD = -1
"""Which unit a kernel works for is not known."""

FILE = "kernels.csv.gz"


class Part(NamedTuple):
    """One row of kernels in a product, and its FLOP so far. None: unknown."""

    row: int  # in the table of kernels, in the order of start
    name: str
    what: str
    time_ns: int
    unit: int = UNTOLD  # which of the product's units it works for
    twin: bool = False  # a second row of one launch
    source_flop: int | None = None  # what the recording says
    call_flop: int | None = None  # of a row that is a call: what that call's own sizes give
    found: int | None = None
    deduplicated: int | None = None
    repaired: int | None = None
    fault: str = ""

    @property
    def makes_products(self) -> bool:
        """Whether it does multiply-adds, by its name; of a call its own sizes tell."""
        return bool(self.call_flop) if self.what == "call" else makes_products(self.name)


class Product(NamedTuple):
    """One outermost product of a recording.

    units: 1, or how many gradients a backward call calculates. unit_flop: model FLOP of one. Both None: unknown.
    """

    instance: int  # its index
    name: str
    kind: str
    phase: str
    module: str
    parts: tuple[Part, ...]
    units: int | None = None
    unit_flop: int | None = None
    forward_name: str = ""  # of a backward product: name of the forward call
    place: int = 0  # of a backward product: how many kernels of the same layer's gradients came before it
    groups: int = 1
    tiles: int = 0  # launches of the convolution by FFT_TILING; 0: not known
    why_unknown: str = ""
    assumed: bool = False  # the recording does not say which gradients were asked for
    columns: Mapping[str, Any] = {}  # of its row among the instances; once it is cleaned
    known: Mapping[str, int | None] = {}  # state → FLOP of what is known of it: at least that much

    @property
    def expected(self) -> int | None:
        """Model FLOP by sizes."""
        return None if self.units is None or self.unit_flop is None else self.units * self.unit_flop


def label(index: int, name: str, phase: str, module: str) -> str:
    """How the log names a product. index: of its instance."""
    return " ".join(word for word in (str(index), name, phase, module) if word)


def entry(step: str, product: Product, field: str, before: object, after: object, reason: str) -> CleaningLog:
    """One row of the cleaning log."""
    return CleaningLog(
        step=step,
        file=FILE,
        cell_id="",
        attempt=0,
        subject=label(product.instance, product.name, product.phase, product.module),
        field=field,
        before=to_text(before),
        after=to_text(after),
        reason=reason,
    )


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


def removal_log(before: Product, after: Product) -> list[CleaningLog]:
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
    reason = "wrong_number" if had and product.groups == 1 else _gap_reason(product, parts, at)
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


def _gap_reason(product: Product, parts: list[Part], at: int) -> str:
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


def repair_log(product: Product) -> list[CleaningLog]:
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
