"""Several products that were counted together: how each of them may have been executed, so that all give the number.

A product may have one size rounded up to whole vectors, sums that begin with multiplications, and what its kernel is
known to do: a product with a vector scales its result, small ones of a batch are plain loops, an unfolded image is
folded again. Not claimed: that a product was executed so; these are the fewest changes that give exactly the number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from analysis.instructions.convolutions import CONVOLUTIONS, products_of, taps_inside
from analysis.operators import total
from results.records import Operation

TILES = (8, 16, 24, 32)
"""Lanes of fp32 in 1 to 4 vectors of AVX2."""

BEGINNINGS = (0, 1, 2, 4)
"""Sums that a kernel begins for one result, by multiplications."""

SMALL_BATCHED = 400
"""Multiply-adds of a product of a batch below which torch's `bmm` is loops of its own (`bmm_out_or_baddbmm_` of
aten/src/ATen/native/LinearAlgebra.cpp), whose multiplications and additions are apart."""

TRILINEAR = "aten._trilinear"

UNFOLDED_DIMENSIONS = 3
"""Of an image whose convolution torch itself unfolds where oneDNN does not run it (`slow_conv3d`); its gradient is
folded by MKL's `mkl_somatadd`, a · A + b · B of matrices. In two dimensions folding is additions."""

VECTOR = "a product with a vector scales and adds its result by fused multiply-adds, one for each number"


@dataclass(frozen=True)
class CountedProduct:
    """One product of several that were counted together. sizes: of its result's dimensions; of a gradient of a
    convolution, channels out and in. results: in it. is_vector: its result is a vector. is_apart: its multiplications
    and additions are apart. added: results that are added to others by fused multiply-adds. folded: numbers of an
    unfolded image that may be added to its gradient."""

    multiply_adds: int
    sizes: tuple[int, ...]
    results: int
    is_vector: bool = False
    is_apart: bool = False
    added: int = 0
    folded: int = 0


def parts_of(products: Iterable[Operation]) -> tuple[CountedProduct, ...]:
    """The products of these calls; a convolution's backward pass has one for each gradient that it makes, a product of
    three factors one for each pair that is summed."""
    found: list[CountedProduct] = []
    for operation in products:
        if operation.name == TRILINEAR:
            found += _of_trilinear(operation)
        elif operation.name == CONVOLUTIONS[1]:
            found += _of_gradients(operation)
        else:
            shape = tuple(operation.output_shapes[0]) if operation.output_shapes else ()
            is_vector = operation.kind == "matmul" and (len(shape) == 1 or 1 in shape[-2:])
            found.append(CountedProduct(total([operation]).model_flop // 2, shape, math.prod(shape), is_vector))
    return tuple(found)


def _of_gradients(operation: Operation) -> Iterator[CountedProduct]:
    by_name = dict(zip(operation.input_names, operation.input_shapes, strict=True))
    weight, one = by_name["weight"], total([operation]).model_flop // 2 // products_of(operation)
    folded = 0
    if len(weight) == 2 + UNFOLDED_DIMENSIONS:
        folded = taps_inside(operation) * operation.attributes.get("groups", 1) // weight[0]
    for made, name in zip(operation.attributes["output_mask"], ("input", "weight"), strict=False):
        if made:
            results = math.prod(by_name[name])
            yield CountedProduct(one, tuple(weight[:2]), results, folded=folded if name == "input" else 0)


def _of_trilinear(operation: Operation) -> list[CountedProduct]:
    """torch's own steps: for each value of one dimension, the first two factors are multiplied, and the result by the
    third, each summed over what is not needed any more, by `bmm`; the results are added up. Pairs that are not summed
    are no products here."""
    asked, given = operation.attributes, dict(zip(operation.input_names, operation.input_shapes, strict=True))
    sizes: dict[int, int] = {}
    factors: list[set[int]] = []
    for number in (1, 2, 3):
        shape, missing = given[f"i{number}"], asked[f"expand{number}"]
        own = [each for each in range(len(shape) + len(missing)) if each not in missing]
        sizes.update(zip(own, shape, strict=True))
        factors.append(set(own))
    unrolled, summed = asked["unroll_dim"], set(asked["sumdim"]) - {asked["unroll_dim"]}

    def points(dimensions: set[int]) -> int:
        return math.prod(sizes[each] for each in dimensions - {unrolled})

    first, second, third = factors
    pairs = (first, second, summed - third), ((first | second) - (summed - third), third, summed & third)
    found = []
    for left, right, over in pairs:
        rows, columns, batch = points(left - right - over), points(right - left - over), points(left & right - over)
        if over:
            results = sizes[unrolled] * batch * rows * columns
            is_apart = rows * columns * points(over) < SMALL_BATCHED
            found.append(CountedProduct(results * points(over), (rows, columns), results, is_apart=is_apart))
    added = sizes[unrolled] * points(set(sizes) - summed)
    return [*found[:-1], replace(found[-1], added=added)] if found else []


def explained(parts: Sequence[CountedProduct], executed: Mapping[str, int]) -> tuple[bool, str] | None:
    """(whether the products are those of the definition, the reason) of the fewest changes that give the executed
    number; None where none do. Beginnings of sums are no difference."""
    found = []
    for chosen in itertools.product(*map(_changes, parts)):
        fused, multiplied, added = (sum(getattr(each, name) for each in chosen) for name in _Change.LANES)
        is_there = multiplied <= executed.get("mul", 0) and added <= executed.get("add", 0)
        if is_there and fused == executed.get("fma", 0):
            found.append(_reason(chosen))
    if not found:
        return None
    _, is_equal, reason = min(found)
    return is_equal, reason


def _reason(chosen: Sequence[_Change]) -> tuple[int, bool, str]:
    """(how many changes, whether all are beginnings of sums, what they are)."""
    padded = list(dict.fromkeys(each.padded for each in chosen if each.padded))
    others = list(dict.fromkeys(each.other for each in chosen if each.other))
    begun, apart, results = (sum(getattr(each, name) for each in chosen) for name in ("begun", "apart", "results"))
    if apart:
        others.append(f"{apart:,} products are multiplications and additions of their own")
    if results:
        others.append(f"{results:,} results are added to others by fused multiply-adds")
    first = [f"{begun:,} products that begin a sum are multiplications"] if begun else []
    padding = [f"padding of vectors: {', '.join(padded)}"] if padded else []
    changes = len(padded) + len(others) + sum(each.begun > 0 for each in chosen)
    return changes, not (padded or others), " and ".join([*padding, *others, *first])


@dataclass(frozen=True)
class _Change:
    """How a product may be executed. fused, multiplied, added: lanes; begun, apart: products that begin a sum, or that
    are multiplications and additions apart; results: that are added to others; padded, other: in words."""

    LANES = ("fused", "multiplied", "added")

    fused: int
    multiplied: int = 0
    added: int = 0
    begun: int = 0
    apart: int = 0
    results: int = 0
    padded: str = ""
    other: str = ""


def _changes(part: CountedProduct) -> Iterator[_Change]:
    products = part.multiply_adds
    if part.is_apart:
        yield _Change(part.added, products, products, apart=products, results=part.added)
        return
    if part.is_vector:
        yield _Change(products + part.results, other=VECTOR)
    for change in _begun_and_padded(part):
        own = replace(change, fused=change.fused + part.added, results=part.added)
        yield own
        if part.folded:
            fold = f"a multiplication and a fused multiply-add fold each of {part.folded:,} unfolded numbers"
            folded = own.fused + part.folded, own.multiplied + part.folded
            yield replace(own, fused=folded[0], multiplied=folded[1], other=fold)


def _begun_and_padded(part: CountedProduct) -> Iterator[_Change]:
    for size, tile in [(1, 1), *((size, tile) for size in dict.fromkeys(part.sizes) for tile in TILES[:2])]:
        whole = -(-size // tile) * tile
        if whole == size > 1:
            continue
        products, results = part.multiply_adds * whole // size, part.results * whole // size
        for sums in BEGINNINGS:
            if sums * results > products:
                continue
            begun = sums * results
            padded = f"{size} is executed as {whole}" if whole > size else ""
            yield _Change(products - begun, begun, max(sums - 1, 0) * results, begun, padded=padded)
