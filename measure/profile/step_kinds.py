"""One step of any model: forward, or forward, loss and backward, or all of it with an optimizer's step; or generating.

It announces its phases to `mark`, reads no clock, and can be made again on fake tensors, for its table of operations.

`preserve_state` leaves the model as it was: modes, attributes, gradients, hooks, buffers (running means too) and, where
torch and NumPy draw them, random numbers. With an optimizer the steps are real training: weights, buffers and the
optimizer's state move on by as many steps, and stay so. What a model's code changes outside of its modules is not
undone. `naming_faults` says in which module a model failed.

Runs a step again and again: timed one by one, then under torch's profiler. What Fathom's instrumented step does.

Warm-up is kept and marked, not thrown away: the first steps' times say what warming up costs. Processor time is of
all threads of this process. Not claimed: that a plain step and a profiled one take the same; both are reported.

`time_operations` times a step's operations each alone: a dispatch mode sees each call, and the first of its kind
(operator, sizes, dtypes, other arguments) is run again a few times on copies of its tensors. The sum of counts × times
is the step as these would have it. The step itself goes on as ever: copies take what in-place calls change, random
numbers are put back. Not claimed: that caches are as in the step, nor times of calls that give views alone.
"""

import contextlib
import copy
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from analysis.devices.precisions import Precision
from analysis.operators.registry import kind_of
from measure.fake.mode import FakeMode, fake_copy, fake_mode, quiet
from measure.model.attention_masks import has_masks
from measure.model.state_snapshot import kept_random, preserved_state, summed, tensors
from measure.operations.tracer import Trace, trace_step
from measure.profiler.work_profiles import check_available, kernel_device
from measure.timing.clocks import Clock, clock_for
from measure.timing.profiler_ranges import Ranges, unheard
from results.errors import Inconsistent, Unavailable, one_line
from results.process import collector_off

_CALLS = ("_call_impl", "_wrapped_call_impl")
"""The functions of torch.nn.Module that run a module's forward."""


class ModelFailed(ValueError):
    """The model, its loss or its optimizer raised. The message says in which module, and what that got."""


@contextlib.contextmanager
def preserve_state(model: torch.nn.Module, inputs: Any = (), *, trains: bool) -> Iterator[None]:
    """Run the model inside; afterwards it and its inputs' gradients are as before. trains: buffers stay as they get."""
    gradients = [(tensor, tensor.grad) for tensor in leaves(inputs)]
    buffers = [] if trains else [(b, b.detach().clone()) for b in model.buffers() if not b.is_meta]
    cards = {p.device for p in model.parameters() if p.device.type == "cuda"}
    random = [(card, torch.cuda.get_rng_state(card)) for card in cards]
    try:
        with preserved_state(model), kept_random():
            yield
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
        for tensor, gradient in gradients:
            tensor.grad = gradient
        for card, state in random:
            torch.cuda.set_rng_state(state, card)


def leaves(inputs: Any) -> list[torch.Tensor]:
    """The tensors among them that a backward pass gives a gradient."""
    return [tensor for tensor in tensors(inputs) if tensor.requires_grad and tensor.is_leaf]


@contextlib.contextmanager
def naming_faults(model: torch.nn.Module) -> Iterator[None]:
    """What the model raises inside becomes ModelFailed, from its cause; running out of memory stays what it is."""
    try:
        yield
    except (Unavailable, Inconsistent, ModelFailed):
        raise
    except Exception as fault:
        place = _place(model, fault.__traceback__)
        if isinstance(fault, MemoryError | torch.OutOfMemoryError):
            fault.add_note(place)
            raise
        text = " ".join(str(fault).split())
        raise ModelFailed(f"{place}: {type(fault).__name__}: {text}") from fault


def _place(model: torch.nn.Module, trace: TracebackType | None) -> str:
    """Which module of the model ran when it was raised, and the sizes of what it got."""
    names = {id(module): path for path, module in model.named_modules()}
    found: tuple[Any, Any, Any] | None = None
    while trace is not None:
        frame = trace.tb_frame
        module = frame.f_locals.get("self")
        if frame.f_code.co_name in _CALLS and id(module) in names:
            found = (module, frame.f_locals.get("args", ()), frame.f_locals.get("kwargs", {}))
        trace = trace.tb_next
    if found is None:
        return "the step failed outside of the model's modules"
    module, args, kwargs = found
    path = names[id(module)]
    got = ", ".join(str(tuple(tensor.shape)) for tensor in tensors((args, kwargs))) or "no tensor"
    where = f"module {path} ({type(module).__name__})" if path else f"the model itself ({type(module).__name__})"
    return f"the model failed in {where}, which got {got}"


def paths_below(model: torch.nn.Module, ignored: Any) -> frozenset[str]:
    """Paths of the modules to leave out, and of all below them.

    ignored: classes, their names, or paths. Raises ValueError for what the model does not have.
    """
    named = dict(model.named_modules(remove_duplicate=False))
    roots: set[str] = set()
    for wanted in ignored:
        found = {path for path, module in named.items() if _is_meant(path, module, wanted)}
        if not found:
            name = wanted if isinstance(wanted, str) else getattr(wanted, "__name__", repr(wanted))
            kinds = ", ".join(sorted({type(module).__name__ for module in named.values()}))
            raise ValueError(f"expected a module's class or path to ignore, got {name}; its classes: {kinds}")
        roots |= found
    if "" in roots:
        raise ValueError("expected parts of the model to ignore, got the model itself")
    return frozenset(path for path in named if any(path == root or path.startswith(f"{root}.") for root in roots))


def _is_meant(path: str, module: torch.nn.Module, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return wanted in (path, type(module).__name__)
    return isinstance(wanted, type) and isinstance(module, wanted)


MODES = ("train", "forward", "generate")

Mark = Callable[[str], None]


@dataclass(frozen=True)
class ModelStep:
    """A callable that runs one step. optimizer: it is the caller's own, and its steps are real."""

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    target: Any
    loss: Callable[..., Any] | None
    optimizer: torch.optim.Optimizer | None
    mode: str
    policy: Precision
    device_type: str

    def __call__(self, mark: Mark) -> None:
        if self.mode != "train":
            with torch.no_grad(), self._autocast():
                mark("forward")
                _output = self._run()  # lives until the end, as it would
                mark("end")
            return
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
            self._train(mark)

    def forget(self) -> None:
        """Gradients are gone; where an optimizer is there, its zero_grad does that in the step."""
        if self.optimizer is None:
            for tensor in (*self.model.parameters(), *leaves((self.args, self.kwargs))):
                tensor.grad = None

    def _train(self, mark: Mark) -> None:
        with self._autocast():
            mark("forward")
            output = self._run()
            mark("loss")
            loss = self._loss(output)
        mark("backward")
        loss.backward()
        if self.optimizer is not None:
            mark("optimizer")
            self.optimizer.step()
        mark("end")

    def _run(self) -> Any:
        run = self.model.generate if self.mode == "generate" else self.model
        return run(*self.args, **self.kwargs)  # type: ignore[operator]

    def _loss(self, output: Any) -> torch.Tensor:
        if self.loss is None:
            found: Any = summed(output)
        else:
            found = self.loss(output) if self.target is None else self.loss(output, self.target)
        if not isinstance(found, torch.Tensor) or not found.requires_grad or found.numel() != 1:
            raise ValueError("expected a loss of one number that has a gradient: mode 'forward' needs none")
        return found

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.policy.autocast is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device_type, dtype=getattr(torch, self.policy.autocast))


def traced_on_fakes(step: ModelStep) -> tuple[Trace | None, str]:
    """The operations of the step on fake CPU tensors, of copies; or None, and why it cannot run on those."""
    return on_fakes(lambda mode: _trace_copy(step, mode))


def on_fakes(run: Callable[[FakeMode], Trace]) -> tuple[Trace | None, str]:
    """What `run` traces on fake CPU tensors; or None, and why it cannot."""
    try:
        with quiet():
            return replace(run(fake_mode()), notes=("operations of a step on fake CPU tensors",)), ""
    except Exception as fault:  # noqa: BLE001  a model's own code may raise anything on them; the real step tells
        return None, f"no fake tensors: {type(fault).__name__}: {one_line(str(fault), 200)}"


def _trace_copy(step: ModelStep, mode: FakeMode) -> Trace:
    copied, (args, kwargs, target) = fake_copy(step.model, (step.args, dict(step.kwargs), step.target), mode)
    optimizer = _optimizer_of(step.optimizer, step.model, copied)
    fake = replace(step, model=copied, args=args, kwargs=kwargs, target=target, optimizer=optimizer)
    before = int(optimizer is not None)
    return trace_step(
        fake, model=copied, optimizer=optimizer, inputs=(args, kwargs, target), mode=mode, steps_before=before,
        batch=has_masks(step.model, step.args, step.kwargs),
    )  # fmt: skip


def _optimizer_of(
    optimizer: torch.optim.Optimizer | None, model: torch.nn.Module, copied: torch.nn.Module
) -> torch.optim.Optimizer | None:
    """The same optimizer of the copied model, without any state yet."""
    if optimizer is None:
        return None
    instead = {id(old): new for old, new in zip(model.parameters(), copied.parameters(), strict=True)}
    other = copy.copy(optimizer)
    other.param_groups = [
        {**group, "params": [instead[id(parameter)] for parameter in group["params"]]}
        for group in optimizer.param_groups
    ]
    other.state = defaultdict(dict)
    return other


Step = Callable[[Callable[[str], None]], Any]


@dataclass(frozen=True)
class StepTiming:
    """One step without a profiler, in s. cpu_s: of all threads."""

    time_s: float
    cpu_s: float


@dataclass(frozen=True)
class RecordedSteps:
    """The parts of a recording. profile: torch's `_ProfilerResult` of the profiled steps; None: none was asked for.

    energy_j: that the device's counter rose by over the plain steps; None without one. profiled_cpu_s: processor time
    of all threads, a number a profiled step.
    """

    warm_up: tuple[StepTiming, ...]
    plain: tuple[StepTiming, ...]
    profile: Any
    energy_j: float | None = None
    profiled_cpu_s: tuple[float, ...] = ()


def record(
    step: Step,
    device: str,
    *,
    warm_up: int,
    plain: int,
    profiled: int,
    before: Callable[[], None] = lambda: None,
    energy_j: Callable[[], float | None] = lambda: None,
) -> RecordedSteps:
    """Run the step: warm_up, then plain steps, then profiled ones. before: called before each, untimed.

    energy_j: reads the device's counter. Raises Unavailable where nothing can be profiled.
    """
    cuda = device.startswith("cuda")
    if profiled:
        check_available(cuda)
    clock = clock_for(device)
    with collector_off():
        first = tuple(_time_steps(step, clock, warm_up, before))
        from_j = energy_j()
        then = tuple(_time_steps(step, clock, plain, before))
        to_j = energy_j()
        profile, cpu_s = _profiled(step, clock, profiled, before, cuda) if profiled else (None, ())
    spent_j = None if from_j is None or to_j is None else to_j - from_j
    return RecordedSteps(first, then, profile, spent_j, cpu_s)


def _time_steps(step: Step, clock: Clock, count: int, before: Callable[[], None]) -> Iterator[StepTiming]:
    for _ in range(count):
        before()
        clock.synchronize()
        start_s, start_cpu_s = clock.wall_s(), time.process_time()
        step(unheard)
        clock.synchronize()
        yield StepTiming(clock.wall_s() - start_s, time.process_time() - start_cpu_s)


def _profiled(
    step: Step, clock: Clock, count: int, before: Callable[[], None], cuda: bool
) -> tuple[Any, tuple[float, ...]]:
    profiler = torch.autograd.profiler.profile(use_kineto=True, use_device=kernel_device(cuda))
    ranged = Ranges(True).step(step)
    cpu_s = []
    with profiler:
        for _ in range(count):
            before()
            clock.synchronize()
            start_cpu_s = time.process_time()
            ranged()
            clock.synchronize()
            cpu_s.append(time.process_time() - start_cpu_s)
    return profiler.kineto_results, tuple(cpu_s)


REPEATS = 5


@dataclass(frozen=True)
class LoneOperation:
    """All calls of one kind. time_s: median of one alone; None where it could not be run again."""

    name: str  # "aten.addmm"
    phase: str
    sizes: str
    calls: int
    time_s: float | None


def time_operations(
    step: Callable[[Callable[[str], None]], Any], device: str, repeats: int = REPEATS
) -> list[LoneOperation]:
    """Run the step once under the mode. Raises what the step raises."""
    mode = _Mode(clock_for(device), repeats)
    with mode:
        step(mode.enter)
    return [LoneOperation(*key[:3], calls=mode.calls[key], time_s=mode.times[key]) for key in mode.calls]


class _Mode(TorchDispatchMode):
    def __init__(self, clock: Clock, repeats: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._repeats = repeats
        self._phase = "optimizer"
        self.calls: dict[tuple[str, str, str, str], int] = {}
        self.times: dict[tuple[str, str, str, str], float | None] = {}

    def enter(self, phase: str) -> None:
        self._phase = phase
        unheard(phase)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.replace("::", ".")
        if kind_of(name) != "view":
            sizes, others = _described((args, kwargs))
            key = (name, self._phase, sizes, others)
            if key not in self.calls:
                self.times[key] = self._call_time_s(func, args, kwargs)
            self.calls[key] = self.calls.get(key, 0) + 1
        return func(*args, **kwargs)

    def _call_time_s(self, func: Any, args: Any, kwargs: Any) -> float | None:
        state = torch.get_rng_state()
        times = []
        try:
            for _ in range(self._repeats + 1):
                copied_args, copied_kwargs = tree_map(_copy, args), tree_map(_copy, kwargs)
                self._clock.synchronize()
                start_s = self._clock.wall_s()
                func(*copied_args, **copied_kwargs)
                self._clock.synchronize()
                times.append(self._clock.wall_s() - start_s)
        except RuntimeError:  # an operator that refuses copies of what it was given
            return None
        finally:
            torch.set_rng_state(state)
        return statistics.median(times[1:])


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _described(arguments: Any) -> tuple[str, str]:
    """Sizes and dtypes of the tensors, and the other arguments, as text."""
    leaves = tree_leaves(arguments)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    sizes = " ".join(f"{'x'.join(map(str, t.shape)) or '1'}:{str(t.dtype)[6:]}" for t in tensors)
    return sizes, repr([leaf for leaf in leaves if isinstance(leaf, int | bool | str)])
