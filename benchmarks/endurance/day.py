"""Does a sweep of a whole day grow, in memory or in open files?

    python -m benchmarks.endurance.day --hours 24

The session of a sweep and its store, with workers and a clock that are made up: each cell takes 10 s of that clock, so
that a day is 8,640 cells. Memory (resident) and open files are read every hundredth part of it, after a collection.
Memory may grow by what the session remembers of each cell, its id and status, and by no more. Not claimed: anything
about workers, which are processes of their own and are replaced, or about a real device's library.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.fakes.fake_session import MEASURE, Scene, cell, measured

CELL_S = 10.0
PARTS = 100

BYTES_OF_A_CELL = 500
"""That a session may remember of one that is done."""

NOISE_BYTES = 4_000_000
"""By which resident memory differs between two equal moments: pages that the allocator keeps."""


@dataclass(frozen=True)
class Moment:
    """How much there was after so many cells."""

    cells: int
    memory_bytes: int
    open_files: int


def live(hours: float, folder: Path, cell_s: float = CELL_S) -> list[Moment]:
    """The moments of so many hours, the first after a tenth of the cells, when everything has been used once."""
    count = round(hours * 3600 / cell_s)
    every = max(1, count // PARTS)
    moments: list[Moment] = []
    with pytest.MonkeyPatch.context() as patch, open(os.devnull, "w") as nowhere:
        scene = Scene(folder / "run", patch)
        scene.stream = nowhere  # type: ignore[assignment]

        def answer(_cell: Any, _protocol: Any) -> Any:
            done = round(scene.clock.elapsed_s / cell_s)
            scene.clock.elapsed_s += cell_s
            for kept in (scene.calls, scene.said, scene.counted, scene.watch.windows):
                kept.clear()  # the fakes' own memory
            if done >= count // 10 and done % every == 0:
                moments.append(_moment(done))
            return measured(start_s=scene.clock.elapsed_s)

        scene.answers[MEASURE] = answer
        cells = [cell(batch_size=1 + number % 8, seed=number) for number in range(count)]
        session = scene.session()
        for _row in session.each(cells):
            pass
        scene.store.close()
        moments.append(_moment(count))
    return moments


def _moment(cells: int) -> Moment:
    gc.collect()
    process = psutil.Process()
    return Moment(cells, process.memory_info().rss, process.num_fds())


def growth(moments: Sequence[Moment]) -> tuple[int, int, int]:
    """Cells between the first moment and the last, bytes that memory grew by, and the most files beyond the fewest."""
    files = [moment.open_files for moment in moments[:-1]]  # at the end the run is closed
    first, last = moments[0], moments[-1]
    return last.cells - first.cells, last.memory_bytes - first.memory_bytes, max(files) - min(files)


def is_flat(moments: Sequence[Moment]) -> bool:
    """Whether memory grew by no more than a session may remember, and no file was left open."""
    cells, grown_bytes, more_files = growth(moments)
    return grown_bytes <= BYTES_OF_A_CELL * cells + NOISE_BYTES and not more_files


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=24.0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="day-") as name:
        moments = live(options.hours, Path(name))
    cells, grown_bytes, more_files = growth(moments)
    first, last = moments[0], moments[-1]
    print(f"{last.cells} cells, {options.hours:g} hours of the clock")
    begin, end = first.memory_bytes / 1e6, last.memory_bytes / 1e6
    print(f"memory: {begin:.1f} MB after {first.cells} cells, {end:.1f} MB at the end")
    print(f"grown by {grown_bytes / max(1, cells):.0f} bytes a cell; open files differ by {more_files}")
    print("flat" if is_flat(moments) else "not flat")
    return 0 if is_flat(moments) else 1


if __name__ == "__main__":
    sys.exit(main())
