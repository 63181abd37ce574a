"""A meter for a training loop: model FLOP/s, MFU, HFU, items/s, J/item and goodput of the steps that really ran.

    meter = UtilizationMeter(model)
    for inputs, targets in loader:
        with meter.step():
            train_one_step(inputs, targets)
    print(meter.summary())

It never waits for the device, never changes a result, and never stops a training: a fault in here is one warning, and
the numbers are absent with that reason. What it costs: a forward hook, two marks and some additions a step.

Not claimed: what ran on other devices than the model's; the time inside of a step that the device did not work, which
is part of the step; any default for an unknown device or operation.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

import torch

from analysis.devices.precisions import UNITS
from analysis.devices.telemetry import Reading
from analysis.utilization.denominators import Denominator, ceiling_of, datasheet
from measure.device.environment import device_facts
from measure.device.telemetry import open_device
from measure.meter.call_costs import CallCosts
from measure.meter.forward_calls import ForwardCalls
from measure.meter.product_dtypes import ProductDtypes
from measure.meter.step_times import Block, CpuMarks, CudaMarks, StepBlocks, StepTimes
from measure.meter.summary import LoopDevice, MeterSummary, summary
from results.errors import Unavailable, one_line
from results.records import Ceiling

__all__ = ["MeterSummary", "UtilizationMeter"]

COUNTING_BUDGET_RATIO = 0.01


class UtilizationMeter:
    """Measures the steps of one training loop. See the module for what it gives and does not claim.

    model: what the loop calls: a module, a compiled or a data-parallel one. optimizer: checked, not used.
    device: where it runs; None: where the model's parameters are. warm_up_steps: steps left out of all numbers.
    unit: which unit runs the products, of UNITS; None: from dtypes, autocast and the flags of TF32.
    peak_flop_per_s: the caller's own peak, FLOP/s; None: the datasheet's of this device and unit, or none.
    ceilings: rows of `ceilings.csv` measured on this device (`flopledger.load_run`), for a second utilization.
    loss_of: the model's outputs → what the loss is made of; None: all of them. children: whether the loop may call the
    model's direct children instead of the model. energy: whether to read the device's energy counter.
    Raises ValueError, in one line, for arguments that cannot be right.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        device: str | torch.device | None = None,
        warm_up_steps: int = 3,
        unit: str | None = None,
        peak_flop_per_s: float | None = None,
        ceilings: Iterable[Ceiling] = (),
        loss_of: Callable[[Any], Any] | None = None,
        children: bool = False,
        energy: bool = True,
    ) -> None:
        _check(model, optimizer, warm_up_steps, unit, peak_flop_per_s)
        self._inner = _unwrapped(model)
        self._device = _device(model, device)
        self._place = _place(self._device, peak_flop_per_s, list(ceilings))
        self._costs = CallCosts(self._inner, self._device.type, unit, COUNTING_BUDGET_RATIO, loss_of)
        self._calls = ForwardCalls(model, self._device.type, self._costs.expect, self._fail, children)
        self._dtypes = ProductDtypes(self._inner, self._costs.output_dtypes)
        self._probing = self._inner is model and unit is None
        self._times = StepTimes(CudaMarks(self._device) if self._device.type == "cuda" else CpuMarks())
        self._run, self._window = StepBlocks(), StepBlocks()
        self._warm_up = warm_up_steps
        self._energy = _Energy(str(self._device)) if energy else None
        self._parts = _parts(self._inner)
        self._faults: dict[str, None] = {}
        self._open = self._broken = False
        self._step = _Step(self)
        self._calls.attach()

    def step(self, *inputs: Any, items: float | None = None) -> _Step:
        """A context around one optimizer step: every forward and backward pass in it, and the optimizer's.

        inputs: only looked at where no call of the model is seen (a replayed CUDA graph): then the step is one forward
        and backward pass of model(*inputs). items: samples or tokens of the step; None: the first dimension of the
        first input of each call. A step that ends with an exception is not counted.
        """
        self._step.inputs, self._step.items = inputs, items
        return self._step

    def window(self) -> MeterSummary:
        """Of the steps that completed since the last call of this method. Does not wait for the device."""
        with self._guarded():
            self._take(wait=False)
            self._check_parts()
        blocks, self._window = self._window.blocks, StepBlocks()
        return self._summary(blocks, self._energy.since_window() if self._energy else None)

    def summary(self) -> MeterSummary:
        """Of all steps after the warm-up. Waits for the device, and counts every shape that waits to be counted."""
        with self._guarded():
            self._take(wait=True)
            self._count(all_of_them=True)
        return self._summary(self._run.blocks, self._energy.since_start() if self._energy else None)

    def close(self) -> None:
        """Remove the hooks. The numbers stay."""
        self._calls.detach()
        self._dtypes.detach()
        if self._energy:
            self._energy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    def _begin(self) -> None:
        if self._broken:
            return
        try:
            if self._open:
                self._fault("a step was begun inside of another one, which was never ended: that one is not counted")
            self._open = True
            if self._probing:
                self._dtypes.attach()
            self._calls.begin()
            self._times.begin()
        except Exception as fault:  # noqa: BLE001  the user's training goes on whatever happens in here
            self._fail(fault)

    def _end(self, inputs: tuple[Any, ...], items: float | None) -> None:
        if self._broken or not self._open:
            return
        try:
            self._open = False
            if self._probing:
                self._dtypes.detach()
                self._probing = False
            samples = self._calls.samples
            passes = self._calls.end()
            if not passes and inputs:
                passes, samples = self._calls.assumed(inputs)
            self._times.end(passes, samples if items is None else items)
            self._times.excluded_s += self._count()
            self._take(wait=False)
        except Exception as fault:  # noqa: BLE001
            self._fail(fault)

    def _drop(self) -> None:
        self._open = False
        self._calls.end()
        self._times.drop()
        self._dtypes.detach()

    def _take(self, wait: bool) -> None:
        """Completed steps into the run and the window."""
        for step in self._times.completed(wait):
            if self._warm_up > 0:
                self._warm_up -= 1
                if self._warm_up == 0 and self._energy:
                    self._energy.start()
                continue
            self._run.add(step)
            self._window.add(step)

    def _count(self, all_of_them: bool = False) -> float:
        """Count calls that wait, without our own hook on the copy of the model; seconds that the host took."""
        if not self._costs.waiting:
            return 0.0
        self._calls.detach()
        try:
            return self._costs.count_waiting(all_of_them)
        finally:
            self._calls.attach()

    def _check_parts(self) -> None:
        """Notice parameters that were frozen, freed or replaced: calls from here on are counted anew."""
        now = _parts(self._inner)
        if now != self._parts:
            self._parts = now
            self._count(all_of_them=True)
            self._calls.model_changed()
            self._costs.model_changed()

    def _summary(self, blocks: list[Block], energy: tuple[float | None, str] | None) -> MeterSummary:
        watts, reason = energy or (None, "")
        reasons = [*self._faults, *([reason] if reason else [])]
        return summary(blocks, self._costs, self._place, watts, reasons)

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as fault:  # noqa: BLE001
            self._fail(fault)

    def _fault(self, reason: str) -> None:
        """Warn, once for each reason."""
        if reason not in self._faults:
            self._faults[reason] = None
            warnings.warn(f"flopledger: {reason}", RuntimeWarning, stacklevel=4)

    def _fail(self, fault: BaseException) -> None:
        """A fault in here: no more numbers from now on, and the loop goes on."""
        self._broken = True
        with contextlib.suppress(Exception):
            self._drop()
            self._calls.detach()
        self._fault(f"the meter stopped: {type(fault).__name__}: {one_line(str(fault), 200)}")


class _Step:
    """The context of one step; one object for all steps of a meter."""

    __slots__ = ("_meter", "inputs", "items")

    def __init__(self, meter: UtilizationMeter) -> None:
        self._meter = meter
        self.inputs: tuple[Any, ...] = ()
        self.items: float | None = None

    def __enter__(self) -> None:
        self._meter._begin()

    def __exit__(
        self, kind: type[BaseException] | None, _fault: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._meter._end(self.inputs, self.items)
        else:
            self._meter._drop()
        self.inputs = ()


class _Energy:
    """The device's energy counter, read at the ends of windows. Its reason says why there is none."""

    def __init__(self, device: str) -> None:
        self._telemetry: Any = None
        self._reason = ""
        self._start: Reading | None = None
        self._last: Reading | None = None
        try:
            self._telemetry = open_device(device)
        except Unavailable as reason:
            self._reason = f"no energy: {reason}"

    def start(self) -> None:
        self._start = self._last = self._read()

    def since_start(self) -> tuple[float | None, str]:
        return self._since(self._start)

    def since_window(self) -> tuple[float | None, str]:
        watts, reason = self._since(self._last)
        self._last = self._read()
        return watts, reason

    def close(self) -> None:
        if self._telemetry is not None:
            self._telemetry.close()
            self._telemetry = None

    def _since(self, before: Reading | None) -> tuple[float | None, str]:
        """Mean power in W since a reading, and why there is none."""
        now = self._read()
        if now is None or before is None or not now.time_s > before.time_s:
            return None, self._reason or "no energy: no step was completed after the warm-up"
        if now.energy_j is None or before.energy_j is None or now.energy_j < before.energy_j:
            return None, "no energy: the device has no energy counter that goes on"
        return (now.energy_j - before.energy_j) / (now.time_s - before.time_s), ""

    def _read(self) -> Reading | None:
        if self._telemetry is None:
            return None
        try:
            reading: Reading = self._telemetry.poll()
            return reading
        except Unavailable as reason:
            self._reason = f"no energy: {reason}"
            return None


def _check(model: Any, optimizer: Any, warm_up_steps: Any, unit: Any, peak_flop_per_s: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise ValueError(f"expected the module that the loop calls, got {type(model).__name__}")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"expected a torch.optim.Optimizer or None as optimizer, got {type(optimizer).__name__}")
    if not isinstance(warm_up_steps, int) or warm_up_steps < 0:
        raise ValueError(f"expected a number of steps from 0 as warm_up_steps, got {warm_up_steps!r}")
    if unit is not None and unit not in UNITS:
        raise ValueError(f"expected one of {', '.join(UNITS)} as unit, got {unit!r}")
    if peak_flop_per_s is not None and not (peak_flop_per_s > 0 and math.isfinite(peak_flop_per_s)):
        raise ValueError(f"expected FLOP/s above 0 as peak_flop_per_s, got {peak_flop_per_s!r}")


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The module inside of torch.compile's and data parallelism's."""
    wrappers = (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)
    while True:
        if isinstance(model, torch._dynamo.OptimizedModule):
            model = model._orig_mod
        elif isinstance(model, wrappers):
            model = model.module
        else:
            return model


def _device(model: torch.nn.Module, device: str | torch.device | None) -> torch.device:
    if device is None:
        held = next(model.parameters(), None)
        device = held.device if held is not None else "cpu"
    place = torch.device(device)
    if str(place) == "cuda":
        return torch.device("cuda", torch.cuda.current_device())
    return place


def _place(device: torch.device, peak_flop_per_s: float | None, ceilings: list[Ceiling]) -> LoopDevice:
    facts = device_facts(str(device))
    name = str(facts.name or device)
    if peak_flop_per_s is not None:
        peak = Denominator("user", dict.fromkeys(UNITS, peak_flop_per_s), dict.fromkeys(UNITS, "peak_flop_per_s"))
    else:
        peak = datasheet(name, str(device), facts.multiprocessors)
    wrong = {row.device_name for row in ceilings if row.device_name and row.device_name != name}
    if wrong:
        raise ValueError(f"expected ceilings of {name!r}, got those of {', '.join(map(repr, sorted(wrong)))}")
    return LoopDevice(str(device), name, peak, ceiling_of(ceilings))


def _parts(model: torch.nn.Module) -> int:
    """Changes when parameters are frozen, freed, added or replaced."""
    return hash(tuple([(id(each), each.requires_grad) for each in model.parameters()]))
