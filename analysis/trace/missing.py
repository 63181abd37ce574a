"""What says that calls are missing from a recording, and of which phase they are.

A recording that is cut (the profiler was stopped within a step, calls were taken out of the file) has sums that are no
totals. Not claimed: that a recording without such a sign is whole.
"""

from collections.abc import Iterable
from dataclasses import dataclass

MISSING = "missing: "
"""How the reason of a row begins that stands for calls which a recording lacks."""


UNNUMBERED = "not numbered: counts are of the calls recorded, and a missing call may not be noticed"
"""The reason of the row that stands for calls which a recording may lack, where its recorder numbered none."""


@dataclass(frozen=True, order=True)
class Missing:
    """Calls that a recording lacks: of which phase (a recorded one), how many at least, and how that is known."""

    phase: str
    calls: int
    reason: str


def of_phases(missing: Iterable[Missing], phases: Iterable[str]) -> tuple[Missing, ...]:
    """Those of some recorded phases."""
    wanted = set(phases)
    return tuple(each for each in missing if each.phase in wanted)
