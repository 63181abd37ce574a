"""What to change about a step, in plain sentences, each from a rule whose numbers it tells; nothing without evidence.

The rules look at where the profiled step's time goes (`analysis.profile.roofline`): at most three speak, the one that
concerns the most time first. A rule that lacks a number (no fused bytes, no second unit, no layout compared) is silent.
Not claimed: that the change pays. The shares are measured; what a change would save is not, and the sentences say
"can".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from analysis.profile.roofline import BETWEEN, RoofPlace, StepRoof, groups, moved_bytes, places, step_roof
from results.records.step_profile import Machine, StepOperation, StepProfile

MOST = 3
"""Sentences about one step."""

WORTH_SHARE = 0.15
"""Of the step's time, from which it is worth a sentence."""

WORTH_GAIN = 1.2
"""Fewer bytes, or a faster unit or layout, by this factor."""

LOW_RATIO = 0.5
"""Of the roof; kernels below it leave more to gain than any change of the roof."""

CASTS = ("copy",)
"""Kinds that only move numbers into another dtype, layout or place."""


@dataclass(frozen=True)
class Advice:
    """One thing to change. share: of the step's time that it concerns. sentence: with its numbers."""

    change: str
    share: float
    sentence: str


@dataclass(frozen=True)
class Facts:
    """What the rules read: the step, its operations with their places, and the seconds that all of it takes."""

    profile: StepProfile
    machine: Machine
    roof: StepRoof
    placed: tuple[tuple[StepOperation, RoofPlace], ...]
    whole_s: float

    def share(self, *bounds: str) -> float:
        return sum(self.roof.share_by_bound.get(bound, 0.0) for bound in bounds)

    def time_share(self, chosen: Callable[[StepOperation, RoofPlace], bool]) -> float:
        return sum(op.time_s or 0.0 for op, its in self.placed if chosen(op, its)) / self.whole_s


def advise(profile: StepProfile) -> tuple[Advice, ...]:
    """Up to three changes for this step, the one that concerns the most of its time first."""
    roof = step_roof(profile)
    whole_s = sum(roof.time_by_bound_s.values())
    if not whole_s:
        return ()
    placed = tuple(zip(profile.operations, places(profile), strict=True))
    facts = Facts(profile, profile.machine or Machine(), roof, placed, whole_s)
    found = [advice for rule in RULES if (advice := rule(facts)) is not None and advice.share >= WORTH_SHARE]
    return tuple(sorted(found, key=lambda advice: advice.share, reverse=True)[:MOST])


def fuse(facts: Facts) -> Advice | None:
    """Memory bounds much of the step, and ideal fusion would move much less."""
    share = facts.share("memory")
    operations = facts.profile.operations
    if any(op.group is None and moved_bytes(op) for op in operations):
        return None
    unfused, fused = sum(map(moved_bytes, operations)), sum(nbytes for _, nbytes in groups(operations))
    if not fused or unfused / fused < WORTH_GAIN:
        return None
    sentence = (
        f"{_percent(share)} of the step's time is in operations that memory bounds ({_kinds(facts, 'memory')}). "
        f"One by one they and the rest move {_bytes(unfused)} a step, ideally fused {_bytes(fused)}: "
        "torch.compile can fuse them."
    )
    return Advice("fuse", share, sentence)


def feed(facts: Facts) -> Advice | None:
    """The device waits, or does little more than start kernels."""
    share = facts.share("host", "launch", BETWEEN)
    waiting = facts.share(BETWEEN)
    size = facts.profile.batch_size
    where = (
        "between operations, in Python and torch's dispatcher"
        if facts.profile.device.startswith("cpu")
        else "while the device waited for the host"
    )
    sentence = (
        f"{_percent(share)} of the step's time goes into starting work: {_percent(waiting)} {where}, the rest in "
        f"operations too small for the device. A larger batch{f' than {size}' if size else ''} gives each more to do; "
        + (
            "torch.compile can make fewer of them."
            if facts.profile.device.startswith("cpu")
            else 'torch.compile(mode="reduce-overhead") (CUDA graphs) can start them at once.'
        )
    )
    return Advice("feed", share, sentence)


def lower_precision(facts: Facts) -> Advice | None:
    """Arithmetic bounds much of the step on a unit that the device has a faster one than."""
    by_unit: dict[str, float] = {}
    for op, its in facts.placed:
        if its.bound == "arithmetic" and op.unit:
            by_unit[op.unit] = by_unit.get(op.unit, 0.0) + (op.time_s or 0.0)
    if not by_unit:
        return None
    unit = max(by_unit, key=lambda name: by_unit[name])
    if unit not in ("fp32", "tf32"):
        return None
    for words, rates in (("measured", facts.machine.peak_by_unit), ("datasheet", facts.machine.datasheet_by_unit)):
        if (gain := _fastest(unit, rates)) is not None:
            share = by_unit[unit] / facts.whole_s
            name, factor = gain
            sentence = (
                f"{_percent(share)} of the step's time is in {unit} products that arithmetic bounds. Mixed precision "
                f"(amp-{name}) can run them {factor:.1f} × as fast: {name} against {unit} here ({words})."
            )
            return Advice("precision", share, sentence)
    return None


def lay_out(facts: Facts) -> Advice | None:
    """Convolutions stay far below their roof, and the other layout was faster when both were timed here."""
    share, attained = _reach(facts, "convolution")
    gain = _layout_gain(facts)
    if attained is None or attained >= LOW_RATIO or gain < WORTH_GAIN:
        return None
    sentence = (
        f"Convolutions take {_percent(share)} of the step's time and reach {_percent(attained)} of "
        f"their roof. In channels_last the best one measured here was {gain:.1f} × as fast as in channels_first: "
        "bring model and images into that layout, if they are not."
    )
    return Advice("layout", share, sentence)


def quicken(facts: Facts) -> Advice | None:
    """The kind of operation that takes the most time beyond what its roof needs stays far below that roof."""
    lost: dict[str, float] = {}
    for op, its in facts.placed:
        if its.bound in ("arithmetic", "memory") and its.attained_ratio is not None:
            lost[op.kind] = lost.get(op.kind, 0.0) + (op.time_s or 0.0) * (1 - its.attained_ratio)
    kind = max(lost, key=lambda name: lost[name], default="")
    share, attained = _reach(facts, kind)
    if attained is None or attained >= LOW_RATIO or (kind == "convolution" and _layout_gain(facts) >= WORTH_GAIN):
        return None
    sentence = (
        f"{kind.capitalize()} takes {_percent(share)} of the step's time and reaches {_percent(attained)} of its roof: "
        "its kernels are slow here, not the device. Other kernels (torch.compile, another layout or another size of "
        "channels) can be faster."
    )
    return Advice("kernels", share, sentence)


def cast_less(facts: Facts) -> Advice | None:
    """Much time goes into copies."""
    share = facts.time_share(lambda op, _: op.kind in CASTS)
    count = sum(op.kind in CASTS and bool(op.time_s) for op, _ in facts.placed)
    sentence = (
        f"{_percent(share)} of the step's time is in {count} copies, into another dtype, layout or place: one dtype "
        "and one layout from the input on can avoid them."
    )
    return Advice("copies", share, sentence)


def step_less(facts: Facts) -> Advice | None:
    """Much time goes into the optimizer, which moves the same bytes whatever the batch."""
    share = facts.time_share(lambda op, _: op.phase == "optimizer")
    nbytes = sum(moved_bytes(op) for op in facts.profile.operations if op.phase == "optimizer")
    if not nbytes:
        return None
    sentence = (
        f"{_percent(share)} of the step's time is the optimizer's, which moves {_bytes(nbytes)} a step whatever the "
        "batch: a larger batch, or gradients of several batches, share it; fused=True moves less where it is not set."
    )
    return Advice("optimizer", share, sentence)


RULES: tuple[Callable[[Facts], Advice | None], ...] = (
    fuse,
    feed,
    lower_precision,
    lay_out,
    quicken,
    cast_less,
    step_less,
)


def _reach(facts: Facts, kind: str) -> tuple[float, float | None]:
    """Share of the step's time in this kind, and what it attains of its roof, weighted by time; None if unknown."""
    mine = [(op.time_s or 0.0, its.attained_ratio) for op, its in facts.placed if op.kind == kind]
    known = [(time_s, ratio) for time_s, ratio in mine if ratio is not None]
    known_s = sum(time_s for time_s, _ in known)
    share = sum(time_s for time_s, _ in mine) / facts.whole_s
    return share, sum(time_s * ratio for time_s, ratio in known) / known_s if known_s else None


def _layout_gain(facts: Facts) -> float:
    """How much faster channels_last was than channels_first on the units that the step's convolutions run on."""
    gains = facts.machine.channels_last_gain_by_unit
    return max((gains.get(op.unit, 1.0) for op, _ in facts.placed if op.kind == "convolution"), default=1.0)


def _fastest(unit: str, rates: Mapping[str, float]) -> tuple[str, float] | None:
    """(the faster of bf16 and fp16, its rate ÷ this unit's), where it is worth it."""
    if unit not in rates:
        return None
    found = [(name, rates[name] / rates[unit]) for name in ("bf16", "fp16") if name in rates]
    best = max(found, key=lambda pair: pair[1], default=None)
    return best if best is not None and best[1] >= WORTH_GAIN else None


def _kinds(facts: Facts, bound: str) -> str:
    """The two kinds that take the most of this time: "normalization 31 %, activation 12 %"."""
    times: dict[str, float] = {}
    for op, its in facts.placed:
        if its.bound == bound:
            times[op.kind] = times.get(op.kind, 0.0) + (op.time_s or 0.0)
    most = sorted(times, key=lambda name: times[name], reverse=True)[:2]
    return ", ".join(f"{name} {_percent(times[name] / facts.whole_s)}" for name in most)


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.0f} %"


def _bytes(count: float) -> str:
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= scale:
            return f"{count / scale:.3g} {prefix}B"
    return f"{count:.0f} B"
