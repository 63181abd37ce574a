"""Counts pooling, interpolation and sampling: each function takes an `Operation` and returns its `Cost`.

The cost has only `other_flop` (FLOP outside convolutions and matrix products), by the convention of
`analysis/operators/products.py`. Where the number of samples depends on data (RoIs of unknown size), the function's
docstring names the bound that is used.
"""

import re
from math import prod

from analysis.operators.cost import ZERO, Cost, Size, Sizes, attribute, first, has, needed, numel, output, shape
from analysis.operators.products import exact_ratio, scalars
from results.records.counts import Operation


def _dimensions(operation: Operation) -> int:
    """Return the number of spatial dimensions, from the name: max_pool2d → 2."""
    digits = re.search(r"([123])d", operation.name)
    if digits is None:
        raise ValueError(f"{operation.name}: expected 1d, 2d or 3d in the name")
    return int(digits.group(1))


def _taps(operation: Operation) -> Size:
    """Return the elements of a pooling window; a kernel size given once holds for every dimension."""
    kernel = needed(operation, "kernel_size")
    sizes = list(kernel) if isinstance(kernel, (list, tuple)) else [kernel]
    return prod(sizes) if len(sizes) > 1 else sizes[0] ** _dimensions(operation)


def max_pool(operation: Operation) -> Cost:
    """Count the forward pass of max pooling, also fractional: taps - 1 comparisons per output element."""
    return scalars(numel(output(operation)) * (_taps(operation) - 1))


def avg_pool(operation: Operation) -> Cost:
    """Count a sum over the taps and a division per output element in the forward pass.

    The backward pass has the division and an addition for each tap, per element of the output's gradient.
    """
    pooled = shape(operation, "grad_output") if has(operation, "grad_output") else output(operation)
    return scalars(numel(pooled) * (_taps(operation) + 1))


def adaptive_avg_pool(operation: Operation) -> Cost:
    """Count the additions of an adaptive mean and its divisions, forward and backward."""
    d, backward = _dimensions(operation), has(operation, "grad_output")
    full, pooled = (output(operation), first(operation)) if backward else (first(operation), output(operation))
    return scalars(numel(full[:-d]) * (adaptive_taps(full[-d:], pooled[-d:]) + prod(pooled[-d:])))


def adaptive_max_pool(operation: Operation) -> Cost:
    """Count the comparisons of an adaptive maximum: taps of all windows less one per window."""
    d, full, pooled = _dimensions(operation), first(operation), output(operation)
    return scalars(numel(full[:-d]) * (adaptive_taps(full[-d:], pooled[-d:]) - prod(pooled[-d:])))


def adaptive_taps(in_sizes: Sizes, out_sizes: Sizes) -> Size:
    """Return the taps of all windows of an adaptive pool together: window i of n spans ⌊i·L/n⌋ to ⌈(i + 1)·L/n⌉.

    Windows overlap where n does not divide L. A symbolic size counts L taps, as if it did.
    """
    taps = 1
    for length, count in zip(in_sizes, out_sizes, strict=True):
        if isinstance(length, int) and isinstance(count, int):
            taps *= sum(-(-(i + 1) * length // count) - i * length // count for i in range(count))
        else:
            taps *= length
    return taps


def interpolate(taps: int, operation: Operation) -> Cost:
    """Count upsample_*: a weighted sum of `taps` pixels for each output element: linear 2, bilinear 4, trilinear 8,
    bicubic 16. The weights are shared by all channels and not counted."""
    return scalars(numel(output(operation)) * (2 * taps - 1))


def interpolate_backward(flop_per_element: int, operation: Operation) -> Cost:
    """Count a multiply-add into each tap; for nearest only an addition. flop_per_element: operations per gradient
    element."""
    return scalars(flop_per_element * numel(shape(operation, "grad_output")))


def interpolate_antialiased(width: int, operation: Operation) -> Cost:
    """Count _upsample_*2d_aa: rows, then columns. A window is `width` pixels of the coarser of the two grids; for
    symbolic sizes, of the finer one."""
    wide, narrow = first(operation)[-2:], output(operation)[-2:]
    taps = sum(_window(width, n, m) for n, m in zip(wide, narrow, strict=True))
    larger = first(operation) if has(operation, "grad_output") else output(operation)
    return scalars(2 * taps * numel(larger))


def _window(width: int, length: Size, other_length: Size) -> Size:
    if not (isinstance(length, int) and isinstance(other_length, int)) or not length or not other_length:
        return width
    return width * max(1, -(-max(length, other_length) // min(length, other_length)) if length > other_length else 1)


def grid_sample(operation: Operation) -> Cost:
    """Count grid_sampler_2d, grid_sampler_3d; the grid is (N, …, d). A weighted sum of 2^d pixels for each output
    element; for each point of the grid, 4 operations a coordinate to map it to pixels, 3 to split it, and the products
    of the pixels' weights. Nearest (mode 1) only takes pixels. Bicubic (mode 2) weighs 4^d pixels; the cubic weights of
    a coordinate are not counted."""
    grid, mode = shape(operation, "grid"), attribute(operation, "interpolation_mode", 0)
    if mode == 1:
        return ZERO
    d = len(grid) - 2
    pixels = (4 if mode == 2 else 2) ** d
    return scalars(numel(output(operation)) * (2 * pixels - 1) + numel(grid[:-1]) * (7 * d + pixels * (d - 1)))


def grid_sample_backward(operation: Operation) -> Cost:
    """Count, for each element and tap, a multiply-add into the image, and one into each coordinate; for nearest (mode
    1) only an addition into the image."""
    gradient, mode = shape(operation, "grad_output"), attribute(operation, "interpolation_mode", 0)
    d = len(gradient) - 2
    return scalars(numel(gradient) * (1 if mode == 1 else 2 * (4 if mode == 2 else 2) ** d * (1 + d)))


def affine_grid(operation: Operation) -> Cost:
    """Count affine_grid_generator: a (d + 1)-term sum for each coordinate."""
    out = output(operation)
    return scalars(numel(out) * 2 * (out[-1] + 1))


def roi_align(operation: Operation) -> Cost:
    """Count roi_align, ps_roi_align: for each output element the mean of sampling_ratio² bilinear samples (7 each, and
    the addition); where the data decide (≤ 0), of one: a lower bound. Backward the division, and a multiply-add into 4
    pixels for each sample."""
    ratio = attribute(operation, "sampling_ratio", 0)
    bins = shape(operation, "grad") if has(operation, "grad") else output(operation)
    return scalars(numel(bins) * (8 * (ratio**2 if ratio > 0 else 1) + 1))


def box_suppression(operation: Operation) -> Cost:
    """Count torchvision.nms if no box is dropped early, an upper bound: for each pair corners 4, width and height 4,
    intersection 1, union 2, ratio 1, comparison 1."""
    boxes = shape(operation, "dets", "boxes")[0]
    return scalars(exact_ratio(boxes * (boxes - 1), 2) * 13)
