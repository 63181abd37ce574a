"""Several processes: each rank's meter has its own share, and the sum over ranks is what one device would count."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

WIDTH, RANKS = 32, 2


@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_each_rank_counts_its_own_share(way, tmp_path):
    script = Path(__file__).with_name("ranks.py")
    root = str(Path(__file__).parents[3])
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", str(script), way, str(rank), str(RANKS), str(tmp_path / "store")],
            stdout=subprocess.PIPE, text=True, cwd=root, env={"PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(RANKS)
    ]  # fmt: skip
    outputs = [process.communicate(timeout=300)[0] for process in started]
    found = [json.loads(output.splitlines()[-1]) for output in outputs]
    samples = [2 + rank for rank in range(RANKS)]
    one_sample = (3 + 3 + 2) * 2 * WIDTH * WIDTH  # three layers; no gradient of the first one's input
    assert [row[0] for row in found] == [one_sample * size for size in samples]
    assert sum(row[0] for row in found) == one_sample * sum(samples)
    assert all(row[1:3] == [3, ["fp32"]] for row in found)
