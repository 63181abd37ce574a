"""Batches that fit: the rules by brute force, what a resumed run plans, and what an out-of-memory changes."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from analysis.footprint.largest_batch import Lines
from results.store.manifest import read_manifest
from results.store.store import read_run
from runners.footprint.step import Fitting, StepOptions, envelope, fitting
from runners.sweep import auto_batches
from runners.sweep.auto_batches import batches_up_to, corrected, largest_below, needed_bytes, resolved
from runners.sweep.options import as_options, grid_of, parser
from runners.sweep.plan import Grid, cells, remaining
from runners.workers.devices import ProbeResult
from runners.workers.worker import WorkerFault
from tests.support.fakes.fake_session import MEASURE, Scene, measured

MB = 10**6
ANY = ProbeResult(device="cpu")
"""A device that has every precision."""

LINE = ((10 * MB, MB),)
"""10 MB without a sample and 1 MB a sample."""


def grid(**more: Any) -> Grid:
    asked = {"models": ("alexnet", "vgg11"), "batch_sizes": (), "precisions": ("fp32", "tf32"), "device": "cpu"}
    return Grid(**{**asked, **more})


def planned(memory: int = 50 * MB, **more: Any) -> Grid:
    """alexnet and vgg11 on the same line, with a tenth of the memory left free: 45 MB hold 35 samples."""
    largest = largest_below(LINE, memory * 9 // 10)
    return resolved(grid(**more), memory, 0.1, lambda model, precision: Fitting(largest, 1, LINE, largest))


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


@pytest.mark.parametrize("seed", range(30))
def test_the_envelope_is_the_highest_of_all_lines(seed: int) -> None:
    dice = random.Random(seed)
    lines = [(dice.randint(0, 900), dice.randint(0, 30)) for _ in range(dice.randint(1, 12))]
    at = {batch: [start + slope * batch for start, slope in lines] for batch in (2, 4)}
    found = envelope(Lines((2, at[2]), (4, at[4])))
    assert set(found) <= set(lines)
    for batch in range(200):
        assert needed_bytes(found, batch) == max(start + slope * batch for start, slope in lines)
    for available in (0, 100, 950, 3000):
        fitting = [batch for batch in range(1, 4000) if needed_bytes(lines, batch) <= available]
        expected = max(fitting, default=0)
        assert min(largest_below(found, available), 3999) == expected


def test_each_model_and_precision_has_its_batches() -> None:
    found = planned()
    assert found.batches_of("alexnet", "fp32") == (1, 2, 4, 8, 16, 32, 35)
    assert found.largest_batch == 35
    assert len(cells(found)) == 2 * 2 * 7
    assert json.loads(json.dumps(found.as_json()))["auto"] == found.auto, "a manifest has it as it is"
    line = next(line for line in auto_batches.plan_lines(found.auto) if line.startswith("alexnet fp32: "))
    assert line.startswith("alexnet fp32: batch 1, 2, 4, 8, 16, 32, 35 (predicted to fit into")
    assert line.endswith("; at most 35 by live bytes)")


def test_batches_that_lie_ready_are_counted() -> None:
    """A sample is an image of 64 channels of 64 × 64 floats, 1 MiB: six are there while it is trained, and of one of
    two samples three more lie ready. 27 MB hold two samples; without those that lie ready three."""
    found = fitting(StepOptions("synthetic_convolution", device="cpu"), 30 * MB, 0.1, "")
    assert (found.largest, found.least) == (2, 1)


class TestResuming:
    def stored(self, before: Grid) -> dict[str, Any]:
        """What a manifest gives back of a grid."""
        return json.loads(json.dumps(as_options(before, [])))

    @pytest.mark.parametrize("words", [[], ["--batch-sizes", "auto"]])
    def test_the_same_cells_whatever_memory_there_is_now(self, words: list[str]) -> None:
        before = planned()
        found = grid_of(parser().parse_args(["--resume", "x", *words]), self.stored(before), ANY)
        again = resolved(found, found.auto["memory_bytes"], found.auto["margin_ratio"], lambda *_: pytest.fail("asked"))
        assert again == Grid.from_json(self.stored(before))
        assert [cell.cell_id for cell in cells(again)] == [cell.cell_id for cell in cells(before)]


class TestOutOfMemory:
    def test_the_margin_rises_and_larger_batches_go(self) -> None:
        """35 samples, 45 MB of 50, did not fit: a margin of 0.1 + 0.05 leaves 42.5 MB, which hold 32 samples."""
        before = planned(precisions=("fp32",))
        (failed,) = [cell for cell in cells(before) if (cell.model, cell.batch_size) == ("vgg11", 35)]
        after, words = corrected(before, failed, [])
        assert after.auto["margin_ratio"] == pytest.approx(0.15)
        assert after.batches_of("alexnet", "fp32") == (1, 2, 4, 8, 16, 32)
        assert after.batches_of("vgg11", "fp32") == (1, 2, 4, 8, 16, 32, 35), "what was tried keeps its row"
        assert words == "vgg11 fp32 ran out of memory at batch 35, predicted to need 42.92 MiB: the margin is now 15 %"

    def test_a_sitting_goes_on_with_what_fits(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever needs more than 30 samples fails: the first such cell corrects all that come after it, and the
        resumed run has nothing left to do."""
        scene = Scene(tmp_path / "run", monkeypatch)
        full = WorkerFault("out_of_memory", "no more")
        scene.answers[MEASURE] = lambda cell, protocol: full if cell.batch_size > 30 else measured()
        start = planned(precisions=("fp32",), methods=("exact",))
        replan = auto_batches.replanning(scene.store, start, [])
        runs = scene.session().collect(cells(start), replan)
        tried = [run for run in runs if run.status == "out_of_memory"]
        assert 1 <= len(tried) <= 3
        assert all(run.batch_size in (32, 35) for run in tried)
        kept = Grid.from_json(json.loads(json.dumps(dict(read_manifest(scene.path).options))))
        assert kept.auto["margin_ratio"] > 0.1
        assert remaining(cells(kept), {run.cell_id: run.status for run in read_run(scene.path).runs}) == []
        for model in start.models:
            best = max(run.batch_size for run in runs if run.model == model and run.status == "ok")
            assert best >= 16
        assert len(runs) == len({run.cell_id for run in runs})


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
    assert auto_batches.host_bytes(tmp_path / "meminfo", tmp_path) == free
