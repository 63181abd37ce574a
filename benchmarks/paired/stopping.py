"""How often does the interval of a cell hold the true mean, where measuring stops as soon as it is narrow?

    python -m benchmarks.paired.stopping [--series 2000]

Series of blocks whose neighbours are correlated (log-normal, first-order autoregressive) are stopped by the rule of
`measure/timing` on a CPU: after each block from the fewest on, once the interval of `analysis.stats` is within 3 % of
the mean, at the cap of 30 s at the latest. Blocks of 0.2 s are ten at least (2 s), those of a long step five, and 150
or 60 at most. The share is of the series that met the rule; those that came to the cap are rows that did not converge.

Not claimed: that a machine's noise is of this kind. The last table has the autocorrelation of the published runs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.stats.summary import autocorrelation, means
from results.records import Sample
from results.store import key_of, read_run

Array = NDArray[np.float64]
PUBLISHED = Path(__file__).parents[2] / "results" / "published"
TARGET = 0.03
CORRELATIONS = (0.0, 0.2, 0.4, 0.6, 0.8)
SCATTERS = (0.01, 0.03, 0.09)
"""Standard deviation of a block's logarithm."""
LENGTHS = ((10, 150), (5, 60))
"""Fewest and most blocks: of 0.2 s, and of half a second, which a long step has."""
LEAST_BLOCKS = 12
"""Of a cell whose autocorrelation is estimated."""


def series(r: float, scatter: float, count: int, length: int, seed: int = 0) -> Array:
    """count rows of blocks; the mean of each is exp(scatter² ÷ 2)."""
    normal = np.random.default_rng(seed).standard_normal((count, length))
    for place in range(1, length):
        normal[:, place] = r * normal[:, place - 1] + np.sqrt(1 - r * r) * normal[:, place]
    return np.exp(scatter * normal)


def stopped(rows: Array, truth: float, fewest: int) -> tuple[float, float, float]:
    """(share that met the rule, of these the share whose interval holds the truth, their mean number of blocks)."""
    running = np.arange(len(rows))
    held = met = blocks = 0
    for n in range(fewest, rows.shape[1] + 1):
        found = means(rows[running, :n])
        assert found.low is not None
        assert found.high is not None
        narrow = np.log(found.high / found.low) / 2 <= TARGET
        held += int(((found.low <= truth) & (truth <= found.high) & narrow).sum())
        met += int(narrow.sum())
        blocks += n * int(narrow.sum())
        running = running[~narrow]
        if not len(running):
            break
    return met / len(rows), held / met if met else float("nan"), blocks / met if met else float("nan")


def simulated(count: int) -> Iterator[str]:
    yield "| blocks | scatter | " + " | ".join(f"r = {r:g}" for r in CORRELATIONS) + " |"
    yield "| --- " * (2 + len(CORRELATIONS)) + "|"
    for fewest, most in LENGTHS:
        for scatter in SCATTERS:
            cells = []
            for r in CORRELATIONS:
                share, held, blocks = stopped(series(r, scatter, count, most), np.exp(scatter**2 / 2), fewest)
                cells.append(f"{held:.3f} ({share:.0%}, {blocks:.0f})" if share else "none converged")
            yield f"| {fewest} to {most} | {scatter:.0%} | {' | '.join(cells)} |"


def published() -> Iterator[str]:
    """Of each published run the autocorrelation of its cells' blocks, weighted by their numbers."""
    yield "| run | cells with 12 blocks or more | autocorrelation, mean | quartiles |"
    yield "| --- | --- | --- | --- |"
    for path in sorted(PUBLISHED.glob("*/samples.csv")):
        cells: dict[tuple[str, int], list[float]] = {}
        for row in read_run(path.parent).records(Sample):
            if row.part == "measure" and not row.phase and not row.work:
                cells.setdefault(key_of(row), []).append(row.wall_s / row.steps)
        times = list(cells.values())
        found = [(autocorrelation(each), len(each)) for each in times if len(each) >= LEAST_BLOCKS]
        if found:
            r, counts = (np.array(each, dtype=np.float64) for each in zip(*found, strict=True))
            quartiles = " to ".join(f"{each:.2f}" for each in np.quantile(r, (0.25, 0.75)))
            mean = float(r @ counts / counts.sum())
            yield f"| {path.parent.name} | {len(found)} of {len(times)} | {mean:.2f} | {quartiles} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=2000, help="of each kind")
    options = parser.parse_args()
    for line in (*simulated(options.series), "", *published()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
