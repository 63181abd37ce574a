"""How often does a comparison of two runs of equal steps call a cell different, and does it see +5 %?

    python -m benchmarks.paired.compared [--draws 400]

First the three runs of 2026-11-28 against each other (`results/published/paired-rates-2026-11-28.csv`). Then runs that
are drawn: each cell has a level of its own in a run, and its sessions scatter about that; `NOISES` has the standard
deviations. What is counted: comparisons that call any of their equal cells different, and cells 5 % slower in the
second run that are called so.

Not claimed: that other machines scatter like this one.
"""

import argparse
import csv
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from analysis.stats.comparison import MARGIN_RATIO, Session, holm, relative_difference, scatter, verdict
from analysis.utilization.windows import Window
from results.records.answers import SLOWER

RATES = Path(__file__).parents[2] / "results" / "published" / "paired-rates-2026-11-28.csv"
Run = Mapping[object, Sequence[Session]]
CELL = ("model", "batch_size", "precision", "layout")

PUBLISHED_SESSIONS = (
    0.020, 0.020, 0.021, 0.022, 0.023, 0.023, 0.024, 0.026, 0.027, 0.029, 0.029, 0.032, 0.033,
    0.035, 0.036, 0.040, 0.041, 0.043, 0.049, 0.059, 0.068, 0.082, 0.086, 0.090, 0.098, 0.120,
)  # fmt: skip
"""Standard deviations of the sessions of each cell of those runs that was repeated: `of_sessions`."""

NOISES = {"of these runs": (PUBLISHED_SESSIONS, 0.008, 0.027, 0.023), "quiet": ((0.006,), 0.003, 0.003, 0.003)}
"""Of a cell in a session; of sessions, shared by all cells; of runs, shared by all; of a cell in a run."""


def published() -> dict[str, Run]:
    """Of each run the sessions of its cells."""
    runs: dict[str, dict[object, dict[str, list[tuple[float, float]]]]] = {}
    with RATES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            window = Window(*(float(row[f"utilization_{end}ratio"]) for end in ("", "low_", "high_")))
            cell = runs.setdefault(row["run"], {}).setdefault(tuple(row[name] for name in CELL), {})
            cell.setdefault(row["session"], []).append((-math.log(window.value), window.variance))
    return {name: {cell: [*each.values()] for cell, each in cells.items()} for name, cells in runs.items()}


def of_sessions(runs: Sequence[Run]) -> list[float]:
    """The standard deviation of the sessions of each cell that has several in every run."""
    sides = [[run[cell] for run in runs] for cell in runs[0]]
    return sorted(math.sqrt(scatter(each)[0]) for each in sides if min(map(len, each)) > 1)


def drawn(rng: np.random.Generator, cells: int, sessions: int, noise: str, more: float = 0.0) -> Run:
    """A run of one window a session. more: by how much all of its cells are slower."""
    of_cells, of_session, of_run, of_cell = NOISES[noise]
    levels = math.log1p(more) + rng.normal(0, of_run) + rng.normal(0, of_cell, cells)
    scatters = rng.choice(of_cells, cells)
    logs = levels[:, None] + rng.normal(0, of_session, sessions)
    logs += scatters[:, None] * rng.standard_normal((cells, sessions))
    return {cell: [[(float(log), 0.0)] for log in each] for cell, each in enumerate(logs)}


def verdicts(a: Run, b: Run, device: str = "cpu") -> dict[object, str]:
    """What is said of each cell, as `reports/compare/cells.py` does."""
    pooled = scatter(side[cell] for cell in a for side in (a, b))
    found = [relative_difference(a[cell], b[cell], pooled, MARGIN_RATIO[device]) for cell in a]
    different, same = holm([each.p_different for each in found]), holm([each.p_same for each in found])
    chances = zip(found, different, same, strict=True)
    return dict(zip(a, (verdict(each.ratio, p, q, each.basis) for each, p, q in chances), strict=True))


def table(draws: int) -> list[str]:
    """Markdown."""
    lines = ["| runs | cells | sessions a side | comparisons with a false alarm | cells 5 % slower that are found |"]
    lines.append("| --- | --- | --- | --- | --- |")
    pairs = [verdicts(a, b) for a, b in itertools.permutations(published().values(), 2)]
    wrong = sum(any(word in ("faster", SLOWER) for word in each.values()) for each in pairs)
    lines.append(f"| published, either order | {len(pairs[0])} | 1 to 3 | {wrong} of {len(pairs)} | – |")
    rng = np.random.default_rng(20261129)
    for noise, cells, sessions in itertools.product(NOISES, (1, 4, 26, 156), (1, 2, 3, 5)):
        sides = [[drawn(rng, cells, sessions, noise) for _ in range(2)] for _ in range(draws)]
        alarms = sum(any(word in ("faster", SLOWER) for word in verdicts(a, b).values()) for a, b in sides)
        slower = [verdicts(a, drawn(rng, cells, sessions, noise, 0.05)).values() for a, _ in sides[: draws // 4]]
        power = sum(word == SLOWER for each in slower for word in each) / (cells * len(slower))
        lines.append(f"| drawn, {noise} | {cells} | {sessions} | {alarms / draws:.1%} | {power:.0%} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--draws", type=int, default=400, help="comparisons of each kind")
    print("\n".join(table(parser.parse_args().draws)))


if __name__ == "__main__":
    main()
