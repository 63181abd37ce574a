"""Definition, known answer: spread, trend and fitted law of times, against scipy and against counting every order."""

import itertools
import math
import random
import statistics
from dataclasses import replace
from typing import Any

import pytest

from analysis.characterize.stationarity import (
    mann_kendall,
    sen_slope,
    stationarity,
    tail,
)
from analysis.characterize.summary import reconstructed
from results.records.characterization import (
    AloneTime,
    Characterization,
)
from tests.support.made_up.made_up_characterization import NET, recording, rows


def test_chance_is_called_a_trend_one_time_in_twenty_and_covered_nineteen():
    numbers = random.Random(1)
    series = [[numbers.gauss(5, 1) for _ in range(10)] for _ in range(600)]
    called = sum(mann_kendall(one) < 0.05 for one in series)  # type: ignore[operator]
    covered = sum(found[1] <= 0 <= found[2] for one in series if (found := sen_slope(one)))
    assert 12 <= called <= 48
    assert covered >= 0.93 * len(series)


def test_a_trend_is_told_over_the_whole_series():
    found = stationarity([1.0 + 0.01 * place for place in range(11)])
    assert found["trend_ratio"] == pytest.approx(0.1 / 1.05)
    assert found["verdict"] == "slower"
    assert stationarity([2.0 - 0.01 * place for place in range(11)])["verdict"] == "faster"


def test_four_steps_tell_no_trend_and_five_do():
    """The least p of n steps is 2/n!: 0.083 for four, so that no test at 0.05 can reject, and 0.017 for five."""
    four = stationarity([1.0, 2.0, 3.0, 4.0])
    assert four["verdict"] == "unknown"
    assert (four["trend_ratio"], four["trend_low"], four["trend_high"], four["p_value"]) == (None,) * 4
    five = stationarity([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (five["verdict"], five["p_value"]) == ("slower", pytest.approx(2 / 120))


def test_spread_and_its_interval_of_a_normal_sample():
    """χ² of 9 degrees: 2.700 and 19.023 (tables), so s · √(9/19.023) = 0.688 s to s · √(9/2.700) = 1.826 s."""
    series = [1.0, 1.1, 0.9, 1.2, 0.8, 1.0, 1.1, 0.9, 1.05, 0.95]
    found = stationarity(series)
    spread = statistics.stdev(series) / statistics.mean(series)
    assert found["spread_ratio"] == pytest.approx(spread)
    assert (found["spread_low"], found["spread_high"]) == (
        pytest.approx(0.688 * spread, rel=1e-3),
        pytest.approx(1.826 * spread, rel=1e-3),
    )


def sample(law: str, count: int = 800) -> list[float]:
    numbers = random.Random(5)
    draw = {
        "exponential": lambda: 1 + numbers.expovariate(0.5),
        "pareto": lambda: numbers.paretovariate(1.5),
        "log-normal": lambda: numbers.lognormvariate(2, 0.7),
    }[law]
    return [draw() for _ in range(count)]


def fitted(times: list[float], law: str) -> dict[str, Any]:
    found = tail(times)
    return next(fit for fit in found["fits"] if fit["law"] == law)


@pytest.mark.parametrize("law", ["exponential", "pareto", "log-normal"])
def test_the_law_of_a_sample_is_found_and_fits(law: str):
    found = tail(sample(law))
    assert found["fits"][0]["law"] == law
    assert found["fits"][0]["distance"] < 0.05


def test_parameters_are_those_of_the_samples_and_of_scipy():
    from scipy import stats

    pareto = fitted(sample("pareto"), "pareto")
    assert pareto["parameters"]["alpha"] == pytest.approx(1.5, rel=0.1)
    times = sample("log-normal")
    normal = fitted(times, "log-normal")
    shape, _, scale = stats.lognorm.fit(times, floc=0)
    assert (normal["parameters"]["sigma"], normal["parameters"]["mu"]) == (
        pytest.approx(shape, rel=1e-3),
        pytest.approx(math.log(scale), rel=1e-3),
    )
    likelihood = stats.lognorm.logpdf(times, shape, 0, scale).sum()
    assert normal["aic"] == pytest.approx(4 - 2 * likelihood, rel=1e-6)
    assert normal["distance"] == pytest.approx(stats.kstest(times, "lognorm", (shape, 0, scale)).statistic, abs=1e-3)
    exponential = fitted(times, "exponential")
    place, width = stats.expon.fit(times)
    assert exponential["aic"] == pytest.approx(4 - 2 * stats.expon.logpdf(times, place, width).sum())


def test_shares_of_the_longest_by_hand():
    found = tail([1.0] * 18 + [2.0, 80.0])
    assert (found["top_1_ratio"], found["top_10_ratio"]) == (0.8, 0.82)
    assert (found["calls"], found["median_s"], found["longest_s"]) == (20, 1.0, 80.0)
    assert tail([1.0] * 9) is None
    assert tail([float(time) for time in range(1, 11)])["median_s"] == 5.5
    equal = tail([1.0] * 10)
    assert equal["fits"] == []


def test_a_step_is_the_sum_of_its_operations_alone():
    """Two products of 1.5 ms beside 2 ms recorded, an Adam of 0.25 ms beside 0.5, and a call that could not be run."""
    which = recording(0, "net")
    data = rows(which, NET)
    alone = (
        AloneTime(recording=0, name="aten.mm", phase="backward", calls=2, time_s=0.0015),
        AloneTime(recording=0, name="aten.mul_", phase="optimizer", calls=1, time_s=0.00025),
        AloneTime(recording=0, name="aten.relu", phase="forward", calls=3),
    )
    found = {
        each["group"]: each
        for each in reconstructed(Characterization(data.recordings, data.steps, data.times, alone_times=alone))
    }
    assert set(found) == {"A", "B", "F", "all"}
    assert (found["B"]["alone_s"], found["B"]["recorded_s"], found["B"]["ratio"]) == (
        pytest.approx(0.003),
        pytest.approx(0.002),
        pytest.approx(1.5),
    )
    assert found["F"]["ratio"] == pytest.approx(0.5)
    assert (found["A"]["untimed"], found["A"]["alone_s"], found["A"]["at_least_alone_s"]) == (3, None, 0)
    whole = found["all"]
    assert (whole["alone_s"], whole["at_least_alone_s"], whole["step_ratio"]) == (None, pytest.approx(0.00325), None)
    data = replace(data, alone_times=alone[:2])
    (whole,) = [each for each in reconstructed(data) if each["group"] == "all"]
    assert whole["step_ratio"] == pytest.approx(0.00325 / 0.010)


def test_real_operations_are_timed_alone_and_change_nothing():
    import torch

    from measure.profile.recording import time_operations

    weight = torch.randn(64, 64)
    before = weight.clone()

    def step(mark):
        mark("forward")
        for _ in range(3):
            torch.relu_(weight.mm(weight))
        mark("optimizer")
        torch.nn.functional.dropout(weight, 0.5)
        weight.mul_(1.0)
        mark("end")

    torch.manual_seed(0)
    found = {(one.name, one.phase): one for one in time_operations(step, "cpu", repeats=2)}
    drawn = torch.rand(1)
    assert found["aten.mm", "forward"].calls == 3
    assert (found["aten.mm", "forward"].time_s or 0) > 0
    assert found["aten.mul_", "optimizer"].calls == 1
    assert torch.equal(weight, before)
    torch.manual_seed(0)
    step(lambda phase: None)
    assert torch.equal(drawn, torch.rand(1))


def test_what_is_no_time_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        stationarity([0.0, 0.0])
    with pytest.raises(ValueError, match="at least one"):
        stationarity([])


def test_the_exact_probability_is_a_count_of_all_orders():
    series = [3.0, 1.0, 4.0, 5.0, 2.0]
    pairs = list(itertools.combinations(range(5), 2))
    orders = [series, *itertools.permutations(range(5))]
    s, *others = (abs(sum((order[i] < order[j]) - (order[i] > order[j]) for i, j in pairs)) for order in orders)
    as_far = sum(other >= s for other in others)
    assert mann_kendall(series) == pytest.approx(as_far / len(others))
