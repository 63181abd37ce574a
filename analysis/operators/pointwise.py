"""Scalar operations per element, as a literal table: activations, elementwise arithmetic, reductions, losses.

Each row: kind, operations for one element, ATen names without "aten." (in-place forms need no row of their own).
Constants follow the convention of `analysis/operators/products.py` and PyTorch's decomposition into elementary
operations: one addition, multiplication, division, comparison, maximum, negation, exp, log, tanh, … is 1, choosing is
0. Operations whose count depends on an argument (alpha, kernel size, …) are in `analysis/operators/registry.py`.
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
    ("elementwise", 7, "quantize_per_tensor_dynamic"),  # least and largest besides
    ("elementwise", 6, "cudnn_affine_grid_generator cudnn_affine_grid_generator_backward"),  # 3 multiply-adds
    ("activation", 2, "rrelu_with_noise_functional"),
    ("activation", 11, "glu_jvp glu_backward_jvp"),  # glu 5 and its derivative
    ("normalization", 4, "quantized_batch_norm"),
    (
        "elementwise",
        3,
        "lerp logit logit_backward nan_to_num cross linalg_cross",
    ),  # a + w·(b - a); log(x ÷ (1 - x)); tests; a·b - c·d
    ("elementwise", 4, "logaddexp logaddexp2 sinc"),  # max, -|a - b|, exp, log1p
    # --- fake quantisation: x ÷ scale, + zero point, round, two comparisons, - zero point, · scale
    ("elementwise", 7, "fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask"),
    ("elementwise", 7, "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"),
    ("elementwise", 7, "_fake_quantize_learnable_per_channel_affine _fake_quantize_learnable_per_tensor_affine"),
    ("elementwise", 9, "_fused_moving_avg_obs_fq_helper _fused_moving_avg_obs_fq_helper_functional"),  # least, largest
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
    # A lower bound for what compares by the data; where integers are sorted, nothing.
    ("reduction", 1, "_cummax_helper _cummin_helper _logcumsumexp histogram _histogramdd_bin_edges unique_consecutive"),
    ("reduction", 1, "_histogramdd_from_bin_cts _histogramdd_from_bin_tensors unique_dim_consecutive segment_reduce"),
    ("reduction", 1, "_segment_reduce_backward _sparse_csr_prod _sparse_csr_sum _sparse_sum _sparse_sum_backward"),
    ("reduction", 2, "linalg__powsum _aminmax _embedding_bag_per_sample_weights_backward"),
    # power, sum; least, largest; product, sum
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
    ("loss", 10, "binary_cross_entropy_with_logits"),  # (1 - y)·x + max(-x, 0) + log1p(exp(-|x|)): 9, and the sum
    ("loss", 4, "multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward kl_div"),
    ("optimizer", 2, "_amp_foreach_non_finite_check_and_unscale"),  # is it finite, · 1 ÷ scale
)

FOREACH: tuple[Row, ...] = (
    # Per element of all tensors of the list that is worked on.
    ("optimizer", 1, "mul div abs neg sign sqrt rsqrt reciprocal exp expm1 log log2 log10 log1p pow maximum minimum"),
    ("optimizer", 1, "clamp_max clamp_min ceil floor round trunc frac sin cos tan asin acos atan sinh cosh tanh erf"),
    ("optimizer", 1, "erfc lgamma max"),
    ("optimizer", 2, "norm powsum"),  # square, sum; the root of one number left out
    ("optimizer", 3, "lerp"),
    ("optimizer", 4, "sigmoid"),
)
