"""Operations of a profiled step as a text table: those with the most time, equal ones on one line.

Equal are operations of one name, phase and sizes. FLOP is all arithmetic, model FLOP or other; bytes are unfused.
attained: of the roof that the unit and the memory allow at that intensity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.profile.roofline import RoofPlace, main_bound, moved_bytes, places, time_by_bound
from reports.profile.summary import time
from reports.shared.layout import columns
from reports.shared.numbers import DASH, digits, fitting, percent, si
from results.records.step_profile import StepOperation, StepProfile

COLUMNS = ("operation", "phase", "sizes", "times", "FLOP", "bytes", "time", "share", "attained", "bound")
WORDS = (0, 1, 2, 9)
"""Columns of words."""

_NAME_LETTERS = 30
_SIZES_LETTERS = 36


@dataclass(frozen=True)
class OperationGroup:
    """Operations of one name, phase and sizes."""

    operations: tuple[StepOperation, ...]
    places: tuple[RoofPlace, ...]

    @property
    def first(self) -> StepOperation:
        return self.operations[0]

    @property
    def time_s(self) -> float | None:
        """Of all of them; None where none was timed."""
        known = [operation.time_s for operation in self.operations if operation.time_s is not None]
        return sum(known) if known else None

    @property
    def flop(self) -> int | None:
        """Of all of them; None where those of one are not known."""
        known = [its.flop for its in self.places if its.flop is not None]
        return sum(known) if len(known) == len(self.places) else None

    @property
    def moved_bytes(self) -> int:
        return sum(map(moved_bytes, self.operations))

    @property
    def attained_ratio(self) -> float | None:
        """Least time ÷ time, over those of which both are known."""
        known = [
            (its.attained_ratio * operation.time_s, operation.time_s)
            for operation, its in zip(self.operations, self.places, strict=True)
            if its.attained_ratio is not None and operation.time_s
        ]
        return sum(least for least, _ in known) / sum(taken for _, taken in known) if known else None

    @property
    def bound(self) -> str:
        """That of most of their time."""
        return main_bound(time_by_bound(self.operations, self.places))


def operation_groups(profile: StepProfile) -> list[OperationGroup]:
    """Operations that move something or take time, gathered; the longest first."""
    gathered: dict[object, tuple[list[StepOperation], list[RoofPlace]]] = {}
    for operation, its in zip(profile.operations, places(profile), strict=True):
        if operation.time_s or moved_bytes(operation):
            key = (operation.name, operation.phase, str(operation.input_shapes), operation.dtype)
            mine = gathered.setdefault(key, ([], []))
            mine[0].append(operation)
            mine[1].append(its)
    found = [OperationGroup(tuple(operations), tuple(its)) for operations, its in gathered.values()]
    return sorted(found, key=lambda each: -(each.time_s or 0.0))


def operations_text(profile: StepProfile, top: int = 20) -> str:
    """The table. top: lines of it."""
    found = operation_groups(profile)
    step_s = sum(each.time_s or 0.0 for each in found) + sum(profile.between_s.values())
    head = operations_heading(profile, found, top)
    return (
        "\n".join([head, *columns([COLUMNS, *(operation_cells(each, step_s) for each in found[:top])], left=WORDS)])
        + "\n"
    )


def operations_heading(profile: StepProfile, groups: Sequence[OperationGroup], top: int) -> str:
    """Above the table."""
    return f"The {min(top, len(groups))} longest of {len(groups)} kinds of operation ({len(profile.operations)} calls)"


def operation_cells(each: OperationGroup, step_s: float) -> tuple[str, ...]:
    """One line of the table."""
    taken_s = each.time_s
    return (
        fitting(each.first.name.removeprefix("aten."), _NAME_LETTERS),
        each.first.phase,
        fitting(sizes(each.first.input_shapes), _SIZES_LETTERS),
        str(len(each.operations)),
        DASH if each.flop is None else si(each.flop, ""),
        si(each.moved_bytes, "B"),
        time(taken_s),
        percent(taken_s / step_s) if taken_s is not None and step_s else DASH,
        DASH if each.attained_ratio is None else digits(each.attained_ratio, 2),
        each.bound or DASH,
    )


def sizes(shapes: Sequence[Sequence[object]]) -> str:
    """Sizes of the first two tensors: "32×3×224×224, 64×3×7×7"."""
    return ", ".join("×".join(map(str, shape)) or "1" for shape in shapes[:2])
