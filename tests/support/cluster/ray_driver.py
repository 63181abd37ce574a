"""A sweep of made-up cells on a Ray cluster, as a process of its own or in a test's: what is there already is not
measured again.

    python -m tests.support.cluster.ray_driver RUN CELLS
"""

import io
import sys
from collections.abc import Callable
from pathlib import Path

from results.records.cell import Cell, Run
from results.store.manifest import Manifest, utc_now
from results.store.store import Store
from runners.cli.output import Progress
from runners.sweep.executors import Executor
from runners.sweep.ray_slots import RaySlots
from tests.support.cluster.fake_slots import SETTINGS

SLOT = "tests.support.cluster.fake_slots:MadeUpSlot"


def plan(count: int) -> list[Cell]:
    """So many cells."""
    return [Cell(model="resnet18", batch_size=size, device="cpu") for size in range(1, count + 1)]


def sweep(path: Path, count: int, slot: str = SLOT, each: Callable[[Run], None] = lambda run: None) -> str:
    """Measures what the run lacks, and gives what was said. each: called after each row."""
    stream = io.StringIO()
    executor = Executor(RaySlots(SETTINGS, slot=slot))
    try:
        executor.probe()
        begun = (path / "manifest.json").exists()
        with Store.resume(path) if begun else Store.create(path, Manifest(name="r", created_at=utc_now())) as store:
            done = store.done()
            todo = [cell for cell in plan(count) if cell.cell_id not in done]
            if todo:
                executor.begin_session(store, SETTINGS.version)
            for run in executor.rows(store, todo, None, Progress(len(todo), stream)):
                each(run)
    finally:
        executor.close()
    return stream.getvalue()


if __name__ == "__main__":
    print(sweep(Path(sys.argv[1]), int(sys.argv[2])))
