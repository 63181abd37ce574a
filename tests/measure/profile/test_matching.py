"""Definition, law: a step's operations and its recorded calls, by slow oracles and by shapes and modules of nets."""

import itertools
import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from measure.model.module_paths import ModuleRanges
from measure.model.state_snapshot import sum_of_outputs
from measure.operations.fake_mode import fake_copy, fake_mode
from measure.operations.tracer import trace_step
from measure.profile import matching, step_profile
from measure.profile.events import Frame, step_frames
from measure.profile.matching import bare_name, common_names, join
from measure.profile.operation_times import shares
from measure.profile.step_profile import OperationStepTimes
from measure.timing.profiler_ranges import Ranges
from results.records.counts import Operation
from tests.support.nets.step_nets import NETS, Net

# --- lists of names ---


def longest(left: str, right: str) -> int:
    """The length of a longest common subsequence, by the recursion that defines it."""

    @cache
    def of(i: int, j: int) -> int:
        if i == len(left) or j == len(right):
            return 0
        return 1 + of(i + 1, j + 1) if left[i] == right[j] else max(of(i + 1, j), of(i, j + 1))

    return of(0, 0)


def check_order(left: Any, right: Any, pairs: list[tuple[int, int]]) -> None:
    assert all(left[x] == right[y] for x, y in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))


@pytest.mark.parametrize("seed", range(60))
def test_names_in_common_are_as_many_as_can_be(seed: int):
    draw = random.Random(seed)
    left, right = ("".join(draw.choices("abcd", k=draw.randrange(14))) for _ in range(2))
    pairs = common_names(left, right)
    check_order(left, right, pairs)
    assert len(pairs) == longest(left, right)


@pytest.mark.parametrize("seed", range(20))
def test_many_differences_are_taken_a_stretch_at_a_time(seed: int, monkeypatch: pytest.MonkeyPatch):
    """Then the list may be shorter than the longest, but it keeps the order, goes on to the end, and loses little."""
    monkeypatch.setattr(matching, "MOST", 32)
    draw = random.Random(seed)
    left = "".join(draw.choices("abcdef", k=60))
    right = "".join(each for each in left if draw.random() > 0.3) + "".join(draw.choices("abcdef", k=9))
    pairs = common_names(left, right)
    check_order(left, right, pairs)
    assert len(pairs) >= 0.7 * longest(left, right)


# --- real nets ---


@cache
def recorded(net: Net) -> tuple[list[Frame], tuple[Operation, ...]]:
    """The frames of one step with shapes and under module ranges, and the same step's table on fake tensors."""
    model, inputs = net()

    def step_of(model: nn.Module, inputs: Any) -> Callable[[Callable[[str], None]], None]:
        def step(mark: Callable[[str], None]) -> None:
            for parameter in model.parameters():
                parameter.grad = None
            mark("forward")
            output = model(*inputs)
            mark("loss")
            total = sum_of_outputs(output)
            mark("backward")
            total.backward()
            mark("end")

        return step

    mode = fake_mode()
    copied, fakes = fake_copy(model, inputs, mode)
    trace = trace_step(step_of(copied, fakes), model=copied, inputs=fakes, mode=mode, steps_before=0)
    profiler = torch.autograd.profiler.profile(use_kineto=True, record_shapes=True)
    with ModuleRanges(model), profiler:
        Ranges(True).step(step_of(model, inputs))()
    (frames,) = step_frames(profiler.kineto_results.events())
    return frames, trace.operations


WATCHED_ALONE = {"lstm": {"aten.copy_": 2}}
"""Where a mode watches, a gradient that somebody else holds, too, is copied by two operations; in torch 2.15 those of a
process's first LSTM."""


@pytest.mark.parametrize("name", NETS)
def test_each_operation_finds_its_call(name: str):
    """By another way: the call has the operation's sizes, and in the forward pass lies in its module."""
    frames, operations = recorded(NETS[name])
    found = join(frames, operations)[0]
    missing = [o.name for o in operations if o.index not in found and o.kind != "view"]
    assert not Counter(missing) - Counter(WATCHED_ALONE.get(name, {}))
    assert len({id(frame) for frame in found.values()}) == len(found)
    checked: Counter[str] = Counter()
    for operation in operations:
        frame = found.get(operation.index)
        if frame is None or operation.kind == "view":
            continue
        assert bare_name(frame.name) == bare_name(operation.name)
        assert frame.phase in (operation.phase, "backward")
        if operation.phase == "forward":
            assert frame.module == operation.module
        if sizes := [tuple(size) for size in frame.event.shapes() if size]:
            assert set(sizes) & set(operation.input_shapes), (operation, sizes)
            checked[operation.phase] += 1
    assert checked["forward"] > 0 < checked["backward"]


def test_an_aborted_recomputation_leaves_a_call_over():
    """Checkpointing ends in the middle of the last layer's product, as soon as its input is there."""
    frames, operations = recorded(NETS["checkpointed"])
    assert [frame.name for frame in join(frames, operations)[1]] == ["aten::addmm"]


def test_a_call_that_is_taken_away_costs_its_operation_alone():
    frames, operations = recorded(NETS["resnet18"])
    found = join(frames, operations)[0]
    lost = next(o for o in operations if o.name == "aten.convolution" and o.module == "layer2.0.conv1")
    frame = found[lost.index]
    left = [each for each in frames if all(around is not frame for around in each.inside_of_all)]
    again = join(left, operations)[0]
    assert set(found) - set(again) == {lost.index}
    assert all(again[index] is found[index] for index in again)


# --- time ---


@pytest.mark.parametrize("seed", range(60))
def test_each_instant_belongs_to_what_began_last(seed: int):
    """Against a count of nanoseconds one by one."""
    draw = random.Random(seed)
    intervals = []
    for index in range(draw.randrange(8)):
        begins = draw.randrange(-3, 40)
        intervals.append((begins + index / 100, begins + draw.randrange(12), index % 5))
    found = shares([(int(b), e, i) for b, e, i in intervals], 0, 40)
    ordered = sorted([(int(b), e, i) for b, e, i in intervals], key=lambda each: (each[0], -each[1]))
    own: Counter[int] = Counter()
    waited: Counter[int] = Counter()
    end = 0
    for now in range(40):
        running = [index for begins, ends, index in ordered if max(begins, 0) <= now < ends]
        if running:
            own[running[-1]] += 1
        elif later := [index for begins, _, index in ordered if begins > now]:
            waited[later[0]] += 1
        else:
            end += 1
    assert (Counter(found.own), Counter(found.waited), found.end) == (+own, +waited, end)
    assert sum(found.own.values()) + sum(found.waited.values()) + found.end == 40


def test_times_are_means_of_the_operations_that_have_a_call():
    """Operation 1 has no call: it has no times; without a recorded step none has."""
    steps = [
        OperationStepTimes(3.0, {0: own}, {0: 2 * own}, {0: 0.5}, {0: kernels}) for own, kernels in ((1.0, 2), (3.0, 4))
    ]
    times = step_profile._times(0, steps)
    assert (times["time_s"], times["host_time_s"], times["kernels"]) == (2.0, 4.0, 3.0)
    assert step_profile._times(1, steps) == step_profile._times(0, []) == {}


def test_one_call_that_is_missing_shifts_nothing():
    names = [f"{letter}{number % 3}" for number in range(500) for letter in "abc"]
    without = names[:700] + names[701:]
    assert common_names(without, names) == [(at, at if at < 700 else at + 1) for at in range(len(without))]
    assert len(common_names(names[:400], names)) == 400
