"""Likeness of workloads: the paper's own figure gives the heights of its own dendrogram, and what cannot be is said."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from analysis.characterize.fathom_groups import COLUMNS_OF_GROUPS, figure3, figure3_groups
from analysis.characterize.similarity import (
    centroid_linkage,
    cosine_distance,
    distances,
    inverted,
    matrix,
)

HEIGHTS = (0.0029, 0.0150, 0.0262, 0.0422, 0.1100, 0.4365, 0.9226)
"""Of the merges of Figure 3's rows; computed by numpy from cluster means before this code was written."""

CNNS = {"residual", "vgg", "alexnet", "deepq"}


def cells(reading: str = "likely") -> dict[str, list[int]]:
    return {workload: list(row.values()) for workload, row in figure3(reading).items()}


def test_figure_3_alone_gives_the_heights_of_figure_4():
    merges = centroid_linkage(cells())
    assert [merge.height for merge in merges] == pytest.approx(HEIGHTS, abs=5e-5)
    assert {*merges[0].members} == {"residual", "vgg"}
    assert {*merges[2].members} == {"speech", "autoenc"}
    assert {*merges[4].members} == {"seq2seq", "memnet"}
    assert {frozenset(merges[-1].left), frozenset(merges[-1].right)} == {
        frozenset(CNNS), frozenset(figure3().keys() - CNNS),
    }  # fmt: skip


def test_the_literal_reading_moves_the_doubtful_merge_and_no_group():
    heights = [merge.height for merge in centroid_linkage(cells("literal"))]
    assert heights == pytest.approx((0.0029, 0.0150, 0.0262, 0.0422, 0.2287, 0.4347, 0.9218), abs=5e-5)
    for reading in ("likely", "literal"):
        rows = figure3(reading)
        sums = {
            name: {
                group: sum(row[column] for column in columns.split()) for group, columns in COLUMNS_OF_GROUPS.items()
            }
            for name, row in rows.items()
        }
        assert sums == figure3_groups()
    with pytest.raises(ValueError, match="expected a reading"):
        figure3("guessed")


def test_the_papers_groups_are_those_read_from_it():
    groups = figure3_groups()
    assert list(groups["seq2seq"].values()) == [40, 32, 2, 0, 0, 0, 24]
    assert list(groups["memnet"].values()) == [41, 12, 11, 0, 0, 5, 25]
    assert list(groups["deepq"].values()) == [0, 11, 0, 80, 0, 7, 0]
    assert all(94 <= sum(row.values()) <= 99 for row in groups.values())


def test_distance_of_known_angles():
    assert cosine_distance((1, 0), (5, 0)) == 0
    assert cosine_distance((1, 0), (0, 2)) == 1
    assert cosine_distance((1, 0), (1, 1)) == pytest.approx(1 - math.sqrt(0.5))
    with pytest.raises(ValueError, match="got one of zeros"):
        cosine_distance((0, 0), (1, 0))
    with pytest.raises(ValueError, match="got 1 and 2"):
        cosine_distance((1,), (1, 0))


def test_a_clusters_centre_is_the_mean_of_its_members_as_they_are():
    """By hand: x and y merge first, (4, 1) and (4, 0); their mean is (4, 0.5), its angle to (0, 1) has cos 0.5/√16.25.
    Vectors made one long first would give another centre."""
    merges = centroid_linkage({"x": (4, 1), "y": (4, 0), "z": (0, 1)})
    assert [merge.members for merge in merges] == [("x", "y"), ("x", "y", "z")]
    assert merges[1].height == pytest.approx(1 - 0.5 / math.sqrt(16.25))


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


def test_the_matrix_is_what_scipys_dendrogram_takes():
    from scipy.cluster.hierarchy import dendrogram, is_valid_linkage

    names = list(cells())
    rows = matrix(names, centroid_linkage(cells()))
    assert is_valid_linkage(rows)
    drawn = dendrogram(rows, labels=names, no_plot=True)
    assert sorted(drawn["ivl"]) == sorted(names)
    assert max(height for row in drawn["dcoord"] for height in row) == pytest.approx(0.9226, abs=5e-5)


def test_an_inversion_is_found():
    """Three vectors at equal angles: the mean of two lies nearer to the third than the two to each other."""
    vectors = {"x": (1, 0.2, 0.2), "y": (0.2, 1, 0.2), "z": (0.2, 0.2, 1.0001)}
    merges = centroid_linkage(vectors)
    assert merges[1].height < merges[0].height
    assert inverted(merges) == [merges[1]]
    assert inverted(centroid_linkage(cells())) == []


def test_all_pairs():
    found = distances(cells())
    assert len(found) == 28
    assert found["residual", "vgg"] == pytest.approx(0.0029, abs=5e-5)
