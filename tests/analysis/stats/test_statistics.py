"""Definition, known answer: summaries and intervals by closed forms, and their coverage by (seeded) simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.stats.intervals import Uncertain, answers, between
from analysis.stats.summary import (
    BATCHES,
    LAG1_RAISED,
    autocorrelation,
    log_interval,
    median_interval,
    summarise,
    t_quantile,
    unsteady,
)
from benchmarks.paired.stopping import KINDS, covered


def ar1(rng: np.random.Generator, n: int, r: float, rows: int) -> np.ndarray:
    """Stationary normal AR(1) series of mean 10 and variance 1, one a row."""
    x = rng.standard_normal((rows, n))
    for i in range(1, n):
        x[:, i] = r * x[:, i - 1] + math.sqrt(1 - r * r) * x[:, i]
    return 10 + x


def coverage(rows: np.ndarray) -> float:
    inside = 0
    for row in rows:
        summary = summarise(row)
        inside += summary.low <= 10 <= summary.high
    return inside / len(rows)


def test_the_interval_of_alternating_blocks_is_students():
    # 1, 3, 1, 3: r1 < 0, so nothing is widened. mean 2, s**2 = 4 / 3, s / sqrt(4) = 0.57735, t(3) = 3.18245
    summary = summarise([1.0, 3.0, 1.0, 3.0])
    half = 3.182446305284263 * math.sqrt(4 / 3) / 2
    assert summary.mean == 2
    assert summary.effective_n == 4
    assert summary.high == pytest.approx(2 * math.exp(half / 2))  # symmetric on a logarithmic scale
    assert summary.low == pytest.approx(2 / math.exp(half / 2))
    assert summary.half_width_ratio == pytest.approx(half / 2)


@settings(deadline=None)  # the first example imports scipy
@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=40), st.data())
def test_order_statistics_are_those_of_numpy_to_the_last_digit(values: list[float], data: st.DataObject) -> None:
    weights = data.draw(st.lists(st.integers(1, 1000), min_size=len(values), max_size=len(values)))
    summary, x, w = summarise(values, weights), np.array(values), np.array(weights, dtype=float)
    assert [summary.p5, summary.median, summary.p95] == np.quantile(x, (0.05, 0.5, 0.95)).tolist()
    away = np.abs(x - summary.median)
    limit = max(3 * 1.482602218505602 * np.median(away), 4 * np.finfo(float).eps * x.max())
    assert summary.outliers == np.count_nonzero(away > limit)
    if len(values) >= 3:
        third, shares = len(values) // 3, w / w.sum()
        first, last = (np.average(x[part], weights=shares[part]) for part in (slice(third), slice(-third, None)))
        assert summary.drift_ratio == last / first - 1


def test_t_quantile_matches_the_printed_table():
    assert [round(t_quantile(k), 3) for k in (1, 2, 9, 30)] == [12.706, 4.303, 2.262, 2.042]


def test_autocorrelation_of_a_step_by_hand():
    # residuals -1 -1 -1 1 1 1: products of neighbours 1 + 1 - 1 + 1 + 1 = 3, squares 6, r1 = 1/2;
    # corrected 1/2 + (1 + 2) / 6 = 1 -> kept at 0.95, 6 * 0.05 / 1.95 = 0.154 -> never below 2
    step = [9.0, 9.0, 9.0, 11.0, 11.0, 11.0]
    assert autocorrelation(step) == pytest.approx(1.0)
    assert summarise(step).effective_n == 2
    # t(1) * sqrt(1 / (2 - 1)) = 12.706: six blocks that say two things
    assert summarise(step).high == pytest.approx(10 * math.exp(1.2706204736))


def test_effective_size_by_hand():
    # residuals 2 1 0 -1 -2 repeated as 2 1 0 -1 -2 -2 -1 0 1 2: products 2+0+0+2+4+2+0+0+2 = 12, squares 20,
    # r1 = 0.6; corrected 0.6 + 3.4 / 10 = 0.94; n_eff = 10 * 0.06 / 1.94 = 0.309 -> 2
    values = [12.0, 11, 10, 9, 8, 8, 9, 10, 11, 12]
    assert autocorrelation(values) == pytest.approx(0.94)
    # residuals 1 1 -1 -1 1 1 -1 -1 ... (40): products alternate 1, -1, and one 1 more: r1 = 1/40
    # corrected 0.025 + 1.1 / 40 = 0.0525; n_eff = 40 * 0.9475 / 1.0525
    assert summarise([11.0, 11, 9, 9] * 10).effective_n == pytest.approx(40 * 0.9475 / 1.0525)


def test_weights_give_total_time_over_total_steps():
    # two steps of 1 s and six of 3 s: 20 s / 8
    summary = summarise([1.0, 3.0], [2, 6])
    assert summary.mean == pytest.approx(2.5)
    # weighted mean square (2 * 1.5**2 + 6 * 0.5**2) / 8 = 0.75; half = t(1) * sqrt(0.75 / 1)
    assert summary.high == pytest.approx(2.5 * math.exp(12.706204736 * math.sqrt(0.75) / 2.5))


def test_a_single_block_has_no_interval():
    summary = summarise([2.0])
    assert (summary.mean, summary.n, summary.low, summary.high, summary.half_width_ratio) == (2.0, 1, None, None, None)
    assert summary.drift_ratio is None


@pytest.mark.parametrize(
    ("values", "weights", "says"),
    [
        ([], None, "at least one block"),
        ([1.0, math.nan], None, "finite block means, got nan at 1"),
        ([math.inf], None, "finite"),
        ([1.0, 2.0], [1.0], "2 positive weights"),
        ([1.0, 2.0], [1.0, 0.0], "2 positive weights"),
        ([1.0, 2.0], [1.0, math.nan], "2 positive weights"),
    ],
)
def test_what_cannot_be_summarised_is_a_value_error(values, weights, says):
    with pytest.raises(ValueError, match=says):
        summarise(values, weights)


# Coverage: 4000 series each, so the standard error of a share near 0.95 is sqrt(0.95 * 0.05 / 4000) = 0.0034.


@pytest.mark.parametrize(("n", "r", "least"), [(10, 0.2, 0.93), (20, 0.4, 0.915), (50, 0.4, 0.93), (100, 0.6, 0.93)])
def test_autocorrelated_blocks_are_covered(n, r, least):
    # the plain t interval covers 0.90, 0.81, 0.80, 0.67 here: var(mean) is (1 + r) / (1 - r) times what it says
    rows = ar1(np.random.default_rng(2), n, r, 4000)
    plain = abs(rows.mean(1) - 10) <= t_quantile(n - 1) * rows.std(1, ddof=1) / math.sqrt(n)
    assert plain.mean() < 0.91
    assert least <= coverage(rows) <= 0.97


@pytest.mark.parametrize(("n", "low", "high"), [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (20, 6, 15), (50, 18, 33)])
def test_the_medians_interval_has_the_ranks_of_the_printed_table(n, low, high):
    # n = 10: P(at most 1 of 10 heads) = 11 / 1024 = 1.1 %, at most 2: 56 / 1024 = 5.5 %; so ranks 2 and 9
    assert median_interval([float(i) for i in range(n, 0, -1)]) == (low, (n + 1) / 2, high)


# --- levels, trends, blocks far from the others ---


def test_an_interval_by_batches_by_hand():
    """Three levels of four blocks: batches of means 10, 12 and 14, and t(2) · 2 ÷ √3 of 12 on a logarithmic scale."""
    values = [9.9, 10.1, 9.9, 10.1, 11.9, 12.1, 11.9, 12.1, 13.9, 14.1, 13.9, 14.1]
    width = 4.302652729749462 * 2 / math.sqrt(3) / 12
    lag1 = summarise(values, rule=LAG1_RAISED).half_width_ratio
    assert summarise(values, rule=BATCHES).half_width_ratio == pytest.approx(max(lag1, width))
    # of 24 levels no two neighbours are alike: the batches differ as those of blocks in any order
    steady = [10.0, 12.0, 14.0, 12.0] * 6
    assert summarise(steady, rule=BATCHES) == summarise(steady, rule=LAG1_RAISED)


def test_what_blocks_show_is_said():
    draw = np.random.default_rng(3)
    quiet = draw.normal(1, 0.01, 60)
    assert unsteady(quiet) == ""
    assert unsteady([1.0] * 60) == unsteady([1.0, 1.0 + 1e-16] * 30) == "", "rounding is no level"
    far = quiet.copy()
    far[[7, 40]] *= 2
    assert unsteady(far) == "2 of 60 blocks are far from the others, and decide the mean by their number"
    alike = "blocks that follow one another are alike (levels, a trend)"
    assert unsteady(quiet + np.repeat([0.0, 0.03, -0.03], 20)) == alike
    assert unsteady(quiet + np.linspace(0, 0.05, 60)) == alike
    assert unsteady([2.0, 1.0]) == "", "too few to show anything"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "levels of four windows"])
def test_the_interval_of_a_kind_of_noise_covers_or_the_cell_is_marked(kind: str):
    """90 % of 150 windows, three standard errors of 0.024 below at the least; else nine in ten of the others marked."""
    held, of_others, _ = covered(kind, 60, BATCHES, 150)
    assert held >= 0.9 - 0.073 or of_others >= 0.9


Z = 1.959963984540054  # the normal's 0.975 quantile


@pytest.mark.parametrize("ends", [(0.0, 1.0), (-1.0, 2.0), (3.0, 2.0)])
def test_ends_out_of_order_are_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="expected 0 < low < high"):
        between(*ends)
    with pytest.raises(ValueError, match="< 1"):
        between(0.2, 1.2, scale="logit")


def test_a_product_of_lognormals_has_the_interval_that_algebra_gives() -> None:
    """ln xy is normal with the sum of the variances; the quotient by an exact 2 moves the median alone."""
    inputs = {"x": Uncertain(1.0, 0.3, math.inf, "log"), "y": Uncertain(0.5, 0.4, math.inf, "log"), "k": Uncertain(2.0)}
    found = answers(lambda d: {"z": d["x"] * d["y"] / d["k"]}, inputs)["z"]
    half = Z * math.hypot(0.3, 0.4)
    assert found.value == pytest.approx(math.exp(1.5) / 2)
    assert found.low == pytest.approx(math.exp(1.5 - half) / 2, rel=0.02)
    assert found.high == pytest.approx(math.exp(1.5 + half) / 2, rel=0.02)


def test_a_mean_of_0_has_no_logarithmic_interval():
    assert (summarise([0.0, 0.0]).low, summarise([0.0, 0.0]).high) == (0.0, 0.0)
    with pytest.raises(ValueError, match="positive mean, got 0"):
        log_interval(0.0, 1.0)


def test_between_has_the_ends_that_were_given() -> None:
    found = between(2.0, 8.0)
    assert found.median == pytest.approx(4.0)  # geometric
    assert found.interval() == pytest.approx((2.0, 8.0))
    assert between(2.0, 8.0, 0.8).interval(0.8) == pytest.approx((2.0, 8.0))
    assert between(0.2, 0.8, scale="logit").median == pytest.approx(0.5)
    assert between(3.0, 3.0).interval() == (3.0, 3.0)


def test_equal_blocks_have_an_interval_of_zero_width():
    summary = summarise([0.1 + 0.2] * 7)
    assert summary.half_width_ratio == pytest.approx(0, abs=1e-12)
    assert summary.outliers == 0
    assert summary.effective_n == 7


def test_quantiles_of_students_t() -> None:
    # t(0.975, 2) = 4.302653
    assert Uncertain(0.0, 1.0, 2).interval() == pytest.approx((-4.302653, 4.302653), rel=1e-6)
    assert Uncertain(0.0, 2.0).interval() == pytest.approx((-2 * Z, 2 * Z))


def test_a_raised_autocorrelation_by_hand():
    # as above: r = 0.0525 of 40 values; raised by 0.5 / sqrt(40) = 0.079057: n_eff = 40 * (1 - 0.131557) / 1.131557
    values = [11.0, 11, 9, 9] * 10
    r = 0.0525 + 0.5 / math.sqrt(40)
    effective = 40 * (1 - r) / (1 + r)
    assert summarise(values, rule=LAG1_RAISED).effective_n == pytest.approx(effective)
    # mean squared residual 1; half = t(n_eff - 1) * sqrt(1 / (n_eff - 1))
    width = t_quantile(effective - 1) / math.sqrt(effective - 1) / 10
    assert summarise(values, rule=LAG1_RAISED).half_width_ratio == pytest.approx(width)
    # a negative estimate counts as 0 before it is raised: 16 blocks have r = 0.5 / 4, n_eff = 16 * 0.875 / 1.125
    assert summarise([1.0, 3.0] * 8, rule=LAG1_RAISED).effective_n == pytest.approx(16 * 0.875 / 1.125)
    # three blocks are effective at least, by lag1 two, and never more than there are: the step of six blocks above
    step = [9.0, 9.0, 9.0, 11.0, 11.0, 11.0]
    assert (
        summarise(step, rule=LAG1_RAISED).effective_n,
        summarise(step).effective_n,
        summarise(step[2:4], rule=LAG1_RAISED).effective_n,
    ) == (3, 2, 2)
