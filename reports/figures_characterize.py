"""A characterization drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from reports.characterize import Seen


def figures(seen: Seen) -> dict[str, Figure]:
    """File name → figure."""
    return {}
