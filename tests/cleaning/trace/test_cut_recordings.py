"""Injected fault, law, command: totals of cut recordings are those of the whole ones, or unknown with a reason.

Random nets are recorded here, and events are taken out of the file in eleven ways. With what torch.profiler writes one
kind of cut is not seen: its last calls are taken out of a file that keeps all else, where no arrow points to them.
Without its numbers nothing is seen, and the totals are said to be of the recorded calls (docs/evidence.md).
"""

import copy
import json
import random
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint

from cleaning.trace.clean import CleanedTrace, clean
from measure.trace.attribute import attribute
from measure.trace.read import read
from runners import trace
from tests.support.nets.small_steps import Calls

Event = dict[str, Any]
CALLS = ("cpu_op", "user_annotation")
NUMBERS = ("External id", "Ev Idx")


# --- nets ------------------------------------------------------------------------------------------------------------


def _residual(width: int) -> nn.Module:
    inner = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
    return Calls(lambda self, x: x + self.inner(x), inner=inner)


def _attention(width: int) -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unsqueeze(1) for part in self.inner(x).unsqueeze(0).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v).flatten(0, 2)

    return Calls(forward, inner=nn.Linear(width, 3 * width))


def _convolution(width: int) -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.second(F.relu(self.first(x.view(-1, 1, 4, width // 4)))))
        return x.mean(1).flatten(1)

    parts = {"first": nn.Conv2d(1, 3, 3, padding=1), "second": nn.Conv2d(3, 2, 1), "norm": nn.BatchNorm2d(2)}
    return Calls(forward, **parts)


def _checkpointed(width: int, reentrant: bool = False) -> nn.Module:
    inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    return Calls(lambda self, x: checkpoint(self.inner, x, use_reentrant=reentrant), inner=inner)


def _frozen(width: int) -> nn.Module:
    return nn.Linear(width, width).requires_grad_(False)


def _without_gradients(width: int) -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            beside = self.inner(x)
        return x * beside

    return Calls(forward, inner=nn.Linear(width, width))


def _einsum(width: int) -> nn.Module:
    return Calls(lambda self, x: torch.einsum("ij,kj->ik", x, self.inner.weight), inner=nn.Linear(width, width))


def _unused(width: int) -> nn.Module:
    """A branch whose output nobody takes, and one that is cut off from the gradient."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        self.inner(x)
        return self.other(x) * self.inner(x).detach()

    return Calls(forward, inner=nn.Linear(width, width), other=nn.Linear(width, width))


LAYERS: Mapping[str, Callable[[int], nn.Module]] = {
    "linear": lambda width: nn.Linear(width, width),
    "relu": lambda width: nn.ReLU(),
    "norm": nn.LayerNorm,
    "residual": _residual,
    "attention": _attention,
    "convolution": _convolution,
    "checkpoint": _checkpointed,
    "reentrant": lambda width: _checkpointed(width, reentrant=True),
    "frozen": _frozen,
    "no_grad": _without_gradients,
    "einsum": _einsum,
    "unused": _unused,
}


def recorded(names: list[str], path: Path, *, steps: int = 2, marked: bool = False, ways: str = "train") -> list[Event]:
    """The events of some steps of a net of these layers. marked: by ProfilerStep. ways: "train", "infer" (without
    gradients), "both" (an evaluation without gradients after each step), "loss" (without an optimizer)."""
    width, batch = 8, 5
    torch.manual_seed(0)
    net = nn.Sequential(*(LAYERS[name](width) for name in names), nn.Linear(width, 3))
    optimizer = torch.optim.SGD([each for each in net.parameters() if each.requires_grad], lr=0.01)
    x, y = torch.randn(batch, width), torch.zeros(batch, dtype=torch.long)

    def step() -> None:
        if ways != "infer":
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
        if ways in ("train", "both"):
            optimizer.step()
        if ways in ("infer", "both"):
            with torch.no_grad():
                net(x)

    plan = schedule(wait=0, warmup=1, active=steps, repeat=1) if marked else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a checkpoint that gets no gradient
        step()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True, schedule=plan) as profiler:
            for _ in range(steps + marked):
                step()
                if marked:
                    profiler.step()
    profiler.export_chrome_trace(str(path))
    events: list[Event] = json.loads(path.read_text())["traceEvents"]
    return events


# --- cuts ------------------------------------------------------------------------------------------------------------


def _calls(events: list[Event]) -> list[Event]:
    return sorted((e for e in events if e.get("cat") in CALLS), key=lambda e: (float(e["ts"]), -float(e["dur"])))


def _inside(event: Event, around: Event) -> bool:
    begin, end = float(around["ts"]), float(around["ts"]) + float(around["dur"])
    return event["tid"] == around["tid"] and begin <= float(event["ts"]) <= end


def _without(events: list[Event], lost: list[Event]) -> list[Event]:
    gone = {id(event) for event in lost}
    return [event for event in events if id(event) not in gone]


def one(events: list[Event], dice: random.Random) -> list[Event]:
    """One call, without those inside of it."""
    return _without(events, [dice.choice(_calls(events))])


def some(events: list[Event], dice: random.Random) -> list[Event]:
    """A few calls anywhere."""
    calls = _calls(events)
    return _without(events, dice.sample(calls, min(len(calls), dice.randint(2, 8))))


def subtree(events: list[Event], dice: random.Random) -> list[Event]:
    """A call and all inside of it."""
    calls = _calls(events)
    around = dice.choice(calls)
    return _without(events, [event for event in calls if _inside(event, around)])


def node(events: list[Event], dice: random.Random) -> list[Event]:
    """A node of the backward pass and all inside of it."""
    calls = _calls(events)
    nodes = [event for event in calls if event["name"].startswith("autograd::engine")]
    around = dice.choice(nodes or calls)
    return _without(events, [event for event in calls if _inside(event, around)])


def nodes(events: list[Event], dice: random.Random) -> list[Event]:
    """A run of nodes of the backward pass."""
    calls = _calls(events)
    found = [event for event in calls if event["name"].startswith("autograd::engine")] or calls
    first = dice.randrange(len(found))
    lost = found[first : first + dice.randint(1, 8)]
    return _without(events, [event for event in calls if any(_inside(event, around) for around in lost)])


def both(events: list[Event], dice: random.Random) -> list[Event]:
    """A forward call with all inside, and the nodes of its numbers."""
    calls = _calls(events)
    forward = [e for e in calls if "Sequence number" in e["args"] and e["name"].startswith("aten::")] or calls
    around = dice.choice(forward)
    number = around["args"].get("Sequence number")
    of = [e for e in calls if e is around or (number is not None and e["args"].get("Sequence number") == number)]
    return _without(events, [event for event in calls if any(_inside(event, each) for each in of)])


def span(events: list[Event], dice: random.Random) -> list[Event]:
    """All that begins within a span of time."""
    times = sorted(float(event["ts"]) for event in _calls(events))
    first = dice.randrange(len(times) - 1)
    last = dice.randrange(first, min(first + len(times) // 3, len(times) - 1))
    return [event for event in events if not times[first] <= float(event.get("ts", -1)) <= times[last]]


def head(events: list[Event], dice: random.Random) -> list[Event]:
    """All calls before a time."""
    at = dice.choice([float(event["ts"]) for event in _calls(events)][1:])
    return [event for event in events if event.get("cat") not in CALLS or float(event["ts"]) >= at]


def tail(events: list[Event], dice: random.Random) -> list[Event]:
    """All calls that begin after a time, in the middle of what was running."""
    at = dice.choice([float(event["ts"]) for event in _calls(events)][1:])
    return [event for event in events if event.get("cat") not in CALLS or float(event["ts"]) < at]


def file_tail(events: list[Event], dice: random.Random) -> list[Event]:
    """Everything in the file that begins after a time."""
    at = dice.choice([float(event["ts"]) for event in _calls(events)][1:])
    return [event for event in events if float(event.get("ts", -1)) < at]


def ended(events: list[Event], dice: random.Random) -> list[Event]:
    """All calls that end after a time: those that were running are lost, too."""
    at = dice.choice([float(event["ts"]) for event in _calls(events)][1:])
    return [e for e in events if e.get("cat") not in CALLS or float(e["ts"]) + float(e["dur"]) < at]


CUTS = {cut.__name__: cut for cut in (one, some, subtree, node, nodes, both, span, head, tail, file_tail, ended)}


def calls_alone(events: list[Event]) -> list[Event]:
    """The calls without numbers, and nothing else: no arrows, no window."""
    return [event for event in unnumbered(events) if event.get("cat") in CALLS]


def unnumbered(events: list[Event]) -> list[Event]:
    """The events without the recorder's numbers, as a tool may leave them that writes traces anew."""
    kept = copy.deepcopy(events)
    for event in kept:
        for name in NUMBERS:
            event.get("args", {}).pop(name, None)
    return kept


def without_sequences(events: list[Event]) -> list[Event]:
    """The calls without autograd's numbers, too."""
    kept = calls_alone(events)
    for event in kept:
        for name in ("Sequence number", "Fwd thread id"):
            event["args"].pop(name, None)
    return kept


# --- which recordings ------------------------------------------------------------------------------------------------

WAYS = ("train", "loss", "both", "infer")
SHORTER = ("tail", "ended", "file_tail", "head", "span")
"""Cuts that may leave whole passes, and so a shorter recording."""


def passes(ways: str, steps: int) -> dict[str, int]:
    """How many passes of each phase a recording has."""
    return {"forward_flop": steps * (2 if ways == "both" else 1), "backward_flop": steps, "recompute_flop": steps}


def drawn(dice: random.Random) -> tuple[list[str], dict[str, Any]]:
    """Layers of a net and how it is recorded."""
    names = dice.choices(list(LAYERS), k=dice.randint(1, 4))
    return names, {"steps": dice.randint(1, 3), "marked": dice.random() < 0.5, "ways": dice.choice(WAYS)}


# --- what comes of it ------------------------------------------------------------------------------------------------


def cleaned(events: list[Event], path: Path) -> CleanedTrace:
    path.write_text(json.dumps({"traceEvents": events}))
    recording = attribute(read(path))
    return clean(recording.calls, recording.kernels, recording.missing, numbered=recording.numbered)


def judged(whole: CleanedTrace, cut: CleanedTrace, passes: Mapping[str, int] | None = None) -> str:
    """ "exact", "partial", "unseen"; "absent" where a phase is lost of which nothing was recorded, so that it has no
    number.

    passes: how many passes of each phase the whole recording has, which are alike; a cut that leaves whole passes is a
    shorter recording, "shorter". None: any other number is wrong.
    """
    words = set()
    for name, total in whole.phase_totals["repaired"].items():
        now = cut.phase_totals["repaired"][name]
        if now.flop == total.flop:
            continue
        if now.flop is not None and passes and now.flop * passes[name] % (total.flop or 1) == 0:
            words.add("shorter")
            continue
        if now.flop is not None:
            return "unseen"
        words.add("partial" if now.missing or now.unknown_calls else "absent")
    return next((word for word in ("partial", "shorter", "absent") if word in words), "exact")


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
