"""Names of kernels: PyProf's lists do what PyProf did, families are those of the algorithms, tiles are counted."""

import csv
import os
from pathlib import Path

import pytest

from analysis.trace.kernel_names import (
    family,
    fast_algorithm,
    fft_tiles,
    is_renamed,
    makes_products,
    pyprof_convolution,
    pyprof_linear,
    pyprof_matmul,
    says_nothing,
    short_name,
)
from tests.support.made_up_operations import made_up_kernels
from tests.support.oracles.kernel_names_by_library import NO_PRODUCTS, PRODUCTS

REAL = os.environ.get("FLOPLEDGER_TRACES", "")
real = pytest.mark.skipif(not REAL, reason="FLOPLEDGER_TRACES is not set")


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (made_up_kernels.WGRAD, "cudnn::cnn::wgrad_alg0_engine"),
        (made_up_kernels.IMPLICIT, "implicit_convolve_sgemm"),
        (made_up_kernels.POINTWISE, "vectorized_elementwise_kernel"),
        (made_up_kernels.OFFSETS, "cask_cudnn::computeOffsetsKernel"),
        ("void (anonymous namespace)::softmax_warp_forward<float>(float*)", "softmax_warp_forward"),
        ("void at::native::(anonymous namespace)::max_pool_forward_nchw<float>(int)", "max_pool_forward_nchw"),
        (made_up_kernels.SGEMM, made_up_kernels.SGEMM),
        ("", ""),
    ],
)
def test_short_names_are_pyprofs(name: str, short: str) -> None:
    assert short_name(name) == short


@pytest.mark.parametrize(
    ("name", "convolution", "linear"),
    [
        (made_up_kernels.SCUDNN, True, False),
        (made_up_kernels.OFFSETS, False, False),
        (made_up_kernels.WINOGRAD, True, False),
        (made_up_kernels.FFT, True, True),
        (made_up_kernels.FFT_IN, False, False),
        (made_up_kernels.SGEMM, True, True),
        (made_up_kernels.SPLIT_K, False, True),
        (made_up_kernels.DGRAD, True, False),
        (made_up_kernels.WGRAD, False, False),  # cudnn::cnn, the list has cudnn::detail
        (made_up_kernels.IMPLICIT, False, True),
        (made_up_kernels.HOPPER, False, False),
        (made_up_kernels.AMPERE, False, True),
    ],
)
def test_lists(name: str, convolution: bool, linear: bool) -> None:
    assert (pyprof_convolution(name), pyprof_linear(name)) == (convolution, linear)


def test_matmul_leaves_out_three_whole_names() -> None:
    assert not pyprof_matmul("elementwise_kernel")
    assert pyprof_matmul("vectorized_elementwise_kernel")  # not the whole name: PyProf counts it


@pytest.mark.parametrize(
    ("name", "renamed"),
    [
        (made_up_kernels.WGRAD, True),
        (made_up_kernels.IMPLICIT, True),
        (made_up_kernels.DGRAD, False),
        (made_up_kernels.EXPLICIT, False),
        (made_up_kernels.SCUDNN, False),
    ],
)
def test_renamed(name: str, renamed: bool) -> None:
    assert is_renamed(name) is renamed


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (made_up_kernels.SCUDNN, "implicit_precomputed_gemm"),
        (made_up_kernels.AMPERE, "implicit_precomputed_gemm"),
        ("igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32", "implicit_precomputed_gemm"),
        ("igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt64x64x64", "implicit_precomputed_gemm"),
        (made_up_kernels.WINOGRAD, "winograd"),
        (made_up_kernels.IMPLICIT, "implicit_gemm"),
        (made_up_kernels.EXPLICIT, "explicit_gemm"),
        (made_up_kernels.FFT, "fft"),
        (made_up_kernels.WGRAD, "direct"),
        (made_up_kernels.SGEMM, "gemm"),
        (made_up_kernels.HOPPER, "gemm"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT32x32x64_MI16x16x16x1_SN", "gemm"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_16x6_tn_align4>(int)", "gemm"),
        ("void fmha_cutlassF_f32_aligned_64x64_rf_sm80(AttentionKernel::Params)", "attention"),
        ("attn_fwd", "attention"),
        ("conv_depthwise2d_forward_kernel<float, int>", "depthwise"),
        (made_up_kernels.SPLIT_K, "reduction"),
        (made_up_kernels.FFT_IN, "helper"),
        (made_up_kernels.IM2COL, "helper"),
        ("batched_transpose_32x32_half", "helper"),
        ("void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)", "helper"),
        ("void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(int)", "other"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "other"),
        ("triton_poi_fused_addmm_relu_0", "other"),  # what is fused behind a product, not the product
        ("fused_mlp_gelu_kernel", ""),  # an activation behind products, or alone: the name does not say
        (made_up_kernels.UNKNOWN, ""),
    ],
)
def test_families(name: str, expected: str) -> None:
    assert family(name) == expected
    assert makes_products(name) is (expected not in ("", "helper", "reduction", "other"))


def _of(table: dict[str, dict[str, tuple[str, ...]]]) -> list[tuple[str, str]]:
    return [(name, word) for word, libraries in table.items() for names_ in libraries.values() for name in names_]


@pytest.mark.parametrize(("name", "expected"), _of(PRODUCTS))
def test_what_makes_products_is_recognised_in_every_library(name: str, expected: str) -> None:
    assert (family(name), makes_products(name), says_nothing(name)) == (expected, True, False)


@pytest.mark.parametrize(("name", "expected"), _of(NO_PRODUCTS))
def test_what_makes_none_is_told_apart_from_what_says_nothing(name: str, expected: str) -> None:
    assert (family(name), makes_products(name), says_nothing(name)) == (expected, False, expected == "")


@pytest.mark.parametrize(
    ("size", "kernel", "tiles"),
    [
        # size ÷ (33 - kernel), rounded up, squared. Seen on a V100: 81, 4, 1 (7 x 7 at 224; 3 x 3 at 56 and 28)
        (224, 7, 81),
        (56, 3, 4),
        (28, 3, 1),
        (30, 3, 1),
        (31, 3, 4),
        # VGG13 at 224: 64, 16, 4, 1
        (224, 3, 64),
        (112, 3, 16),
    ],
)
def test_tiles(size: int, kernel: int, tiles: int) -> None:
    assert fft_tiles((size, size), (kernel, kernel)) == tiles


def test_tiles_of_unequal_sides_and_of_a_kernel_beyond_a_tile() -> None:
    assert fft_tiles((112, 28), (3, 3)) == 4
    assert fft_tiles((64, 64), (33, 33)) == 0
    assert fft_tiles((64, 64), (32, 32)) == 64 * 64


@real
@pytest.mark.parametrize("file", ["pyprof_prof_r50_v100_raw.csv", "pyprof_prof_r50_v100_autotune_firstiter_raw.csv"])
def test_pyprof_counted_the_convolution_kernels_that_our_lists_say(file: str) -> None:
    with open(Path(REAL) / file, newline="") as rows:
        told = {row["Kernel"]: float(row["FLOPs"]) > 0 for row in csv.DictReader(rows) if row["Op"] == "conv2d"}
    assert len(told) > 20
    assert {name: pyprof_convolution(name) for name in told} == told


@pytest.mark.parametrize(
    ("kernels", "algorithm"),
    [
        (
            [made_up_kernels.POINTWISE, made_up_kernels.WINOGRAD],
            "winograd",
        ),
        (
            ["void cudnn::winograd_nonfused::winogradForwardData4x4<float>()", made_up_kernels.SGEMM],
            "winograd",
        ),
        (["miopenSp3AsmConv_v21_1_2_gfx9_fp32_f2x3_stride1"], "winograd"),
        ([made_up_kernels.FFT_IN, made_up_kernels.FFT], "fft"),
        (["volta_scudnn_128x64_relu_medium_nn_v1", "void implicit_convolve_sgemm<float>()"], ""),
        (["cutlass_80_simt_sgemm_256x128_8x4_nn_align1"], ""),
        ([], ""),
    ],
)
def test_the_fast_algorithm_of_a_convolutions_kernels(kernels: list[str], algorithm: str) -> None:
    assert fast_algorithm(kernels) == algorithm
