"""Loss of a language model from its parameters N and tokens D, what is optimal for a budget, and back.

L(N, D) = E + A / Nᵅ + B / Dᵝ in nats a token, under C = 6 N D FLOP, with the constants of

* `hoffmann2022`: Hoffmann et al., Training Compute-Optimal Large Language Models (arXiv 2203.15556), section 3.3 and
  equation 10 (E = 1.69, A = 406.4, B = 410.7, α = 0.34, β = 0.28), in the digits of the paper's own source text;
* `besiroglu2024`: Besiroglu, Erdil, Barnett, You: Chinchilla Scaling: A replication attempt (arXiv 2404.10102), their
  fit to 240 of the 245 points that they read off the first paper's figure 4. The default: the first paper's constants
  do not fit its own points. With a covariance: of 4,000 resamplings of those points, each fitted again by us (Huber's
  loss, δ = 0.001, on the logarithm of L). Our fit of all 240 is (477.8, 2143, 1.8172, 0.3473, 0.3672), theirs (482.0,
  2085, 1.8172, 0.3478, 0.3658); our standard errors are theirs within a tenth (`benchmarks/pages/loss_law.py`);
* `kaplan2020`: Kaplan et al., Scaling Laws for Neural Language Models (arXiv 2001.08361), equation 1.5 and table 2,
  L = ((Nc / N)^(αN / αD) + Dc / D)^αD, N without embeddings, other text: for contrast, not comparable in its level.

Parameters of the first two include embeddings. Losses are those of one text (MassiveText) with one tokenizer, so that a
level says little of other text; differences and allocations carry over better. Nothing is claimed beyond the points:
5.7e7 to 1.6e10 parameters, 8e8 to 3.2e11 tokens, 1.4e18 to 1.3e22 FLOP. Arrays go through, so that draws can.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analysis.stats import JointNormal

Array = NDArray[np.float64]

FLOP_PER_PARAMETER_TOKEN = 6
"""Forward 2, backward 4: the accounting under which the laws were fitted. Attention over the sequence is not in it."""

FITTED_FLOP = (1.4e18, 1.3e22)
"""The training compute that the points lie between."""

CRITICAL_TOKENS, CRITICAL_EXPONENT = 2e8, 0.21
"""Kaplan et al. 2020, equation 1.4: B* and αB of the critical batch B* / L^(1/αB), in tokens."""


@dataclass(frozen=True)
class Law:
    """E + A / N**alpha + B / D**beta. covariance: of (ln A, ln B, ln E, alpha, beta); None: not known."""

    name: str
    source: str
    a: float
    b: float
    e: float
    alpha: float
    beta: float
    covariance: tuple[tuple[float, ...], ...] | None = None

    def constants(self) -> dict[str, Array]:
        """The constants by name, as arrays of one."""
        named = {"a": self.a, "b": self.b, "e": self.e, "alpha": self.alpha, "beta": self.beta}
        return {name: np.asarray([value]) for name, value in named.items()}

    def block(self) -> JointNormal | None:
        """The constants as one uncertain input; None without a covariance."""
        if self.covariance is None:
            return None
        places = (math.log(self.a), math.log(self.b), math.log(self.e), self.alpha, self.beta)
        scales = ("log", "log", "log", "exact", "exact")
        return JointNormal(("a", "b", "e", "alpha", "beta"), places, scales, self.covariance)


LAWS: Mapping[str, Law] = {
    "besiroglu2024": Law(
        "besiroglu2024",
        "Besiroglu et al. 2024 (arXiv 2404.10102)",
        482.01,
        2085.43,
        1.8172,
        0.3478,
        0.3658,
        (
            (0.064289743, -0.024846324, 0.002103208, 0.003829903, -0.001246970),
            (-0.024846324, 0.173639013, 0.003680346, -0.001542156, 0.008494087),
            (0.002103208, 0.003680346, 0.000200412, 0.000124220, 0.000179423),
            (0.003829903, -0.001542156, 0.000124220, 0.000228460, -0.000077452),
            (-0.001246970, 0.008494087, 0.000179423, -0.000077452, 0.000415781),
        ),
    ),
    "hoffmann2022": Law(
        "hoffmann2022",
        "Hoffmann et al. 2022 (arXiv 2203.15556), approach 3",
        math.exp(6.0073404),
        math.exp(6.0179186),
        math.exp(0.5267228),
        0.33917084,
        0.2849083,
    ),
}
DEFAULT = "besiroglu2024"


class Unreachable(ValueError):
    """A loss that the law says no training reaches."""


def loss(constants: Mapping[str, Array], parameters: Array, tokens: Array) -> Array:
    """L(N, D) in nats a token."""
    c = constants
    return np.asarray(c["e"] + c["a"] / parameters ** c["alpha"] + c["b"] / tokens ** c["beta"])


def optimum(constants: Mapping[str, Array], flop: Array) -> tuple[Array, Array]:
    """(N, D) of the least loss with 6 N D = flop: N = G (C/6)^(β/(α+β)), G = (αA/βB)^(1/(α+β)); equation 4 of
    Hoffmann et al."""
    alpha, beta = constants["alpha"], constants["beta"]
    factor = (alpha * constants["a"] / (beta * constants["b"])) ** (1 / (alpha + beta))
    pairs = flop / FLOP_PER_PARAMETER_TOKEN
    parameters = factor * pairs ** (beta / (alpha + beta))
    return np.asarray(parameters), np.asarray(pairs / parameters)


def flop_for(constants: Mapping[str, Array], target: Array) -> Array:
    """The least FLOP that reach a loss.

    At an optimum α A / Nᵅ = β B / Dᵝ, so that A / Nᵅ = (L − E) β / (α + β) and B / Dᵝ = (L − E) α / (α + β).
    nan where the loss is not above E. Raises Unreachable where it is nowhere above.
    """
    alpha, beta = constants["alpha"], constants["beta"]
    above = _above(constants, target)
    parameters = (constants["a"] * (alpha + beta) / (above * beta)) ** (1 / alpha)
    tokens = (constants["b"] * (alpha + beta) / (above * alpha)) ** (1 / beta)
    return np.asarray(FLOP_PER_PARAMETER_TOKEN * parameters * tokens)


def tokens_for(constants: Mapping[str, Array], target: Array, parameters: Array) -> Array:
    """The tokens with which a model of this size reaches a loss. nan where it never does; Unreachable where nowhere."""
    rest = _above(constants, target) - constants["a"] / parameters ** constants["alpha"]
    if not np.any(rest > 0):
        least = float(np.min(constants["e"] + constants["a"] / parameters ** constants["alpha"]))
        raise Unreachable(f"a model of this size does not get below {least:.3f} nats on any number of tokens")
    return np.asarray((constants["b"] / np.where(rest > 0, rest, np.nan)) ** (1 / constants["beta"]))


def _above(constants: Mapping[str, Array], target: Array) -> Array:
    above = np.asarray(target - constants["e"], dtype=np.float64)
    if not np.any(above > 0):
        raise Unreachable(f"the irreducible loss is {float(np.min(constants['e'])):.3f} nats")
    return np.where(above > 0, above, np.nan)


def kaplan_loss(parameters: Array, tokens: Array) -> Array:
    """L(N, D) of Kaplan et al.; N without embeddings."""
    ratio = KAPLAN["alpha_n"] / KAPLAN["alpha_d"]
    inner = (KAPLAN["n_c"] / parameters) ** ratio + KAPLAN["d_c"] / tokens
    return np.asarray(inner ** KAPLAN["alpha_d"])


def kaplan_optimum(flop: Array) -> tuple[Array, Array]:
    """(N, D) of the least loss of `kaplan_loss` with 6 N D = flop: N^(r+1) = r Ncʳ C / (6 Dc), r = αN/αD.

    The paper's own N ∝ C^0.73 is of runs stopped early, not of this equation, which gives C^0.58.
    """
    ratio = KAPLAN["alpha_n"] / KAPLAN["alpha_d"]
    pairs = flop / FLOP_PER_PARAMETER_TOKEN
    parameters = (ratio * KAPLAN["n_c"] ** ratio * pairs / KAPLAN["d_c"]) ** (1 / (ratio + 1))
    return np.asarray(parameters), np.asarray(pairs / parameters)


KAPLAN: Mapping[str, float] = {"alpha_n": 0.076, "alpha_d": 0.103, "n_c": 6.4e13, "d_c": 1.8e13}


def critical_batch_tokens(reached: Array) -> Array:
    """Tokens a step beyond which more devices save little time, at a loss: Kaplan et al., equation 1.4.

    Of their text and tokenizer; at the end of training, where it is largest.
    """
    return np.asarray(CRITICAL_TOKENS / reached ** (1 / CRITICAL_EXPONENT))
