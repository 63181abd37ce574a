"""`python -m runners.nvtx_step CELL WORK`: one work of a cell under NVTX ranges, for `nsys` around it.

What a sweep with `--profile nsys` has Nsight Systems start, and prints. It builds the cell's model as the sweep does,
warms up, and runs one step between cudaProfilerStart and cudaProfilerStop (`measure/profile/recording.py`).
Nothing is timed and nothing is printed, but a line that begins with "error: " where it fails (exit code 1). No command
of its own: run alone it leaves no trace.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Sequence

from results.records.cell import Cell
from runners.cli.exits import FAILED
from runners.cli.output import say
from runners.sweep.nsight import PARENT
from runners.sweep.plan import with_tuples

LOOK_EVERY_S = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """0: the step ran; 1: it did not, and why is one line on stderr. arguments: a cell's parameters as JSON, those at
    their default left out, and one of its works."""
    text, work = sys.argv[1:] if arguments is None else arguments
    if PARENT in os.environ:
        threading.Thread(target=_end_without, args=(int(os.environ[PARENT]),), daemon=True).start()
    try:
        run(Cell(**with_tuples(json.loads(text))), work)
    except Exception as fault:  # noqa: BLE001  the edge: whatever a step raises is written to the log
        from runners.workers.pool import classify

        say(f"error: {classify(fault).reason}")
        return FAILED
    return 0


def run(cell: Cell, work: str) -> None:
    """Build what the cell trains, and run one step of the work to be recorded."""
    from measure.profile.recording import record_step
    from measure.timing.protocols import Protocol
    from runners.sweep import cell as sweep_cell
    from runners.sweep import passes

    prepared = sweep_cell.prepare(cell)
    rules = Protocol.for_device(cell.device)
    subject = passes.Subject(
        cell, prepared.model, prepared.step, prepared.batches, prepared.clock, rules, 0.0, prepared.began_s
    )
    step = passes.steps(subject, work)(prepared.model)
    record_step(step, prepared.model, prepared.clock, work=work, cuda=cell.device.startswith("cuda"))


def _end_without(parent: int) -> None:
    """Ends this process when another one is gone."""
    while True:
        try:
            os.kill(parent, 0)
        except ProcessLookupError:
            os._exit(FAILED)
        except PermissionError:  # it lives, and belongs to somebody else
            pass
        time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    sys.exit(main())
