"""A characterization worked out of its recorded rows (`look`), and as data: the JSON document of
`python -m runners.characterize`, and its derived tables as CSV. `sections.py` says it in text.

Ratios run from 0 to 1; unknown is null, or an empty field. Every table's columns are the keys of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.characterize.fathom_groups import GROUPS
from analysis.characterize.operation_mix import Merge, Mix, pictures, types_for
from analysis.characterize.parallelism import Scaling, over_batch, parallelism
from analysis.characterize.stationarity import Stationarity, Tail, tail
from analysis.characterize.summary import (
    Row,
    comparable_mixes,
    group_costs,
    linkage,
    mixes,
    reconstructed,
    steadiness,
    training_against_inference,
)
from reports.shared.layout import csv_of
from results.records.characterization import Characterization, WorkloadRecording


@dataclass(frozen=True)
class CharacterizeAnswer:
    """The whole text. compared: the mixes that stand for their workloads; pictures: variant → its linkage."""

    data: Characterization
    mixes: tuple[Mix, ...]
    compared: tuple[Mix, ...]
    linkage: tuple[Merge, ...]
    pictures: Mapping[str, tuple[Merge, ...]]
    steadiness: tuple[tuple[WorkloadRecording, Stationarity], ...]
    against: tuple[Row, ...]
    parallelism: tuple[Scaling, ...]
    over_batch: tuple[tuple[WorkloadRecording, Mix], ...]
    costs: tuple[Row, ...]
    tails: tuple[tuple[Mix, Tail], ...]
    reconstructed: tuple[Row, ...]
    peaks: Mapping[str, float]
    notes: tuple[str, ...] = ()
    reproduce: str = ""


def look(
    data: Characterization,
    notes: Sequence[str] = (),
    *,
    reproduce: str = "",
    peaks: Mapping[str, float] | None = None,
) -> CharacterizeAnswer:
    """Work it all out. reproduce: "fathom" to tell the paper's numbers beside ours; peaks: unit → FLOP/s."""
    every = mixes(data)
    compared = comparable_mixes(every)
    tails = ((mix, tail([c.time_s for c in data.calls if c.recording == mix.recording.recording])) for mix in compared)
    return CharacterizeAnswer(
        data=data,
        mixes=tuple(every),
        compared=tuple(compared),
        linkage=tuple(linkage(compared)),
        pictures={variant: tuple(linkage(shown)) for variant, shown in pictures(compared).items()},
        steadiness=tuple(steadiness(data)),
        against=tuple(training_against_inference(data)),
        parallelism=tuple(parallelism(data)),
        over_batch=tuple(over_batch(data)),
        costs=tuple(group_costs(data, peaks or {})),
        tails=tuple((mix, laws) for mix, laws in tails if laws is not None),
        reconstructed=tuple(reconstructed(data)),
        peaks=dict(peaks or {}),
        notes=tuple(notes),
        reproduce=reproduce,
    )


def paper_name(mix: Mix) -> str:
    """The paper's name of a workload: "speech" of "fathom-speech@small"."""
    return mix.recording.workload.partition("@")[0].removeprefix("fathom-")


def paper_label(mix: Mix) -> str:
    """The paper's name of a workload, and its variant where that is not the code's."""
    variant = mix.recording.variant
    return paper_name(mix) if variant in ("", "as_coded") else f"{paper_name(mix)} {variant}"


def document(seen: CharacterizeAnswer) -> dict[str, Any]:
    """The JSON document. A workload that was not recorded is there with its name and nulls."""
    names = {mix.recording.workload for mix in seen.compared}
    lost = {recording.workload: recording for recording in seen.data.recordings if recording.workload not in names}
    workloads = [_workload(mix.recording, mix) for mix in seen.compared]
    workloads += [_workload(recording, None) for recording in lost.values()]
    return {"workloads": workloads, "linkage": [_merge(merge) for merge in seen.linkage]}


def _workload(recording: WorkloadRecording, mix: Mix | None) -> Row:
    return {
        "name": recording.workload,
        "variant": recording.variant or None,
        "parameters": recording.parameters,
        "step_time_s": mix and mix.step_s,
        "profiled_step_time_s": mix and mix.profiled_s,
        "groups": {group: mix and mix.groups[group].ratio for group in GROUPS},
        "unclassified_ratio": mix and mix.unclassified_ratio,
        "types_for_90_percent": mix and types_for(share.share_ratio for share in mix.operations),
    }


def _merge(merge: Merge) -> Row:
    return {"left": "+".join(merge.left), "right": "+".join(merge.right), "height": merge.height}


def tables(seen: CharacterizeAnswer) -> dict[str, str]:
    """File name → CSV of what was derived; a table without rows is empty."""
    return {
        "groups.csv": groups_csv(seen),
        "types.csv": csv_of(
            [
                {
                    **_identity(row),
                    "type": share.name,
                    "group": share.group,
                    "share_ratio": share.share_ratio,
                    "time_s": share.time_s,
                    "calls": share.calls,
                    "launches": share.launches,
                }
                for row in seen.mixes
                for share in row.types
            ]
        ),
        "linkage.csv": csv_of([_merge(merge) for merge in seen.linkage]),
        "stationarity.csv": csv_of(
            [
                {
                    "recording": recording.recording,
                    "workload": recording.workload,
                    "mode": recording.mode,
                    "device": recording.device,
                    **vars(row),
                    "verdict": row.verdict,
                }
                for recording, row in seen.steadiness
            ]
        ),
        "training_inference.csv": csv_of(seen.against),
        "parallelism.csv": csv_of(_parallel_rows(seen)),
        "group_costs.csv": csv_of(seen.costs),
        "tails.csv": csv_of(
            [
                {
                    "workload": mix.label,
                    "calls": row.calls,
                    "median_s": row.median_s,
                    "longest_s": row.longest_s,
                    "top_1_ratio": row.top_1_ratio,
                    "top_10_ratio": row.top_10_ratio,
                    "law": fit.law,
                    "parameters": dict(fit.parameters),
                    "aic": fit.aic,
                    "distance": fit.distance,
                }
                for mix, row in seen.tails
                for fit in row.fits
            ]
        ),
        "reconstructed.csv": csv_of(seen.reconstructed),
    }


def groups_csv(seen: CharacterizeAnswer) -> str:
    """A row a mix and group: its share of the step with the interval."""
    return csv_of(
        [
            {
                **_identity(mix),
                "group": group,
                "share_ratio": share.ratio,
                "low_ratio": share.low,
                "high_ratio": share.high,
                "unclassified_ratio": mix.unclassified_ratio,
                "step_time_s": mix.step_s,
                "profiled_step_time_s": mix.profiled_s,
            }
            for mix in seen.mixes
            for group, share in mix.groups.items()
        ]
    )


def _identity(mix: Mix) -> Row:
    names = ("recording", "workload", "variant", "mode", "device", "threads", "batch_size")
    return {name: getattr(mix.recording, name) for name in names}


def _parallel_rows(seen: CharacterizeAnswer) -> list[Row]:
    return [
        {
            "workload": scaling.workload,
            "type": scaling.name,
            "group": scaling.group,
            "threads": threads,
            "time_s": time_s,
            "fitted_s": law and law.time_s(threads),
            "serial_ratio": law and law.serial_ratio,
            "serial_low_ratio": law and law.serial_low,
            "serial_high_ratio": law and law.serial_high,
            "karp_flatt_ratio": law and law.karp_flatt.get(threads),
            "lack_of_fit": law and law.lack_of_fit,
        }
        for scaling in seen.parallelism
        for law in (scaling.law,)
        for threads, time_s in scaling.times_s.items()
    ]
