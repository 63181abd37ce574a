"""Tests of the tests of profiled steps: each part is spoilt in turn, and a law must notice."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from measure.profile import alignment, model_guard, operation_times, step_kinds, step_profile, time_shares, watch
from measure.profile import rows as profile_rows
from measure.profile.alignment import Alignment
from tests.measure.profile import test_step_join, test_step_profile, test_step_recording
from tests.runners import test_profiler

Function = Callable[..., Any]


def shifted(join: Function) -> Function:
    """Each operation has the next one's call."""

    def spoilt(frames: Any, operations: Any) -> Alignment:
        found = join(frames, operations)
        order = sorted(found.frames)
        moved = dict(zip(order, [found.frames[index] for index in (*order[1:], order[0])], strict=True))
        return Alignment(moved, found.spare)

    return spoilt


def one_lost(join: Function) -> Function:
    def spoilt(frames: Any, operations: Any) -> Alignment:
        found = join(frames, operations)
        kinds = {operation.index: operation.kind for operation in operations}
        lost = next(index for index in sorted(found.frames) if kinds[index] != "view")
        return Alignment({i: frame for i, frame in found.frames.items() if i != lost}, found.spare)

    return spoilt


def two_swapped(join: Function) -> Function:
    """The first two products have one another's calls."""

    def spoilt(frames: Any, operations: Any) -> Alignment:
        found = join(frames, operations)
        products = [
            o.index for o in operations if o.name in ("aten.convolution", "aten.addmm") and o.phase == "forward"
        ]
        first, second = products[:2]
        moved = found.frames | {first: found.frames[second], second: found.frames[first]}
        return Alignment(moved, found.spare)

    return spoilt


def nothing_inside(inside: Function) -> Function:
    return lambda calls, names, joined: {}


def never_opened(outermost: Function) -> Function:
    return lambda calls, names, opened: outermost(calls, names, set())


def the_outer_twin(outermost: Function) -> Function:
    """Autocast's own call, in place of the one that it makes."""

    def spoilt(calls: Any, names: Any, opened: Any) -> Iterator[Any]:
        ends: dict[int, int] = {}
        for frame in calls:
            if alignment.bare(frame.name) in names and frame.start_ns >= ends.get(frame.thread, 0):
                ends[frame.thread] = frame.end_ns
                yield frame

    return spoilt


def first_begun(spend: Function) -> Function:
    def spoilt(running: list[Any], *rest: Any) -> int:
        running.reverse()
        found = spend(running, *rest)
        running.reverse()
        return int(found)

    return spoilt


def without_end(between: Function) -> Function:
    return lambda operations, steps: between(operations, [dataclasses.replace(step, end_s=0.0) for step in steps])


def unsubtracted(times: Function) -> Function:
    def spoilt(*given: Any) -> Any:
        found = times(*given)
        return dataclasses.replace(found, step_s=found.step_s + found.left_out_s)

    return spoilt


def every_time(_rows: Function) -> Function:
    """Parameters at each module that has them."""

    def spoilt(model: Any, ignored: Any = frozenset()) -> Any:
        rows = _rows(model, ignored)
        return tuple(
            dataclasses.replace(row, own_parameters=sum(p.numel() for p in module.parameters(recurse=False)))
            for row, (_, module) in zip(rows, model.named_modules(remove_duplicate=False), strict=True)
        )

    return spoilt


def unkept(_left: Function) -> Function:
    @contextlib.contextmanager
    def spoilt(*given: Any, trains: bool) -> Iterator[None]:
        yield

    return spoilt


def nameless(_place: Function) -> Function:
    return lambda model, trace: "the model failed"


def paths_alone(_paths: Function) -> Function:
    return lambda model, ignored: frozenset()


def all_forwards(table: Function) -> Function:
    return lambda *given, only=None, **more: table(*given, **more)


def check_net(name: str) -> Function:
    return lambda: test_step_profile.test_laws(name)


def check_join(name: str) -> Function:
    return lambda: test_step_join.test_each_operation_finds_its_call(name)


def check_shares() -> None:
    for seed in range(20):
        test_step_join.test_each_instant_belongs_to_what_began_last(seed)


def check_ignored() -> None:
    test_step_recording.test_ignored_operations_are_no_part_of_the_step()


def check_kept() -> None:
    test_step_profile.test_nothing_is_left_behind("train")


def check_other_sizes() -> None:
    model = test_profiler.mlp()
    profiler = test_profiler.Profiler(model)
    profiler.start_profile()
    for size in (3, 2, 3):
        model(test_profiler.torch.ones(size, 8))
    profiler.stop_profile()
    assert len(profiler._finished_profile().step_times_s) == 2


MUTATIONS: tuple[tuple[Any, str, Function, Function], ...] = (
    (test_step_join, "join", shifted, check_join("lstm")),
    (test_step_join, "join", two_swapped, check_join("resnet18")),
    (test_step_join, "join", one_lost, check_join("encoder")),
    (operation_times, "join", one_lost, check_net("encoder")),
    (alignment, "_inside", nothing_inside, check_join("gru")),
    (alignment, "_outermost", never_opened, check_join("operators")),
    (alignment, "_outermost", the_outer_twin, check_join("operators")),
    (time_shares, "_spend", first_begun, check_shares),
    (step_profile, "between", without_end, check_net("lstm")),
    (operation_times, "_times", unsubtracted, check_ignored),
    (step_profile, "module_rows", every_time, test_step_profile.test_shared_parameters_and_modules_are_counted_once),
    (step_profile, "left_as_found", unkept, check_kept),
    (model_guard, "_place", nameless, test_step_profile.test_a_failure_in_the_loss_or_backward_is_told_too),
    (watch, "paths_below", paths_alone, lambda: test_profiler.test_ignored_modules_reduce_the_total("2")),
    (watch, "table_of", all_forwards, check_other_sizes),
)


@pytest.mark.parametrize(
    ("module", "name", "mutation", "check"),
    MUTATIONS,
    ids=[f"{name}-{mutation.__name__}-{i}" for i, (_, name, mutation, _) in enumerate(MUTATIONS)],
)
def test_a_spoilt_part_is_noticed(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, mutation: Function, check: Function
):
    check()
    monkeypatch.setattr(module, name, mutation(getattr(module, name)))
    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception)):
        check()


def test_a_step_that_is_not_trained_on_copies_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """The table must cost the caller's model no step."""

    def on_the_caller(step: Any, mode: Any) -> Any:
        step(lambda phase: None)
        return step_kinds._traced_before(step, mode)

    test_step_profile.test_three_steps_of_an_optimizer_are_three_steps()
    monkeypatch.setattr(step_kinds, "_traced_before", step_kinds._trace_copy, raising=False)
    monkeypatch.setattr(step_kinds, "_trace_copy", on_the_caller)
    with pytest.raises(AssertionError):
        test_step_profile.test_three_steps_of_an_optimizer_are_three_steps()


def test_a_time_that_is_another_operations_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """Every law of sums holds where two operations change their times; the pause inside of one does not."""
    test_step_profile.test_time_is_that_of_the_operation_that_took_it()
    monkeypatch.setattr(operation_times, "join", shifted(operation_times.join))
    with pytest.raises((AssertionError, TypeError)):
        test_step_profile.test_time_is_that_of_the_operation_that_took_it()


def test_the_table_is_not_spoilt_by_these_tests():
    assert profile_rows.between is step_profile.between
