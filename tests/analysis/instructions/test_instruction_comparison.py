"""Executed lanes are equal to the count, or differ with a reason, or are named unexplained."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from analysis.instructions import (
    DIFFERENT,
    EQUAL,
    UNEXPLAINED,
    CountedProduct,
    InstructionComparison,
    compare,
    compare_calls,
    parts_of,
    taps_inside,
)
from results.records import Operation


def test_the_same_number_of_multiply_adds_is_equal() -> None:
    found = compare("mm", 64, 0, {"fma": 64, "mul": 16}, (4, 4))
    assert isinstance(found, InstructionComparison)
    assert (found.verdict, found.executed_flop) == (EQUAL, 2 * 64 + 16)


def test_padding_is_found_by_the_size_that_is_rounded_up() -> None:
    """5 × 7 × 9: 315 multiply-adds; 9 columns are two vectors of 8: 5 × 7 × 16 = 560."""
    found = compare("mm", 315, 0, {"fma": 560}, (5, 9))
    assert (found.verdict, found.reason) == (DIFFERENT, "padding of vectors: 9 is executed as 16")
    assert compare("mm", 315, 0, {"fma": 561}, (5, 9)).verdict == UNEXPLAINED


def test_the_product_that_begins_a_sum_may_be_a_multiplication() -> None:
    """4 × 8 × 4 with one accumulator: 16 multiplications and 112 fused ones are 128; 111 are one too few."""
    assert compare("mm", 128, 0, {"fma": 112, "mul": 16}, (4, 4)).verdict == EQUAL
    assert compare("mm", 128, 0, {"fma": 111, "mul": 17}, (4, 4)).verdict == UNEXPLAINED
    assert compare("mm", 128, 0, {"fma": 112, "mul": 15}, (4, 4)).verdict == UNEXPLAINED


def test_other_operations_are_compared_by_lanes_and_a_difference_needs_a_reason() -> None:
    assert compare("add", 0, 100, {"fma": 100, "compare": 2}).verdict == EQUAL
    found = compare("exp", 0, 100, {"fma": 700})
    assert (found.verdict, found.is_tabled) == (DIFFERENT, True)
    assert compare("nothing_known", 0, 100, {"fma": 700}).verdict == UNEXPLAINED
    assert compare("exp", 0, 100, {"failed": 1}).verdict == UNEXPLAINED


def pooled(name: str, **attributes: Any) -> Operation:
    """To 2 × 3 × 4 × 4 = 96 results of four numbers each."""
    return operation(name, (2, 3, 4, 4), {"self": (2, 3, 8, 8)}, **attributes)


def test_a_pool_without_padding_executes_one_addition_more_for_each_result() -> None:
    """Four additions and a division by definition."""
    plain, padded = (pooled("aten.avg_pool2d", kernel_size=[2, 2], padding=[p, p]) for p in (0, 1))
    for more, verdict in ((0, EQUAL), (95, UNEXPLAINED), (96, DIFFERENT), (97, UNEXPLAINED)):
        found = compare("avg_pool2d", 0, 5 * 96, {"add": 4 * 96 + more, "div": 96}, calls=[plain])
        assert (found.verdict, found.is_tabled) == (verdict, False)
    found = compare("avg_pool2d", 0, 5 * 96, {"add": 1}, calls=[padded])
    assert (found.verdict, found.is_tabled) == (DIFFERENT, True)


def test_an_upsampling_executes_some_lanes_around_its_kernel() -> None:
    for lanes, verdict in ((0, EQUAL), (1, DIFFERENT), (64, DIFFERENT), (65, UNEXPLAINED)):
        found = compare("upsample_nearest", 0, 0, {"mul": lanes}, calls=[pooled("aten.upsample_nearest2d")])
        assert (found.verdict, found.is_tabled) == (verdict, False)


def test_a_processors_total_of_what_has_a_rule_has_the_reason_of_the_table() -> None:
    """The rules are of AVX2's kernels."""
    found = compare("upsample_nearest", 0, 0, {"flop": 1_000}, calls=[pooled("aten.upsample_nearest2d")])
    assert (found.verdict, found.is_tabled) == (DIFFERENT, True)


def test_a_counters_total_is_compared_with_all_flop() -> None:
    """315 multiply-adds are 630 FLOP; 5 × 7 × 16 of them 1,120."""
    assert compare("mm", 315, 0, {"flop": 630}, (5, 9)).verdict == EQUAL
    found = compare("mm", 315, 0, {"flop": 1120}, (5, 9))
    assert (found.verdict, found.executed_flop) == (DIFFERENT, 1120)
    assert compare("add", 0, 100, {"flop": 101}).verdict == UNEXPLAINED


def operation(name: str, output: tuple[int, ...], inputs: dict[str, tuple[int, ...]], **attributes: Any) -> Operation:
    shapes = tuple(inputs.values())
    return Operation(
        index=0, name=name, kind="", phase="forward", module="", sequence_nr=None, forward_index=None,
        input_names=tuple(inputs), input_shapes=shapes, input_dtypes=("float32",) * len(shapes),
        output_shapes=(output,), output_dtypes=("float32",), attributes=attributes, reads=(), writes=(),
    )  # fmt: skip


def convolution(size: int, kernel: int, stride: int, padding: int, dilation: int = 1) -> Operation:
    """Two images of 4 channels to 6, of which two groups share the channels: 2 a filter."""
    out = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    inputs = {"input": (2, 4, size, size), "weight": (6, 2, kernel, kernel)}
    axes = {"stride": [stride, stride], "padding": [padding, padding], "dilation": [dilation, dilation]}
    return operation("aten.convolution", (2, 6, out, out), inputs, **axes, transposed=False, groups=2)


@pytest.mark.parametrize("asked", [(8, 3, 1, 1), (8, 3, 2, 1), (7, 5, 2, 2), (9, 3, 1, 2, 2), (6, 1, 1, 0)])
def test_taps_on_the_padding_are_those_of_a_loop(asked: tuple[int, ...]) -> None:
    found = convolution(*asked)
    size, kernel, stride, padding, dilation = (*asked, 1)[:5]
    loop = 0
    for *_, row, column in itertools.product(*map(range, found.output_shapes[0])):
        for i, j in itertools.product(range(kernel), repeat=2):
            places = (row * stride - padding + i * dilation, column * stride - padding + j * dilation)
            loop += 2 * all(0 <= place < size for place in places)  # two channels a filter
    assert taps_inside(found) == loop


def gradients(forward: Operation, mask: tuple[bool, bool, bool] = (True, True, False)) -> Operation:
    """The backward pass of a convolution: its result's gradient in, those of image and weight out."""
    image, weight = forward.input_shapes
    inputs = {"grad_output": forward.output_shapes[0], "input": image, "weight": weight}
    found = operation("aten.convolution_backward", image, inputs, **forward.attributes, output_mask=list(mask))
    shapes = tuple(shape for shape, made in zip((image, weight), mask, strict=False) if made)
    return replace(found, output_shapes=shapes, output_dtypes=("float32",) * len(shapes))


def test_a_backward_pass_without_its_taps_on_the_padding() -> None:
    """Both gradients have the forward pass's taps; of a first layer there is the weight's alone."""
    forward = convolution(8, 3, 1, 1)
    taps = taps_inside(forward)
    for made, mask in ((2, (True, True, False)), (1, (False, True, False))):
        (row,) = compare_calls([("aten.convolution_backward", {"fma": made * taps})], [gradients(forward, mask)])
        assert (row.verdict, row.reason) == (DIFFERENT, "taps on the padding are not executed")
        (row,) = compare_calls([("aten.convolution_backward", {"fma": made * taps + 1})], [gradients(forward, mask)])
        assert row.verdict == UNEXPLAINED


def test_a_weights_gradient_of_unfolded_images_has_the_taps_on_the_padding_and_is_scaled() -> None:
    """2 images × 6 × 8 × 8 results × 18 taps a filter are 13,824 products of the weight's gradient. 500 of them begin a
    sum and are multiplications, as are the scalings of 6 × 18 weights for each of 2 images, and 30 lanes around."""
    forward = convolution(8, 3, 1, 1)
    taps, first, scaled = taps_inside(forward), 500, 2 * 6 * 18
    assert taps < 13_824 == math.prod(forward.output_shapes[0]) * 18
    lanes = {"fma": taps + 13_824 - first, "mul": first + scaled + 30}
    (row,) = compare_calls([("aten.convolution_backward", lanes)], [gradients(forward)])
    assert (row.verdict, row.reason[:45]) == (DIFFERENT, "the weight's gradient is a product of unfolde")
    for mul in (first + scaled - 1, first + scaled + 65):
        (row,) = compare_calls([("aten.convolution_backward", {**lanes, "mul": mul})], [gradients(forward)])
        assert row.verdict == UNEXPLAINED


def test_products_may_be_multiplications_and_additions_of_their_own() -> None:
    """2 × 512 by 512 × 10: 10,240 products, 16,384 where 10 columns are executed as 16. Each of 20, or 32, results has
    two partial sums of 256 products, which may be scaled."""
    apart = "products are multiplications and additions of their own"
    scaled, padding = f"{apart}, their partial sums are scaled", "padding of vectors: 10 is executed as 16"
    for mul, reason in (
        (10_240, apart),
        (10_240 + 2 * 20, scaled),
        (16_384, f"{apart}, and {padding}"),
        (16_384 + 2 * 32, f"{scaled}, and {padding}"),
    ):
        found = compare("aten.addmm", 10_240, 20, {"mul": mul, "add": 16_544}, (2, 10))
        assert (found.verdict, found.reason) == (DIFFERENT, reason)
    assert compare("aten.addmm", 10_240, 20, {"mul": 10_240 + 20, "add": 10_260}, (2, 10)).verdict == UNEXPLAINED
    assert compare("aten.addmm", 10_240, 20, {"mul": 10_240, "add": 10_239}, (2, 10)).verdict == UNEXPLAINED


def two_products() -> tuple[CountedProduct, ...]:
    """The gradients of 17 × 33 by 33 × 31: 17 × 31 by 31 × 33, and 33 × 17 by 17 × 31, of 17,391 multiply-adds each."""
    first = operation("aten.mm", (17, 33), {"self": (17, 31), "mat2": (31, 33)})
    second = operation("aten.mm", (33, 31), {"self": (33, 17), "mat2": (17, 31)})
    return parts_of([first, second])


@pytest.mark.parametrize(
    ("lanes", "verdict", "reason"),
    [
        ({"fma": 2 * 17_391 - 561, "mul": 561}, EQUAL, "561 products that begin a sum are multiplications"),
        ({"fma": 2 * 17_391 - 4 * 561, "mul": 4 * 561, "add": 3 * 561}, EQUAL, "2,244 products that begin a sum"),
        ({"fma": 2 * 17_391 - 4 * 561, "mul": 4 * 561, "add": 3 * 561 - 1}, UNEXPLAINED, ""),
        ({"fma": 2 * 17_391 - 561, "mul": 560}, UNEXPLAINED, ""),
        # 33 columns are 40, 31 are 32: whole vectors
        (
            {"fma": 17 * 31 * 40 + 33 * 17 * 32},
            DIFFERENT,
            "padding of vectors: 33 is executed as 40, 31 is executed as",
        ),
        ({"fma": 17 * 31 * 40 + 33 * 17 * 32 + 1}, UNEXPLAINED, ""),
    ],
)
def test_products_that_are_counted_together_may_each_be_executed_in_another_way(
    lanes: dict[str, int], verdict: str, reason: str
) -> None:
    """17 × 33 = 561 results of the first product, 33 × 31 = 1,023 of the second."""
    assert [(part.multiply_adds, part.results) for part in two_products()] == [(17_391, 561), (17_391, 1_023)]
    found = compare("mm_17x33x31.backward", 2 * 17_391, 0, lanes, (), two_products())
    assert (found.verdict, found.reason[: len(reason)]) == (verdict, reason)


def test_no_more_sums_begin_than_there_are_products() -> None:
    """10,000 products with 10 results and 100 with 100: four beginnings of each of 100 results would be 400 of 100
    products. With one, 10,000 + 0 fused; 9,700 are none of 10,000 less 0, 10, 20 or 40, with or without 100 more."""
    parts = (CountedProduct(10_000, (), 10), CountedProduct(100, (), 100))
    found = compare("two products", 10_100, 0, {"fma": 9_700, "mul": 400, "add": 300}, (), parts)
    assert (found.verdict, found.reason) == (UNEXPLAINED, "")
    begun = compare("two products", 10_100, 0, {"fma": 10_000, "mul": 100}, (), parts)
    assert (begun.verdict, begun.reason) == (EQUAL, "100 products that begin a sum are multiplications")


def test_a_convolutions_backward_pass_has_a_product_for_each_gradient() -> None:
    """Both of the forward pass's multiply-adds, with channels out and in, and as many results as image and weight."""
    forward = convolution(8, 3, 1, 1)
    assert parts_of([gradients(forward)]) == (CountedProduct(13_824, (6, 2), 512), CountedProduct(13_824, (6, 2), 108))
    assert parts_of([gradients(forward, (False, True, False))]) == (CountedProduct(13_824, (6, 2), 108),)


def test_the_places_of_an_unfolded_image_may_be_rounded_up() -> None:
    """5 × 5 places of two images are executed as 32: 2 × 6 × 32 × 18 products."""
    forward = convolution(5, 3, 1, 1)
    (row,) = compare_calls([("aten.convolution", {"fma": 2 * 6 * 32 * 18})], [forward])
    assert (row.verdict, row.reason) == (DIFFERENT, "padding of vectors")
    (row,) = compare_calls([("aten.convolution", {"fma": 2 * 6 * 33 * 18})], [forward])
    assert row.verdict == UNEXPLAINED


def test_an_aten_call_has_the_reason_of_its_operator() -> None:
    for name in ("aten.exp", "aten.exp_", "aten._log_softmax", "log_softmax"):
        assert compare(name, 0, 100, {"fma": 700}).reason == compare("exp", 0, 100, {"fma": 700}).reason != ""


def test_calls_of_a_step_are_compared_one_by_one() -> None:
    """A product of 2 × 3 × 8 and one of 5 × 7 × 9, whose 9 columns are 16; a convolution without its padded taps."""
    one = operation("aten.mm", (2, 8), {"self": (2, 3), "mat2": (3, 8)})
    other = operation("aten.mm", (5, 9), {"self": (5, 7), "mat2": (7, 9)})
    image = convolution(8, 3, 1, 1)
    calls = [("aten.mm", {"fma": 48}), ("aten.view", {}), ("aten.mm", {"fma": 560, "mul": 1})]
    calls += [("aten.convolution", {"fma": taps_inside(image)})]
    conv, mm = compare_calls(calls, [one, other, image])
    assert (mm.name, mm.multiply_adds, mm.executed, mm.verdict) == (
        "aten.mm",
        48 + 315,
        {"fma": 608, "mul": 1},
        DIFFERENT,
    )
    assert mm.reason == "padding of vectors"
    assert (conv.verdict, conv.reason) == (DIFFERENT, "taps on the padding are not executed")
    assert conv.multiply_adds == math.prod((2, 6, 8, 8, 2, 3, 3)) > taps_inside(image)
    (only,) = compare_calls([("aten.mm", {"fma": 47})], [one])
    assert (only.verdict, only.reason) == (UNEXPLAINED, "1 of 1 calls")
    (fewer,) = compare_calls([], [one])
    assert (fewer.verdict, fewer.reason) == (UNEXPLAINED, "0 calls were executed, 1 are in the step's table")
