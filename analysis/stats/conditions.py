"""Which parameters of a cell decide how long its step takes, so that cells of two runs can be told to be the same.

The others say what else was asked of a cell (which counters, which profiles, how narrow an interval), which repetition
it is, or how weights and data were drawn; a cell's id is made of all of them.
"""

from __future__ import annotations

from results.records import Parameters, Run, header
from results.records.rows import to_text

ASKED = ("methods", "counters", "target_ci_ratio", "quick", "repeat", "seed", "epoch_images", "profile")
"""Parameters that leave the training step as it is."""

OF_A_STEP = tuple(name for name in header(Parameters) if name not in ASKED)
"""Parameters that change it."""


def conditions(run: Run, but_for: str = "") -> tuple[str, ...]:
    """The texts of what decides a step, in the order of OF_A_STEP; of the parameter `but_for` an empty one.

    A device is its kind: cuda:0 and cuda:1 of equal cards train alike.
    """
    texts = {name: to_text(getattr(run, name)) for name in OF_A_STEP}
    texts["device"] = run.device.partition(":")[0]
    return tuple("" if name == but_for else texts[name] for name in OF_A_STEP)
