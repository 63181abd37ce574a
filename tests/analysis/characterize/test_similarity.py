"""Known answer, definition: the dendrogram of the paper's figure, and planted serial shares found again."""

import itertools
import math
import random

import pytest

from analysis.characterize.fathom_groups import figure3
from analysis.characterize.operation_mix import (
    centroid_linkage,
    cosine_distance,
)
from analysis.characterize.parallelism import amdahl, karp_flatt

HEIGHTS = (0.0029, 0.0150, 0.0262, 0.0422, 0.1100, 0.4365, 0.9226)
"""Of the merges of Figure 3's rows; computed by numpy from cluster means before this code was written."""

CNNS = {"residual", "vgg", "alexnet", "deepq"}


def cells() -> dict[str, list[int]]:
    return {workload: list(row.values()) for workload, row in figure3().items()}


def test_figure_3_alone_gives_the_heights_of_figure_4():
    merges = centroid_linkage(cells())
    assert [merge.height for merge in merges] == pytest.approx(HEIGHTS, abs=5e-5)
    assert {*merges[0].members} == {"residual", "vgg"}
    assert {*merges[2].members} == {"speech", "autoenc"}
    assert {*merges[4].members} == {"seq2seq", "memnet"}
    assert {frozenset(merges[-1].left), frozenset(merges[-1].right)} == {
        frozenset(CNNS), frozenset(figure3().keys() - CNNS),
    }  # fmt: skip


def test_distance_of_known_angles():
    assert cosine_distance((1, 0), (5, 0)) == 0
    assert cosine_distance((1, 0), (0, 2)) == 1
    assert cosine_distance((1, 0), (1, 1)) == pytest.approx(1 - math.sqrt(0.5))


def test_against_a_brute_force_of_means():
    numbers = random.Random(3)
    vectors = {name: [numbers.random() for _ in range(4)] for name in "abcdef"}
    clusters = {frozenset(name): [vectors[name]] for name in vectors}
    for merge in centroid_linkage(vectors):
        means = {key: [sum(column) / len(rows) for column in zip(*rows, strict=True)] for key, rows in clusters.items()}
        nearest = min(
            itertools.combinations(means, 2), key=lambda pair: cosine_distance(means[pair[0]], means[pair[1]])
        )
        assert {frozenset(merge.left), frozenset(merge.right)} == set(nearest)
        assert merge.height == pytest.approx(cosine_distance(means[nearest[0]], means[nearest[1]]))
        clusters[nearest[0] | nearest[1]] = clusters.pop(nearest[0]) + clusters.pop(nearest[1])


def test_centroids_may_invert():
    """Three vectors at equal angles: the mean of two lies nearer to the third than the two to each other."""
    vectors = {"x": (1, 0.2, 0.2), "y": (0.2, 1, 0.2), "z": (0.2, 0.2, 1.0001)}
    merges = centroid_linkage(vectors)
    assert merges[1].height < merges[0].height


def exact(serial: float, parallel: float, counts: tuple[int, ...], steps: int = 3) -> dict[int, list[float]]:
    return {count: [serial + parallel / count] * steps for count in counts}


@pytest.mark.parametrize("counts", [(1, 2), (1, 2, 4, 8), (2, 4)])
def test_the_law_is_found_again_without_noise(counts: tuple[int, ...]):
    law = amdahl(exact(0.3, 0.9, counts))
    assert (law.serial_s, law.parallel_s) == (pytest.approx(0.3), pytest.approx(0.9))
    assert law.serial_ratio == pytest.approx(0.25)
    assert law.time_s(3) == pytest.approx(0.6)
    assert law.speed_up == pytest.approx((0.3 + 0.9 / counts[0]) / (0.3 + 0.9 / counts[-1]))
    assert law.lack_of_fit < 1e-3


def test_two_counts_from_one_thread_are_karp_and_flatts_share():
    """1.0 s and 0.8 s: the speed-up is 1.25, the share (0.8 - 0.5) ÷ 0.5 = 0.6; the line meets 0 at 0.6 s."""
    law = amdahl({1: [0.99, 1.01], 2: [0.79, 0.81]})
    assert law.serial_ratio == pytest.approx(0.6)
    assert law.karp_flatt == {2: pytest.approx(0.6)}
    assert karp_flatt(4.0, 4) == 0
    assert karp_flatt(1.0, 4) == 1


def test_times_that_a_clock_cannot_distinguish_beside_scattered_ones_have_a_law() -> None:
    """0.6 + 0.4 ÷ threads goes through both medians, whatever they weigh: here 10⁹ to 1."""
    law = amdahl({1: [1.0, 1.0, 1.0], 2: [0.7, 0.8, 0.9]})
    assert law is not None
    assert law.serial_ratio == pytest.approx(0.6)
    assert law.parallel_s == pytest.approx(0.4)


def test_too_little_has_no_law():
    for times in ({1: [1.0, 1.0]}, {1: [1.0], 2: [0.5, 0.5]}, {1: [0.0, 0.0], 2: [0.0, 0.0]}):
        assert amdahl(times) is None
