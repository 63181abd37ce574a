"""What a graph file says of its inputs: sizes that are fixed, sizes that have a name, and which of these is the batch.

A size is an int or a sympy expression in the names of dynamic dimensions. Random values stand for data that the file
does not hold: standard normal, whole numbers below the smallest table they look into, and 0 or 1 where no table tells.
It reads no file and knows no format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch

from workloads.catalogue import Shape, nearest
from workloads.training import draw

UNKNOWN_BELOW = 2
"""Whole numbers of which nothing is known are 0 or 1: a mask, a kind of token, a choice of two."""

BATCH_NAMES = ("batch", "batch_size", "batchsize", "bs", "b", "n")
"""What the batch is called, in small letters, the likeliest first."""


@dataclass(frozen=True)
class GraphInput:
    """One input. sizes: with the batch; ints or expressions. below: of whole numbers, the smallest that does not occur.

    fixed: what is passed instead, for an input that is no tensor (None or a number kept in the file).
    """

    name: str
    sizes: tuple[Any, ...] = ()
    dtype: str = "float32"
    below: int = UNKNOWN_BELOW
    is_tensor: bool = True
    fixed: Any = None


@dataclass(frozen=True)
class Dimensions:
    """The dynamic dimensions of a graph. hyper: name → default of all but the batch. batch: the name of the batch's
    dimension, "" if it is fixed. limits: name → (smallest, largest); None where there is no such bound."""

    inputs: tuple[GraphInput, ...]
    hyper: Mapping[str, int]
    batch: str
    limits: Mapping[str, tuple[int, int | None]]


def dimensions(
    inputs: Sequence[GraphInput],
    defaults: Mapping[str, int],
    limits: Mapping[str, tuple[int, int | None]],
    batch: str = "",
) -> Dimensions:
    """batch: the dimension that was asked for; else the first that is called so; else the first input's dimension 0,
    if it is a name. Raises ValueError for a dimension that there is not."""
    names = names_in(inputs)
    if batch and batch not in names:
        raise ValueError(f"there is no dimension {batch!r}; it has {', '.join(names) or 'none'}{nearest(batch, names)}")
    called = [name for known in BATCH_NAMES for name in names if name.lower() == known]
    leading = [str(i.sizes[0]) for i in inputs[:1] if i.sizes and str(i.sizes[0]) in names]
    chosen = batch or next(iter([*called, *leading]), "")
    hyper = {name: defaults[name] for name in names if name != chosen}
    return Dimensions(tuple(inputs), hyper, chosen, limits)


def names_in(inputs: Iterable[GraphInput]) -> list[str]:
    """The names of all dynamic dimensions, in the order in which they come."""
    sizes = [size for each in inputs for size in each.sizes if isinstance(size, sympy.Basic)]
    return list(dict.fromkeys(str(s) for size in sizes for s in sorted(size.free_symbols, key=str)))


def identifier(text: str) -> str:
    """A name of letters, digits and underscores, as a size needs it."""
    name = re.sub(r"\W+", "_", text).strip("_")
    return f"d_{name}" if not name or name[0].isdigit() else name


def chosen(known: Dimensions, asked: Mapping[str, int], what: str) -> dict[str, int]:
    """All sizes but the batch, those asked for in place of the defaults. Raises ValueError for one that it has not."""
    for name in asked:
        if name not in known.hyper:
            has = f"it has {', '.join(known.hyper)}" if known.hyper else "all its sizes but the batch are fixed"
            raise ValueError(f"{what} has no {name}; {has}")
    return {**known.hyper, **asked}


def draw_all(
    known: Dimensions,
    hyper: Mapping[str, int],
    size: int,
    device: torch.device,
    generator: torch.Generator | None,
    what: str,
) -> tuple[Any, ...]:
    """One random value for each input. Raises ValueError where a size is none that the graph takes."""
    sizes = {**hyper, known.batch: size} if known.batch else dict(hyper)
    _check(known, sizes, size, what)
    return tuple(_value(each, sizes, device, generator, what) for each in known.inputs)


def _check(known: Dimensions, sizes: Mapping[str, int], size: int, what: str) -> None:
    for name, value in sizes.items():
        low, high = known.limits.get(name, (1, None))
        if value < low or (high is not None and value > high):
            upper = f" to {high}" if high is not None else " or more"
            raise ValueError(f"{what} takes {name} of {low}{upper}, got {value}")
    first = next((each for each in known.inputs if each.sizes), None)
    if not known.batch and first is not None and size != first.sizes[0]:
        raise ValueError(
            f"{what} holds a batch that is fixed: {first.name} has {first.sizes[0]} in front; say --batch-size "
            f"{first.sizes[0]}, or export it with a dynamic dimension"
        )


def _value(
    each: GraphInput, sizes: Mapping[str, int], device: torch.device, generator: torch.Generator | None, what: str
) -> Any:
    if not each.is_tensor:
        return each.fixed
    numbers = [number(size, sizes, what) for size in each.sizes]
    whole = each.dtype.startswith(("int", "uint"))
    shape = Shape(tuple(numbers[1:]), each.dtype, each.below if whole else 0)
    return draw(shape, numbers[0], device, generator) if numbers else draw(shape, 1, device, generator)[0]


def number(size: Any, sizes: Mapping[str, int], what: str) -> int:
    """A size at these values of its names. Raises ValueError if that is no whole number of 1 or more."""
    value = size.subs({symbol: sizes[str(symbol)] for symbol in size.free_symbols}) if hasattr(size, "subs") else size
    if int(value) != value or value < 1:
        raise ValueError(f"{what}: a size of {size} is {value} here; expected a whole number of 1 or more")
    return int(value)
