"""Recordings that were cut: each total is that of the whole recording, or unknown with a reason, never another number.

Random nets are recorded here, and events are taken out of the file in eleven ways. With what torch.profiler writes one
kind of cut is not seen: its last calls are taken out of a file that keeps all else, where no gradient numbers or draws
them. Without its numbers, arrows and end what is left are the calls themselves (docs/traces.md).
"""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from cleaning.trace.clean import CleanedTrace
from runners.trace import command
from tests.support.recordings import cut_recordings
from tests.support.recordings.cut_recordings import (
    CUTS,
    LAYERS,
    SHORTER,
    calls_alone,
    cleaned,
    drawn,
    judged,
    passes,
    recorded,
    unnumbered,
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


@pytest.mark.parametrize("form", [unnumbered, calls_alone])
@pytest.mark.parametrize("seed", range(4))
def test_nodes_that_are_lost_from_one_of_several_steps_are_seen_without_numbers(
    seed: int, form: Any, tmp_path: Path
) -> None:
    """Passes with the same forward calls must have the same gradients."""
    dice = random.Random(seed)
    names = dice.choices([name for name in LAYERS if name not in ("einsum", "checkpoint", "reentrant")], k=3)
    events = form(recorded(names, tmp_path / "made.json", steps=3, ways="train"))
    whole = cleaned(events, tmp_path / "whole.json")
    assert whole.missing == (), names
    for cut in (cut_recordings.node, cut_recordings.nodes):
        for _ in range(4):
            at = dice.randrange(10**9)
            found = cleaned(cut(events, random.Random(at)), tmp_path / "cut.json")
            assert judged(whole, found) != "unseen", (names, cut.__name__, at)


@pytest.mark.parametrize("form", [unnumbered, calls_alone])
@pytest.mark.parametrize("first", [1, 2])
def test_a_gap_from_a_forward_pass_into_the_backward_pass_leaves_neither_a_total(
    form: Any, first: int, tmp_path: Path
) -> None:
    """Of the first of three steps: the last products from `first` on, the loss, and the nodes of the last product.

    Where all products of the gap lose their nodes (`first` 3), a step of a smaller net is left (docs/traces.md).
    """
    events = form(recorded(["linear"] * 3, tmp_path / "made.json", steps=3, ways="loss"))
    whole = cleaned(events, tmp_path / "whole.json")
    assert whole.missing == ()
    calls = sorted((e for e in events if e.get("cat") in cut_recordings.CALLS), key=lambda e: float(e["ts"]))
    begin_us = float([e for e in calls if e["name"] == "aten::linear"][first]["ts"])
    last = next(e for e in calls if e["name"].startswith("autograd::engine") and "Addmm" in e["name"])
    end_us = float(last["ts"]) + float(last["dur"])
    found = cleaned([e for e in events if not begin_us <= float(e.get("ts", -1)) <= end_us], tmp_path / "cut.json")
    totals = found.phase_totals["repaired"]
    assert (totals["forward_flop"].flop, totals["backward_flop"].flop) == (None, None)


@pytest.fixture(scope="module")
def three(tmp_path_factory: Any) -> list[dict[str, Any]]:
    """Three training steps of two convolutions and two linear layers."""
    return recorded(["convolution", "residual"], tmp_path_factory.mktemp("cut") / "made.json", steps=3)


def of(found: CleanedTrace, phase: str) -> Any:
    return found.phase_totals["repaired"][f"{phase}_flop"]


def test_a_recording_that_ends_within_a_backward_pass(three: list[dict[str, Any]], tmp_path: Path) -> None:
    """The calls alone, up to the last node but two of the last step: what is below it must have been run."""
    events = calls_alone(three)
    whole = cleaned(events, tmp_path / "whole.json")
    frames = sorted(float(e["ts"]) for e in events if e["name"].startswith("autograd::engine::evaluate_function: Conv"))
    cut = cleaned([event for event in events if float(event["ts"]) < frames[-2]], tmp_path / "cut.json")
    assert of(cut, "forward").flop == of(whole, "forward").flop
    assert of(cut, "backward").flop is None
    assert 0 < of(cut, "backward").at_least < of(whole, "backward").flop
    # two convolutions and two linear layers in each of three steps
    assert of(cut, "backward").missing[0].reason == (
        "2 of 12 forward products that need gradients have no backward call"
    )


def test_a_recording_that_ends_after_a_forward_pass(three: list[dict[str, Any]], tmp_path: Path) -> None:
    """The calls alone, without the last backward pass: one like it, before, had one."""
    events = calls_alone(three)
    roots = sorted(float(event["ts"]) for event in events if event["name"] == "aten::ones_like")
    cut = cleaned([event for event in events if float(event["ts"]) < roots[-1]], tmp_path / "cut.json")
    assert of(cut, "forward").flop is not None
    assert of(cut, "backward").flop is None
    assert [each.calls for each in of(cut, "backward").missing] == [4]


def test_a_node_of_a_convolution_without_its_calls(three: list[dict[str, Any]], tmp_path: Path) -> None:
    lost = next(event for event in three if event["name"] == "aten::convolution_backward")
    inside = [event for event in calls_alone(three) if cut_recordings._inside(event, lost)]
    keys = {(event["ts"], event["name"]) for event in inside}
    cut = cleaned([e for e in calls_alone(three) if (e["ts"], e["name"]) not in keys], tmp_path / "cut.json")
    assert of(cut, "forward").flop is not None
    assert "1 of 12 nodes of products hold no product" in [each.reason for each in of(cut, "backward").missing]


def test_numbers_say_of_which_phase_a_call_is(three: list[dict[str, Any]], tmp_path: Path) -> None:
    """A gradient's call is of the backward pass; one in a convolution, which counts by its own sizes, of no total."""
    whole = cleaned(three, tmp_path / "whole.json")
    gradient = next(event for event in three if event["name"] == "aten::convolution_backward")
    cut = cleaned([event for event in three if event is not gradient], tmp_path / "cut.json")
    assert of(cut, "forward") == of(whole, "forward")
    assert "1 numbered call is not in the file" in of(cut, "backward").missing[0].reason
    inner = next(event for event in three if event["name"] == "aten::mkldnn_convolution")
    assert cleaned([event for event in three if event is not inner], tmp_path / "cut.json").totals == whole.totals


def test_a_file_without_its_end(three: list[dict[str, Any]], tmp_path: Path) -> None:
    cut = cleaned([event for event in three if event["name"] != "Record Window End"], tmp_path / "cut.json")
    assert {each.phase for each in cut.missing} == {"forward", "backward"}
    assert all("Record Window End" in each.reason for each in cut.missing)


def on_a_device(lost: int) -> list[dict[str, Any]]:
    """Two matrix products with two kernels of 5 µs each; `lost` of the first one's kernels are not recorded."""
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
    return events


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_call_that_lost_a_kernel_counts_and_has_no_time(lost: int, tmp_path: Path) -> None:
    """2 · 64³ FLOP each; a rate of the first would be over a part of its time."""
    found = cleaned(on_a_device(lost), tmp_path / "made.json")
    assert of(found, "forward").flop == 2 * 2 * 64**3
    assert [each.kernel_time_s for each in found.instances] == [None if lost else 1e-5, 1e-5]


def test_the_command_tells_it_everywhere(three: list[dict[str, Any]], tmp_path: Path, capsys: Any) -> None:
    """Text, document and tables of a recording that ends within a backward pass: no total, no ratio, the reason."""
    frames = sorted(float(e["ts"]) for e in three if e["name"].startswith("autograd::engine::evaluate_function: Conv"))
    path = tmp_path / "cut.json"
    kept = [event for event in calls_alone(three) if float(event["ts"]) < frames[-2]]
    path.write_text(json.dumps({"traceEvents": kept}))
    reason = "2 of 12 forward products that need gradients have no backward call"
    assert command.main([str(path), "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["missing"] == [{"phase": "backward", "calls": 2, "reason": reason}]
    assert [told["totals"][state]["backward_flop"] for state in told["totals"]] == [None] * 3
    assert command.main([str(path), "--out", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert f"backward has no total: {reason}" in text
    (repaired,) = [line for line in text.splitlines() if line.startswith("counted from recorded sizes")]
    assert "at least" in repaired
    assert repaired.endswith("–")
    rows = gzip.decompress((tmp_path / "out" / command.INSTANCES).read_bytes()).decode()
    assert "missing: " + reason in rows
    figures = {each.name.partition(".")[0] for each in (tmp_path / "out" / command.FIGURES).iterdir()}
    assert "timeline" in figures
    assert "backward_forward_by_kind" not in figures


def marked_inference(folder: Path, layers: list[str]) -> list[dict[str, Any]]:
    """The calls of three marked steps without gradients, where no number of autograd tells what is missing; a µs from
    each beginning or end of a call to the next."""
    events = calls_alone(recorded(layers, folder / "made.json", steps=3, marked=True, ways="infer"))
    begins = [float(event["ts"]) for event in events]
    ends = [float(event["ts"]) + float(event["dur"]) for event in events]
    place = {time: at for at, time in enumerate(sorted({*begins, *ends}))}
    for event, begin, end in zip(events, begins, ends, strict=True):
        event["ts"], event["dur"] = place[begin], place[end] - place[begin]
    return events


@pytest.mark.parametrize("step", [0, 1, 2])
def test_a_marked_step_that_is_silent_where_others_have_products_lacks_them(step: int, tmp_path: Path) -> None:
    events = marked_inference(tmp_path, ["convolution", "norm", "residual"])
    assert cleaned(events, tmp_path / "whole.json").missing == ()
    calls = cut_recordings._calls(events)
    linear = [each for each in calls if each["name"] == "aten::linear"]
    assert len(linear) == 6, "two of each step"
    lost = [each for each in calls if cut_recordings._inside(each, linear[2 * step])]
    found = cleaned(cut_recordings._without(events, lost), tmp_path / "cut.json")
    assert of(found, "forward").flop is None
    assert "lack 1 products of another step, and are silent" in of(found, "forward").missing[0].reason


def test_a_step_that_is_shorter_and_not_silent_lacks_nothing(tmp_path: Path) -> None:
    """The same gap, and the time of what is after it, and of the step, is earlier by as much: another step."""
    events = marked_inference(tmp_path, ["linear", "residual"])
    calls = cut_recordings._calls(events)
    first = next(each for each in calls if each["name"] == "aten::linear")
    mark = next(each for each in calls if each["name"].startswith("ProfilerStep"))
    end_us = float(first["ts"]) + float(first["dur"])
    less_us = end_us - float(mark["ts"])
    lost = [each for each in calls if each is not mark and cut_recordings._inside(each, mark) and each["ts"] < end_us]
    kept = cut_recordings._without(events, lost)
    mark["ts"], mark["dur"] = end_us, float(mark["dur"]) - less_us
    found = cleaned(kept, tmp_path / "cut.json")
    assert of(found, "forward").flop == 2 * 5 * (3 * (8 * 8 + 8 * 8 + 8 * 3) - 8 * 8)


def test_an_evaluation_in_one_of_three_steps_and_a_wait_in_another_lack_nothing(tmp_path: Path) -> None:
    """Two of three steps without what the first has more, one of them silent in its place."""
    events = marked_inference(tmp_path, ["convolution", "residual"])
    calls = cut_recordings._calls(events)
    marks = [each for each in calls if each["name"].startswith("ProfilerStep")]
    last = [[each for each in calls if each["name"] == "aten::linear" and cut_recordings._inside(each, mark)][-1]
            for mark in marks[1:]]  # fmt: skip
    lost = [each for each in calls if any(cut_recordings._inside(each, around) for around in last)]
    found = cleaned(cut_recordings._without(events, lost), tmp_path / "cut.json")
    assert of(found, "forward").flop is not None
    one = [each for each in calls if cut_recordings._inside(each, last[0])]
    assert of(cleaned(cut_recordings._without(events, one), tmp_path / "cut.json"), "forward").flop is None


@pytest.mark.parametrize("side", ["before the first", "after the last"])
def test_products_outside_of_marked_steps_are_no_part_of_one(side: str, tmp_path: Path) -> None:
    events = marked_inference(tmp_path, ["convolution", "residual"])
    marks = [each for each in cut_recordings._calls(events) if each["name"].startswith("ProfilerStep")]
    mark = marks[0] if side == "before the first" else marks[-1]
    middle = float(mark["ts"]) + float(mark["dur"]) / 2
    begins = side == "before the first"
    kept = [e for e in events if e is not mark and (float(e["ts"]) > middle if begins else float(e["ts"]) < middle)]
    found = cleaned(kept, tmp_path / "cut.json")
    assert of(found, "forward").flop is None
    assert f"{side} marked step" in of(found, "forward").missing[0].reason


def test_a_recording_without_numbers_says_so_in_every_form(tmp_path: Path, capsys: Any) -> None:
    """Text, document, rows: counts are of the calls recorded; a numbered one says that none is missing."""
    events = recorded(["linear"], tmp_path / "made.json")
    for form, numbered in ((list, True), (calls_alone, False)):
        path = tmp_path / "form.json"
        path.write_text(json.dumps({"traceEvents": form(events)}))
        assert command.main([str(path), "--format", "json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["numbered"] is numbered
        assert ("none is missing up to the last one" in told["totals_are"]) is numbered
        assert command.main([str(path), "--format", "csv"]) == 0
        rows = capsys.readouterr().out.splitlines()
        assert ("a missing call may not be noticed" in rows[-1]) is not numbered
        assert command.main([str(path)]) == 0
        assert ("may not be noticed" in " ".join(capsys.readouterr().out.split())) is not numbered


def whole_gradient(calls: list[dict[str, Any]], at: int) -> list[dict[str, Any]]:
    """A matrix product of a node with what is inside of it and the transposes around it."""
    lost = [each for each in calls if cut_recordings._inside(each, calls[at])]
    for direction, place in ((-1, at - 1), (1, at + len(lost))):
        while calls[place]["name"] in ("aten::t", "aten::transpose", "aten::as_strided"):
            lost.append(calls[place])
            place += direction
    return lost


@pytest.mark.parametrize("form", [unnumbered, calls_alone])
def test_one_gradient_of_a_node_that_a_later_node_takes_is_missed(form: Any, tmp_path: Path) -> None:
    """A single step without the recorder's numbers: each matrix product of the backward pass is lost by itself, with
    its transposes, so that the node looks like that of a frozen layer."""
    events = form(recorded(["linear", "relu", "linear"], tmp_path / "made.json", steps=1))
    assert cleaned(events, tmp_path / "whole.json").missing == ()
    calls = cut_recordings._calls(events)
    products = [at for at, each in enumerate(calls) if each["name"] == "aten::mm"]
    assert len(products) == 5, "two for each of three layers, but the first layer's input"
    for at in products:
        found = cleaned(cut_recordings._without(events, whole_gradient(calls, at)), tmp_path / "cut.json")
        assert (of(found, "backward").flop, of(found, "forward").flop) == (None, 2 * 5 * (8 * 8 + 8 * 8 + 8 * 3))


@pytest.mark.parametrize("frame", ["autograd::engine::evaluate_function: AddmmBackward0", "AddmmBackward0"])
def test_the_node_of_a_layer_is_not_that_of_its_weights_transpose(frame: str, tmp_path: Path) -> None:
    """Calls alone: of a linear layer the node of the product is lost, that of its weight's transpose is there."""
    events = calls_alone(recorded(["linear", "relu", "linear"], tmp_path / "made.json", steps=1))
    calls = cut_recordings._calls(events)
    for around in [each for each in calls if each["name"] == frame]:
        lost = [each for each in calls if cut_recordings._inside(each, around)]
        found = cleaned(cut_recordings._without(events, lost), tmp_path / "cut.json")
        assert of(found, "backward").flop is None


@pytest.mark.parametrize("names", [["linear", "relu"], ["convolution"], ["linear", "checkpoint"], ["reentrant"]])
def test_calls_without_autograds_numbers_have_the_phases_of_their_frames(names: list[str], tmp_path: Path) -> None:
    """On a CPU the backward pass runs on the thread of the forward pass: not all of that thread is backward."""
    events = recorded(names, tmp_path / "made.json", steps=2)
    whole = cleaned(events, tmp_path / "whole.json").phase_totals["repaired"]
    found = cleaned(without_sequences(events), tmp_path / "cut.json").phase_totals["repaired"]
    assert {name: each.flop for name, each in found.items()} == {name: each.flop for name, each in whole.items()}


@pytest.mark.parametrize("steps", [1, 2])
def test_what_a_checkpoint_recalculates_is_no_forward_pass(steps: int, tmp_path: Path) -> None:
    """Calls alone, of which a reentrant checkpoint's frames are lost: what it recalculated lies in no node."""
    events = calls_alone(recorded(["linear", "reentrant"], tmp_path / "made.json", steps=steps))
    calls = cut_recordings._calls(events)
    lost = [each for each in calls if "CheckpointFunctionBackward" in each["name"]]
    assert len(lost) == 2 * steps, "the engine's frame and the node"
    found = cleaned(cut_recordings._without(events, lost), tmp_path / "cut.json")
    assert (of(found, "forward").flop, of(found, "recompute").flop) == (None, None)
    assert "recalculated" in " ".join(each.reason for each in found.missing)
