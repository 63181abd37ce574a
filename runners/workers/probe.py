"""What the device is: asked in a worker process, since the parent never imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from analysis.devices.precisions import PRECISIONS
from measure.device.environment import DeviceProperties, Environment
from results.errors import Unavailable


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
