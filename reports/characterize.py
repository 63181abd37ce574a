"""Computes how workloads differ (operation mix, similarity, parallelism), and writes it as JSON, CSV and figures.

`analyse` takes a `Characterization`, the recorded rows, and returns a `CharacterizeAnswer`. `document`, `tables` and
`figures` take this answer; `characterize_text.py` writes it as text. Ratios run from 0 to 1; unknown is null, or an
empty field. The columns of a table are the keys of its rows. "The paper" is Fathom (IISWC 2016). A variant is a
workload as Fathom's code has it or as the paper describes it. The figure of variants begins with the paper's Figure 3
where that is reproduced. Draw and render inside `figure_style.theme()`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.characterize.fathom_groups import GROUPS, figure3
from analysis.characterize.operation_mix import Merge, Mix, centroid_linkage, matrix, pictures, types_for
from analysis.characterize.parallelism import Scaling, over_batch, parallelism
from analysis.characterize.stationarity import tail
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
from reports.shared import figure_panels, figure_style
from reports.shared.layout import csv_of
from reports.shared.numbers import shortened_name
from results.records.characterization import Characterization, WorkloadRecording

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class CharacterizeAnswer:
    """All results of a characterization.

    mixes: each recording's shares of time by operation type. compared: the mixes that stand for their workloads.
    pictures: variant → the steps in which its workloads join by similarity.
    """

    data: Characterization
    mixes: tuple[Mix, ...]
    compared: tuple[Mix, ...]
    linkage: tuple[Merge, ...]
    pictures: Mapping[str, tuple[Merge, ...]]
    steadiness: tuple[tuple[WorkloadRecording, Row], ...]
    against: tuple[Row, ...]
    parallelism: tuple[Scaling, ...]
    over_batch: tuple[tuple[WorkloadRecording, Mix], ...]
    costs: tuple[Row, ...]
    tails: tuple[tuple[Mix, Row], ...]
    reconstructed: tuple[Row, ...]
    peaks: Mapping[str, float]
    notes: tuple[str, ...] = ()
    reproduce: str = ""


def analyse(
    data: Characterization,
    notes: Sequence[str] = (),
    *,
    reproduce: str = "",
    peaks: Mapping[str, float] | None = None,
) -> CharacterizeAnswer:
    """Compute the whole answer.

    reproduce: "fathom" shows the paper's numbers next to ours. peaks: unit → FLOP/s.
    """
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
    """Return the paper's name of a workload: "speech" of "fathom-speech@small"."""
    return mix.recording.workload.partition("@")[0].removeprefix("fathom-")


def paper_label(mix: Mix) -> str:
    """Return the paper's name of a workload, with its variant if that is not the code's."""
    variant = mix.recording.variant
    return paper_name(mix) if variant in ("", "as_coded") else f"{paper_name(mix)} {variant}"


def document(seen: CharacterizeAnswer) -> dict[str, Any]:
    """Return the JSON document. A workload that was not recorded is in it with its name and nulls."""
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
    """Return file name → CSV of each derived table; a table without rows is empty."""
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
                    **row,
                }
                for recording, row in seen.steadiness
            ]
        ),
        "training_inference.csv": csv_of(seen.against),
        "parallelism.csv": csv_of(
            [
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
        ),
        "group_costs.csv": csv_of(seen.costs),
        "tails.csv": csv_of(
            [
                {
                    "workload": mix.label,
                    **{name: value for name, value in row.items() if name != "fits"},
                    **fit,
                }
                for mix, row in seen.tails
                for fit in row["fits"]
            ]
        ),
        "reconstructed.csv": csv_of(seen.reconstructed),
    }


def groups_csv(seen: CharacterizeAnswer) -> str:
    """Return a row for each mix and group: its share of the step with the interval."""
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


LEAST_RATIO = 0.01
"""Shares below it are not drawn, as in the paper's Figure 3; nor are types that are below it in every workload."""

_LETTERS = 26


def figures(seen: CharacterizeAnswer) -> dict[str, Figure]:
    """Return file name → figure, for what was recorded: types; the paper's Figure 4, which workloads join at which
    distance; a tree of each variant on one scale, after the paper's own where it is reproduced."""
    drawn: dict[str, Figure] = {}
    if columns := columns_of(seen.compared):
        drawn["types"] = _types(seen.compared, columns)
    if seen.linkage:
        drawn["likeness"] = _dendrograms({"": seen.linkage})
    if len(seen.pictures) > 1 and all(seen.pictures.values()):
        rows = {name: tuple(cells.values()) for name, cells in figure3().items()}
        paper = {"the paper's Figure 3": centroid_linkage(rows)} if seen.reproduce else {}
        drawn["likeness_variants"] = _dendrograms({**paper, **seen.pictures})
    return drawn


def _types(mixes: Sequence[Mix], columns: Sequence[tuple[str, str]]) -> Figure:
    """Return the paper's Figure 3: workloads down, operation types across in the order of their groups; shares with
    their per cent on a logarithmic colour from 1 % to 90 %, white below."""
    import numpy as np
    import seaborn as sns
    from matplotlib.colors import LogNorm

    shares = [{(share.group, share.name): share.share_ratio for share in mix.types} for mix in mixes]
    values = np.array([[row.get(column, 0.0) for column in columns] for row in shares])
    figure, (axes,), _ = figure_panels.grid(1, 1, 1.5 + 0.23 * len(mixes), width_in=figure_style.PAGE_IN + 1.4)
    sns.heatmap(
        values, mask=values < LEAST_RATIO, norm=LogNorm(LEAST_RATIO, 0.90), cmap="YlGnBu", cbar=False, ax=axes,
        annot=100 * values, fmt=".0f", annot_kws={"fontsize": 6}, linewidths=1.2,
        xticklabels=[shortened_name(name, _LETTERS) for _, name in columns],
        yticklabels=[shortened_name(mix.label, _LETTERS) for mix in mixes],
    )  # fmt: skip
    axes.tick_params(length=0, labelsize=6)
    axes.tick_params(axis="x", rotation=90)
    for letter in dict.fromkeys(group for group, _ in columns):
        indices = [index for index, (group, _) in enumerate(columns) if group == letter]
        axes.annotate(
            letter or "?", ((indices[0] + indices[-1] + 1) / 2, 0), (0, 4), textcoords="offset points",
            ha="center", va="bottom", weight="bold", fontsize=8, annotation_clip=False,
        )  # fmt: skip
        axes.axvline(indices[-1] + 1, color="0.4", linewidth=0.8)
    below = f"per cent of a step; types of at least {100 * LEAST_RATIO:.0f} % of any workload's"
    return figure_panels.finish(figure, [], [], below)


def columns_of(mixes: Sequence[Mix]) -> list[tuple[str, str]]:
    """Return (group, type) of the 44 largest types that are drawn for any workload, by group, the largest first: the
    paper's columns."""
    most: dict[tuple[str, str], float] = defaultdict(float)
    for share in (share for mix in mixes for share in mix.types):
        most[share.group, share.name] = max(most[share.group, share.name], share.share_ratio)
    largest = sorted((key for key in most if most[key] >= LEAST_RATIO), key=lambda key: -most[key])[:44]
    order = [*GROUPS, ""]
    return sorted(largest, key=lambda key: (order.index(key[0]), -most[key]))


def _dendrograms(trees: Mapping[str, Sequence[Merge]]) -> Figure:
    """Return trees side by side, with their leaves on the right; distances grow to the left."""
    from scipy.cluster.hierarchy import dendrogram

    leaves = {name: list(merges[-1].members) for name, merges in trees.items()}
    height_in = 0.3 + 0.21 * max(map(len, leaves.values()))
    width_in = figure_style.PAGE_IN if len(trees) > 1 else figure_style.COLUMN_IN * 1.5
    figure, drawn, _ = figure_panels.grid(len(trees), len(trees), height_in, share_y=False, width_in=width_in)
    furthest = max(merge.height for merges in trees.values() for merge in merges)
    for axes, (name, merges) in zip(drawn, trees.items(), strict=True):
        names = [shortened_name(leaf, _LETTERS) for leaf in leaves[name]]
        dendrogram(
            matrix(leaves[name], merges), labels=names, ax=axes, orientation="left", leaf_font_size=6.5,
            link_color_func=lambda _: "0.25",
        )  # fmt: skip
        axes.grid(axis="y", visible=False)
        axes.spines["left"].set_visible(False)
        axes.set_xlim(furthest * 1.08, 0)
        title = {"as_coded": "as coded", "as_paper": "as in the paper"}.get(name, name)
        figure_panels.title(axes, title, len(trees))
    below = "cosine distance of the shares by operation type; clusters by their centroids"
    return figure_panels.finish(figure, drawn, [], below)
