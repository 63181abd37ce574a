"""Meters a training loop: model FLOP/s, MFU, HFU, items/s, J/item and goodput of the steps that really ran.

    meter = UtilizationMeter(model)
    for inputs, targets in loader:
        with meter.step():
            train_one_step(inputs, targets)
    print(meter.summary())

`summary` and `window` return a `MeterSummary`. In the loop the meter never waits for the device, changes a result or
stops a training. A fault in the meter is one warning, and the numbers are absent with that reason. The meter costs a
forward hook and a look at the model per call, a hook on its gradient, and two marks per step. A step's FLOP are those
of its calls, each kind of call counted once. Some steps are observed (`measure/meter/observations.py`), and steps after
the last observation are "unverified". If an observation differs from the count, the steps since the observation before
have no FLOP. Idle time inside a step is part of the step. Not claimed: work on other devices than the model's; a peak
for unknown devices.
"""

import contextlib
import dataclasses
import math
import numbers
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch

from analysis.devices.precisions import PRECISIONS, UNITS
from analysis.utilization.denominators import Denominator, ceiling_of, datasheet
from measure.ceiling import trials
from measure.ceiling.ceilings import ceilings_by_precision
from measure.device.environment import device_facts
from measure.meter.call_costs import DENSE, LATE, CallCosts
from measure.meter.calls import CallKey, ForwardCalls, ModelState, add_passes
from measure.meter.observations import Observations, ObservationVerdict
from measure.meter.step_times import (
    PENDING_CALLS,
    PENDING_STEPS,
    CompletedSteps,
    LoopEnergy,
    MeteredStep,
    Stretch,
    merged_block,
)
from measure.meter.summary import LoopDevice, MeterSummary, summary
from measure.timing.clocks import clock_for
from results.errors import one_line
from results.records.cell import Ceiling
from results.text_files import nearest

__all__ = ["MeterOptions", "MeterSummary", "UtilizationMeter"]

MICRO_BATCHES = (
    "steps wrote no weight: they are micro-batches of an accumulation; one step() belongs around all of them and the "
    "optimizer's step"
)


@dataclass(frozen=True, kw_only=True)
class MeterOptions:
    """Options of a meter; all have a default.

    device: where the loop runs; None: where the model's parameters are. warm_up_steps: number of steps left out of all
    numbers. unit: which unit runs the products, of UNITS; None: from dtypes, autocast and the flags of TF32.
    peak_flop_per_s: the caller's own peak, FLOP/s; None: the datasheet's of this device and unit, or none. ceilings:
    rows of `ceilings.csv` measured on this device (`flopledger.load_run`), for a second utilization; None: on a CPU
    without peak_flop_per_s the first summary measures some in about 2 s, unless this is one of several ranks. loss_of:
    function from the model's outputs to the tensors whose sum is the loss; None: all outputs. children: whether the
    loop may call the model's direct children instead of the model. energy: whether to read the device's energy counter.
    Raises ValueError, in one line, for a value outside its range.
    """

    device: str | torch.device | None = None
    warm_up_steps: int = 3
    unit: str | None = None
    peak_flop_per_s: float | None = None
    ceilings: Iterable[Ceiling] | None = None
    loss_of: Callable[[Any], Any] | None = None
    children: bool = False
    energy: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.warm_up_steps, int) or self.warm_up_steps < 0:
            raise ValueError(f"expected a number of steps from 0 as warm_up_steps, got {self.warm_up_steps!r}")
        if self.unit is not None and self.unit not in UNITS:
            raise ValueError(f"expected one of {', '.join(UNITS)} as unit, got {self.unit!r}")
        peak: Any = self.peak_flop_per_s
        if peak is not None and not (isinstance(peak, numbers.Real) and 0 < float(peak) < math.inf):
            raise ValueError(f"expected FLOP/s above 0 as peak_flop_per_s, got {peak!r}")


class UtilizationMeter:
    """Measures the steps of one training loop. The module's docstring says what it measures and what it does not claim.

    model: the module that the loop calls; it may be compiled or data-parallel. options: a `MeterOptions`; its fields
    may be given as keywords instead. Raises ValueError, in one line, for invalid arguments, TypeError for an unknown
    one.

    >>> import torch, flopledger
    >>> model = torch.nn.Linear(8, 4)
    >>> with flopledger.UtilizationMeter(model, warm_up_steps=0, energy=False) as meter:
    ...     for _ in range(3):
    ...         with meter.step():
    ...             model(torch.randn(2, 8)).sum().backward()
    >>> summary = meter.summary()
    >>> summary.steps, summary.model_flop_per_step  # forward 2 × 2 × 8 × 4, and as much for the weights' gradient
    (3, 256.0)
    """

    def __init__(self, model: torch.nn.Module, options: MeterOptions | None = None, **keywords: Any) -> None:
        given: Any = model
        if not isinstance(given, torch.nn.Module):
            several = "; make a meter for each of several modules" if isinstance(given, (list, tuple)) else ""
            raise ValueError(f"expected the module that the loop calls, got {type(given).__name__}{several}")
        if isinstance(model, torch.jit._script.RecursiveScriptModule):
            raise ValueError("expected a module with forward hooks, got a scripted one: pass a module that calls it")
        known = [field.name for field in dataclasses.fields(MeterOptions)]
        for name in keywords:
            if name not in known:
                near = nearest(name, known, n=1)
                hint = f"; the nearest option is {near[0]!r}" if near else f"; options are {', '.join(known)}"
                raise TypeError(f"UtilizationMeter has no option {name!r}{hint}")
        chosen = dataclasses.replace(options or MeterOptions(), **keywords)
        self._inner = _unwrapped(model)
        held = next(model.parameters(), None)
        try:
            device = torch.device(chosen.device or ("cpu" if held is None else held.device))
        except RuntimeError as fault:
            raise ValueError(f"expected a device such as cpu, cuda or cuda:1, got {chosen.device!r}") from fault
        if str(device) == "cuda":
            device = torch.device("cuda", torch.cuda.current_device())
        self._loop_device = _loop_device(device, chosen.peak_flop_per_s, list(chosen.ceilings or ()))
        self._costs = CallCosts(self._inner, device.type, chosen.unit, chosen.loss_of)
        self._times = CompletedSteps(clock_for(device))
        trained = (
            parameter
            for parameter in self._inner.parameters()
            if parameter.requires_grad and not parameter.is_inference()
        )
        self._step = MeteredStep(self, self._times, next(trained, torch.empty(0)))
        self._calls = ForwardCalls(model, ModelState(self._inner), device.type, self._step, self, chosen.children)
        self._observations = Observations(
            model,
            list(self._calls.modules.values()),
            self._step,
            self._costs,
            lambda fault: self._fault(
                f"steps are not observed any more: {type(fault).__name__}: {one_line(str(fault), 200)}"
            ),
        )
        self._warm, self._run = Stretch(), Stretch()
        self._open = [self._run]  # the run, and after the first call of `window` the current window
        self._warm_up = chosen.warm_up_steps
        self._energy = LoopEnergy(str(device) if chosen.energy else "")
        if not self._warm_up:
            self._energy.start()
        self._version = 0  # of the newest state of the model
        self._faults: dict[str, None] = {}
        self._broken = False
        self._own_peak = chosen.ceilings is None and chosen.peak_flop_per_s is None and device.type == "cpu"
        self._left_pending = 0  # number of pending steps left when steps were last added up
        self._calls.attach()

    def step(self, *inputs: Any, items: float | None = None) -> MeteredStep:
        """Return a context around one optimizer step: every forward and backward pass in it, and the optimizer's.

        inputs: for a step in which no call of the model is seen (a replayed CUDA graph), which is then one forward and
        backward pass of model(*inputs). items: samples or tokens of the step; None: the first dimension of the first
        input of each call. A step that ends with an exception is not counted.
        """
        self._step.inputs, self._step.items = inputs, items
        return self._step

    @property
    def is_open(self) -> bool:
        """Whether a step was begun and has not ended."""
        return self._step.begun is not None

    def begin(self) -> None:
        """Begin a step here, for a loop that cannot use the context of `step`: `update` ends it."""
        with self._guarded():
            self._step.__enter__()

    def update(self, *inputs: Any, items: float | None = None) -> None:
        """End the step of the last `begin`. inputs, items: as in `step`."""
        with self._guarded():
            if self._broken:
                self._observations.drop()
            elif self.is_open:
                self._step.inputs, self._step.items = inputs, items
                self._step.__exit__(None, None, None)
            else:
                self._fault("update() came without begin(): no step was measured")

    def observe_next(self) -> None:
        """Observe the next step, if possible: for a caller that knows which step is the last before a summary."""
        with self._guarded():
            self._observations.request(self._step.number)
            self._step.left = 0

    def window(self) -> MeterSummary:
        """Sum up the steps that completed since the last call of this method. Does not wait for the device."""
        with self._guarded():
            self._take(wait=False)
            self._observations.window(self._step.number)
            self._step.left = 0
            window, self._open = self._open[-1], [self._run, Stretch()]
            return self._summary(window, *self._energy.mean_power(of_window=True))
        return self._no_summary()  # type: ignore[unreachable]

    def summary(self) -> MeterSummary:
        """Sum up all steps after the warm-up. Waits for the last step's end on the device, and counts every shape that
        waits to be counted."""
        with self._guarded():
            self._take(wait=True)
            self._costs.count_waiting(all_of_them=True)
            return self._summary(self._run, *self._energy.mean_power())
        return self._no_summary()  # type: ignore[unreachable]

    def close(self) -> None:
        """Remove the hooks. The numbers stay."""
        with self._guarded():
            self._remove_hooks()
            self._energy.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *fault: object) -> None:
        self.close()

    def meet(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Have a call of a new kind counted."""
        self._step.left = 0
        is_new_state, self._version = key.version > self._version, max(key.version, self._version)
        self._observations.meet(key, is_new_state, self._step.number)
        self._costs.expect(key, args, kwargs, is_new_state)

    def late(self, key: CallKey) -> None:
        """Note a backward pass of a step that has ended, while no step is open."""
        self._fault(LATE)
        for stretch in self._open:
            add_passes(stretch.blocks[-1].passes, {(key, "late"): 1})

    def prepare_step(self) -> bool:
        """Prepare the first step, one that is observed, or one after a step that never ended; return whether to
        begin."""
        if self._broken:
            self._observations.drop()
            return False
        if self.is_open:
            self._fault("a step was begun inside of another one, which was never ended: that one is not counted")
        self._observations.begin(self._step.number)
        return True

    def end_step(self, start: Any, end: Any) -> None:
        """End a step. After some of the steps: count calls, judge the observation, add up completed steps."""
        step, pending = self._step, self._times.pending
        calls = step.calls
        if not calls and step.inputs:
            calls = self._calls.assumed(step.inputs)
        observed, is_longer = self._observations.end()
        pending.append((start, end, calls, step.items, is_longer))
        if self._costs.waiting:
            pending.append(self._costs.count_waiting({call.key for call in calls} if observed else ()))
        verdict = self._observations.judge(observed, step.number) if observed else None
        if verdict is not None:
            pending.append(verdict)
            if verdict.has_changed:
                self._calls.state.renumber()
        if len(pending) - self._left_pending >= PENDING_STEPS or len(calls) > PENDING_CALLS or self._warm_up > 0:
            self._take(wait=False)
            self._left_pending = len(pending)
        # number of next steps that need nothing before or after them
        before = self._observations.plan(step.number)
        step.left = 0 if self._warm_up > 0 or self._costs.waiting else min(before, PENDING_STEPS - 1)

    def drop_step(self) -> None:
        """Drop the open step, which ended with an exception or was never begun."""
        self._calls.drop()
        self._observations.drop()

    def _take(self, wait: bool) -> None:
        """Add completed steps to the run and the window."""
        for step in self._times.completed(wait):
            if isinstance(step, ObservationVerdict):
                for stretch in (self._warm, *self._open):
                    stretch.observed(step)
                continue
            if self._warm_up > 0:
                self._warm_up -= 1
                self._warm.add(step)
                if self._warm_up == 0:
                    self._energy.start()
                continue
            for stretch in self._open:
                stretch.add(step)

    def _summary(self, stretch: Stretch, watts: float | None, reason: str) -> MeterSummary:
        keys = {key for block in stretch.blocks for key, _ in (*block.passes, *block.observed_passes)}
        units = self._costs.flop(merged_block(self._run.blocks).passes).by_unit[DENSE]
        may_measure = trials.OWN_PEAK_S and not self.is_open and not torch.distributed.is_initialized()
        if self._own_peak and units and may_measure:
            self._own_peak = False
            self._measure_peak([name for name, precision in PRECISIONS.items() if precision.matmul_unit in units])
        observations = self._observations
        notes = (*self._faults, *filter(None, [reason]), *observations.notes(keys), *self._micro_batches(stretch))
        figures = summary(stretch, self._costs, self._loop_device, watts, notes)
        unverified = min(figures.steps, self._step.number - observations.last)
        if not unverified:
            return figures
        return dataclasses.replace(
            figures,
            unverified_steps=unverified,
            unverified_since_step=observations.last,
            unverified_reason=observations.reason,
        )

    def _measure_peak(self, precisions: Sequence[str]) -> None:
        """Measure the fastest kernel of this CPU, whose peak no datasheet has. The loop's times leave this time out."""
        began_s, device = time.perf_counter(), self._loop_device.device
        rows = ceilings_by_precision(device, precisions, clock_for(device), trials.OWN_PEAK_S)
        self._loop_device = dataclasses.replace(self._loop_device, ceiling=ceiling_of(rows))
        busy = {row.reason.removeprefix("note: ") for row in rows if row.status == "ok" and row.reason}
        self._faults |= dict.fromkeys(f"of the measured peak: {reason}" for reason in sorted(busy)[:1])
        self._times.pending.append(time.perf_counter() - began_s)

    def _no_summary(self) -> MeterSummary:
        """Return a summary without numbers, for a failed summary."""
        return MeterSummary(
            steps=0,
            device=self._loop_device.device,
            device_name=self._loop_device.device_name,
            warnings=tuple(self._faults),
        )

    def _micro_batches(self, stretch: Stretch) -> tuple[str, ...]:
        """Return a note if steps wrote no weight (micro-batches), or have several backward passes."""
        unchanged, number, whole = self._step.unchanged, self._step.number, merged_block(stretch.blocks)
        if number > unchanged >= number - unchanged:
            return (f"{unchanged} of {number} {MICRO_BATCHES}",)
        backward = [n for (key, what), n in whole.passes.items() if what == "backward" and not key.module]
        passes = sum(backward) / (whole.steps or 1)
        note = f"a step has {passes:.3g} backward passes of the model: its numbers are of all of them"
        return (note,) if passes > 1 else ()

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as fault:  # noqa: BLE001
            self.fail(fault)

    def _fault(self, reason: str) -> None:
        """Warn of a fault, once for each reason."""
        if reason not in self._faults:
            self._faults[reason] = None
            warnings.warn(f"flopledger: {reason}", RuntimeWarning, stacklevel=4)

    def fail(self, fault: BaseException) -> None:
        """Stop after a fault in here: there are no more numbers, and the loop goes on. Only the first fault is
        reported."""
        if self._broken:
            return
        self._broken, self._step.left = True, 0
        with contextlib.suppress(Exception):
            self._calls.drop()
        self._remove_hooks()
        self._fault(f"the meter stopped: {type(fault).__name__}: {one_line(str(fault), 200)}")

    def _remove_hooks(self) -> None:
        """Remove each hook, even if removing another one fails."""
        for remove in (self._calls.detach, self._observations.drop):
            with contextlib.suppress(Exception):
                remove()


def _unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """Return the module inside the wrappers of torch.compile and of data parallelism."""
    if isinstance(model, torch._dynamo.OptimizedModule):
        return _unwrapped(model._orig_mod)
    if isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        return _unwrapped(model.module)
    return model


def _loop_device(device: torch.device, peak_flop_per_s: float | None, rows: list[Ceiling]) -> LoopDevice:
    facts = device_facts(str(device))
    name = str(facts["name"] or device)
    if peak_flop_per_s is not None:
        peak = Denominator("user", dict.fromkeys(UNITS, peak_flop_per_s), dict.fromkeys(UNITS, "peak_flop_per_s"))
    else:
        peak = datasheet(name, str(device), facts["multiprocessors"])
    wrong = {row.device_name for row in rows if row.device_name and row.device_name != name}
    wrong |= {row.device for row in rows if row.device.partition(":")[0] != device.type}
    if wrong:
        raise ValueError(f"expected ceilings of {name!r}, got those of {', '.join(map(repr, sorted(wrong)))}")
    return LoopDevice(str(device), name, peak, ceiling_of(rows))
