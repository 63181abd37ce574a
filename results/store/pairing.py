"""That two runs are the two sides of one comparison, whose blocks were interleaved: what their manifests say of it.

It stands in the options of each manifest under AGAINST. Not claimed: that the blocks did alternate; that is read from
their times (`analysis/utilization/paired_blocks.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

AGAINST = "against"
"""Among a manifest's options."""

SIDES = ("A", "B")
"""Old and new."""


@dataclass(frozen=True)
class Pairing:
    """One side of an interleaved comparison.

    identity: the same in both runs. side: of SIDES. across: fields of cells in which the sides differ by choice.
    root: the folder that this side's files were taken from. alarm_ratio: of comparisons of equal sides, how many may
    call any cell different. limit_ratio: the slow-down that was to be decided. cells: how many were planned.
    """

    identity: str
    side: str
    root: str = ""
    across: tuple[str, ...] = ()
    alarm_ratio: float = 0.05
    limit_ratio: float = 0.02
    cells: int = 1

    @property
    def alarm_of_cell(self) -> float:
        """Each cell's share of the alarm rate."""
        return self.alarm_ratio / max(1, self.cells)

    def as_option(self) -> dict[str, Any]:
        """What the manifest keeps."""
        return {AGAINST: asdict(self)}


def pairing_of(options: Mapping[str, Any]) -> Pairing | None:
    """What a manifest's options say; None for a run by itself. Raises ValueError for something else in its place."""
    kept = options.get(AGAINST)
    if kept is None:
        return None
    try:
        found = Pairing(**{**kept, "across": tuple(kept.get("across", ()))})
        sound = found.side in SIDES and 0 < float(found.alarm_ratio) < 1 and float(found.limit_ratio) >= 0
        sound = sound and int(found.cells) > 0
    except (TypeError, ValueError, AttributeError) as fault:
        raise ValueError(f"expected a side of a comparison under {AGAINST!r}, got {kept!r}") from fault
    if not sound:
        raise ValueError(f"expected a side of a comparison under {AGAINST!r}, got {kept!r}")
    return found
