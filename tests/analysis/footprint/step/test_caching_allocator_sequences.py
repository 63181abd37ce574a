"""Sequences of allocations that others recorded on a GPU and published, taken through our rules: the same segments.

Sizes are facts of their sources; addresses there are told as the order of requests here. The histories are those of
torch.cuda.memory for three forward passes of one linear layer, profile_grad.pkl and profile_no_grad.pkl of
https://github.com/shreyansh26/MLSys-Experiments (model_memory_usage).
"""

from __future__ import annotations

import pytest

from analysis.footprint.caching_allocator import HOPPER_BYTES, Pools

SIZES = {
    "weight": 10_000 * 50_000 * 4,
    "bias": 50_000 * 4,
    "inputs": 5_000 * 10_000 * 4,
    "outputs": 5_000 * 50_000 * 4,
    "cublasLt": 2**20,  # while it multiplies
    "cublas": HOPPER_BYTES,
}
SEGMENTS = (2_000_683_008, 2_097_152, 201_326_592, 1_000_341_504, 33_554_432, 201_326_592, 1_000_341_504)
RESERVED, ALLOCATED = 4_439_670_784, 3_234_779_136
"""At the end: the sum of total_size, and of allocated_size, of the snapshot's segments."""

FIRST = "weight bias inputs outputs cublasLt cublas -4 "
HISTORIES = {
    "with gradients": FIRST + "inputs outputs cublasLt -8 -2 -3 inputs outputs cublasLt -11 -6 -7",
    "without": FIRST + "inputs -2 outputs cublasLt -8 -3 inputs -6 outputs cublasLt -11 -7",
}
"""Requests by what they are for, numbered from 0; -4: the one numbered 4 is released."""


@pytest.mark.parametrize("name", HISTORIES)
def test_a_recorded_history_makes_the_segments_that_the_gpu_made(name: str) -> None:
    """Every segment in its place, and what is allocated and reserved at the end, to the byte."""
    pools, made, grown = Pools(), 0, []
    for entry in HISTORIES[name].split():
        before = pools.reserved
        if entry in SIZES:
            pools.take(made, SIZES[entry])
            made += 1
        else:
            pools.give(-int(entry))
        if pools.reserved > before:
            grown.append(pools.reserved - before)
    assert tuple(grown) == SEGMENTS
    assert (pools.allocated, pools.reserved, pools.segments) == (ALLOCATED, RESERVED, len(SEGMENTS))


def test_what_is_left_of_a_block_stays_with_it_or_not() -> None:
    """Of the same snapshot: of 1,000,341,504 bytes 341,504 are left, too few to split off; of 201,326,592
    1,326,592 are."""
    pools = Pools()
    pools.take(0, SIZES["outputs"])
    assert pools.allocated == 1_000_341_504
    pools.take(1, SIZES["inputs"])
    assert pools.allocated == 1_000_341_504 + 200_000_000


def test_blocks_lie_where_a_recorded_trace_has_them() -> None:
    """The first tensors of a ResNet-18, offsets in a segment of 2 MiB: "Visualizing PyTorch memory usage over time", at
    https://github.com/zdevito/zdevito.github.io."""
    pools = Pools()
    for number, nbytes in enumerate((37_632, 256, 256, 256, 256, 8)):
        pools.take(number, nbytes)
    places = [pools.place(number) for number in range(6)]
    assert [start for _segment, start, _size in places] == [0, 37_888, 38_400, 38_912, 39_424, 39_936]
    assert {segment for segment, _start, _size in places} == {0}
    assert (pools.reserved, pools.place(0)[2]) == (2**21, 37_888)


def test_a_workspace_has_the_segment_that_was_made_for_it() -> None:
    """The same author's snapshot of a forward pass: 26,218,496 bytes of cuDNN's are in a segment of 27,262,976."""
    pools = Pools()
    pools.take(0, 26_218_496)
    assert (pools.reserved, pools.segments) == (27_262_976, 1)
