"""The part of a projection that is by draws: a measured utilization, many devices, what it costs, and its intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.stats import Estimate, Swing, amount
from reports.project import shared as project_shared
from reports.shared import WIDTH, page

EXTRA: Mapping[str, tuple[str, str]] = {
    "utilization_ratio": ("utilization", ""),
    "flop_trained": ("training compute", "FLOP"),
    "gpu_hours": ("GPU-hours", "h"),
    "cost": ("cost", ""),
    "energy_kwh": ("energy", "kWh"),
    "co2_kg": ("CO2e", "kg"),
}
"""Answer → (what it is called, its unit), beyond those of every projection."""


@dataclass(frozen=True)
class DrawnAnswers:
    """All answers by draws. inputs: what has an interval; given: price and so on → (median, low, high).

    reached: the utilization, None where the roofline's shares are assumed; link: what joins the devices, in words, ""
    for one.
    """

    answers: Mapping[str, Estimate]
    swings: Mapping[str, Sequence[Swing]]
    inputs: Sequence[str]
    confidence: float
    given: Mapping[str, tuple[float, float, float]]
    reached: project_shared.ReachedUtilization | None
    devices: int
    epochs: float
    link: str


def quantities(timed: DrawnAnswers) -> dict[str, tuple[str, str]]:
    """Answers that no other projection has, and those that are called otherwise here."""
    return {
        name: each
        for name, each in EXTRA.items()
        if name in timed.answers and (name != "utilization_ratio" or timed.reached is not None)
    }


def wide(timed: DrawnAnswers) -> bool:
    """Whether any answer has an interval."""
    return any(each.low < each.high for each in timed.answers.values())


def sentences(timed: DrawnAnswers, roofline_s: float) -> Iterator[str]:
    """Where the time is from, and what the interval is of. roofline_s: what a step takes by the assumed shares."""
    if timed.reached is not None:
        low, high = timed.reached.utilization.interval(timed.confidence)
        yield (
            f"A step takes model FLOP ÷ (utilization · peak), with a utilization of "
            f"{project_shared.quantity(timed.reached.utilization.median)} ({project_shared.ends(low, high)}); "
            f"by the roofline and the assumed shares it would be {amount(roofline_s, 's')}."
        )
        yield from project_shared.why_sentences(timed.reached)
    if wide(timed):
        yield f"Low and high: {100 * timed.confidence:g} % of draws of {', '.join(timed.inputs)}{_draw_note(timed)}."
    if timed.devices > 1:
        yield (
            f"{timed.devices:,} devices, each with the sub-batch, add up their gradients over {timed.link} after each "
            "step, by the fastest of rings, trees and layers. Nothing of it is hidden, and an embedding's gradient is "
            "as large as the embedding. What so large a batch does to the error is not in it."
        )
        if timed.reached is not None and timed.reached.predicted is not None:
            yield "Published runs on several devices wait for each other already: here that is counted once more."
    epochs = "one epoch" if timed.epochs == 1 else f"{timed.epochs:g} epochs"
    yield f"Training compute, hours and costs are of {epochs}, without what evaluation and failed runs take."


def _draw_note(timed: DrawnAnswers) -> str:
    """How they are drawn."""
    text = ", independent of each other" if len(timed.inputs) > 1 else ""
    if set(timed.inputs) <= {"utilization", *timed.given}:
        return text
    return f"{text}; a number of the file is as likely below its value as above, and never beyond its ends"


def runs_of(timed: DrawnAnswers, width: int = WIDTH) -> str:
    """The published runs that the utilization is from, as lines below a table; "" where it was given or assumed."""
    predicted = timed.reached.predicted if timed.reached else None
    return f"\n{page([project_shared.runs_table(predicted.near)], width)}" if predicted else ""


def document(timed: DrawnAnswers, roofline_s: float) -> dict[str, Any]:
    """What JSON has of it; the answers are among those of the projection."""
    return {
        "by": "roofline" if timed.reached is None else "utilization",
        "confidence": timed.confidence,
        "drawn": list(timed.inputs),
        "roofline_step_s": roofline_s,
        "devices": timed.devices,
        "epochs": timed.epochs,
        "link": timed.link or None,
        "given": {name: dict(zip(("value", "low", "high"), ends, strict=True)) for name, ends in timed.given.items()},
        "hangs_on": project_shared.swings_document(timed.swings),
        "reached": project_shared.reached_document(timed.reached, timed.confidence) if timed.reached else None,
    }
