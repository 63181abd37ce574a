"""What predictions are worth on rows that the fit has not seen: families left out, devices left out, other sources.

Which family is in which of ten parts is read from `families.csv`, which was written before anything was fitted on it.
Intervals are split conformal by group: the score of a row is log(measured ÷ predicted), of a prediction whose fit had
not seen the row's family. A group is a mode, layout and way of running, and the ground that the model stands on. The
interval of a group runs from the lower to the upper quantile of its scores, with the correction of weighted conformal
prediction for a finite number of scores (Tibshirani et al. 2019, "Conformal prediction under covariate shift").

Rows of one family are not exchangeable with those of another: what is claimed is the coverage that was counted on
families left out, with an interval by resampling families.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.reach.prediction import NOMINAL, ground_of
from analysis.reach.step_time import COMPILED, EAGER, Setting, parts_of
from benchmarks.reach.fitting import Numbers, Sample, Steps, fit_settings, keys_of, row_machine, sample

RUNS = (EAGER, COMPILED)

LAYOUTS = ("channels_first", "channels_last")

THIN_NOMINAL = 0.95
"""Of models that were measured thinly, where families differ most, and of all groups together."""

DEVICE_NOMINAL = 0.95
"""Of the rows of each device that a device that was not measured is judged by: with NOMINAL, the intervals made from
the others held 83 % of the rows of one of three."""

FEWEST, FEWEST_FAMILIES = 60, 3
"""Scores, and families, of a group with an interval of its own."""

OTHER_SOURCES = ("Lambda", "NVIDIA examples")
"""Sources that no factor was fitted on: their rows are compared with predictions only."""

SMALL_BATCH = 32
"""Below it the host and the input pipeline take a part of inference that is not in the fit, whose batches are large."""

Interval = tuple[float, float, int]
"""(low, high, scores): low ≤ measured ÷ predicted ≤ high."""


def evaluate(rows: pd.DataFrame, steps: Steps, parts: Mapping[str, int]) -> tuple[dict[str, Any], pd.DataFrame]:
    """(factors, intervals and coverage as `FACTORS` has them, the rows of timm with their predictions by
    families left out and by devices left out)."""
    samples = {run: sample(rows, steps, run) for run in RUNS}
    fitted = {run: fit_settings(data, np.ones(len(data.rows), bool)) for run, data in samples.items()}
    scored = pd.concat([_scored(data, parts) for data in samples.values()])
    elsewhere = other_sources(rows, steps, samples[EAGER], fitted[EAGER])
    newest = {text.rpartition(" | ")[0]: text for text in sorted(scored["setting"].unique(), key=_version)}
    families, devices = _by_families(scored), _by_devices(scored)
    answer = {
        "small": _small_batches(elsewhere),
        "terms": {run: [list(name) for name in data.terms.names] for run, data in samples.items()},
        "factors": {text: [float(f"{each:.5g}") for each in fitted[run][text]] for run in RUNS for text in
                    sorted(fitted[run])},
        "newest": dict(sorted(newest.items())),
        "intervals": {"families": families[0], "devices": devices[0]},
        "coverage": {"families": families[1], "devices": devices[1]},
    }  # fmt: skip
    return answer, scored


def _version(text: str) -> tuple[int, ...]:
    """Of a setting's framework: "… | torch 2.9.1 cu128" is (2, 9, 1)."""
    words = text.rpartition(" | ")[2].split()
    return tuple(int(part) for part in words[1].split(".")) if len(words) > 1 else ()


def _scored(data: Sample, parts: Mapping[str, int]) -> pd.DataFrame:
    """The rows with what is predicted by factors that were fitted without the row's part of families, and without its
    device; with group and score (NaN where nothing was predicted) of the first."""
    part = data.rows["family"].map(parts)
    predicted_s, ground = _left_out(data, part.to_numpy(), "setting")
    device_s, _ = _left_out(data, data.rows["device"].to_numpy(), "pool")
    return data.rows.assign(
        part=part,
        predicted_s=predicted_s,
        group=[f"{pool} | {words}" for pool, words in zip(data.rows["pool"], ground, strict=True)],
        score=np.log(data.time_s / predicted_s),
        device_score=np.log(data.time_s / device_s),
    )


def _left_out(data: Sample, part: NDArray[Any], by: str) -> tuple[Numbers, list[str]]:
    """Each row predicted, s, from rows in other parts, and its ground: by the factors of its setting or pool."""
    predicted_s, ground = np.full(len(part), np.nan), [""] * len(part)
    for each in sorted(set(part)):
        fitted = fit_settings(data, part != each)
        for index in np.flatnonzero(part == each):
            row = data.rows.iloc[index]
            if (factors := fitted.get(row[by], fitted.get(row["pool"]))) is not None:
                predicted_s[index] = data.design[index] @ factors
                ground[index] = ground_of(parts_of(data.terms, factors, data.design[index]))
    return predicted_s, ground


def _by_families(scored: pd.DataFrame) -> tuple[dict[str, Interval], dict[str, list[float]]]:
    """The intervals of all groups, and what each covered of families left out."""
    known = scored[np.isfinite(scored["score"])]
    inside = pd.Series(False, known.index)
    for _, of_run in known.groupby("compiled"):
        for part in sorted(set(of_run["part"])):
            intervals, tested = by_group(of_run[of_run["part"] != part]), of_run[of_run["part"] == part]
            ends = [intervals.get(group, intervals[""]) for group in tested["group"]]
            low, high = (np.array([end[side] for end in ends]) for side in (0, 1))
            inside[tested.index] = (low <= np.exp(tested["score"])) & (np.exp(tested["score"]) <= high)
    intervals = by_group(known)
    groups = {name: known["group"] == name for name in intervals if name} | {"": pd.Series(True, known.index)}
    return intervals, {name: covered(inside[rows], known["family"][rows]) for name, rows in groups.items()}


def by_group(scored: pd.DataFrame) -> dict[str, Interval]:
    """The interval of each group with enough scores, and of all scores under ""."""
    intervals = {"": conformal(scored, THIN_NOMINAL)}
    for group, rows in scored.groupby("group"):
        if len(rows) >= FEWEST and rows["family"].nunique() >= FEWEST_FAMILIES:
            thin = str(group).endswith("measured thinly")
            intervals[str(group)] = conformal(rows, THIN_NOMINAL if thin else NOMINAL)
    return intervals


def conformal(scored: pd.DataFrame, nominal: float) -> Interval:
    """The interval of a group from its rows' scores and families.

    A family weighs as the root of its rows, between equal weights of rows and equal weights of families; one more
    score beyond either end weighs as the largest does.
    """
    weights = scored.groupby("family")["score"].transform("size").to_numpy() ** -0.5
    scores = scored["score"].to_numpy()
    order = np.argsort(scores)
    ordered, share = scores[order], np.cumsum(weights[order])
    total, tail = share[-1] + weights.max(), (1 - nominal) / 2
    low = int(np.searchsorted(share, tail * total)) - 1
    high = int(np.searchsorted(share, (1 - tail) * total))
    return (
        float(np.exp(ordered[low])) if low >= 0 else 0.0,
        float(np.exp(ordered[high])) if high < len(ordered) else math.inf,
        len(scores),
    )


def _by_devices(scored: pd.DataFrame) -> tuple[dict[str, Interval], dict[str, list[float]]]:
    """One interval for every device that was not measured, and what it covered of each device left out."""
    known = scored[np.isfinite(scored["device_score"])]
    inside = pd.Series(False, known.index)
    for device, rows in known.groupby("device"):
        inside[rows.index] = rows["device_score"].abs() <= device_reach(known[known["device"] != device])
    reach = device_reach(known)
    coverage = {"": covered(inside, known["device"])}
    coverage |= {str(name): covered(inside[rows.index], rows["device"]) for name, rows in known.groupby("device")}
    return {"": (math.exp(-reach), math.exp(reach), len(known))}, coverage


def device_reach(scored: pd.DataFrame) -> float:
    """How far a device that was not measured may be off, as log: as far as the worst of these devices needs.

    A device is faster or slower as a whole, and few were measured: that the next one is no farther off than the worst
    is all that can be said.
    """
    return float(scored["device_score"].abs().groupby(scored["device"]).quantile(DEVICE_NOMINAL).max())


def covered(inside: pd.Series[bool], clusters: pd.Series[str]) -> list[float]:
    """(coverage, low, high): its 95 % interval is by resampling whole clusters (families, or devices) 2,000 times."""
    of_each = inside.groupby(clusters).agg(["sum", "size"]).to_numpy(float)
    drawn = np.random.default_rng(0).integers(0, len(of_each), (2000, len(of_each)))
    sums = of_each[drawn].sum(axis=1)
    ends = np.quantile(sums[:, 0] / sums[:, 1], [0.025, 0.975])
    return [round(float(each), 3) for each in (inside.mean(), *ends)]


def other_sources(rows: pd.DataFrame, steps: Steps, data: Sample, fitted: Mapping[str, Numbers]) -> pd.DataFrame:
    """Rows in autocast of other sources, of systems of one device, with measured ÷ predicted by the factors of the pool
    of each layout: they do not say theirs."""
    rows = rows[rows["source_name"].isin(OTHER_SOURCES) & (rows["devices"] == 1) & rows["step_time_s"].notna()]
    rows = rows[rows["precision"].str.startswith("amp-")]
    ratios: dict[str, list[float]] = {layout: [] for layout in LAYOUTS}
    for key, row in zip(keys_of(rows), rows.itertuples(), strict=True):
        design = data.terms.row(steps[key][EAGER], int(row.batch_size), row_machine(row))
        for layout in LAYOUTS:
            text = Setting(row.mode, layout, False).text
            ratios[layout].append(row.step_time_s / float(design @ fitted[text]))
    return rows.assign(**ratios)


def _small_batches(elsewhere: pd.DataFrame) -> dict[str, Any]:
    """How far above its prediction inference at small batches goes on devices that were not measured, by layout: the
    upper end that NOMINAL of these rows need. Of the same rows, so their coverage says nothing of others."""
    rows = elsewhere[(elsewhere["mode"] == "infer") & (elsewhere["batch_size"] < SMALL_BATCH)]
    high = {layout: round(float(rows[layout].quantile((1 + NOMINAL) / 2)), 3) for layout in LAYOUTS}
    return {"below": SMALL_BATCH, "high": high, "rows": len(rows)}


def errors(scored: pd.DataFrame) -> pd.DataFrame:
    """By mode and way of running: rows, and median, mean and 90th percentile of |predicted ÷ measured - 1|, of rows
    that have a bound, as these predictions would."""
    known = scored[np.isfinite(scored["score"]) & scored["bound_time_s"].notna()]
    error = (np.exp(-known["score"]) - 1).abs()
    table: pd.DataFrame = error.groupby([known["mode"], known["compiled"]]).describe(percentiles=[0.5, 0.9])
    return table[["count", "50%", "mean", "90%"]]
