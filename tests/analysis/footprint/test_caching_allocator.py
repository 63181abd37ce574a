"""Definition, known answer: the caching allocator's rules by hand, and histories recorded on GPUs, to the byte.

Sizes of the recorded histories are facts of their sources; addresses there are told as the order of requests here. They
are those of torch.cuda.memory for three forward passes of one linear layer, profile_grad.pkl and profile_no_grad.pkl of
https://github.com/shreyansh26/MLSys-Experiments (model_memory_usage).

The allowance for libraries' workspaces has the sizes that torch's documentation prints. Histories of tensors and
workspaces are made up in the shape that torch records; that real devices record these names is for a GPU to say.
"""

from dataclasses import replace

import pytest

from analysis.footprint.device_memory import (
    HOPPER_BYTES,
    Pools,
    Reserved,
    allowance,
    replay,
    rounded,
    segment,
    tensors_peak,
    unknown_memory,
)
from results.records.counts import Storage
from tests.support.made_up_operations.made_up_operations import operation

GRADIENTS_WORKSPACE = [
    {"name": "torch::CapturedTraceback::gather(bool, bool, bool)"},
    {"name": "??"},
    {"name": "at::native::convolution_backward(at::Tensor const&, ...)"},
    {"name": "at::_ops::convolution_backward::redispatch(c10::DispatchKeySet, ...)"},
    {"name": "torch::autograd::generated::ConvolutionBackward0::apply(...)"},
]

GRADIENT = [{"name": "at::detail::empty_cuda(...)"}, *GRADIENTS_WORKSPACE[1:]]
GRADIENTS_WORKSPACE = [
    {"name": "torch::CapturedTraceback::gather(bool, bool, bool)"},
    {"name": "??"},
    {"name": "at::native::convolution_backward(at::Tensor const&, ...)"},
    {"name": "at::_ops::convolution_backward::redispatch(c10::DispatchKeySet, ...)"},
    {"name": "torch::autograd::generated::ConvolutionBackward0::apply(...)"},
]

MIB = 2**20


@pytest.mark.parametrize(
    ("nbytes", "block"), [(0, 0), (1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)]
)
def test_a_request_is_rounded_up(nbytes: int, block: int) -> None:
    assert rounded(nbytes) == block


@pytest.mark.parametrize(
    ("nbytes", "made"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (26_218_496, 27_262_976),  # a workspace of cuDNN's in a recorded snapshot of a forward pass
        (31 * MIB, 32 * MIB),
    ],
)
def test_the_segment_that_a_request_makes(nbytes: int, made: int) -> None:
    assert segment(nbytes) == made


def kept(*sizes: int) -> list[Storage]:
    """Storages that are born one after another and stay."""
    return [Storage(i, size, "activation", i, None) for i, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "found"),
    [
        ((4, 4, 4), Reserved(1536, 2 * MIB, 1)),  # three blocks of one small segment
        ((MIB, MIB, 1), Reserved(2 * MIB + 512, 4 * MIB, 2)),  # the first is full
        ((MIB, MIB + 1), Reserved(2 * MIB + 512, 22 * MIB, 2)),  # small and large do not share
        ((9 * MIB, 9 * MIB, 2 * MIB), Reserved(20 * MIB, 20 * MIB, 1)),  # all of one large segment
        ((9 * MIB, 10 * MIB), Reserved(20 * MIB, 20 * MIB, 1)),  # 1 MiB is left, too little to split off
        ((9 * MIB, 10 * MIB - 512), Reserved(19 * MIB - 512, 20 * MIB, 1)),  # a block more than that is
        ((0, 11 * MIB), Reserved(12 * MIB, 12 * MIB, 1)),  # nothing takes nothing; 1 MiB stays with the block
    ],
)
def test_runs_by_hand(sizes: tuple[int, ...], found: Reserved) -> None:
    assert replay(kept(*sizes)) == found


def test_what_dies_and_what_is_born_meet_while_an_operation_runs() -> None:
    """The input of operation 1 is there as its output is made; the output of operation 2 takes its place."""
    storages = [
        Storage(0, MIB, "input", -1, 1),
        Storage(1, MIB, "activation", 1, None),
        Storage(2, MIB, "activation", 2, 2),
    ]
    assert replay(storages) == Reserved(2 * MIB, 2 * MIB, 1)


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


def test_blocks_lie_where_a_recorded_trace_has_them() -> None:
    """The first tensors of a ResNet-18, offsets in a segment of 2 MiB: "Visualizing PyTorch memory usage over time", at
    https://github.com/zdevito/zdevito.github.io."""
    pools = Pools()
    for number, nbytes in enumerate((37_632, 256, 256, 256, 256, 8)):
        pools.take(number, nbytes)
    places = [pools.blocks[number] for number in range(6)]
    assert [start for _segment, start, _size in places] == [0, 37_888, 38_400, 38_912, 39_424, 39_936]
    assert {segment for segment, _start, _size in places} == {0}
    assert (pools.reserved, pools.blocks[0][2]) == (2**21, 37_888)


PRODUCT = replace(operation("aten.mm", {"self": (2, 3), "mat2": (3, 4)}, [(2, 4)]), kind="matmul")
BACK = replace(PRODUCT, phase="backward")
AGAIN = replace(PRODUCT, phase="recompute")
PLAIN = operation("aten.relu", {"self": (1,)}, [(1,)])

HANDLE = 8_519_680
"""Bytes of `:4096:2:16:8`: what torch.cuda.memory_snapshot() shows after one product on devices before Hopper."""


@pytest.mark.parametrize(
    ("operations", "capability", "nbytes"),
    [
        ([PRODUCT], "8.0", HANDLE),
        ([PRODUCT, PRODUCT, BACK], "8.0", 2 * HANDLE),
        ([PRODUCT, BACK, AGAIN], "7.5", 2 * HANDLE),  # what is calculated again runs on autograd's thread
        ([PRODUCT, BACK], "9.0", 2 * 32 * 2**20),
        ([PRODUCT, BACK], "12.0", 2 * 32 * 2**20),
        ([PRODUCT], None, 32 * 2**20),  # an unknown device: the larger
    ],
)
def test_cublas(operations, capability: str | None, nbytes: int) -> None:
    assert [each.nbytes for each in allowance(operations, "cuda", capability)] == [nbytes]


def test_what_has_no_number_is_said() -> None:
    convolution = replace(PRODUCT, kind="convolution")
    for kind in ("convolution", "recurrent"):
        assert "cuDNN" in unknown_memory([replace(PRODUCT, kind=kind)], "cuda")
    assert unknown_memory([PRODUCT], "cuda") == ""
    assert "not known in advance" in unknown_memory([convolution], "cpu")
    assert unknown_memory([PLAIN], "cpu") == ""


PRODUCT_FRAME = [
    {"name": "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)"},
    {"name": "at::cuda::getNewWorkspace()"},
    {"name": "at::cuda::getCurrentCUDABlasHandle()"},
    {"name": "at::native::structured_mm_out_cuda::impl(...)"},
]
CONVOLUTION = [
    {"name": "at::native::raw_cudnn_convolution_forward_out(...)"},
    {"name": "at::_ops::cudnn_convolution::call(...)"},
]
TENSOR = [
    {"name": "at::detail::empty_generic(...)"},
    {"name": "at::native::empty_cuda(...)"},
    {"name": "at::_ops::empty_memory_format::redispatch(...)"},
    {"name": "at::native::cudnn_convolution(...)"},
]
"""What cuDNN's operator makes for its output is asked for through `empty`, which comes first."""


OUTPUT = [
    {"name": "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)"},
    {"name": "at::detail::empty_generic(c10::ArrayRef<long>, ...)"},
    {"name": "at::detail::empty_cuda(c10::ArrayRef<long>, ...)"},
    {"name": "at::native::cudnn_convolution(at::Tensor const&, ...)"},
    {"name": "at::_ops::cudnn_convolution::call(...)"},
]
"""The output of a convolution, as torch 2.15 records it: `empty` without its operator."""


PRODUCTS_OWN = [
    {"name": "at::detail::empty_cuda(...)"},
    {"name": "at::empty(...)"},
    {"name": "at::cuda::blas::gemm_and_bias<float>(...)"},
    {"name": "at::native::addmm_out_cuda_impl(...)"},
]
"""A workspace of cuBLASLt's that torch makes as a tensor of bytes."""


def entry(action: str, addr: int, size: int, frames=()) -> dict:
    return {"action": action, "addr": addr, "size": size, "frames": list(frames), "stream": 0, "time_us": 0}


def test_tensors_and_workspaces_by_hand() -> None:
    """Weights 100, before the step; output 40 with a workspace of 64 kept and one of 30 that goes; then 50 for 40."""
    history = [
        entry("segment_alloc", 0, 2048),
        entry("alloc", 1, 100, TENSOR),
        entry("alloc", 2, 64, PRODUCT_FRAME),
        entry("alloc", 3, 40, TENSOR),  # from here on the step: 204
        entry("alloc", 4, 30, CONVOLUTION),  # 234, the highest: 140 of tensors
        entry("free_requested", 4, 30),
        entry("free_completed", 4, 30),
        entry("alloc", 5, 50, TENSOR),  # 254: 190 of tensors
        entry("free_completed", 3, 40),
        entry("alloc", 3, 20, TENSOR),  # the address again: 234
    ]
    assert tensors_peak(history, 3) == 190
    assert tensors_peak(history[:7], 3) == 140
    assert tensors_peak(history[:3], 0) == 100


def test_the_output_of_a_convolution_is_a_tensor_and_a_products_bytes_are_a_workspace() -> None:
    history = [entry("alloc", 1, 700, OUTPUT), entry("alloc", 2, 30, CONVOLUTION), entry("alloc", 3, 5, PRODUCTS_OWN)]
    assert tensors_peak(history) == 700


def test_an_entry_without_frames_is_a_tensors() -> None:
    assert tensors_peak([entry("alloc", 1, 8), {"action": "alloc", "addr": 2, "size": 4}]) == 12


def test_a_workspace_of_a_convolutions_gradients_is_none_of_its_tensors() -> None:
    """900 of a gradient and 60 beside it; 60 from an operator that is not cuDNN's stay a tensor's."""
    other = [{"name": "??"}, {"name": "at::_ops::resize_::call(...)"}]
    history = [entry("alloc", 1, 900, GRADIENT), entry("alloc", 2, 60, GRADIENTS_WORKSPACE)]
    assert tensors_peak(history) == 900
    assert tensors_peak([history[0], entry("alloc", 2, 60, other)]) == 960


def test_what_was_made_before_the_history_began_is_not_counted_as_negative() -> None:
    assert tensors_peak([entry("free_completed", 9, 500), entry("alloc", 1, 8, TENSOR)]) == 8
