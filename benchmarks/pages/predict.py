"""What predictions of step times are worth, and the factors that they are made with.

    python -m benchmarks.pages.predict [--write docs/predict.md]

From the kept tables alone (published steps, amounts by class, the split of families); no torch. Each number of the page
is of rows that the fit had not seen. With --write the factors, the intervals and what they covered go to
analysis/predict/factors.json, which `runners.predict` reads. Takes under a minute.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.atlas import TABLE, PublishedStep, published_steps
from analysis.predict import (
    AMOUNTS,
    COMPILED,
    DEVICE_SPLITS,
    EAGER,
    FACTORS,
    NOMINAL,
    OURS,
    SPLITS,
    FitRows,
    LeftOut,
    Setting,
    by_group,
    coverage_interval,
    device_interval,
    devices_left_out,
    families_left_out,
    fit_settings,
    groups_of,
    inside_of,
    kept_amounts,
    key_of,
    machine_of,
    other_rows,
    parts_by_device,
    parts_by_family,
    rounded,
    sample,
    scores_of,
)
from reports.predict.markdown import page

RUNS = (EAGER, COMPILED)


def main(arguments: Sequence[str] | None = None) -> int:
    """The script; its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="the page; the factors beside the code")
    options = parser.parse_args(arguments)
    found, factors = evaluate()
    text = page(found)
    if options.write is None:
        print(text)
        return 0
    options.write.write_text(text, encoding="utf-8")
    FACTORS.write_text(json.dumps(factors, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{options.write} and {FACTORS}")
    return 0


def evaluate() -> tuple[dict[str, Any], dict[str, Any]]:
    """(what the page shows, what `runners.predict` reads)."""
    rows, steps, parts = published_steps(), kept_amounts(), parts_by_family()
    devices_apart = parts_by_device()
    samples = {run: sample(rows, steps, run) for run in RUNS}
    left = {run: families_left_out(data, parts) for run, data in samples.items()}
    away = {run: devices_left_out(data, devices_apart) for run, data in samples.items()}
    scored = {run: scores(samples[run], left[run], parts) for run in RUNS}
    apart = [scores(samples[run], away[run], None) for run in RUNS]
    fitted = {run: fit_settings(data.design, data.time_s, data.settings, data.terms) for run, data in samples.items()}
    families = intervals([scored[run] for run in RUNS])
    devices = device_intervals(apart)
    elsewhere = others(rows, steps, samples[EAGER], fitted[EAGER])
    factors = {
        "provenance": provenance(samples),
        "small": small_batches(elsewhere),
        "terms": {run: [list(name) for name in data.terms.names] for run, data in samples.items()},
        "factors": {text: rounded(values) for run in RUNS for text, values in sorted(fitted[run].items())},
        "newest": newest(samples),
        "intervals": {"families": families["intervals"], "devices": devices["intervals"]},
        "coverage": {"families": families["coverage"], "devices": devices["coverage"]},
    }
    shown = {
        "samples": samples,
        "left": left,
        "away": away,
        "scored": scored,
        "families": families,
        "devices": devices,
        "factors": factors,
        "others": elsewhere,
    }
    return shown, factors


def scores(data: FitRows, left: LeftOut, parts: Mapping[str, int] | None) -> dict[str, Any]:
    """Scores, groups, families and devices; with parts whether each row lay in an interval of other parts."""
    score = scores_of(data, left.predicted_s[OURS])
    known = np.isfinite(score)
    groups = groups_of(data, left.grounds)
    found: dict[str, Any] = {
        "score": score[known], "group": groups[known], "family": data.families[known], "device": data.devices[known],
    }  # fmt: skip
    if parts is not None:
        part = np.array([parts[family] for family in found["family"]])
        found["inside"] = inside_of(found["score"], found["group"], found["family"], part)
    return found


def intervals(scored: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The intervals of all groups, and what each covered of families left out."""
    score, group, family, inside = (np.concatenate([each[name] for each in scored]) for name in
                                    ("score", "group", "family", "inside"))  # fmt: skip
    found = by_group(score, group, family)
    counted = {"": counts(inside, family)}
    counted |= {name: counts(inside[group == name], family[group == name]) for name in found if name}
    return {
        "intervals": {name: [each.low, each.high, each.scores] for name, each in found.items()},
        "coverage": counted,
    }


def device_intervals(scored: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One interval for every device that was not measured, and what it covered of each device left out."""
    score, device = (np.concatenate([each[name] for each in scored]) for name in ("score", "device"))
    inside = np.zeros(len(score), bool)
    for name in sorted(set(device)):
        others = device_interval(score[device != name], device[device != name])
        inside[device == name] = np.abs(score[device == name]) <= np.log(others.high)
    whole = device_interval(score, device)
    return {
        "intervals": {"": [whole.low, whole.high, whole.scores]},
        "coverage": {"": counts(inside, device)}
        | {name: counts(inside[device == name], device[device == name]) for name in sorted(set(device))},
        "by_device": {name: (score[device == name], inside[device == name]) for name in sorted(set(device))},
    }


LAYOUTS = ("channels_first", "channels_last")


def others(rows: Sequence[PublishedStep], steps: Any, data: FitRows, factors: Mapping[str, Any]) -> list[Any]:
    """(row, measured ÷ predicted by layout) of rows of other sources, by the factors of the pool of each layout."""
    found = []
    for row in other_rows(rows):
        design = data.terms.row(steps[key_of(row)][EAGER], row.batch_size or 0, machine_of(row.device, row.precision))
        times = [float(design @ factors[Setting(row.mode, layout, False).text]) for layout in LAYOUTS]
        found.append((row, [(row.step_time_s or 0.0) / time_s for time_s in times]))
    return found


SMALL_BATCH = 32
"""Below it the host and the input pipeline take a part of inference that is not in the fit, whose batches are large."""


def small_batches(elsewhere: Sequence[Any]) -> dict[str, Any]:
    """How far above its prediction inference at small batches goes on devices that were not measured, by layout: the
    upper end that NOMINAL of these rows need. Of the same rows, so their coverage says nothing of others."""
    ratios = [found for row, found in elsewhere if row.mode == "infer" and row.batch_size < SMALL_BATCH]
    highest = np.quantile(np.array(ratios), (1 + NOMINAL) / 2, axis=0) if ratios else np.ones(len(LAYOUTS))
    return {
        "below": SMALL_BATCH,
        "high": {layout: round(float(high), 3) for layout, high in zip(LAYOUTS, highest, strict=True)},
        "rows": len(ratios),
    }


def counts(inside: Any, clusters: Any) -> list[float]:
    """(coverage, low, high), rounded to a thousandth."""
    return [round(float(each), 3) for each in (inside.mean(), *coverage_interval(inside, clusters))]


def newest(samples: Mapping[str, FitRows]) -> dict[str, str]:
    """Setting without framework → the setting with the newest one."""
    found: dict[str, Setting] = {}
    for data in samples.values():
        for each in set(data.settings):
            text = Setting(each.mode, each.layout, each.compiled, each.device, each.precision).text
            if text not in found or version(each.framework) > version(found[text].framework):
                found[text] = each
    return {text: each.text for text, each in sorted(found.items())}


def version(framework: str) -> tuple[int, ...]:
    """ "torch 2.9.1 cu128" is (2, 9, 1)."""
    words = framework.split()
    return tuple(int(part) for part in words[1].split(".")) if len(words) > 1 else ()


def provenance(samples: Mapping[str, FitRows]) -> dict[str, Any]:
    """What the factors were fitted on: rows, families, sources with commits, and the digests of the tables."""
    rows = [row for data in samples.values() for row in data.rows]
    digest = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (TABLE, AMOUNTS, SPLITS, DEVICE_SPLITS)
    }
    return {
        "rows": len(rows),
        "families": len({row.family for row in rows}),
        "models": len({row.counted_model for row in rows}),
        "devices": sorted({row.device for row in rows}),
        "sources": sorted({f"{row.source} {row.commit}".strip() for row in rows}),
        "sha256": digest,
        "nominal": NOMINAL,
    }


if __name__ == "__main__":
    raise SystemExit(main())
