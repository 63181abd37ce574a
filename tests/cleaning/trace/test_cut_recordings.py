"""Recordings that were cut: each total is that of the whole recording, or unknown with a reason, never another number.

Random nets are recorded here, and events are taken out of the file in eleven ways. With what torch.profiler writes one
kind of cut is not seen: its last calls are taken out of a file that keeps all else, where no arrow points to them.
Without its numbers nothing is seen, and the totals are said to be of the recorded calls (docs/evidence.md).
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from cleaning.trace.clean import CleanedTrace
from runners import trace
from tests.support.recordings.cut_recordings import (
    CUTS,
    SHORTER,
    cleaned,
    drawn,
    judged,
    passes,
    recorded,
    without_sequences,
)


@pytest.mark.parametrize("seed", range(6))
def test_a_cut_recording_has_no_total_that_is_not_one(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    names, how = drawn(dice)
    events = recorded(names, tmp_path / "made.json", **how)
    whole = cleaned(events, tmp_path / "whole.json")
    assert whole.missing == (), (names, how)
    for name, cut in CUTS.items():
        at = dice.randrange(10**9)
        found = cleaned(cut(events, random.Random(at)), tmp_path / "cut.json")
        word = judged(whole, found, passes(how["ways"], how["steps"]) if name in SHORTER else None)
        unseen = name == "tail" and (how["ways"] in ("infer", "both") or how["steps"] == 1)
        assert word != "unseen" or unseen, (names, how, name, at)
        assert (
            word != "partial" or found.missing or any(t.unknown_calls for t in found.phase_totals["repaired"].values())
        )


@pytest.fixture(scope="module")
def three(tmp_path_factory: Any) -> list[dict[str, Any]]:
    """Three training steps of two convolutions and two linear layers."""
    return recorded(["convolution", "residual"], tmp_path_factory.mktemp("cut") / "made.json", steps=3)


def of(found: CleanedTrace, phase: str) -> Any:
    return found.phase_totals["repaired"][f"{phase}_flop"]


def test_a_call_that_is_missing_leaves_no_phase_a_total(three: list[dict[str, Any]], tmp_path: Path) -> None:
    """By the recorder's numbers; what was in the gap, nobody knows."""
    gradient = next(event for event in three if event["name"] == "aten::convolution_backward")
    cut = cleaned([event for event in three if event is not gradient], tmp_path / "cut.json")
    for phase in ("forward", "backward"):
        assert of(cut, phase).flop is None
        assert [each.reason for each in of(cut, phase).missing] == [
            "1 numbered call is not in the file, by its recorder's numbers"
        ]


def test_a_file_without_its_end(three: list[dict[str, Any]], tmp_path: Path) -> None:
    cut = cleaned([event for event in three if event["name"] != "Record Window End"], tmp_path / "cut.json")
    assert {each.phase for each in cut.missing} == {"forward", "backward"}
    assert all("Record Window End" in each.reason for each in cut.missing)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_call_that_lost_a_kernel_counts_and_has_no_time(lost: int, tmp_path: Path) -> None:
    """2 · 64³ FLOP each; a rate of the first would be over a part of its time."""
    # two matrix products with two kernels of 5 µs each; `lost` of the first one's kernels are not recorded
    events: list[dict[str, Any]] = []
    for at in range(2):
        place = {"ph": "X", "pid": 1, "tid": 1}
        sizes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"], "External id": at + 1}
        events.append({**place, "cat": "cpu_op", "name": "aten::mm", "ts": 100 * at, "dur": 50, "args": sizes})
        for number in range(2):
            ids = {"correlation": 10 * at + number, "device": 0, "stream": 7}
            begin = 100 * at + 10 * number + 1
            events.append(
                {**place, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": begin, "dur": 2, "args": ids}
            )
            if at or number >= lost:
                kernel = {
                    "cat": "kernel",
                    "name": "ampere_sgemm_64x64_nn",
                    "ts": begin + 5,
                    "dur": 5,
                    "pid": 0,
                    "tid": 7,
                }
                events.append({"ph": "X", **kernel, "args": ids})
    found = cleaned(events, tmp_path / "made.json")
    assert of(found, "forward").flop == 2 * 2 * 64**3
    assert [each.kernel_time_s for each in found.instances] == [None if lost else 1e-5, 1e-5]


def test_the_command_tells_it(three: list[dict[str, Any]], tmp_path: Path, capsys: Any) -> None:
    """Text and document of a recording without a call of its backward pass: no total or ratio, the reason."""
    gradient = next(event for event in three if event["name"] == "aten::convolution_backward")
    path = tmp_path / "cut.json"
    path.write_text(json.dumps({"traceEvents": [event for event in three if event is not gradient]}))
    reason = "1 numbered call is not in the file, by its recorder's numbers"
    assert trace.main([str(path), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["missing"] == [{"phase": phase, "calls": 1, "reason": reason} for phase in ("backward", "forward")]
    assert [told["totals"][state]["backward_flop"] for state in told["totals"]] == [None] * 3
    assert trace.main([str(path)]) == 0
    text = capsys.readouterr().out
    assert f"backward has no total: {reason}" in text
    (repaired,) = [line for line in text.splitlines() if line.startswith("counted from recorded sizes")]
    assert "at least" in repaired
    assert repaired.endswith("–")


@pytest.mark.parametrize("names", [["linear", "relu"], ["convolution"], ["linear", "checkpoint"], ["reentrant"]])
def test_calls_without_autograds_numbers_have_the_phases_of_their_frames(names: list[str], tmp_path: Path) -> None:
    """On a CPU the backward pass runs on the thread of the forward pass: not all of that thread is backward."""
    events = recorded(names, tmp_path / "made.json", steps=2)
    whole = cleaned(events, tmp_path / "whole.json").phase_totals["repaired"]
    found = cleaned(without_sequences(events), tmp_path / "cut.json").phase_totals["repaired"]
    assert {name: each.flop for name, each in found.items()} == {name: each.flop for name, each in whole.items()}
