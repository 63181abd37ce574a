"""The four stages that place an operation in a group, one by one, and that nothing recorded is left without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.characterize.fathom_groups import FATHOM, GROUPS, bare, group_of, type_of
from analysis.operators.registry import KINDS

EXPECTED = {
    "A": "aten::add_ aten::mul aten::relu aten::sigmoid_backward aten::_softmax aten::_softmax_backward_data "
    "aten::_thnn_fused_lstm_cell aten::threshold_backward aten::tanh aten::greater_equal",
    "B": "aten::mm aten::addmm aten::bmm aten::linear aten::matmul aten::mkldnn_rnn_layer aten::_cudnn_rnn_backward "
    "aten::_scaled_dot_product_flash_attention_for_cpu aten::_scaled_mm",
    "C": "aten::sum aten::mean aten::argmax aten::topk aten::cumsum aten::_log_softmax aten::nll_loss_forward "
    "aten::_ctc_loss aten::max_pool2d_with_indices_backward aten::native_batch_norm aten::native_layer_norm_backward "
    "aten::_embedding_bag aten::linalg_vector_norm aten::_foreach_norm aten::_linalg_svd "
    "aten::_log_softmax_backward_data aten::pairwise_distance aten::stft aten::unique_consecutive",
    "D": "aten::conv2d aten::convolution aten::_convolution aten::mkldnn_convolution aten::convolution_backward "
    "aten::cudnn_convolution aten::_slow_conv2d_forward",
    "E": "aten::normal_ aten::bernoulli_ aten::native_dropout aten::native_dropout_backward aten::randn",
    "F": "aten::_fused_adam_ aten::_amp_update_scale_",
    "G": "aten::copy_ aten::cat aten::where aten::masked_fill_ aten::embedding aten::embedding_dense_backward "
    "aten::index_add_ aten::view aten::t aten::fill_ aten::empty aten::_foreach_zero_ aten::upsample_nearest2d "
    "aten::cudnn_is_acceptable aten::broadcast_tensors aten::_pack_sequence",
}
"""Group → names, by the operation table of the facts that this was built from (PyTorch's names for Fathom's)."""


@pytest.mark.parametrize(("group", "names"), EXPECTED.items())
def test_every_name_of_the_table_is_in_its_group(group: str, names: str):
    assert {name: group_of(name).group for name in names.split()} == dict.fromkeys(names.split(), group)


def test_the_scope_comes_before_the_name():
    assert group_of("aten::mul_", "step").group == "F"
    assert group_of("aten::mm", "step").stage == "scope"
    assert group_of("aten::zero_", "zero_grad").group == "G"
    assert group_of("aten::mul_").group == "A"


def test_the_table_comes_before_tags_that_say_otherwise():
    assert group_of("aten::where", tags=("pointwise",)) == group_of("aten::where")
    assert group_of("aten::_flash_attention_forward", tags=("nondeterministic_seeded",)).group == "B"


def test_patterns_and_tags_take_what_no_table_has():
    assert (group_of("aten::conv_of_next_year").group, group_of("aten::conv_of_next_year").stage) == ("D", "pattern")
    assert group_of("aten::_convert_something").stage == ""  # no convolution
    assert (group_of("mylib::spin", tags=("pointwise",)).group, group_of("mylib::spin", tags=("pointwise",)).stage) == (
        "A",
        "tag",
    )
    assert group_of("mylib::spin", tags=("nondeterministic_seeded", "pointwise")).group == "E"
    assert group_of("mylib::spin").group == ""


def test_every_kind_has_a_group_and_every_group_a_name():
    assert set(FATHOM.by_kind) == set(KINDS)
    assert set(FATHOM.by_kind.values()) | set(FATHOM.by_name.values()) <= set(GROUPS)


def test_nothing_that_training_steps_called_is_unclassified():
    """Names that training steps of all kinds of models dispatched under two versions of PyTorch (in tests/)."""
    lines = (Path(__file__).parents[2] / "data/operation_names.txt").read_text(encoding="utf-8").splitlines()
    names = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    unplaced = [name for name in names if not group_of(name).group]
    assert len(names) > 400
    assert unplaced == []


def test_a_choice_can_be_made_otherwise():
    moved = FATHOM.with_places({"softmax": "C", "where": "A"})
    assert group_of("aten::_softmax", grouping=moved).group == "C"
    assert group_of("aten::where", grouping=moved).group == "A"
    assert group_of("aten::mul", grouping=moved).group == "A"
    embedding = FATHOM.with_places({"embedding": "C"})
    assert group_of("aten::embedding_dense_backward", grouping=embedding).group == "C"
    with pytest.raises(ValueError, match="from A to G, got 'H'"):
        FATHOM.with_places({"softmax": "H"})


def test_types_are_one_for_backends_and_products_and_optimizers():
    assert {type_of(f"aten::{name}") for name in ("conv2d", "_convolution", "mkldnn_convolution")} == {"convolution"}
    assert type_of("aten::convolution_backward") == "convolution_backward"
    assert {type_of(f"aten::{name}") for name in ("mm", "addmm", "bmm", "linear", "matmul")} == {"matmul"}
    assert type_of("aten::add_") == type_of("aten.add") == "add"
    assert type_of("aten::mul_", "step", "Adam") == "Adam.step"
    assert bare("torchvision::nms") == "torchvision.nms"
    assert bare("aten::__iand__") == "__iand__"
