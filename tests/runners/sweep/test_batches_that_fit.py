"""Definition, law: which batches fit into memory, and that a resumed run plans the cells that it planned before."""

import json
from pathlib import Path
from typing import Any

import pytest

from analysis.footprint.largest_batch import BatchFit
from results.process import free_bytes
from runners.sweep import batches_that_fit
from runners.sweep.batches_that_fit import batches_up_to, plan_lines, with_batches
from runners.sweep.options import parser
from runners.sweep.plan import Grid, cells
from runners.sweep.request import as_options, grid_of
from runners.workers.devices import ProbeResult
from runners.workers.traced_step import StepOptions, fitting

MB = 10**6
ANY = ProbeResult(device="cpu")
"""A device that has every precision."""


def grid(**more: Any) -> Grid:
    asked = {"models": ("alexnet", "vgg11"), "batch_sizes": (), "precisions": ("fp32", "tf32"), "device": "cpu"}
    return Grid(**{**asked, **more})


class Predicting:
    """A worker that says that 35 samples fit."""

    def __init__(self, _name: str) -> None:
        pass

    def call(self, _task: str, *_request: Any, timeout_s: float) -> BatchFit:
        return BatchFit(35, 0, {1: 1}, None, fits=35)

    def stop(self) -> None:
        pass


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Grid:
    """alexnet and vgg11, of which 35 samples fit; after that nobody can be asked."""
    monkeypatch.setattr(batches_that_fit, "Worker", Predicting)
    monkeypatch.setattr(batches_that_fit, "free_bytes", lambda: 50 * MB)
    found = with_batches(grid(), ANY)
    monkeypatch.setattr(Predicting, "call", None)
    return found


@pytest.mark.parametrize(
    ("largest", "least", "sizes"),
    [
        (1, 1, [1]),
        (8, 1, [1, 2, 4, 8]),
        (11, 1, [1, 2, 4, 8, 11]),
        (11, 2, [2, 4, 8, 11]),
        (3, 3, [3]),
        (0, 1, [1]),  # nothing fits: the smallest is tried, and its row says what happened
        (0, 2, [2]),
    ],
)
def test_powers_of_two_and_the_largest(largest: int, least: int, sizes: list[int]) -> None:
    assert batches_up_to(largest, least) == sizes


def test_each_model_and_precision_has_its_batches(planned: Grid) -> None:
    found = planned
    assert found.batches_of("alexnet", "fp32") == (1, 2, 4, 8, 16, 32, 35)
    assert found.largest_batch == 35
    assert len(cells(found)) == 2 * 2 * 7
    assert json.loads(json.dumps(found.as_json()))["auto"] == found.auto, "a manifest has it as it is"
    line = next(line for line in plan_lines(found.auto) if line.startswith("alexnet fp32: "))
    assert line.startswith("alexnet fp32: batch 1, 2, 4, 8, 16, 32, 35 (predicted to fit into")
    assert line.endswith("; at most 35 by live bytes)")


class TestResuming:
    def stored(self, before: Grid) -> dict[str, Any]:
        """What a manifest gives back of a grid."""
        return json.loads(json.dumps(as_options(before, [])))

    @pytest.mark.parametrize("words", [[], ["--batch-sizes", "auto"]])
    def test_the_same_cells_whatever_memory_there_is_now(self, planned: Grid, words: list[str]) -> None:
        before = planned
        found = grid_of(parser().parse_args(["--resume", "x", *words]), self.stored(before), ANY)
        again = with_batches(found, ANY)
        assert again == Grid.from_json(self.stored(before))
        assert [cell.cell_id for cell in cells(again)] == [cell.cell_id for cell in cells(before)]


@pytest.mark.parametrize(
    ("meminfo", "limits", "free"),
    [
        ("MemTotal: 9 kB\nMemAvailable: 5 kB\n", {}, 5 * 1024),
        ("MemAvailable: 5 kB\n", {"max": "4000\n", "current": "1000\n"}, 3000),
        ("MemAvailable: 5 kB\n", {"max": "max\n", "current": "1000\n"}, 5 * 1024),
        ("", {"max": "10", "current": "40"}, 0),
    ],
)
def test_free_memory(meminfo: str, limits: dict[str, str], free: int, tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(meminfo)
    for name, text in limits.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert free_bytes(tmp_path / "meminfo", tmp_path) == free


def test_batches_that_lie_ready_are_counted() -> None:
    """A sample is an image of 64 channels of 64 × 64 floats, 1 MiB: six are there while it is trained, and of one of
    two samples three more lie ready. 27 MB hold two samples; without those that lie ready three."""
    found = fitting(StepOptions("synthetic_convolution", device="cpu"), 30 * MB, 0.1, "")
    assert (found.fits, min(found.needed)) == (2, 1)
