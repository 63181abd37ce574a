"""The gate's benchmark: live comparisons are kept and resumed, resampled and simulated streams are of equal sides."""

from __future__ import annotations

import itertools
import math
import random
from pathlib import Path

import pytest

from benchmarks.gate.__main__ import FILE, alarms, decision, main, recorded, share
from benchmarks.gate.streams import SIMULATED, exchanged, simulated


def streams(number: int = 20, mean: float = 0.01, spread: float = 0.02) -> list[list[float]]:
    chance = random.Random(1)
    return [[mean + chance.gauss(0, spread) for _ in range(9)] for _ in range(number)]


def test_live_comparisons_go_on_where_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[int] = []

    def live(pairs: int) -> tuple[list[float], list[int]]:
        asked.append(pairs)
        return streams()[len(asked)][:pairs], [40] * pairs

    assert main(["--live", "2", "--out", str(tmp_path)], live) == 0
    with (tmp_path / FILE).open("a") as file:
        file.write('{"values": [0.1')  # killed while it wrote
    assert len(recorded(tmp_path)) == 2
    (tmp_path / FILE).write_text((tmp_path / FILE).read_text() + "\n")
    assert main(["--live", "3", "--resample", "20", "--out", str(tmp_path)], live) == 0
    assert asked == [9, 9, 9]
    assert recorded(tmp_path)[0]["steps"] == [40] * 9
    out = capsys.readouterr().out
    assert "live: 3 comparisons of equal sides, 27 pairs of processes" in out
    assert "resampled from these: 20 streams of 54 values" in out


def test_without_recordings_there_is_nothing_to_resample(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--resample", "10", "--out", str(tmp_path)]) == 2
    assert "run --live N first" in capsys.readouterr().err


def test_resampled_streams_are_neighbours_with_either_sign() -> None:
    """A value is its stream × 100 + its place, so that each tells where it is from."""
    made = [[100.0 * stream + place for place in range(9)] for stream in range(1, 5)]
    for values in exchanged(made, 50, 30):
        for first in range(0, 30, 3):
            block = values[first : first + 3]
            swapped = block[0] < 0
            place = int(abs(block[0])) % 100
            assert [abs(value) - abs(block[0]) for value in block] == [0, 1, 2]
            assert place % 2 == (first + swapped) % 2, "a pair that begins with B stays one, or A and B are exchanged"


def test_what_belongs_to_a_side_is_taken_off_and_what_belongs_to_the_order_is_not() -> None:
    """B 10 % slower in all pairs becomes 0 on average; the side that begins 3 % slower stays 3 % slower."""
    biased = exchanged([[0.1] * 9] * 4, 200, 54)
    assert abs(sum(map(sum, biased)) / (200 * 54)) < 0.01
    ordered = exchanged([[0.03 * (-1) ** pair for pair in range(9)]] * 4, 20, 54)
    assert all(stream == pytest.approx([0.03 * (-1) ** pair for pair in range(54)]) for stream in ordered)


def test_a_comparison_that_ended_early_weighs_as_much_as_its_values() -> None:
    """One block of three among 7 of a whole comparison: an eighth of the blocks, not half."""
    values = [abs(value) for stream in exchanged([[1.0] * 3, [2.0] * 9], 400, 54) for value in stream]
    assert values.count(1.0) / len(values) == pytest.approx(1 / 8, abs=0.03)
    with pytest.raises(ValueError, match="expected a recorded stream of 4 values or more"):
        exchanged([[1.0] * 3], 1, 3)


def test_alarms_and_decisions() -> None:
    equal = exchanged(streams(), 200, 54)
    assert sum(map(alarms, equal)) <= 10
    slower = [[value + 0.0953 for value in stream] for stream in equal]
    assert sum(decision(stream, 0.02)[0] == "above" for stream in slower) == 200
    assert share(5, 100) == "5 of 100, 5.0% (2.2% to 11.2%)"


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_streams_have_the_middle_and_the_neighbours_that_their_name_says(name: str) -> None:
    """Of 20,000 values half are above 0, within 3 standard errors of 0.0035 (more where neighbours are alike), and
    neighbours of normal ones have the same sign with a chance of 1/2 + asin(r) ÷ π."""
    (stream,) = simulated(name, 1, 20_000)
    _, correlation, order_ratio = SIMULATED[name]
    above = sum(value > 0 for value in stream) / len(stream)
    assert above == pytest.approx(0.5, abs=0.011 + 0.02 * correlation)
    if name.startswith("normal"):
        same = sum(a * b > 0 for a, b in itertools.pairwise(stream)) / len(stream)
        assert same == pytest.approx(0.5 + math.asin(correlation) / math.pi, abs=0.015)
    assert sum(stream[0::2]) / 1e4 - sum(stream[1::2]) / 1e4 == pytest.approx(2 * order_ratio, abs=0.003) or (
        not order_ratio
    )


def test_a_simulation_alone_needs_no_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--simulate", "5", "--length", "9"]) == 0
    assert "simulated, Cauchy: 5 streams of 9 values" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--live", "3"])
    assert "expected --out DIR" in capsys.readouterr().err
