"""Definition: bytes of operations; each input is read once, each output is written once, and a view moves nothing."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from analysis.operators import registry, traffic
from tests.support.made_up_operations.made_up_operations import operation


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "read", "written"),
    [
        ("aten.add", {"self": (2, 3), "other": (3,)}, [(2, 3)], 36, 24),
        ("aten.permute", {"self": (2, 3)}, [(3, 2)], 0, 0),
        ("aten.empty", {}, [(2, 3)], 0, 0),
        ("aten.zeros", {}, [(2, 3)], 0, 24),
        ("aten.clone", {"self": (2, 3)}, [(2, 3)], 24, 24),
        ("aten.add_", {"self": (2, 3), "other": (3,)}, [(2, 3)], 36, 24),  # what it returns is what it wrote
        ("aten.copy_", {"self": (2, 3), "src": (3,)}, [(2, 3)], 12, 24),  # overwritten, not read
        ("aten.zero_", {"self": (2, 3)}, [(2, 3)], 0, 24),
        ("aten._foreach_mul_", {"self[0]": (2, 3)}, [], 24, 24),  # returns nothing
        ("aten.embedding", {"weight": (1000, 8), "indices": (3,)}, [(3, 8)], 96 + 12, 96),  # 3 rows of the table
    ],
)
def test_bytes(name: str, inputs: Any, outputs: Any, read: int, written: int) -> None:
    """float32, 4 bytes an element."""
    cost = registry.cost(operation(name, inputs, outputs))
    assert (cost.read_bytes, cost.written_bytes) == (read, written)


def test_a_tensor_passed_twice_is_read_once() -> None:
    square = operation("aten.mul", {"self": (8,), "other": (8,)}, [(8,)])
    assert registry.cost(replace(square, reads=(0, 0), writes=(1,))).read_bytes == 32
    assert registry.cost(replace(square, reads=(0, 1), writes=(2,))).read_bytes == 64


def test_statistics_written_in_place_are_written() -> None:
    """Batch norm returns an output and 2 saved statistics, and updates 2 more of the same shape: 4 · (8 + 4 · 2)."""
    inputs = {"input": (4, 2), "running_mean": (2,), "running_var": (2,)}
    norm = operation("aten.native_batch_norm", inputs, [(4, 2), (2,), (2,)], training=True)
    cost = registry.cost(replace(norm, reads=(0, 1, 2), writes=(3, 4, 5, 1, 2)))
    assert (cost.read_bytes, cost.written_bytes) == (4 * 12, 4 * 16)


def test_an_out_argument_is_written_only() -> None:
    product = operation("aten.mm", {"self": (2, 3), "mat2": (3, 5), "out": (2, 5)}, [(2, 5)], overload="out")
    cost = registry.cost(replace(product, reads=(0, 1, 2), writes=(2,)))
    assert (cost.read_bytes, cost.written_bytes) == (4 * 21, 4 * 10)


@pytest.mark.parametrize("name", sorted(traffic.DTYPE_BYTES))
def test_element_sizes_are_torchs(name: str) -> None:
    dtype = getattr(torch, name, None)
    if dtype is None:
        assert name.startswith("float")  # newer than this PyTorch
        return
    assert traffic.itemsize(name) == dtype.itemsize


@pytest.mark.parametrize(
    ("taps", "stride", "padding", "dilation"),
    [(1, 2, 0, 1), (1, 3, 0, 1), (2, 3, 0, 1), (2, 4, 0, 2), (3, 2, 1, 1), (1, 1, 0, 1), (3, 1, 1, 1)],
)
@pytest.mark.parametrize("size", [12, 13])
def test_a_window_that_skips_pixels_does_not_read_them(size, taps, stride, padding, dilation) -> None:
    """A real convolution's output, and the pixels that its windows touch; with padding, or without gaps, all."""
    layer = torch.nn.Conv2d(3, 5, taps, stride, padding, dilation, bias=False)
    out = tuple(layer(torch.zeros(2, 3, size, size)).shape)
    window = {"stride": [stride] * 2, "padding": [padding] * 2, "dilation": [dilation] * 2}
    gaps = dilation * (taps - 1) + 1 < stride
    touched = {o * stride + tap * dilation for o in range(out[2]) for tap in range(taps)} & set(range(size))
    pixels = len(touched) if gaps else size
    weight = 5 * 3 * taps**2
    inputs = {"input": (2, 3, size, size), "weight": (5, 3, taps, taps)}
    forward = operation("aten.convolution", inputs, [out], **window)
    assert registry.cost(forward).read_bytes == 4 * (2 * 3 * pixels**2 + weight)
    backward = {"grad_output": out, **inputs}
    of_both, of_weight, of_input = (
        registry.cost(
            operation("aten.convolution_backward", backward, [inputs["input"]], output_mask=[*mask, False], **window)
        ).read_bytes
        for mask in ((True, True), (False, True), (True, False))
    )
    grad = 2 * 5 * out[2] ** 2
    assert of_both == 4 * (grad + 2 * 3 * pixels**2 + weight)
    assert of_weight == 4 * (grad + 2 * 3 * pixels**2), "no gradient of the input: no weight is read"
    assert of_input == 4 * (grad + weight), "no gradient of the weight: no input is read"


@pytest.mark.parametrize("name", sorted(traffic.SHAPE_ONLY))
def test_what_is_taken_for_its_shape_is_not_read(name: str) -> None:
    """The 8 elements of self are not; the other tensor is."""
    read, _ = traffic.bytes_moved(operation(name, {"self": (8,), "other": (3,)}, [(8,)]))
    assert read == 12


def test_bytes_by_dtype() -> None:
    """A cast from float32 to bfloat16 reads 4 and writes 2 bytes an element; an unknown dtype is refused."""
    cast = operation("aten._to_copy", {"self": (8,)}, [(8,)], dtype="bfloat16", dtypes={"self": "float32"})
    assert (registry.cost(cast).read_bytes, registry.cost(cast).written_bytes) == (32, 16)
    with pytest.raises(ValueError, match="got 'float3'"):
        traffic.itemsize("float3")
