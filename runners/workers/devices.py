"""The device that a command was given: whether it can be one, what it is, and whether others use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runners.cli.exits import Mistake
from runners.cli.progress import passing

if TYPE_CHECKING:
    from measure.device.environment import HostFacts
    from runners.workers.probe import ProbeResult

PROBE_TIMEOUT_S = 180.0

BUSY_LOAD_RATIO = 0.5
"""Load a core from which others may have slowed down what is timed."""


def check_name(device: str) -> None:
    """Raises Mistake for a device that cannot be one."""
    kind, _, index = device.partition(":")
    numbered = kind == "cuda" and index.isdecimal()
    if kind not in ("auto", "cpu", "cuda") or (":" in device and not numbered):
        raise Mistake(f"--device: expected auto, cpu, cuda or cuda:N, got {device!r}")


def probe(worker: Any, device: str) -> ProbeResult:
    """What the device is, asked of a `launch.Worker`. Raises Mistake for one that is not there."""
    from runners.workers.fault import WorkerFault

    passing("looking at the device")
    answer = worker.call("runners.workers.probe:probe", device, timeout_s=PROBE_TIMEOUT_S)
    if isinstance(answer, WorkerFault):
        raise Mistake(answer.reason)
    found: ProbeResult = answer
    return found


def busy(device: str, host: HostFacts, so: str) -> list[str]:
    """A line where others used this processor as the command began. so: what that means for its numbers."""
    load, cores = host.load_1min, host.cpu_usable or 1
    if not device.startswith("cpu") or load is None or load <= BUSY_LOAD_RATIO * cores:
        return []
    return [f"the load was {load:.1f} on {cores} cores when this began: {so}"]
