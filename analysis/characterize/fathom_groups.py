"""Classifies PyTorch operations into the Fathom paper's groups A to G, to compare workloads by their time per group.

`group_of` takes an operation's name, optimizer scope and tags, and returns its group; `type_of` returns its operation
type. H is time in which no operation runs. The first source that lists an operation decides: its scope (an optimizer's
`step` is F, its `zero_grad` G), `BY_NAME`, `BY_KIND`, `PATTERNS`, torch's own tag (`BY_TAG`). Kinds are those of
`analysis/operators/registry.py`. Any other operation is unclassified and in no group. Source: Adolf et al., IISWC 2016,
Figure 3. Open choices: softmax is A and its logarithm C (the paper's columns); pooling and normalisation are C. An
embedding and communication are G, an embedding bag C. Fused attention and recurrent layers, which mix B and A, are B.
"""

import csv
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from analysis.operators import names
from analysis.operators.registry import kind_of

GROUPS: Mapping[str, str] = {
    "A": "elementwise arithmetic",
    "B": "matrix operations",
    "C": "reduction and expansion",
    "D": "convolution",
    "E": "random sampling",
    "F": "optimization",
    "G": "data movement",
    "H": "between operations",
}

OPERATIONS = "ABCDEFG"
"""The groups of operations."""

UNCLASSIFIED = ""

MOST_UNCLASSIFIED_RATIO = 0.01
"""Share of the time in operations above which a breakdown lists the names without a group."""

STEP, ZERO_GRAD = "step", "zero_grad"
"""Scopes of an optimizer."""

BY_KIND: Mapping[str, str] = {
    "convolution": "D",
    "matmul": "B",
    "attention": "B",
    "recurrent": "B",
    "embedding": "G",
    "normalization": "C",
    "activation": "A",
    "softmax": "A",
    "pooling": "C",
    "reduction": "C",
    "elementwise": "A",
    "loss": "C",
    "random": "E",
    "copy": "G",
    "view": "G",
    "optimizer": "F",
    "communication": "G",
}

_MORE_ARITHMETIC = """
    absolute arccosh arcsinh degrees radians greater less greater_equal less_equal not_equal isclose isreal diff kron
    _masked_scale
"""
_MORE_REDUCTIONS = """
    cosine_similarity pairwise_distance pdist dist_backward value_selecting_reduction_backward cov corrcoef trapezoid
    trapz trace_backward unique_consecutive unique_dim_consecutive histogram histogramdd segment_reduce
    _segment_reduce_backward _logcumsumexp _is_all_true _is_any_true affine_grid_generator_backward stft istft
    svd pinverse det logdet slogdet geqrf orgqr ormqr triangular_solve
"""
_MORE_MOVEMENT = """
    broadcast_tensors diagflat masked_select_backward _pack_sequence _mkldnn_reshape flatten_dense_tensors
    unflatten_dense_tensors to_padded_tensor to_dense_backward to_mkldnn_backward device is_leaf is_contiguous
    is_coalesced is_signed is_conj is_neg can_cast promote_types result_type storage_offset output_nr set_data
    _nnpack_available cudnn_is_acceptable
"""
"""Wrappers that torch's profiler shows around operations, other names of these, and queries (`is_signed`)."""

BY_NAME: Mapping[str, str] = {
    **dict.fromkeys(_MORE_ARITHMETIC.split(), "A"),
    **dict.fromkeys(_MORE_REDUCTIONS.split(), "C"),
    **dict.fromkeys(_MORE_MOVEMENT.split(), "G"),
    **dict.fromkeys(["_log_softmax", "log_softmax", "_log_softmax_backward_data"], "C"),  # of the cross entropy
    **dict.fromkeys(["cumsum", "cumprod", "logcumsumexp", "topk", "sort", "argsort", "kthvalue"], "C"),
    **dict.fromkeys(names.BAGS.split(), "C"),
    **dict.fromkeys(["where", "masked_fill"], "G"),  # TensorFlow's Select
    **dict.fromkeys(names.ACCUMULATE.split(), "G"),
    **dict.fromkeys((names.NEAREST + names.NEAREST_BACKWARD).split(), "G"),
    **dict.fromkeys((names.LSTM_GATES_BACKWARD + names.GRU_GATES_BACKWARD).split(), "A"),
    **dict.fromkeys(["_thnn_fused_lstm_cell", "_thnn_fused_gru_cell", "lstm_cell", "gru_cell"], "A"),
    **dict.fromkeys(["rnn_tanh_cell", "rnn_relu_cell"], "A"),
    **dict.fromkeys(["embedding_backward", "embedding_dense_backward", "embedding_sparse_backward"], "G"),
}
"""Bare name → group, for names whose kind would give another group, and names without a kind."""

PATTERNS: tuple[tuple[str, str], ...] = (
    (r"attention|rnn|lstm|gru|_?mha", "B"),
    (r"(^|_)conv(olution)?\d?d?($|_)", "D"),
    (r"(^|_)(mm|bmm|gemm|matmul|linear|addmm|addmv|einsum)($|_)", "B"),
    (r"dropout|(^|_)(rand|normal|uniform|bernoulli|multinomial)", "E"),
    (
        r"loss|pool|norm|softmax|linalg|cholesky|(^|_)lu(_|$)|(^|_)(sum|mean|max|min|prod|var|std|sort|topk|cum\w+)($|_)",
        "C",
    ),
    (r"copy|(^|_)(cat|stack|index|gather|scatter|embedding|pad|view|transpose|permute|expand|split|fill)($|_)", "G"),
    (r"relu|sigmoid|tanh|gelu|silu|softplus|(^|_)(add|sub|mul|div|pow|exp|log|sqrt|threshold)($|_)", "A"),
)
"""(pattern, group): the first pattern found in the bare name decides."""

BY_TAG: Mapping[str, str] = {"nondeterministic_seeded": "E", "reduction": "C", "pointwise": "A", "alias": "G"}
"""Tag of an operator in torch (`torch.Tag`; "alias": it returns a view) → group; the first that it has decides."""

TYPES: Mapping[str, str] = {
    **dict.fromkeys((names.CONVOLUTION + names.CONVOLUTION_RELU).split(), "convolution"),
    **dict.fromkeys(names.CONVOLUTION_BACKWARD.split(), "convolution_backward"),
    **dict.fromkeys(["mkldnn_convolution_backward"], "convolution_backward"),
    **dict.fromkeys((names.PRODUCT + " addmm addmv baddbmm addbmm _addmm_activation").split(), "matmul"),
    **dict.fromkeys(["linear_backward", "mkldnn_linear_backward"], "matmul"),
}
"""Bare name → the operation type that it counts as: backends and wrappers are one type, and so are the products that
TensorFlow has in MatMul."""


def bare(name: str) -> str:
    """Return "aten::add_" and "aten.add" as "add"; "torchvision::nms" as "torchvision.nms"; "_foreach_mul_" as
    "mul"."""
    plain = name.replace("::", ".").removeprefix("aten.")
    short = plain.removesuffix("_") if not plain.endswith("__") else plain
    return short.removeprefix("_foreach_")


def group_of(name: str, scope: str = "", tags: Sequence[str] = ()) -> str:
    """Return the group of an operation by its name as torch's profiler or our tracer reports it; "" for none.

    scope: "step" or "zero_grad" of an optimizer around it, or "". tags: see `BY_TAG`.
    """
    if scope:
        return {STEP: "F", ZERO_GRAD: "G"}[scope]
    tagged = (group for tag, group in BY_TAG.items() if tag in tags)
    return _by_name(bare(name)) or next(tagged, UNCLASSIFIED)


@functools.cache
def _by_name(short: str) -> str:
    tabled = BY_NAME.get(short) or BY_KIND.get(kind_of(short) or kind_of(f"aten.{short}"), UNCLASSIFIED)
    return tabled or next((group for pattern, group in PATTERNS if re.search(pattern, short)), UNCLASSIFIED)


def type_of(name: str, scope: str = "", optimizer: str = "") -> str:
    """Return the operation type that a call counts as: one for all backends of a convolution and for all matrix
    products.

    All that an optimizer's step does is one type ("Adam.step"), as an ApplyAdam is in TensorFlow; so is its zero_grad.
    """
    if scope:
        return f"{optimizer or 'optimizer'}.{scope}"
    short = bare(name)
    return TYPES.get(short, short)


COLUMNS_OF_GROUPS: Mapping[str, str] = {
    "A": "Add Sub Mul Div Pow Softmax",
    "B": "MatMul",
    "C": "CrossEntropy MaxPoolGrad Sum",
    "D": "Conv2D Conv2DBackFilter Conv2DBackInput",
    "E": "RandomNormal",
    "F": "ApplyAdam ApplyRMSProp",
    "G": "Transpose Tile Select Pad Reshape Shape Concat",
}
"""Group → its columns in the paper's Figure 3, which has no column for time outside of operations (our H)."""


@functools.cache
def figure3() -> dict[str, dict[str, int]]:
    """Return workload → operation type → per cent of its training time, from `fathom_figure3.csv`.

    The paper's tool cuts each cell down to a whole per cent, so that rows sum to 94 to 99. As printed, seq2seq's data
    movement reads Tile 3, Select 20, Reshape 1, though its graph has no Select; the file has the run shifted by one
    column: Transpose 3, Tile 20, Pad 1. All is group G; the merge of seq2seq and memnet moves from 0.23 to 0.11.
    """
    with Path(__file__).with_name("fathom_figure3.csv").open(encoding="utf-8", newline="") as file:
        return {row.pop("workload"): {name: int(cell) for name, cell in row.items()} for row in csv.DictReader(file)}


def figure3_groups() -> dict[str, dict[str, int]]:
    """Return workload → group → per cent, the sums of the printed cells."""
    return {
        workload: {group: sum(cells[name] for name in names.split()) for group, names in COLUMNS_OF_GROUPS.items()}
        for workload, cells in figure3().items()
    }
