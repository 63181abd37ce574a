"""What ideal fusion would make of a profiled step: its kernels beside the operations they are made of, and the ladder
from pure arithmetic to the measured step.

Least times are sums of max(arithmetic, memory) over operations or over groups, at the machine's rates; they are a
model's (`analysis/profile/fusion.py`), not a compiler's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.profile.roofline import RECOMPUTE, groups, moved_bytes, step_time
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
