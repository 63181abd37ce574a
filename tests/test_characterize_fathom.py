"""The eight of Fathom at small sizes, recorded for real: nearly every operation has a group, and the paper's largest
groups are ours where neither the batch nor the optimizer decides them."""

from __future__ import annotations

import json

import pytest

from runners import characterize
from workloads.catalogue import SUITES

EIGHT = ("seq2seq", "memnet", "fathom-speech", "autoenc", "residual", "fathom-vgg", "fathom-alexnet", "deepq")

LARGEST = {"fathom-speech": "B", "residual": "D", "deepq": "D"}
"""Of the paper's Figure 3."""


@pytest.mark.slow
@pytest.mark.skipif("fathom" not in SUITES, reason="the workloads of Fathom are not there")
def test_the_eight_are_placed_and_their_largest_groups_are_the_papers(capsys: pytest.CaptureFixture[str]):
    code = characterize.main(
        ["--reproduce", "fathom", "--device", "cpu", "--modes", "training", "--steps", "6", "--format", "json"]
    )
    found = {one["name"].partition("@")[0]: one for one in json.loads(capsys.readouterr().out)["workloads"]}
    assert code == 0
    assert tuple(found) == EIGHT
    for one in found.values():
        assert one["unclassified_ratio"] <= 0.01
        assert sum(one["groups"].values()) + one["unclassified_ratio"] == pytest.approx(1)
    for name, group in LARGEST.items():
        operations = {letter: ratio for letter, ratio in found[name]["groups"].items() if letter != "H"}
        assert max(operations, key=lambda letter: operations[letter]) == group
