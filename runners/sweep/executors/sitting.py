"""The row of sittings.csv for one device on one machine, whoever measures there, and its row of the table of peaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analysis.devices.peaks import kept_row
from results.records.cell import Sitting

if TYPE_CHECKING:
    from runners.workers.devices import ProbeResult


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
