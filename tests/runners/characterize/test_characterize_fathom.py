"""Definition, known answer: which of Fathom's workloads are recorded, and the groups that the paper found largest.

At small sizes nearly every operation has a group, and the paper's largest groups are ours where neither the batch nor
the optimizer decides them.
"""

import json
from pathlib import Path

import pytest

from runners import characterize as command
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
    assert list(command.models_of(options)) == expected


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
