"""How often the interval of `what_if` holds the true ratio where that is known: nothing changed, so it is 1.

    python -m benchmarks.what_if
    python -m benchmarks.what_if --trials 400 --model sleep

Each trial is one change that changes nothing, tried as any other by the quick rules, with its own copies. `sleep`: a
step that sleeps for 2 ms; `matmul`: two layers of 256 on one thread. Prints how many intervals hold 1, with the binomial
interval of that share (Wilson's), the median half width, and the rounds that a trial took.

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

from measure.what_if import TrialParts, what_if

Z = 1.959963984540054


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--model", choices=("matmul", "sleep"), default="matmul")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    rows = [trial(options.model) for _ in range(options.trials)]
    held = sum(row.low <= 1 <= row.high for row in rows)
    low, high = wilson(held, len(rows))
    widths = [math.log(row.high / row.low) / 2 for row in rows]
    print(f"{held} of {len(rows)} intervals hold 1: {held / len(rows):.1%} ({low:.1%} to {high:.1%})")
    print(f"median half width {median(widths):.2%}; rounds: median {median(row.rounds for row in rows):g}")
    print(f"status: {sum(row.status == 'ok' for row in rows)} ok of {len(rows)}")
    return 0


def trial(kind: str) -> Any:
    """The row of a change that is none."""
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(32, 256)

    def step(model: Any, optimizer: Any, batch: Any) -> None:
        if kind == "sleep":
            time.sleep(0.002)
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    rows = what_if(step, model, optimizer, batch, changes=(), own={"nothing": unchanged}, quick=True)
    return next(row for row in rows if row.change == "nothing")


def unchanged(parts: TrialParts, _number: int | None) -> TrialParts:
    """The parts as they are."""
    return parts


def wilson(held: int, trials: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson, J. American Statistical Association 22, 1927)."""
    share, spread = held / trials, Z**2 / trials
    half = Z * math.sqrt(share * (1 - share) / trials + spread / (4 * trials))
    return (share + spread / 2 - half) / (1 + spread), (share + spread / 2 + half) / (1 + spread)


if __name__ == "__main__":
    raise SystemExit(main())
