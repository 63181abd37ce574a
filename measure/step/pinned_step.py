"""What a training step has, to be held to what it had: exact counts, and its time against a baseline in a file.

For tests (`flopledger/pytest_plugin.py`). Counts are of the step's table on fake tensors, the quantities of
`runners.report --fail-if`; they have no noise, and any difference is one. Times are of this process against those of
another one, so that what fresh processes differ by (the margin) is added to the interval. Not claimed: that a baseline
of another machine says anything of time here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from analysis.footprint.step.live_bytes import peak_bytes
from analysis.operators import registry
from analysis.stats.comparison import ALARM_RATIO, MARGIN_RATIO, interval_at
from measure.model.run import arguments
from measure.step.step_trace import Optimizer, step_trace
from measure.timing.blocks import measure_blocks, warm_up
from measure.timing.clocks import clock_for
from measure.timing.protocols import Protocol
from measure.timing.stopping import step_time_s
from results.text_files import json_value, read_text

EXACT = ("flop", "bytes", "launches", "memory")


@dataclass(frozen=True)
class PinnedStep:
    """Counts of one step, and how to run it.

    flop: of convolutions and products, one multiply-add is 2. bytes: read and written if nothing is fused. launches:
    calls of operators that move data. memory: bytes alive at most, of weights, gradients, activations and the
    optimizer's state.
    """

    flop: int
    bytes: int
    launches: int
    memory: int
    run: Callable[[], object]
    device: str

    def counts(self) -> dict[str, int]:
        """The exact quantities by name."""
        return {name: getattr(self, name) for name in EXACT}

    def differences(self, kept: Mapping[str, Any]) -> list[str]:
        """A line for each quantity that is not what was kept."""
        found = []
        for name, value in self.counts().items():
            before = kept.get(name)
            if before != value:
                change = f" ({value / before - 1:+.2%})" if isinstance(before, int) and before else ""
                found.append(f"{name}: {before} in the baseline, {value} now{change}")
        return found

    def block_times_s(self) -> list[float]:
        """Mean step times of blocks, warmed up, by the quick rules. Raises Unavailable where nothing can be timed."""
        clock, protocol = clock_for(self.device), Protocol.for_device(self.device, quick=True)
        warm = warm_up(self.run, clock, protocol)
        return [step_time_s(block) for block in measure_blocks(self.run, clock, protocol, warm.step_s).blocks]


def pinned_step(
    model: torch.nn.Module,
    inputs: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    optimizer: Optimizer | None = None,
    loss_of: Callable[[Any], Any] | None = None,
    run: Callable[[], object] | None = None,
) -> PinnedStep:
    """Counts forward, backward and optimizer step of model(*inputs, **kwargs).

    The arguments are those of `flopledger.count`. run: what is timed; None: the same step on the model and inputs as
    they are. Raises ValueError for what is no model, Unavailable where the step cannot be traced.
    """
    trace = step_trace(model, inputs, kwargs, optimizer, loss_of)
    costs = [registry.cost(operation) for operation in trace.operations]
    device = next((str(parameter.device) for parameter in model.parameters()), "cpu")
    return PinnedStep(
        flop=sum(int(cost.model_flop) for cost in costs),
        bytes=sum(int(cost.moved_bytes) for cost in costs),
        launches=sum(bool(cost.moved_bytes) for cost in costs),
        memory=int(peak_bytes(trace.operations, trace.storages)),
        run=run or _step(model, inputs, kwargs or {}, optimizer, loss_of),
        device=device,
    )


def slower_line(before_s: Sequence[float], now_s: Sequence[float], limit_ratio: float, device: str) -> str:
    """Why this is slower than before by more than the limit; empty where that cannot be said."""
    margin = MARGIN_RATIO.get(device.partition(":")[0], max(MARGIN_RATIO.values()))
    found = interval_at([before_s], [now_s], ALARM_RATIO)
    if found is None or not found[0] / (1 + margin) > 1 + limit_ratio:
        return ""
    low, high = found[0] / (1 + margin), found[1] * (1 + margin)
    words = f"slower by {low - 1:.1%} to {high - 1:.1%}, more than {limit_ratio:.1%}"
    return f"{words} (95 %, with the margin of {margin:.0%})"


def read_baseline(path: Path, name: str) -> dict[str, Any] | None:
    """What a file keeps of a step; None for nothing. Raises ValueError for a file that is no baseline."""
    return _entries(path).get(name)


def write_baseline(path: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Puts one step's entry into the file, beside those that are there. Raises ValueError, OSError."""
    entries = {**_entries(path), name: dict(entry)}
    path.write_text(json.dumps(dict(sorted(entries.items())), indent=1) + "\n", encoding="utf-8")


def _entries(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    try:
        found = json_value(read_text(path))
    except ValueError as fault:
        raise ValueError(f"expected a baseline in {path}, got no JSON: {fault}") from fault
    if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
        raise ValueError(f"expected a baseline in {path}: an object of steps by name")
    return found


def _step(
    model: torch.nn.Module,
    inputs: Any,
    kwargs: Mapping[str, Any],
    optimizer: Optimizer | None,
    loss_of: Callable[[Any], Any] | None,
) -> Callable[[], object]:
    """The step itself, on real tensors; an optimizer that is no instance is left out of its time."""
    given = arguments(inputs)
    stepping = optimizer if isinstance(optimizer, torch.optim.Optimizer) else None

    def run() -> None:
        model.zero_grad(set_to_none=True)
        outputs = model(*given, **kwargs)
        _sum(outputs if loss_of is None else loss_of(outputs)).backward()
        if stepping is not None:
            stepping.step()

    return run


def _sum(outputs: Any) -> torch.Tensor:
    """A number with a gradient, of any outputs. Raises ValueError where none has one."""
    if isinstance(outputs, torch.Tensor):
        return outputs.sum()
    parts = outputs.values() if isinstance(outputs, Mapping) else outputs if isinstance(outputs, (tuple, list)) else ()
    tensors = [each for each in parts if isinstance(each, torch.Tensor) and each.requires_grad]
    if not tensors:
        raise ValueError(f"expected outputs with a gradient, got {type(outputs).__name__}: pass loss_of, or run")
    return torch.stack([each.sum() for each in tensors]).sum()
