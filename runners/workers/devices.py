"""The device that a command was given: whether it can be one, what it is, and whether others use it.

What it is a worker process is asked (`probe`), since the parent never imports torch. Of torchrun's processes `place_of`
says which one this is, and so which device is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.devices.peaks import kept_row
from analysis.devices.precisions import PRECISIONS
from measure.device.environment import DeviceProperties, Environment, HostFacts
from results.errors import Unavailable
from results.records.cell import Sitting
from runners.cli.exits import Mistake
from runners.cli.progress import passing

PROBE_TIMEOUT_S = 180.0

BUSY_LOAD_RATIO = 0.5
"""Load a core from which others may have slowed down what is timed."""


def check_name(device: str) -> None:
    """Raises Mistake for a device that cannot be one."""
    kind, _, index = device.partition(":")
    numbered = kind == "cuda" and index.isdecimal()
    if kind not in ("auto", "cpu", "cuda") or (":" in device and not numbered):
        raise Mistake(f"--device: expected auto, cpu, cuda or cuda:N, got {device!r}")


def probed_device(worker: Any, device: str) -> ProbeResult:
    """What the device is, asked of a `launch.Worker`. Raises Mistake for one that is not there."""
    from runners.workers.worker import WorkerFault

    passing("looking at the device")
    answer = worker.call("runners.workers.devices:probe", device, timeout_s=PROBE_TIMEOUT_S)
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


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """What a device is, and what runs on it. refused: precision → why it cannot be measured here."""

    device: str
    environment: Environment = field(default_factory=Environment)
    properties: DeviceProperties = field(default_factory=DeviceProperties)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The device's own; "" where it says none."""
        return self.properties.name or ""

    def as_json(self) -> Mapping[str, Any]:
        """The environment and the device as one JSON object."""
        return {**self.environment.as_json(), **vars(self.properties)}


def probe(device: str) -> ProbeResult:
    """The device that "auto" means here, and its facts. Raises ValueError for a device that torch does not see."""
    import torch

    from measure.device import apply_precision, environment

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda"):
        device = _cuda_device(device)
    refused = {}
    for name, policy in PRECISIONS.items():
        try:
            apply_precision.supported(policy, device)
        except Unavailable as reason:
            refused[name] = str(reason)
    return ProbeResult(
        device=device,
        environment=environment.environment(),
        properties=environment.device_facts(device),
        refused=refused,
    )


def _cuda_device(device: str) -> str:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    index = torch.device(device).index or 0
    if index >= count:
        seen = f"{count} of them, numbered from 0" if count else "none; --device cpu measures on the processor"
        raise ValueError(f"--device: expected a CUDA device that torch sees, got {device}; it sees {seen}")
    return f"cuda:{index}" if index else "cuda"


@dataclass(frozen=True)
class Place:
    """A process of torchrun. address: host and port of the store where the ranks meet."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    address: tuple[str, int]

    @property
    def is_alone(self) -> bool:
        """Whether all ranks are on this host."""
        return self.local_world == self.world

    def device(self, kind: str) -> str:
        """Its device of a kind: torchrun gives each process of a host a number, which is its GPU's."""
        return f"cuda:{self.local_rank}" if kind == "cuda" and self.local_rank else kind


def place_of(environ: Mapping[str, str]) -> Place | None:
    """This process's place; None where torchrun did not start it."""
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    names = {"rank": "RANK", "world": "WORLD_SIZE", "local_rank": "LOCAL_RANK", "local_world": "LOCAL_WORLD_SIZE"}
    numbers = {field: int(environ[name]) for field, name in names.items()}
    return Place(**numbers, address=(environ["MASTER_ADDR"], int(environ["MASTER_PORT"])))


def sitting_of(
    name: str, began_at: str, host: str, probed: ProbeResult, preflight: Mapping[str, Any], facts: Mapping[str, Any]
) -> Sitting:
    """A session on a device. began_at: UTC, by the clock of the process that writes the run. facts: what its
    environment says beside what was probed."""
    environment, row = probed.environment, peak_row(probed)
    return Sitting(
        sitting=name,
        started_at=began_at,
        host=host,
        device=probed.device,
        device_name=probed.name,
        device_uuid=probed.properties.uuid_hash or "",
        driver=environment.host.driver or "",
        torch_version=environment.torch.torch or "",
        peak_row="" if row is None else str(row["row_id"]),
        environment={**probed.as_json(), **facts},
        preflight=dict(preflight),
    )


def peak_row(probed: ProbeResult) -> dict[str, Any] | None:
    """A copy of the device's row of analysis/devices/peaks.csv; None where it has none."""
    return kept_row(probed.name, probed.properties.multiprocessors)
