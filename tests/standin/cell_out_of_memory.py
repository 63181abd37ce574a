"""Run as a program with the stand-in's libraries: one cell, measured again and again, each time with device memory
refused from another allocation on.

Arguments: a folder with plan files named by the number of the allocation. Each is met by a child of this process, which
has torch imported and no context yet. Prints {"number": [status, reason]} as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torchvision  # noqa: F401 - imported once, not by each child

from measure.timing.protocols import Protocol
from results.records import Cell
from runners.sweep import cell as sweep_cell
from runners.workers.worker import classify

CELL = Cell(
    model="resnet18", batch_size=8, precision="fp32", device="cuda", image_size=64, quick=True, methods=("exact",)
)


def measured() -> tuple[str, str]:
    """Status and reason of the cell in this process."""
    try:
        answer = sweep_cell.measure(CELL, Protocol.for_device("cuda", quick=True))
    except Exception as fault:  # noqa: BLE001 - as in a worker: whatever a cell raises becomes its row
        found = classify(fault)
        return found.status, found.reason
    return answer.status, answer.reason


def in_a_child(plan: Path) -> tuple[str, str]:
    """The same in a forked process whose device has this plan."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ |= {"STANDIN_PLAN": str(plan), "STANDIN_STATE": str(plan.with_suffix(".state"))}
        os.write(writer, json.dumps(measured()).encode())
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read()
    _, code = os.waitpid(child, 0)
    return tuple(json.loads(said)) if said else ("crashed", f"the child ended with {code}")


if __name__ == "__main__":
    plans = sorted(Path(sys.argv[1]).glob("*.plan"), key=lambda path: int(path.stem))
    print(json.dumps({plan.stem: in_a_child(plan) for plan in plans}))
