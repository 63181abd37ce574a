"""The roundings of a size that a table's own windows make: what an image's side becomes behind strides and padding.

A convolution or a pool of kernel k, stride s, padding p and dilation d makes of a side x the side
floor((x + 2p − d(k − 1) − 1) / s) + 1, and of a side floor((i + c) / m) one of the same form. So the roundings behind
each window follow from its attributes, without looking at other points. Which sizes they are follows from their values
at one point alone: these are candidates, that other points must confirm. Not here: padding to a multiple, and
windows that an operation makes inside itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import zip_longest

from analysis.formula.derivation.interpolate import ONE, Atom, Form
from results.records import Operation

MOST = 24
"""Roundings of a symbol, at most."""


def roundings(symbol: str, value: int, operations: Iterable[Operation]) -> list[Form]:
    """Forms atom, or atom + constant, of the sides that windows make of a symbol; the symbol itself first.

    value: the symbol's at the point of the table.
    """
    found: dict[tuple[int, int], int] = {(1, 0): value}
    for operation in operations:
        for side, made, window in _windows(operation):
            for (by, add), here in list(found.items()):
                behind = _behind(by, add, window)
                if here == side and (value + behind[1]) // behind[0] == made and len(found) < MOST:
                    found.setdefault(behind, made)
    return [_form(symbol, by, add) for by, add in found]


def _windows(operation: Operation) -> Iterator[tuple[int, int, tuple[int, int, int, int, bool]]]:
    """(side before, side behind, (kernel, stride, padding, dilation, whether it rounds up)) of each axis."""
    attributes = operation.attributes
    if "stride" not in attributes or not operation.output_shapes or attributes.get("transposed"):
        return
    before, behind = operation.input_shapes[0], operation.output_shapes[0]
    kernel = attributes.get("kernel_size") or (operation.input_shapes[1][2:] if len(operation.input_shapes) > 1 else ())
    axes = len(kernel)
    if not axes or len(before) < axes or len(before) != len(behind):
        return
    stride = attributes["stride"] or kernel
    rows = zip_longest(kernel, stride, attributes.get("padding") or (), attributes.get("dilation") or ())
    up = bool(attributes.get("ceil_mode"))
    for side, made, (k, s, p, d) in zip(before[-axes:], behind[-axes:], rows, strict=True):
        if isinstance(k, int) and isinstance(s, int):
            yield side, made, (k, s, 0 if p is None else p, 1 if d is None else d, up)


def _behind(by: int, add: int, window: tuple[int, int, int, int, bool]) -> tuple[int, int]:
    """floor((i + add) / by), behind a window: divisor and addend."""
    kernel, stride, padding, dilation, up = window
    more = 2 * padding - dilation * (kernel - 1) - 1 + stride + (stride - 1 if up else 0)
    return by * stride, add + by * more


def _form(symbol: str, by: int, add: int) -> Form:
    """floor((symbol + add) / by) as an atom, and a constant where the addend is more than the divisor."""
    if by == 1:
        return _sum(Atom(symbol), add)
    if -by <= add < by:
        return _sum(Atom(symbol, by, add), 0)
    return _sum(Atom(symbol, by, add % by), add // by)


def _sum(atom: Atom, constant: int) -> Form:
    form: Form = {((atom, 1),): Fraction(1)}
    return {**form, ONE: Fraction(constant)} if constant else form
