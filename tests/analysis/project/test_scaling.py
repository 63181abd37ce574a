"""Learning curves, model sizes, first-order laws, tiles: against the definitions, and against counting one by one."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from analysis.project import frontier, learning_curves
from analysis.project.frontier import Laws, Point
from analysis.project.learning_curves import LearningCurve, ModelSize
from analysis.project.ppopp2019_case_study import Product


def test_an_error_and_its_data_are_inverse() -> None:
    curve = LearningCurve(alpha=60.0, beta_g=-0.3, floor=0.25, guess=6.0)
    assert curve.error(1e6) == pytest.approx(60 * 10**-1.8 + 0.25)
    for samples in (1e4, 1e6, 1e9):
        assert curve.samples(curve.error(samples)) == pytest.approx(samples)


def test_the_three_regions_meet_at_their_edges() -> None:
    curve = LearningCurve(alpha=60.0, beta_g=-0.3, floor=0.25, guess=6.0)
    begins, ends = curve.edges()
    assert curve.error(begins / 2) == curve.error(begins / 1e3) == 6.0
    assert curve.error(ends) == pytest.approx(0.5), "twice the floor"
    assert LearningCurve(13.0, -0.066).edges() == (0.0, math.inf)


def test_a_data_scale_is_the_ratio_of_two_inverses_whatever_alpha_is() -> None:
    for alpha in (3.0, 40.0):
        curve = LearningCurve(alpha, -0.2, floor=0.1)
        assert learning_curves.data_scale(0.9, 0.3, -0.2, 0.1) == pytest.approx(curve.samples(0.3) / curve.samples(0.9))
    assert learning_curves.data_scale(0.8, 0.4, -0.5) == pytest.approx(4.0), "half the error by the root of the data"


def test_parameters_and_their_data_are_inverse() -> None:
    size = ModelSize(sigma=940.0, beta_p=0.5)
    assert size.parameters(1e10) == pytest.approx(940 * 1e5)
    assert size.samples(size.parameters(123.0)) == pytest.approx(123)
    assert learning_curves.model_scale(16.0, 0.75) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: LearningCurve(1.0, 0.0), "beta_g: expected -0.5 to below 0, got 0"),
        (lambda: LearningCurve(1.0, -0.51), "beta_g: expected -0.5"),
        (lambda: LearningCurve(1.0, math.nan), "beta_g"),
        (lambda: LearningCurve(0.0, -0.1), "alpha: expected a number above 0"),
        (lambda: LearningCurve(1.0, -0.1, floor=2.0, guess=2.0), "expected a floor"),
        (lambda: ModelSize(1.0, 1.0), "beta_p: expected 0.5 to below 1, got 1"),
        (lambda: ModelSize(1.0, 0.4), "beta_p"),
        (lambda: LearningCurve(1.0, -0.1, floor=0.2).samples(0.2), "expected an error above 0.2"),
        (lambda: LearningCurve(1.0, -0.1, guess=3.0).samples(3.5), "at most 3, the best guess"),
        (lambda: learning_curves.data_scale(0.3, 0.1, -0.2, 0.1), "above 0.1"),
        (lambda: LearningCurve(1.0, -0.1).error(0), "samples: expected a number above 0"),
        (lambda: frontier.fit([Point(1, 1, 1, 1)]), "two sizes"),
    ],
)
def test_what_cannot_be_is_refused(made, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        made()


def exact(laws: Laws, p: float, b: float) -> Point:
    footprint = None if laws.delta is None else laws.delta * p
    return Point(p, b, laws.flop(p, b), laws.moved_bytes(p, b), footprint)


def test_a_fit_finds_the_laws_that_points_follow() -> None:
    laws = Laws(481, 1755, 30784, 11.94)
    found = frontier.fit([exact(laws, p, b) for p in (1e8, 3e9) for b in (8, 128)])
    assert found.laws.gamma == pytest.approx(481)
    assert (found.laws.lambda_, found.laws.mu) == pytest.approx((1755, 30784))
    assert found.laws.delta == pytest.approx(11.94)
    assert max(found.worst_ratio.values()) < 1e-9


def test_a_fit_is_the_least_squares_of_relative_residuals() -> None:
    random = np.random.default_rng(3)
    points = [
        Point(p, b, 500 * p * b * s, (1800 * p + 3e4 * b * math.sqrt(p)) * t)
        for (p, b), s, t in zip(
            itertools.product((1e7, 1e8, 1e9), (16, 64)), *random.uniform(0.8, 1.2, (2, 6)), strict=True
        )
    ]
    columns = np.array(
        [[p.parameters / p.moved_bytes, p.batch * math.sqrt(p.parameters) / p.moved_bytes] for p in points]
    )
    wanted = np.linalg.lstsq(columns, np.ones(6), rcond=None)[0]
    found = frontier.fit(points)
    assert (found.laws.lambda_, found.laws.mu) == pytest.approx(tuple(wanted), rel=1e-6)
    ratios = np.array([[p.parameters * p.batch / p.flop] for p in points])
    assert found.laws.gamma == pytest.approx(np.linalg.lstsq(ratios, np.ones(6), rcond=None)[0][0])
    law = [found.laws.flop(p.parameters, p.batch) / p.flop - 1 for p in points]
    assert found.worst_ratio["flop"] == pytest.approx(max(map(abs, law)))


def test_a_fit_takes_nothing_away() -> None:
    points = [Point(p, b, p * b, 10 * p * 1.0 / b) for p in (1e6, 1e8) for b in (1, 4)]  # fewer bytes in larger batches
    assert frontier.fit(points).laws.mu == 0.0


def test_an_intensity_has_its_limits() -> None:
    laws = Laws(481, 1755, 30784)
    # the batch, then the model, without end: √p · gamma/mu, and b · gamma/lambda
    assert laws.intensity(23.8e9, 1e12) == pytest.approx(math.sqrt(23.8e9) * 481 / 30784, rel=1e-3)
    assert laws.intensity(1e24, 128) == pytest.approx(128 * 481 / 1755, rel=1e-3)


@pytest.mark.parametrize("sizes", [(5, 7, 9, 4), (8, 3, 8, 4), (1, 2, 3, 64)])
def test_tiles_stream_their_inputs_again_one_by_one(sizes: tuple[int, int, int, int]) -> None:
    m, k, n, tile = sizes
    elements = 0
    for top, left in itertools.product(range(0, m, tile), range(0, n, tile)):
        rows, columns = min(tile, m - top), min(tile, n - left)
        elements += rows * k + k * columns + 2 * rows * columns  # a panel of each, and the output read and written
    assert Product(m, k, n).moved_bytes(tile) == 4 * elements
    assert Product(m, k, n, times=3).moved_bytes(None, 2) == 3 * 2 * (m * k + k * n + m * n)


def test_a_backward_pass_has_two_products_of_as_many_flop() -> None:
    product = Product(4, 6, 10, times=2)
    assert product.flop == 2 * 4 * 6 * 10 * 2
    inputs, weights = product.gradients()
    assert (inputs.m, inputs.n) == (4, 6), "as the first matrix"
    assert (weights.m, weights.n) == (6, 10), "as the second"
    assert inputs.flop == weights.flop == product.flop
