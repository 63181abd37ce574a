"""The answer of `runners.reach`: what a model could reach at best on a device, as text and as one JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.atlas import RelativeStep
from analysis.reach import StepBound
from reports.shared import (
    WIDTH,
    Hanging,
    Part,
    TextTable,
    csv_text,
    digits,
    page,
    percent,
    si,
    si_time,
    strong,
    table_of,
)

LABEL = 17
"""Where a value begins."""

PARTIAL = (
    "What oneDNN's LSTM keeps for its backward pass has no known size: bytes are without it, the least time and the "
    "share at best stay bounds."
)


@dataclass(frozen=True, kw_only=True)
class ReachAnswer:
    """What `runners.reach` says of one step.

    device_name: the row of the peaks table; source: of its figures. eager_peak_bytes: memory of the step without
    fusion; largest_batch: the largest that fits into the device; both None where they are not known, and the notes say
    why. is_partial: a storage of the step has no known size, so that memory is at least this, and the largest batch at
    most. is_bounded: False where the sum over the operations is no least time; the notes say why. reached: what was
    measured of models like it on this device.
    """

    model: str
    device_name: str
    source: str
    precision: str
    layout: str
    mode: str
    batch_size: int
    bound: StepBound
    eager_peak_bytes: int | None = None
    memory_bytes: int | None = None
    largest_batch: int | None = None
    is_partial: bool = False
    is_bounded: bool = True
    reached: Sequence[RelativeStep] = ()
    notes: Sequence[str] = ()


def document(answer: ReachAnswer) -> dict[str, Any]:
    """The answer as a JSON document: SI units, unknown is None."""
    bound, partial, bounded = answer.bound, answer.is_partial, answer.is_bounded
    return {
        "model": answer.model,
        "device": answer.device_name,
        "precision": answer.precision,
        "layout": answer.layout,
        "mode": answer.mode,
        "batch_size": answer.batch_size,
        "model_flop": bound.model_flop,
        "peak_flop_per_s": bound.peak_flop_per_s,
        "bound_time_s": bound.bound_time_s if bounded else None,
        "attainable_ratio": bound.attainable_ratio if bounded else None,
        "unfused_time_s": None if partial else bound.unfused_time_s,
        "unfused_ratio": None if partial else bound.unfused_ratio,
        "bound_by": dict(bound.bound_by) if bounded else {},
        "eager_peak_bytes": None if partial else answer.eager_peak_bytes,
        "at_least_eager_peak_bytes": answer.eager_peak_bytes if partial else None,
        "memory_bytes": answer.memory_bytes,
        "largest_batch": None if partial else answer.largest_batch,
        "at_most_largest_batch": answer.largest_batch if partial else None,
        "relatives": [
            {
                "model": each.model,
                "batch_size": each.batch_size,
                "layout": each.layout,
                "framework": each.framework,
                "utilization_ratio": each.utilization_ratio,
                "achieved_over_bound_ratio": each.achieved_over_bound_ratio,
                "source": each.source,
            }
            for each in answer.reached
        ],
        "source": answer.source,
        "notes": list(answer.notes),
    }


def to_csv(answer: ReachAnswer) -> str:
    """The numbers of the document as one row: shares of the bound in columns of their own, no relatives."""
    values = document(answer)
    row = {name: value for name, value in values.items() if not isinstance(value, list | dict)}
    row |= {f"bound_by_{what}_ratio": values["bound_by"].get(what) for what in answer.bound.bound_by}
    return csv_text(list(row), [row.values()])


def to_text(answer: ReachAnswer, width: int = WIDTH, colour: bool = False) -> str:
    """The answer as a page, what bounds the step first."""
    bound, least = answer.bound, "at least " if answer.is_partial else ""
    title = f"{answer.model}, batch {answer.batch_size}, {answer.precision}, {answer.mode}, on {answer.device_name}"
    rows = {
        **_at_best(answer),
        "unfused": f"{least}{si_time(bound.unfused_time_s)} a step: an estimate, no bound",
        "model FLOP": f"{bound.model_flop:,} a step",
        **_memory(answer),
    }
    parts: list[Part] = [strong(title), strong(_sentence(answer)), ""]
    parts += [Hanging(f"  {label}", words, LABEL) for label, words in rows.items()]
    if answer.reached:
        parts += ["", "measured by others on this device:", "", _relatives(answer)]
    partial = (PARTIAL,) if answer.is_partial else ()
    return page([*parts, "", f"peak: {answer.source}", *answer.notes, *partial], width, colour)


def _at_best(answer: ReachAnswer) -> dict[str, str]:
    bound = answer.bound
    if not answer.is_bounded:
        return {}
    return {
        "at best": f"{percent(bound.attainable_ratio)} of {si(bound.peak_flop_per_s, 'FLOP/s')}",
        "bound by": _bound_by(bound),
        "least time": f"{si_time(bound.bound_time_s)} a step, {_rate(answer)} items/s at most",
    }


def _relatives(answer: ReachAnswer) -> TextTable:
    heads = ["used", "model", "batch", "layout", "framework"]
    rows = [
        [percent(each.utilization_ratio), each.model, str(each.batch_size), each.layout, each.framework]
        for each in answer.reached
    ]
    return table_of([heads, *rows], words=(1, 3, 4), wraps=(1, 4))


def _rate(answer: ReachAnswer) -> str:
    return digits(answer.batch_size / answer.bound.bound_time_s)


def _bound_by(bound: StepBound) -> str:
    return ", ".join(f"{what} {percent(share)} of the least time" for what, share in bound.bound_by.items() if share)


def _memory(answer: ReachAnswer) -> dict[str, str]:
    if answer.eager_peak_bytes is None:
        return {}
    least, most = ("at least ", "at most ") if answer.is_partial else ("", "")
    rows = {"memory": f"{least}{si(answer.eager_peak_bytes, 'B')} at the peak of an eager step"}
    if answer.largest_batch is not None and answer.memory_bytes is not None:
        rows["largest batch"] = f"{most}{answer.largest_batch:,} in {si(answer.memory_bytes, 'B')}"
    return rows


def _sentence(answer: ReachAnswer) -> str:
    bound = answer.bound
    if not answer.is_bounded:
        return "The least time of a step is not known."
    main = max(bound.bound_by, key=lambda what: bound.bound_by[what])
    because = {
        "memory": "reading and writing memory takes longer than the arithmetic",
        "arithmetic": "the arithmetic takes longer than reading and writing memory",
    }[main]
    return (
        f"No step of it can use more than {percent(bound.attainable_ratio)} of this peak, even if everything that can "
        f"be fused is: in {percent(bound.bound_by[main])} of the least time {because}."
    )
