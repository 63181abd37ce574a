"""Known answer, definition: PyProf's lists do what PyProf did; families and tiles of kernels by their algorithms."""

import csv
import os
from pathlib import Path

import pytest

from analysis.trace.kernel_names import (
    NO_MATMUL,
    RENAMED,
    family,
    fast_algorithm,
    fft_tiles,
    has,
    makes_products,
    pyprof_convolution,
    pyprof_linear,
    short_name,
)
from tests.support.made_up_operations import made_up_kernels

PRODUCTS: dict[str, dict[str, tuple[str, ...]]] = {
    "attention": {
        "ROCm/composable_kernel (ck_tile), as AITER launches it: MI355X": (
            "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_40BlockFmhaBatchPrefillPipelineQRKSVS"
            "AsyncINS_36BlockFmhaBatchPrefillPipelineProblemIDF16bNS_30SimplifiedGenericAttentionMaskILb1EEEEEEEE",
            "void ck_tile::kentry<2, ck_tile::FmhaFwdKernel<ck_tile::BlockFmhaPipelineQRKSVSAsync<float> > >(int)",
            "void ck_tile::kentry<1, ck_tile::FmhaBwdDQDKDVKernel<ck_tile::BlockFmhaBwdDQDKDVPipeline<float> > >(int)",
            "void ck_tile::kentry<2, ck_tile::FmhaFwdSplitKVKernel<ck_tile::BlockFmhaFwdSplitKVPipeline> >(int)",
        ),
        "ROCm/aiter": (
            "aiter::fmha_fwd_hd128_bf16_rtz",
            "_ZN5aiter41mla_dec_stage1_bf16_a16w16_subQ128_mqa128E",
            "sage_fwd",
            "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16, __hip_bfloat16, 1, 128, 256, false>(int)",
        ),
        "ROCm/aotriton": ("attn_fwd", "bwd_kernel_dk_dv", "bwd_kernel_dq", "bwd_kernel_fuse"),
        "vllm-project/vllm": (
            "kernel_unified_attention_2d",
            "kernel_unified_attention_3d",
            "void vllm::paged_attention_v1_kernel<unsigned short, unsigned short, 128, 16, 128>(int)",
            "void vllm::paged_attention_v2_kernel<unsigned short, unsigned short, 128, 16, 128>(int)",
            "_fwd_kernel",
        ),
        "sgl-project/sglang": ("_fwd_grouped_kernel_stage1", "_fwd_kernel_stage1", "extend_attention_kernel"),
        "flashinfer-ai/flashinfer": (
            "void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::KernelTraits<1> >(int)",
            "void flashinfer::BatchPrefillWithRaggedKVCacheKernel<flashinfer::KernelTraits<1> >(int)",
            "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 4u>(int)",
            "void flashinfer::SinglePrefillWithKVCacheKernel<flashinfer::KernelTraits<1> >(int)",
            "void flashinfer::mla::BatchMLAPagedAttentionKernel<flashinfer::mla::KernelTraits<1> >(int)",
        ),
        "NVIDIA/TensorRT-LLM (trtllm-gen, fmha_v2, XQA): B200": (
            "fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext",
            "fmha_v2_flash_attention_bf16_64_128_S_q_paged_kv_128_causal_sm90_kernel_tma_ws",
            "void tensorrt_llm::kernels::mmha::masked_multihead_attention_kernel<unsigned short, 128>(int)",
        ),
        "Dao-AILab/flash-attention": (
            "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t> >(int)",
            "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128> >(int)",
            "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::Mainloop> > >(int)",
            "kernel_cutlass_kernel_flash_attncuteflash_fwd_sm100FlashAttentionForwardSm100_object_at__tensorptrbf16",
        ),
        "deepseek-ai/FlashMLA": (
            "void flash_fwd_splitkv_mla_kernel<Flash_fwd_kernel_traits_mla<576, 64, 64, 8> >(int)",
            "void sm90::decode::flash_fwd_splitkv_mla_kernel<cutlass::bfloat16_t>(int)",
        ),
        "cuDNN 9": (
            "cudnn_generated_fort_native_sdpa_sm80_flash_fprop_wmma_f16_knob_3_64x64x128_4x1x1_kernel0_0",
            "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x128_1x",
        ),
        "facebookresearch/xformers, pytorch/pytorch": (
            "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>)",
            "fmha_cutlassB_f16_aligned_128x128_k128_sm80(PyTorchMemEffAttention::AttentionBackwardKernel<int>)",
            "triton_tem_fused_flex_attention_0",
            "triton_tem_fused_flex_decoding_1",
        ),
        "triton-lang/triton, the tutorial": ("_attn_fwd", "_attn_bwd"),
        "thu-ml/SageAttention": ("void qk_int_sv_f16_attn_kernel<128u, 64u, 32u, 64u, 128u>(signed char*)",),
    },
    "gemm": {
        "cuBLAS, cuBLASLt: V100 to B200": (
            "volta_sgemm_128x64_nt",
            "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",
            "ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_nn",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
            "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN",
            "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(int)",
            "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(int)",
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float, float, float>(int)",
        ),
        "NVIDIA/cutlass": (
            "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(int)",
            "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int, int, int> > >(int)",
            "kernel_cutlass_kernel_cutlass_dense_gemm_persistent_PersistentDenseGemmKernel_object_at__CopyAtom",
            "void cutlass::Kernel<cutlass::gemm::kernel::GemmWithEpilogueVisitor<GemmSoftmax> >(int)",
        ),
        "NVIDIA/TensorRT-LLM (trtllm-gen): B200": (
            "bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_swiGlu_dynBatch_sm100f",
            "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_dynBatch_sm100f",
            "bmm_E4m3_E4m3E4m3_Fp32_t128x8x128u2_s6_et128x8_m128x8x32_cga1x1x1_16dp256b_rM_TN_transOut_sm100a",
            "gemm_Bfloat16_E4m3E4m3_Fp32_t128x8x128u2_s6_et64x8_m64x8x32_cga1x1x4_splitK4_sm100a",
        ),
        "ROCm: Tensile, rocBLAS, composable_kernel, AITER": (
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT128x256x32_MI16x16x1_SN_LDSB1",
            "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<float>, true>(int)",
            "void ck_tile::kentry<1, ck_tile::FlatmmKernel<ck_tile::GemmSpatiallyLocalTilePartitioner> >(int)",
            "_ZN5aiter34bf16gemm_fp32bf16_tn_64x64_splitkE",
        ),
        "vllm-project/vllm": (
            "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 4, 16, 8, 1, 4>(int)",
            "void wvSplitKQ_hf_<__hip_bfloat16, c10::Float8_e4m3fnuz, 64, 2, 16, 16, 1, 4>(int)",
            "_Z11wvSplitKrc_I6__halfLi64ELi16ELi4ELi8ELi1ELi16ELi1ELi1ELi1EE",
            "void LLGemm1_kernel<c10::Half, 4>(int)",
            "void marlin::Marlin<__nv_bfloat16, 1125899906909960l, 256, 1, 8, 8, 4>(int)",
            "void vllm::awq::gemm_forward_4bit_cuda_m16nXk32<128>(int)",
            "void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 1>(int)",
            "_w8a8_block_fp8_matmul",
            "scaled_mm_kernel",
        ),
        "deepseek-ai/DeepGEMM": (
            "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 4096u, 7168u, 1u, 128u, 128u>(float*)",
            "void deep_gemm::fp8_gemm_kernel<2112u, 7168u, 128u, 128u, 128u>(__nv_bfloat16*)",
        ),
        "triton-lang/triton (triton_kernels): MI355X": (
            "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu",
            "matmul_kernel_persistent",
        ),
        "pytorch/pytorch": (
            "triton_tem_fused_mm_3",
            "triton_tem_fused_addmm_relu_0",
            "void at::cuda::detail::grouped_mm_kernel<float>(int)",
        ),
        "JAX, MegaBlocks": ("ragged_dot_kernel", "ragged_matmul_kernel", "gmm_kernel"),
        "ggml-org/llama.cpp": (
            "void mul_mat_q<(ggml_type)8, 128, false>(char const*)",
            "void mul_mat_vec_q<(ggml_type)8>()",
        ),
        "bitsandbytes": ("void kgemm_4bit_inference_naive<float, 128, 32>(int)",),
        "fbgemm": ("_fbgemm_grouped_gemm_fp8_rowwise", "_kernel_matmul_fp8_row"),
    },
    "experts": {
        "vllm-project/vllm, sgl-project/sglang": (
            "fused_moe_kernel",
            "fused_moe_kernel_gptq_awq",
            "vllm::moe_forward",  # an operator: they are told by their names, too
        ),
        "ROCm/aiter": (
            "_ZN5aiter45fmoe_bf16_pertokenFp8_g1u1_vs_silu_1tg_32x192E",
            "fmoe_int8_g1u0_multix",
            "mfma_moe2_afp8_wfp4_bf16_cshuffle_t32x256x256_vscale_fix3",
        ),
    },
    "scan": {
        "state-spaces/mamba": (
            "_chunk_scan_fwd_kernel",
            "_chunk_state_fwd_kernel",
            "_bmm_chunk_fwd_kernel",
            "_chunk_scan_chunk_state_bwd_dx_kernel",
        ),
        "fla-org/flash-linear-attention": ("chunk_fwd_kernel_o", "chunk_gated_delta_rule_fwd_kernel_h_blockdim64"),
    },
    "depthwise": {
        "PyTorch, Dao-AILab/causal-conv1d": (
            "void at::native::(anonymous namespace)::conv_depthwise2d_forward_kernel<3, float, int>(int)",
            "void causal_conv1d_fwd_kernel<Causal_conv1d_fwd_kernel_traits<128, 4, true, c10::BFloat16> >(int)",
        ),
    },
    "winograd": {"MIOpen": ("miopenSp3AsmConv_v30_3_1_gfx94x_fp32_f2x3_stride1",)},
    "implicit_precomputed_gemm": {
        "MIOpen": (
            "miopenGcnAsmConv1x1U",
            "_ZN2ck16tensor_operation6device12_GLOBAL__N_149kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffleINS_NSA_IJ",
        ),
        "TorchInductor": ("triton_tem_fused_convolution_2", "triton_tem_fused__unsafe_view_convolution_relu_1"),
    },
}
"""Family → library → names."""

NO_PRODUCTS: dict[str, dict[str, tuple[str, ...]]] = {
    "helper": {
        "PyTorch": (
            "void at::native::vectorized_elementwise_kernel<4, fbgemm_gpu::_hfp8_to_float_gpu(at::Tensor const&)>(int)",
            "void at::native::elementwise_kernel<128, 2, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>",
        ),
        "MIOpen": ("batched_transpose_32x32_half", "Im2d2Col_v2"),
        "FlashAttention, ck_tile, aotriton": (
            "void flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 128, 128> >(int)",
            "void flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<64, 128, 128> >(int)",
            "void ck_tile::kentry<2, ck_tile::FmhaBwdOGradDotOKernel<ck_tile::BlockFmhaBwdOGradDotO<float> > >(int)",
            "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<int> > >(int)",
            "bwd_preprocess_varlen",
            "_attn_bwd_preprocess",
        ),
        "vLLM": (
            "void marlin::gptq_marlin_repack_kernel<256, 4, false>(int)",
            "void get_group_gemm_starts<cutlass::float_e4m3_t, cutlass::bfloat16_t, float>(int)",
        ),
    },
    "reduction": {
        "CUTLASS, FlashAttention, SGLang, AITER, FlashInfer, TensorRT-LLM": (
            "void cutlass::Kernel<cutlass::reduction::kernel::ReduceSplitK<cutlass::MatrixShape<4, 128> > >(int)",
            "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<64, 64, 128> >(int)",
            "_fwd_kernel_stage2",
            "void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16, __hip_bfloat16, 128, 128, 256, 3>(int)",
            "void flashinfer::PersistentVariableLengthMergeStatesKernel<8u, 16u, 8u, 4u>(float*)",
            "_finalize_matmul_scatter_bf16",
            "void moe::dev::finalize::finalizeKernelVecLoad<moe::dev::KernelParams<cutlass::bfloat16_t> >(int)",
        ),
    },
    "other": {
        "TorchInductor": (
            "triton_poi_fused_addmm_gelu_view_15",
            "triton_poi_fused__scaled_dot_product_flash_attention_cat_transpose_view_10",
            "triton_red_fused_add_addmm_mul_native_layer_norm_split_unsqueeze_view_16",
            "triton_per_fused__softmax_bmm_3",
        ),
        "NCCL, RCCL": (
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        ),
        "PyTorch": (
            "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16>(int)",
            "void (anonymous namespace)::softmax_warp_backward<float, float, float, 10, true, false>(float*)",
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>(int)",
            "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)",
            "void at::native::(anonymous namespace)::max_pool_forward_nchw<float, float>(int)",
            "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, int, unsigned int, 1, 1, -2>(int)",
            "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1>(int)",
            "void at::native::bitonicSortKVInPlace<2, -1, 16, 16, long, long, at::native::LTOp<long> >(int)",
            "void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<int>(int)",
            "void cub::DeviceSelectSweepKernel<cub::DispatchSelectIf<int>::PtxSelectIfPolicyT>(int)",
        ),
        "FBGEMM": (
            "void fbgemm_gpu::permute_2D_data_kernel<false, int, int, decltype(nullptr)>(int)",
            "void split_embedding_codegen_forward_unweighted_kernel<c10::Half, float, fbgemm_gpu::Vec4T<int> >()",
        ),
        "cuDNN, cuBLASLt": (
            "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(int)",
            "void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long, cublasLtEpilogue_t)",
        ),
        "vLLM, SGLang, FlashInfer, AITER, TensorRT-LLM": (
            "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)1>(int)",
            "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16>(int)",
            "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
            "void flashinfer::AppendPagedKVCacheKernel<128u, 16u, 8u, __nv_bfloat16, int>(int)",
            "void vllm::scaled_fp8_quant_kernel_strided<c10::BFloat16, c10::Float8_e4m3fn>(int)",
            "sage_quant_kernel",
            "create_flashinfer_kv_indices_triton",
            "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi64ELi8ELb0ELb0ELb1ELi1EEEvPT0_PT_",
            "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassINS_27Rmsnorm2dFwdPipelineProblem",
            "void moe::dev::routing::routingIndicesHistogramKernel<moe::dev::KernelParams<cutlass::bfloat16_t> >(int)",
            "void vllm::moe::topkGatingSoftmax<4, 64, 4, 16, int>(float const*)",
            "void vllm::moe::moe_sum_kernel<c10::BFloat16, 8>(c10::BFloat16*)",
        ),
        "Dao-AILab/quack": ("kernel_cutlass_kernel_quackrmsnormRMSNorm_object_at__tensorptrbf16gmem",),
    },
    "": {"a name that says nothing": ("mystery_kernel_7", "triton__0d1d2d3d", "__missing__", "kernel_0", "")},
}
"""Family, or "" for a name that says nothing → library → names."""


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
    assert (family(name), makes_products(name)) == (expected, True)


@pytest.mark.parametrize(("name", "expected"), _of(NO_PRODUCTS))
def test_what_makes_none_is_told_apart_from_what_says_nothing(name: str, expected: str) -> None:
    assert (family(name), makes_products(name)) == (expected, False)


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


def test_matmul_leaves_out_three_whole_names() -> None:
    assert short_name("elementwise_kernel") in NO_MATMUL
    assert short_name("vectorized_elementwise_kernel") not in NO_MATMUL  # not the whole name: PyProf counts it


def test_tiles_of_unequal_sides_and_of_a_kernel_beyond_a_tile() -> None:
    assert fft_tiles((112, 28), (3, 3)) == 4
    assert fft_tiles((64, 64), (33, 33)) == 0
    assert fft_tiles((64, 64), (32, 32)) == 64 * 64


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
    assert (has(short_name(name), RENAMED) and not pyprof_convolution(name)) is renamed
