"""The gate's benchmark: live comparisons are kept and resumed, resampling keeps the scatter and takes off the mean."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.gate.__main__ import FILE, alarms, decision, main, recorded, resampled, share


def streams(number: int = 20, mean: float = 0.01, spread: float = 0.02) -> list[list[float]]:
    chance = random.Random(1)
    return [[mean + chance.gauss(0, spread) for _ in range(9)] for _ in range(number)]


def test_live_comparisons_go_on_where_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[int] = []

    def live(pairs: int) -> list[float]:
        asked.append(pairs)
        return streams()[len(asked)][:pairs]

    assert main(["--live", "2", "--out", str(tmp_path)], live) == 0
    with (tmp_path / FILE).open("a") as file:
        file.write('{"values": [0.1')  # killed while it wrote
    assert len(recorded(tmp_path)) == 2
    (tmp_path / FILE).write_text((tmp_path / FILE).read_text() + "\n")
    assert main(["--live", "3", "--resample", "20", "--out", str(tmp_path)], live) == 0
    assert asked == [9, 9, 9]
    out = capsys.readouterr().out
    assert "live: 3 comparisons of equal sides, 27 pairs of processes" in out
    assert "resampled from these: 20 streams of 54 values" in out


def test_without_recordings_there_is_nothing_to_resample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--resample", "10", "--out", str(tmp_path)]) == 2
    assert "run --live N first" in capsys.readouterr().err


def test_resampled_streams_are_neighbours_without_the_common_mean() -> None:
    recorded = streams()
    centre = sum(map(sum, recorded)) / sum(map(len, recorded))
    triples = {tuple(round(v - centre, 9) for v in each[i : i + 3]) for each in recorded for i in range(7)}
    found = resampled(recorded, 50, 30)
    assert all(tuple(round(v, 9) for v in each[i : i + 3]) in triples for each in found for i in range(0, 30, 3))
    assert abs(sum(map(sum, found)) / 1500) < 0.003


def test_alarms_and_decisions() -> None:
    equal = resampled(streams(), 200, 54)
    assert sum(map(alarms, equal)) <= 10
    slower = [[value + 0.0953 for value in stream] for stream in equal]
    assert sum(decision(stream, 0.02)[0] == "above" for stream in slower) == 200
    assert share(5, 100) == "5 of 100, 5.0% (2.2% to 11.2%)"
