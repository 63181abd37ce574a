"""Definition, law: each rank's meter has its own share, and the sum over ranks is what one device would count."""

from concurrent.futures import ProcessPoolExecutor

import pytest

from measure.device.processes import PRELOAD, context, prepare
from tests.measure.meter import ranks

WIDTH, RANKS = 32, 2


WAYS = ("ddp", "fsdp2", "tp")


@pytest.fixture(scope="module")
def summaries(tmp_path_factory):
    """Way → what each rank's meter says. A process a rank, which trains all ways."""
    store = str(tmp_path_factory.mktemp("ranks") / "store")
    prepare()
    with ProcessPoolExecutor(RANKS, context(PRELOAD)) as processes:
        started = [processes.submit(ranks.summaries, WAYS, rank, RANKS, store) for rank in range(RANKS)]
        found = [rank.result(timeout=300) for rank in started]
    return {way: [of_rank[index] for of_rank in found] for index, way in enumerate(WAYS)}


@pytest.mark.parametrize("way", WAYS[:2])
def test_each_rank_counts_its_own_share(way, summaries):
    found = summaries[way]
    samples = [2 + rank for rank in range(RANKS)]
    one_sample = (3 + 3 + 2) * 2 * WIDTH * WIDTH  # three layers; no gradient of the first one's input
    assert [row[0] for row in found] == [one_sample * size for size in samples]
    assert sum(row[0] for row in found) == one_sample * sum(samples)
    assert all(row[1:3] == [3, ["fp32"]] for row in found)


def test_under_tensor_parallelism_each_rank_counts_the_part_that_it_runs(summaries):
    """Four layers, each split over both ranks: half of each is a rank's, and the halves are what one device runs. Each
    new size is observed in the step after the one that shows it, which counts, too; the first step is warm-up."""
    found = summaries["tp"]
    one_sample = (4 + 4 + 3) * 2 * WIDTH * WIDTH  # four layers; no gradient of the first one's input
    samples = 3 + 2 + 2 + 5 + 5
    counted = [row[0] * row[1] for row in found]
    assert counted == [one_sample * samples // RANKS] * RANKS, found
    assert sum(counted) == one_sample * samples
    assert all(row[2] == ["fp32"] for row in found)
