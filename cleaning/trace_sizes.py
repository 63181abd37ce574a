"""How much each product of a recording must count: units, and the FLOP of one, by whatever the recording holds.

In this order: the sizes and settings of the call itself; what `analysis/inferred.py` finds for a convolution whose
settings were not recorded; the products inside it; for a gradient the forward call. A gradient counts once for each of
input and weight that was asked for: by the output_mask, by the calls inside, else by both, but for the first product of
a forward pass, whose input is data. Where nothing gives a count, the reason is kept.

Not claimed: that a gradient which was asked for is told where neither mask nor calls tell it (frozen weights).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from analysis.inferred import forward_flop, grad_output, gradient_flop, gradients_asked, is_transposed, window
from analysis.kernel_names import fft_tiles
from analysis.operands import Sizes
from analysis.recorded import kind_of_call, product_flop, to_operation
from cleaning.sums import known_sum
from cleaning.trace_frames import Calls
from results.errors import Unavailable
from results.records import ProfiledOperation

BOTH = 2
"""Gradients of a product: of its input and of its weight."""

LOOK_AHEAD = 64
"""Calls after a convolution among which the one is looked for that takes its output."""

TAKES_THE_OUTPUT = ("normalization", "activation")
"""Kinds of calls whose first tensor, right after a convolution, is its output."""


@dataclass(frozen=True, slots=True)
class Size:
    """What a product must count, and what decides how many kernels it takes. `why`: why there is no count."""

    units: int | None = None
    unit_flop: int | None = None
    groups: int = 1
    tiles: int = 0
    why: str = ""


class Sizing:
    """The sizes of a recording's products; equal calls are worked out once."""

    def __init__(self, calls: Calls, forward_of: Mapping[int, int], first: frozenset[int]) -> None:
        """forward_of: gradient's position → forward product's. first: positions of products whose input is data."""
        self._calls = calls
        self._forward_of = forward_of
        self._gradient_of = {forward: gradient for gradient, forward in reversed(list(forward_of.items()))}
        self._first = first
        self._known: dict[object, Size] = {}

    def size(self, at: int) -> Size:
        """What the product at a position must count."""
        key = self._key(at)
        if key not in self._known:
            self._known[key] = self._size(at)
        return self._known[key]

    def flop_of(self, at: int) -> int | None:
        """What one call's own sizes give; None if nothing."""
        call = self._calls.call(at)
        key = ("own", *_signature(call))
        if key not in self._known:
            try:
                self._known[key] = Size(unit_flop=product_flop(call))
            except Unavailable as fault:
                self._known[key] = Size(why=str(fault))
        return self._known[key].unit_flop

    def _key(self, at: int) -> object:
        """Whatever decides the count of a product."""
        forward = self._forward_of.get(at)
        own = (*_signature(self._calls.call(at)), self._inside(at), self._outputs(at))
        return own if forward is None else (*own, forward in self._first, self._key(forward))

    def _size(self, at: int) -> Size:
        call, forward = self._calls.call(at), self._forward_of.get(at)
        try:
            units, flop = self._by_sizes(at, call)
        except Unavailable as fault:
            if forward is None:
                return Size(why=str(fault))
            partner = self.size(forward)
            why = "" if partner.unit_flop is not None else str(fault)
            return replace(partner, units=self._units(at, call) if not why else None, why=why)
        groups, tiles = _kernels_taken(call, self._inside(at))
        return Size(units, flop, groups, tiles)

    def _by_sizes(self, at: int, call: ProfiledOperation) -> tuple[int, int]:
        """(units, FLOP of one). Raises Unavailable."""
        try:
            flop, asked = product_flop(call), _asked(call)
        except Unavailable as fault:
            return self._without_settings(at, call, fault)
        return (asked, flop // asked) if asked else (1 if asked is None else 0, flop)

    def _without_settings(self, at: int, call: ProfiledOperation, fault: Unavailable) -> tuple[int, int]:
        units = self._units(at, call)
        try:
            return units, self._inferred(at, call)
        except Unavailable as other:
            fault = other if kind_of_call(call.name) == "convolution" else fault
        flop = self._flop_inside(at)
        if flop is None:
            raise fault
        return units, flop // units

    def _flop_inside(self, at: int) -> int | None:
        """What the outermost products inside a call that can be counted are together; None if one is lacking."""
        calls = self._calls
        known: dict[int, int | None] = {}  # call with products in it → their FLOP
        for inner in [*calls.within(at)][::-1]:
            known |= self._counted(inner, known)
        return self._together(at, known)

    def _counted(self, at: int, known: Mapping[int, int | None]) -> dict[int, int | None]:
        own = self.flop_of(at) if self._calls.product[at] else None
        holds = self._calls.product[at] or any(child in known for child in self._calls.inside.get(at, ()))
        return {at: self._together(at, known) if own is None else own} if holds else {}

    def _together(self, at: int, known: Mapping[int, int | None]) -> int | None:
        """Sum over the calls that one made itself; None where nothing or not everything is known."""
        numbers = [known[child] for child in self._calls.inside.get(at, ()) if child in known]
        return None if None in numbers else known_sum(numbers)

    def _inferred(self, at: int, call: ProfiledOperation) -> int:
        if not _is_gradient(call):
            return forward_flop(call, self._inside(at), self._outputs(at))
        forward = self._forward_of.get(at)
        names = () if forward is None else (self._calls.names[forward], *self._inside(forward))
        return gradient_flop(call, (*self._inside(at), *names))

    def _units(self, at: int, call: ProfiledOperation) -> int:
        """How many products the call makes, as far as its own mask does not say."""
        if not _is_gradient(call):
            return 1
        asked = gradients_asked((call.name, *self._inside(at)))
        if asked is not None:
            return asked
        return 1 if self._forward_of.get(at) in self._first else BOTH

    def _inside(self, at: int) -> tuple[str, ...]:
        """Names of the calls inside, each once."""
        return tuple(dict.fromkeys(self._calls.names[inner] for inner in self._calls.within(at)))

    def _outputs(self, at: int) -> tuple[Sizes, ...]:
        """What a convolution's output may have for sizes, where its settings do not tell: its gradient's first."""
        call = self._calls.call(at)
        if kind_of_call(call.name) != "convolution" or _is_gradient(call) or call.concrete_inputs:
            return ()
        gradient = self._gradient_of.get(at)
        sizes = None if gradient is None else grad_output(self._calls.call(gradient))
        return tuple(size for size in (sizes, self._next_input(at)) if size)

    def _next_input(self, at: int) -> Sizes | None:
        """First tensor of the next call beside this one, if that call is one to take the output."""
        calls = self._calls
        thread = calls.column("thread")
        for other in range(at + 1, min(at + LOOK_AHEAD, len(calls))):
            if thread[other] == thread[at] and calls.parent[other] == calls.parent[at]:
                takes = kind_of_call(calls.names[other]) in TAKES_THE_OUTPUT
                shapes = calls.column("input_shapes")[other] if takes else None
                return tuple(shapes[0]) if shapes else None
        return None


def _is_gradient(call: ProfiledOperation) -> bool:
    return "backward" in call.name and kind_of_call(call.name) in ("convolution", "matmul")


def _asked(call: ProfiledOperation) -> int | None:
    """How many gradients of input and weight a call's own mask asks for; None: it has none."""
    mask = to_operation(call).attributes.get("output_mask") if _is_gradient(call) else None
    return None if mask is None else sum(map(bool, mask[:2]))


def _kernels_taken(call: ProfiledOperation, inside: tuple[str, ...]) -> tuple[int, int]:
    """(groups, launches by FFT_TILING) of a convolution; (1, 0) of anything else."""
    if kind_of_call(call.name) != "convolution" or is_transposed([call.name, *inside]):
        return 1, 0
    try:
        spatial, kernel, groups = window(call)
    except Unavailable:
        return 1, 0
    return groups, fft_tiles(spatial, kernel)


def _signature(call: ProfiledOperation) -> tuple[object, ...]:
    """What of a call decides its count. repr: (1,) and (True,) are equal, and not the same settings."""
    return call.name, call.input_shapes, repr(call.concrete_inputs)
