"""Definition, law: attribution of kernels by hand, by brute force and by torch's own events, in any order of rows."""

import dataclasses
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from measure.trace import kineto
from measure.trace.attribute import attribute
from measure.trace.nesting import NODE, OPERATOR
from measure.trace.recording import Recording, calls_table, flows_table, kernels_table, ranges_table
from results.records.counts import PHASES

DATA = Path(__file__).parents[2] / "data"

MAIN, ENGINE = 1, 2


def recording(calls: list[dict[str, Any]], kernels: list[dict[str, Any]] | None = None, **more: Any) -> Recording:
    """A recording of rows; process 9 unless they say otherwise."""
    tables = []
    for make, rows in ((calls_table, calls), (kernels_table, kernels or [])):
        names = sorted({name for row in rows for name in row} | {"process"})
        unknown = {name: values.tolist()[0] for name, values in make(name=["x"]).items()}
        tables.append(make(**{n: [row.get(n, 9 if n == "process" else unknown[n]) for row in rows] for n in names}))
    return Recording("kineto", "made up", *tables, **more)


def call(name: str, start: int, end: int, thread: int = MAIN, **more: Any) -> dict[str, Any]:
    return {"name": name, "start_ns": start, "time_ns": end - start, "thread": thread, **more}


def kernel(launch: int, thread: int = MAIN, **more: Any) -> dict[str, Any]:
    begins = max(launch, 0) + 1000
    return {"name": "k", "start_ns": begins, "launch_start_ns": launch, "launch_end_ns": launch + 1,
            "launch_thread": thread, "time_ns": 10, **more}  # fmt: skip


def annotations(*rows: tuple[str, int, int], thread: int = MAIN) -> pd.DataFrame:
    return ranges_table(
        name=[name for name, *_ in rows],
        start_ns=[start for _, start, _ in rows],
        time_ns=[end - start for _, start, end in rows],
        thread=[thread] * len(rows),
        process=[9] * len(rows),
    )


def same(left: Recording, right: Recording) -> None:
    pd.testing.assert_frame_equal(left.calls, right.calls)
    pd.testing.assert_frame_equal(left.kernels, right.kernels)
    assert (left.steps, left.problems) == (right.steps, right.problems)


# --- one training step by hand ---------------------------------------------------------------------------------------


def training_step() -> Recording:
    """Two convolutions, the second checkpointed; backward on the engine's thread; an optimizer.

    Numbers are of nodes: 5 and 6 were made on the main thread (1 by the recorder's count), 7 when convolution 6 was
    recalculated.
    """
    forward = [
        call("aten::conv2d", 100, 200, sequence_nr=5, external_id=1),
        call("aten::convolution", 110, 190, sequence_nr=5, external_id=2),
        call("aten::cudnn_convolution", 120, 180, external_id=3),
        call("aten::conv2d", 300, 400, sequence_nr=6, external_id=4),
    ]
    backward = [
        call("autograd::engine::evaluate_function: ConvolutionBackward0", 500, 700, ENGINE, sequence_nr=6,
             forward_thread=1, external_id=5),
        call("ConvolutionBackward0", 510, 690, ENGINE, sequence_nr=6, forward_thread=1, external_id=6),
        call("aten::conv2d", 520, 560, ENGINE, sequence_nr=7, external_id=7),
        call("aten::cudnn_convolution", 525, 555, ENGINE, external_id=8),
        call("aten::convolution_backward", 600, 680, ENGINE, external_id=9),
        call("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 710, 750, ENGINE, external_id=10),
        call("aten::add_", 720, 740, ENGINE, external_id=11),
        call("autograd::engine::evaluate_function: ConvolutionBackward0", 800, 900, ENGINE, sequence_nr=5,
             forward_thread=1, external_id=12),
        call("ConvolutionBackward0", 810, 890, ENGINE, sequence_nr=5, forward_thread=1, external_id=13),
        call("aten::convolution_backward", 820, 880, ENGINE, external_id=14),
    ]  # fmt: skip
    rest = [call("aten::_foreach_add_", 1000, 1100, external_id=15), call("aten::copy_", 20, 40, external_id=16)]
    kernels = [kernel(at) for at in (130, 350, 1050, 30, 250)] + [kernel(at, ENGINE) for at in (530, 610, 730, 830)]
    ranges = annotations(
        ("ProfilerStep#4", 90, 1200),
        ("Optimizer.step#SGD.step", 990, 1110),
        ("enumerate(DataLoader)#x.__next__", 10, 50),
        ("nn.Module: Conv2d_0", 95, 205),
        ("nn.Module: Conv2d_1", 295, 405),
    )
    return recording(forward + backward + rest, kernels, ranges=ranges)


def test_kernels_of_a_training_step_find_call_phase_and_module() -> None:
    found = attribute(training_step())
    names = found.calls["name"].tolist()
    told = [
        (row.launch_start_ns, names[row.call] if row.call >= 0 else "", row.link, row.phase, row.module)
        for row in found.kernels.itertuples()
    ]
    assert told == [
        (30, "aten::copy_", "containment", "", ""),
        (130, "aten::cudnn_convolution", "containment", "forward", "Conv2d_0"),
        (250, "", "none", "", ""),
        (350, "aten::conv2d", "containment", "forward", "Conv2d_1"),
        (530, "aten::cudnn_convolution", "containment", "recompute", ""),
        (610, "aten::convolution_backward", "containment", "backward", "Conv2d_1"),
        (730, "aten::add_", "containment", "backward", ""),
        (830, "aten::convolution_backward", "containment", "backward", "Conv2d_0"),
        (1050, "aten::_foreach_add_", "containment", "optimizer", ""),
    ]
    assert found.steps == 1
    assert found.calls["step"].tolist() == [-1] + [4] * 15


def test_backward_calls_find_the_outermost_call_that_made_their_node() -> None:
    calls = attribute(training_step()).calls
    by_start = {row.start_ns: row for row in calls.itertuples()}
    first, second = by_start[100].index, by_start[300].index
    links = {start: row.forward_index for start, row in by_start.items() if row.forward_index >= 0}
    assert links == {500: second, 510: second, 600: second, 800: first, 810: first, 820: first}
    assert by_start[600].sequence_nr == 6  # of its node
    assert by_start[520].forward_index == -1  # recalculated: it has no gradient here
    assert by_start[720].sequence_nr == -1
    assert [by_start[start].parent for start in (110, 120, 525)] == [
        by_start[start].index for start in (100, 110, 520)
    ]  # fmt: skip


def test_our_own_ranges_win() -> None:
    """By time on every thread; outside of all of them a call has no phase."""
    made = training_step()
    ours = annotations(
        ("flopledger.forward", 90, 290),
        ("flopledger.loss", 290, 450),
        ("flopledger.backward", 450, 950),
        ("flopledger.module.features.0", 96, 204),
        ("flopledger.step", 80, 950),
    )
    ranges = pd.concat([made.ranges[~made.ranges["name"].str.startswith("ProfilerStep")], ours], ignore_index=True)
    found = attribute(dataclasses.replace(made, ranges=ranges))
    by_start = {row.start_ns: (row.phase, row.module) for row in found.calls.itertuples()}
    assert by_start[100] == ("forward", "features.0")
    assert by_start[300] == ("loss", "")  # torch's frames are not mixed with ours
    assert by_start[600] == ("backward", "")
    assert by_start[820] == ("backward", "features.0")
    assert by_start[520] == ("recompute", "")
    assert by_start[1000] == ("", "")
    phase = {row.launch_start_ns: row.phase for row in found.kernels.itertuples()}
    assert phase[250] == "forward"  # without a call, but launched in the range
    assert found.steps == 1


def test_flows_tell_direction_where_nothing_else_does() -> None:
    calls = [call("aten::conv2d", 100, 200), call("ours", 300, 400, ENGINE), call("aten::mm", 310, 390, ENGINE)]
    drawn = flows_table(
        forward_thread=[MAIN], forward_process=[9], forward_ns=[100],
        backward_thread=[ENGINE], backward_process=[9], backward_ns=[300],
    )  # fmt: skip
    assert attribute(recording(calls)).calls["phase"].tolist() == ["forward"] * 3
    found = attribute(recording(calls, flows=drawn)).calls
    assert found["phase"].tolist() == ["forward", "backward", "backward"]
    assert found["forward_index"].tolist() == [-1, 0, 0]


# --- laws ------------------------------------------------------------------------------------------------------------


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Nested calls on two threads, with numbers, nodes, modules and launches anywhere."""
    calls: list[dict[str, Any]] = []
    names = ["aten::conv2d", "aten::convolution", "aten::mm", "aten::empty", "ReluBackward0", "aten::add_",
             "autograd::engine::evaluate_function: X", "detach"]  # fmt: skip

    def fill(start: int, end: int, thread: int, depth: int) -> None:
        at = start
        for _ in range(draw(st.integers(0, 3))):
            begin = at + draw(st.integers(0, 5))
            finish = begin + draw(st.integers(1, 40))
            if finish > end:
                return
            name = draw(st.sampled_from(names))
            node = NODE.fullmatch(name) is not None
            calls.append(
                call(name, begin, finish, thread, sequence_nr=draw(st.integers(-1, 4)),
                     forward_thread=draw(st.integers(0, 1)) if node else 0, external_id=len(calls))
            )  # fmt: skip
            if depth < 3:
                fill(begin + 1, finish - 1, thread, depth + 1)
            at = finish + 1

    for thread in (MAIN, ENGINE):
        fill(0, 200, thread, 0)
    launches = draw(st.lists(st.tuples(st.integers(-1, 210), st.sampled_from([MAIN, ENGINE, 3])), max_size=12))
    kernels = [kernel(at, thread, correlation=i) for i, (at, thread) in enumerate(launches)]
    modules = draw(st.lists(st.tuples(st.integers(0, 90), st.integers(100, 200)), max_size=1))
    return recording(calls, kernels, ranges=annotations(*((f"nn.Module: M_{a}", a, b) for a, b in modules)))


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(recordings(), st.randoms(use_true_random=False))
def test_attribution_keeps_everything_and_does_not_depend_on_order(made: Recording, dice: random.Random) -> None:
    found = attribute(made)
    assert len(found.calls) == len(made.calls)
    if len(made.kernels):  # conserved: the same kernels, each once
        columns = ["correlation", "start_ns", "time_ns", "launch_start_ns", "launch_thread"]
        assert Counter(found.kernels[columns].itertuples(index=False, name=None)) == Counter(
            made.kernels[columns].itertuples(index=False, name=None)
        )
    assert set(found.kernels["link"]) <= {"containment", "sequence", "graph", "none"}
    assert ((found.kernels["link"] == "none") == (found.kernels["call"] < 0)).all()
    assert set(found.calls["phase"]) <= {*PHASES, ""}
    same(attribute(found), found)
    order = list(range(len(made.calls)))
    dice.shuffle(order)
    turned = dataclasses.replace(made, calls=made.calls.iloc[order], kernels=made.kernels.iloc[::-1])
    shuffled = attribute(turned)
    pd.testing.assert_frame_equal(shuffled.calls, found.calls)
    unnumbered = [c for c in found.kernels.columns if c != "index"]
    ordered = [frame.kernels.sort_values(["start_ns", "correlation"])[unnumbered] for frame in (shuffled, found)]
    pd.testing.assert_frame_equal(*(frame.reset_index(drop=True) for frame in ordered))


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(recordings())
def test_links_and_parents_equal_brute_force(made: Recording) -> None:
    """Every call is tried: the shortest one around; these recordings have no times in common but ends."""
    found = attribute(made)
    rows = list(found.calls.itertuples())
    for row in rows:
        around = [
            other
            for other in rows
            if other.thread == row.thread
            and other.index != row.index
            and other.start_ns <= row.start_ns
            and row.start_ns + row.time_ns <= other.start_ns + other.time_ns
        ]
        assert row.parent == min(around, key=lambda other: other.time_ns, default=NOTHING).index
    for one in found.kernels.itertuples():
        if one.what == "call" or one.launch_start_ns < 0:
            continue
        around = [
            row
            for row in rows
            if row.thread == one.launch_thread
            and row.start_ns <= one.launch_start_ns <= row.start_ns + row.time_ns
        ]  # fmt: skip
        assert one.call == min(around, key=lambda row: row.time_ns, default=NOTHING).index


NOTHING = type("Nothing", (), {"index": -1})


# --- calls in the place of kernels -----------------------------------------------------------------------------------


def test_rows_of_calls_share_time_without_counting_it_twice() -> None:
    """Beside brute force: of each call its own time, less that of every such call inside it."""
    found = attribute(kineto.read(DATA / "kineto_torch215_plain.json.gz"))
    rows = {row.call: row for row in found.kernels.itertuples()}
    parents = found.calls["parent"].tolist()
    inside: dict[int, int] = dict.fromkeys(rows, 0)
    for index, row in rows.items():
        above = parents[index]
        while above >= 0 and above not in rows:
            above = parents[above]
        if above >= 0:
            inside[above] += found.calls["time_ns"][row.call]
    for index, row in rows.items():
        assert row.time_ns == found.calls["time_ns"][index] - inside[index]
    assert any(inside.values())  # aten::addmm copies its bias
    assert 0 < found.kernels["time_ns"].sum() <= found.calls.loc[found.calls["parent"] < 0, "time_ns"].sum()


# --- beside torch's own events ---------------------------------------------------------------------------------------


def test_a_live_recording_equals_what_profiles_make_of_it(tmp_path: Path) -> None:
    """The same recording by two roads: its events in the process (measure.profile.events), and its exported file."""
    from measure.profile.events import to_operations
    from tests.support.recordings.record_kineto import STEPS, with_ranges

    path = tmp_path / "trace.json"
    operations, _ = to_operations(with_ranges(path), "batch", cuda=False)
    found = attribute(kineto.read(path))
    assert found.steps == STEPS
    calls = found.calls
    last = calls[(calls["step"] == STEPS - 1) & calls["name"].str.fullmatch(OPERATOR.pattern)]
    place = {index: position for position, index in enumerate(last["index"])}
    parents = calls["parent"].tolist()

    def kept(index: int) -> int | None:
        while index >= 0 and index not in place:
            index = parents[index]
        return place.get(index)

    assert len(last) == len(operations) > 250
    for operation, row in zip(operations, last.itertuples(), strict=True):
        assert (row.name, row.phase, row.module) == (operation.name, operation.phase, operation.module)
        assert place.get(row.forward_index) == operation.forward_index
        assert kept(row.parent) == operation.parent
        assert row.input_shapes == operation.input_shapes
        assert row.input_dtypes == operation.input_dtypes
        assert row.concrete_inputs == operation.concrete_inputs
        assert row.time_ns == round(operation.time_s * 1e9)
    assert {"recompute", "loss", "optimizer"} <= set(last["phase"])
