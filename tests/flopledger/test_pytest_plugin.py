"""The fixture `flopledger_step` in a project of one's own: exact counts, a baseline, time, what is not compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flopledger import pytest_plugin
from measure.step.pinned_step import pinned_step, slower_line

ROOT = Path(__file__).parents[2]
TEST = """
import pytest
import torch

WIDTH = {width}


def check(flopledger_step, width, name="", slower=None):
    model = torch.nn.Sequential(torch.nn.Linear(256, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
    step = flopledger_step(model, torch.randn(64, 256), optimizer=torch.optim.SGD, name=name)
    assert step.flop == 2 * 64 * width * (2 * 256 + 3 * 10)  # of the first layer no gradient of its input
    step.check("baseline.json", slower=slower)


def test_step(flopledger_step):
    check(flopledger_step, WIDTH, slower="1000%")


def test_second(flopledger_step):
    check(flopledger_step, 8, {name!r})
"""


def run(folder: Path, *arguments: str, width: int = 64, name: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "test_mine.py").write_text(TEST.format(width=width, name=name))
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "flopledger.pytest_plugin",
        "-p",
        "no:cacheprovider",
        *arguments,
    ]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)


def test_a_project_from_its_first_baseline_to_a_model_that_grew(tmp_path: Path) -> None:
    first = run(tmp_path, "--flopledger-update")
    assert first.returncode == 0, first.stdout
    kept = json.loads((tmp_path / "baseline.json").read_text())
    assert set(kept) == {"test_step", "test_second"}
    assert set(kept["test_step"]) == {
        "flop", "bytes", "launches", "memory", "device", "torch", "threads", "block_times_s",
    }  # fmt: skip
    second = run(tmp_path, width=65, name="another")
    assert second.returncode == 1
    before, now = (2 * 64 * width * 542 for width in (64, 65))
    assert f"flop: {before} in the baseline, {now} now (+1.56%)" in second.stdout
    assert "--flopledger-update accepts it" in second.stdout
    assert "has no 'test_second another': run pytest --flopledger-update once" in second.stdout


def test_an_equal_step_passes(checked: Any) -> None:
    checked().check("b.json")
    with pytest.raises(pytest.fail.Exception, match=r"launches: \d+ in the baseline, \d+ now"):
        checked(launches=3).check("b.json")


def entry(step: Any, **more: Any) -> dict[str, Any]:
    return {**step.counts(), **pytest_plugin._place("cpu"), **more}


class Node:
    """A test, as far as the fixture asks."""

    def __init__(self, path: Path) -> None:
        self.path = path


@pytest.fixture
def checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function (what the baseline has beside the counts) → the step, whose blocks take 1.3 ms by a clock of ours."""
    import torch

    step = pinned_step(torch.nn.Linear(8, 4), torch.randn(2, 8))
    monkeypatch.setattr(type(step), "block_times_s", lambda self: [1.3e-3, 1.31e-3, 1.29e-3, 1.3e-3, 1.3e-3])
    monkeypatch.setattr(pytest_plugin, "NOTES", [])

    def with_baseline(**more: Any) -> Any:
        (tmp_path / "b.json").write_text(json.dumps({"t": entry(step, **more)}))
        return pytest_plugin.CheckedStep(step, Node(tmp_path / "test_x.py"), False, "t")  # type: ignore[arg-type]

    return with_baseline


FAST = [1.0e-3, 1.01e-3, 0.99e-3, 1.0e-3, 1.0e-3]


def test_a_planted_slow_down_fails_beyond_limit_and_margin(checked: Any) -> None:
    """1.3 against 1.0 ms on a CPU whose processes differ by 10 %: slower by 18 % at least, by 43 % at most."""
    step = checked(block_times_s=FAST)
    step.check("b.json", slower="25%")
    with pytest.raises(pytest.fail.Exception, match=r"slower by 1\d\.\d% to 4\d\.\d%, more than 10\.0%"):
        step.check("b.json", slower=0.10)


@pytest.mark.parametrize(
    ("more", "said"),
    [({}, "the baseline has none"), ({"block_times_s": FAST, "device": "another"}, "device 'another' then")],
)
def test_time_that_is_not_compared_is_told(checked: Any, more: dict[str, Any], said: str) -> None:
    checked(**more).check("b.json", slower="1%")
    assert said in pytest_plugin.NOTES[0]


@pytest.mark.parametrize("limit", ["x", "-1%", "1e9"])
def test_a_limit_that_cannot_be(checked: Any, limit: str) -> None:
    with pytest.raises(ValueError, match="expected a limit such as"):
        checked(block_times_s=FAST).check("b.json", slower=limit)


@pytest.mark.parametrize("content", ["[", "[]", '{"t": 3}'])
def test_a_file_that_is_no_baseline(checked: Any, tmp_path: Path, content: str) -> None:
    step = checked()
    (tmp_path / "b.json").write_text(content)
    with pytest.raises(ValueError, match="expected a baseline in"):
        step.check("b.json")


def test_what_scatters_is_not_slower() -> None:
    assert slower_line([1.0, 2.0, 0.5, 1.5], [1.2, 2.4, 0.6, 1.8], 0.0, "cpu") == ""


def test_the_step_that_is_timed_trains() -> None:
    import torch

    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    step = pinned_step(model, torch.randn(2, 8), optimizer=optimizer)
    assert torch.equal(model.weight, before), "counting leaves the model as it is"
    step.run()
    assert not torch.equal(model.weight, before)
    assert (step.flop, step.device) == (2 * 2 * 8 * 4 * 2, "cpu")
