"""How often does the 95 % interval of a cell's blocks hold the true mean, and where not, is the cell marked?

    python -m benchmarks.paired.stopping [--draws 500]
    python -m benchmarks.paired.stopping --series 500

Windows of so many blocks, of thirteen kinds of noise whose mean in the long run is 1 (`KINDS`). Counted is how many of
the intervals hold it, and how many of the others `analysis.stats.summary.unsteady` marks. Of doubled blocks, windows
that have one: the others show nothing.

With --series, blocks whose neighbours are correlated (log-normal, first-order autoregressive) are stopped by the rule
of `measure/timing` on a CPU: after each block from the fewest on, once the interval is within 3 % of the mean, at the
cap of 60 s at the latest. Blocks of 0.2 s are ten at least (2 s), those of a long step five, and 300 or 120 at most.
The share is of the series that met the rule; those that came to the cap are rows that did not converge.

Not claimed: that a machine's noise is of these kinds.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from analysis.stats.summary import BATCHES, INTERVAL_RULES, LAG1_RAISED, summarise, unsteady

Array = NDArray[np.float64]
Draw = np.random.Generator
TARGET = 0.03
CORRELATIONS = (0.0, 0.2, 0.4, 0.6, 0.8)
SCATTERS = (0.01, 0.03, 0.09)
"""Standard deviation of a block's logarithm."""
LENGTHS = ((10, 300), (5, 120))
"""Fewest and most blocks: of 0.2 s, and of half a second, which a long step has."""
WINDOWS = (12, 30, 120)
"""Blocks of a window of the kinds."""


def series(r: float, scatter: float, count: int, length: int, seed: int = 0) -> Array:
    """count rows of blocks; the mean of each is exp(scatter² ÷ 2)."""
    normal = np.random.default_rng(seed).standard_normal((count, length))
    for place in range(1, length):
        normal[:, place] = r * normal[:, place - 1] + np.sqrt(1 - r * r) * normal[:, place]
    return np.exp(scatter * normal)


def correlated(draw: Draw, n: int, r: float, scatter: float) -> Array:
    return series(r, scatter, 1, n, int(draw.integers(2**32)))[0] / math.exp(scatter**2 / 2)


def doubled(draw: Draw, n: int, share: float) -> Array:
    """At least one of n blocks takes twice as long."""
    twice = draw.random(n) < share
    twice[draw.integers(n)] |= not twice.any()
    return draw.normal(1, 0.01, n) * (1 + twice) / (1 + share)


def levels(draw: Draw, n: int, blocks: int, scatter: float) -> Array:
    """Levels of 3 % that last for so many blocks, the first cut anywhere."""
    each = np.repeat(draw.normal(1, 0.03, n // blocks + 2), blocks)
    return each[(start := draw.integers(blocks)) : start + n] + draw.normal(0, scatter, n)


KINDS: Mapping[str, Callable[[Draw, int], Array]] = {
    "independent, 1 %": lambda draw, n: draw.normal(1, 0.01, n),
    "independent, 10 %": lambda draw, n: draw.normal(1, 0.10, n),
    "heavy tails (t of 3)": lambda draw, n: 1 + 0.02 * draw.standard_t(3, n),
    "correlated, r = 0.4": lambda draw, n: correlated(draw, n, 0.4, 0.03),
    "correlated, r = 0.6": lambda draw, n: correlated(draw, n, 0.6, 0.03),
    "correlated, r = 0.8": lambda draw, n: correlated(draw, n, 0.8, 0.03),
    "correlated, r = 0.9": lambda draw, n: correlated(draw, n, 0.9, 0.03),
    "3 % of blocks doubled": lambda draw, n: doubled(draw, n, 0.03),
    "10 % of blocks doubled": lambda draw, n: doubled(draw, n, 0.10),
    "levels of a tenth of the window": lambda draw, n: levels(draw, n, n // 10, 0.01),
    "levels of a third": lambda draw, n: levels(draw, n, n // 3, 0.01),
    "a trend of 5 %": lambda draw, n: draw.normal(1, 0.01, n) * np.linspace(0.975, 1.025, n),
    "levels of four windows": lambda draw, n: levels(draw, n, 4 * n, 0.01),
}
"""Kind → blocks of a window."""


def covered(kind: str, blocks: int, rule: str, draws: int) -> tuple[float, float, float]:
    """(share of the intervals that hold 1, of the others those that are marked (1 of none), of all those marked)."""
    draw = np.random.default_rng(20261129)
    rows = [KINDS[kind](draw, blocks) for _ in range(draws)]
    summaries = [summarise(row, rule=rule) for row in rows]
    held = np.array([(each.low or 0.0) <= 1 <= (each.high or 0.0) for each in summaries])
    marked = np.array([bool(unsteady(row)) for row in rows])
    return float(held.mean()), float(marked[~held].mean()) if not held.all() else 1.0, float(marked.mean())


def of_kinds(draws: int) -> Iterator[str]:
    """A row for each kind."""
    yield f"| kind | {' | '.join(f'{blocks} blocks' for blocks in WINDOWS)} |"
    yield "| --- " * (1 + len(WINDOWS)) + "|"
    for kind in KINDS:
        cells = []
        for blocks in WINDOWS:
            before, (held, of_others, of_all) = (covered(kind, blocks, rule, draws) for rule in (LAG1_RAISED, BATCHES))
            cells.append(f"{held:.3f} ({before[0]:.3f}); {of_others:.0%}, {of_all:.0%}")
        yield f"| {kind} | {' | '.join(cells)} |"


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
    parser.add_argument("--draws", type=int, default=500, help="windows of each kind")
    parser.add_argument("--series", type=int, metavar="N", help="so many of each correlation instead, stopped")
    options = parser.parse_args()
    table = simulated(options.series, tuple(INTERVAL_RULES)) if options.series else of_kinds(options.draws)
    print("\n".join(table))


if __name__ == "__main__":
    main()
