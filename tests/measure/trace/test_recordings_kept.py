"""Law, injected fault: a kept recording gives what the profiler gives; a lost one costs its own source alone."""

import dataclasses
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from cleaning.profile import clean_profile
from cleaning.reconcile.run import build
from cleaning.trace.clean import clean_recording
from measure.profile.recording import Profile, profile_step
from measure.timing.clocks import Clock
from measure.trace.attribute import OWN_STEP, last_step
from measure.trace.read import read
from measure.trace.recording import Recording, calls_table, flows_table, kernels_table, ranges_table
from results.records.counts import CleanedOperation
from results.store.layout import profile_file, recording_file
from results.store.store import read_operations, read_profile, read_run
from runners.cli.model_options import read_recording
from tests.measure.profile.small_net import Net
from tests.support.made_up import run_fixture
from tests.support.nets.small_steps import Small, parts
from tests.support.recordings.recordings import a_run

# --- which step ------------------------------------------------------------------------------------------------------


def three_steps(launched: bool = True) -> Recording:
    """Steps from 100, 200 and 300 ns on, 50 ns long; in each a call and a kernel that runs after the step's range."""
    starts = [100, 200, 300]
    launch = {"launch_start_ns": [120, 220, 320], "launch_end_ns": [125, 225, 325]} if launched else {}
    return Recording(
        source="kineto",
        path="made.json",
        calls=calls_table(name=["aten::mm"] * 3, start_ns=[110, 210, 310], time_ns=[20] * 3),
        kernels=kernels_table(name=["k0", "k1", "k2"], start_ns=[160, 260, 360], time_ns=[9] * 3, **launch),
        ranges=ranges_table(
            name=["flopledger.batch", OWN_STEP, OWN_STEP, OWN_STEP, "flopledger.forward"],
            start_ns=[90, *starts, 305],
            time_ns=[300, 50, 50, 50, 30],
        ),
        flows=flows_table(forward_ns=[112, 312], backward_ns=[130, 330]),
    )


@pytest.mark.parametrize("launched", [True, False])
def test_only_the_last_step_is_left_with_what_it_launched(launched: bool) -> None:
    left = last_step(three_steps(launched))
    assert left.calls["start_ns"].tolist() == [310]
    assert left.kernels["name"].tolist() == ["k2"]
    assert left.ranges["name"].tolist() == [OWN_STEP, "flopledger.forward"]
    assert left.flows["backward_ns"].tolist() == [330]


# --- what it gives ---------------------------------------------------------------------------------------------------


def kept(folder: Path, make: Callable[[], Any], shape: tuple[int, ...], **more: Any) -> tuple[Profile, Path]:
    """A real profile of a small net, and the file of its recording."""
    made = parts(make, shape, **more)(None)
    profile = profile_step(made.step, made.model, Clock(), pass_name="batch", cuda=False, most_steps=2, export=True)
    file = folder / "trace.json.gz"
    file.write_bytes(profile.recording)
    return profile, file


def told(rows: tuple[CleanedOperation, ...]) -> Counter[tuple[Any, ...]]:
    return Counter((row.work, row.kind, row.phase, row.module, row.dtype, row.cleaned_flop) for row in rows)


@pytest.mark.parametrize("autocast", [None, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(("make", "shape"), [(Small, (2, 3, 8, 8)), (Net, (2, 4, 8, 8))], ids=["small", "net"])
def test_its_products_are_those_of_the_profiler_in_dtype_place_and_size(
    tmp_path: Path, make: Any, shape: Any, autocast: Any
) -> None:
    profile, file = kept(tmp_path, make, shape, autocast=autocast)
    recording = read_recording(file, last_step)
    by_kernels = clean_recording(a_run(), "batch", recording.calls, recording.kernels, "kineto").operations
    by_calls = clean_profile(a_run(), profile.operations).operations
    assert told(by_kernels) == told(by_calls)
    assert {row.source for row in by_kernels} == {"kineto"}
    assert {row.dtype for row in by_kernels} == {"float32" if autocast is None else "bfloat16"}
    linked = {row.index: row for row in by_kernels}
    for row in by_kernels:
        assert row.phase != "backward" or linked[row.forward_index].phase == "forward"
    whole = read_recording(file)
    steps = (read(file).ranges["name"] == OWN_STEP).sum()
    assert steps == 1 + len(profile.blocks) == 3, "the untimed one and two timed ones"
    of_all = clean_recording(a_run(), "batch", whole.calls, whole.kernels, "kineto").operations
    assert sum(row.cleaned_flop or 0 for row in of_all) == steps * sum(row.cleaned_flop or 0 for row in by_kernels)


# --- in a report -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_fixture.write_profiled_run(tmp_path_factory.mktemp("run") / "run", peak_tflops=80.0)


def test_files_that_are_not_what_was_committed_cost_their_own_source_alone(path: Path) -> None:
    """One attempt lost its profile, another its recording of the batch: readable, but not what was committed."""
    data = read_run(path)
    first, second = data.runs[:2]
    runs = [
        dataclasses.replace(
            run,
            profile="kineto",
            committed={recording_file(run.cell_id, 1, work, "kineto"): [1, "0"] for work in run.profiled},
        )
        for run in data.runs
    ]
    lost = frozenset({profile_file(first.cell_id, 1), recording_file(second.cell_id, 1, "batch", "kineto")})
    none = [calls_table(), kernels_table()]
    found = build(
        dataclasses.replace(data, runs=runs, damaged=lost),
        lambda trace_id: read_operations(path, trace_id)[0],
        partial(read_profile, path),
        lambda file: (none[0], none[1]),
    )
    said = [row for row in found.profile_counts if "is not what was committed" in row.reason]
    by_cell = {(row.cell_id, row.source) for row in said}
    assert by_cell == {(first.cell_id, "torch_profiler"), (second.cell_id, "kineto")}
    assert {row.work for row in said if row.source == "kineto"} == {"batch", "epoch"}
    assert {row.status for row in said} == {"unavailable"}
    assert len([problem for problem in found.problems if "is not what was committed" in problem]) == 2
