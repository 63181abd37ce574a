"""What the caller of a meter may choose, checked where it enters."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from analysis.devices.precisions import UNITS
from results.records.cell import Ceiling
from results.text_files import nearest


@dataclass(frozen=True, kw_only=True)
class MeterOptions:
    """Options of a meter; all have a default.

    device: where the loop runs; None: where the model's parameters are.
    warm_up_steps: steps left out of all numbers. unit: which unit runs the products, of UNITS; None: from dtypes,
    autocast and the flags of TF32. peak_flop_per_s: the caller's own peak, FLOP/s; None: the datasheet's of this device
    and unit, or none. ceilings: rows of `ceilings.csv` measured on this device (`flopledger.load_run`), for a second
    utilization; None: on a CPU the first summary measures some in about 2 s, unless this is one of several ranks.
    loss_of: the model's outputs → what the loss is made of; None: all of them. children: whether the loop may call the
    model's direct children instead of the model. energy: whether to read the device's energy counter.
    watch: whether to observe what some steps really run and hold the count against it: the first ones, those after a
    change, and others drawn at random.
    hook_every: in one of how many steps, in the mean, one is observed at random; None: as long as that takes less than
    a thousandth of the time. The time of a step that is observed is in no number.
    Raises ValueError, in one line, for what cannot be right.
    """

    device: str | torch.device | None = None
    warm_up_steps: int = 3
    unit: str | None = None
    peak_flop_per_s: float | None = None
    ceilings: Iterable[Ceiling] | None = None
    loss_of: Callable[[Any], Any] | None = None
    children: bool = False
    energy: bool = True
    watch: bool = True
    hook_every: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.warm_up_steps, int) or self.warm_up_steps < 0:
            raise ValueError(f"expected a number of steps from 0 as warm_up_steps, got {self.warm_up_steps!r}")
        if self.hook_every is not None and (not isinstance(self.hook_every, int) or self.hook_every < 1):
            raise ValueError(f"expected a number of steps from 1 as hook_every, got {self.hook_every!r}")
        if self.unit is not None and self.unit not in UNITS:
            raise ValueError(f"expected one of {', '.join(UNITS)} as unit, got {self.unit!r}")
        peak = self.peak_flop_per_s
        if peak is not None and not (peak > 0 and math.isfinite(peak)):
            raise ValueError(f"expected FLOP/s above 0 as peak_flop_per_s, got {peak!r}")


def options_with(options: MeterOptions | None, keywords: Mapping[str, Any]) -> MeterOptions:
    """The options with these fields changed. Raises TypeError for a name that is none, with the nearest that is one."""
    known = [field.name for field in dataclasses.fields(MeterOptions)]
    for name in keywords:
        if name not in known:
            near = nearest(name, known, n=1)
            hint = f"; the nearest option is {near[0]!r}" if near else f"; options are {', '.join(known)}"
            raise TypeError(f"UtilizationMeter has no option {name!r}{hint}")
    return dataclasses.replace(options or MeterOptions(), **keywords)
