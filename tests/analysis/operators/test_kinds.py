"""Definition, law, injected fault: kinds and buckets of operators; one layer has one cost however it is dispatched.

Operations are made by hand, but for a few real steps at the end.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from analysis.operators import registry
from analysis.operators.cost import Cost
from analysis.operators.names import KINDS
from measure.operations.tracer import trace_step
from tests.support.made_up_operations.made_up_operations import operation

NAMES = [
    line
    for line in (Path(__file__).parents[2] / "data/operation_names.txt").read_text().splitlines()
    if not line.startswith("#")
]

NO_FORMULA = {"aten._linalg_svd", "aten._linalg_eigh", "aten.linalg_matrix_exp"}
"""Names that were seen and that have no formula: iterative, or a choice by norm."""

NOT_EVERYWHERE = {
    "aten.slow_conv2d_forward",  # PyTorch's own name of old
    "aten.cholesky",  # of PyTorch 2.11
    "aten._foreach_mm",
    "aten._foreach_clone",
    "aten._upsample_lanczos2d_aa",
    "aten._upsample_lanczos2d_aa_backward",
}
"""Names in the table that not every supported PyTorch has."""


# --- the table -------------------------------------------------------------------------------------------------------


def test_every_rule_is_in_the_vocabulary() -> None:
    assert {rule.kind for rule in registry.TABLE.values()} == set(KINDS)
    assert {rule.bucket for rule in registry.TABLE.values()} == {"counted", "ignored"}


@pytest.mark.skipif(torch.__version__ < (2, 15), reason="an older torch lacks operations of the newest")
def test_every_name_is_an_operation() -> None:
    """A misspelt name would understand nothing. An in-place operation is listed under its bare name."""
    known = {schema.name.replace("::", ".") for schema in torch._C._jit_get_all_schemas()}
    listed = {name for name in registry.TABLE if name.startswith("aten.")}
    assert {name for name in listed if name not in known and f"{name}_" not in known} <= NOT_EVERYWHERE


def test_operations_seen_in_training_are_understood() -> None:
    assert len(NAMES) > 400
    assert {name for name in NAMES if registry.bucket_of(name) == "not_understood"} == NO_FORMULA


@pytest.mark.parametrize(
    ("name", "kind", "bucket"),
    [
        ("aten.convolution", "convolution", "counted"),
        ("aten.cudnn_convolution", "convolution", "counted"),
        ("torchvision.deform_conv2d", "convolution", "counted"),
        ("aten.addmm_", "matmul", "counted"),
        ("aten._scaled_dot_product_cudnn_attention_backward", "attention", "counted"),
        ("aten._thnn_fused_lstm_cell", "recurrent", "counted"),
        ("aten.embedding", "embedding", "ignored"),
        ("aten.embedding_dense_backward", "embedding", "counted"),
        ("aten.native_layer_norm", "normalization", "counted"),
        ("aten.relu_", "activation", "counted"),
        ("aten._log_softmax", "softmax", "counted"),
        ("aten.max_pool2d_with_indices_backward", "pooling", "counted"),
        ("aten.sum", "reduction", "counted"),
        ("aten.add_", "elementwise", "counted"),
        ("aten.nll_loss_forward", "loss", "counted"),
        ("aten.native_dropout", "random", "counted"),
        ("aten.bernoulli_", "random", "ignored"),
        ("aten._to_copy", "copy", "ignored"),
        ("aten.permute", "view", "ignored"),
        ("aten._foreach_addcdiv_", "optimizer", "counted"),
        ("aten._fused_adamw_", "optimizer", "counted"),
        ("c10d.allreduce_", "communication", "counted"),
        ("mine.secret", "", "not_understood"),
    ],
)
def test_kind_and_bucket(name: str, kind: str, bucket: str) -> None:
    assert (registry.kind_of(name), registry.bucket_of(name)) == (kind, bucket)


def test_a_record_that_lacks_a_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r"aten\.convolution at index 0: expected a tensor weight, got input"):
        registry.cost(operation("aten.convolution", {"input": (1, 2, 3)}, [(1, 2, 3)]))
    with pytest.raises(ValueError, match="expected the attribute kernel_size"):
        registry.cost(operation("aten.avg_pool2d", {"self": (1, 2, 4, 4)}, [(1, 2, 2, 2)]))


# --- real steps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [2, 4])
def test_the_fast_path_costs_what_the_slow_one_does(heads: int) -> None:
    """One fused operation in evaluation without gradients, a dozen with: the same layer, the same count."""
    layer = nn.TransformerEncoderLayer(16, heads, 32, batch_first=True, activation="gelu").eval()
    x = torch.randn(2, 5, 16)

    def forward(mark: Any) -> None:
        mark("forward")
        layer(x)

    slow = trace_step(forward, model=layer, steps_before=0).operations
    with torch.no_grad():
        fast = trace_step(forward, model=layer, steps_before=0).operations
    assert [op.name for op in fast] == ["aten._transformer_encoder_layer_fwd"]
    costs = [registry.total(operations) for operations in (slow, fast)]
    assert costs[0].model_flop == costs[1].model_flop > 0
    assert costs[0].other_flop == costs[1].other_flop


def test_not_understood_is_listed_and_has_bytes_only() -> None:
    known = operation("aten.relu", {"self": (4,)}, [(4,)])
    unknown = operation("mine.secret", {"x": (4,)}, [(4,)])
    assert registry.unsupported([unknown, known, unknown]) == {"mine.secret": 2}
    assert registry.cost(unknown) == Cost(0, 0, 16, 16)
    assert registry.total([unknown, known]) == Cost(0, 4, 32, 32)


@pytest.mark.parametrize("layer", [nn.LSTM(5, 6), nn.GRU(5, 6, 2), nn.RNN(5, 6, bidirectional=True)], ids=repr)
def test_recurrent_layers_in_inference_mode_cost_their_parts(layer: nn.Module) -> None:
    """In inference mode torch dispatches the layer, which is recorded by its parts."""
    x = torch.randn(7, 3, 5)

    def forward(mark: Any) -> None:
        mark("forward")
        layer(x)

    parts = registry.total(trace_step(forward, model=layer, steps_before=0).operations)
    with torch.inference_mode():
        whole = trace_step(forward, model=layer, steps_before=0).operations
    assert registry.total(whole).model_flop == parts.model_flop > 0
