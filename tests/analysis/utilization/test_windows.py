"""Definition, known answer: intervals from pooled variances by hand and by numpy, and their coverage by simulation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from analysis.stats.summary import geometric_mean
from analysis.utilization.windows import (
    BetweenWindows,
    Window,
    between_windows,
    mean_of_repeats,
    pool_of,
    pools,
    widened,
)
from results.records.answers import Utilization


def window(value: float, half: float) -> Window:
    """half: of its own interval, on the logarithmic scale."""
    return Window(value, value * math.exp(-half), value * math.exp(half))


def fraction(model: str, repeat: int, ratio: float | None, half: float = 0.02, **more: object) -> Utilization:
    low, high = (None, None) if ratio is None else (ratio * math.exp(-half), ratio * math.exp(half))
    row = Utilization(
        cell_id=f"{model}-{repeat}", attempt=1, model=model, batch_size=4, precision="fp32", device="cpu",
        method="exact", numerator_source="flopledger", denominator="paired_ceiling", repeat=repeat,
        utilization_ratio=ratio, utilization_low_ratio=low, utilization_high_ratio=high,
    )  # fmt: skip
    return replace(row, **more)  # type: ignore[arg-type]


def test_the_variance_is_pooled_and_the_windows_own_taken_off() -> None:
    """Logarithms 0, 0.1, 0.2 and 1, 1.3: squares 0.02 and 0.045; of a third cell, 0 and 0.02, 0.0002: 4 degrees."""
    cells = [
        [window(math.exp(log), 0.0196) for log in logs] for logs in ((0.0, 0.1, 0.2), (1.0, 1.3), (0.0, 0.02), (5.0,))
    ]
    found = between_windows(cells)
    assert (found.degrees, found.cells) == (4, 3)
    assert found.deviation**2 == pytest.approx(0.0652 / 4)
    assert found.variance == pytest.approx(0.0652 / 4 - 0.01**2, rel=1e-6)  # 0.0196 ÷ 1.96 = 1 %
    low, high = found.interval(window(0.5, 0.0392))
    half = stats.t.ppf(0.975, 4) * math.sqrt(0.0163 - 0.01**2 + 0.02**2)
    assert (math.log(low / 0.5), math.log(high / 0.5)) == pytest.approx((-half, half), rel=1e-6)


def test_repeats_that_agree_better_than_their_intervals_leave_those_by_student() -> None:
    """Nothing is between windows then: the interval is its own, with t of 4 degrees for 1.96."""
    found = between_windows([[window(0.5, 0.1)] * 3] * 2)
    assert found.variance == 0
    assert math.log(found.interval(window(0.5, 0.1))[1] / 0.5) == pytest.approx(0.1 * stats.t.ppf(0.975, 4) / 1.959964)


def pooled(deviation: float, cells: int = 13) -> BetweenWindows:
    """Of so many cells with three repeats, which differ by this standard deviation."""
    logs = np.array([-1.0, 0.0, 1.0]) * deviation
    between = between_windows([[window(math.exp(log), 1e-6) for log in logs]] * cells)
    assert between.deviation == pytest.approx(deviation)
    return between


def test_the_mean_of_repeats_has_the_pooled_scatter() -> None:
    """Repeats of 49, 50 and 51 % where others differ by 5 %: t of 26 degrees × 5 % ÷ √3."""
    values = (0.49, 0.50, 0.51)
    mean, low, high = mean_of_repeats(values, pooled(0.05))
    assert math.log(mean) == pytest.approx(np.log(values).mean())
    half = stats.t.ppf(0.975, 26) * 0.05 / math.sqrt(3)
    assert (math.log(low / mean), math.log(high / mean)) == pytest.approx((-half, half))


def test_repeats_that_scatter_more_than_others_have_their_own_scatter() -> None:
    """Three repeats with the variance at which F of 2 and 26 degrees is 1 % likely, and 1 % on either side of it."""
    limit = math.sqrt(stats.f.ppf(0.99, 2, 26)) * 0.05
    for times, own in ((0.99, False), (1.01, True)):
        values = [0.5 * math.exp(times * limit * each) for each in (-1, 0, 1)]
        half = (stats.t.ppf(0.975, 2) * times * limit if own else stats.t.ppf(0.975, 26) * 0.05) / math.sqrt(3)
        mean, low, high = mean_of_repeats(values, pooled(0.05))
        assert (mean, math.log(high / low) / 2) == pytest.approx((0.5, half))


@pytest.mark.parametrize("repeats", [2, 3, 5])
@pytest.mark.parametrize("cells", [5, 13])
def test_95_of_100_means_hold_the_truth(repeats: int, cells: int) -> None:
    chance = np.random.default_rng(repeats * cells)
    held = []
    for _ in range(4000 // cells):
        values = np.exp(chance.normal(0, 0.03, (cells, repeats)))
        between = between_windows([[window(value, 1e-6) for value in cell] for cell in values])
        held += [low <= 1 <= high for _, low, high in (mean_of_repeats(list(cell), between) for cell in values)]
    assert abs(np.mean(held) - 0.95) < 3 * math.sqrt(0.05 * 0.95 / len(held)) + 0.005


@pytest.mark.parametrize("repeats", [2, 3, 5])
@pytest.mark.parametrize("cells", [5, 13, 39])
@pytest.mark.parametrize("equal", [True, False])
def test_95_of_100_intervals_hold_the_truth(repeats: int, cells: int, equal: bool) -> None:
    """Windows differ by 3 % beyond their own 1.3 %, or each cell's by its own deviation (chi-squared, 4 degrees).

    With few degrees what is taken off is not known exactly, which widens: up to 98 %.
    """
    chance = np.random.default_rng(repeats * cells)
    own, held, count = 0.013, 0, 0
    for _ in range(8000 // (repeats * cells) + 60):
        between = np.full(cells, 0.03) if equal else 0.03 * np.sqrt(4 / chance.chisquare(4, cells))
        logs = chance.normal(0, between[:, None], (cells, repeats)) + chance.normal(0, own, (cells, repeats))
        windows = [[window(math.exp(log), 1.96 * own) for log in cell] for cell in logs]
        found = between_windows(windows)
        ends = [found.interval(each) for cell in windows for each in cell]
        held += sum(low <= 1 <= high for low, high in ends)
        count += len(ends)
    assert 0.93 <= held / count <= 0.98


def test_each_cell_of_a_run_has_the_interval_also_one_measured_once() -> None:
    rows = [fraction(model, repeat, 0.5 + 0.02 * repeat) for model in ("a", "b") for repeat in range(3)]
    found = widened([*rows, fraction("c", 0, 0.3)])
    assert [replace(row, windows_low_ratio=None, windows_high_ratio=None) for row in found[:-1]] == rows
    logs = np.log([0.5, 0.52, 0.54])
    variance = logs.var(ddof=1) - (0.02 / 1.959964) ** 2
    half = stats.t.ppf(0.975, 4) * math.sqrt(variance + (0.02 / 1.959964) ** 2)
    for row in found:
        ratio, low, high = row.utilization_ratio, row.windows_low_ratio, row.windows_high_ratio
        ends = (low / ratio, high / ratio)  # type: ignore[operator]
        assert ends == pytest.approx((math.exp(-half), math.exp(half)))


@pytest.mark.parametrize(
    "other",
    [{"device": "cuda:0"}, {"method": "theory"}, {"numerator_source": "fvcore"}, {"denominator": "derived"}],
)
def test_what_is_of_another_pool_has_no_interval_of_it(other: dict[str, object]) -> None:
    rows = [fraction(model, repeat, 0.5 + 0.02 * repeat) for model in ("a", "b") for repeat in range(3)]
    *mine, stranger = widened([*rows, fraction("a", 0, 0.5, **other)])
    assert all(row.windows_low_ratio for row in mine)
    assert stranger.windows_low_ratio is None
    assert len(pools([*mine, stranger])) == 2
    assert pool_of(stranger) != pool_of(mine[0])


@pytest.mark.parametrize(
    "other", [{"model": "z"}, {"batch_size": 8}, {"precision": "tf32"}, {"variant": "layout=channels_last"}]
)
def test_repeats_are_those_of_one_cell(other: dict[str, object]) -> None:
    """Four repeats whose first is of another cell, twice: two times two degrees, of the other three."""
    rows = [fraction(model, repeat, 0.5 + 0.02 * repeat) for model in ("a", "b") for repeat in range(4)]
    rows = [replace(row, **other) if not row.repeat else row for row in rows]  # type: ignore[arg-type]
    (found,) = pools(rows).values()
    assert found.degrees == 4  # of a and b the three others; two first ones of one name are one repeat of one cell


def test_a_row_without_a_whole_interval_has_none_and_is_not_pooled() -> None:
    rows = [fraction(model, repeat, 0.5 + 0.02 * repeat) for model in ("a", "b") for repeat in range(3)]
    open_ended = fraction("a", 3, 0.9, utilization_high_ratio=None)
    *mine, last, absent = widened([*rows, open_ended, fraction("c", 0, None)])
    assert (last, absent) == (open_ended, fraction("c", 0, None))
    assert mine == list(widened(rows))


def test_without_a_pool_the_mean_has_its_own_scatter() -> None:
    values = (0.49, 0.50, 0.51)
    assert mean_of_repeats(values, None) == geometric_mean(values)
    with pytest.raises(ValueError, match="expected at least two values"):
        mean_of_repeats([0.5], pooled(0.05))
