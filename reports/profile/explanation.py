"""A profiled step explained to somebody who never heard of rooflines: what was used, what was possible, and why.

Every sentence is made of the profile's own numbers; where one is not known its sentence is not there. Bytes are
counted from shapes (`analysis/profile/fusion.py`), not read from the device: sentences say "at least" and "would", not
"did".

`kernels` and `ladder` are what ideal fusion would make of the step: its kernels with the operations they are made of,
and the way from pure arithmetic to the measured step. Least times are sums of max(arithmetic, memory) over operations
or over groups, at the machine's rates; they are a model's, not a compiler's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.profile.module_tree import ModuleNode, tree
from analysis.profile.roofline import (
    BETWEEN,
    BOUNDS,
    RECOMPUTE,
    Against,
    StepRoof,
    groups,
    moved_bytes,
    step_roof,
    step_time,
)
from reports.profile.data import headline
from reports.shared.numbers import digits, percent, si, si_time
from results.records.step_profile import Machine, StepOperation, StepProfile


@dataclass(frozen=True)
class FusedKernel:
    """One group of ideal fusion. Times are None where a rate or FLOP are not known, or nothing was timed."""

    operations: tuple[StepOperation, ...]
    unfused_bytes: int
    fused_bytes: int
    unfused_s: float | None
    fused_s: float | None
    time_s: float | None

    @property
    def leader(self) -> StepOperation:
        return self.operations[0]


@dataclass(frozen=True)
class Ladder:
    """Seconds of a step: what its model FLOP need, the least with ideal fusion, the least operation by operation, and
    what it took."""

    arithmetic_s: float
    fused_s: float | None
    unfused_s: float
    measured_s: float | None


def rates(profile: StepProfile) -> tuple[dict[str, float], float | None]:
    """(unit → peak, bytes/s) that the step is compared with: measured ones, else the datasheet's."""
    machine = profile.machine or Machine()
    units = {o.unit for o in profile.operations if o.model_flop}
    if units - {*machine.peak_by_unit} and not units - {*machine.datasheet_by_unit}:
        return dict(machine.datasheet_by_unit), machine.datasheet_bytes_per_s
    return dict(machine.peak_by_unit), machine.bytes_per_s


def grouped(profile: StepProfile) -> bool:
    """Whether operations say which group they are in."""
    return all(o.group is not None for o in profile.operations if moved_bytes(o))


def kernels(profile: StepProfile) -> list[FusedKernel]:
    """Every group of operations that move something, the longest first; [] where operations are not grouped."""
    if not grouped(profile):
        return []
    peaks, bandwidth = rates(profile)
    by_index = {operation.index: operation for operation in profile.operations}
    found = []
    for indices, nbytes in groups(profile.operations):
        members = tuple(by_index[index] for index in indices)
        if not nbytes and not any(map(moved_bytes, members)):
            continue
        timed = [o.time_s for o in members if o.time_s is not None]
        each = [_least_s((o,), moved_bytes(o), peaks, bandwidth) for o in members]
        found.append(
            FusedKernel(
                operations=members,
                unfused_bytes=sum(map(moved_bytes, members)),
                fused_bytes=nbytes,
                unfused_s=None if None in each else sum(part for part in each if part is not None),
                fused_s=_least_s(members, nbytes, peaks, bandwidth),
                time_s=sum(timed) if timed else None,
            )
        )
    return sorted(found, key=lambda kernel: -(kernel.time_s or 0.0))


def ladder(profile: StepProfile) -> Ladder | None:
    """None where a peak, the bandwidth or the FLOP of an operation are not known."""
    peaks, bandwidth = rates(profile)
    if not bandwidth or not all(_has_least_s(o, peaks) for o in profile.operations):
        return None
    least = [_least_s((o,), moved_bytes(o), peaks, bandwidth) or 0.0 for o in profile.operations]
    found = kernels(profile)
    return Ladder(
        arithmetic_s=sum(
            o.at_least_flop / peaks[o.unit] for o in profile.operations if o.model_flop and o.phase != RECOMPUTE
        ),
        fused_s=sum(kernel.fused_s or 0.0 for kernel in found) if found else None,
        unfused_s=sum(least),
        measured_s=step_time(profile),
    )


def _has_least_s(operation: StepOperation, peaks: dict[str, float]) -> bool:
    """Whether its FLOP are known, and the peak of what runs them."""
    return operation.understood and (not operation.model_flop or operation.unit in peaks)


def _least_s(
    operations: Sequence[StepOperation], nbytes: int, peaks: dict[str, float], bandwidth: float | None
) -> float | None:
    if not bandwidth or not all(_has_least_s(o, peaks) for o in operations):
        return None
    return max(sum(o.at_least_flop / peaks[o.unit] for o in operations if o.model_flop), nbytes / bandwidth)


KIND_WORDS: Mapping[str, str] = {
    "convolution": "convolutions", "matmul": "matrix products", "attention": "attention",
    "recurrent": "recurrent layers", "embedding": "embeddings", "normalization": "normalisation",
    "activation": "activations", "softmax": "softmax", "pooling": "pooling", "reduction": "sums and means",
    "elementwise": "additions and their like", "loss": "the loss", "random": "dropout", "copy": "copies",
    "communication": "communication",
}  # fmt: skip
"""Kind of operation → what a person calls it."""

BOUND_WORDS: Mapping[str, str] = {
    "arithmetic": "calculating",
    "memory": "waiting for memory",
    "launch": "being started, too small for the device",
    "host": "waiting for the program that starts them",
    BETWEEN: "between operations, in which none ran",
    "": "not known",
}
"""Bound → what the time in such operations mostly is."""

OPTIMIZER = "the optimizer's updates"
OTHER = "other operations"

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


def name_of(operation: StepOperation) -> str:
    """What a person calls this kind of operation."""
    if operation.phase == "optimizer":
        return OPTIMIZER
    return KIND_WORDS.get(operation.kind, OTHER)


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


def _possible(profile: StepProfile, roof: StepRoof) -> list[str]:
    _, against = headline(roof)
    found = ladder(profile)
    _, bandwidth = rates(profile)
    if found is None or not bandwidth or not found.unfused_s:
        return []
    unfused = sum(map(moved_bytes, profile.operations))
    text = (
        f"Arithmetic is not all that takes time. Every number has to come from memory and go back there, at "
        f"{si(bandwidth, 'B/s')} here. Operation by operation a step moves {si(unfused, 'B')}. "
        "Each operation needs at least the longer of its arithmetic and its memory traffic: "
        f"{si_time(found.unfused_s)} together, so about {digits(found.arithmetic_s / found.unfused_s, 2)} where "
        "nothing is fused and nothing stays in a cache."
    )
    return [text, _fused(profile, against, found)]


def _fused(profile: StepProfile, against: Against, ladder: Ladder) -> str:
    if against.attainable_ratio is None or ladder.fused_s is None or not grouped(profile):
        return ""
    nbytes = sum(kernel.fused_bytes for kernel in kernels(profile))
    text = (
        "If everything else ran together with the convolution or matrix product before it, in one kernel that keeps "
        f"numbers on the chip (ideal fusion), {si(nbytes, 'B')} and {si_time(ladder.fused_s)} would be left"
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
