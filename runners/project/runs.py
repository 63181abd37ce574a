"""Runs of our own as observations of utilization: those in results/published, and those that the caller names."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from analysis.project.compute.published_runs import Observation, ours
from results.records import MEASURED
from runners.cli.exits import Mistake

PUBLISHED = Path(__file__).parents[2] / "results" / "published"
"""Our own published runs; an installed package comes without them."""

WHAT = ("exact", "datasheet")
"""Method and denominator of the rows that are taken."""


def own_runs(asked: Iterable[Path]) -> tuple[list[Observation], dict[str, int]]:
    """The observations of the published runs and of these, and reason → rows that are none. Raises Mistake."""
    published = sorted(path.parent for path in PUBLISHED.glob("*/utilization.csv"))
    told = [each for path in [*published, *asked] for each in _rows(path)]
    left_out = Counter(each for each in told if isinstance(each, str))
    return [each for each in told if isinstance(each, Observation)], dict(left_out)


def _rows(path: Path) -> list[Observation | str]:
    """The rows of one run. Raises Mistake where there is none, or it is of several devices."""
    try:
        rows, sittings = _table(path / "utilization.csv"), _table(path / "sittings.csv")
        names = {row["device_name"] for row in sittings}
        if len(names) != 1:
            raise Mistake(f"--run: expected a run on one device, got {path} on {', '.join(sorted(names)) or 'none'}")
        kept = [row for row in rows if (row["method"], row["denominator"]) == WHAT]
        return [ours(row, min(names), path.name) for row in kept if row["status"] in (*MEASURED, "unavailable")]
    except OSError as fault:
        raise Mistake(f"--run: expected the directory of a reported run, got {path}: {fault.strerror}") from fault
    except KeyError as fault:
        raise Mistake(f"--run: expected the tables of a run, got {path} without the column {fault}") from fault


def _table(path: Path) -> list[Mapping[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
