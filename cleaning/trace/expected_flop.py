"""Computes how many FLOP each product (convolution or matrix product) of a recording must count.

`Sizing` takes the recording's calls. `size(position)` returns a `Size`: a number of units, and the FLOP of one unit. A
forward call is one unit. A backward call has a unit for each gradient (of input and weight) that its output_mask or the
calls inside show, else two. A model's first product has no gradient of its input, which is data. FLOP come first from
the call's own sizes and settings, then from a convolution's sizes with those of its output gradient. The products
inside come third, and for a gradient the forward call last. For a matrix product, the products inside win over the
call's own sizes. A product has no count if its sources contradict each other. A convolution whose gradients are not
shown has none where its input may be data or a layer may be frozen. `Size.why` is then the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from analysis.trace.calls import Calls
from analysis.trace.conv_inference import (
    forward_flop,
    grad_output,
    gradient_flop,
    is_readable,
    is_transposed,
    requested_gradients,
    window,
)
from analysis.trace.kernel_names import fft_tiles
from analysis.trace.operations import kind_of_call, product_flop, to_operation
from cleaning.counts import known_sum
from cleaning.profile import FORWARD
from results.errors import Unavailable
from results.records.counts import ProfiledOperation

BOTH = 2
"""Number of gradients of a product: of its input and of its weight."""


@dataclass(frozen=True, slots=True)
class Size:
    """The FLOP that a product must count.

    groups, tiles: groups and FFT tiles of a convolution, which determine its number of kernels. why: why there is no
    count. assumed: whether the recording does not show which gradients were needed. Then all gradients count that a
    layer of this kind computes.
    """

    units: int | None = None
    unit_flop: int | None = None
    groups: int = 1
    tiles: int = 0
    why: str = ""
    assumed: bool = False

    @property
    def expected(self) -> int | None:
        """FLOP of all units."""
        return None if self.units is None or self.unit_flop is None else self.units * self.unit_flop


class Sizing:
    """Computes the sizes of a recording's products, each once."""

    def __init__(self, calls: Calls, forward_of: Mapping[int, int], first: frozenset[int]) -> None:
        """forward_of: gradient's position → forward product's. first: positions of products whose input is data."""
        self._calls = calls
        self._forward_of = forward_of
        self._gradient_of = {forward: position for position, forward in reversed(tuple(forward_of.items()))}
        self._first = first
        self._sizes: dict[tuple[object, ...], Size] = {}  # key of `_decides` → the size
        self._assumed: set[int] = set()
        self._own: dict[object, int | str] = {}  # a call's content → FLOP, or why there are none

    def size(self, position: int) -> Size:
        """Return what the product at a position must count."""
        decides = self._decides(position)
        if decides not in self._sizes:
            size = self._size(position)
            self._sizes[decides] = replace(size, assumed=position in self._assumed and size.unit_flop is not None)
        return self._sizes[decides]

    def flop_of(self, position: int) -> int | None:
        """Return the FLOP by a call's own sizes; None if there are none."""
        flop = self._own_flop(self._calls.call(position))
        return flop if isinstance(flop, int) else None

    def _own_flop(self, call: ProfiledOperation) -> int | str:
        """Return the FLOP by a call's own sizes and settings, or why there are none; equal calls share the result."""
        # (1,) equals (True,), but their texts differ
        key = (call.name, call.input_shapes, call.input_dtypes, repr(call.concrete_inputs))
        if key not in self._own:
            try:
                self._own[key] = product_flop(call)
            except Unavailable as fault:
                self._own[key] = str(fault)
        return self._own[key]

    def _decides(self, position: int) -> tuple[object, ...]:
        """Return the key of everything that decides a product's size."""
        forward, gradient = self._forward_of.get(position), self._gradient_of.get(position)
        of_forward = None if forward is None else self._decides(forward)
        return (
            self._form(position),
            position in self._first,
            None if gradient is None else self._code[gradient],
            of_forward,
        )

    def _form(self, position: int) -> tuple[int, ...]:
        """Return the contents and the nesting of a call and those inside it."""
        numbers: list[int] = []
        left = [position]
        while left:
            inner = left.pop()
            children = self._calls.inside(inner)
            numbers += (self._code[inner], len(children))
            left += children[::-1]
        return tuple(numbers)

    @cached_property
    def _code(self) -> list[int]:
        """A number per call, equal for calls of one name whose sizes, dtypes and values are the same objects, since
        readers keep one object for equal texts."""
        codes = np.asarray(pd.factorize(self._calls.columns["name"])[0], np.int64)
        for name in ("input_shapes", "input_dtypes", "concrete_inputs"):
            column = self._calls.columns[name]
            objects = pd.factorize(np.fromiter(map(id, column), np.int64, len(column)))[0]
            codes = np.asarray(pd.factorize(codes * (len(codes) + 1) + objects)[0], np.int64)
        numbers: list[int] = codes.tolist()
        return numbers

    def _size(self, position: int) -> Size:
        call, forward = self._calls.call(position), self._forward_of.get(position)
        try:
            units, flop = self._by_sizes(position, call)
        except Unavailable as fault:
            return self._of_forward(position, call, forward, str(fault))
        groups, tiles = _kernels_taken(call, self._inside(position))
        return Size(units, flop, groups, tiles)

    def _of_forward(self, position: int, call: ProfiledOperation, forward: int | None, why: str) -> Size:
        """Return a gradient's size by that of its forward call, unless products inside contradict it. why: the reason
        for which the call's own sizes give none."""
        if forward is None:
            return Size(why=why)
        partner = self.size(forward)
        if partner.unit_flop is None:
            return replace(partner, units=None, why=why)
        if self._least_inside(position) not in (0, partner.unit_flop, BOTH * partner.unit_flop):
            return Size(why=f"{call.name}: the products inside do not agree with its forward call")
        try:
            return replace(partner, units=self._units(position, call))
        except Unavailable as fault:
            return Size(why=str(fault))

    def _by_sizes(self, position: int, call: ProfiledOperation) -> tuple[int, int]:
        """Return (units, FLOP of one). Raises Unavailable."""
        flop = self._own_flop(call)
        if isinstance(flop, str):
            units, flop = self._without_settings(position, call, flop)
            if self._least_inside(position) > units * flop:
                raise Unavailable(f"{call.name}: the products inside are more than what was inferred of it")
            return units, flop
        if kind_of_call(call.name) == "matmul" and not _is_gradient(call):
            flop = self._flop_inside(position) or flop  # the sizes recorded for a call may be another call's
        mask = to_operation(call).attributes.get("output_mask") if _is_gradient(call) else None
        is_backward = "backward" in call.name and kind_of_call(call.name) in ("convolution", "attention", "recurrent")
        # fused kernels compute the gradients of all inputs, needed or not
        if flop and is_backward and not {"output_mask", "grad_input_mask"} & set(to_operation(call).attributes):
            self._assumed.add(position)
        gradients = None if mask is None else sum(map(bool, mask[:2]))
        return (gradients, flop // gradients) if gradients else (1 if gradients is None else 0, flop)

    def _without_settings(self, position: int, call: ProfiledOperation, why: str) -> tuple[int, int]:
        inside = self._flop_inside(position)
        if kind_of_call(call.name) == "convolution":
            if not _is_gradient(call):
                if inside is not None and not is_readable(call):
                    return 1, inside
                gradient = self._gradient_of.get(position)
                output = None if gradient is None else grad_output(self._calls.call(gradient))
                return 1, forward_flop(call, self._inside(position), output, inside)
            flop = self._gradient(position, call)
            if isinstance(flop, int):
                return self._gradient_count(position, call, flop, inside), flop
            why = flop
        units = self._units(position, call)
        if inside is None or not units or inside % units:
            raise Unavailable(why)
        return units, inside // units

    def _gradient(self, position: int, call: ProfiledOperation) -> int | str:
        """Return the FLOP of one gradient of a convolution, or why there are none."""
        forward = self._forward_of.get(position)
        names = () if forward is None else (self._calls.names[forward], *self._inside(forward))
        try:
            return gradient_flop(call, (*self._inside(position), *names))
        except Unavailable as fault:
            return str(fault)

    def _gradient_count(self, position: int, call: ProfiledOperation, flop: int, inside: int | None) -> int:
        """Return how many gradients of `flop` each a call computes: by the total of the products inside, if known."""
        if inside is None or not flop:
            return self._units(position, call)
        if inside not in (flop, BOTH * flop):
            raise Unavailable(f"{call.name}: the products inside do not agree with its sizes")
        return inside // flop

    def _flop_inside(self, position: int) -> int | None:
        """Sum the outermost products inside a call that can be counted; None if one is lacking."""
        calls = self._calls
        known: dict[int, int | None] = {}  # call with products in it → their FLOP
        for inner in [*calls.within(position)][::-1]:
            own = self.flop_of(inner) if self._calls.product[inner] else None
            holds = self._calls.product[inner] or any(child in known for child in self._calls.inside(inner))
            known |= {inner: self._children_sum(inner, known) if own is None else own} if holds else {}
        return self._children_sum(position, known)

    def _children_sum(self, position: int, known: Mapping[int, int | None]) -> int | None:
        """Sum over a call's direct children; None where nothing or not everything is known."""
        numbers = [known[child] for child in self._calls.inside(position) if child in known]
        return None if None in numbers else known_sum(numbers)

    def _least_inside(self, position: int) -> int:
        """Sum the FLOP of the products inside that have a count, taking the outer of nested ones."""
        least_flop, seen = 0, {position}
        for inner in self._calls.within(position):
            if int(self._calls.parent[inner]) not in seen:
                continue
            flop = self.flop_of(inner) if self._calls.product[inner] else None
            least_flop += flop or 0
            if flop is None:
                seen.add(inner)
        return least_flop

    def _units(self, position: int, call: ProfiledOperation) -> int:
        """Return how many products the call makes, if its own mask does not show it. Raises Unavailable."""
        if not _is_gradient(call):
            return 1
        gradients = requested_gradients((call.name, *self._inside(position)))
        if gradients is not None:
            return gradients
        if kind_of_call(call.name) == "convolution" and self._may_lack_gradients(self._forward_of.get(position)):
            raise Unavailable(f"{call.name}: the recording does not say which gradients were asked for")
        self._assumed.add(position)
        return 1 if self._forward_of.get(position) in self._first else BOTH

    def _may_lack_gradients(self, forward: int | None) -> bool:
        """Return whether a forward convolution may need only one of both gradients.

        An input with as many channels as data may be data after pooling or scaling, which have no parameters.
        """
        if forward is None or self._is_frozen:
            return True
        sizes = self._calls.columns["input_shapes"][forward]
        return forward not in self._first and bool(sizes) and sizes[0][1:2] in self._first_channels

    @cached_property
    def _first_channels(self) -> set[Any]:
        """Return the channels of first products' inputs."""
        shapes = self._calls.columns["input_shapes"]
        return {shapes[position][0][1:2] for position in self._first if shapes[position]}

    @cached_property
    def _is_frozen(self) -> bool:
        """Return whether any forward convolution has no gradient."""
        calls, phase = self._calls, self._calls.columns["phase"]
        tops = np.flatnonzero(calls.product & (calls.owner == np.arange(len(calls)))).tolist()
        forward = {
            position
            for position in tops
            if phase[position] in FORWARD and kind_of_call(calls.names[position]) == "convolution"
        }
        return bool(forward - self._gradient_of.keys())

    def _inside(self, position: int) -> tuple[str, ...]:
        """Return the names of the calls inside, each once."""
        return tuple(dict.fromkeys(self._calls.names[inner] for inner in self._calls.within(position)))


def _is_gradient(call: ProfiledOperation) -> bool:
    return "backward" in call.name and kind_of_call(call.name) in ("convolution", "matmul")


def _kernels_taken(call: ProfiledOperation, inside: tuple[str, ...]) -> tuple[int, int]:
    """Return (groups, FFT tiles) of a convolution; (1, 0) of anything else."""
    if kind_of_call(call.name) != "convolution" or is_transposed([call.name, *inside]):
        return 1, 0
    try:
        spatial, kernel, groups = window(call)
    except Unavailable:
        return 1, 0
    return groups, fft_tiles(spatial, kernel)
