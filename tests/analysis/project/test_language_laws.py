"""The laws of loss against the papers' own statements, and every closed form against a search."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from analysis.project.compute.scaling_laws import (
    LAWS,
    Unreachable,
    critical_batch_tokens,
    flop_for,
    kaplan_loss,
    kaplan_optimum,
    loss,
    optimum,
    tokens_for,
)
from analysis.stats.intervals import draw_inputs


def of(value: float) -> np.ndarray:
    return np.asarray([value])


def test_a_loss_by_hand() -> None:
    # Chinchilla, 70e9 parameters and 1.4e12 tokens, with the printed constants: 1.69 + 406.4 / 70e9^0.34 + 410.7 /
    # 1.4e12^0.28 = 1.69 + 0.0834 + 0.163 = 1.94 (the published difference to Gopher, 280e9 on 300e9, is 0.05)
    printed = {name: of(v) for name, v in {"e": 1.69, "a": 406.4, "b": 410.7, "alpha": 0.34, "beta": 0.28}.items()}
    chinchilla = loss(printed, of(70e9), of(1.4e12))[0]
    assert chinchilla == pytest.approx(1.936, abs=0.001)
    assert loss(printed, of(280e9), of(300e9))[0] - chinchilla == pytest.approx(0.056, abs=0.002)
    assert loss(LAWS["hoffmann2022"].constants(), of(70e9), of(1.4e12))[0] == pytest.approx(chinchilla, abs=0.02)


def test_exponents_are_the_papers_own() -> None:
    # N ∝ C^a, a = β / (α + β): 0.46 (Hoffmann et al., table 2, approach 3) and 0.513 (Besiroglu et al.)
    exponents = {name: law.beta / (law.alpha + law.beta) for name, law in LAWS.items()}
    assert round(exponents["hoffmann2022"], 2) == 0.46
    assert round(exponents["besiroglu2024"], 3) == 0.513


def test_about_twenty_tokens_a_parameter_at_chinchillas_budget() -> None:
    parameters, tokens = optimum(LAWS["besiroglu2024"].constants(), of(5.76e23))
    assert parameters[0] == pytest.approx(70e9, rel=0.1)
    assert 18 < tokens[0] / parameters[0] < 22


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("flop", [1e19, 1e22, 1e25])
def test_the_closed_optimum_is_what_a_search_finds(name: str, flop: float) -> None:
    constants = LAWS[name].constants()

    def at(log_parameters: float) -> float:
        n = of(math.exp(log_parameters))
        return float(loss(constants, n, flop / 6 / n)[0])

    found = minimize_scalar(at, bounds=(math.log(1e5), math.log(1e14)), method="bounded", options={"xatol": 1e-9})
    parameters, tokens = optimum(constants, of(flop))
    assert parameters[0] == pytest.approx(math.exp(found.x), rel=1e-3)
    assert 6 * parameters[0] * tokens[0] == pytest.approx(flop)
    assert float(loss(constants, parameters, tokens)[0]) <= found.fun + 1e-12


@pytest.mark.parametrize("name", LAWS)
def test_the_inverse_goes_back(name: str) -> None:
    constants = LAWS[name].constants()
    flop = of(3e21)
    best = loss(constants, *optimum(constants, flop))
    assert flop_for(constants, best)[0] == pytest.approx(3e21, rel=1e-9)
    tokens = tokens_for(constants, best, of(5e9))
    assert loss(constants, of(5e9), tokens)[0] == pytest.approx(best[0])


def test_what_is_out_of_reach_is_refused() -> None:
    constants = LAWS["besiroglu2024"].constants()
    with pytest.raises(Unreachable, match=r"irreducible loss is 1.817"):
        flop_for(constants, of(1.8))
    with pytest.raises(Unreachable, match=r"does not get below"):
        tokens_for(constants, of(1.9), of(1e6))


def test_kaplans_closed_optimum_is_what_a_search_finds() -> None:
    flop = 1e21

    def at(log_parameters: float) -> float:
        n = of(math.exp(log_parameters))
        return float(kaplan_loss(n, flop / 6 / n)[0])

    found = minimize_scalar(at, bounds=(math.log(1e6), math.log(1e14)), method="bounded", options={"xatol": 1e-9})
    parameters, tokens = kaplan_optimum(of(flop))
    assert parameters[0] == pytest.approx(math.exp(found.x), rel=1e-3)
    assert parameters[0] * tokens[0] * 6 == pytest.approx(flop)
    # their figure 4: infinite data leaves (Nc / N)^0.076, 1.5e9 parameters: (6.4e13 / 1.5e9)^0.076 = 2.25
    assert kaplan_loss(of(1.5e9), of(1e30))[0] == pytest.approx(2.25, abs=0.01)


def test_kaplan_puts_more_of_a_large_budget_into_parameters() -> None:
    later = optimum(LAWS["besiroglu2024"].constants(), of(1e24))
    earlier = kaplan_optimum(of(1e24))
    assert earlier[0][0] > 3 * later[0][0]


def test_the_covariance_has_the_papers_standard_errors() -> None:
    """Besiroglu et al.'s own of ln A, ln B, ln E, α, β and β/(α+β): 0.258, 0.421, 0.014, 0.015, 0.021 and 0.020."""
    block = LAWS["besiroglu2024"].block()
    assert block is not None
    found = draw_inputs({"law": block}, draws=20_000)
    assert np.std(np.log(found["a"])) == pytest.approx(0.258, rel=0.05)
    assert np.std(np.log(found["b"])) == pytest.approx(0.421, rel=0.05)
    assert np.std(np.log(found["e"])) == pytest.approx(0.014, rel=0.05)
    assert np.std(found["alpha"]) == pytest.approx(0.015, rel=0.05)
    assert np.std(found["beta"]) == pytest.approx(0.021, rel=0.05)
    assert np.std(found["beta"] / (found["alpha"] + found["beta"])) == pytest.approx(0.020, rel=0.05)
    assert LAWS["hoffmann2022"].block() is None


def test_the_critical_batch_grows_as_loss_falls() -> None:
    # 2e8 / 2^(1/0.21) = 2e8 / 27.13 = 7.37e6
    assert critical_batch_tokens(of(2.0))[0] == pytest.approx(7.37e6, rel=0.002)


def test_the_fit_behind_the_covariance_finds_a_law_that_is_known() -> None:
    """Points of Hoffmann et al.'s law itself, and with 1 % of noise within four standard errors of a resampling."""
    from benchmarks.pages.loss_law import START, fit, objective, resampled

    random = np.random.default_rng(3)
    parameters, tokens = np.exp(random.uniform(18, 23, 40)), np.exp(random.uniform(21, 26, 40))
    law = LAWS["hoffmann2022"]
    true = np.asarray([math.log(law.a), math.log(law.b), math.log(law.e), law.alpha, law.beta])
    exact = loss(law.constants(), parameters, tokens)
    assert fit(parameters, tokens, exact, np.asarray(START)) == pytest.approx(true, rel=1e-2)
    noisy = exact * np.exp(0.01 * random.standard_normal(40))
    found = fit(parameters, tokens, noisy, np.asarray(START))
    errors = resampled(parameters, tokens, noisy, found, 6).std(axis=0)
    assert np.all(np.abs(found - true) < 4 * errors)
    logs = np.log(parameters), np.log(tokens), np.log(noisy)
    for place in range(5):  # the gradient against differences
        step = np.eye(5)[place] * 1e-6
        sides = [objective(found + 0.05 + sign * step, *logs)[0] for sign in (1, -1)]
        assert objective(found + 0.05, *logs)[1][place] == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-4)
