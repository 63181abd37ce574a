"""Distributions of lengths against their textbooks, and costs over them against plain averages."""

from __future__ import annotations

import itertools
import math
import random
import re
import statistics
from fractions import Fraction
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.formula.algebra import length_distribution
from analysis.formula.algebra.evaluate import value
from analysis.formula.algebra.expressions import symbol
from analysis.formula.algebra.length_cost import mean, padded, spread
from analysis.formula.algebra.length_distribution import MOST, Lengths, named, of, quantile_place, read
from tests.support.made_up_operations.formulas_made_up import NAMES, SYMBOLS, formulas, polynomials

B, H, S = SYMBOLS

lists = st.lists(st.integers(1, 60), min_size=1, max_size=12)


def test_a_list_is_its_counts() -> None:
    found = of([5, 3, 5, 9])
    assert (found.lengths, found.weights, found.weight) == ((3, 5, 9), (1, 2, 1), 4)
    assert found.moment(1) == Fraction(22, 4)
    assert found.moment(2) == Fraction(9 + 50 + 81, 4)
    assert found.moment(0) == 1


@pytest.mark.parametrize(
    ("text", "column", "lengths"),
    [
        ("3\n5\n\n5\n", None, [3, 5, 5]),
        ("length\n3\n5\n", None, [3, 5]),
        ("length\n3\n5\n", "length", [3, 5]),
        ("id,words\na,3\nb,5\n", "words", [3, 5]),
        ("id, words\r\na, 3\r\n", "words", [3]),
    ],
)
def test_files(text: str, column: str | None, lengths: list[int]) -> None:
    found = read(text, "f.csv", column)
    assert (found.lengths, found.weights) == (of(lengths).lengths, of(lengths).weights)
    assert found.source == "f.csv"


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("", None, "expected lengths, one a line, got nothing in f.csv"),
        ("length\n", None, "expected lengths of at least 1, got none in f.csv"),
        ("3\nx\n", None, "expected a whole number of at least 1 in line 2 of f.csv, got 'x'"),
        ("3\n\n0\n", None, "in line 3 of f.csv, got '0'"),
        ("3\n-4\n", None, "in line 2 of f.csv, got '-4'"),
        ("3\n2.5\n", None, "got '2.5'"),
        ("a,b\n1,2\n", None, "expected one column, or the name of one, in f.csv, got a, b"),
        ("a,b\n1,2\n", "c", "unknown column: expected a or b, got 'c'"),
        ("a,b\n1,2\n3\n", "b", "in line 3 of f.csv, got ''"),
        ("1\n2\n", "words", "expected a header with 'words' in the first line of f.csv, got '1'"),
    ],
)
def test_bad_files_name_the_line(text: str, column: str | None, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        read(text, "f.csv", column)


def near(found: Fraction, expected: float, part: float = 1e-12) -> bool:
    return abs(float(found) / expected - 1) < part


def test_uniform_is_exact() -> None:
    found = named("uniform:10:50")
    assert found.lengths == tuple(range(10, 51))
    assert found.moment(1) == 30
    assert found.moment(2) - 30**2 == Fraction(41**2 - 1, 12)


def test_poisson_has_its_moments_given_at_least_one() -> None:
    """Factorial moments of a Poisson are mean ** k, and being above 0 divides each by 1 - e^-mean."""
    for text, m in (("poisson:20", 20.0), ("poisson:0.5", 0.5), ("poisson:700.25", 700.25)):
        found, given_ = named(text), -math.expm1(-m)
        assert near(found.moment(1), m / given_)
        assert near(found.moment(2) - found.moment(1), m**2 / given_)
        one = found.weights[found.lengths.index(1)] if 1 in found.lengths else 0
        assert abs(one / found.weight - m * math.exp(-m) / given_) < 1e-15


def test_geometric_has_its_moments() -> None:
    found = named("geometric:12.5")
    assert near(found.moment(1), 12.5)
    assert near(found.moment(2) - found.moment(1) ** 2, 12.5 * 11.5, 1e-9)
    assert abs(found.weights[0] / found.weight - 0.08) < 1e-15
    assert named("geometric:1").lengths == (1,)


def test_normal_is_rounded_to_whole_lengths() -> None:
    """Rounding adds 1/12 to the variance (Sheppard), and nothing lies below 1."""
    found = named("normal:100:9")
    assert near(found.moment(1), 100)
    assert near(found.moment(2) - found.moment(1) ** 2, 81 + 1 / 12)
    low = named("normal:1:2")
    below = math.erfc((1 - 0.5) / 2 / math.sqrt(2)) / 2  # of length ½ and less
    first = math.erfc((0.5 - 1) / 2 / math.sqrt(2)) / 2 - math.erfc((1.5 - 1) / 2 / math.sqrt(2)) / 2
    assert low.lengths[0] == 1
    assert abs(low.weights[0] / low.weight - first / (1 - below)) < 1e-12


@pytest.mark.parametrize(("text", "m", "s"), [("lognormal:200:0.4", 200, 0.4), ("lognormal:2000:1", 2000, 1.0)])
def test_lognormal_has_the_mean_that_was_asked_for(text: str, m: float, s: float) -> None:
    found = named(text)
    assert near(found.moment(1), m, 1e-7)
    assert near(found.moment(2), m**2 * math.exp(s**2), 1e-4)
    median = found.lengths[quantile_place(found.weights, 0.5)]
    assert abs(median - m * math.exp(-(s**2) / 2)) < 1
    assert found.grouped == (text == "lognormal:2000:1")
    assert len(found.lengths) <= 2 * MOST


def test_many_lengths_are_grouped_and_near() -> None:
    found = named("uniform:1:1000000")
    assert found.grouped
    assert len(found.lengths) <= 2 * MOST
    assert near(found.moment(1), 500_000.5, 1e-6)
    assert near(found.moment(2), (10**6 + 1) * (2 * 10**6 + 1) / 6, 1e-6)
    assert not named("uniform:1:20000").grouped


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "unifrm:1:2",
            "unknown distribution: expected uniform, poisson, geometric, normal or lognormal, got 'unifrm', nearest",
        ),
        ("uniform:1", "expected uniform:LOW:HIGH, got 'uniform:1'"),
        ("uniform:a:b", "expected uniform:LOW:HIGH in numbers, got 'uniform:a:b'"),
        ("uniform:9:1", "expected uniform:LOW:HIGH, got 'uniform:9:1': both are whole, and 1 ≤ LOW ≤ HIGH"),
        ("uniform:0:3", "both are whole, and 1 ≤ LOW ≤ HIGH"),
        ("uniform:1.5:3", "both are whole"),
        ("poisson:0", "expected poisson:MEAN, got 'poisson:0': MEAN is above 0"),
        ("poisson:nan", "expected poisson:MEAN, got 'poisson:nan'"),
        ("geometric:0.5", "MEAN is at least 1"),
        ("normal:5:0", "DEVIATION is above 0"),
        ("normal:5:1:1", "expected normal:MEAN:DEVIATION, got"),
        ("lognormal:5:4", "SIGMA is at most 3"),
        ("lognormal:1e12:1", "lengths go beyond"),
        ("", "unknown distribution"),
    ],
)
def test_bad_distributions_get_one_line(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        named(text)


@settings(deadline=None, max_examples=20)
@given(formulas(), lists)
def test_the_mean_of_any_formula_is_the_plain_average(formula: Any, lengths: list[int]) -> None:
    whole = formula + S
    found = mean(whole, "seq", of(lengths))
    assert S not in found.free_symbols
    for point in ({"batch": 3, "hidden": 5}, {"batch": 64, "hidden": 1}):
        average = sum(Fraction(value(whole, {**point, "seq": n}, NAMES)) for n in lengths) / len(lengths)
        assert value(found, point, NAMES) == average


@settings(deadline=None, max_examples=20)
@given(polynomials, st.sampled_from(["uniform:3:40", "poisson:9", "geometric:4"]))
def test_moments_give_what_each_length_gives(formula: Any, text: str) -> None:
    lengths, whole, point = named(text), formula + S**2, {"batch": 3, "hidden": 5}
    by_each = spread(whole, "seq", lengths, point)
    assert value(mean(whole, "seq", lengths), point, NAMES) == by_each.mean


@settings(deadline=None, max_examples=20)
@given(formulas(), lists)
def test_spread_is_that_of_the_list_of_costs(formula: Any, lengths: list[int]) -> None:
    whole, point = formula + S, {"batch": 3, "hidden": 5}
    costs = sorted(Fraction(value(whole, {**point, "seq": n}, NAMES)) for n in lengths)
    found = spread(whole, "seq", of(lengths), point, (0, 0.25, 0.5, 1))
    assert found.mean == statistics.mean(costs)
    assert found.deviation == pytest.approx(math.sqrt(statistics.pvariance(costs)))
    assert (found.lowest, found.highest) == (costs[0], costs[-1])
    ranks = {share: max(1, math.ceil(Fraction(share) * len(costs))) for share in (0, 0.25, 0.5, 1)}
    assert found.quantiles == {share: costs[rank - 1] for share, rank in ranks.items()}


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(1, 3))
def test_padding_against_every_batch(lengths: list[int], batch: int) -> None:
    cost = B * (7 * S**2 + 5 * S + sympy.floor(S / 2))
    found = padded(cost, "seq", of(lengths), batch, {"batch": batch})
    batches = list(itertools.product(lengths, repeat=batch))

    def of_one(n: int) -> int:
        return 7 * n**2 + 5 * n + n // 2

    assert found.padded.mean == Fraction(sum(batch * of_one(max(each)) for each in batches), len(batches))
    assert found.own.mean == Fraction(sum(sum(map(of_one, each)) for each in batches), len(batches))
    assert found.longest == Fraction(sum(max(each) for each in batches), len(batches))
    assert found.overhead_ratio == pytest.approx(float(found.padded.mean / found.own.mean) - 1)
    if batch == 1:
        assert found.overhead_ratio == 0


def test_the_longest_of_64_uniform_lengths() -> None:
    """E[max of b draws of 1..n] = n - Σ_{k<n} (k / n)^b."""
    n, b = 40, 64
    assert named(f"uniform:1:{n}").longest_of(b).moment(1) == n - sum(Fraction(k, n) ** b for k in range(1, n))
    many = 1000  # past WIDEST bits: cut to 256 bits, a thousand times
    expected = n - sum(Fraction(k, n) ** many for k in range(1, n))
    assert abs(named(f"uniform:1:{n}").longest_of(many).moment(1) / expected - 1) < Fraction(1, 10**70)
    with pytest.raises(ValueError, match="expected at least one draw, got 0"):
        named("uniform:1:4").longest_of(0)


def test_a_named_distribution_against_draws() -> None:
    numbers = random.Random(11)
    draws = [max(1, round(numbers.lognormvariate(math.log(200) - 0.18, 0.6))) for _ in range(40_000)]
    cost = 3 * S**2 + 100 * S
    exact = spread(cost, "seq", named("lognormal:200:0.6"), {})
    assert float(exact.mean) == pytest.approx(statistics.fmean(3 * n**2 + 100 * n for n in draws), rel=0.05)
    assert float(exact.quantiles[0.5]) == pytest.approx(statistics.median(3 * n**2 + 100 * n for n in draws), rel=0.03)


@pytest.mark.parametrize(
    ("formula", "fixed", "words"),
    [
        (H * S, {}, "expected a value for each of hidden, got none"),
        (H * S, {"hidden": 3, "seq": 4}, "expected lengths for seq, got a fixed value of it as well"),
        (H, {"hidden": 3}, "unknown symbol: expected hidden, got 'seq'"),
    ],
)
def test_bad_points_get_one_line(formula: Any, fixed: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        spread(formula, "seq", of([3]), fixed)


def test_quantile_places() -> None:
    assert [quantile_place([1, 2, 1], share) for share in (0, 0.25, 0.26, 0.75, 0.76, 1)] == [0, 0, 1, 1, 2, 2]
    for share in (-0.1, 1.1):
        with pytest.raises(ValueError, match="expected a share from 0 to 1"):
            quantile_place([1], share)
    assert isinstance(of([1]), Lengths)
    assert spread(symbol("seq") * 0 + S, "seq", of([2, 2]), {}).deviation == 0


def test_a_mean_keeps_the_other_symbols() -> None:
    """Lengths 3 and 5: E[n²] = 17, E[⌊n/2⌋] = 3/2, E[max(n, batch)] where the two are mixed."""
    lengths = of([3, 5])
    assert mean(2 * B * S**2 + H * sympy.floor(S / 2) + 7, "seq", lengths) == 34 * B + 3 * H / 2 + 7
    assert mean(B / S, "seq", lengths) == B * sympy.Rational(4, 15)
    mixed = mean(H * sympy.Max(S, B), "seq", lengths)
    assert [value(mixed, {"hidden": 2, "batch": b}) for b in (1, 4, 9)] == [8, 9, 18]


def test_a_lognormal_begins_at_one() -> None:
    """Mean 2 and sigma 1: logarithms about log 2 - 1/2; P(1) lies between ½ and 1½, given above ½."""

    def above(x: float) -> float:
        return math.erfc((math.log(x) - math.log(2) + 0.5) / math.sqrt(2)) / 2

    found = named("lognormal:2:1")
    assert found.lengths[:2] == (1, 2)
    assert abs(found.weights[0] / found.weight - (above(0.5) - above(1.5)) / above(0.5)) < 1e-9


def test_a_name_of_two_lines_is_told_in_one() -> None:
    with pytest.raises(ValueError, match=r"got a name, b$"):
        read('"a\n name",b\n1,2\n', "file")


def test_the_mean_of_a_group_is_one_of_its_lengths():
    """Simpson's rule over a survival that falls at the end gives 9.5 + 2 · 5/6 = 11.2: above both lengths."""
    assert length_distribution._mean_between(lambda at: float(at < 11.4), 10, 12) == 11
    assert length_distribution._mean_between(lambda at: float(at < 9.6), 10, 12) == 10
    assert length_distribution._mean_between(lambda at: 12.0 - at, 10, 12) == pytest.approx(10.5)
