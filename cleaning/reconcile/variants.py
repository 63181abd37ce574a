"""How fast is each variant of a training step: precision, layout, compile setting and optimizer against the first ones.

The ratio and its interval are those of two cells in `analysis/stats/comparison.py`. Not claimed: what processes and
hours differ by, where a cell was not repeated.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.stats.comparison import MARGIN_RATIO, conditions, difference
from analysis.utilization.step_times import block_means_s, whole_steps
from results.records.cell import Run, Sitting
from results.records.rows import to_text
from results.records.samples import Sample
from results.records.vocabulary import MEASURED
from results.store.layout import Key, key_of

OPTIONS = {"precision": "precisions", "layout": "layout", "compile": "compile", "optimizer": "optimizer"}
"""Parameter that sets a variant apart → the option whose list has its values, the first one first."""

Times = list[tuple[float, ...]]


@dataclass(frozen=True)
class Variant:
    """Steps per second ÷ those of the first variant of the same model and batch, with the 95 % interval.

    name: what sets it apart from the others. first: whether it is the one that they are divided by.
    """

    model: str
    batch_size: int
    name: str
    first: bool
    ratio: float
    low_ratio: float | None
    high_ratio: float | None


def variants(
    runs: Iterable[Run],
    samples: Mapping[Key, Sequence[Sample]],
    sittings: Iterable[Sitting],
    options: Mapping[str, Any],
) -> tuple[Variant, ...]:
    """Of each step that was measured in several variants on one device. options: of the run's manifest."""
    devices = {each.sitting: (each.host, each.device_uuid) for each in sittings}
    groups: dict[tuple[Any, ...], dict[tuple[Any, ...], Times]] = {}
    steps: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        if run.status not in MEASURED or not (blocks := whole_steps(samples.get(key_of(run), ()))):
            continue
        means_s = tuple(block_means_s(blocks))
        if all(0 < mean_s < math.inf for mean_s in means_s):
            step = (devices.get(run.sitting), *conditions(run, *OPTIONS))
            values = tuple(getattr(run, name) for name in OPTIONS)
            groups.setdefault(step, {}).setdefault(values, []).append(means_s)
            steps.setdefault(step, run)
    return tuple(
        row for step, group in groups.items() if len(group) > 1 for row in _of_step(steps[step], group, options)
    )


def _of_step(run: Run, group: Mapping[tuple[Any, ...], Times], options: Mapping[str, Any]) -> list[Variant]:
    ordered = sorted(group, key=lambda values: _places(values, options))
    differing = [place for place in range(len(OPTIONS)) if len({values[place] for values in group}) > 1]
    margin = MARGIN_RATIO["cuda" if run.device.startswith("cuda") else "cpu"]
    rows = []
    for values in ordered:
        first = values == ordered[0]
        found = difference(group[ordered[0]], group[values], margin)
        low, high = (None if end is None or first else 1 / end for end in reversed(found.interval()))
        parts = [f"{[*OPTIONS][place]}={to_text(values[place])}" for place in differing]
        parts += [f"parallel={run.parallel}"] if run.parallel else []
        rows.append(Variant(run.model, run.batch_size, ", ".join(parts), first, 1 / found.ratio, low, high))
    return rows


def _places(values: tuple[Any, ...], options: Mapping[str, Any]) -> list[int]:
    """Where each value stands in the list that was asked for."""
    lists = [options.get(option) for option in OPTIONS.values()]
    return [
        every.index(value) if isinstance(every, list) and value in every else 0
        for value, every in zip(values, lists, strict=True)
    ]
