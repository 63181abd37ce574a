"""What the answer of `runners.characterize` is worked out of, and how its numbers look in text.

`look` works shares, likeness, steadiness, inference, parallelism and cost out of the recorded rows; `sections.py` says
them. Prints nothing and knows no file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analysis.characterize.fathom_groups import FATHOM, Grouping
from analysis.characterize.group_costs import Density, GroupCost, densities, group_costs
from analysis.characterize.heavy_tail import Tail, tail
from analysis.characterize.operation_mix import Mix, types_for
from analysis.characterize.similarity import DistanceChange, Merge, distance_changes, pictures
from analysis.characterize.stationarity import Stationarity
from analysis.characterize.step_reconstruction import Reconstructed, reconstructed
from analysis.characterize.summary import (
    Against,
    Launching,
    comparable_mixes,
    launching,
    linkage,
    mixes,
    steadiness,
    training_against_inference,
)
from analysis.characterize.thread_scaling import Scaling, over_batch, parallelism
from reports.shared.numbers import DASH, digits, percent, si, si_time
from results.records.characterization import Characterization, WorkloadRecording


def whole(ratio: float) -> str:
    """Per cent as the paper has them, without a sign: 0.4 is "<1"."""
    return "" if ratio == 0 else "<1" if ratio < 0.01 else f"{100 * ratio:.0f}"


def ratio(value: float | None) -> str:
    return DASH if value is None else percent(value)


def in_range(low: float | None, high: float | None, signed: bool = False) -> str:
    if low is None or high is None:
        return DASH
    if signed:
        return f"{100 * low:+.0f} to {100 * high:+.0f} %"
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def times(ratio: float | None) -> str:
    return DASH if ratio is None else digits(ratio, 2)


def at_least_time(time_s: float | None, at_least_s: float | None) -> str:
    """A time; where only a part of it is known, that it is at least so much."""
    if time_s is not None:
        return si_time(time_s)
    return f"≥ {si_time(at_least_s)}" if at_least_s else DASH


def joules(energy_j: float | None) -> str:
    return DASH if energy_j is None else si(energy_j, "J")


SUFFICIENT = 0.9
"""The part of the time in operations that "types for 90 %" is about."""


@dataclass(frozen=True)
class CharacterizeAnswer:
    """The whole text. compared: the mixes that stand for their workloads; pictures: variant → its linkage."""

    data: Characterization
    mixes: tuple[Mix, ...]
    compared: tuple[Mix, ...]
    linkage: tuple[Merge, ...]
    pictures: Mapping[str, tuple[Merge, ...]]
    distance_changes: tuple[DistanceChange, ...]
    steadiness: tuple[tuple[WorkloadRecording, Stationarity], ...]
    against: tuple[Against, ...]
    parallelism: tuple[Scaling, ...]
    over_batch: tuple[tuple[WorkloadRecording, Mix], ...]
    costs: tuple[GroupCost, ...]
    densities: tuple[Density, ...]
    launching: tuple[Launching, ...]
    tails: tuple[tuple[Mix, Tail], ...]
    reconstructed: tuple[Reconstructed, ...]
    peaks: Mapping[str, float]
    notes: tuple[str, ...] = ()
    reproduce: str = ""


def look(
    data: Characterization,
    grouping: Grouping = FATHOM,
    notes: Sequence[str] = (),
    *,
    reproduce: str = "",
    peaks: Mapping[str, float] | None = None,
) -> CharacterizeAnswer:
    """Work it all out. reproduce: "fathom" to tell the paper's numbers beside ours; peaks: unit → FLOP/s."""
    found = mixes(data, grouping)
    chosen = comparable_mixes(found)
    varied = pictures(chosen)
    return CharacterizeAnswer(
        data=data,
        mixes=tuple(found),
        compared=tuple(chosen),
        linkage=tuple(linkage(chosen)),
        pictures={variant: tuple(linkage(mine)) for variant, mine in varied.items()},
        distance_changes=tuple(distance_changes(varied)),
        steadiness=tuple(steadiness(data)),
        against=tuple(training_against_inference(data)),
        parallelism=tuple(parallelism(data, grouping)),
        over_batch=tuple(over_batch(data, grouping)),
        costs=tuple(group_costs(data, grouping)),
        densities=tuple(densities(data, grouping)),
        launching=tuple(launching(found)),
        tails=tuple(_tails(data, chosen)),
        reconstructed=tuple(reconstructed(data, grouping)),
        peaks=dict(peaks or {}),
        notes=tuple(notes),
        reproduce=reproduce,
    )


def _tails(data: Characterization, chosen: Sequence[Mix]) -> Iterator[tuple[Mix, Tail]]:
    for each in chosen:
        found = tail([call.time_s for call in data.calls if call.recording == each.recording.recording])
        if found is not None:
            yield each, found


def shown_types(mix: Mix) -> int | None:
    """How many operation types make 90 % of the time in operations; None where none has any."""
    shares = [each.share_ratio for each in mix.operations]
    return types_for(shares, SUFFICIENT) if any(shares) else None


def paper_name(mix: Mix) -> str:
    """The paper's name of a workload: "speech" of "fathom-speech@small"."""
    return mix.recording.workload.partition("@")[0].removeprefix("fathom-")


def paper_label(mix: Mix) -> str:
    """The paper's name of a workload, and its variant where that is not the code's."""
    variant = mix.recording.variant
    return paper_name(mix) if variant in ("", "as_coded") else f"{paper_name(mix)} {variant}"
