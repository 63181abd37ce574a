"""A profiled step explained to somebody who never heard of rooflines: what was used, what was possible, and why.

Every sentence is made of the profile's own numbers; where one is not known its sentence is not there. Bytes are
counted from shapes (`analysis/profile/fusion.py`), not read from the device: sentences say "at least" and "would", not
"did".

Least times of a step are sums of max(arithmetic, memory) over operations, or over the groups of ideal fusion, at the
machine's rates; they are a model's, not a compiler's.
"""

from collections.abc import Mapping, Sequence

from analysis.profile.module_tree import ModuleNode, tree
from analysis.profile.roofline import (
    BETWEEN,
    BOUNDS,
    Against,
    StepRoof,
    groups,
    moved_bytes,
    step_roof,
)
from reports.profile.data import headline
from reports.shared.numbers import digits, percent, si, si_time
from results.records.answers import Machine, StepProfile

BOUND_WORDS: Mapping[str, str] = {
    "arithmetic": "calculating",
    "memory": "waiting for memory",
    "launch": "being started, too small for the device",
    "host": "waiting for the program that starts them",
    BETWEEN: "between operations, in which none ran",
    "": "not known",
}
"""Bound → what the time in such operations mostly is."""

ARITHMETIC, FUSED, UNFUSED, MEASURED = (
    "its arithmetic alone",
    "ideally fused, at least",
    "one by one, about",
    "measured",
)

_WORTH_SAYING = 0.02
_NEAR = 0.95
_RATE = {"ceiling": "best rate measured on this machine", "datasheet": "rate that the datasheet prints"}


def explained(profile: StepProfile) -> list[str]:
    """Paragraphs: how much of the device was used, what was possible, where the time went."""
    root, roof = tree(profile)[""], step_roof(profile)
    paragraphs = [_used(profile, root, roof), *_possible(profile, roof), _bound_shares(roof)]
    return [paragraph for paragraph in paragraphs if paragraph]


def verdict(profile: StepProfile) -> str:
    """One sentence: what was used and what was possible."""
    _, against = headline(step_roof(profile))
    used = against.utilization_ratio
    if used is None:
        return f"{profile.model}: its utilization is not known here ({against.reason})."
    most = against.attainable_ratio
    if most is None:
        return f"{profile.model} uses {percent(used)} of what this device can calculate."
    if against.raised:
        return f"{profile.model} uses {percent(used)} of what this device can calculate, as much as its memory allows."
    return (
        f"{profile.model} uses {percent(used)} of what this device can calculate; at most {percent(most)} is possible "
        "for it here."
    )


def listed(names: Sequence[str]) -> str:
    """ "a, b and c"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _used(profile: StepProfile, root: ModuleNode, roof: StepRoof) -> str:
    denominator, against = headline(roof)
    flop = f"{_at_least(root)}{si(root.model_flop, 'FLOP')}"
    work = f"A step of {profile.model}{_batch(profile)} has {flop} of useful arithmetic"
    if against.utilization_ratio is None or not roof.step_s:
        return f"{work}. What share of the device that uses is not known: {against.reason}."
    needed_s = against.utilization_ratio * roof.step_s
    rate = si(root.model_flop / needed_s, "FLOP/s")
    return (
        f"{profile.model} reaches a utilization of {digits(against.utilization_ratio, 2)}. {work} (multiply-adds of "
        f"convolutions and matrix products, forward and backward). At the {_RATE[denominator]}, {rate}, that takes "
        f"{si_time(needed_s)}; the step took {si_time(roof.step_s)}. The quotient of the two is the utilization."
    )


def _at_least(root: ModuleNode) -> str:
    return "at least " if root.unknowns() else ""


def _batch(profile: StepProfile) -> str:
    return f" at batch {profile.batch_size}" if profile.batch_size else ""


def least_times(roof: StepRoof) -> dict[str, float]:
    """What it is of → seconds: what a step's model FLOP need, the least with ideal fusion, the least operation by
    operation, and what it took; without those that are not known, or that the measured step went below."""
    _, against = headline(roof)
    if not against.utilization_ratio or not roof.step_s:
        return {}
    model_s = against.utilization_ratio * roof.step_s
    times = {ARITHMETIC: model_s}
    if against.attainable_ratio and not against.raised:
        times[FUSED] = model_s / against.attainable_ratio
    if against.unfused_estimate_ratio:
        times[UNFUSED] = model_s / against.unfused_estimate_ratio
    return {**times, MEASURED: roof.step_s}


def _possible(profile: StepProfile, roof: StepRoof) -> list[str]:
    denominator, against = headline(roof)
    times, machine = least_times(roof), profile.machine or Machine()
    bandwidth = machine.datasheet_bytes_per_s if denominator == "datasheet" else machine.bytes_per_s
    if UNFUSED not in times or not bandwidth:
        return []
    unfused = sum(map(moved_bytes, profile.operations))
    text = (
        f"Arithmetic is not all that takes time. Every number has to come from memory and go back there, at "
        f"{si(bandwidth, 'B/s')} here. Operation by operation a step moves {si(unfused, 'B')}. "
        "Each operation needs at least the longer of its arithmetic and its memory traffic: "
        f"{si_time(times[UNFUSED])} together, so about {digits(against.unfused_estimate_ratio or 0.0, 2)} where "
        "nothing is fused and nothing stays in a cache."
    )
    return [text, _fused(profile, against, times.get(FUSED))]


def _fused(profile: StepProfile, against: Against, fused_s: float | None) -> str:
    if against.attainable_ratio is None:
        return ""
    nbytes = sum(nbytes for _, nbytes in groups(profile.operations))
    left = si(nbytes, "B") if fused_s is None else f"{si(nbytes, 'B')} and {si_time(fused_s)}"
    text = (
        "If everything else ran together with the convolution or matrix product before it, in one kernel that keeps "
        f"numbers on the chip (ideal fusion), {left} would be left"
    )
    if against.raised:
        why = "its numbers stayed in a cache, or the peak was beaten"
        return f"{text}. The measured step took less ({why}), so that what was measured is the most that can be said."
    most = digits(against.attainable_ratio, 2)
    if against.attainable_ratio >= _NEAR:
        return f"{text}: {most} is possible here, memory is no obstacle."
    return f"{text}: at most {most} is possible here, with this memory, batch size and precision."


def _bound_shares(roof: StepRoof) -> str:
    shares = {**dict.fromkeys((*BOUNDS, BETWEEN, ""), 0.0), **roof.share_by_bound}
    largest = sorted(((share, bound) for bound, share in shares.items() if share >= _WORTH_SAYING), reverse=True)
    if not largest:
        return ""
    parts = [f"{percent(share)} {BOUND_WORDS[bound]}" for share, bound in largest]
    return f"Where the step's time went, each operation by what bounds it: {listed(parts)}.{_below(roof)}"


def _below(roof: StepRoof) -> str:
    """How much of the way from the unfused estimate the step has made."""
    _, against = headline(roof)
    used, unfused = against.utilization_ratio, against.unfused_estimate_ratio
    if not used or not unfused or used >= unfused:
        return ""
    times = digits(unfused / used, 2)
    return (
        f" All of it took {times} times the least that the operations need one by one: the rest is lost in kernels "
        "that reach neither the rate of their unit nor that of memory, and between them."
    )
