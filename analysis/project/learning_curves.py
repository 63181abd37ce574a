"""Learning curves and model sizes as power laws of the data, and their inverses.

A learning curve has three regions (Hestness et al. 2017, arXiv:1712.00409; figure 6 of Hestness, Ardalani, Diamos:
Beyond human-level accuracy, PPoPP 2019, from here on "the paper"): with little data a model guesses, then its error
falls as a power of the data, and at last it comes near what cannot be avoided:

    error(m) = min(guess, alpha · m ** beta_g + floor)         equation 1 of the paper where floor is 0
    parameters(m) = sigma · m ** beta_p                        equation 2

Errors are in the units of the task, m in its samples (words, letters, images). Not claimed: that a curve holds beyond
the data it was fitted to, nor that two tasks have the same.
"""

import math
from dataclasses import dataclass

BETA_G = (-0.5, 0.0)
"""The exponents that a learning curve can have; 0, which learns nothing, is none of them."""

BETA_P = (0.5, 1.0)
"""Exponents that a model's size can have; 1, which stores the data, is none of them."""


@dataclass(frozen=True)
class LearningCurve:
    """Error over samples. alpha: of the power law; floor: the error that cannot be avoided; guess: that of the best
    guess without data. Raises ValueError for what no curve can have."""

    alpha: float
    beta_g: float
    floor: float = 0.0
    guess: float = math.inf

    def __post_init__(self) -> None:
        _positive("alpha", self.alpha)
        check_beta_g(self.beta_g)
        if not 0 <= self.floor < self.guess:
            raise ValueError(f"expected a floor from 0 to below the guess of {self.guess:g}, got {self.floor:g}")

    def error(self, samples: float) -> float:
        """The error after training on so many samples."""
        _positive("samples", samples)
        return float(min(self.guess, self.alpha * samples**self.beta_g + self.floor))

    def samples(self, error: float) -> float:
        """The samples that an error takes. Raises ValueError for one at or below the floor or above the guess."""
        check_target(error, self.floor)
        if error > self.guess:
            raise ValueError(f"expected an error of at most {self.guess:g}, the best guess, got {error:g}")
        return float(((error - self.floor) / self.alpha) ** (1 / self.beta_g))


@dataclass(frozen=True)
class ModelSize:
    """Parameters that fit so many samples. Raises ValueError for what cannot be."""

    sigma: float
    beta_p: float

    def __post_init__(self) -> None:
        _positive("sigma", self.sigma)
        check_beta_p(self.beta_p)

    def parameters(self, samples: float) -> float:
        """Parameters for so many samples."""
        _positive("samples", samples)
        return float(self.sigma * samples**self.beta_p)

    def samples(self, parameters: float) -> float:
        """Samples that so many parameters are for."""
        _positive("parameters", parameters)
        return float((parameters / self.sigma) ** (1 / self.beta_p))


def data_scale(now: float, target: float, beta_g: float, floor: float = 0.0) -> float:
    """How many times the data brings the error from `now` to `target`, whatever alpha is: the ratio of what is above
    the floor, to the power 1 / beta_g. Raises ValueError where no data does."""
    check_beta_g(beta_g)
    check_target(target, floor)
    check_target(now, floor)
    return float(((target - floor) / (now - floor)) ** (1 / beta_g))


def model_scale(scale: float, beta_p: float) -> float:
    """How many times the parameters that many times the data takes."""
    check_beta_p(beta_p)
    _positive("data scale", scale)
    return float(scale**beta_p)


def check_target(error: float, floor: float) -> None:
    """Raises ValueError for an error that no data brings."""
    if not (error > floor and math.isfinite(error)):
        raise ValueError(f"expected an error above {floor:g}, which no data goes below, got {error:g}")


def check_beta_g(beta_g: float) -> None:
    """Raises ValueError for what is no exponent of a learning curve."""
    if not BETA_G[0] <= beta_g < BETA_G[1]:
        raise ValueError(f"beta_g: expected {BETA_G[0]} to below {BETA_G[1]:g}, got {beta_g:g}")


def check_beta_p(beta_p: float) -> None:
    """Raises ValueError for what is no exponent of a model's size."""
    if not BETA_P[0] <= beta_p < BETA_P[1]:
        raise ValueError(f"beta_p: expected {BETA_P[0]} to below {BETA_P[1]:g}, got {beta_p:g}")


def _positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name}: expected a number above 0, got {value:g}")
