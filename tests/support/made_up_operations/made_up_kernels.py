"""Attributed recordings made up call by call and kernel by kernel: what a reader and `attribute` would give.

Names of kernels are those of real recordings (V100 with cuDNN 8, A100, H100).
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from measure.trace.recording import CALL_COLUMNS, KERNEL_COLUMNS, calls_table, kernels_table
from tests.support.recordings.recordings import Tensor

US = 1000

OFFSETS = "cask_cudnn::computeOffsetsKernel(cask_cudnn::ComputeOffsetsParams)"
SCUDNN = "volta_scudnn_128x64_relu_medium_nn_v1"
IMPLICIT = "void implicit_convolve_sgemm<float, float, 1024, 6, 7, 3, 3, 5, 1, false, true, true>(int, int)"
IM2COL = "void cudnn::cnn::im2col4d_kernel<float, long>(cudnn::cnn::im2col4d_params)"
EXPLICIT = "void explicit_convolve_sgemm<float, int, 1024, 5, 5, 3, 3, 3, 0, false>(int, int, int)"
FFT_IN = "void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*)"
FFT = "volta_gcgemm_32x32_nt"
FFT_OUT = "void fft2d_c2r_32x32<float, false, false, 1u, false, false>(float*, float2 const*)"
WINOGRAD = "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"
DGRAD = "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int)"
WGRAD = "void cudnn::cnn::wgrad_alg0_engine<float, 128, 6, 7, 3, 3, 5, false, 512>(int, int, int)"
SGEMM = "volta_sgemm_64x32_sliced1x4_tn"
SPLIT_K = "void splitKreduce_kernel<float, float, float, float>(cublasSplitKParams<float>, float const*)"
AMPERE = "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16"
HOPPER = "nvjet_sm90_tst_128x256_64x4_2x1_v_bz_TNT"
POINTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float> >(int)"
UNKNOWN = "mystery_kernel_7"


class MadeUp:
    """A recording that grows: calls and kernels get the numbers in which they are added."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.kernels: list[dict[str, Any]] = []
        self.now = 0

    def call(self, name: str, *arguments: Any, parent: int = -1, settings: bool = True, **more: Any) -> int:
        """A call; an argument that is a Tensor is one, everything else a value. settings: whether values are kept."""
        values = tuple(None if isinstance(a, Tensor) else a for a in arguments)
        around = self.calls[parent] if parent >= 0 else {}
        fields = {
            "index": len(self.calls),
            "parent": parent,
            "name": name,
            "phase": around.get("phase", "forward"),
            "step": around.get("step", 0),
            "forward_index": around.get("forward_index", -1),
            "start_ns": self.tick(),
            "time_ns": 100 * US,
            "input_shapes": tuple(a.sizes if isinstance(a, Tensor) else () for a in arguments) or None,
            "input_dtypes": tuple(a.dtype if isinstance(a, Tensor) else "" for a in arguments) or None,
            "concrete_inputs": (values or None) if settings else None,
        }
        self.calls.append({**fields, **more})
        return len(self.calls) - 1

    def kernel(self, call: int, *names: str, time_ns: int = 10 * US, **more: Any) -> None:
        """Kernels that a call launched, one after the other."""
        for name in names:
            at = len(self.kernels)
            around = self.calls[call] if call >= 0 else {}
            fields = {
                "index": at,
                "name": name,
                "start_ns": self.tick(),
                "time_ns": time_ns,
                "device": 0,
                "stream": 7,
                "process": 1,
                "correlation": 1000 + at,
                "call": call,
                "link": "containment" if call >= 0 else "none",
                "phase": around.get("phase", ""),
            }
            self.kernels.append({**fields, **more})

    def tick(self) -> int:
        self.now += 50 * US
        return self.now

    def tables(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """(calls, kernels) in their order."""
        calls = calls_table(**_columns(self.calls, CALL_COLUMNS))
        return calls, kernels_table(**_columns(self.kernels, KERNEL_COLUMNS))


def _columns(rows: list[dict[str, Any]], unknown: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: [row.get(name, value) for row in rows] for name, value in unknown.items()}


def convolution(
    made: MadeUp, inputs: tuple[int, ...], weight: tuple[int, ...], stride: int = 1, groups: int = 1, **more: Any
) -> int:
    """A conv2d whose padding keeps the size, as PyTorch records it with settings."""
    pad = (weight[2] // 2, weight[3] // 2)
    each = ((stride, stride), pad, (1, 1), groups)
    return made.call("aten::conv2d", Tensor(*inputs), Tensor(*weight), None, *each, **more)


def gradients(
    made: MadeUp, forward: int, gradient: tuple[int, ...], mask: tuple[bool, ...] = (True, True, False), **more: Any
) -> int:
    """The convolution_backward of a `convolution`."""
    inputs, weight = made.calls[forward]["input_shapes"][:2]
    stride, padding, dilation, groups = made.calls[forward]["concrete_inputs"][3:7]
    tensors = (Tensor(*gradient), Tensor(*inputs), Tensor(*weight))
    rest = (None, stride, padding, dilation, False, (0, 0), groups, mask)
    more = {"phase": "backward", "forward_index": forward, **more}
    return made.call("aten::convolution_backward", *tensors, *rest, **more)


def fft(tiles: int) -> list[str]:
    """Kernels of FFT_TILING: the filter once, then three a tile."""
    return [FFT_IN, *[FFT_IN, FFT, FFT_OUT] * tiles]
