"""How often the interval of `what_if` holds the true ratio where that is known: nothing changed, so it is 1.

    python -m benchmarks.what_if
    python -m benchmarks.what_if --trials 400 --model sleep

Each trial is a pair of equal steps, timed as `what_if` times a change by the quick rules, with its own copies.
`sleep`: a step that sleeps for 2 ms; `matmul`: two layers of 256 on one thread. Prints how many intervals hold 1, with
the binomial interval of that share (Wilson's), the median half width, and the rounds that a trial took.

Not claimed: what the coverage is for a change that has another effect on the noise.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch

from measure.timing import PairTiming, Protocol, clock_for, measure_pairs
from measure.what_if import TrialParts

Z = 1.959963984540054


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--model", choices=("matmul", "sleep"), default="matmul")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    rows: list[PairTiming] = []
    for number in range(options.trials):
        rows.append(trial(options.model))
        if number + 1 == options.trials or number % 5 == 4:
            show(rows)
    return 0


def show(rows: Sequence[PairTiming]) -> None:
    """The share so far."""
    ends = [(row.ratio.low, row.ratio.high) for row in rows]
    known = [(low, high) for low, high in ends if low is not None and high is not None]
    held = sum(low <= 1 <= high for low, high in known)
    low, high = wilson(held, len(known))
    print(f"{held} of {len(known)} intervals hold 1: {held / len(known):.1%} ({low:.1%} to {high:.1%})")
    rounds = median(row.ratio.rounds for row in rows)
    print(
        f"  median half width {median(row.ratio.half_width for row in rows):.2%}; rounds: median {rounds:g}", flush=True
    )


def trial(kind: str) -> PairTiming:
    """A pair of copies of one step."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(model: Any, optimizer: Any, batch: Any) -> None:
        if kind == "sleep":
            time.sleep(0.002)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    parts = TrialParts(step, model, optimizer, torch.randn(32, 256))
    protocol = Protocol.for_device("cpu", quick=True).for_pass()
    return measure_pairs(parts.copied().ready(), parts.copied().ready(), clock_for("cpu"), protocol)


def wilson(held: int, trials: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson, J. American Statistical Association 22, 1927)."""
    share, spread = held / trials, Z**2 / trials
    half = Z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return (share + spread / 2 - half) / (1 + spread), (share + spread / 2 + half) / (1 + spread)


if __name__ == "__main__":
    raise SystemExit(main())
