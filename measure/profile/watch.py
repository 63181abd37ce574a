"""Forward passes that somebody else runs, profiled as they happen: in a training loop, between `start` and `stop`.

Two hooks on the model itself open and close a range around each of its forwards, while torch's profiler records. The
exact operations follow from the inputs that the hooks saw: those of a forward on fake copies of them (on a GPU, and
where fakes cannot run it, of one more forward on the real ones). Each forward's time is its own; forwards whose inputs
have other sizes than most, and those that raised, are left out and reported.

Not claimed: what runs outside of the model's forward (loss, backward, optimizer) is not in it. Until `stop` the first
inputs are kept, and what the forward changes in them in place is changed.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from measure.fake.mode import FakeMode, fake_copy
from measure.model.state_snapshot import tensors
from measure.operations.tracer import Trace, trace_step
from measure.profile.step_kinds import naming_faults, on_fakes, paths_below, preserve_state
from measure.profile.step_profile import StepDescription, batch_size_of, expect_module, table_of, world_size
from measure.profiler.module_ranges import is_compiled
from measure.profiler.work_profiles import check_available, kernel_device
from measure.timing.clocks import clock_for
from measure.timing.profiler_ranges import DOMAIN
from results.records.answers import StepProfile


@dataclass(frozen=True)
class _Forward:
    """What forwards with the same operations have in common, and the arguments of the first of them."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    grad: bool
    autocast: torch.dtype | None

    @property
    def form(self) -> tuple[Any, ...]:
        """Equal for two forwards with the same operations."""
        return (self.grad, self.autocast, *((tuple(t.shape), t.dtype) for t in tensors((self.args, self.kwargs))))

    def trace(self, model: torch.nn.Module, device_type: str, mode: FakeMode | None = None) -> Trace:
        """The operations of one such forward; in this mode on fake copies, else on the real arguments."""
        args, kwargs = self.args, dict(self.kwargs)
        if mode is not None:
            model, (args, kwargs) = fake_copy(model, (args, kwargs), mode)

        def step(mark: Callable[[str], None]) -> None:
            with (
                torch.set_grad_enabled(self.grad),
                contextlib.nullcontext() if self.autocast is None else torch.autocast(device_type, self.autocast),
            ):
                mark("forward")
                _output = model(*args, **kwargs)
                mark("end")

        return trace_step(step, model=model, inputs=(args, kwargs), mode=mode, steps_before=0)


class ForwardWatch:
    """Profiles the forwards of a model from `start` to `stop`. Raises ValueError where it is used out of order."""

    def __init__(self, model: torch.nn.Module, precision: str = "fp32") -> None:
        if is_compiled(expect_module(model)):
            raise ValueError("expected a model that is not compiled: its modules and operations are not called")
        self._model = model
        self._precision = precision
        self._handles: list[Any] = []
        self._open: list[contextlib.AbstractContextManager[Any]] = []
        self._firsts: dict[tuple[Any, ...], _Forward] = {}
        self._forms: list[tuple[Any, ...] | None] = []  # of each forward; None: it raised
        self._running: _Forward | None = None
        self._handled: BaseException | None = None  # the exception that the caller was handling as it began
        self._depth = 0
        self._profiler: Any = None
        self._clock = clock_for(self.device)

    @property
    def running(self) -> bool:
        """Whether it has been started and not stopped."""
        return self._profiler is not None

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        held = [*self._model.parameters(), *self._model.buffers()]
        return next((tensor.device for tensor in held), torch.device("cpu"))

    def start(self) -> None:
        """Listen from now on."""
        if self.running:
            raise ValueError("the profile is started already: stop it first")
        cuda = self.device.type == "cuda"
        check_available(cuda)
        self._forget()
        self._profiler = torch.autograd.profiler.profile(use_kineto=True, use_device=kernel_device(cuda))
        self._profiler.__enter__()
        self._handles = [
            self._model.register_forward_pre_hook(self._begins, prepend=True, with_kwargs=True),
            self._model.register_forward_hook(self._ends, always_call=True),
        ]

    def stop(self, ignore_modules: Collection[type | str] = ()) -> StepProfile:
        """Stop listening, and the profile of what was heard. Raises ValueError if that is nothing."""
        recording = self._stopped()
        forms = Counter(form for form in self._forms if form is not None)
        if not forms:
            raise ValueError("expected at least one whole forward of the model between start and stop, none ran")
        form = forms.most_common(1)[0][0]
        same = [place for place, each in enumerate(self._forms) if each == form]
        others = len(self._forms) - len(same)
        first = self._firsts[form]
        self._forget()
        ignored = paths_below(self._model, ignore_modules)
        with naming_faults(self._model), preserve_state(self._model, trains=False):
            trace = self._trace_forward(first)
        if others:
            text = f"{others} of {others + len(same)} forwards are left out: of other sizes, or they raised"
            trace = replace(trace, notes=(*trace.notes, text))
        kind, batch_size = type(self._model).__name__, batch_size_of((first.args, first.kwargs))
        told_of = StepDescription(kind, batch_size, str(self.device), self._precision, "forward", world_size())
        return table_of(recording, trace, self._model, told_of, ignored=ignored, only=same)

    def drop(self) -> None:
        """Stop listening and forget what was heard; nothing if it is not running."""
        if self.running:
            self._stopped()
        self._forget()

    def _trace_forward(self, forward: _Forward) -> Trace:
        kind = self.device.type
        if kind != "cpu":
            return forward.trace(self._model, kind)
        trace, why = on_fakes(lambda mode: forward.trace(self._model, kind, mode))
        if trace is None:
            trace = forward.trace(self._model, kind)
            return replace(trace, notes=(*trace.notes, why))
        return trace

    def _begins(self, _model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._depth += 1
        if self._depth > 1:  # the model calls itself
            return
        kind = self.device.type
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        self._running, self._handled = _Forward(args, kwargs, torch.is_grad_enabled(), autocast), sys.exception()
        self._clock.synchronize()
        for name in ("step", "forward"):
            annotation = torch.profiler.record_function(f"{DOMAIN}.{name}")
            annotation.__enter__()
            self._open.append(annotation)

    def _ends(self, _model: torch.nn.Module, _args: Any, _output: Any) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._close()
        self._clock.synchronize()
        forward, self._running = self._running, None
        if forward is None:
            return
        raised = sys.exception() is not self._handled  # it is called then, too
        self._forms.append(None if raised else forward.form)
        if not raised:
            self._firsts.setdefault(forward.form, forward)

    def _forget(self) -> None:
        self._firsts.clear()
        self._forms.clear()
        self._running, self._handled, self._depth = None, None, 0

    def _close(self) -> None:
        while self._open:
            self._open.pop().__exit__(None, None, None)

    def _stopped(self) -> Any:
        """Take everything off; torch's recording."""
        if not self.running:
            raise ValueError("the profile was not started: start it before the forwards that it is of")
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._close()
        profiler, self._profiler = self._profiler, None
        profiler.__exit__(None, None, None)
        return profiler.kineto_results
