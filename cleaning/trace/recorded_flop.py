"""What a recording gives each kernel before anything is cleaned: its own number, else what PyProf would have given.

PyProf gives every kernel of a recognised name the FLOP of the whole operation (NVIDIA/PyProf pyprof/prof/conv.py,
linear.py, blas.py, commit 218dcc1; its lists are in `analysis/trace/kernel_names.py`). That is wrong in both
directions, and is repeated here so that the numbers of its users can be. On a recording without a device each product's
own call gets what its sizes give.

Not claimed: PyProf's numbers for what is no product; the FLOP of bias kernels inside a product, which are no model
FLOP; nor that PyProf could have read the recording.
"""

from __future__ import annotations

from collections.abc import Callable

from analysis.trace.kernel_names import pyprof_all_groups, pyprof_convolution, pyprof_linear, pyprof_matmul
from cleaning.trace.products import Part, Product

LINEAR = ("linear", "mkldnn_linear", "linear_backward", "mkldnn_linear_backward")
"""Operators that PyProf sees as torch.nn.functional.linear."""

GRADIENTS_OF_LINEAR = 2
"""Of a linear layer's backward pass PyProf counts the first two kernels, whatever they do."""


def assign_flop(product: Product) -> Product:
    """The product with what each of its kernels is given."""
    parts, place = [], product.place - 1
    for part in product.parts:
        place += not part.twin
        parts.append(part._replace(found=_part_flop(product, part, place)))
    return product._replace(parts=tuple(parts))


def _part_flop(product: Product, part: Part, place: int) -> int | None:
    if part.source_flop is not None:
        return part.source_flop
    if part.what == "call":
        return part.call_flop
    if product.unit_flop is None:
        return None
    if part.what != "kernel":
        return 0
    return RULES.get(product.kind, _nothing)(product, part, place)


def _convolution(product: Product, part: Part, place: int) -> int:
    if not pyprof_convolution(part.name):
        return 0
    flop = product.unit_flop or 0
    return flop if product.groups == 1 or pyprof_all_groups(part.name) else flop // product.groups


def _matmul(product: Product, part: Part, place: int) -> int:
    flop = product.unit_flop or 0
    name = (product.forward_name or product.name).partition("::")[2]
    if name in LINEAR:
        counts = pyprof_linear(part.name) and (product.phase != "backward" or place < GRADIENTS_OF_LINEAR)
        return flop if counts else 0
    return flop if name != "matmul" or pyprof_matmul(part.name) else 0


def _nothing(product: Product, part: Part, place: int) -> int:
    return 0


RULES: dict[str, Callable[[Product, Part, int], int]] = {"convolution": _convolution, "matmul": _matmul}
"""Kind of a product → PyProf's rule. Of any other kind it knows nothing, and gives 0."""
