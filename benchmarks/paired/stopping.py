"""How often does the interval of a cell hold the true mean, where measuring stops as soon as it is narrow?

    python -m benchmarks.paired.stopping [--series 500]

Series of blocks whose neighbours are correlated (log-normal, first-order autoregressive) are stopped by the rule of
`measure/timing` on a CPU: after each block from the fewest on, once the interval is within 3 % of the mean, at the cap
of 60 s at the latest. Blocks of 0.2 s are ten at least (2 s), those of a long step five, and 300 or 120 at most. The
share is of the series that met the rule; those that came to the cap are rows that did not converge.

Not claimed: that a machine's noise is of this kind.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from analysis.stats.summary import INTERVAL_RULES, summarise

Array = NDArray[np.float64]
TARGET = 0.03
CORRELATIONS = (0.0, 0.2, 0.4, 0.6, 0.8)
SCATTERS = (0.01, 0.03, 0.09)
"""Standard deviation of a block's logarithm."""
LENGTHS = ((10, 300), (5, 120))
"""Fewest and most blocks: of 0.2 s, and of half a second, which a long step has."""


def series(r: float, scatter: float, count: int, length: int, seed: int = 0) -> Array:
    """count rows of blocks; the mean of each is exp(scatter² ÷ 2)."""
    normal = np.random.default_rng(seed).standard_normal((count, length))
    for place in range(1, length):
        normal[:, place] = r * normal[:, place - 1] + np.sqrt(1 - r * r) * normal[:, place]
    return np.exp(scatter * normal)


def stopped(rows: Array, truth: float, fewest: int, rule: str) -> tuple[float, float, float]:
    """(share that met the rule, of these the share whose interval holds the truth, their mean number of blocks)."""
    held, blocks = 0, []
    for row in rows:
        for n in range(fewest, len(row) + 1):
            summary = summarise(row[:n], rule=rule)
            if (summary.half_width_ratio or math.inf) <= TARGET:
                held += (summary.low or 0.0) <= truth <= (summary.high or 0.0)
                blocks.append(n)
                break
    met = len(blocks)
    return met / len(rows), held / met if met else math.nan, sum(blocks) / met if met else math.nan


def simulated(count: int, names: Sequence[str]) -> Iterator[str]:
    """A row for each rule, number of blocks and scatter."""
    yield "| rule | blocks | scatter | " + " | ".join(f"r = {r:g}" for r in CORRELATIONS) + " |"
    yield "| --- " * (3 + len(CORRELATIONS)) + "|"
    for name in names:
        for fewest, most in LENGTHS:
            for scatter in SCATTERS:
                cells = []
                for r in CORRELATIONS:
                    rows, truth = series(r, scatter, count, most), math.exp(scatter**2 / 2)
                    share, held, blocks = stopped(rows, truth, fewest, name)
                    cells.append(f"{held:.3f} ({share:.0%}, {blocks:.0f})" if share else "none converged")
                yield f"| {name} | {fewest} to {most} | {scatter:.0%} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=500, help="of each kind")
    print("\n".join(simulated(parser.parse_args().series, tuple(INTERVAL_RULES))))


if __name__ == "__main__":
    main()
