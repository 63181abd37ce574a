"""Lists operation names by what they do; `analysis/operators/registry.py` gives each name its counting rule.

Names are ATen's without "aten."; in-place forms ("add_") need no entry. Names of one device or one PyTorch version are
listed with the others. PER_OUTPUT, PER_INPUT and FOREACH have the number of scalar operations per element, by the
convention of `analysis/operators/products.py`. An addition, multiplication, comparison, negation, exp, log or tanh is
1; selecting (where) is 0. An operation whose count depends on an argument (alpha, kernel size, …) has a function of its
own instead.
"""

KINDS = (
    "convolution",
    "matmul",
    "attention",
    "recurrent",
    "embedding",
    "normalization",
    "activation",
    "softmax",
    "pooling",
    "reduction",
    "elementwise",
    "loss",
    "random",
    "copy",
    "view",
    "optimizer",
    "communication",
)


# --- convolutions, products, attention, recurrent layers -------------------------------------------------------------

CONVOLUTION = """
    convolution _convolution _convolution_mode convolution_overrideable conv1d conv2d conv3d cudnn_convolution
    mkldnn_convolution miopen_convolution miopen_depthwise_convolution _mps_convolution _conv_depthwise2d
    conv_depthwise3d thnn_conv2d slow_conv3d slow_conv2d_forward _slow_conv2d_forward slow_conv3d_forward
    slow_conv_dilated2d slow_conv_dilated3d _nnpack_spatial_convolution
"""
CONVOLUTION_TRANSPOSE = """
    conv_transpose1d conv_transpose2d conv_transpose3d cudnn_convolution_transpose miopen_convolution_transpose
    slow_conv_transpose2d slow_conv_transpose3d _mps_convolution_transpose
"""
CONVOLUTION_RELU = """
    cudnn_convolution_relu cudnn_convolution_add_relu miopen_convolution_relu miopen_convolution_add_relu
"""
CONVOLUTION_BACKWARD = """
    convolution_backward convolution_backward_overrideable _slow_conv2d_backward mps_convolution_backward
"""
PRODUCT = """
    mm bmm mv dot vdot matmul linear mkldnn_linear _scaled_mm _scaled_mm_v2 _int_mm _weight_int8pack_mm inner
    _weight_int4pack_mm _weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros _dyn_quant_matmul_4bit
    _mixed_dtypes_linear mkldnn_linear_backward_input
"""
ATTENTION = """
    scaled_dot_product_attention _scaled_dot_product_attention_math _scaled_dot_product_attention_math_for_mps
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
    _scaled_dot_product_fused_attention_overrideable _cudnn_attention_forward
"""
ATTENTION_BACKWARD = """
    _scaled_dot_product_flash_attention_backward _scaled_dot_product_flash_attention_for_cpu_backward
    _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward
    _scaled_dot_product_fused_attention_overrideable_backward _cudnn_attention_backward
"""
LSTM_GATES_BACKWARD = """
    _thnn_fused_lstm_cell_backward _thnn_fused_lstm_cell_backward_impl _thnn_differentiable_lstm_cell_backward
"""
GRU_GATES_BACKWARD = "_thnn_fused_gru_cell_backward _thnn_differentiable_gru_cell_backward"

# --- normalisation, softmax, pooling, sampling -----------------------------------------------------------------------

BATCH_NORM = """
    native_batch_norm batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training
    _native_batch_norm_legit_functional _batch_norm_with_update _batch_norm_with_update_functional
    _batch_norm_no_update _batch_norm_impl_index cudnn_batch_norm miopen_batch_norm
"""
BATCH_NORM_BACKWARD = """
    native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward
    _batch_norm_impl_index_backward
"""
SOFTMAX = "_softmax _safe_softmax softmax _masked_softmax _sparse_softmax _nested_tensor_softmax_with_shape"
SOFTMAX_BACKWARD = """
    _softmax_backward_data _log_softmax_backward_data _masked_softmax_backward _sparse_softmax_backward_data
    _sparse_log_softmax_backward_data
"""
MAX_POOL = """
    max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
    mkldnn_max_pool2d mkldnn_max_pool3d fractional_max_pool2d fractional_max_pool3d
"""
AVG_POOL = "avg_pool1d avg_pool2d avg_pool3d avg_pool2d_backward avg_pool3d_backward"
ADAPTIVE_AVG_POOL = """
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d _adaptive_avg_pool3d
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward mkldnn_adaptive_avg_pool2d
    adaptive_avg_pool3d_backward mkldnn_adaptive_avg_pool2d_backward
"""
NEAREST = """
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_nearest_exact3d max_unpool2d max_unpool3d
"""
NEAREST_BACKWARD = """
    upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
    _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward
"""
BILINEAR_ANTIALIASED = "_upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward"
BICUBIC_ANTIALIASED = "_upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward"
LANCZOS_ANTIALIASED = "_upsample_lanczos2d_aa _upsample_lanczos2d_aa_backward"
GRID_SAMPLE = """
    grid_sampler grid_sampler_2d grid_sampler_3d cudnn_grid_sampler _grid_sampler_2d_cpu_fallback
"""
GRID_SAMPLE_BACKWARD = """
    grid_sampler_2d_backward grid_sampler_3d_backward cudnn_grid_sampler_backward
    _grid_sampler_2d_cpu_fallback_backward
"""

# --- arithmetic whose count depends on an argument -------------------------------------------------------------------

DROPOUT = "native_dropout _fused_dropout dropout feature_dropout alpha_dropout feature_alpha_dropout"
SUM = "add sub subtract rsub"
ACCUMULATE = """
    index_put _index_put_impl _unsafe_index_put index_add scatter_add scatter_reduce index_reduce
    _unsafe_masked_index_put_accumulate
"""
NORM = """
    linalg_vector_norm norm linalg_norm frobenius_norm dist native_norm
"""
FACTORS = "linalg_lu_factor_ex linalg_lu linalg_lu_factor _linalg_det linalg_det _linalg_slogdet linalg_slogdet"
CHOLESKY = "linalg_cholesky_ex linalg_cholesky cholesky linalg_ldl_factor_ex"
INVERSE = "linalg_inv_ex inverse linalg_inv cholesky_inverse"
TRIANGULAR = "linalg_solve_triangular triangular_solve"
SUBSTITUTIONS = "linalg_lu_solve cholesky_solve _cholesky_solve_helper linalg_ldl_solve"
ITERATIVE = "is no product, and how much it calculates depends on values"
"""Reason why eigenvalues and similar operations have no rule. They have no model FLOP."""
UNSUPPORTED = {
    ITERATIVE: """
        _linalg_eigh linalg_eigh linalg_eigvalsh linalg_eig linalg_eigvals _linalg_eigvals _linalg_svd linalg_svd
        linalg_svdvals
    """,
    "makes products, and how many depends on values": """
        linalg_matrix_exp _compute_linear_combination linalg_pinv linalg_lstsq linalg_matrix_sqrth linalg_polar
    """,
    "has packed weights, whose sizes are not seen": """
        quantized_lstm quantized_gru _cslt_sparse_mm _cslt_sparse_mm_search _sparse_semi_structured_addmm
        _sparse_semi_structured_linear _sparse_semi_structured_mm
    """,
    "has sparse operands, and which of their values meet is not seen": """
        _sparse_sparse_matmul _sparse_mm_reduce_impl_backward _spsolve sspaddmm
    """,
    "has no formula here": "ormqr _triton_scaled_dot_attention",
    "runs only on Apple's devices": "_lstm_mps lstm_mps_backward mps_convolution_transpose_backward",
    "is for torch's own tests": """
        _foobar _test_autograd_multiple_dispatch _test_autograd_multiple_dispatch_view
        _test_autograd_multiple_dispatch_view_copy _test_functorch_fallback _test_optional_filled_intlist
        _test_optional_floatlist _test_optional_intlist _test_parallel_materialize _test_warn_in_autograd
    """,
}
"""Reason, worded to follow an operation's name → the names without a rule for that reason."""
BAGS = """
    _embedding_bag _embedding_bag_forward_only embedding_bag _embedding_bag_backward _embedding_bag_dense_backward
    _embedding_bag_sparse_backward
"""

# --- no arithmetic ---------------------------------------------------------------------------------------------------

VIEW = """
    view _unsafe_view view_as reshape reshape_as _reshape_alias _reshape_copy flatten ravel unflatten expand expand_as
    broadcast_to t transpose swapaxes swapdims permute movedim moveaxis adjoint mT mH matrix_H numpy_T squeeze
    unsqueeze select slice slice_inverse narrow split split_with_sizes unsafe_split unsafe_split_with_sizes chunk
    unsafe_chunk tensor_split hsplit vsplit dsplit unbind unfold diagonal linalg_diagonal as_strided alias detach
    lift_fresh positive real imag view_as_real view_as_complex conj _conj resolve_conj _neg_view resolve_neg
    contiguous values _values indices _indices crow_indices col_indices ccol_indices row_indices coalesce _coalesced
    _ncf_view _ncf_unsqueeze _fw_primal _make_dual _unpack_dual _nested_get_values _nested_view_from_jagged
    _nested_view_from_buffer meshgrid atleast_1d atleast_2d atleast_3d data set requires_grad retain_grad
"""
ALLOCATION = """
    empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize resize_as _efficientzerotensor
    _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors _sparse_coo_tensor_unsafe empty_quantized
    _empty_affine_quantized _empty_per_channel_affine_quantized _new_zeros_with_same_feature_meta _resize_output
    sparse_resize sparse_resize_and_clear resize_as_sparse shallow_copy_data from_file
    _sparse_compressed_tensor_with_dims sparse_compressed_tensor sparse_coo_tensor
"""
QUESTION = """
    sym_size sym_stride sym_numel sym_storage_offset size stride numel dim is_nonzero is_same_size is_floating_point
    _has_same_storage_numel is_complex is_pinned _linalg_check_errors _assert_async _assert_scalar
    _assert_tensor_metadata sym_constrain_range sym_constrain_range_for_size _fused_sdp_choice
    _has_compatible_shallow_copy_type _functional_assert_async _use_cudnn_ctc_loss _use_cudnn_rnn_flatten_weight
    result_type record_stream _debug_has_internal_overlap _nested_get_offsets _nested_get_lengths cudnn_is_acceptable
    _nested_get_jagged_dummy _nested_get_ragged_idx _nested_get_min_seqlen _nested_get_max_seqlen equal allclose
    _is_all_true _is_any_true _dimI _dimV _nnz dense_dim sparse_dim is_coalesced is_set_to q_per_channel_axis
    q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point qscheme
    _nested_compute_contiguous_strides_offsets _nested_tensor_size _nested_tensor_storage_offsets
    _nested_tensor_strides _use_miopen_ctc_loss _validate_compressed_sparse_indices _make_dep_token
    _functional_assert_scalar _functional_sym_constrain_range _functional_sym_constrain_range_for_size _print
"""
COPY = """
    clone copy _copy_from _to_copy to _autocast_to_full_precision _autocast_to_reduced_precision type_as cat concat
    concatenate stack _stack hstack vstack dstack column_stack roll flip fliplr flipud rot90 repeat repeat_interleave
    tile gather index _unsafe_index index_select take take_along_dim masked_select scatter index_copy index_fill
    masked_scatter masked_scatter_backward put diag diag_embed diagonal_copy diagonal_backward diagonal_scatter
    select_backward select_scatter slice_backward slice_scatter as_strided_scatter as_strided_copy constant_pad_nd pad
    reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d im2col
    unfold_copy pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle tril triu _local_scalar_dense
    item nonzero nonzero_static argwhere nonzero_numpy lift view_copy expand_copy permute_copy transpose_copy t_copy
    squeeze_copy unsqueeze_copy select_copy slice_copy split_copy unbind_copy alias_copy detach_copy _chunk_cat
    split_with_sizes_copy _pack_padded_sequence _pack_padded_sequence_backward _pad_packed_sequence
    _cudnn_rnn_flatten_weight _cudnn_init_dropout_state to_dense _to_dense to_mkldnn mkldnn_reorder_conv2d_weight
    mkldnn_reorder_conv3d_weight to_sparse _to_sparse pin_memory _pin_memory cpu cuda polar complex
    _transform_bias_rescale_qkv _nested_tensor_from_mask nested_to_padded_tensor _jagged_to_padded_dense_forward
    _padded_dense_to_jagged_forward _fw_primal_copy block_diag tril_indices triu_indices combinations cartesian_prod
    _conj_physical conj_physical masked_scatter_ _foreach_copy_ _conj_copy _indices_copy _make_dual_copy _lazy_clone
    _copy_from_and_resize _mkldnn_reshape _mkldnn_transpose _neg_view_copy _nested_view_from_buffer_copy
    _nested_view_from_jagged_copy _nested_get_values_copy _reshape_alias_copy _sparse_broadcast_to
    _sparse_broadcast_to_copy _values_copy ccol_indices_copy col_indices_copy copy_sparse_to_sparse crow_indices_copy
    indices_copy lift_fresh_copy narrow_copy row_indices_copy values_copy view_as_complex_copy view_as_real_copy
    int_repr to_padded_tensor _nested_from_padded _nested_from_padded_and_nested_example _nested_from_padded_tensor
    _nested_tensor_from_mask_left_aligned _nested_tensor_from_tensor_list _nested_select_backward _nested_sum_backward
    _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr sparse_mask _sparse_mask_projection
    _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _convert_weight_to_int4pack
    _convert_weight_to_int4pack_for_cpu _dyn_quant_pack_4bit_weight _cslt_compress _to_sparse_semi_structured
    _sparse_semi_structured_tile _sparse_semi_structured_apply _sparse_semi_structured_apply_dense
    _make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor _unsafe_masked_index _spdiags _coalesce
    lu_unpack frexp
"""
FILL = """
    fill zero zeros zeros_like ones ones_like full full_like new_zeros new_ones new_full arange linspace logspace eye
    scalar_tensor tensor one_hot range vander bartlett_window blackman_window hamming_window hann_window kaiser_window
"""
CHOICE = "where masked_fill heaviside bucketize isin"
BITS = """
    bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__
    __lshift__ __rshift__ __iand__ __ior__ __ixor__ logical_and logical_or logical_not logical_xor gcd lcm __ilshift__
    __irshift__ hash_tensor
"""
RANDOM = """
    rand randn randint rand_like randn_like randint_like randperm normal normal_functional uniform bernoulli
    multinomial random exponential poisson geometric cauchy log_normal binomial _standard_gamma _sample_dirichlet
    _dirichlet_grad _fill_mem_eff_dropout_mask _philox_key_fold_in _philox_key_split _philox_normal _philox_randint
    _philox_uniform _standard_gamma_grad
"""

# --- other namespaces, with their names ------------------------------------------------------------------------------

REDUCING = """
    c10d.allreduce_ c10d.reduce_ c10d.reduce_scatter_ c10d._reduce_scatter_base_ c10d.allreduce_coalesced_
    c10d.reduce_scatter_tensor_coalesced_ _c10d_functional.all_reduce _c10d_functional.all_reduce_
    _c10d_functional.all_reduce_coalesced _c10d_functional.reduce_scatter_tensor
    _c10d_functional.reduce_scatter_tensor_coalesced
"""
TRANSFERRING = """
    c10d.broadcast_ c10d.allgather_ c10d._allgather_base_ c10d.allgather_coalesced_
    c10d.allgather_into_tensor_coalesced_ c10d.alltoall_ c10d.alltoall_base_ c10d.gather_ c10d.scatter_ c10d.send
    c10d.recv_ c10d.recv_any_source_ c10d.barrier _c10d_functional.broadcast _c10d_functional.broadcast_
    _c10d_functional.all_gather_into_tensor _c10d_functional.all_gather_into_tensor_coalesced
    _c10d_functional.all_gather_into_tensor_out _c10d_functional.all_to_all_single _c10d_functional.wait_tensor
"""
MARKERS = """
    prim.device profiler._record_function_enter profiler._record_function_enter_new profiler._record_function_exit
    inductor.accumulate_grad_
"""
PRIMITIVES = """
    prims.abs prims.acos prims.acosh prims.add prims.asin prims.asinh prims.atan prims.atan2 prims.atanh prims.ceil
    prims.cos prims.cosh prims.digamma prims.div prims.eq prims.erf prims.erfc prims.exp prims.exp2 prims.expm1
    prims.floor prims.fmax prims.fmin prims.fmod prims.ge prims.gt prims.hypot prims.isfinite prims.le prims.lgamma
    prims.log prims.log10 prims.log1p prims.log2 prims.lt prims.maximum prims.minimum prims.mul prims.ne prims.neg
    prims.pow prims.reciprocal prims.remainder prims.round prims.rsqrt prims.sign prims.sin prims.sinh prims.sqrt
    prims.sub prims.tan prims.tanh prims.trunc
"""


Row = tuple[str, int, str]

PER_OUTPUT: tuple[Row, ...] = (
    # --- activations and their derivatives; g is the gradient that comes in ---
    ("activation", 1, "relu threshold threshold_backward tanh"),  # one comparison; one tanh
    ("activation", 2, "relu6 hardtanh hardtanh_backward"),  # two comparisons
    ("activation", 2, "leaky_relu leaky_relu_backward _prelu_kernel prelu rrelu rrelu_with_noise"),  # x > 0, a·x
    ("activation", 2, "rrelu_with_noise_backward hardshrink hardshrink_backward softshrink_backward"),
    ("activation", 3, "_prelu_kernel_backward"),  # x > 0, g·a, g·x
    ("activation", 3, "tanh_backward sigmoid_backward"),  # g·(1 - y·y); g·y·(1 - y)
    ("activation", 3, "hardsigmoid_backward softshrink"),  # two comparisons, ÷ 6; or x ± λ
    ("activation", 4, "sigmoid"),  # 1 ÷ (1 + exp(-x)): negation, exp, +, ÷
    ("activation", 4, "hardsigmoid elu elu_backward mish"),  # min(max(x + 3, 0), 6) ÷ 6; x > 0, exp, - 1, a·; below
    # mish: exp, log1p, tanh, x·. Backward: sigmoid 4, softplus 2, tanh 1, g·(t + x·s·(1 - t·t)) 6
    ("activation", 13, "mish_backward"),
    ("activation", 5, "celu selu silu hardswish hardswish_backward glu"),
    # celu: elu with x ÷ a. selu: elu with a scale. silu: sigmoid 4, x· 1. glu: a·sigmoid(b).
    # hardswish: x·min(max(x + 3, 0), 6) ÷ 6
    ("activation", 9, "silu_backward"),  # g·s·(1 + x·(1 - s)): sigmoid 4, - 1, · 1, + 1, · 2
    ("activation", 5, "softplus"),  # b·x, comparison, exp, log1p, ÷ b
    ("activation", 6, "softplus_backward log_sigmoid log_sigmoid_forward log_sigmoid_backward"),
    # softplus': b·x, comparison, z = exp, g·z, z + 1, ÷. log_sigmoid: min(x, 0) - log1p(exp(-|x|)); its
    # derivative from the saved exp: comparison, z + 1, ÷, ·, -, g·
    # --- arithmetic, one operation ---
    ("elementwise", 1, "mul div true_divide divide multiply floor_divide remainder fmod negative neg reciprocal abs"),
    ("elementwise", 1, "sgn sign ceil floor round trunc fix frac sqrt rsqrt square pow float_power exp exp2 expm1"),
    ("elementwise", 1, "log log2 log10 log1p sin cos tan asin acos atan arcsin arccos arctan atan2 arctan2 sinh cosh"),
    ("elementwise", 1, "asinh acosh atanh erf erfc erfinv lgamma digamma special_erfcx special_i0 special_i1 i0"),
    ("elementwise", 1, "maximum minimum fmax fmin clamp_min clamp_max eq ne lt le gt ge isnan isinf isfinite isposinf"),
    ("elementwise", 1, "isneginf signbit copysign hypot deg2rad rad2deg nextafter ldexp angle special_ndtri ger outer"),
    ("elementwise", 1, "igamma igammac mvlgamma polygamma special_airy_ai special_bessel_j0 special_bessel_j1"),
    ("elementwise", 1, "special_bessel_y0 special_bessel_y1 special_i0e special_i1e special_log_ndtr special_zeta"),
    ("elementwise", 1, "special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0"),
    ("elementwise", 1, "special_modified_bessel_k1 special_scaled_modified_bessel_k0 special_spherical_bessel_j0"),
    ("elementwise", 1, "special_scaled_modified_bessel_k1 special_chebyshev_polynomial_t special_hermite_polynomial_h"),
    ("elementwise", 1, "special_chebyshev_polynomial_u special_chebyshev_polynomial_v special_chebyshev_polynomial_w"),
    ("elementwise", 1, "special_hermite_polynomial_he special_laguerre_polynomial_l special_legendre_polynomial_p"),
    ("elementwise", 1, "special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u"),
    ("elementwise", 1, "special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w"),
    # a special function is 1, however many terms it takes
    ("elementwise", 1, "fft_fftfreq fft_rfftfreq"),  # · 1 ÷ (n·d)
    ("elementwise", 2, "xlogy special_xlogy special_xlog1py _add_relu _masked_scale dequantize"),  # log, ·; two each
    ("elementwise", 3, "special_entr"),  # log, ·, negation
    ("elementwise", 5, "quantize_per_tensor quantize_per_channel"),  # ÷ scale, round, + zero point, two bounds
    ("elementwise", 7, "quantize_per_tensor_dynamic"),  # also the minimum and the maximum
    ("elementwise", 6, "cudnn_affine_grid_generator cudnn_affine_grid_generator_backward"),  # 3 multiply-adds
    ("activation", 2, "rrelu_with_noise_functional"),
    ("activation", 11, "glu_jvp glu_backward_jvp"),  # glu 5 and its derivative
    ("normalization", 4, "quantized_batch_norm"),
    (
        "elementwise",
        3,
        "lerp logit logit_backward nan_to_num cross linalg_cross",
    ),  # a + w·(b - a); log(x ÷ (1 - x)); tests; a·b - c·d
    ("elementwise", 4, "sinc"),  # π·x, sin, ÷, comparison
    ("elementwise", 7, "logaddexp"),  # max, a - b, |·|, negation, exp, log1p, +
    ("elementwise", 8, "logaddexp2"),  # the same with exp2, and ÷ log 2
    # --- fake quantisation: x ÷ scale, + zero point, round, two comparisons, - zero point, · scale
    ("elementwise", 7, "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask"),
    ("elementwise", 7, "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"),
    ("elementwise", 7, "_fake_quantize_learnable_per_channel_affine _fake_quantize_learnable_per_tensor_affine"),
    ("elementwise", 9, "_fused_moving_avg_obs_fq_helper _fused_moving_avg_obs_fq_helper_functional"),  # + min, max
    # --- dropout: backward, the scaled mask again ---
    ("random", 1, "native_dropout_backward"),
    # --- gradients of losses; forward passes are below, per input ---
    ("loss", 3, "mse_loss_backward"),  # 2·(a - b)·g
    ("loss", 5, "smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward"),
    # a - b, two comparisons, ÷ b, g·; soft margin: -y·g·z ÷ (1 + z) from z = exp(-y·x)
    ("loss", 6, "binary_cross_entropy_backward"),  # g·(x - y) ÷ max(x·(1 - x), ε)
    ("loss", 3, "multi_margin_loss_backward multilabel_margin_loss_backward"),
    ("normalization", 4, "batch_norm_elemt"),  # x - mean, · rstd, · weight, + bias
    ("normalization", 5, "batch_norm_backward_elemt"),  # g - a - (x - mean)·b, · factor
)

PER_INPUT: tuple[Row, ...] = (
    # The first input tensor's elements.
    ("activation", 9, "glu_backward"),  # for each element of g: sigmoid 4, s·g 1, (1 - s)·s·g·a 4
    ("reduction", 1, "sum nansum prod amax amin argmax argmin cumsum cumprod cummax cummin trace"),
    ("reduction", 1, "any all count_nonzero aminmax logcumsumexp histc bincount"),
    ("reduction", 1, "sort msort argsort topk kthvalue median nanmedian mode unique_dim _unique _unique2 searchsorted"),
    # For sorting this is a lower bound; sorting integers is 0.
    ("reduction", 1, "_cummax_helper _cummin_helper _logcumsumexp histogram _histogramdd_bin_edges unique_consecutive"),
    ("reduction", 1, "_histogramdd_from_bin_cts _histogramdd_from_bin_tensors unique_dim_consecutive segment_reduce"),
    ("reduction", 1, "_segment_reduce_backward _sparse_csr_prod _sparse_csr_sum _sparse_sum _sparse_sum_backward"),
    ("reduction", 2, "linalg__powsum _aminmax _embedding_bag_per_sample_weights_backward"),
    # power, sum; minimum, maximum; product, sum
    ("reduction", 13, "_fake_quantize_learnable_per_channel_affine_backward"),
    ("reduction", 13, "_fake_quantize_learnable_per_tensor_affine_backward"),
    # forward 7, mask 1, three gradients: g·, g·(q - x ÷ scale), sum; g·, sum
    ("pooling", 1, "mkldnn_max_pool2d_backward mkldnn_max_pool3d_backward"),
    ("reduction", 4, "var var_mean"),  # mean, x - mean, square, sum
    ("reduction", 2, "renorm linalg_vecdot"),  # square or product, sum
    ("reduction", 1, "col2im unfold_backward reflection_pad1d_backward reflection_pad2d_backward"),
    ("reduction", 1, "reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward"),
    ("reduction", 1, "replication_pad3d_backward"),  # an addition for each element of the gradient
    ("pooling", 1, "max_pool2d_with_indices_backward max_pool3d_with_indices_backward max_pool2d_backward"),
    ("pooling", 1, "adaptive_max_pool2d_backward adaptive_max_pool3d_backward fractional_max_pool2d_backward"),
    ("pooling", 1, "fractional_max_pool3d_backward"),
    ("embedding", 1, "embedding_dense_backward embedding_backward embedding_sparse_backward"),
    # an addition for each gathered element
    ("normalization", 5, "batch_norm_stats"),  # variance 4, mean 1
    ("normalization", 4, "batch_norm_backward_reduce"),  # sums of g and of g·(x - mean)
    ("loss", 3, "mse_loss l1_loss"),  # a - b, square or absolute value, sum
    ("loss", 6, "huber_loss soft_margin_loss"),  # a - b, |·|, comparison, · ·, sum; y·x, -, exp, log1p, ÷, sum
    ("loss", 7, "smooth_l1_loss"),  # a - b, |·|, comparison, · · ÷, sum
    ("loss", 11, "binary_cross_entropy"),  # 2 log, 2 bounds, 2 · , 1 - x, 1 - y, +, negation, sum
    ("loss", 10, "binary_cross_entropy_with_logits"),  # (1 - y)·x - log_sigmoid(x): 3 + 6, and the sum
    ("loss", 4, "multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward kl_div"),
    ("optimizer", 2, "_amp_foreach_non_finite_check_and_unscale"),  # test for finite, · (1 ÷ scale)
)

FOREACH: tuple[Row, ...] = (
    # Per element of all tensors of the list `self`.
    ("optimizer", 1, "mul div abs neg sign sqrt rsqrt reciprocal exp expm1 log log2 log10 log1p pow maximum minimum"),
    ("optimizer", 1, "clamp_max clamp_min ceil floor round trunc frac sin cos tan asin acos atan sinh cosh tanh erf"),
    ("optimizer", 1, "erfc lgamma max"),
    ("optimizer", 2, "norm powsum"),  # square, sum; the root of one number left out
    ("optimizer", 3, "lerp"),
    ("optimizer", 4, "sigmoid"),
)
