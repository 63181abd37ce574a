"""Law, injected fault: for any recording nothing is lost, nothing depends on order, and cleaning twice is once."""

import random
from typing import Any

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from cleaning.trace.clean import PHASES, STATES, CleanedTrace, clean
from measure.trace.recording import KERNEL_COLUMNS
from tests.support.made_up_operations.made_up_kernels import (
    AMPERE,
    DGRAD,
    EXPLICIT,
    HOPPER,
    IMPLICIT,
    OFFSETS,
    POINTWISE,
    SCUDNN,
    SGEMM,
    SPLIT_K,
    UNKNOWN,
    WGRAD,
    WINOGRAD,
    MadeUp,
    convolution,
    fft,
    gradients,
)
from tests.support.recordings.recordings import Tensor

KERNELS = [
    OFFSETS,
    SCUDNN,
    IMPLICIT,
    EXPLICIT,
    WINOGRAD,
    DGRAD,
    WGRAD,
    SGEMM,
    SPLIT_K,
    AMPERE,
    HOPPER,
    POINTWISE,
    UNKNOWN,
]
names = st.lists(st.sampled_from(KERNELS), max_size=6) | st.integers(1, 5).map(fft)
times = st.integers(1, 1000)

FLOP = [f"{word}_flop" for word in ("found", "deduplicated", "repaired")]


@st.composite
def recordings(draw: Any, batch: int | None = None) -> MadeUp:
    """Steps of convolutions, linear layers and others, with any kernels, some without sizes, some with numbers."""
    made = MadeUp()
    n = batch or draw(st.integers(1, 4))
    for step in range(draw(st.integers(1, 2))):
        made.kernel(-1, *draw(names), time_ns=draw(times))
        layers = draw(st.lists(st.sampled_from(["conv", "grouped", "linear", "blind", "add"]), min_size=1, max_size=4))
        forward = [_forward(draw, made, layer, n, step) for layer in layers]
        for layer, call in reversed(list(zip(layers, forward, strict=True))):
            _backward(draw, made, layer, call, n)
    return made


def _forward(draw: Any, made: MadeUp, layer: str, n: int, step: int) -> int:
    if layer in ("conv", "grouped"):
        groups = 4 if layer == "grouped" else 1
        call = convolution(made, (n, 8, 56, 56), (8, 8 // groups, 3, 3), groups=groups, step=step)
    elif layer == "linear":
        call = made.call("aten::linear", Tensor(n, 8), Tensor(16, 8), step=step)
    else:
        call = made.call("aten::conv2d" if layer == "blind" else "aten::add", step=step)
    flop = draw(st.sampled_from([None, None, 0, 2 * n * 8 * 56 * 56 * 8 * 9, 2 * n * 8 * 16]))
    made.kernel(call, *draw(names), time_ns=draw(times), source_flop=flop)
    return call


def _backward(draw: Any, made: MadeUp, layer: str, forward: int, n: int) -> None:
    if layer in ("conv", "grouped"):
        mask = draw(st.sampled_from([(True, True, False), (False, True, False), (False, False, True)]))
        call = gradients(made, forward, (n, 8, 56, 56), mask)
    else:
        name = {"linear": "aten::mm", "blind": "aten::convolution_backward"}.get(layer, "aten::add")
        sizes = (Tensor(n, 16), Tensor(16, 8)) if layer == "linear" else ()
        call = made.call(name, *sizes, phase="backward", forward_index=forward)
    made.kernel(call, *draw(names), time_ns=draw(times))


def told(found: CleanedTrace) -> tuple[Any, ...]:
    """Whatever is said of a recording, but the rows of its kernels."""
    shares = found.unexplained_time_ratio, found.outside_time_ratio, found.unnamed
    return found.phase_totals, found.totals, found.instances, found.faults, found.log, shares


def at_least(found: CleanedTrace, state: str) -> int:
    """The sum of what is known over the phases."""
    return sum(total.at_least or 0 for total in found.phase_totals[state].values())


def shuffled(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    order = list(range(len(table)))
    random.Random(seed).shuffle(order)
    return table.iloc[order].reset_index(drop=True)


laws = settings(max_examples=25, deadline=None)


@laws
@given(recordings())
def test_no_kernel_is_lost_and_none_is_changed(made: MadeUp) -> None:
    calls, kernels = made.tables()
    found = clean(calls, kernels).kernels
    pd.testing.assert_frame_equal(found[list(KERNEL_COLUMNS)], kernels)


@laws
@given(recordings())
def test_products_are_the_sum_of_their_kernels(made: MadeUp) -> None:
    found = clean(*made.tables())
    sums = found.kernels[found.kernels["instance"] >= 0].groupby("instance")[FLOP].sum(min_count=1)
    for instance in found.instances:
        if not instance.kernels or instance.kind not in ("convolution", "matmul"):
            continue
        row = [None if pd.isna(value) else int(value) for value in sums.loc[instance.index]]
        told = [instance.raw_flop, instance.deduplicated_flop, instance.repaired_flop]
        if instance.expected_flop is None:  # a sum that leaves a kernel out is none
            row = [None if number is None else value for number, value in zip(told, row, strict=True)]
        assert row == told


@laws
@given(recordings())
def test_a_total_is_of_all_calls_or_unknown(made: MadeUp) -> None:
    found = clean(*made.tables())
    for state in STATES:
        for name, phases in PHASES.items():
            mine = [i for i in found.instances if i.phase in phases and i.kind in ("convolution", "matmul")]
            numbers = [getattr(i, f"{state}_flop") for i in mine]
            total = found.phase_totals[state][name]
            assert total.unknown_calls == numbers.count(None)
            assert total.flop == found.totals[state][name]
            assert total.flop == (sum(numbers) if numbers and None not in numbers else None)
            assert (total.at_least is None) is (not mine)
            assert (total.at_least or 0) >= sum(number or 0 for number in numbers)
            assert total.flop in (None, total.at_least)


@laws
@given(recordings())
def test_twice_is_once(made: MadeUp) -> None:
    calls, kernels = made.tables()
    found = clean(calls, kernels)
    again = clean(calls, found.kernels)
    assert told(found) == told(again)
    pd.testing.assert_frame_equal(found.kernels, again.kernels)


@laws
@given(recordings(), st.integers(0, 10**6))
def test_doubled_rows_of_launches_change_what_was_found_and_nothing_else(made: MadeUp, seed: int) -> None:
    calls, kernels = made.tables()
    chosen = random.Random(seed).choices(range(len(kernels)), k=len(kernels) // 2)
    found = clean(calls, kernels)
    other = clean(calls, shuffled(pd.concat([kernels, kernels.iloc[chosen]], ignore_index=True), seed))
    for state in ("deduplicated", "repaired"):
        assert found.totals[state] == other.totals[state]
    assert found.unexplained_time_ratio == other.unexplained_time_ratio
    assert [i.kernel_time_s for i in found.instances] == [i.kernel_time_s for i in other.instances]
    assert other.kernels["fault"].eq("duplicate_launch").sum() == len(chosen)


@laws
@given(st.data(), st.integers(1, 9))
def test_cleaned_numbers_are_proportional_to_the_batch(data: st.DataObject, batch: int) -> None:
    seed = data.draw(st.integers(0, 10**6))
    one, many = (_net(random.Random(seed), n) for n in (1, batch))
    for name in PHASES:
        small, large = one.totals["repaired"][name], many.totals["repaired"][name]
        assert large == (None if small is None else batch * small)


def _net(dice: random.Random, n: int) -> CleanedTrace:
    made = MadeUp()
    calls = [convolution(made, (n, 8, 56, 56), (8, 8, 3, 3)) for _ in range(dice.randint(1, 4))]
    for call in calls:
        made.kernel(call, *dice.choices(KERNELS, k=dice.randint(0, 5)))
    for call in reversed(calls):
        made.kernel(gradients(made, call, (n, 8, 56, 56), (call > 0, True, False)), *dice.choices(KERNELS, k=3))
    return clean(*made.tables())


PRODUCTS = """
    aten::conv2d aten::convolution aten::_convolution aten::cudnn_convolution aten::convolution_backward
    aten::cudnn_convolution_backward aten::conv_transpose2d aten::linear aten::addmm aten::mm aten::bmm aten::matmul
    aten::linear_backward aten::scaled_dot_product_attention aten::lstm aten::einsum mine::conv2d
""".split()  # noqa: SIM905
size = st.integers(-1, 9)
nonsense = st.one_of(
    st.none(),
    st.just(()),
    st.lists(size, max_size=5).map(tuple),
    st.lists(st.lists(size).map(tuple), max_size=3).map(tuple),
)
value = st.one_of(st.none(), st.booleans(), size, st.lists(size, max_size=3).map(tuple), st.just("text"))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_nonsense_is_unknown_and_no_error(data: st.DataObject) -> None:
    made, draw = MadeUp(), data.draw
    for at in range(draw(st.integers(1, 4))):
        shapes = draw(st.none() | st.lists(nonsense.filter(lambda each: each is not None), max_size=12).map(tuple))
        more = {
            "input_shapes": shapes,
            "input_dtypes": draw(st.none() | st.lists(st.sampled_from(["float", "", "?"]), max_size=12).map(tuple)),
            "concrete_inputs": draw(st.none() | st.lists(value, max_size=12).map(tuple)),
            "phase": draw(st.sampled_from(["forward", "backward", "recompute", "nowhere"])),
            "forward_index": draw(st.integers(-1, 5)),
            "parent": draw(st.integers(-1, at - 1)),
        }
        call = made.call(draw(st.sampled_from(PRODUCTS)), **more)
        flop = draw(st.none() | st.just(float("nan")) | st.integers(-1, 10**18))
        made.kernel(call, *draw(names), source_flop=flop)
    found = clean(*made.tables())
    assert len(found.kernels) == len(made.kernels)
    raw, repaired = (at_least(found, state) for state in ("raw", "repaired"))
    outside = {i.index for i in found.instances if i.phase == "nowhere"}
    assert outside or raw + sum(flop for _, _, flop in found.faults) == repaired


@laws
@given(recordings())
def test_what_has_sizes_ends_at_what_they_give(made: MadeUp) -> None:
    for instance in clean(*made.tables()).instances:
        if instance.expected_flop is None:
            assert instance.verdict == "unknown"
            continue
        assert instance.repaired_flop == instance.expected_flop == (instance.units or 0) * (instance.unit_flop or 0)
        raw = instance.raw_flop or 0
        right = {0: "right", 1: "over", -1: "under"}[(raw > instance.expected_flop) - (raw < instance.expected_flop)]
        assert instance.verdict == right
        assert right == "right" or instance.reason


@laws
@given(recordings())
def test_faults_balance_what_was_found_with_what_is_repaired(made: MadeUp) -> None:
    found = clean(*made.tables())
    raw, once, repaired = (at_least(found, state) for state in STATES)
    assert raw + sum(flop for _, _, flop in found.faults) == repaired
    assert once <= raw
    steps = {"deduplicated": 0, "repaired": 0}
    for row in found.log:
        steps[row.step] += int(row.after or 0) - int(row.before or 0)
    assert (raw + steps["deduplicated"], once + steps["repaired"]) == (once, repaired)
