"""What can the device at hand really do? Its fastest products and convolutions, from Python in one call.

`python -m runners.ceiling` asks the same, with copies and launches. Not claimed: more than the best of what was tried.
"""

from collections.abc import Sequence
from dataclasses import replace

from analysis.devices.precisions import PRECISIONS
from measure.ceiling.ceilings import ceilings_by_precision
from measure.device.environment import device_facts
from measure.timing.clocks import clock_for
from results.records.cell import Ceiling


def ceilings(device: str = "cpu", precisions: Sequence[str] = ("fp32",), budget_s: float = 20.0) -> list[Ceiling]:
    """Measure the device for `budget_s` seconds: a row for each kernel that was tried.

    precisions: of fp32, tf32, amp-bf16, amp-fp16; what this device refuses is a row with its reason. What they give is
    what `UtilizationMeter(ceilings=…)` divides by. Raises ValueError for an unknown precision or a budget that is not
    above 0.
    """
    unknown = [name for name in precisions if name not in PRECISIONS]
    if unknown or not precisions:
        raise ValueError(f"expected precisions of {', '.join(PRECISIONS)}, got {', '.join(unknown) or 'none'}")
    name = str(device_facts(device).name or "")
    rows = ceilings_by_precision(device, precisions, clock_for(device), budget_s)
    return [replace(row, device_name=name) for row in rows]
