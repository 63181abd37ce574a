"""The covariance of analysis/project/compute/scaling_laws.py: a law of loss fitted to points, again and again to
resamplings of them.

    python -m benchmarks.pages.loss_law svg_extracted_data.csv

The file is data/svg_extracted_data.csv of github.com/epoch-research/analyzing-chinchilla at 9225883: what its authors
read off figure 4 of Hoffmann et al. (columns "Model Size", "Training FLOP", "loss"); it is not kept here. As they do,
the five points of highest loss are left out, tokens are FLOP ÷ 6 ÷ parameters, and Huber's loss with δ = 0.001 of the
difference of logarithms is least. Prints the fit, the standard errors and the covariance; takes minutes.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]

DELTA = 1e-3
LEFT_OUT = 5
RESAMPLINGS = 4000
SEED = 0
START = (6.2, 7.6, 0.6, 0.35, 0.37)
"""ln A, ln B, ln E, alpha, beta: four far starts ended in one place."""

SCALE = 1e6
"""Of the objective, so that it is not below what a search takes for 0."""


def fit(parameters: Array, tokens: Array, loss: Array, start: Array) -> Array:
    """(ln A, ln B, ln E, alpha, beta) of the least Huber loss."""
    logs = np.log(parameters), np.log(tokens), np.log(loss)
    near = minimize(objective, start, args=logs, jac=True, method="L-BFGS-B", options={"maxiter": 3000})
    return np.asarray(minimize(objective, near.x, args=logs, jac=True, method="BFGS").x)


def objective(at: Array, log_parameters: Array, log_tokens: Array, log_loss: Array) -> tuple[float, Array]:
    """Huber's loss of ln L and its gradient, the logarithm of the sum taken without overflow."""
    a, b, e, alpha, beta = at
    parts = np.stack([a - alpha * log_parameters, b - beta * log_tokens, np.full_like(log_loss, e)])
    most = parts.max(axis=0)
    shares = np.exp(parts - most)
    whole = shares.sum(axis=0)
    off = most + np.log(whole) - log_loss
    small = np.abs(off) <= DELTA
    value = np.where(small, off**2 / 2, DELTA * (np.abs(off) - DELTA / 2)).sum()
    slope = np.where(small, off, DELTA * np.sign(off)) * shares / whole
    to_alpha, to_beta = -(slope[0] * log_parameters).sum(), -(slope[1] * log_tokens).sum()
    return SCALE * float(value), SCALE * np.asarray([*slope.sum(axis=1), to_alpha, to_beta])


def resampled(parameters: Array, tokens: Array, loss: Array, start: Array, times: int, seed: int = SEED) -> Array:
    """A fit of each resampling with replacement, a row each."""
    random = np.random.default_rng(seed)
    places = (random.integers(0, len(loss), len(loss)) for _ in range(times))
    return np.stack([fit(parameters[at], tokens[at], loss[at], start) for at in places])


def points(path: Path) -> tuple[Array, Array, Array]:
    """(parameters, tokens, loss) of the file, without the points of highest loss."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(float(r["Model Size"]), float(r["Training FLOP"]), float(r["loss"])) for r in csv.DictReader(file)]
    parameters, flop, loss = np.asarray(sorted(rows, key=lambda row: row[2])[:-LEFT_OUT]).T
    return parameters, flop / 6 / parameters, loss


def main() -> int:
    """Print fit, standard errors and covariance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    found = points(parser.parse_args().file)
    best = fit(*found, np.asarray(START))
    print("A, B, E, alpha, beta:", *np.exp(best[:3]), *best[3:])
    many = resampled(*found, best, RESAMPLINGS)
    print("standard errors:", *many.std(axis=0))
    print("covariance:", np.cov(many.T).round(9).tolist(), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
