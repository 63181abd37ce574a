"""Counts convolutions, matrix products, attention and recurrent layers from `Operation` records.

Each function takes an `Operation` and returns its `Cost`. The function knows the argument names and layouts of one
family of ATen operations, and passes the sizes to a formula of `analysis/operators/products.py`. Bytes are counted in
`analysis/operators/traffic.py`. `analysis/operators/registry.py` maps each operation name to its function.
"""

from analysis.operators import products
from analysis.operators.cost import (
    STORED,
    ZERO,
    Cost,
    Size,
    Sizes,
    attribute,
    first,
    has,
    has_any,
    needed,
    needs_gradient,
    numel,
    output,
    output_mask,
    shape,
    shapes_in,
)
from results.records.counts import Operation

# --- convolutions ----------------------------------------------------------------------------------------------------


def convolution(operation: Operation) -> Cost:
    """Count aten.convolution and the backends' forms of it; some have an argument `transposed`."""
    if attribute(operation, "transposed", False):
        return convolution_transpose(operation)
    return products.convolution(numel(output(operation)), shape(operation, "weight"), has(operation, "bias"))


def convolution_time_first(operation: Operation) -> Cost:
    """Count conv_tbc: time, batch, channels; its weight is (window, channels in, channels out)."""
    window, channels_in, channels_out = shape(operation, "weight")
    return products.convolution(numel(output(operation)), (channels_out, channels_in, window), bias=True)


def convolution_time_first_backward(operation: Operation) -> Cost:
    """Count conv_tbc_backward: the gradients of input and weight that are needed, taps on padding included."""
    window, channels_in, channels_out = shape(operation, "weight")
    gradient, mask = numel(first(operation)), needs_gradient(operation, "self", "weight", "bias")
    forward = products.convolution(gradient, (channels_out, channels_in, window))
    return products.convolution_backward(forward, gradient, mask)


def convolution_transpose(operation: Operation) -> Cost:
    """Count convolutions whose name says that they are transposed."""
    bias = numel(output(operation)) if has(operation, "bias") else 0
    return products.convolution_transpose(numel(shape(operation, "input", "self")), shape(operation, "weight"), bias)


def convolution_relu(operation: Operation) -> Cost:
    """Count a convolution fused with an optional addition of `z` and a ReLU."""
    extra = 1 + int(has(operation, "z")) + int(attribute(operation, "alpha", 1) != 1)
    return convolution(operation) + products.scalars(numel(output(operation)) * extra)


def convolution_backward(operation: Operation) -> Cost:
    """Count the gradients of a convolution, from grad_output, input, weight and the output mask."""
    gradient = numel(shape(operation, "grad_output"))
    weight = shape(operation, "weight")
    if attribute(operation, "transposed", False):
        forward = products.convolution_transpose(numel(shape(operation, "input", "self")), weight)
    else:
        forward = products.convolution(gradient, weight)
    return products.convolution_backward(forward, gradient, output_mask(operation))


def deformable_convolution(operation: Operation) -> Cost:
    """Count torchvision.deform_conv2d."""
    out, weight, bias = output(operation), shape(operation, "weight"), numel(shape(operation, "bias")) != 0
    use_mask = bool(attribute(operation, "use_mask", True))
    return products.deformable_convolution(numel(out), weight, _sampled(operation, out), use_mask, bias)


def deformable_convolution_backward(operation: Operation) -> Cost:
    """Count torchvision._deform_conv2d_backward: gradients of input, weight, offsets, mask and bias."""
    gradient, weight = shape(operation, "grad"), shape(operation, "weight")
    bias, use_mask = numel(shape(operation, "bias")) != 0, bool(attribute(operation, "use_mask", True))
    sampled = _sampled(operation, gradient)
    *sampling, of_weight = needs_gradient(operation, "input", "offset", "mask", "weight")
    mask = (any(sampling), of_weight, bias)
    return products.deformable_convolution_backward(numel(gradient), weight, sampled, use_mask, mask)


def _sampled(operation: Operation, out: Sizes) -> Size:
    """Return the number of sampled taps: N · C_in · kernel · output positions."""
    batch, channels = shape(operation, "input")[:2]
    return batch * channels * numel(shape(operation, "weight")[2:]) * numel(out[2:])


# --- matrix products -------------------------------------------------------------------------------------------------


def product(operation: Operation) -> Cost:
    """Count mm, bmm, mv, dot, matmul, linear and their low-precision forms: the output's elements, each a sum over the
    last dimension of the first operand; a bias is added."""
    out = numel(output(operation))
    return products.addmm(out, 1, first(operation)[-1], beta=int(has(operation, "bias")))


def added_product(operation: Operation) -> Cost:
    """Count addmm, baddbmm, addmv: alpha and beta from the arguments."""
    left = shape(operation, "mat1", "batch1", "mat")
    return products.addmm(numel(output(operation)), 1, left[-1], 1, *_factors(operation))


def added_product_sum(operation: Operation) -> Cost:
    """Count addbmm: also sums over the batch."""
    batch, _, k = shape(operation, "batch1")
    return products.addmm(numel(output(operation)), 1, batch * k, 1, *_factors(operation))


def activated_product(operation: Operation) -> Cost:
    """Count _addmm_activation: addmm, then ReLU (1) or GELU by tanh (9)."""
    flop_per_element = 9 if attribute(operation, "use_gelu", False) else 1
    return added_product(operation) + products.scalars(numel(output(operation)) * flop_per_element)


def grouped_product(operation: Operation) -> Cost:
    """Count _grouped_mm: rows of the left or columns of the right operand are divided among the groups."""
    left, right = shape(operation, "self"), shape(operation, "mat2")
    if len(left) == 3 and len(right) == 2:
        return products.matmul(left[-2], right[-1], right[-2])
    return products.matmul(numel(left[:-1]), right[-1], left[-1])


def listed_products(operation: Operation) -> Cost:
    """Count _foreach_mm: a product for each pair of matrices of two lists."""
    pairs = zip(shapes_in(operation, "self"), shapes_in(operation, "mat2"), strict=True)
    return sum((products.matmul(left[-2], right[-1], left[-1]) for left, right in pairs), ZERO)


def linear_backward(operation: Operation) -> Cost:
    """Count the gradients of a linear layer, from self, grad_output, weight and the output mask."""
    features_out, features_in = shape(operation, "weight")
    rows = products.exact_ratio(numel(shape(operation, "grad_output")), features_out)
    return products.linear_backward(rows, features_in, features_out, output_mask(operation))


def sparse_product(left: str, right: str, operation: Operation) -> Cost:
    """Count a product of a sparse and a dense operand: each stored value meets each column, or row, of the dense
    operand."""
    stored = needed(operation, STORED)
    dense = shape(operation, right if left in stored else left)
    lines = dense[-2 if right in stored else -1] if len(dense) > 1 else 1
    return products.matmul(stored.get(left, stored.get(right)), lines, 1)


def sampled_product(operation: Operation) -> Cost:
    """Count sparse_sampled_addmm: a dense product computed only at the positions that the sparse operand stores."""
    return products.matmul(needed(operation, STORED)["self"], 1, shape(operation, "mat1")[-1])


def linear_weight_gradient(operation: Operation) -> Cost:
    """Count mkldnn_linear_backward_weights: products of each row of the output's gradient with its row of the input."""
    return products.matmul(numel(shape(operation, "grad_output")), shape(operation, "input")[-1], 1)


def matmul_backward(operation: Operation) -> Cost:
    """Count matmul_backward: each gradient in the mask is a product of the output's gradient and the other operand."""
    gradient = products.matmul(numel(shape(operation, "grad")), shape(operation, "self")[-1], 1)
    return gradient * sum(map(bool, needed(operation, "mask")))


TRILINEAR = {(2, 3): (1, 1), (1, 3): (1, 0), (0,): (1, 1), (1, 2): (0, 1)}
"""Dimensions that `_trilinear` sums over → the number of products with the first and with the second input. In this
order, the calls compute the output, and the gradients of the first input, the weight and the second input. The product
that two gradients share is counted with the weight's, or with the first input's where the weight needs none."""


def trilinear(operation: Operation) -> Cost:
    """Count _trilinear of nn.Bilinear, as its einsum "ni,kij,nj->nk": two products forward, and two gradients of each.

    Three tensors share four indices (n, k, i, j); the indices that each lacks are listed in expand1, expand2, expand3.
    """
    sizes: list[Size] = []
    for number in (1, 2, 3):
        missing = set(needed(operation, f"expand{number}"))
        own_sizes = list(shape(operation, f"i{number}"))
        full = [1 if d in missing else own_sizes.pop(0) for d in range(len(own_sizes) + len(missing))]
        sizes = [b if a == 1 else a for a, b in zip(sizes, full, strict=True)] if sizes else full
    summed = tuple(needed(operation, "sumdim"))
    first, second = TRILINEAR.get(summed, (1, 0))
    if summed == (1, 3) and not all(needs_gradient(operation, "i2")):
        second = 1
    rows, out, left, right = (*sizes, 1, 1, 1, 1)[:4]
    return products.matmul(rows, out * right, left) * first + products.matmul(rows, out, right) * second


def distances(operation: Operation) -> Cost:
    """Count cdist: by a matrix product for p = 2 and more than 25 rows on either side (or if the mode says so), else
    pair by pair; aten._euclidean_dist is always a product."""
    left, right = shape(operation, "x1"), shape(operation, "x2")
    batch = products.exact_ratio(numel(output(operation)), left[-2] * right[-2])
    mode, is_large = attribute(operation, "compute_mode", 0), left[-2] > 25 or right[-2] > 25
    is_product = attribute(operation, "p") == 2 and (mode == 1 or (mode == 0 and is_large))
    if is_product or "p" not in operation.attributes:
        return products.euclidean_distance(left[-2], right[-2], left[-1], batch)
    return products.scalars(numel(output(operation)) * (3 * left[-1] + 1))  # as `_pdist_forward`


def _factors(operation: Operation) -> tuple[object, object]:
    return attribute(operation, "alpha", 1), attribute(operation, "beta", 1)


# --- attention -------------------------------------------------------------------------------------------------------


def attention(operation: Operation) -> Cost:
    """Count scaled dot-product attention; query, key and value are (…, heads, length, width)."""
    keys = shape(operation, "key")[-2]
    return _attention(operation, keys)


def attention_length_first(operation: Operation) -> Cost:
    """Count _flash_attention_forward, _efficient_attention_forward: (batch, length, heads, width), or sequences of
    different lengths packed together, where each query is counted against the longest key sequence: an upper bound."""
    return _attention(operation, _packed_keys(operation))


def attention_backward(operation: Operation) -> Cost:
    """Count the gradients of `attention`."""
    return _attention_backward(operation, shape(operation, "key")[-2])


def attention_backward_length_first(operation: Operation) -> Cost:
    """Count the gradients of `attention_length_first`."""
    return _attention_backward(operation, _packed_keys(operation))


def _attention(operation: Operation, keys: Size) -> Cost:
    query, value = shape(operation, "query"), shape(operation, "value")
    masked = has_any(operation, "attn_mask", "attn_bias", "bias")
    dropout = attribute(operation, "dropout_p", 0) != 0
    return products.attention(numel(query[:-1]), keys, query[-1], value[-1], masked, dropout)


def _attention_backward(operation: Operation, keys: Size) -> Cost:
    query, value = shape(operation, "query"), shape(operation, "value")
    mask = tuple(attribute(operation, "grad_input_mask", (*needs_gradient(operation, "query", "key", "value"), False)))
    return products.attention_backward(numel(query[:-1]), keys, query[-1], value[-1], mask)


def _packed_keys(operation: Operation) -> Size:
    ends = ("cum_seq_k", "cu_seqlens_k", "cu_seq_k")
    if has_any(operation, *ends) and numel(shape(operation, *ends)):
        return attribute(operation, "max_k") or needed(operation, "max_seqlen_k")
    return shape(operation, "key")[-3]


def multi_head_attention(operation: Operation) -> Cost:
    """Count _native_multi_head_attention: nn.MultiheadAttention's fast path in evaluation."""
    query, key = shape(operation, "query"), shape(operation, "key")
    return products.multi_head_attention(
        query[0], query[1], key[1], query[2], needed(operation, "num_head"), has(operation, "mask")
    )


def encoder_layer(operation: Operation) -> Cost:
    """Count _transformer_encoder_layer_fwd: attention, two linear layers, two normalisations, two additions, ReLU or
    GELU."""
    batch, length, width = shape(operation, "src")
    rows, hidden = batch * length, shape(operation, "ffn_weight_1")[0]
    heads, masked = needed(operation, "num_heads"), has(operation, "mask")
    activation = 5 if attribute(operation, "use_gelu", False) else 1
    return (
        products.multi_head_attention(batch, length, length, width, heads, masked)
        + products.linear(rows, width, hidden, bias=True)
        + products.linear(rows, hidden, width, bias=True)
        + products.scalars(2 * (9 * rows * width + 3 * rows))  # two normalisations with weight and bias
        + products.scalars(2 * rows * width + activation * rows * hidden)
    )


# --- recurrent layers ------------------------------------------------------------------------------------------------

MODES = ("rnn", "rnn", "lstm", "gru")
"""The cell of the argument `mode` (an index) of cuDNN's, MIOpen's and oneDNN's layers: ReLU, tanh, LSTM, GRU."""


def recurrent_layers(operation: Operation) -> Cost:
    """Count _cudnn_rnn, miopen_rnn: all layers and directions at once."""
    return products.recurrent(_tokens(operation), _layers(operation))


def recurrent_layers_backward(operation: Operation) -> Cost:
    """Count the backward passes of `recurrent_layers`; the mask selects among (input, state, cell, weight)."""
    mask = attribute(operation, "output_mask", (True, True, True, True))
    first = 0 if mask[1] else numel(shape(operation, "hx"))
    return products.recurrent_backward(_tokens(operation), _layers(operation), bool(mask[0]), bool(mask[3]), first)


def recurrent_layer(operation: Operation) -> Cost:
    """Count mkldnn_rnn_layer: one layer in one direction, whatever its arguments num_layers and bidirectional say."""
    return products.recurrent(_tokens(operation), _single_layer(operation))


def recurrent_layer_backward(operation: Operation) -> Cost:
    """Count mkldnn_rnn_layer_backward: only the gradients that are needed, though the kernel computes all."""
    grad_input, grad_state, *trained = needs_gradient(operation, "input", "hx_", "weight0", "weight1")
    first = 0 if grad_state else numel(shape(operation, "hx_"))
    net = _single_layer(operation)
    matrices = net.input_matrices, net.matrices - net.input_matrices
    frozen = sum(elements for elements, is_trained in zip(matrices, trained, strict=True) if not is_trained)
    return products.recurrent_backward(_tokens(operation), net, grad_input, any(trained), first, frozen)


def fused_gates(cell: str, operation: Operation) -> Cost:
    """Count _thnn_fused_lstm_cell, _thnn_fused_gru_cell: scalar arithmetic only; the products are separate
    operations."""
    net = products.network(cell, 0, 1, bias=has(operation, "input_bias"))
    return products.recurrent_cells(_states(cell, operation), net)


def fused_gates_backward(cell: str, operation: Operation) -> Cost:
    """Count the backward passes of `fused_gates`."""
    net = products.network(cell, 0, 1, bias=bool(attribute(operation, "has_bias", has(operation, "input_bias"))))
    return products.recurrent_cells_backward(_states(cell, operation), net)


def _tokens(operation: Operation) -> Size:
    return numel(shape(operation, "input", "data")[:-1])


def _states(cell: str, operation: Operation) -> Size:
    """Return the elements of the hidden state, from `cx`, `hx` or `grad_hy` of its shape, else from all gates'
    `input_gates`."""
    if has_any(operation, "cx", "hx", "grad_hy"):
        return numel(shape(operation, "cx", "hx", "grad_hy"))
    return products.exact_ratio(numel(shape(operation, "input_gates")), products.CELLS[cell].gates)


def _single_layer(operation: Operation) -> products.Network:
    return products.network(
        MODES[needed(operation, "mode")],
        shape(operation, "input")[-1],
        needed(operation, "hidden_size"),
        bias=bool(attribute(operation, "has_biases", True)),
    )


def _layers(operation: Operation) -> products.Network:
    hidden, projection = needed(operation, "hidden_size"), attribute(operation, "proj_size", 0)
    per_cell = attribute(operation, "weight_stride0", 4)  # tensors of one cell; 2 and 3 are without biases
    return products.network(
        MODES[needed(operation, "mode")],
        shape(operation, "input")[-1],
        hidden,
        needed(operation, "num_layers"),
        2 if attribute(operation, "bidirectional", False) else 1,
        projection=0 if projection == hidden else projection,
        bias=bool(attribute(operation, "has_biases", per_cell > 3)),
    )
