"""Definition, law: shares, costs and groups of operations by hand; a preempted step changes no share."""

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.characterize.fathom_groups import group_of
from analysis.characterize.operation_mix import mix, types_for
from analysis.characterize.parallelism import parallelism
from analysis.characterize.summary import (
    group_costs,
    reconstructed,
    training_against_inference,
)
from results.records.characterization import PROFILED, AloneTime
from tests.support.made_up.made_up_characterization import NET, recording, rows, together


def test_shares_are_the_chosen_ones_and_add_up():
    found = mix(rows(recording(0, "net"), NET), recording(0, "net"))
    ratios = {group: share.ratio for group, share in found.groups.items()}
    assert ratios == pytest.approx({"A": 0.05, "B": 0.2, "C": 0, "D": 0.6, "E": 0, "F": 0.05, "G": 0, "H": 0.1})
    assert sum(ratios.values()) + found.unclassified_ratio == pytest.approx(1)
    assert [one.name for one in found.types] == [
        "convolution_backward", "convolution", "matmul", "Adam.step", "relu", "between operations",
    ]  # fmt: skip
    assert (found.dominant, found.steps, found.profiled_s) == ("D", 10, pytest.approx(0.01))


def test_the_first_and_last_step_and_a_preempted_one_change_no_share():
    data = rows(recording(0, "net"), NET, scale=[50] + [1] * 10 + [50])
    slow = data.times[len(NET) * 5]  # one convolution in one step took 100 times as long
    times = tuple(
        one if one is not slow else type(one)(**{**vars(one), "time_s": one.time_s * 100}) for one in data.times
    )
    found = mix(type(data)(data.recordings, data.steps, times), recording(0, "net"))
    assert found.groups["D"].ratio == pytest.approx(0.6)
    assert found.groups["B"].ratio == pytest.approx(0.2)
    assert found.groups["D"].high >= 0.6
    assert mix(rows(recording(0, "net"), NET, steps=12), recording(9, "net")) is None


def test_types_for_a_part():
    assert types_for([0.5, 0.3, 0.15, 0.05]) == 3
    assert types_for([0.9, 0.1]) == 1
    assert types_for([1] * 10) == 9
    assert types_for([0.2, 0.8], 0.5) == 1
    assert types_for([1, 3], 0.75) == 1
    assert types_for([0, 0]) is None


@pytest.mark.parametrize(
    ("workload", "expected"),
    [("speech", 2), ("residual", 3), ("vgg", 3), ("seq2seq", 4), ("alexnet", 4), ("deepq", 4), ("autoenc", 6),
     ("memnet", 7)],
)  # fmt: skip
def test_the_papers_rows_need_as_many_types_as_counted_by_hand(workload: str, expected: int):
    """Of what is printed, as in memnet's 33 + 13 + 12 + 9 + 9 + 5 + 4 = 85 of 94."""
    from analysis.characterize.fathom_groups import figure3

    assert types_for(figure3()[workload].values()) == expected


def test_inference_is_told_against_training_on_the_cpu():
    found = {(each["workload"], each["mode"]): each for each in training_against_inference(together())}
    assert found["net", "training"]["ratio"] == 1
    assert found["net", "inference"]["ratio"] == pytest.approx(4.5 / 10)  # 2 + 1 + 0.5 forward, 1 between
    assert found["talk", "training"]["step_s"] == pytest.approx(0.01)


def test_half_the_operations_time_at_two_threads_is_no_serial_share():
    found = {each.name: each for each in parallelism(together())}
    convolution = found["convolution_backward"].law
    assert convolution.serial_ratio == pytest.approx(0, abs=1e-9)
    step = found["step"].law
    assert step.serial_ratio == pytest.approx(0.1)  # 1 of 10 lies between, the same at both


def test_a_group_with_a_call_that_has_no_formula_has_no_flop():
    data = together()
    first, second = data.costs
    unknown = replace(first, kind="", model_flop=0, other_flop=0, calls=3)
    found = group_costs(replace(data, costs=(unknown, first, second)), {})
    (partial,) = [each for each in found if each["unknown_calls"]]
    assert (partial["unknown_calls"], partial["model_flop"], partial["other_flop"]) == (3, None, None)
    assert (partial["flop_per_byte"], partial["flop_per_s"]) == (None, None)
    counted = sum(row.model_flop + row.other_flop for row in (first, second))
    assert sum(each["at_least_flop"] for each in found) == counted


def test_costs_by_group_are_sums_and_the_optimizer_is_f():
    found = {each["group"]: each for each in group_costs(together(), {})}
    assert set(found) == {"D", "F"}
    assert (found["D"]["at_least_flop"], found["D"]["bytes"], found["D"]["flop_per_s"]) == (100, 50, 50)
    assert (found["F"]["calls"], found["F"]["flop_per_byte"], found["F"]["bytes_per_s"]) == (2, 0.5, 20)


def test_a_step_is_not_put_together_of_a_part_of_its_calls():
    """Alone: D's two calls take 3 s each, a call without a group 1 s; a call that could not be run again leaves D and
    the whole with a lower bound, and no ratio."""
    data = together()
    alone = (
        AloneTime(recording=0, name="aten.convolution", phase="forward", calls=2, time_s=3.0),
        AloneTime(recording=0, name="mylib.spin", phase="forward", calls=1, time_s=1.0),
    )
    whole = {each["group"]: each for each in reconstructed(replace(data, alone_times=alone))}
    assert (whole["D"]["alone_s"], whole[""]["alone_s"], whole["all"]["alone_s"], whole["all"]["calls"]) == (6, 1, 7, 3)
    assert whole["all"]["step_ratio"] == pytest.approx(7 / 0.01)  # a step of 10 ms, as all of the made-up workload
    lost = (*alone, AloneTime(recording=0, name="aten.convolution", phase="backward", calls=4))
    part = {each["group"]: each for each in reconstructed(replace(data, alone_times=lost))}
    for group, at_least_s in (("D", 6), ("all", 7)):
        each = part[group]
        assert (each["alone_s"], each["at_least_alone_s"], each["untimed"]) == (None, at_least_s, 4)
        assert (each["ratio"], each["step_ratio"]) == (None, None)
    assert part[""]["alone_s"] == 1
    unprofiled = replace(data, alone_times=alone, steps=tuple(step for step in data.steps if step.part != PROFILED))
    assert {(each["recorded_s"], each["ratio"]) for each in reconstructed(unprofiled)} == {(None, None)}


def test_what_part_of_the_peaks_a_groups_products_reach():
    """100 FLOP at a peak of 100 a second and 50 at 25 would take 3 s of the 2 + 4 that they took; of a unit without a
    peak, and of a group without products, nothing is known."""
    data = together()
    first, second = data.costs
    mixed = (replace(first, unit="fp32"), replace(first, unit="bf16", model_flop=50, time_s=4), second)
    both, one, none = (
        {row["group"]: row["utilization_ratio"] for row in group_costs(replace(data, costs=mixed), peaks)}
        for peaks in ({"fp32": 100.0, "bf16": 25.0}, {"fp32": 100.0}, {"fp32": 100.0, "": 1.0})
    )
    assert both["D"] == pytest.approx(0.5)
    assert (one["D"], none["F"]) == (None, None)


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
    assert {name: group_of(name) for name in names.split()} == dict.fromkeys(names.split(), group)


def test_the_scope_comes_before_the_name():
    assert group_of("aten::mul_", "step") == "F"
    assert group_of("aten::zero_", "zero_grad") == "G"
    assert group_of("aten::mul_") == "A"


def test_nothing_that_training_steps_called_is_unclassified():
    """Names that training steps of all kinds of models dispatched under two versions of PyTorch (in tests/)."""
    lines = (Path(__file__).parents[2] / "data/operation_names.txt").read_text(encoding="utf-8").splitlines()
    names = [line.split()[0] for line in lines if line.strip() and not line.startswith("#")]
    unplaced = [name for name in names if not group_of(name)]
    assert len(names) > 400
    assert unplaced == []
