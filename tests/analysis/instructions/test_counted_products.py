"""Products that were counted together, each executed by a kernel of its own, as valgrind counted them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from analysis.instructions import DIFFERENT, UNEXPLAINED, CountedProduct, compare_operations, parts_of
from results.records import Operation


def operation(
    name: str, kind: str, output: tuple[int, ...], inputs: dict[str, tuple[int, ...]], **attributes: Any
) -> Operation:
    shapes = tuple(inputs.values())
    return Operation(
        index=0, name=name, kind=kind, phase="forward", module="", sequence_nr=None, forward_index=None,
        input_names=tuple(inputs), input_shapes=shapes, input_dtypes=("float32",) * len(shapes),
        output_shapes=(output,), output_dtypes=("float32",), attributes=attributes, reads=(), writes=(),
    )  # fmt: skip


def mm(m: int, k: int, n: int) -> Operation:
    return operation("aten.mm", "matmul", (m, n), {"self": (m, k), "mat2": (k, n)})


def test_a_product_with_a_vector_scales_its_result_and_one_of_one_term_is_multiplications() -> None:
    """mm_1x64x64.backward: 1 × 64 by 64 × 64 are 4,096 multiply-adds and 64 of the result; 64 × 1 by 1 × 64 are 4,096
    multiplications, of a factor of 64 numbers that was scaled."""
    calls, lanes = [mm(1, 64, 64), mm(64, 1, 64)], {"fma": 4096 + 64, "mul": 4096 + 64, "add": 1024}
    found = compare_operations("mm_1x64x64.backward", lanes, calls)
    assert (found.multiply_adds, found.verdict) == (2 * 4096, DIFFERENT)
    assert found.reason == (
        "a product with a vector scales and adds its result by fused multiply-adds, one for each number"
        " and 4,096 products that begin a sum are multiplications"
    )
    assert compare_operations("a", {**lanes, "fma": 4096 + 63}, calls).verdict == UNEXPLAINED
    assert compare_operations("a", {**lanes, "mul": 4095}, calls).verdict == UNEXPLAINED
    assert compare_operations("a", {"fma": 16 * 16 * 16 + 256}, [mm(16, 16, 16)]).verdict == UNEXPLAINED
    vector = operation("aten.mv", "matmul", (32,), {"self": (32, 32), "vec": (32,)})
    assert compare_operations("mv", {"fma": 1024 + 32}, [vector]).verdict == DIFFERENT


def trilinear(
    factors: dict[str, tuple[int, ...]], missing: tuple[list[int], ...], summed: list[int], result: tuple[int, ...]
) -> Operation:
    named = {f"expand{number}": each for number, each in enumerate(missing, start=1)}
    return operation("aten._trilinear", "matmul", result, factors, **named, sumdim=summed, unroll_dim=1)


SAMPLE, OUT, LEFT, RIGHT = 2, 8, 3, 5


def test_a_product_of_three_factors_is_one_of_each_pair_for_each_value_of_a_dimension() -> None:
    """out[n, o] = x1[n, i] · w[o, i, j] · x2[n, j] for each o: x1 by w over i is 2 × 5 results of 3 terms, and by x2
    over j 2 results of 5 terms, one for each sample. Both are loops: 2·3·5 and 5 multiply-adds are less than 400."""
    call = trilinear(
        {"i1": (SAMPLE, LEFT), "i2": (OUT, LEFT, RIGHT), "i3": (SAMPLE, RIGHT)},
        ([1, 3], [0], [1, 2]), [2, 3], (SAMPLE, OUT),
    )  # fmt: skip
    first, second = parts_of([call])
    assert first == CountedProduct(OUT * 2 * 5 * 3, (2, 5), OUT * 2 * 5, is_apart=True)
    assert second == CountedProduct(OUT * 2 * 5, (1, 1), OUT * 2, is_apart=True, added=OUT * 2)


def test_the_gradients_of_a_bilinear_product_are_loops_and_matrix_products() -> None:
    """bilinear.backward of 8 everywhere. x1's gradient: for each of 8 outputs, gradient times weight, and 8 batches of
    8 × 8 by 8: loops. The other two: for each output a product of 8 × 8 by 8 × 8 by MKL, whose 64 results begin two
    sums each. Each adds up 8 × 64 results."""
    pair, triple = (8, 8), (8, 8, 8)
    calls = [
        trilinear({"i1": pair, "i2": triple, "i3": pair}, ([2, 3], [0], [1, 2]), [1, 3], pair),
        trilinear({"i1": pair, "i2": pair, "i3": pair}, ([1, 3], [2, 3], [1, 2]), [0], triple),
        trilinear({"i1": pair, "i2": triple, "i3": pair}, ([1, 3], [0], [2, 3]), [1, 2], pair),
    ]
    assert [each.is_apart for each in parts_of(calls)] == [True, False, False]
    lanes = {"fma": 7680, "mul": 12_544, "add": 7680}
    found = compare_operations("bilinear.backward", lanes, calls)
    assert (found.multiply_adds, found.verdict) == (3 * 4096, DIFFERENT)
    for part in (
        "4,096 products are multiplications and additions of their own",
        "1,536 results are added to others by fused multiply-adds",
        "2,048 products that begin a sum are multiplications",
    ):
        assert part in found.reason
    for kind, less in (("fma", 7679), ("mul", 6143), ("add", 5119)):
        assert compare_operations("a", {**lanes, kind: less}, calls).verdict == UNEXPLAINED


def conv3d_gradients() -> Operation:
    """Of 16 to 16 channels by 2 × 3 × 3 taps: 3 × 4 × 4 places of an image of 4 × 6 × 6."""
    axes = {"stride": [1, 1, 1], "padding": [0, 0, 0], "dilation": [1, 1, 1], "transposed": False, "groups": 1}
    inputs = {"grad_output": (1, 16, 3, 4, 4), "input": (1, 16, 4, 6, 6), "weight": (16, 16, 2, 3, 3)}
    found = operation(
        "aten.convolution_backward", "convolution", (1, 16, 4, 6, 6), inputs, **axes, output_mask=[True, True, False]
    )
    return replace(found, output_shapes=((1, 16, 4, 6, 6), (16, 16, 2, 3, 3)), output_dtypes=("float32",) * 2)


def test_an_unfolded_image_is_folded_by_a_multiplication_and_a_fused_multiply_add_a_number() -> None:
    """conv3d.backward: two products of 48 places × 16 × 288 taps; 288 × 48 numbers of the unfolded image's gradient are
    folded. Multiplications are scalings of both results (13,824 and 4,608), MKL's copies (27,648, twice as many as
    numbers are unfolded), and one for each number that is folded."""
    product, unfolded, weight = 48 * 16 * 288, 288 * 48, 16 * 288
    lanes = {"fma": 2 * product + unfolded, "mul": unfolded + weight + 2 * unfolded + unfolded, "add": weight}
    assert lanes == {"fma": 456_192, "mul": 59_904, "add": 4608}, "as valgrind counted it"
    found = compare_operations("conv3d.backward", lanes, [conv3d_gradients()])
    assert (found.multiply_adds, found.verdict) == (2 * product, DIFFERENT)
    assert found.reason == "a multiplication and a fused multiply-add fold each of 13,824 unfolded numbers"
    for wrong in ({"fma": lanes["fma"] - 1}, {"mul": unfolded - 1}):
        assert compare_operations("a", {**lanes, **wrong}, [conv3d_gradients()]).verdict == UNEXPLAINED
