"""Law, definition: cleaned profiles conserve made-up calls, and real ones have the count of our own trace."""

import dataclasses
import functools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.trace.operations import is_product
from analysis.utilization.numerators import profiled
from cleaning.profile import clean_profile, profile_counts
from results.errors import Inconsistent
from results.records.cell import Run
from results.records.counts import CleanedOperation, ProfiledOperation
from tests.support.nets.small_steps import real_trace
from tests.support.recordings.recorded_nets import NETS
from tests.support.recordings.recordings import Tensor, a_run, call, mm, recorded, table_flop

# --- real recordings -------------------------------------------------------------------------------------------------


@functools.cache
def recording(name: str) -> tuple[ProfiledOperation, ...]:
    return recorded(NETS[name])


def cleaned_flop(rows: tuple[CleanedOperation, ...], *phases: str) -> int:
    return sum(row.cleaned_flop for row in rows if row.phase in phases)  # type: ignore[misc]


UNNEEDED = {"lstm": 2 * (2 * 4) * (4 * 4) * 8 + 2 * 2 * 4 * (4 * 4) * 4}
"""FLOP of gradients that one kernel computes though nothing needs them: of the network's input, 2 × 4 tokens of 8, and
of zero states, 2 layers of 4 samples, each a product with 4 gates × 4 hidden."""


@pytest.mark.parametrize("name", NETS)
def test_a_real_recording_cleaned_is_what_our_own_trace_counts(name: str) -> None:
    """Every product has a count, and their sums are those of the dispatcher's table, forward and backward."""
    cleaned = clean_profile(a_run(), recording(name))
    table = real_trace(NETS[name]).operations
    assert {row.verdict for row in cleaned.operations} <= {"right", "over", "under"}
    assert cleaned_flop(cleaned.operations, "forward", "loss") == table_flop(table, "forward", "loss") > 0
    more = UNNEEDED.get(name, 0)
    assert cleaned_flop(cleaned.operations, "backward") == table_flop(table, "backward") + more > more
    forward, backward = profile_counts(
        a_run(), cleaned.operations, lambda phases: table_flop(table, *phases) + more * ("backward" in phases)
    )
    assert (forward.cleaned_flop, backward.cleaned_flop) == (forward.exact_flop, backward.exact_flop)
    assert (forward.status, backward.status, forward.reason, backward.reason) == ("ok", "ok", "", "")


def test_a_small_cnn_product_by_product() -> None:
    """Small: 3 → 4 channels, 3 × 3 over 8 × 8 → 6 × 6, batch 2, no bias; then 4 → 2 features.

    Convolution: 2 · 2·4·36 outputs · 27 taps. Its backward has no gradient of the network's input, so as much again.
    """
    rows = clean_profile(a_run(), recording("small")).operations
    convolution, linear = 2 * 2 * 4 * 36 * 27, 2 * 2 * 4 * 2
    assert [(row.name, row.phase, row.module, row.kind) for row in rows] == [
        ("aten::conv2d", "forward", "conv", "convolution"),
        ("aten::linear", "forward", "fc", "matmul"),
        ("aten::mm", "backward", "fc", "matmul"),
        ("aten::mm", "backward", "fc", "matmul"),
        ("aten::convolution_backward", "backward", "conv", "convolution"),
    ]
    assert [row.found_flop for row in rows] == [convolution, linear, linear, linear, None]
    assert [row.cleaned_flop for row in rows] == [convolution, linear, linear, linear, convolution]
    assert [row.verdict for row in rows] == ["right"] * 4 + ["under"]
    by_index = {row.index: row.name for row in rows}
    assert [by_index.get(row.forward_index, "") for row in rows] == ["", "", *["aten::linear"] * 2, "aten::conv2d"]  # type: ignore[call-overload]


# --- made up forests -------------------------------------------------------------------------------------------------

NAMES = ("aten::mm", "aten::matmul", "aten::relu", "AddmmBackward0", "aten::linear", "aten::_grouped_mm")
size = st.integers(1, 3)


@st.composite
def forests(draw: Any) -> list[ProfiledOperation]:
    """Calls inside one another in any way, with any numbers. Calls of one nest have the sizes of its root, as real
    ones do, but for `_grouped_mm`, which no table knows."""
    calls: list[ProfiledOperation] = []
    sizes: dict[int, tuple[int, int, int]] = {}
    for index in range(draw(st.integers(0, 12))):
        parent = draw(st.none() | st.integers(0, index - 1)) if index else None
        sizes[index] = (draw(size), draw(size), draw(size)) if parent is None else sizes[parent]
        m, k, n = sizes[index]
        name = draw(st.sampled_from(NAMES))
        right = Tensor(n, k) if name == "aten::linear" else Tensor(k, n)
        found = draw(st.none() | st.sampled_from([0, 2 * m * k * n, 7]))
        phase = draw(st.sampled_from(["forward", "loss", "backward", "optimizer", "recompute", ""]))
        calls.append(call(name, Tensor(m, k), right, index=index, parent=parent, found_flop=found, phase=phase))
    return calls


@settings(max_examples=40, deadline=None)
@given(forests())
def test_cleaning_keeps_every_product_and_logs_every_change(calls: list[ProfiledOperation]) -> None:
    cleaned = clean_profile(a_run(), calls)
    around = {one.index: one.parent for one in calls}
    products = {one.index for one in calls if is_product(one.name)}

    def outermost(index: int) -> bool:
        above = around[index]
        while above is not None and above not in products:
            above = around[above]
        return above is None

    assert {row.index for row in cleaned.operations} == set(filter(outermost, products))
    counted = sum(one.found_flop or 0 for one in calls if one.index in products)
    assert sum(row.found_flop or 0 for row in cleaned.operations) == counted
    log = cleaned.log
    removed = {entry.subject: int(entry.before) - int(entry.after) for entry in log if entry.step == "counted_once"}
    for row in cleaned.operations:
        subject = f"batch {row.index} {row.name}"
        gone = removed.pop(subject, 0)
        assert (row.found_flop or 0) == (row.deduplicated_flop or 0) + gone
        assert (row.deduplicated_flop is None) == (row.found_flop is None)
        repairs = [entry for entry in log if (entry.step, entry.subject) == ("repaired", subject)]
        assert len(repairs) == (row.cleaned_flop != row.deduplicated_flop)
        assert row.verdict != "unknown" or (row.cleaned_flop is None and row.reason)
    assert removed == {}


@settings(max_examples=40, deadline=None)
@given(forests(), st.lists(st.none() | st.integers(0, 99), min_size=12, max_size=12))
def test_cleaned_counts_come_from_shapes_alone(calls: list[ProfiledOperation], numbers: list[int | None]) -> None:
    other = [dataclasses.replace(one, found_flop=numbers[one.index]) for one in calls]
    rows, others = clean_profile(a_run(), calls).operations, clean_profile(a_run(), other).operations
    assert [row.cleaned_flop for row in rows] == [row.cleaned_flop for row in others]


@settings(max_examples=40, deadline=None)
@given(forests())
def test_a_verdict_is_of_the_recorders_own_number(calls: list[ProfiledOperation]) -> None:
    for row in clean_profile(a_run(), calls).operations:
        if row.cleaned_flop is None:
            assert row.verdict == "unknown"
            continue
        found = row.found_flop or 0
        sign = (found > row.cleaned_flop) - (found < row.cleaned_flop)
        assert row.verdict == {1: "over", 0: "right", -1: "under"}[sign]


# --- cases -----------------------------------------------------------------------------------------------------------


def clean(*calls: ProfiledOperation, **more: Any) -> tuple[CleanedOperation, ...]:
    return clean_profile(a_run(**more), calls).operations


def test_the_outermost_level_with_a_number_counts() -> None:
    """linear (nothing) → matmul 24 → two mm of 24 and 5: 24 stay. The outer number is less than the inner ones' 29."""
    calls = [
        call("aten::linear", Tensor(2, 3), Tensor(2, 3), index=0),
        call("aten::matmul", Tensor(2, 3), Tensor(3, 2), index=1, parent=0, found_flop=24),
        mm(2, 3, 2, index=2, parent=1),
        mm(2, 3, 2, index=3, parent=1, found_flop=5),
    ]
    cleaned = clean_profile(a_run(), calls)
    (row,) = cleaned.operations
    assert (row.found_flop, row.deduplicated_flop, row.cleaned_flop, row.verdict) == (53, 24, 24, "over")
    (entry,) = cleaned.log
    assert (entry.step, entry.before, entry.after) == ("counted_once", "53", "24")
    assert entry.reason == (
        "29 FLOP were counted again inside: aten::matmul 24, aten::mm 24, aten::mm 5; "
        "aten::matmul counts 24, less than the 29 inside it"
    )


def test_what_a_recorder_counts_of_no_product_is_left_out_with_its_size() -> None:
    """A bias is added inside of a product of 48 FLOP: 2 · 4 additions."""
    calls = [
        call("aten::linear", Tensor(2, 3), Tensor(4, 3), index=0),
        mm(2, 3, 4, index=1, parent=0),
        call("aten::add", Tensor(2, 4), Tensor(4), index=2, parent=0, found_flop=8),
    ]
    cleaned = clean_profile(a_run(), calls)
    assert [(row.found_flop, row.verdict) for row in cleaned.operations] == [(48, "right")]
    left = [(entry.subject, entry.before) for entry in cleaned.log if entry.step == "products_alone"]
    assert left == [("batch aten::add", "8")]


def test_a_number_that_shapes_contradict_is_put_right() -> None:
    """A convolution of 4 groups, for which the recorder took the channels of all: 4 times too much."""
    one = call("aten::conv2d", Tensor(1, 8, 4, 4), Tensor(8, 2, 3, 3), None, 1, 1, 1, 4, found_flop=4 * 2 * 8 * 16 * 18)
    (row,) = clean(one)
    assert (row.cleaned_flop, row.verdict) == (2 * 8 * 16 * 18, "over")
    assert row.reason == f"{4 * 2 * 8 * 16 * 18} FLOP were recorded, the shapes give {2 * 8 * 16 * 18}"


@pytest.mark.parametrize(
    ("mask", "times"), [((True, True, True), 2), ((False, True, False), 1), ((True, False, True), 1), ((False,) * 3, 0)]
)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_gradients_of_a_convolution_by_their_mask(mask: tuple[bool, ...], times: int, groups: int) -> None:
    """2 · (2·4·5·5 gradients · (4 / groups)·9 taps) for each of input and weight that is asked for."""
    arguments = (Tensor(2, 4, 5, 5), Tensor(2, 4, 5, 5), Tensor(4, 4 // groups, 3, 3), (4,), (1, 1), (1, 1), (1, 1))
    one = call("aten::convolution_backward", *arguments, False, (0, 0), groups, mask, phase="backward")
    (row,) = clean(one)
    assert row.cleaned_flop == times * 2 * (2 * 4 * 25) * (4 // groups * 9)
    assert row.verdict == ("under" if times else "right")


def test_a_call_that_says_too_little_is_counted_by_those_inside_if_all_are_known() -> None:
    outer = call("aten::_grouped_mm", Tensor(2, 3), Tensor(3, 4))
    (row,) = clean(outer, call("aten::relu", index=1, parent=0), mm(2, 3, 4, 2, parent=1), mm(1, 1, 1, 3, parent=0))
    assert row.cleaned_flop == 2 * 24 + 2
    (row,) = clean(outer, mm(2, 3, 4, index=1, parent=0), call("aten::_grouped_mm", index=2, parent=0))
    assert row.verdict == "unknown"
    assert "inside it aten::_grouped_mm" in row.reason


def test_a_product_takes_its_place_from_the_calls_around_it() -> None:
    rows = clean(
        mm(2, 3, 4, index=0, module="head"),
        call("MmBackward0", index=1, phase="backward", module="head", forward_index=0),
        mm(3, 2, 4, index=2, parent=1, phase=""),
    )
    assert (rows[1].phase, rows[1].module, rows[1].forward_index) == ("backward", "head", 0)


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        ([mm(1, 1, 1), mm(1, 1, 1)], "expected each call of a profile once, got 2 rows of 1 calls"),
        ([mm(1, 1, 1, parent=5)], "call 0 of batch is inside 5, which was not recorded"),
        ([mm(1, 1, 1, 0, parent=1), mm(1, 1, 1, 1, parent=0)], "2 calls of a profile are inside themselves"),
    ],
)
def test_calls_that_are_no_forest_are_refused(calls: list[ProfiledOperation], why: str) -> None:
    with pytest.raises(Inconsistent, match=why):
        clean_profile(a_run(), calls)


# --- counts ----------------------------------------------------------------------------------------------------------


def work_calls(work: str, images: int) -> list[ProfiledOperation]:
    """A step on `images` images: forward 2·images·12, backward twice as much, of which the recorder counts one half."""
    shared = {"work": work, "forward_index": 0, "phase": "backward"}
    return [
        mm(images, 3, 4, 0, work=work),
        mm(images, 4, 3, 1, **shared),
        mm(3, images, 4, 2, found_flop=None, **shared),
    ]


def counted(run: Run, works: dict[str, int]) -> dict[tuple[str, str], Any]:
    calls = [one for work, images in works.items() for one in work_calls(work, images)]
    return {(c.work, c.phase): c for c in profile_counts(run, clean_profile(run, calls).operations, None)}


def test_an_epoch_is_its_full_batches_and_the_last() -> None:
    """10 images by 4: two batches of 4 and one of 2; every count is that of 10 images."""
    run = a_run(batch_size=4, epoch_images=10, methods=("one", "batch", "epoch"), profiled=("one", "batch", "last"))
    counts = counted(run, {"one": 1, "batch": 4, "last": 2})
    assert {key: c.items for key, c in counts.items() if key[1] == "forward"} == {
        ("one", "forward"): 1, ("batch", "forward"): 4, ("last", "forward"): 2, ("epoch", "forward"): 10,
    }  # fmt: skip
    for (_, phase), c in counts.items():
        whole = c.items * 2 * 12 * (2 if phase == "backward" else 1)
        assert c.found_flop == (None if phase == "backward" else c.items * 24)  # half of it has no number
        assert (c.found_at_least_flop, c.cleaned_flop) == (c.items * 24, whole)
        assert (c.at_least_flop, c.unknown_calls, c.unknown_time_ratio) == (whole, 0, 0.0)
        assert (c.exact_flop, c.status, c.unknown) == (None, "ok", 0)
    epoch = counts["epoch", "backward"]
    assert (epoch.operations, epoch.repaired, epoch.removed) == (6, 3, 0)


def test_a_numerator_holds_all_products_of_its_work_or_is_none() -> None:
    """Over the time of a whole step: not without the products of no phase, nor the kernels of no call."""
    step = [mm(2, 3, 4), mm(2, 4, 3, 1, phase="backward", forward_index=0)]
    rows = clean_profile(a_run(), step).operations
    (whole,) = profiled("batch", profile_counts(a_run(), rows, None), rows, a_run())
    assert (whole.model_flop, whole.reason) == (2 * 48, "")
    counts = profile_counts(a_run(), rows, None, outside={"batch": 0.25})
    assert {(count.outside_time_ratio, count.status, count.cleaned_flop) for count in counts} == {(0.25, "ok", 48)}
    (outside,) = profiled("batch", counts, rows, a_run())
    assert (outside.model_flop, outside.at_least_flop) == (None, 2 * 48)
    assert outside.reason == "25 % of the time of kernels that make products is in no recorded call"
    rows = clean_profile(a_run(), [*step, mm(1, 1, 1, 2, phase="")]).operations
    (homeless,) = profiled("batch", profile_counts(a_run(), rows, None), rows, a_run())
    assert homeless.model_flop is None
    assert homeless.reason.startswith("1 products are in no phase")


# --- on a device -----------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("autocast", [None, "bfloat16"])
def test_a_cuda_recording_cleaned_is_what_our_own_trace_counts(autocast: str | None) -> None:
    """cuDNN's and cuBLAS's own operators in the nests, kernels beside them: the sums are the trace's."""
    import torch
    from torch import nn

    from measure.profile.recording import profile_step
    from measure.timing.clocks import clock_for
    from tests.support.recordings.recorded_nets import cnn
    from workloads.catalogue.base import Batch
    from workloads.step import OPTIMIZERS, TrainingStep

    model = cnn().to("cuda")
    batch = Batch((torch.randn(2, 3, 8, 8, device="cuda"),), torch.zeros(2, dtype=torch.long, device="cuda"))
    dtype = None if autocast is None else getattr(torch, autocast)
    step = TrainingStep(
        model, nn.functional.cross_entropy, OPTIMIZERS["sgd"](model.parameters()), [batch], "cuda", dtype
    )
    step()
    calls = profile_step(
        step, model, clock_for(torch.device("cuda")), pass_name="batch", cuda=True, most_steps=1
    ).operations
    rows = clean_profile(a_run(device="cuda"), calls).operations
    table = real_trace(NETS["cnn"]).operations
    assert cleaned_flop(rows, "forward", "loss") == table_flop(table, "forward", "loss")
    assert cleaned_flop(rows, "backward") == table_flop(table, "backward")
    assert {row.dtype for row in rows} == {autocast or "float32"}


def test_the_dtype_is_that_of_the_innermost_product_that_names_one() -> None:
    half = Tensor(2, 3, dtype="c10::Half")
    calls = [
        call("aten::linear", Tensor(2, 3), Tensor(4, 3), index=0),
        call("aten::to", Tensor(4, 3, dtype="double"), index=1, parent=0),
        call("aten::linear", half, Tensor(4, 3, dtype="c10::Half"), index=2, parent=0),
        call("aten::mm", Tensor(2, 3, dtype=""), Tensor(3, 4, dtype=""), index=3, parent=2),
    ]
    assert [row.dtype for row in clean(*calls)] == ["float16"]
    assert [row.dtype for row in clean(call("aten::mm", Tensor(2, 3, dtype=""), Tensor(3, 4, dtype="")))] == [""]


def test_products_of_other_phases_are_kept_and_said_to_be_none_of_the_step() -> None:
    rows = clean(*(mm(2, 3, 4, i, phase=phase) for i, phase in enumerate(("optimizer", "recompute", "", "loss"))))
    assert [row.cleaned_flop for row in rows] == [48] * 4
    assert [row.reason for row in rows] == [
        "in optimizer: no model FLOP of the step",
        "in recompute: no model FLOP of the step",
        "in no phase: no model FLOP of the step",
        "",
    ]
    forward, backward = profile_counts(a_run(), rows, None)
    assert (forward.cleaned_flop, forward.operations) == (48, 1)
    assert forward.reason == "1 products are in no phase and not counted"
    assert (backward.cleaned_flop, backward.status) == (None, "unavailable")


def test_one_unknown_product_makes_its_phase_unknown() -> None:
    grouped = call("aten::_grouped_mm", Tensor(2, 3), Tensor(3, 4), index=1, module="experts", time_s=3.0)
    rows = clean_profile(a_run(), [mm(2, 3, 4, time_s=1.0), grouped]).operations
    forward, backward = profile_counts(a_run(), rows, None)
    found = forward.found_flop, forward.deduplicated_flop, forward.cleaned_flop
    assert (*found, forward.unknown, forward.status) == (None, None, None, 1, "unavailable")
    known = forward.found_at_least_flop, forward.deduplicated_at_least_flop, forward.at_least_flop
    assert (*known, forward.unknown_calls, forward.unknown_time_ratio) == (48, 48, 48, 1, 0.75)
    assert (backward.at_least_flop, backward.unknown_calls, backward.unknown_time_ratio) == (None, 0, None)
    (numerator,) = profiled("batch", (forward, backward), rows, a_run())
    assert (numerator.model_flop, numerator.at_least_flop, numerator.unknown_calls) == (None, 48, 1)
    assert "1 of 2 products have no count" in numerator.reason
    assert forward.reason.startswith(
        "1 of 2 products have no count, the first aten::_grouped_mm experts: nothing was counted"
    )


def test_what_is_unknown_stays_unknown_with_its_reason() -> None:
    rows = clean(
        call("aten::_grouped_mm", Tensor(2, 3), Tensor(3, 4), index=0, found_flop=48),
        call("aten::_grouped_mm", Tensor(2, 3), Tensor(3, 4), index=1),
    )
    assert [(row.cleaned_flop, row.verdict) for row in rows] == [(None, "unknown")] * 2
    why = "shapes give no count: aten::_grouped_mm: the meaning of its arguments is not known"
    assert [row.reason for row in rows] == [f"48 FLOP were recorded and {why}", f"nothing was counted and {why}"]
