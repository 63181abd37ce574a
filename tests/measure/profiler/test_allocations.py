"""What is an operation's own and what a tensor: made-up allocations; real ones are test_footprint_allocated's."""

from __future__ import annotations

from measure.profiler.allocations import Allocated, Allocation, attributed

SPANS = [(10, 20), (30, 40), (50, 60)]
"""Of a product, a convolution and a ReLU."""


def test_by_hand() -> None:
    """Weights 100 always. mm makes 40 and takes 500 for itself, convolution makes 80 and takes 7: the peak is in mm, of
    tensors in convolution: 100 + 40 + 80."""
    blocks = [
        Allocation(1, None, 100),
        Allocation(11, 45, 40),
        Allocation(12, 19, 500),
        Allocation(31, 55, 80),
        Allocation(32, 38, 7),
        Allocation(70, None, 10_000),  # after the step
    ]
    assert attributed(blocks, SPANS, (5, 65)) == Allocated(640, 220)
    assert attributed(blocks, SPANS, (25, 65)) == Allocated(227, 220)


def test_what_outlives_its_operation_is_a_tensor() -> None:
    assert attributed([Allocation(12, 21, 5)], SPANS, (0, 65)) == Allocated(5, 5)
    assert attributed([Allocation(12, 20, 5)], SPANS, (0, 65)) == Allocated(5, 0)
    assert attributed([Allocation(12, None, 5)], SPANS, (0, 65)) == Allocated(5, 5)


def test_what_is_made_between_operations_is_a_tensor() -> None:
    assert attributed([Allocation(22, 24, 5)], SPANS, (0, 65)) == Allocated(5, 5)
    assert attributed([Allocation(2, 3, 5)], SPANS, (0, 65)) == Allocated(5, 5)


def test_a_free_before_the_next_allocation_at_one_time() -> None:
    """A block that goes as another of its size comes: never both."""
    assert attributed([Allocation(12, 30, 5), Allocation(30, 60, 5)], SPANS, (0, 65)).peak_bytes == 5


def test_nothing() -> None:
    assert attributed([], [], (0, 1)) == Allocated(0, 0)
