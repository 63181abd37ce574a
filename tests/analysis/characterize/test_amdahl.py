"""The serial share of made-up times is found again, exactly without noise, and as often as promised with it."""

from __future__ import annotations

import random

import pytest

from analysis.characterize.step_reconstruction import amdahl, karp_flatt


def exact(serial: float, parallel: float, counts: tuple[int, ...], steps: int = 3) -> dict[int, list[float]]:
    return {count: [serial + parallel / count] * steps for count in counts}


@pytest.mark.parametrize("counts", [(1, 2), (1, 2, 4, 8), (2, 4)])
def test_the_law_is_found_again_without_noise(counts: tuple[int, ...]):
    law = amdahl(exact(0.3, 0.9, counts))
    assert law is not None
    assert (law.serial_s, law.parallel_s) == (pytest.approx(0.3), pytest.approx(0.9))
    assert law.serial_ratio == pytest.approx(0.25)
    assert law.time_s(3) == pytest.approx(0.6)
    assert law.speed_up == pytest.approx((0.3 + 0.9 / counts[0]) / (0.3 + 0.9 / counts[-1]))
    assert law.lack_of_fit < 1e-3


def test_two_counts_from_one_thread_are_karp_and_flatts_share():
    """1.0 s and 0.8 s: the speed-up is 1.25, the share (0.8 - 0.5) ÷ 0.5 = 0.6; the line meets 0 at 0.6 s."""
    law = amdahl({1: [0.99, 1.01], 2: [0.79, 0.81]})
    assert law is not None
    assert law.serial_ratio == pytest.approx(0.6)
    assert law.karp_flatt == {2: pytest.approx(0.6)}
    assert karp_flatt(4.0, 4) == 0
    assert karp_flatt(1.0, 4) == 1
    with pytest.raises(ValueError, match="two threads"):
        karp_flatt(1.0, 1)


def test_a_line_that_is_none_shows():
    straight = amdahl({count: [time - 0.01, time, time + 0.01] for count, time in {1: 1.0, 2: 0.6, 4: 0.4}.items()})
    bent = amdahl({count: [time - 0.01, time, time + 0.01] for count, time in {1: 1.0, 2: 0.4, 4: 0.9}.items()})
    assert straight is not None
    assert bent is not None
    assert straight.lack_of_fit < 1e-6
    assert bent.lack_of_fit > 10


def test_the_interval_holds_the_truth_nineteen_times_in_twenty():
    numbers = random.Random(7)
    held, widths = 0, []
    for _ in range(300):
        noisy = {
            count: [(0.2 + 0.8 / count) * (1 + 0.05 * numbers.gauss(0, 1)) for _ in range(8)] for count in (1, 2, 4)
        }
        law = amdahl(noisy)
        assert law is not None
        assert law.serial_low is not None
        assert law.serial_high is not None
        held += law.serial_low <= 0.2 <= law.serial_high
        widths.append(law.serial_high - law.serial_low)
    assert 0.91 * 300 <= held <= 0.99 * 300
    assert sum(widths) / len(widths) < 0.15


def test_slower_with_more_threads_is_a_share_above_one():
    law = amdahl(exact(1.2, -0.2, (1, 2)))
    assert law is not None
    assert law.serial_ratio == pytest.approx(1.2)


def test_an_interval_that_noise_leaves_open_is_unknown():
    law = amdahl({1: [0.1, 3.0], 2: [0.1, 5.0]})
    assert law is None or law.serial_low is None


def test_too_little_is_refused():
    for times in ({1: [1.0, 1.0]}, {1: [1.0], 2: [0.5, 0.5]}, {0: [1.0, 1.0], 2: [0.5, 0.5]}):
        with pytest.raises(ValueError, match="expected two thread counts"):
            amdahl(times)
    assert amdahl({1: [0.0, 0.0], 2: [0.0, 0.0]}) is None


def test_a_step_that_others_slowed_down_moves_nothing():
    times = {count: [(0.2 + 0.8 / count) * (1 + 0.001 * place) for place in range(10)] for count in (1, 2)}
    clean = amdahl(times)
    slowed = amdahl({**times, 2: [50.0, *times[2][1:]]})
    assert clean is not None
    assert slowed is not None
    assert slowed.serial_ratio == pytest.approx(clean.serial_ratio, abs=0.01)
    assert slowed.serial_high is not None
    assert slowed.serial_high < 0.3
