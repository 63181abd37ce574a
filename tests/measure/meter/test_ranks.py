"""Several processes: each rank's meter has its own share, and the sum over ranks is what one device would count."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

WIDTH, RANKS = 32, 2


WAYS = ("ddp", "fsdp2", "tp")


@pytest.fixture(scope="module")
def summaries(tmp_path_factory):
    """Way → what each rank's meter says. A process a rank, which imports torch once and trains both ways."""
    script = Path(__file__).with_name("ranks.py")
    root, store = str(Path(__file__).parents[3]), str(tmp_path_factory.mktemp("ranks") / "store")
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(script), str(rank), str(RANKS), store, *WAYS],
            stdout=subprocess.PIPE, text=True, cwd=root, env={"PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=300)[0].splitlines()[-len(WAYS) :] for process in started]
    return {way: [json.loads(lines[index]) for lines in outputs] for index, way in enumerate(WAYS)}


@pytest.mark.parametrize("way", WAYS[:2])
def test_each_rank_counts_its_own_share(way, summaries):
    found = summaries[way]
    samples = [2 + rank for rank in range(RANKS)]
    one_sample = (3 + 3 + 2) * 2 * WIDTH * WIDTH  # three layers; no gradient of the first one's input
    assert [row[0] for row in found] == [one_sample * size for size in samples]
    assert sum(row[0] for row in found) == one_sample * sum(samples)
    assert all(row[1:3] == [3, ["fp32"]] for row in found)


def test_tensor_parallelism_is_refused_with_the_reason(summaries):
    """A rank runs a part of each layer, which the copy without values is not: no count rather than a wrong one."""
    for flop, steps, _units, warnings in summaries["tp"]:
        assert (flop, steps) == (None, 3)
        assert any("tensor parallelism" in each for each in warnings)
