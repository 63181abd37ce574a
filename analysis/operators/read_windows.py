"""Readers of pooling, interpolation and sampling: Operation → windows and their taps.

All of it is other FLOP, by the formulas of `analysis/operators/nonproducts.py`. Where the number of samples depends on
data (RoIs of unknown size) a bound is taken, and the docstring says which.
"""

import re
from math import prod

from analysis.operators import nonproducts
from analysis.operators.cost import ZERO, Cost, Size, attribute, first, has, needed, numel, output, shape
from analysis.operators.products import scalars
from results.records.counts import Operation


def _dimensions(operation: Operation) -> int:
    """Spatial dimensions, from the name: max_pool2d → 2."""
    found = re.search(r"([123])d", operation.name)
    if found is None:
        raise ValueError(f"{operation.name}: expected 1d, 2d or 3d in the name")
    return int(found.group(1))


def _taps(operation: Operation) -> Size:
    """Elements of a pooling window; a kernel size given once holds for every dimension."""
    kernel = needed(operation, "kernel_size")
    sizes = list(kernel) if isinstance(kernel, (list, tuple)) else [kernel]
    return prod(sizes) if len(sizes) > 1 else sizes[0] ** _dimensions(operation)


def max_pool(operation: Operation) -> Cost:
    """Forward, plain and fractional."""
    return nonproducts.max_pool(numel(output(operation)), _taps(operation))


def avg_pool(operation: Operation) -> Cost:
    """Forward and backward: additions and divisions are as many, for each element of the output or of its gradient."""
    pooled = shape(operation, "grad_output") if has(operation, "grad_output") else output(operation)
    return nonproducts.avg_pool(numel(pooled), _taps(operation))


def adaptive_avg_pool(operation: Operation) -> Cost:
    """Forward and backward."""
    d, backward = _dimensions(operation), has(operation, "grad_output")
    full, pooled = output(operation), first(operation)
    if not backward:
        full, pooled = pooled, full
    return nonproducts.adaptive_avg_pool(numel(full[:-d]), full[-d:], pooled[-d:])


def adaptive_max_pool(operation: Operation) -> Cost:
    """Forward; backward is an addition for each element of the gradient."""
    d, full = _dimensions(operation), first(operation)
    return nonproducts.adaptive_max_pool(numel(full[:-d]), full[-d:], output(operation)[-d:])


def interpolate(taps: int, operation: Operation) -> Cost:
    """upsample_* with a fixed number of taps."""
    return nonproducts.interpolate(numel(output(operation)), taps)


def interpolate_backward(taps: int, operation: Operation) -> Cost:
    """Their backward passes."""
    return nonproducts.interpolate_backward(numel(shape(operation, "grad_output")), taps)


def interpolate_antialiased(width: int, operation: Operation) -> Cost:
    """_upsample_*2d_aa: rows, then columns; a window is `width` pixels of the coarser of the two grids. For symbolic
    sizes, `width` of the finer one."""
    wide, narrow = first(operation)[-2:], output(operation)[-2:]
    taps = sum(_window(width, n, m) for n, m in zip(wide, narrow, strict=True))
    larger = first(operation) if has(operation, "grad_output") else output(operation)
    return scalars(2 * taps * numel(larger))


def _window(width: int, one: Size, other: Size) -> Size:
    if not (isinstance(one, int) and isinstance(other, int)) or not one or not other:
        return width
    return width * max(1, -(-max(one, other) // min(one, other)) if one > other else 1)


def grid_sample(operation: Operation) -> Cost:
    """grid_sampler_2d, grid_sampler_3d: the grid is (N, …, d). Nearest (mode 1) only takes pixels."""
    grid = shape(operation, "grid")
    if attribute(operation, "interpolation_mode", 0) == 1:
        return ZERO
    return nonproducts.grid_sample(numel(output(operation)), numel(grid[:-1]), len(grid) - 2)


def grid_sample_backward(operation: Operation) -> Cost:
    """Backward passes of both."""
    gradient = shape(operation, "grad_output")
    return nonproducts.grid_sample_backward(numel(gradient), len(gradient) - 2)


def affine_grid(operation: Operation) -> Cost:
    """affine_grid_generator: a (d + 1)-term sum for each coordinate."""
    out = output(operation)
    return scalars(numel(out) * 2 * (out[-1] + 1))


def roi_align(operation: Operation) -> Cost:
    """roi_align, ps_roi_align: sampling_ratio² samples for a bin; where the data decide (≤ 0), one: a lower bound."""
    return nonproducts.roi_align(numel(output(operation)), _samples(operation))


def roi_align_backward(operation: Operation) -> Cost:
    """Backward passes of both."""
    return nonproducts.roi_align_backward(numel(shape(operation, "grad")), _samples(operation))


def _samples(operation: Operation) -> Size:
    ratio = attribute(operation, "sampling_ratio", 0)
    return ratio**2 if ratio > 0 else 1


def roi_pool(operation: Operation) -> Cost:
    """roi_pool, ps_roi_pool: one comparison or addition for each bin, whose sizes are data: a lower bound."""
    return scalars(numel(output(operation)))


def box_suppression(operation: Operation) -> Cost:
    """torchvision.nms."""
    return nonproducts.box_suppression(shape(operation, "dets", "boxes")[0])
