"""The eight of Fathom at small sizes, recorded for real: nearly every operation has a group, and the paper's largest
groups are ours where neither the batch nor the optimizer decides them."""

from __future__ import annotations

import functools
import json
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from analysis.devices.precisions import PRECISIONS
from measure.profile.step_series import record
from measure.profile.typed_steps import TypedStep, typed_steps
from runners.characterize import command
from runners.characterize import plan as characterize_plan
from runners.characterize import task as characterize_task
from workloads.catalogue import entries

GIVEN = {
    ("--models", "residual", "--scale", "small"): ["residual@small"],
    ("--models", "residual", "--variant", "as_paper"): ["residual@as_paper"],
    ("--models", "memnet,residual", "--variant", "as_paper", "--scale", "small"): [
        "memnet@small",
        "residual@as_paper@small",
    ],
    ("--models", "residual@small,resnet18", "--variant", "as_paper"): ["residual@as_paper@small", "resnet18"],
    ("--models", "residual,memnet,gpt2", "--variant", "both", "--scale", "small"): [
        "residual@small",
        "memnet@small",
        "gpt2@small",
        "residual@as_paper@small",
    ],
    ("--suite", "fathom"): list(entries.FATHOM),
    ("--reproduce", "fathom"): [f"{name}@small" for name in entries.FATHOM],
    ("--reproduce", "fathom", "--scale", "own"): list(entries.FATHOM),
}
"""What is asked → the names of the catalogue that are recorded."""

EIGHT = ("seq2seq", "memnet", "fathom-speech", "autoenc", "residual", "fathom-vgg", "fathom-alexnet", "deepq")

LARGEST = {"fathom-speech": "B", "residual": "D", "deepq": "D"}
"""Of the paper's Figure 3."""


@pytest.mark.parametrize(("arguments", "expected"), GIVEN.items())
def test_variants_and_scales_are_names_of_the_catalogue(arguments: tuple[str, ...], expected: list[str]):
    options = command.parser().parse_args(arguments)
    assert list(characterize_plan.models_of(options)) == expected


def test_each_workload_has_its_own_batch_and_optimizer():
    options = command.parser().parse_args(["--models", "deepq,residual@small,resnet18"])
    first = {each.recording.workload: each.recording for each in characterize_plan.requests(options, ["cpu"])}
    assert [(one.batch_size, one.optimizer) for one in first.values()] == [(32, ""), (4, ""), (8, "")]
    training = [each.recording for each in characterize_plan.requests(options, ["cpu"]) if each.recording.optimizer]
    assert [(one.workload, one.optimizer, one.variant) for one in training] == [
        ("deepq", "own", "as_coded"), ("residual@small", "own", "as_coded"), ("resnet18", "sgd", ""),
    ]  # fmt: skip


SEEN_QUICKLY = ("memnet", "seq2seq@small", "fathom-alexnet@small")
SEEN_SLOWLY = ("fathom-speech@small", "autoenc", "residual@small", "fathom-vgg@small", "deepq@small")
"""One that is mostly between its operations, one of many calls, one of few."""


@functools.cache
def profiled(name: str) -> tuple[list[TypedStep], list[float]]:
    """Steps of a workload by their operations, and how long each took by Python's own clock."""
    options = command.parser().parse_args(["--models", name, "--modes", "training"])
    (request,) = characterize_plan.requests(options, ["cpu"])
    step = characterize_task._step(*characterize_task._built(request, torch.device("cpu")), request, PRECISIONS["fp32"])
    seen_s = []

    def clocked(announce: Any) -> Any:
        start_s = time.perf_counter()
        found = step(announce)
        seen_s.append(time.perf_counter() - start_s)
        return found

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = record(clocked, "cpu", warm_up=2, plain=0, profiled=9, before=step.forget)
    torch.set_num_threads(threads)
    return typed_steps(found.profile, cuda=False), seen_s[2:]


@pytest.mark.parametrize(
    "name",
    [*SEEN_QUICKLY, *(pytest.param(name, marks=pytest.mark.slow) for name in SEEN_SLOWLY)],
)
def test_operations_and_what_lies_between_are_the_step_that_another_clock_saw(name: str):
    """A step's groups and H add up to its range in the profile; the range, to what Python's clock says around the step
    itself. A median: a step that loses the processor between the two is none that counts."""
    steps, seen_s = profiled(name)
    ratios = [one.step_s / s for one, s in zip(steps, seen_s, strict=True)]
    assert statistics.median(ratios) == pytest.approx(1, abs=0.02)
    assert all(0 < one.operations_s < one.step_s for one in steps)


def test_a_fused_reader_launches_about_a_third_less():
    """As docs/characterize.md says. Calls on a CPU that would be launches; in every step as many."""
    counts = []
    for name in ("seq2seq@small", "seq2seq@fused@small"):
        (count,) = {sum(one.launches.values()) for one in profiled(name)[0]}
        counts.append(count)
    assert 0.6 < counts[1] / counts[0] < 0.75


@pytest.mark.slow
def test_the_eight_are_placed_and_their_largest_groups_are_the_papers(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    arguments = ["--reproduce", "fathom", "--device", "cpu", "--modes", "training", "--steps", "6", "--format", "json"]
    code = command.main([*arguments, "--out", str(tmp_path)])
    found = {one["name"].partition("@")[0]: one for one in json.loads(capsys.readouterr().out)["workloads"]}
    assert code == 0
    assert tuple(found) == EIGHT
    for one in found.values():
        assert one["unclassified_ratio"] <= 0.01
        assert sum(one["groups"].values()) + one["unclassified_ratio"] == pytest.approx(1)
    for name, group in LARGEST.items():
        operations = {letter: ratio for letter, ratio in found[name]["groups"].items() if letter != "H"}
        assert max(operations, key=lambda letter: operations[letter]) == group
    held = [each.peak_memory_bytes for each in command.read_rows(tmp_path).recordings]
    assert len(held) == len(EIGHT)
    assert all(each is not None and each < 4e9 for each in held)
