"""What a kernel's name says: PyProf's recognised names as data, and the algorithm whose work a kernel is.

PyProf gives each kernel of a recognised name the whole operation's FLOP. Its lists are those of NVIDIA/PyProf
pyprof/prof/conv.py and linear.py (commit 218dcc1, 2021-05-14); they were made for cuDNN 7, so that names of cuDNN 8 and
later, of cuBLASLt and of AMD's libraries are in none. The lists are here so that its numbers can be reproduced, not
because they are right. The families beside them are ours (`kernel_families.py`).

Not claimed: that a name tells what a kernel does. A kernel of an unknown name is of the family "", and helps nobody.
"""

import functools
import re
from collections.abc import Iterable, Sequence

from analysis.trace.kernel_families import HELPER as HELPER
from analysis.trace.kernel_families import NO_PRODUCTS, NOISE, TABLE
from analysis.trace.kernel_families import REDUCTION as REDUCTION

# --- PyProf's lists: parts of short names, first list that has one decides -------------------------------------------

CONVOLUTION_HELPERS = (
    "nchwToNhwc",
    "nhwcToNchw",
    "OffsetsKernel",
    "generateWinogradTilesKernel",
    "winogradWgradData",
    "winogradWgradOutput",
    "winogradWgradDelta",
    "compute_gemm_pointers",
    "flip_filter",
    "fft2d_r2c_",
    "fft2d_c2r_",
    "fft1d_r2c",
    "fft1d_c2r",
    "scaleTensor_kernel",
)
"""Kernels of a convolution for which PyProf counts 0 FLOP."""

CONVOLUTION = (
    "_s884cudnn_",
    "_s1688cudnn_",
    "_scudnn_",
    "2d_grouped_direct_kernel",
    "cudnn::detail::implicit_convolve_sgemm",
    "cudnn::detail::dgrad2d_alg1_1",
    "cudnn::detail::wgrad_alg0_engine",
    "cudnn::detail::dgrad_engine",
    "dgrad_1x1_stride_2x2",
    "spatialDepthwiseConvolutionUpdateOutput",
    "winograd3x3Kernel",
    "_sgemm_",
    "fermiPlusCgemmLDS128_batched",
    "_gcgemm_",
)
"""The whole convolution's FLOP for each."""

CONVOLUTION_ALL_GROUPS = ("2d_grouped_direct_kernel", "spatialDepthwiseConvolutionUpdateOutput")
"""Kernels that PyProf takes for one kernel of all groups. It expects any other once a group."""

LINEAR = ("gemm", "gemv", "dot_kernel", "splitKreduce_kernel", "reduce_1Block_kernel", "cutlass")
"""The whole layer's FLOP for each, in the forward pass."""

NO_MATMUL = ("kernelPointwiseApply2", "reduce_1Block_kernel", "elementwise_kernel")
"""Whole names that are 0 FLOP in torch.matmul; of mm, addmm and bmm every kernel counts."""

RENAMED = (
    "implicit_convolve_sgemm",  # cuDNN 8; in cuDNN 7 all of these were in cudnn::detail
    "dgrad2d_alg1_1",
    "wgrad_alg0_engine",
    "dgrad_engine",
    "conv_depthwise2d_forward_kernel",  # PyTorch 1.6 and later; before spatialDepthwiseConvolutionUpdateOutput
)
"""Names that kernels of the lists have today, so that the lists no longer know them."""


@functools.cache
def pyprof_convolution(name: str) -> bool:
    """Whether PyProf counts a kernel of this name as a convolution."""
    short = short_name(name)
    return not _has(short, CONVOLUTION_HELPERS) and _has(short, CONVOLUTION)


@functools.cache
def pyprof_all_groups(name: str) -> bool:
    """Whether PyProf counts all groups of a convolution for one kernel of this name."""
    return _has(short_name(name), CONVOLUTION_ALL_GROUPS)


@functools.cache
def pyprof_linear(name: str) -> bool:
    """Whether PyProf counts a kernel of this name as a linear layer."""
    return _has(short_name(name), LINEAR)


@functools.cache
def pyprof_matmul(name: str) -> bool:
    """Whether PyProf counts a kernel of this name as a torch.matmul."""
    return short_name(name) not in NO_MATMUL


@functools.cache
def is_renamed(name: str) -> bool:
    """Whether the name is one that PyProf knew as another."""
    return _has(short_name(name), RENAMED) and not pyprof_convolution(name)


@functools.cache
def short_name(name: str) -> str:
    """A kernel's name without "void", template arguments, parameters and ATen's namespaces.

    "void cudnn::cnn::wgrad_alg0_engine<float, 128>(int)" → "cudnn::cnn::wgrad_alg0_engine". A mangled name stays.
    """
    bare = name.removeprefix("void ").replace("(anonymous namespace)::", "").strip()
    cut = min((at for at in (bare.find("<"), bare.find("(")) if at > 0), default=len(bare))
    return bare[:cut].removeprefix("at::native::").strip()


def _has(name: str, parts: Sequence[str]) -> bool:
    return any(part in name for part in parts)


# --- families: which algorithm's work a kernel is --------------------------------------------------------------------

_FAMILIES = tuple((row.family, re.compile(row.pattern, re.IGNORECASE)) for row in TABLE)

AFTER = re.compile(r"winograd(?:Forward|Wgrad)Output|_c2r|nhwcToNchw|educe|transpose_CNHW2NCHW|PostGSU")
"""In the names of helpers that run after the product which they help."""


@functools.cache
def family(name: str) -> str:
    """The algorithm whose work a kernel is; one of NO_PRODUCTS if it makes no product, "" if the name says nothing."""
    bare = NOISE.sub("", name)
    return next((word for word, pattern in _FAMILIES if pattern.search(bare)), "")


@functools.cache
def makes_products(name: str) -> bool:
    """Whether the name is that of a kernel which does multiply-adds of a convolution, matrix product or attention."""
    return family(name) not in ("", *NO_PRODUCTS)


@functools.cache
def says_nothing(name: str) -> bool:
    """Whether the name does not tell what the kernel does: it may make products or not."""
    return not family(name)


_FAST = {"winograd": re.compile(r"winograd|miopenSp3AsmConv", re.IGNORECASE), "fft": re.compile(r"fft[12]d_|_gcgemm_")}


def fast_algorithm(names: Iterable[str]) -> str:
    """The fast algorithm that one of these kernels is of, preparing and finishing ones too; "" if none is."""
    listed = list(names)
    return next((word for word, pattern in _FAST.items() if any(map(pattern.search, listed))), "")


# --- how many kernels an algorithm takes -----------------------------------------------------------------------------

FFT_TILE = 32
"""Side of the tiles of cuDNN's FFT_TILING."""


def fft_tiles(spatial: Sequence[int], kernel: Sequence[int]) -> int:
    """Launches of one convolution by cuDNN's FFT_TILING: one a tile of 32 × 32, which overlap by the kernel's size.

    ceil(H / (32 - R + 1)) · ceil(W / (32 - S + 1)). spatial: sizes of the input, not strided; kernel: of the weight.
    Measured on a V100 with cuDNN 8, for kernels of 3 × 3 and more. 0 where the kernel does not fit into a tile.
    """
    tiles = 1
    for size, taps in zip(spatial, kernel, strict=True):
        step = FFT_TILE - taps + 1
        if step < 1:
            return 0
        tiles *= -(-size // step)
    return tiles
