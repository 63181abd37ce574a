"""Classifies kernels by name: the algorithm a kernel belongs to (`family`), and whether PyProf counted it.

`family` takes a kernel's name and returns its family from this project's table, which has a source for each pattern; ""
is an unknown name. `pyprof_convolution` and `pyprof_linear` take a name and return whether PyProf gives that kernel the
whole operation's FLOP. Their lists are PyProf's (NVIDIA/PyProf pyprof/prof/conv.py and linear.py, commit 218dcc1,
2021-05-14). The lists were made for cuDNN 7, and lack names of cuDNN 8 and later, cuBLASLt and AMD. They serve to
reproduce PyProf's numbers, and are not right in general. Not claimed: that a name shows what a kernel computes.
"""

import functools
import re
from collections.abc import Iterable, Sequence

# --- PyProf's lists of parts of short names; the first list with a part of the name decides --------------------------

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
"""Kernels that PyProf counts with the whole convolution's FLOP each."""

CONVOLUTION_ALL_GROUPS = ("2d_grouped_direct_kernel", "spatialDepthwiseConvolutionUpdateOutput")
"""Kernels that PyProf takes for one launch over all groups. It expects a launch per group of any other kernel."""

LINEAR = ("gemm", "gemv", "dot_kernel", "splitKreduce_kernel", "reduce_1Block_kernel", "cutlass")
"""Kernels that PyProf counts with the whole layer's FLOP each, in the forward pass."""

NO_MATMUL = ("kernelPointwiseApply2", "reduce_1Block_kernel", "elementwise_kernel")
"""Short names of kernels that PyProf counts as 0 FLOP in torch.matmul; in mm, addmm and bmm it counts every kernel."""

RENAMED = (
    "implicit_convolve_sgemm",  # cuDNN 8; in cuDNN 7 all of these were in cudnn::detail
    "dgrad2d_alg1_1",
    "wgrad_alg0_engine",
    "dgrad_engine",
    "conv_depthwise2d_forward_kernel",  # PyTorch 1.6 and later; before spatialDepthwiseConvolutionUpdateOutput
)
"""Current names of listed kernels, which the lists do not recognise."""


@functools.cache
def pyprof_convolution(name: str) -> bool:
    """Return whether PyProf counts a kernel of this name as a convolution."""
    short = short_name(name)
    return not has(short, CONVOLUTION_HELPERS) and has(short, CONVOLUTION)


@functools.cache
def pyprof_linear(name: str) -> bool:
    """Return whether PyProf counts a kernel of this name as a linear layer."""
    return has(short_name(name), LINEAR)


@functools.cache
def short_name(name: str) -> str:
    """Strip a kernel's name of "void", template arguments, parameters and ATen's namespaces.

    "void cudnn::cnn::wgrad_alg0_engine<float, 128>(int)" → "cudnn::cnn::wgrad_alg0_engine". A mangled name stays.
    """
    bare = name.removeprefix("void ").replace("(anonymous namespace)::", "").strip()
    cut = min((end for end in (bare.find("<"), bare.find("(")) if end > 0), default=len(bare))
    return bare[:cut].removeprefix("at::native::").strip()


def has(name: str, parts: Sequence[str]) -> bool:
    """Return whether a short name contains one of these parts."""
    return any(part in name for part in parts)


# --- families: which algorithm's work a kernel is --------------------------------------------------------------------

HELPER, REDUCTION, OTHER = "helper", "reduction", "other"

NO_PRODUCTS = (HELPER, REDUCTION, OTHER)
"""Families whose kernels do no multiply-adds of a convolution, matrix product or attention."""


NOISE = re.compile(
    r"fbgemm(?:_gpu)?(?:::)?"  # embedding and quantisation kernels, and template arguments of any other
    r"|cutlass(?:::|\d+)(?:bfloat16_t|half_t|tfloat32_t|float_e\w+?_t|u?int\d+b?_t|complex\b|(?:Aligned)?Array\b)",
)
"""Library names that occur in kernels of all kinds: namespaces and number formats."""

TABLE = (
    ("attention", r"triton_tem_\w*(?:flex_attention|flex_decoding)", "TorchInductor"),
    (OTHER, r"^triton_(?:poi|red|per|spl|for|mix)_", "TorchInductor: pointwise, reduction; products are tem"),
    (
        HELPER,
        r"(?-i:OffsetsKernel|nchwToNhwc|nhwcToNchw|generateWinogradTiles|winograd(?:Forward|Wgrad)(?:Data|Filter|Output"
        r"|Delta)|fft[12]d_(?:r2c|c2r)|flip_filter|scaleTensor|scalePackedTensor|im2col|col2im|Im2d2Col|Col2Im2d"
        r"|compute_gemm_pointers"
        r"|SubTensorOp|elementwise|batched_transpose|[Tt]ranspose_(?:NCHW|CNHW|readWrite)|tensorTransform|memset)",
        "cuDNN 7 and 8, MIOpen, ATen: V100, A100, MI300X",
    ),
    (
        HELPER,
        r"flash_?(?:attn)?_?bwd_?(?:dot_do_o|clear_dkvaccum|convert_d|preprocess|postprocess)|OGradDotO|ConvertQGrad"
        r"|FmhaFwdAppendKV|bwd_preprocess|prepare_varlen_num_blocks",
        "FlashAttention 2 and 3, ck_tile, aotriton, Triton's tutorial: row sums and conversions round a gradient",
    ),
    (
        HELPER,
        r"marlin_repack|moe_align|get_(?:group_|grouped_)?(?:gemm|mm)_(?:starts|data)|prepare_grouped_(?:gemm|mm)"
        r"|compute_(?:problem_sizes|expert_offsets)|_writeback_idx",
        "vLLM, PyTorch, Triton: pointers and layouts of grouped products",
    ),
    (REDUCTION, r"(?-i:split[Kk]_?[Rr]educe|reduce_kernel|reduce_1Block|PostGSU)", "cuBLAS, ATen, Tensile"),
    (
        REDUCTION,
        r"ReduceSplitK|split_?kv_combine|FwdCombine|(?-i:SplitKVCombine)|_fwd_kernel_stage2|mla_reduce|reduce_segments"
        r"|paged_attention\w*_reduce|merge_?(?:attn_)?states|finalize_matmul|finalizeKernel",
        "CUTLASS, FlashAttention, ck_tile, SGLang, AITER, FlashInfer, Triton, TensorRT-LLM: partial products together",
    ),
    (OTHER, r"nccl|rccl|allreduce|all_reduce|all_?gather|reduce_?scatter", "collectives"),
    (OTHER, r"multi_tensor_apply|epilogue::impl::globalKernel", "ATen's optimizers; cuBLASLt: a bias"),
    (OTHER, r"\b(?:cub|hipcub|thrust|rocprim)::|(?:3cub|7rocprim)\w", "libraries of sorts, scans and sums"),
    (
        OTHER,
        r"moe::dev::(?:routing|permute|activation)|MoeSorting|moe_(?:sum|sort|permute|unpermute|topk)|topk_?gating"
        r"|expandInputRows|doActivation",
        "TensorRT-LLM, ck_tile, vLLM: routing of a mixture of experts",
    ),
    (
        OTHER,
        r"reshape_and_cache|concat_and_cache|Append(?:Paged)?KV|set_mla_kv|concat_mla|_kv_indices|ApplyRotary"
        r"|(?-i:att(?:ention|n)_(?:mask|bias|norm|dropout|softmax|quant))",
        "vLLM, FlashInfer, SGLang: what stands round an attention",
    ),
    (
        OTHER,
        r"kernel_cutlass_\w*?(?:rms_?norm|layer_?norm|softmax|cross_?entropy|topk|reduction)",
        "CuTe DSL (quack): every kernel of it begins with kernel_cutlass",
    ),
    (
        "fft",
        r"(?-i:[_c]gcgemm_|_cgemm_|fermiPlusCgemm|pointwise_mult_and_sum_complex)",
        "cuDNN: V100",
    ),
    (
        "winograd",
        r"(?-i:_winograd_|winograd3x3|xmma_.*winograd|miopenSp3AsmConv|Winograd)",
        "cuDNN: V100; MIOpen: MI300X",
    ),
    ("explicit_gemm", r"(?-i:explicit_convolve)", "cuDNN: V100"),
    ("implicit_gemm", r"(?-i:implicit_convolve)", "cuDNN: V100"),
    (
        "direct",
        r"(?-i:[dw]grad_\w*engine|dgrad2d_alg1|wgrad2d|grouped_direct|dgrad_1x1|[Dd]irect[Cc]onv|naive_conv)",
        "cuDNN: V100; MIOpen: MI300X",
    ),
    ("depthwise", r"depthwise|causal_conv1d", "ATen; Mamba"),
    ("attention", r"sdpa|scaled_dot_product|mem_?eff_?(?:attn|attention)", "cuDNN 9, PyTorch, xFormers"),
    ("attention", r"fmha", "xFormers, ck_tile, AITER's assembly, TensorRT-LLM: A100, H100, B200, MI300X"),
    (
        "attention",
        r"flash_(?:fwd|bwd|attn|attention|decod|mla)|flash_?attn|flash::|flashattention",
        "FlashAttention 2, 3 and 4 (its CuTe DSL too), llama.cpp: A100, H100",
    ),
    (
        "attention",
        r"(?:batch|single)_?(?:prefill|decode|mla|attention)|(?:^|[_\W])(?:mha|gqa|mqa|xqa|mmha)_|multihead_attention",
        "FlashInfer, TensorRT-LLM, FasterTransformer",
    ),
    (
        "attention",
        r"(?:^|[_\W\d])mla_(?:dec|decode|pfl|prefill|fwd|bwd|stage1|a\d|attention|sparse)|(?:^|[_\W])kn_mla|sm\d+_mla",
        "AITER, FlashMLA, CUTLASS",
    ),
    (
        "attention",
        r"(?:unified|paged|ragged|context|prefix|decode|prefill|extend|tree|sparse|ring|flex|cross|self|kernel)_?att(?:ention|n)"
        r"|att(?:ention|n)_(?:fwd|bwd|forward|backward|kernel|decode|prefill|inner)|Attention(?:Forward|Backward)?Kernel"
        r"|AttentionForward|AttentionBackward",
        "vLLM, SGLang, aotriton, PyTorch: MI300X, H100",
    ),
    (
        "attention",
        r"_fwd_(?:grouped_)?kernel_stage1|^_(?:fwd|bwd)_kernel$|bwd_kernel_(?:dk_?dv|dq|fuse)|bwd_d(?:kdv|q)_kernel"
        r"|(?:^|_)sage_?(?:fwd|attn)|qk_int\w*_sv_|(?-i:_nsa_)|parallel_nsa",
        "SGLang, aotriton, FlashAttention's Triton, AITER (MI300X), SageAttention",
    ),
    (
        "scan",
        r"chunk_(?:scan|state)_(?:fwd|bwd|chunk)|bmm_chunk_(?:fwd|bwd)|ssd_(?:chunk|combined)|chunk_scaled_dot_kkt"
        r"|chunk_(?:\w+_)?(?:fwd|bwd)_kernel_(?:o|h|d\w+|A)|chunk_gated_delta\w*kernel|recompute_w_u",
        "Mamba 2, flash-linear-attention: products of chunks",
    ),
    (
        "implicit_precomputed_gemm",
        r"(?-i:_s\w*cudnn_|cudnn_\w*(?:fprop|dgrad|wgrad)|cudnn_generated|xmma_(?:fprop|dgrad|wgrad)|_(?:fprop|dgrad"
        r"|wgrad)_|convolve|grouped_conv|conv_(?:fwd|bwd)|igemm_|bwd_weight|bwd_data|conv2d_\w*kernel)",
        "cuDNN: V100, A100; MIOpen: MI300X",
    ),
    (
        "implicit_precomputed_gemm",
        r"gcnAsmConv|MIOpenConv|ConvHipImplicit|ConvAsm|triton_tem_fused_(?:\w*_)?convolution|(?-i:\dconv_fprop)",
        "MIOpen; TorchInductor",
    ),
    ("recurrent", r"(?:LSTM|GRU|RNN)_(?:elementWise|block)|persistRNN", "cuDNN"),
    (
        "experts",
        r"fused_moe_kernel|(?:^|[_\W\d])f?moe_(?:bf16|fp16|fp8|int8|a8|wna16|mx\w*|stage|gemm|flat\w*|2?stages?)"
        r"|moe_forward|fused_experts|moe_stage[12]|ck_moe|kernel_moe|moe[12]_a\w+_w|MoeFlatmm|moe_vec|fused_moe_\w*kernel",
        "vLLM, SGLang (Triton, and operators), AITER (assembly, CK, FlyDSL)",
    ),
    ("gemm", r"gemm|gemv", "cuBLAS, CUTLASS, CK, DeepGEMM, MAGMA, oneDNN, GPTQ, AWQ: V100 to B200, MI300X"),
    ("gemm", r"cijk_", "Tensile (rocBLAS, hipBLASLt): MI250, MI300X"),
    ("gemm", r"cutlass|xmma|nvjet", "CUTLASS and CuTe DSL, cuBLAS 11 and 12: A100, H100, B200"),
    ("gemm", r"matmul|(?:^|[_\W\d])mul_?mat_?(?:q|vec|id)|mmvq", "Triton (matmul_ogs), vLLM, llama.cpp: B200"),
    (
        "gemm",
        r"(?:^|[_\W])(?:add|ba?d?d?|batched_|grouped_|ragged_|scaled_|int_|t?g|persistent_)?b?mm_(?:kernel|[A-Z0-9]|fwd|bwd)"
        r"|(?:scaled|grouped|ragged|int|group)_(?:b?mm|dot)(?:_|$|<)|(?:^|_)t?gmm(?:_|$)|kgemm|qmm_",
        "TensorRT-LLM (bmm_…E4m3…: B200), PyTorch, JAX, MegaBlocks",
    ),
    ("gemm", r"wv_?spl(?:i)?tk|LLMM1|LLGemm", "vLLM's skinny products on ROCm"),
    ("gemm", r"flatmm|marlin|machete|awq_|gptq", "AITER, ck_tile; quantised products of vLLM and AutoGPTQ"),
    ("gemm", r"triton_tem_|triton_b?mm_|tl_dot|(?-i:dot_kernel)", "TorchInductor, Triton; cuBLAS"),
    ("gemm", r"csrmm|spmm|sddmm", "cuSPARSE"),
    (
        "",
        r"(?<!bi)(?<!tri)linear(?!iz)|(?:^|[_\W])(?:mlp|dense|proj|qkv|lstm|gru|rnn|einsum|dot)(?:[_\W]|$)"
        r"|conv(?:[123]d|olution|_|\d)",
        "a layer with products: later patterns of OTHER do not decide for such a name",
    ),
    (
        OTHER,
        r"softmax|norm(?!al)|(?<![a-z])bn_(?:fw|bw)|welford|GammaBeta|RowwiseMoments|Internal?Gradients|FusedParams",
        "normalisation and softmax of ATen, cuDNN, MIOpen, AITER, vLLM",
    ),
    (
        OTHER,
        r"embedding|embs_|indices|index|gather|scatter|sort|top_?k|scan|cumsum|histogram|unique|segment|bucketize|mask",
        "indexing, sorting and tables of ATen, FBGEMM, torchrec",
    ),
    (
        OTHER,
        r"copy|memcpy|cat_?array|concat|fill|transpose|permute|reshape|shuffle|pad_|_pad|flip|split_?with|recat|arange"
        r"|broadcast|(?:to_)?dense_rep",
        "data that move",
    ),
    (
        OTHER,
        r"quant|_cast|cast_|convert|activation|act_and_mul|silu|gelu|relu|sigmoid|tanh|swiglu|geglu|rotary|_rope|rope_",
        "pointwise kernels and number formats of vLLM, SGLang, AITER, TensorRT-LLM",
    ),
    (
        OTHER,
        r"pool|upsample|interpolat|grid_sampl|dropout|random|philox|distribution|sampling|loss|criterion|entropy"
        r"|(?<![a-z])adam|(?<![a-z])sgd_|(?<![a-z])lamb|optimizer|reduce|arg_?max|[sd]axpy|scal_kernel|spin_kernel"
        r"|pointwise|foreach|bounds_check|offsets_range|chunk_cat",
        "pooling, losses, optimizers, sums",
    ),
)  # fmt: skip
"""(family, pattern, source) in order: the first pattern in the name decides. source: the library, or the device of the
recording. HELPER has the kernels that prepare or finish a product, REDUCTION those that add up its parts, OTHER those
that do something else, even if their names contain a product's (a pointwise kernel fused after a matrix product, the
routing of a mixture of experts). A library's name or a number format in template arguments (NOISE) does not show what a
kernel does, and is removed first. Patterns ignore case unless they begin with (?-i:."""

_FAMILIES = tuple((word, re.compile(pattern, re.IGNORECASE)) for word, pattern, _ in TABLE)

AFTER = re.compile(r"winograd(?:Forward|Wgrad)Output|_c2r|nhwcToNchw|educe|transpose_CNHW2NCHW|PostGSU")
"""Matches helpers that run after their product."""


@functools.cache
def family(name: str) -> str:
    """Return the algorithm that a kernel belongs to; one of NO_PRODUCTS if it computes no product, "" for an unknown
    name."""
    bare = NOISE.sub("", name)
    return next((word for word, pattern in _FAMILIES if pattern.search(bare)), "")


@functools.cache
def makes_products(name: str) -> bool:
    """Return whether the name is of a kernel that does multiply-adds of a convolution, matrix product or attention."""
    return family(name) not in ("", *NO_PRODUCTS)


_FAST = {"winograd": re.compile(r"winograd|miopenSp3AsmConv", re.IGNORECASE), "fft": re.compile(r"fft[12]d_|_gcgemm_")}


def fast_algorithm(names: Iterable[str]) -> str:
    """Return the fast algorithm to which one of these kernels belongs, helpers included; "" if none does."""
    listed = list(names)
    return next((word for word, pattern in _FAST.items() if any(map(pattern.search, listed))), "")


# --- how many kernels an algorithm takes -----------------------------------------------------------------------------

FFT_TILE = 32
"""Side of the tiles of cuDNN's FFT_TILING."""


def fft_tiles(spatial: Sequence[int], kernel: Sequence[int]) -> int:
    """Return the number of launches of one convolution by cuDNN's FFT_TILING: one per tile of 32 × 32.

    It is ceil(H / (32 - R + 1)) · ceil(W / (32 - S + 1)), as tiles overlap by the kernel's size less 1; 0 where the
    kernel does not fit into a tile. spatial: H and W of the input; kernel: R and S of the weight. The convolution has
    stride 1. Measured on a V100 with cuDNN 8, for kernels of 3 × 3 and more.
    """
    tiles = 1
    for size, taps in zip(spatial, kernel, strict=True):
        step = FFT_TILE - taps + 1
        if step < 1:
            return 0
        tiles *= -(-size // step)
    return tiles
