"""Tests of the tests: cleaning of recordings is spoilt in turn, and the check that should notice must fail.

A row: what is spoilt, how, and the check. Without the change every check passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from analysis.trace import conv_inference, kernel_names
from cleaning.counts.sums import known_sum
from cleaning.trace import clean as trace_clean
from cleaning.trace import counts as trace_counts
from cleaning.trace import double_counts, expected_flop, recorded_flop, undercounts
from cleaning.trace import frames as trace_frames
from cleaning.trace import instances as trace_instances
from cleaning.trace import totals as trace_totals
from cleaning.trace import witnesses as trace_witnesses
from reports.trace import lines
from reports.trace import text as trace_text
from tests.analysis.trace import test_inferred, test_kernel_names
from tests.cleaning.trace import test_clean_traces, test_trace_witnesses
from tests.reports.trace import test_trace_report

Function = Callable[..., Any]


def always(value: Any) -> Function:
    """A function that says one thing, whatever it is asked."""
    return lambda *args, **kwargs: value


def doubled_room(product: Any) -> dict[int, int]:
    return {unit: 2 * flop for unit, flop in ROOM(product).items()}


def by_time_alone(part: Any, trial: bool, at: int) -> tuple[int, int]:
    return -part.time_ns, at


def whole_operation(product: Any, part: Any, place: int) -> int:
    """Without groups."""
    return CONVOLUTION(replace(product, groups=1), part, place)


def first_kernel(parts: Any, mine: Any, lacking: int) -> int:
    return int(mine[0])


def over_all_kernels(rates: Any) -> float:
    """A rate over the time of all kernels, those without a count too."""
    return float(sum(rate.flop / rate.peak_flop_per_s for rate in rates) / 44e-3)


def any_of_them(call: Any, spoken: Any) -> frozenset[int]:
    """Without agreement: what the first one says."""
    return next((counts for counts in spoken if counts), frozenset())


def remembered(sizing: Any, at: int) -> int | None:
    """Without the calls inside in the key: equal operands, equal count."""
    key = (sizing._calls.names[at], sizing._calls.column("input_shapes")[at])
    known: dict[Any, int | None] = sizing.__dict__.setdefault("remembered", {})
    return known[key] if key in known else known.setdefault(key, INSIDE(sizing, at))


INSIDE = expected_flop.Sizing._flop_inside
ROOM, CONVOLUTION = double_counts._room, recorded_flop._convolution
STANDS_IN = {"forward_flop": ("forward",), "backward_flop": ("backward",), "recompute_flop": ("recompute",)}

tiles = partial(test_clean_traces.test_fft_tiles_count_once, 112, 16)
last = partial(test_clean_traces.test_the_run_is_what_comes_last)
unlisted = partial(
    test_clean_traces.test_a_kernel_that_pyprof_does_not_know, test_clean_traces.AMPERE, "unlisted_kernel"
)
pieces = partial(
    last,
    [
        *test_clean_traces.fft(4),
        test_clean_traces.IM2COL,
        test_clean_traces.EXPLICIT,
        test_clean_traces.IM2COL,
        test_clean_traces.EXPLICIT,
    ],
    4,
)
halves = partial(
    last,
    [test_clean_traces.IMPLICIT, *test_clean_traces.fft(4), *test_clean_traces.fft(4)],
    len(test_clean_traces.fft(4)),
)
unknown_operator = partial(
    test_clean_traces.test_an_operator_that_is_not_known_and_makes_products_is_a_call_without_a_count, "FlashAttnFunc"
)
nameless = test_clean_traces.test_kernels_of_a_product_without_a_count_are_unexplained_whatever_their_names
no_ratio = test_trace_report.test_a_total_with_an_unknown_part_is_at_least_and_has_no_ratio_in_the_text
own_time = test_trace_report.test_a_rate_is_over_the_kernels_of_the_calls_that_are_counted_and_says_how_much_that_is
alone = partial(
    last,
    [
        *test_clean_traces.fft(4),
        test_clean_traces.OFFSETS,
        test_clean_traces.SCUDNN,
        test_clean_traces.AMPERE,
        test_clean_traces.OFFSETS,
        test_clean_traces.SCUDNN,
    ],
    2,
)

ROWS: list[tuple[Any, str, Any, Function]] = [
    (kernel_names, "FFT_TILE", 31, partial(test_kernel_names.test_tiles, 30, 3, 1)),
    (double_counts, "_room", doubled_room, tiles),
    (double_counts, "_preference", by_time_alone, test_clean_traces.test_a_split_k_reduction_is_no_second_product),
    (double_counts, "_trials", always(frozenset()), test_clean_traces.test_trials_leave_count_and_time),
    (double_counts, "_many_algorithms", always(False), test_clean_traces.test_eighty_one_tiles_and_two_trials),
    (double_counts, "_is_foreign", always(False), test_clean_traces.test_the_number_of_a_bias_is_not_the_products),
    (double_counts, "AFTER", re.compile("$x"), pieces),
    (double_counts, "IN_PIECES", "", pieces),
    (double_counts, "IN_PIECES", "fft", halves),
    (double_counts, "LAST_ALONE", (), alone),
    (
        recorded_flop,
        "GRADIENTS_OF_LINEAR",
        3,
        test_clean_traces.test_the_gradients_of_a_linear_layer_are_its_first_two_kernels,
    ),
    (recorded_flop, "pyprof_linear", always(True), test_clean_traces.test_a_linear_layer_by_a_kernel_of_today),
    (
        recorded_flop,
        "RULES",
        {"convolution": whole_operation},
        test_clean_traces.test_groups_one_kernel_each_are_right_and_fewer_are_too_few,
    ),
    (
        trace_frames,
        "SAME_LAUNCH",
        ("process", "correlation"),
        test_clean_traces.test_kernels_of_a_graph_share_a_launch_and_are_no_doubles,
    ),
    (
        trace_instances,
        "twins",
        lambda kernels: kernels["index"].to_numpy() < 0,
        test_clean_traces.test_rows_of_a_launch_that_a_join_doubled,
    ),
    (trace_instances, "GRADIENTS", ("?", "?"), test_clean_traces.test_a_unit_cannot_take_the_place_of_the_other),
    (
        trace_instances,
        "_first",
        always(frozenset()),
        test_clean_traces.test_a_gradient_without_sizes_has_those_of_its_forward_call,
    ),
    (trace_instances, "_out_of_time", always(set()), test_clean_traces.test_trials_leave_count_and_time),
    (
        undercounts,
        "_receiver",
        first_kernel,
        test_clean_traces.test_of_several_the_longest_that_makes_products_is_repaired,
    ),
    (undercounts, "_reason", always("unknown_kernel"), unlisted),
    (undercounts, "_order", always([undercounts.UNTOLD]), test_clean_traces.test_both_units_without_a_number),
    (expected_flop, "BOTH", 1, test_clean_traces.test_a_gradient_without_sizes_has_those_of_its_forward_call),
    (
        expected_flop,
        "_mask_gradients",
        always(None),
        test_clean_traces.test_each_unit_is_repaired_on_a_kernel_of_its_own,
    ),
    (
        expected_flop,
        "gradients_asked",
        always(None),
        test_clean_traces.test_the_calls_inside_tell_which_gradients_were_asked_for,
    ),
    (trace_witnesses, "grad_output", always(None), test_clean_traces.test_old_recordings_without_settings),
    (
        trace_witnesses,
        "by_order",
        always({}),
        test_trace_witnesses.test_gradients_without_numbers_belong_in_reverse_order,
    ),
    (
        trace_witnesses,
        "_is_pooled",
        always(True),
        test_trace_witnesses.test_a_pooling_call_does_not_explain_a_larger_tensor,
    ),
    (trace_witnesses.Takers, "after", always(((), ())), test_clean_traces.test_the_next_call_tells_what_came_out),
    (trace_witnesses.Outputs, "_inside", always(()), test_trace_witnesses.test_witnesses_that_agree),
    (
        expected_flop.Sizing,
        "_flop_inside",
        always(None),
        test_trace_witnesses.test_products_inside_tell_how_many_gradients,
    ),
    (
        expected_flop.Sizing,
        "_flop_inside",
        remembered,
        test_trace_witnesses.test_equal_calls_are_counted_by_what_is_inside_each,
    ),
    (
        conv_inference,
        "_common",
        any_of_them,
        test_trace_witnesses.test_a_gradient_that_contradicts_the_next_call_gives_no_count,
    ),
    (trace_clean, "PHASES", STANDS_IN, test_clean_traces.test_totals_by_phase),
    (
        trace_clean,
        "lacks_kernels",
        always(False),
        test_clean_traces.test_a_call_that_launched_nothing_counts_and_no_kernel_does,
    ),
    (trace_totals, "makes_products", always(True), test_clean_traces.test_without_sizes_the_gap_stays_and_is_told),
    (
        trace_totals,
        "whole_sum",
        known_sum,
        test_clean_traces.test_one_call_without_a_count_is_enough_in_its_phase_alone,
    ),
    (trace_totals, "kind_of_call", always("matmul"), unknown_operator),
    (trace_totals, "_nameless", always(()), nameless),
    (trace_totals, "says_nothing", always(False), nameless),
    (
        trace_counts,
        "is_product",
        always(False),
        test_clean_traces.test_a_product_of_which_the_recording_counts_a_part_has_no_count,
    ),
    (trace_counts, "TENSOR_UNITS", re.compile("$x"), test_clean_traces.test_counters_of_fp32_do_not_see_tensor_units),
    (trace_text, "whole_sum", known_sum, no_ratio),
    (lines, "overall_ratio", over_all_kernels, own_time),
    (conv_inference, "_fits", always(True), test_inferred.test_a_later_tensor_that_cannot_come_out_is_left_out),
    (conv_inference, "can_come_out", always(True), test_inferred.test_a_later_tensor_that_cannot_come_out_is_left_out),
]
"""Module, name, what takes its place, check."""


@pytest.mark.parametrize(
    ("module", "name", "spoilt", "check"), ROWS, ids=[f"{row[0].__name__.split('.')[-1]}.{row[1]}" for row in ROWS]
)
def test_a_spoilt_step_is_noticed(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, spoilt: Any, check: Function
) -> None:
    check()
    monkeypatch.setattr(module, name, spoilt)
    with pytest.raises(AssertionError):
        check()
