"""How often does the interval of a cell hold the true mean, where measuring stops as soon as it is narrow?

    python -m benchmarks.paired.stopping [--series 2000] [--rules lag1,lag1_raised] [--runs DIR]

Series of blocks whose neighbours are correlated (log-normal, first-order autoregressive) are stopped by the rule of
`measure/timing` on a CPU: after each block from the fewest on, once the interval is within 3 % of the mean, at the cap
of 60 s at the latest. Blocks of 0.2 s are ten at least (2 s), those of a long step five, and 300 or 120 at most. The
share is of the series that met the rule; those that came to the cap are rows that did not converge. RULES has the
intervals that are compared: those of `analysis.stats`, and others that are not in use.

Then the blocks of the published runs' cells (with `--runs DIR`: of those in a folder alone): series drawn from each by
the stationary bootstrap (Politis and Romano, J. Am. Stat. Assoc. 89, 1994), stretches of ten blocks on average, whose
true mean is that of the cell.

Not claimed: that a machine's noise is of the first kind, or that drawn stretches keep a correlation that is longer than
they are. Cells that converged early have few blocks and are not drawn from: the drawn ones are the noisy ones.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.stats.summary import INTERVAL_RULES, LAG1, LAG1_RAISED, autocorrelation, means, t_quantile
from results.records.samples import Sample
from results.store.layout import key_of
from results.store.reading import read_run

Array = NDArray[np.float64]
Ends = tuple[Array, Array]
PUBLISHED = Path(__file__).parents[2] / "results" / "published"
TARGET = 0.03
CORRELATIONS = (0.0, 0.2, 0.4, 0.6, 0.8)
SCATTERS = (0.01, 0.03, 0.09)
"""Standard deviation of a block's logarithm."""
LENGTHS = ((10, 300), (5, 120))
"""Fewest and most blocks: of 0.2 s, and of half a second, which a long step has."""
LEAST_S, CAP_S, LEAST_MEASURED = 2.0, 60.0, 5
"""Of the protocol on a CPU: seconds at least and at most, blocks at least."""
LEAST_BLOCKS = 12
"""Of a cell whose autocorrelation is estimated, or from whose blocks series are drawn."""
STRETCH = 10
"""Mean length of a drawn stretch, blocks."""


def ends_of(rows: Array, rule: str) -> Ends:
    """Ends of the 95 % interval of each row's mean by a rule of `analysis.stats`."""
    found = means(rows, rule)
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def of_batch_means(rows: Array) -> Ends:
    """Student's interval of the means of batches of floor(√n) blocks, which grow with n; the first n modulo that many
    blocks are left out. Its coverage is right in the limit of a narrow target (Glynn and Whitt, "The asymptotic
    validity of sequential stopping rules for stochastic simulations", Ann. Appl. Probab. 2, 1992)."""
    n = rows.shape[1]
    size = math.isqrt(n)
    batches = rows[:, n % size :].reshape(len(rows), -1, size).mean(axis=2)
    mean, count = batches.mean(axis=1), batches.shape[1]
    factor = np.exp(t_quantile(count - 1) * batches.std(axis=1, ddof=1) / math.sqrt(count) / mean)
    return mean / factor, mean * factor


@dataclass(frozen=True)
class Rule:
    """ends: the interval of the first n blocks of each row. confirm: a narrow interval is asked for again after this
    many times the blocks of the first one, and that one is reported. fewest: times the blocks that are measured at
    least. fixed: the interval reported is the target's width, whatever was found."""

    ends: Callable[[Array], Ends]
    confirm: float = 1.0
    fewest: int = 1
    fixed: bool = False


RULES: Mapping[str, Rule] = {
    **{name: Rule(partial(ends_of, rule=name)) for name in INTERVAL_RULES},
    "lag1 twice the blocks": Rule(partial(ends_of, rule=LAG1), fewest=2),
    "lag1 confirmed": Rule(partial(ends_of, rule=LAG1), confirm=1.25),
    "lag1_raised confirmed": Rule(partial(ends_of, rule=LAG1_RAISED), confirm=1.25),
    "batch means": Rule(of_batch_means),
    "fixed width": Rule(partial(ends_of, rule=LAG1), fixed=True),
}
"""Name → how measuring stops and what interval is reported. The first is that of rows without another rule; "fixed
width" is Chow and Robbins' (Ann. Math. Stat. 36, 1965) with an effective number of blocks."""


def series(r: float, scatter: float, count: int, length: int, seed: int = 0) -> Array:
    """count rows of blocks; the mean of each is exp(scatter² ÷ 2)."""
    normal = np.random.default_rng(seed).standard_normal((count, length))
    for place in range(1, length):
        normal[:, place] = r * normal[:, place - 1] + np.sqrt(1 - r * r) * normal[:, place]
    return np.exp(scatter * normal)


def drawn(times: Sequence[float], count: int, length: int, seed: int = 0) -> Array:
    """count rows of blocks drawn from a cell's by the stationary bootstrap; their true mean is that of `times`."""
    draw, n = np.random.default_rng(seed), len(times)
    places = draw.integers(n, size=(count, length))
    goes_on = draw.random((count, length)) >= 1 / STRETCH
    for place in range(1, length):
        places[:, place] = np.where(goes_on[:, place], (places[:, place - 1] + 1) % n, places[:, place])
    found: Array = np.asarray(times, dtype=np.float64)[places]
    return found


def stopped(rows: Array, truth: float, fewest: int, rule: Rule) -> tuple[float, float, float]:
    """(share that met the rule, of these the share whose interval holds the truth, their mean number of blocks)."""
    running, due = np.arange(len(rows)), np.zeros(len(rows), dtype=np.int64)
    held = met = blocks = 0
    for n in range(rule.fewest * fewest, rows.shape[1] + 1):
        asked = running[due[running] <= n]
        low, high = rule.ends(rows[asked, :n]) if len(asked) else (np.empty(0), np.empty(0))
        narrow = np.log(high / low) / 2 <= TARGET
        first = due[asked] == 0
        due[asked[narrow & first]] = math.ceil(rule.confirm * n)
        due[asked[~narrow]] = 0
        ended = narrow & (due[asked] <= n)
        if rule.fixed:
            mean = rows[asked, :n].mean(axis=1)
            low, high = mean * math.exp(-TARGET), mean * math.exp(TARGET)
        held += int(((low <= truth) & (truth <= high) & ended).sum())
        met += int(ended.sum())
        blocks += n * int(ended.sum())
        running = np.setdiff1d(running, asked[ended])
        if not len(running):
            break
    return met / len(rows), held / met if met else float("nan"), blocks / met if met else float("nan")


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
                    share, held, blocks = stopped(rows, truth, fewest, RULES[name])
                    cells.append(f"{held:.3f} ({share:.0%}, {blocks:.0f})" if share else "none converged")
                yield f"| {name} | {fewest} to {most} | {scatter:.0%} | {' | '.join(cells)} |"


def cells_of(run: Path) -> list[list[float]]:
    """Of each cell of a run its measured blocks' seconds a step, in order of time."""
    cells: dict[tuple[str, int], list[float]] = {}
    for row in read_run(run).records(Sample):
        if row.part == "measure" and not row.phase and not row.work:
            cells.setdefault(key_of(row), []).append(row.wall_s / row.steps)
    return list(cells.values())


def correlations(runs: Sequence[Path]) -> Iterator[str]:
    """Of each run the autocorrelation of its cells' blocks, weighted by their numbers."""
    yield "| run | cells with 12 blocks or more | autocorrelation, mean | quartiles |"
    yield "| --- | --- | --- | --- |"
    for run in runs:
        times = cells_of(run)
        found = [(autocorrelation(each), len(each)) for each in times if len(each) >= LEAST_BLOCKS]
        if found:
            r, counts = (np.array(each, dtype=np.float64) for each in zip(*found, strict=True))
            quartiles = " to ".join(f"{each:.2f}" for each in np.quantile(r, (0.25, 0.75)))
            mean = float(r @ counts / counts.sum())
            yield f"| {run.name} | {len(found)} of {len(times)} | {mean:.2f} | {quartiles} |"


def measured(runs: Sequence[Path], count: int, names: Sequence[str]) -> Iterator[str]:
    """Of each run, series drawn from its cells' blocks, stopped by each rule."""
    yield "| run | cells drawn from | " + " | ".join(names) + " |"
    yield "| --- " * (2 + len(names)) + "|"
    for run in runs:
        cells = [times for times in cells_of(run) if len(times) >= LEAST_BLOCKS]
        answers = [_of_cells(cells, count, RULES[name]) for name in names]
        if cells:
            yield f"| {run.name} | {len(cells)} | {' | '.join(answers)} |"


def _of_cells(cells: Sequence[Sequence[float]], count: int, rule: Rule) -> str:
    found = []
    for place, times in enumerate(cells):
        block_s = max(0.2, float(np.mean(times)))  # a block has one step at least
        fewest, most = max(LEAST_MEASURED, math.ceil(LEAST_S / block_s)), int(CAP_S / block_s)
        if most >= rule.fewest * fewest:
            found.append(stopped(drawn(times, count, most, place), float(np.mean(times)), fewest, rule))
    met = [(share, held, blocks) for share, held, blocks in found if share]
    if not met:
        return "none converged"
    share, held, blocks = (np.array(each) for each in zip(*met, strict=True))
    weights = share / share.sum()
    return f"{weights @ held:.3f} ({share.sum() / len(found):.0%}, {weights @ blocks:.0f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--series", type=int, default=2000, help="of each kind")
    parser.add_argument("--rules", default=",".join(INTERVAL_RULES), help=f"of {'; '.join(RULES)}; or all")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="whose folders are runs, without simulating")
    options = parser.parse_args()
    names = list(RULES) if options.rules == "all" else options.rules.split(",")
    if unknown := [name for name in names if name not in RULES]:
        parser.error(f"--rules: expected some of {'; '.join(RULES)}, got {unknown[0]!r}")
    runs = [path.parent for path in sorted((options.runs or PUBLISHED).glob("*/samples.csv"))]
    of_runs = (correlations(runs), measured(runs, options.series // 10, names))
    for table in of_runs if options.runs else (simulated(options.series, names), *of_runs):
        for line in (*table, ""):
            print(line, flush=True)


if __name__ == "__main__":
    main()
