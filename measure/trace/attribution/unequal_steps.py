"""Marked training steps that have the forward products of others and fewer of their gradients.

Steps may differ for good reasons: an evaluation in one of them, other sizes, gradients that are added up. So only a
step is named that has the same products forward as another one, and of its backward pass or recomputation a part.

Not claimed: which of two steps is the usual one; the one with less is named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from analysis.trace import Missing
from measure.trace.attribution.forest import FORWARD, Forest

Counts = Counter[tuple[str, object]]


def unequal_steps(forest: Forest) -> Iterator[Missing]:
    """A reason for each step and phase that lacks products."""
    of_step: dict[int, dict[str, Counts]] = {}
    steps = forest.column("step")
    for at in forest.products:
        if steps[at] >= 0:
            phase = "forward" if forest.phase[at] in FORWARD else forest.phase[at]
            counts = of_step.setdefault(steps[at], {}).setdefault(phase, Counter())
            counts[(forest.names[at], forest.column("input_shapes")[at])] += 1
    for step, mine in of_step.items():
        for phase in ("backward", "recompute"):
            lacking = max((_lacks(mine, other, phase) for other in of_step.values()), default=0)
            if lacking:
                has = sum(mine.get(phase, Counter()).values())
                why = f"step {step} has {has} of the {has + lacking} products of another step with its forward calls"
                yield Missing(phase, lacking, why)


def _lacks(mine: dict[str, Counts], other: dict[str, Counts], phase: str) -> int:
    """How many products of a phase another step with the same forward calls has beside mine; 0: mine has others."""
    if mine.get("forward") != other.get("forward"):
        return 0
    has, wanted = mine.get(phase, Counter()), other.get(phase, Counter())
    return 0 if has - wanted else sum((wanted - has).values())
