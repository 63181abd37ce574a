"""Recordings of random small nets, made here by torch.profiler on this CPU, and ways to cut them.

A cut takes events out of the file and leaves the others as they are. `judged` says what came of it: "exact" (each
total is that of the whole recording), "partial" (a total is unknown and a reason says so), "unseen" (a total is
another number than it was, without a word).
"""

import copy
import json
import random
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint

from cleaning.trace.clean import CleanedTrace, clean
from measure.trace.attribution.attribute import attribute
from measure.trace.readers.read import read
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
