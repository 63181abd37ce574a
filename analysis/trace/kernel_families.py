"""Names of kernels by the algorithm whose work they do: a table of patterns by family, each with where it was seen.

The first row whose pattern is in the name decides. HELPER holds kernels that prepare or finish a product, REDUCTION
those that add up its parts, OTHER those that do something else, though some name a product (a pointwise kernel that was
fused behind a matrix product, the routing of a mixture of experts). A library's name or number format in template
arguments does not say what a kernel does and is taken out first. Patterns ignore case unless they begin with (?-i:.

Not claimed: that a name tells what a kernel does. It can be missing here, and a kernel may have any name.
"""

import re
from dataclasses import dataclass

HELPER, REDUCTION, OTHER = "helper", "reduction", "other"

NO_PRODUCTS = (HELPER, REDUCTION, OTHER)
"""Families whose kernels do no multiply-adds of a convolution, matrix product or attention."""


@dataclass(frozen=True)
class Pattern:
    """What the names of a family's kernels have, and where: library, or device of the recording."""

    family: str
    pattern: str
    source: str


NOISE = re.compile(
    r"fbgemm(?:_gpu)?(?:::)?"  # embedding and quantisation kernels, and template arguments of any other
    r"|cutlass(?:::|\d+)(?:bfloat16_t|half_t|tfloat32_t|float_e\w+?_t|u?int\d+b?_t|complex\b|(?:Aligned)?Array\b)",
)
"""Library names that stand in kernels of all kinds: namespaces and number formats."""

HELPERS = (
    Pattern(
        HELPER,
        r"(?-i:OffsetsKernel|nchwToNhwc|nhwcToNchw|generateWinogradTiles|winograd(?:Forward|Wgrad)(?:Data|Filter|Output"
        r"|Delta)|fft[12]d_(?:r2c|c2r)|flip_filter|scaleTensor|scalePackedTensor|im2col|col2im|Im2d2Col|Col2Im2d"
        r"|compute_gemm_pointers"
        r"|SubTensorOp|elementwise|batched_transpose|[Tt]ranspose_(?:NCHW|CNHW|readWrite)|tensorTransform|memset)",
        "cuDNN 7 and 8, MIOpen, ATen: V100, A100, MI300X",
    ),
    Pattern(
        HELPER,
        r"flash_?(?:attn)?_?bwd_?(?:dot_do_o|clear_dkvaccum|convert_d|preprocess|postprocess)|OGradDotO|ConvertQGrad"
        r"|FmhaFwdAppendKV|bwd_preprocess|prepare_varlen_num_blocks",
        "FlashAttention 2 and 3, ck_tile, aotriton, Triton's tutorial: row sums and conversions round a gradient",
    ),
    Pattern(
        HELPER,
        r"marlin_repack|moe_align|get_(?:group_|grouped_)?(?:gemm|mm)_(?:starts|data)|prepare_grouped_(?:gemm|mm)"
        r"|compute_(?:problem_sizes|expert_offsets)|_writeback_idx",
        "vLLM, PyTorch, Triton: pointers and layouts of grouped products",
    ),
)

REDUCTIONS = (
    Pattern(REDUCTION, r"(?-i:split[Kk]_?[Rr]educe|reduce_kernel|reduce_1Block|PostGSU)", "cuBLAS, ATen, Tensile"),
    Pattern(
        REDUCTION,
        r"ReduceSplitK|split_?kv_combine|FwdCombine|(?-i:SplitKVCombine)|_fwd_kernel_stage2|mla_reduce|reduce_segments"
        r"|paged_attention\w*_reduce|merge_?(?:attn_)?states|finalize_matmul|finalizeKernel",
        "CUTLASS, FlashAttention, ck_tile, SGLang, AITER, FlashInfer, Triton, TensorRT-LLM: partial products together",
    ),
)

OTHERS = (
    Pattern(OTHER, r"^triton_(?:poi|red|per|spl|for|mix)_", "TorchInductor: pointwise, reduction; products are tem"),
    Pattern(OTHER, r"nccl|rccl|allreduce|all_reduce|all_?gather|reduce_?scatter", "collectives"),
    Pattern(OTHER, r"multi_tensor_apply|epilogue::impl::globalKernel", "ATen's optimizers; cuBLASLt: a bias"),
    Pattern(OTHER, r"\b(?:cub|hipcub|thrust|rocprim)::|(?:3cub|7rocprim)\w", "libraries of sorts, scans and sums"),
    Pattern(
        OTHER,
        r"moe::dev::(?:routing|permute|activation)|MoeSorting|moe_(?:sum|sort|permute|unpermute|topk)|topk_?gating"
        r"|expandInputRows|doActivation",
        "TensorRT-LLM, ck_tile, vLLM: routing of a mixture of experts",
    ),
    Pattern(
        OTHER,
        r"reshape_and_cache|concat_and_cache|Append(?:Paged)?KV|set_mla_kv|concat_mla|_kv_indices|ApplyRotary"
        r"|(?-i:att(?:ention|n)_(?:mask|bias|norm|dropout|softmax|quant))",
        "vLLM, FlashInfer, SGLang: what stands round an attention",
    ),
    Pattern(
        OTHER,
        r"kernel_cutlass_\w*?(?:rms_?norm|layer_?norm|softmax|cross_?entropy|topk|reduction)",
        "CuTe DSL (quack): every kernel of it begins with kernel_cutlass",
    ),
)

CONVOLUTIONS = (
    Pattern(
        "fft",
        r"(?-i:[_c]gcgemm_|_cgemm_|fermiPlusCgemm|pointwise_mult_and_sum_complex)",
        "cuDNN: V100",
    ),
    Pattern(
        "winograd",
        r"(?-i:_winograd_|winograd3x3|xmma_.*winograd|miopenSp3AsmConv|Winograd)",
        "cuDNN: V100; MIOpen: MI300X",
    ),
    Pattern("explicit_gemm", r"(?-i:explicit_convolve)", "cuDNN: V100"),
    Pattern("implicit_gemm", r"(?-i:implicit_convolve)", "cuDNN: V100"),
    Pattern(
        "direct",
        r"(?-i:[dw]grad_\w*engine|dgrad2d_alg1|wgrad2d|grouped_direct|dgrad_1x1|[Dd]irect[Cc]onv|naive_conv)",
        "cuDNN: V100; MIOpen: MI300X",
    ),
    Pattern("depthwise", r"depthwise|causal_conv1d", "ATen; Mamba"),
)

ATTENTIONS = (
    Pattern("attention", r"sdpa|scaled_dot_product|mem_?eff_?(?:attn|attention)", "cuDNN 9, PyTorch, xFormers"),
    Pattern("attention", r"fmha", "xFormers, ck_tile, AITER's assembly, TensorRT-LLM: A100, H100, B200, MI300X"),
    Pattern(
        "attention",
        r"flash_(?:fwd|bwd|attn|attention|decod|mla)|flash_?attn|flash::|flashattention",
        "FlashAttention 2, 3 and 4 (its CuTe DSL too), llama.cpp: A100, H100",
    ),
    Pattern(
        "attention",
        r"(?:batch|single)_?(?:prefill|decode|mla|attention)|(?:^|[_\W])(?:mha|gqa|mqa|xqa|mmha)_|multihead_attention",
        "FlashInfer, TensorRT-LLM, FasterTransformer",
    ),
    Pattern(
        "attention",
        r"(?:^|[_\W\d])mla_(?:dec|decode|pfl|prefill|fwd|bwd|stage1|a\d|attention|sparse)|(?:^|[_\W])kn_mla|sm\d+_mla",
        "AITER, FlashMLA, CUTLASS",
    ),
    Pattern(
        "attention",
        r"(?:unified|paged|ragged|context|prefix|decode|prefill|extend|tree|sparse|ring|flex|cross|self|kernel)_?att(?:ention|n)"
        r"|att(?:ention|n)_(?:fwd|bwd|forward|backward|kernel|decode|prefill|inner)|Attention(?:Forward|Backward)?Kernel"
        r"|AttentionForward|AttentionBackward",
        "vLLM, SGLang, aotriton, PyTorch: MI300X, H100",
    ),
    Pattern(
        "attention",
        r"_fwd_(?:grouped_)?kernel_stage1|^_(?:fwd|bwd)_kernel$|bwd_kernel_(?:dk_?dv|dq|fuse)|bwd_d(?:kdv|q)_kernel"
        r"|(?:^|_)sage_?(?:fwd|attn)|qk_int\w*_sv_|(?-i:_nsa_)|parallel_nsa",
        "SGLang, aotriton, FlashAttention's Triton, AITER (MI300X), SageAttention",
    ),
)

SCANS = (
    Pattern(
        "scan",
        r"chunk_(?:scan|state)_(?:fwd|bwd|chunk)|bmm_chunk_(?:fwd|bwd)|ssd_(?:chunk|combined)|chunk_scaled_dot_kkt"
        r"|chunk_(?:\w+_)?(?:fwd|bwd)_kernel_(?:o|h|d\w+|A)|chunk_gated_delta\w*kernel|recompute_w_u",
        "Mamba 2, flash-linear-attention: products of chunks",
    ),
)

LATER_CONVOLUTIONS = (
    Pattern(
        "implicit_precomputed_gemm",
        r"(?-i:_s\w*cudnn_|cudnn_\w*(?:fprop|dgrad|wgrad)|cudnn_generated|xmma_(?:fprop|dgrad|wgrad)|_(?:fprop|dgrad"
        r"|wgrad)_|convolve|grouped_conv|conv_(?:fwd|bwd)|igemm_|bwd_weight|bwd_data|conv2d_\w*kernel)",
        "cuDNN: V100, A100; MIOpen: MI300X",
    ),
    Pattern(
        "implicit_precomputed_gemm",
        r"gcnAsmConv|MIOpenConv|ConvHipImplicit|ConvAsm|triton_tem_fused_(?:\w*_)?convolution|(?-i:\dconv_fprop)",
        "MIOpen; TorchInductor",
    ),
)

RECURRENT = (Pattern("recurrent", r"(?:LSTM|GRU|RNN)_(?:elementWise|block)|persistRNN", "cuDNN"),)

EXPERTS = (
    Pattern(
        "experts",
        r"fused_moe_kernel|(?:^|[_\W\d])f?moe_(?:bf16|fp16|fp8|int8|a8|wna16|mx\w*|stage|gemm|flat\w*|2?stages?)"
        r"|moe_forward|fused_experts|moe_stage[12]|ck_moe|kernel_moe|moe[12]_a\w+_w|MoeFlatmm|moe_vec|fused_moe_\w*kernel",
        "vLLM, SGLang (Triton, and operators), AITER (assembly, CK, FlyDSL)",
    ),
)

PRODUCTS = (
    Pattern("gemm", r"gemm|gemv", "cuBLAS, CUTLASS, CK, DeepGEMM, MAGMA, oneDNN, GPTQ, AWQ: V100 to B200, MI300X"),
    Pattern("gemm", r"cijk_", "Tensile (rocBLAS, hipBLASLt): MI250, MI300X"),
    Pattern("gemm", r"cutlass|xmma|nvjet", "CUTLASS and CuTe DSL, cuBLAS 11 and 12: A100, H100, B200"),
    Pattern("gemm", r"matmul|(?:^|[_\W\d])mul_?mat_?(?:q|vec|id)|mmvq", "Triton (matmul_ogs), vLLM, llama.cpp: B200"),
    Pattern(
        "gemm",
        r"(?:^|[_\W])(?:add|ba?d?d?|batched_|grouped_|ragged_|scaled_|int_|t?g|persistent_)?b?mm_(?:kernel|[A-Z0-9]|fwd|bwd)"
        r"|(?:scaled|grouped|ragged|int|group)_(?:b?mm|dot)(?:_|$|<)|(?:^|_)t?gmm(?:_|$)|kgemm|qmm_",
        "TensorRT-LLM (bmm_…E4m3…: B200), PyTorch, JAX, MegaBlocks",
    ),
    Pattern("gemm", r"wv_?spl(?:i)?tk|LLMM1|LLGemm", "vLLM's skinny products on ROCm"),
    Pattern("gemm", r"flatmm|marlin|machete|awq_|gptq", "AITER, ck_tile; quantised products of vLLM and AutoGPTQ"),
    Pattern("gemm", r"triton_tem_|triton_b?mm_|tl_dot|(?-i:dot_kernel)", "TorchInductor, Triton; cuBLAS"),
    Pattern("gemm", r"csrmm|spmm|sddmm", "cuSPARSE"),
)

FLEX = (Pattern("attention", r"triton_tem_\w*(?:flex_attention|flex_decoding)", "TorchInductor"),)

UNCLEAR = (
    Pattern(
        "",
        r"(?<!bi)(?<!tri)linear(?!iz)|(?:^|[_\W])(?:mlp|dense|proj|qkv|lstm|gru|rnn|einsum|dot)(?:[_\W]|$)"
        r"|conv(?:[123]d|olution|_|\d)",
        "a word of a layer that has products, so that a word of REST beside it does not say that there are none",
    ),
)

REST = (
    Pattern(
        OTHER,
        r"softmax|norm(?!al)|(?<![a-z])bn_(?:fw|bw)|welford|GammaBeta|RowwiseMoments|Internal?Gradients|FusedParams",
        "normalisation and softmax of ATen, cuDNN, MIOpen, AITER, vLLM",
    ),
    Pattern(
        OTHER,
        r"embedding|embs_|indices|index|gather|scatter|sort|top_?k|scan|cumsum|histogram|unique|segment|bucketize|mask",
        "indexing, sorting and tables of ATen, FBGEMM, torchrec",
    ),
    Pattern(
        OTHER,
        r"copy|memcpy|cat_?array|concat|fill|transpose|permute|reshape|shuffle|pad_|_pad|flip|split_?with|recat|arange"
        r"|broadcast|(?:to_)?dense_rep",
        "data that move",
    ),
    Pattern(
        OTHER,
        r"quant|_cast|cast_|convert|activation|act_and_mul|silu|gelu|relu|sigmoid|tanh|swiglu|geglu|rotary|_rope|rope_",
        "pointwise kernels and number formats of vLLM, SGLang, AITER, TensorRT-LLM",
    ),
    Pattern(
        OTHER,
        r"pool|upsample|interpolat|grid_sampl|dropout|random|philox|distribution|sampling|loss|criterion|entropy"
        r"|(?<![a-z])adam|(?<![a-z])sgd_|(?<![a-z])lamb|optimizer|reduce|arg_?max|[sd]axpy|scal_kernel|spin_kernel"
        r"|pointwise|foreach|bounds_check|offsets_range|chunk_cat",
        "pooling, losses, optimizers, sums",
    ),
)  # fmt: skip

TABLE: tuple[Pattern, ...] = (
    *FLEX,
    *OTHERS[:1],
    *HELPERS,
    *REDUCTIONS,
    *OTHERS[1:],
    *CONVOLUTIONS,
    *ATTENTIONS,
    *SCANS,
    *LATER_CONVOLUTIONS,
    *RECURRENT,
    *EXPERTS,
    *PRODUCTS,
    *UNCLEAR,
    *REST,
)
"""Every pattern, in the order in which they are asked."""
