"""The fit: planted factors are found again, none is negative, and what no row speaks of stays at the prior."""

from __future__ import annotations

import numpy as np
import pytest

from analysis.predict import Setting
from analysis.predict.fitting import FEWEST, PRIOR, factors, fit_settings, prior_of
from analysis.predict.step_time import ARITHMETIC, LAUNCHES, MEMORY, Terms

TERMS = Terms(((ARITHMETIC, "product >256"), (MEMORY, "product"), (MEMORY, "copy"), (LAUNCHES, "")))
PLANTED = np.array([1.4, 2.5, 0.0, 0.7])


@pytest.fixture
def design():
    return np.random.default_rng(0).lognormal(-7, 1.5, (400, 4))


def test_planted_factors_are_found(design):
    found = factors(design, design @ PLANTED, prior_of(TERMS), 1e-6)
    assert found == pytest.approx(PLANTED, abs=0.01)


def test_a_tenth_of_wild_rows_moves_them_little(design):
    time_s = design @ PLANTED
    time_s[::10] *= 5
    assert factors(design, time_s, prior_of(TERMS), 1e-6) == pytest.approx(PLANTED, rel=0.08, abs=0.05)


def test_no_factor_is_negative(design):
    time_s = design @ np.array([1.0, 1.0, -0.2, 1.0])
    kept = time_s > 0
    assert factors(design[kept], time_s[kept], prior_of(TERMS), 1e-6).min() >= 0


def test_a_term_that_no_row_has_stays_at_the_prior(design):
    design[:, 2] = 0
    assert factors(design, design @ PLANTED, prior_of(TERMS), 0.02)[2] == pytest.approx(PRIOR[MEMORY], rel=1e-4)


def test_a_setting_of_few_rows_has_no_factors_of_its_own(design):
    many = Setting("train", "channels_first", False, "a", "amp-fp16", "torch 1")
    few = Setting("train", "channels_first", False, "b", "amp-fp16", "torch 1")
    settings = [many] * (400 - FEWEST + 1) + [few] * (FEWEST - 1)
    found = fit_settings(design, design @ PLANTED, settings, TERMS)
    assert set(found) == {many.text, many.pool.text}
    assert few.pool == many.pool


def test_rows_left_out_change_nothing(design):
    setting = [Setting("train", "channels_first", False, "a", "amp-fp16", "torch 1")] * 400
    time_s = design @ PLANTED
    kept = np.arange(400) % 2 == 0
    found = fit_settings(design, time_s, setting, TERMS, kept)
    time_s[~kept] *= 100
    for text, values in fit_settings(design, time_s, setting, TERMS, kept).items():
        assert values.tolist() == found[text].tolist()
