"""A characterization as data: the JSON document of `python -m runners.characterize`, and its derived tables as CSV.

Ratios run from 0 to 1; unknown is null, or an empty field. Every table's columns are the keys of its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.characterize.fathom_groups import GROUPS
from analysis.characterize.operation_mix import Mix
from analysis.characterize.similarity import Merge
from reports.characterize import variants as characterize_variants
from reports.characterize.text import CharacterizeAnswer, shown_types
from reports.shared.layout import csv_text

Row = dict[str, Any]


def document(seen: CharacterizeAnswer) -> dict[str, Any]:
    """The JSON document. A workload that was not recorded is there with its name and nulls."""
    known = [_workload(each) for each in seen.compared]
    names = {each.recording.workload for each in seen.compared}
    failed = {each.workload: each for each in seen.data.recordings if each.workload not in names}
    return {
        "workloads": known
        + [
            {
                "name": each.workload,
                "variant": each.variant or None,
                "parameters": each.parameters,
                "step_time_s": None,
                "profiled_step_time_s": None,
                "groups": dict.fromkeys(GROUPS),
                "unclassified_ratio": None,
                "types_for_90_percent": None,
            }
            for each in failed.values()
        ],
        "linkage": [_merge(merge) for merge in seen.linkage],
    }


def _workload(mix: Mix) -> Row:
    recording = mix.recording
    return {
        "name": recording.workload,
        "variant": recording.variant or None,
        "parameters": recording.parameters,
        "step_time_s": mix.step_s,
        "profiled_step_time_s": mix.profiled_s,
        "groups": {group: mix.groups[group].ratio for group in GROUPS},
        "unclassified_ratio": mix.unclassified_ratio,
        "types_for_90_percent": shown_types(mix),
    }


def _merge(merge: Merge) -> Row:
    return {"left": "+".join(merge.left), "right": "+".join(merge.right), "height": merge.height}


def tables(seen: CharacterizeAnswer) -> dict[str, str]:
    """File name → CSV of what was derived; a table without rows is empty."""
    derived = "flop_per_byte", "flop_per_s", "bytes_per_s"
    return {
        "groups.csv": groups_csv(seen),
        "types.csv": _csv(
            [
                {
                    **_identity(each),
                    "type": one.name,
                    "group": one.group,
                    "share_ratio": one.share_ratio,
                    "time_s": one.time_s,
                    "calls": one.calls,
                    "launches": one.launches,
                }
                for each in seen.mixes
                for one in each.types
            ]
        ),
        "linkage.csv": _csv([_merge(merge) for merge in seen.linkage]),
        "variants.csv": _csv(characterize_variants.rows(seen)),
        "stationarity.csv": _csv(
            [
                {
                    "recording": recording.recording,
                    "workload": recording.workload,
                    "mode": recording.mode,
                    "device": recording.device,
                    **vars(each),
                    "verdict": each.verdict,
                }
                for recording, each in seen.steadiness
            ]
        ),
        "training_inference.csv": _csv([vars(each) for each in seen.against]),
        "parallelism.csv": _csv(_parallel_rows(seen)),
        "group_costs.csv": _csv(
            [
                {
                    **vars(each),
                    "bytes": None if each.unsized_calls else each.bytes,
                    "at_least_bytes": each.bytes,
                    **{name: getattr(each, name) for name in derived},
                    "utilization_ratio": each.utilization_ratio(seen.peaks),
                }
                for each in seen.costs
            ]
        ),
        "densities.csv": _csv([vars(each) for each in seen.densities]),
        "tails.csv": _csv(
            [
                {
                    "workload": mix.label,
                    "calls": each.calls,
                    "median_s": each.median_s,
                    "longest_s": each.longest_s,
                    "top_1_ratio": each.top_1_ratio,
                    "top_10_ratio": each.top_10_ratio,
                    "law": fit.law,
                    "parameters": dict(fit.parameters),
                    "aic": fit.aic,
                    "distance": fit.distance,
                }
                for mix, each in seen.tails
                for fit in each.fits
            ]
        ),
        "reconstructed.csv": _csv([{**vars(each), "ratio": each.ratio} for each in seen.reconstructed]),
        "launches.csv": _csv([vars(each) for each in seen.launching]),
    }


def groups_csv(seen: CharacterizeAnswer) -> str:
    """A row a mix and group: its share of the step with the interval."""
    return _csv(
        [
            {
                **_identity(each),
                "group": group,
                "share_ratio": share.ratio,
                "low_ratio": share.low,
                "high_ratio": share.high,
                "unclassified_ratio": each.unclassified_ratio,
                "step_time_s": each.step_s,
                "profiled_step_time_s": each.profiled_s,
            }
            for each in seen.mixes
            for group, share in each.groups.items()
        ]
    )


def _identity(mix: Mix) -> Row:
    names = ("recording", "workload", "variant", "mode", "device", "threads", "batch_size")
    return {name: getattr(mix.recording, name) for name in names}


def _parallel_rows(seen: CharacterizeAnswer) -> list[Row]:
    rows = []
    for each in seen.parallelism:
        law = each.law
        for threads, time_s in each.times_s.items():
            rows.append(
                {
                    "workload": each.workload,
                    "type": each.name,
                    "group": each.group,
                    "threads": threads,
                    "time_s": time_s,
                    "fitted_s": None if law is None else law.time_s(threads),
                    "serial_ratio": None if law is None else law.serial_ratio,
                    "serial_low_ratio": None if law is None else law.serial_low,
                    "serial_high_ratio": None if law is None else law.serial_high,
                    "karp_flatt_ratio": None if law is None else law.karp_flatt.get(threads),
                    "lack_of_fit": None if law is None else law.lack_of_fit,
                }
            )
    return rows


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    names = list(next(iter(rows), {}))
    return csv_text(names, ([row[name] for name in names] for row in rows)) if names else ""
