"""Executed lanes are equal to the count, or differ with a reason, or are named unexplained."""

from analysis.instructions import DIFFERENT, EQUAL, UNEXPLAINED, InstructionComparison, compare


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
    assert compare("exp", 0, 100, {"fma": 700}).verdict == DIFFERENT
    assert compare("nothing_known", 0, 100, {"fma": 700}).verdict == UNEXPLAINED
    assert compare("exp", 0, 100, {"failed": 1}).verdict == UNEXPLAINED
