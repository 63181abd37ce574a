"""Tests of the tests: cleaning of profiles is spoilt in turn, and the check that should notice must fail.

A row: where, what, how it is spoilt, and the check. Without the change every check passes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from analysis.operators import products as operators_products
from analysis.trace import operations, output_shapes, signatures
from analysis.trace.operations import floating_dtype
from analysis.utilization import numerators
from cleaning.profile import clean as profile_clean
from cleaning.profile import double_counts, instances, undercounts
from cleaning.reconcile import backward_ratio
from results.records import ProfiledOperation
from tests.analysis.trace import test_recorded
from tests.cleaning.profile import test_clean_profiles
from tests.cleaning.reconcile import test_ratios
from tests.support.oracles.naive import Convolution

Function = Callable[..., Any]

CASE = Convolution(2, 2, 1, 2, (5, 4), (3, 2), (2, 1), (1, 1), (1, 2), (0, 0), False)
"""2 images, 2 groups of 1 → 2 channels, unequal in every dimension."""


# --- spoilt ----------------------------------------------------------------------------------------------------------


def doubled(function: Function) -> Function:
    """Twice the number."""
    return lambda *args, **kwargs: function(*args, **kwargs) * 2


def last_lost(function: Function) -> Function:
    """The last record is dropped."""
    return lambda *args, **kwargs: function(*args, **kwargs)[:-1]


def nothing(_function: Function) -> Function:
    """Silently zero."""
    return lambda *args, **kwargs: 0


def unchanged(_function: Function) -> Function:
    """A step that does nothing."""
    return lambda products: profile_clean.Outcome(products)


def other_mask(function: Function) -> Function:
    """The gradients of weight and bias swapped."""
    return lambda forward, numel, mask: function(forward, numel, (mask[0], mask[2], mask[1]))


def whole_mask(function: Function) -> Function:
    """Both gradients, whatever was asked for: a rule of thumb."""
    return lambda forward, numel, mask: function(forward, numel, (True, True, mask[2]))


def without_groups(_function: Function) -> Function:
    """The channels of both groups for each output."""
    return lambda out, weight, bias=False: operators_products.multiply_adds(out * 2 * weight[1] * weight[2] * weight[3])


def without_dilation(function: Function) -> Function:
    """A window that is never spread."""
    return lambda size, kernel, stride, padding, dilation: function(size, kernel, stride, padding, 1)


def one_padding(function: Function) -> Function:
    """Padding on one side only."""
    return lambda size, kernel, stride, padding, dilation: function(size - padding, kernel, stride, padding, dilation)


def innermost(_function: Function) -> Function:
    """Of a nest the innermost number stays, summed."""

    def once(node: Any) -> int:
        return sum(once(child) for child in node.children) or double_counts.number_of(node) or 0

    return once


def everything(_function: Function) -> Function:
    """Scalar arithmetic inside of a product is taken for its multiply-adds."""
    return lambda node: node.call.found_flop


def first_call(_function: Function) -> Function:
    """The dtype of the outer call, before autocast casts."""
    return lambda node: floating_dtype(node.call.input_shapes, node.call.input_dtypes)


def unchecked(original: Function) -> Function:
    """Whether a numerator is whole is not asked."""
    return lambda *_: None


def known_only(_function: Function) -> Function:
    """An unknown count is left out of a sum."""
    return lambda values: sum(value or 0 for value in values)


def no_last(function: Function) -> Function:
    """The epoch's last batch is forgotten."""
    return lambda run: {work: times for work, times in function(run).items() if work == "batch"}


def round_up(function: Function) -> Function:
    """The epoch's last batch is taken for a full one."""
    return lambda run: {"batch": -(-run.epoch_images // run.batch_size)}


def swapped(table: Any) -> Any:
    """oneDNN's padding and stride in the order of the front end."""
    (form,) = table["mkldnn_convolution"]
    names = {"padding": "stride", "stride": "padding"}
    spoilt = dataclasses.replace(form, arguments=tuple(names.get(a, a) for a in form.arguments))
    return {**table, "mkldnn_convolution": (spoilt,)}


def careless(table: Any) -> Any:
    """A mask that was not recorded is taken for all gradients."""
    (form,) = table["convolution_backward"]
    spoilt = dataclasses.replace(form, needs=(), fixed={"output_mask": (True, True, True), "transposed": False})
    return {**table, "convolution_backward": (spoilt,)}


# --- checks ----------------------------------------------------------------------------------------------------------


def a_convolution() -> None:
    test_recorded.test_a_convolution_counts_its_taps_and_has_torchs_output.hypothesis.inner_test(CASE, True)  # type: ignore[attr-defined]


def its_gradients() -> None:
    inner = test_recorded.test_gradients_of_a_convolution_count_by_mask.hypothesis.inner_test  # type: ignore[attr-defined]
    for mask in ((True, True, False), (False, True, False), (True, False, True)):
        inner(CASE, mask)


def backends() -> None:
    test_recorded.test_backends_take_their_settings_in_another_order.hypothesis.inner_test(CASE, False)  # type: ignore[attr-defined]


def a_missing_mask() -> None:
    try:
        test_recorded.test_gradients_without_a_mask_are_not_guessed_at()
    except pytest.fail.Exception as fault:
        raise AssertionError(str(fault)) from fault


def a_recording(name: str) -> Function:
    return lambda: test_clean_profiles.test_a_real_recording_cleaned_is_what_our_own_trace_counts(name)


def some_calls() -> list[ProfiledOperation]:
    """A product told twice, one side by side with another, and one beside them."""
    mm = test_clean_profiles.mm
    return [mm(2, 3, 4, 0), mm(2, 3, 4, 1, parent=0), mm(1, 2, 3, 2, parent=0, found_flop=None), mm(2, 2, 2, 3)]


def conserved() -> None:
    for law in (
        test_clean_profiles.test_every_call_is_a_product_inside_of_one_or_none,
        test_clean_profiles.test_cleaning_keeps_every_product_and_logs_every_change,
    ):
        law.hypothesis.inner_test(some_calls())  # type: ignore[attr-defined]


def from_shapes_alone() -> None:
    law = test_clean_profiles.test_cleaned_counts_come_from_shapes_alone.hypothesis.inner_test  # type: ignore[attr-defined]
    law(some_calls(), [5, None, 7, 0])
    assert [row.cleaned_flop for row in test_clean_profiles.clean(*some_calls())] == [48, 16]


MUTATIONS: tuple[tuple[Any, str, Function, Function], ...] = (
    (operators_products, "convolution", doubled, a_convolution),
    (operators_products, "convolution", without_groups, a_convolution),
    (operators_products, "multiply_adds", doubled, from_shapes_alone),
    (operators_products, "convolution_backward", other_mask, its_gradients),
    (operators_products, "convolution_backward", whole_mask, its_gradients),
    (operators_products, "convolution_backward", whole_mask, test_clean_profiles.test_a_small_cnn_product_by_product),
    (output_shapes, "window", without_dilation, a_convolution),
    (output_shapes, "window", one_padding, a_convolution),
    (operations, "_ALL", swapped, backends),
    (operations, "_ALL", careless, a_missing_mask),
    (instances, "number_of", everything, test_clean_profiles.test_calls_side_by_side_add_up),
    (instances, "_dtype", first_call, test_clean_profiles.test_autocast_counts_convolutions_twice_and_casts_inside),
    (profile_clean, "instances", last_lost, a_recording("small")),
    (double_counts, "outermost_count", innermost, test_clean_profiles.test_the_outermost_level_with_a_number_counts),
    (double_counts, "outermost_count", doubled, test_clean_profiles.test_calls_side_by_side_add_up),
    (undercounts, "product_flop", doubled, a_recording("small")),
    (undercounts, "product_flop", nothing, a_recording("cnn")),
    (undercounts, "product_flop", nothing, from_shapes_alone),
    (
        numerators,
        "_check_whole",
        unchecked,
        test_clean_profiles.test_a_numerator_holds_all_products_of_its_work_or_is_none,
    ),
    (profile_clean, "whole_sum", known_only, test_clean_profiles.test_one_unknown_product_makes_its_phase_unknown),
    (profile_clean, "epoch_parts", no_last, test_clean_profiles.test_an_epoch_is_its_full_batches_and_the_last),
    (profile_clean, "epoch_parts", round_up, test_clean_profiles.test_an_epoch_is_its_full_batches_and_the_last),
    (backward_ratio, "epoch_parts", round_up, test_ratios.test_an_epoch_weighs_its_batches),
    (backward_ratio, "whole_sum", known_only, test_ratios.test_one_unknown_product_makes_its_ratio_unknown),
)


@pytest.mark.parametrize(
    ("module", "name", "mutation", "check"),
    MUTATIONS,
    ids=[f"{name}-{mutation.__name__}-{i}" for i, (_, name, mutation, _) in enumerate(MUTATIONS)],
)
def test_a_spoilt_function_is_noticed(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, mutation: Function, check: Function
) -> None:
    check()
    monkeypatch.setattr(module, name, mutation(getattr(module, name)))
    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize("lost", range(len(profile_clean.PROFILE_STEPS)))
def test_a_lost_step_is_noticed(monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    """Each of the steps is needed by some check."""
    steps = tuple(
        (name, unchanged(step) if i == lost else step) for i, (name, step) in enumerate(profile_clean.PROFILE_STEPS)
    )
    checks = (
        test_clean_profiles.test_the_outermost_level_with_a_number_counts,
        test_clean_profiles.test_what_is_unknown_stays_unknown_with_its_reason,
        test_clean_profiles.test_products_of_other_phases_are_kept_and_said_to_be_none_of_the_step,
    )
    checks[lost]()
    monkeypatch.setattr(profile_clean.clean_instances, "__defaults__", (steps,))
    with pytest.raises(AssertionError):
        checks[lost]()


@pytest.mark.parametrize("name", ["aten::convolution_backward", "aten::mm"])
def test_a_product_that_is_lost_is_noticed(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Those that have no other product inside; of the rest the one inside takes its place."""
    known = instances.is_product
    monkeypatch.setattr(instances, "is_product", lambda asked: asked != name and known(asked))
    with pytest.raises(AssertionError):
        a_recording("cnn")()


def test_a_front_ends_name_that_is_lost_changes_no_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """aten::conv2d and aten::linear unknown: aten::convolution and aten::addmm inside of them are counted."""
    known = instances.is_product
    monkeypatch.setattr(instances, "is_product", lambda a: a not in ("aten::conv2d", "aten::linear") and known(a))
    a_recording("cnn")()


def test_the_tables_are_not_changed_by_these_tests() -> None:
    assert operations._ALL == {**signatures.FORMS, **signatures.GONE}
