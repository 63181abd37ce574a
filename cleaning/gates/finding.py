"""What a gate finds of one cell: whether its law holds there, and the numbers in words."""

from __future__ import annotations

from dataclasses import dataclass

RUN = "run"
"""Stands for a cell id where something is found of the run as a whole."""


@dataclass(frozen=True)
class Found:
    """holds: whether what the gate asks is so. words: the numbers that say it; of a gate that holds they may be left
    out."""

    cell_id: str
    holds: bool
    words: str = ""
