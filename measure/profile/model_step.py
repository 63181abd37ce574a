"""Makes one step of any model (`ModelStep`): forward only, with gradients, with an optimizer's step, or generating.

`ModelStep` takes a model and its inputs, runs a step when called, announces its phases to `mark` and reads no clock.
`traced` returns the step's `Trace`, on fake tensors where the model runs on them. `preserve_state` restores the model
after a context: modes, attributes, gradients, hooks, buffers (running means too) and random numbers (Python's, torch's,
NumPy's). With an optimizer the steps really train: weights, buffers and the optimizer's state keep their new values.
Changes that a model's code makes outside of its modules are not undone. `naming_faults` adds to an exception the module
in which the model failed.
"""

import contextlib
import copy
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import torch

from analysis.devices.precisions import Precision
from measure.model.attention_masks import has_masks
from measure.model.state_snapshot import preserved_random, preserved_state, sum_of_outputs, tensors
from measure.operations.fake_mode import FakeMode, fake_copy, fake_mode, quiet_logs
from measure.operations.tracer import Trace, trace_step
from measure.timing.profiler_ranges import Mark
from results.errors import Inconsistent, Unavailable, one_line


class ModelFailed(ValueError):
    """The model, its loss or its optimizer raised an exception. The message has the module and the sizes of its
    inputs."""


@contextlib.contextmanager
def preserve_state(model: torch.nn.Module, inputs: Any = (), *, trains: bool) -> Iterator[None]:
    """Restore the model and its inputs' gradients after the context. trains: whether buffers keep their new values."""
    gradients = [(tensor, tensor.grad) for tensor in leaves(inputs)]
    buffers = [] if trains else [(b, b.detach().clone()) for b in model.buffers() if not b.is_meta]
    cards = {p.device for p in model.parameters() if p.device.type == "cuda"}
    random = [(card, torch.cuda.get_rng_state(card)) for card in cards]
    try:
        with preserved_state(model), preserved_random():
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
    """Return the tensors among the inputs to which a backward pass gives a gradient."""
    return [tensor for tensor in tensors(inputs) if tensor.requires_grad and tensor.is_leaf]


@contextlib.contextmanager
def naming_faults(model: torch.nn.Module) -> Iterator[None]:
    """Turn exceptions of the model within the context into ModelFailed; an out-of-memory error only gets a note."""
    try:
        yield
    except (Unavailable, Inconsistent, ModelFailed):
        raise
    except Exception as fault:
        location = _location(model, fault.__traceback__)
        if isinstance(fault, MemoryError | torch.OutOfMemoryError):
            fault.add_note(location)
            raise
        text = " ".join(str(fault).split())
        raise ModelFailed(f"{location}: {type(fault).__name__}: {text}") from fault


def _location(model: torch.nn.Module, trace: TracebackType | None) -> str:
    """Return the module of the model that ran when the exception was raised, and the sizes of its inputs."""
    names = {id(module): path for path, module in model.named_modules()}
    innermost: tuple[Any, Any, Any] | None = None
    while trace is not None:
        frame = trace.tb_frame
        module = frame.f_locals.get("self")
        if frame.f_code.co_name in ("_call_impl", "_wrapped_call_impl") and id(module) in names:
            innermost = (module, frame.f_locals.get("args", ()), frame.f_locals.get("kwargs", {}))
        trace = trace.tb_next
    if innermost is None:
        return "the step failed outside of the model's modules"
    module, args, kwargs = innermost
    path = names[id(module)]
    got = ", ".join(str(tuple(tensor.shape)) for tensor in tensors((args, kwargs))) or "no tensor"
    where = f"module {path} ({type(module).__name__})" if path else f"the model itself ({type(module).__name__})"
    return f"the model failed in {where}, which got {got}"


def paths_below(model: torch.nn.Module, ignored: Any) -> frozenset[str]:
    """Return the paths of the modules to leave out, and of all modules in them.

    ignored: classes, their names, or paths. Raises ValueError for one that the model does not have, and for the model
    itself.
    """
    named = dict(model.named_modules(remove_duplicate=False))
    roots: set[str] = set()
    for wanted in ignored:
        is_class = isinstance(wanted, type)
        names = {
            path
            for path, module in named.items()
            if (isinstance(module, wanted) if is_class else wanted in (path, type(module).__name__))
        }
        if not names:
            name = wanted.__name__ if is_class else wanted
            kinds = ", ".join(sorted({type(module).__name__ for module in named.values()}))
            raise ValueError(f"expected a module's class or path to ignore, got {name}; its classes: {kinds}")
        roots |= names
    if "" in roots:
        raise ValueError("expected parts of the model to ignore, got the model itself")
    return frozenset(path for path in named if any(path == root or path.startswith(f"{root}.") for root in roots))


MODES = ("train", "forward", "generate")


@dataclass(frozen=True)
class ModelStep:
    """Runs one step when called. optimizer: the caller's own, which really changes the model. grad: whether modes
    "forward" and "generate" run with gradients enabled."""

    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    target: Any
    loss: Callable[..., Any] | None
    optimizer: torch.optim.Optimizer | None
    mode: str
    policy: Precision
    device_type: str
    grad: bool = False

    def __call__(self, mark: Mark) -> None:
        if self.mode != "train":
            with torch.set_grad_enabled(self.grad), self._autocast():
                mark("forward")
                _output = self._run()  # the output lives until the end of the step, as a caller's would
                mark("end")
            return
        if self.optimizer is not None:
            self.optimizer.zero_grad(set_to_none=True)
        with torch.enable_grad():
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

    def forget(self) -> None:
        """Drop gradients; with an optimizer, the step does so."""
        if self.optimizer is None:
            for tensor in (*self.model.parameters(), *leaves((self.args, self.kwargs))):
                tensor.grad = None

    def _run(self) -> Any:
        run = self.model.generate if self.mode == "generate" else self.model
        return run(*self.args, **self.kwargs)  # type: ignore[operator]

    def _loss(self, output: Any) -> torch.Tensor:
        if self.loss is None:
            loss: Any = sum_of_outputs(output)
        else:
            loss = self.loss(output) if self.target is None else self.loss(output, self.target)
        if not isinstance(loss, torch.Tensor) or not loss.requires_grad or loss.numel() != 1:
            got = f"a tensor of sizes {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ValueError(f"expected a loss of one number with a gradient, got {got}: mode 'forward' needs no loss")
        return loss

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        dtype = self.policy.autocast
        return torch.autocast(self.device_type, getattr(torch, dtype)) if dtype else contextlib.nullcontext()


def traced(step: ModelStep) -> Trace:
    """Return the trace of the step, run on a fake copy of the model; or of a real step, if it is on another device or
    cannot run on fake tensors. A note says which."""
    why = ""
    before = int(step.optimizer is not None)
    if step.device_type == "cpu":
        try:
            with quiet_logs():
                trace = _trace_copy(step, fake_mode(), before)
            return replace(trace, notes=("operations of a step on fake CPU tensors",))
        except Exception as fault:  # noqa: BLE001  a model's code may raise anything on fake tensors
            why = f"no fake tensors: {type(fault).__name__}: {one_line(str(fault), 200)}"
    inputs = (step.args, step.kwargs, step.target)
    trace = trace_step(step, model=step.model, optimizer=step.optimizer, inputs=inputs, steps_before=before)
    return replace(trace, notes=(*trace.notes, *filter(None, [why])))


def _trace_copy(step: ModelStep, mode: FakeMode, steps_before: int) -> Trace:
    copied, (args, kwargs, target) = fake_copy(step.model, (step.args, dict(step.kwargs), step.target), mode)
    optimizer = _optimizer_of(step.optimizer, step.model, copied)
    fake = replace(step, model=copied, args=args, kwargs=kwargs, target=target, optimizer=optimizer)
    return trace_step(
        fake, model=copied, optimizer=optimizer, inputs=(args, kwargs, target), mode=mode, steps_before=steps_before,
        batch=has_masks(step.model, step.args, step.kwargs),
    )  # fmt: skip


def _optimizer_of(
    optimizer: torch.optim.Optimizer | None, model: torch.nn.Module, copied: torch.nn.Module
) -> torch.optim.Optimizer | None:
    """Return an optimizer with the same settings for the copied model, without any state yet."""
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
