"""A series' spread and trend against scipy, against counting every order, and against what chance does.

Fits of calls' times against scipy's and samples of known laws; functions of a model; a step put together.

Steps that took longer than their neighbours: made up, with and without processor time, and one that was recorded.
"""

import itertools
import math
import random
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.characterize.fathom_groups import function_of, labels_of_types
from analysis.characterize.stationarity import (
    LawFit,
    kendall_s,
    mann_kendall,
    sen_slope,
    slow_steps,
    stationarity,
    survival,
    tail,
)
from analysis.characterize.step_reconstruction import reconstructed
from results.records.characterization import (
    PLAIN,
    PROFILED,
    WARM_UP,
    AloneTime,
    Characterization,
    OperationCost,
    RecordedStep,
)
from runners.characterize.command import read_rows
from tests.support.made_up.made_up_characterization import NET, recording, rows, together


def test_the_exact_probability_is_a_count_of_all_orders():
    series = [3.0, 1.0, 4.0, 5.0, 2.0]
    s = abs(kendall_s(series))
    orders = list(itertools.permutations(range(5)))
    as_far = sum(abs(kendall_s(order)) >= s for order in orders)
    assert mann_kendall(series) == pytest.approx(as_far / len(orders))


def test_s_by_hand():
    assert kendall_s([1, 2, 3, 4]) == 6
    assert kendall_s([4, 3, 2, 1]) == -6
    assert kendall_s([1, 3, 2, 2]) == 3 - 2  # three values above 1; 3 above both 2; a tie counts nothing
    assert mann_kendall([1, 2, 3, 4]) == pytest.approx(2 / 24)  # the two monotone of 24 orders
    assert mann_kendall([1, 2, 3]) is None


@pytest.mark.parametrize("n", [6, 20, 60])
def test_scipy_says_the_same(n: int):
    from scipy import stats

    numbers = random.Random(n)
    series = [1 + 0.02 * place / n + 0.05 * numbers.gauss(0, 1) for place in range(n)]
    theirs = stats.kendalltau(range(n), series, method="exact" if n <= 50 else "asymptotic").pvalue
    assert mann_kendall(series) == pytest.approx(theirs, rel=1e-9 if n <= 50 else 0.05)  # scipy corrects no continuity
    slope, low, high = sen_slope(series) or (0, 0, 0)
    assert slope == pytest.approx(stats.theilslopes(series).slope)
    assert low <= slope <= high


def test_chance_is_called_a_trend_one_time_in_twenty_and_covered_nineteen():
    numbers = random.Random(1)
    series = [[numbers.gauss(5, 1) for _ in range(10)] for _ in range(600)]
    called = sum(mann_kendall(one) < 0.05 for one in series)  # type: ignore[operator]
    covered = sum(found[1] <= 0 <= found[2] for one in series if (found := sen_slope(one)))
    assert 12 <= called <= 48
    assert covered >= 0.93 * len(series)


def test_a_trend_is_told_over_the_whole_series():
    found = stationarity([1.0 + 0.01 * place for place in range(11)])
    assert found.trend_ratio == pytest.approx(0.1 / 1.05)
    assert found.verdict == "slower"
    assert stationarity([2.0 - 0.01 * place for place in range(11)]).verdict == "faster"
    assert stationarity([1.0, 1.2, 1.1]).verdict == "unknown"


def test_spread_and_its_interval_of_a_normal_sample():
    """χ² of 9 degrees: 2.700 and 19.023 (tables), so s · √(9/19.023) = 0.688 s to s · √(9/2.700) = 1.826 s."""
    series = [1.0, 1.1, 0.9, 1.2, 0.8, 1.0, 1.1, 0.9, 1.05, 0.95]
    found = stationarity(series)
    spread = statistics.stdev(series) / statistics.mean(series)
    assert found.spread_ratio == pytest.approx(spread)
    assert (found.spread_low, found.spread_high) == (
        pytest.approx(0.688 * spread, rel=1e-3),
        pytest.approx(1.826 * spread, rel=1e-3),
    )


def test_what_is_no_time_is_refused():
    with pytest.raises(ValueError, match="above 0"):
        stationarity([0.0, 0.0])
    with pytest.raises(ValueError, match="at least one"):
        stationarity([])


def sample(law: str, count: int = 800) -> list[float]:
    numbers = random.Random(5)
    draw = {
        "exponential": lambda: 1 + numbers.expovariate(0.5),
        "pareto": lambda: numbers.paretovariate(1.5),
        "log-normal": lambda: numbers.lognormvariate(2, 0.7),
    }[law]
    return [draw() for _ in range(count)]


def fitted(times: list[float], law: str) -> LawFit:
    found = tail(times)
    return next(fit for fit in found.fits if fit.law == law)


@pytest.mark.parametrize("law", ["exponential", "pareto", "log-normal"])
def test_the_law_of_a_sample_is_found_and_fits(law: str):
    found = tail(sample(law))
    assert found.fits[0].law == law
    assert found.fits[0].distance < 0.05


def test_parameters_are_those_of_the_samples_and_of_scipy():
    from scipy import stats

    pareto = fitted(sample("pareto"), "pareto")
    assert pareto.parameters["alpha"] == pytest.approx(1.5, rel=0.1)
    times = sample("log-normal")
    normal = fitted(times, "log-normal")
    shape, _, scale = stats.lognorm.fit(times, floc=0)
    assert (normal.parameters["sigma"], normal.parameters["mu"]) == (
        pytest.approx(shape, rel=1e-3),
        pytest.approx(math.log(scale), rel=1e-3),
    )
    likelihood = stats.lognorm.logpdf(times, shape, 0, scale).sum()
    assert normal.aic == pytest.approx(4 - 2 * likelihood, rel=1e-6)
    assert normal.distance == pytest.approx(stats.kstest(times, "lognorm", (shape, 0, scale)).statistic, abs=1e-3)
    exponential = fitted(times, "exponential")
    place, width = stats.expon.fit(times)
    assert exponential.aic == pytest.approx(4 - 2 * stats.expon.logpdf(times, place, width).sum())


def test_shares_of_the_longest_and_survival_by_hand():
    found = tail([1.0] * 18 + [2.0, 80.0])
    assert (found.top_1_ratio, found.top_10_ratio) == (0.8, 0.82)
    assert (found.calls, found.median_s, found.longest_s) == (20, 1.0, 80.0)
    assert survival([3.0, 1.0, 1.0, 2.0]) == [(1.0, 1.0), (2.0, 0.5), (3.0, 0.25)]
    assert tail([1.0] * 9) is None
    equal = tail([1.0] * 10)
    assert equal.fits == ()


@pytest.mark.parametrize(
    ("phase", "classes", "expected"),
    [
        ("forward", "Seq2Seq/Attention/Conv1d", "attention"),
        ("backward", "Seq2Seq/Stack/LSTMCell", "recurrent"),
        ("forward", "AlexNet/Sequential/Conv2d", "convolution"),
        ("forward", "AlexNet/Linear", "fully connected"),
        ("forward", "MemNet", "MemNet"),
        ("loss", "Seq2Seq/Linear", "loss"),
        ("optimizer", "", "optimizer"),
        ("forward", "", ""),
    ],
)
def test_the_function_of_a_call_is_that_of_the_outermost_class_that_has_one(phase: str, classes: str, expected: str):
    assert function_of(phase, classes) == expected


def test_a_types_label_is_what_most_of_its_time_is_spent_for():
    def product(classes: str, phase: str, time_s: float) -> OperationCost:
        return OperationCost(
            recording=0, name="aten.mm", kind="matmul", phase=phase, classes=classes, calls=9, time_s=time_s
        )

    costs = [product("Net/Attention", "forward", 3.0), product("Net/Linear", "backward", 1.0)]
    assert labels_of_types(costs) == {"matmul": ("attention", 0.75)}


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
        each.group: each
        for each in reconstructed(Characterization(data.recordings, data.steps, data.times, alone=alone))
    }
    assert set(found) == {"A", "B", "F", "all"}
    assert (found["B"].alone_s, found["B"].recorded_s, found["B"].ratio) == (
        pytest.approx(0.003),
        pytest.approx(0.002),
        pytest.approx(1.5),
    )
    assert found["F"].ratio == pytest.approx(0.5)
    assert (found["A"].untimed, found["A"].alone_s, found["A"].at_least_alone_s) == (3, None, 0)
    whole = found["all"]
    assert (whole.alone_s, whole.at_least_alone_s, whole.step_ratio) == (None, pytest.approx(0.00325), None)
    data = replace(data, alone=alone[:2])
    (whole,) = [each for each in reconstructed(data) if each.group == "all"]
    assert whole.step_ratio == pytest.approx(0.00325 / 0.010)


def test_real_operations_are_timed_alone_and_change_nothing():
    import torch

    from measure.profile.micro_benchmark import time_operations

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


KEPT = Path(__file__).parents[3] / "results" / "published" / "fathom-2026-11-22"
RECORDING = together().recordings[0]
NUMBER = RECORDING.recording


def steps(*times: float, part: str = PLAIN, cpu: tuple[float, ...] | None = None) -> list[RecordedStep]:
    used = cpu or (None,) * len(times)
    return [
        RecordedStep(recording=NUMBER, part=part, step=place, time_s=time_s, cpu_s=cpu_s)
        for place, (time_s, cpu_s) in enumerate(zip(times, used, strict=True))
    ]


def found(*made: list[RecordedStep]) -> list[tuple[str, int, float, bool | None]]:
    data = Characterization(recordings=(RECORDING,), steps=tuple(step for part in made for step in part))
    return [(each.step.part, each.step.step, each.others_s, each.busy) for each in slow_steps(data)]


@pytest.mark.parametrize(
    ("times", "slow"),
    [
        ((1.0, 2.1, 1.0), [(PLAIN, 1, 1.0, None)]),
        ((1.0, 2.0, 1.0), []),  # twice is not longer than twice
        ((1.0, 5.0), []),  # of two nobody knows which is usual
        ((5.0, 1.0, 1.2, 1.4), [(PLAIN, 0, 1.2, None)]),
        ((5.0, 5.0, 1.0), []),
        ((), []),
    ],
)
def test_the_slowest_against_the_median_of_the_others(times: tuple[float, ...], slow: list[object]) -> None:
    assert found(steps(*times)) == slow


def test_each_part_for_itself_and_warming_up_is_none() -> None:
    parts = (steps(9, 1, 1, part=WARM_UP), steps(9, 9, 9), steps(1, 1, 3, part=PROFILED))
    assert found(*parts) == [(PROFILED, 2, 1, None)]


@pytest.mark.parametrize(("slow_cpu_s", "busy"), [(3.0, True), (2.6, True), (2.5, False), (1.0, False)])
def test_whether_a_processor_worked_on_it(slow_cpu_s: float, busy: bool) -> None:
    """It took 2 s longer: with 1.6 s more of processor time it was at work."""
    assert found(steps(1, 3, 1, 1, cpu=(1, slow_cpu_s, 1, 1))) == [(PLAIN, 1, 1, busy)]
    unknown = steps(1, 3, 1, 1, cpu=(1, slow_cpu_s, 1, 1))
    assert found([replace(unknown[0], cpu_s=None), *unknown[1:]]) == [(PLAIN, 1, 1, None)]


def test_the_step_that_was_recorded() -> None:
    """Fathom's residual network: one step of three under the profiler, on an idle machine; its README says why."""
    (slow,) = slow_steps(replace(read_rows(KEPT), calls=()))
    assert (slow.recording.workload, slow.step.part, slow.step.step) == ("residual", PROFILED, 0)
    assert 2.3 < slow.step.time_s / slow.others_s < 2.5
