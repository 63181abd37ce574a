"""The history of a CUDA allocator, made up in the shape that torch records: tensors, workspaces and the highest moment.

That real devices record these names is for a GPU to say.
"""

from __future__ import annotations

from analysis.footprint.caching_allocator import tensors_peak

PRODUCT = [
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

GRADIENTS_WORKSPACE = [
    {"name": "torch::CapturedTraceback::gather(bool, bool, bool)"},
    {"name": "??"},
    {"name": "at::native::convolution_backward(at::Tensor const&, ...)"},
    {"name": "at::_ops::convolution_backward::redispatch(c10::DispatchKeySet, ...)"},
    {"name": "torch::autograd::generated::ConvolutionBackward0::apply(...)"},
]
"""What cuDNN asks for in a convolution's backward pass, as torch 2.15 records it: between the allocator and the
operator no function has a symbol. A gradient itself comes through `empty`."""

GRADIENT = [{"name": "at::detail::empty_cuda(...)"}, *GRADIENTS_WORKSPACE[1:]]

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
        entry("alloc", 2, 64, PRODUCT),
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


def test_a_workspace_of_a_convolutions_gradients_is_none_of_its_tensors() -> None:
    """900 of a gradient and 60 beside it; 60 from an operator that is not cuDNN's stay a tensor's."""
    other = [{"name": "??"}, {"name": "at::_ops::resize_::call(...)"}]
    history = [entry("alloc", 1, 900, GRADIENT), entry("alloc", 2, 60, GRADIENTS_WORKSPACE)]
    assert tensors_peak(history) == 900
    assert tensors_peak([history[0], entry("alloc", 2, 60, other)]) == 960


def test_tensors_alone_may_be_highest_at_another_moment() -> None:
    """100 of tensors with 64 of a workspace are 164; later 150 of tensors without it."""
    history = [
        entry("alloc", 1, 100, TENSOR),
        entry("alloc", 2, 64, CONVOLUTION),
        entry("free_completed", 2, 64),
        entry("alloc", 3, 50, TENSOR),
    ]
    assert tensors_peak(history) == 150


def test_what_was_made_before_the_history_began_is_not_counted_as_negative() -> None:
    assert tensors_peak([entry("free_completed", 9, 500), entry("alloc", 1, 8, TENSOR)]) == 8


def test_an_entry_without_frames_is_a_tensors() -> None:
    assert tensors_peak([entry("alloc", 1, 8), {"action": "alloc", "addr": 2, "size": 4}]) == 12
