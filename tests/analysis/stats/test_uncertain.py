"""Intervals carried through: quantiles, the hypercube, known propagations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.stats.intervals import Uncertain, answers, between, hypercube

Z = 1.959963984540054  # the normal's 0.975 quantile


def test_between_has_the_ends_that_were_given() -> None:
    found = between(2.0, 8.0)
    assert found.median == pytest.approx(4.0)  # geometric
    assert found.interval() == pytest.approx((2.0, 8.0))
    assert between(2.0, 8.0, 0.8).interval(0.8) == pytest.approx((2.0, 8.0))
    assert between(0.2, 0.8, scale="logit").median == pytest.approx(0.5)
    assert between(3.0, 3.0).interval() == (3.0, 3.0)


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-1.0, 2.0), (3.0, 2.0)])
def test_ends_out_of_order_are_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="expected 0 < low < high"):
        between(*ends)
    with pytest.raises(ValueError, match="< 1"):
        between(0.2, 1.2, scale="logit")


def test_quantiles_of_students_t() -> None:
    # t(0.975, 2) = 4.302653
    assert Uncertain(0.0, 1.0, 2).interval() == pytest.approx((-4.302653, 4.302653), rel=1e-6)
    assert Uncertain(0.0, 2.0).interval() == pytest.approx((-2 * Z, 2 * Z))


def test_each_slice_of_the_hypercube_is_drawn_from_once() -> None:
    cube = hypercube(64, 3)
    assert sorted(np.floor(cube[:, 1] * 64)) == list(range(64))
    assert np.array_equal(cube, hypercube(64, 3))
    assert abs(np.corrcoef(cube.T)[0, 1]) < 0.5


def test_a_product_of_lognormals_has_the_interval_that_algebra_gives() -> None:
    """ln xy is normal with the sum of the variances; the quotient by an exact 2 moves the median alone."""
    inputs = {"x": Uncertain(1.0, 0.3, math.inf, "log"), "y": Uncertain(0.5, 0.4, math.inf, "log"), "k": Uncertain(2.0)}
    found = answers(lambda d: {"z": d["x"] * d["y"] / d["k"]}, inputs)["z"]
    half = Z * math.hypot(0.3, 0.4)
    assert found.value == pytest.approx(math.exp(1.5) / 2)
    assert found.low == pytest.approx(math.exp(1.5 - half) / 2, rel=0.02)
    assert found.high == pytest.approx(math.exp(1.5 + half) / 2, rel=0.02)
