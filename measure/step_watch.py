"""Forward passes that somebody else runs, profiled as they happen: in a training loop, between `start` and `stop`.

Two hooks on the model itself open and close a range around each of its forwards, while torch's profiler records. The
exact operations follow from the inputs that the hooks saw: those of a forward on fake copies of them (on a GPU, and
where fakes cannot run it, of one more forward on the real ones). Each forward's time is its own; forwards whose inputs
have other sizes than most, and those that raised, are left out and told.

Not claimed: what runs outside of the model's forward (loss, backward, optimizer) is not in it. Until `stop` the first
inputs are kept, and what the forward changes in them in place is changed.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from measure.counters.running import tensors
from measure.fake import FakeMode, fake_copy, fake_mode
from measure.module_ranges import is_compiled
from measure.operations import Trace, trace_step
from measure.profiles import check_available, kernel_device
from measure.ranges import DOMAIN
from measure.step_model import quiet
from measure.step_profile import Told, table_of
from measure.step_state import left_as_found, naming_faults, paths_below
from results.step_profile import StepProfile


@dataclass
class _Forward:
    """One forward that ran: its arguments and in which state torch and the model were."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    grad: bool
    autocast: torch.dtype | None
    ended: bool = False

    @property
    def form(self) -> tuple[Any, ...]:
        """What two forwards with the same operations have in common."""
        return (self.grad, self.autocast, *((tuple(t.shape), t.dtype) for t in tensors((self.args, self.kwargs))))


class Watch:
    """Profiles the forwards of a model from `start` to `stop`. Raises ValueError where it is used out of order."""

    def __init__(self, model: torch.nn.Module, precision: str = "fp32") -> None:
        if is_compiled(model):
            raise ValueError("expected a model that is not compiled: its modules and operations are not called")
        self._model = model
        self._precision = precision
        self._handles: list[Any] = []
        self._open: list[contextlib.AbstractContextManager[Any]] = []
        self._forwards: list[_Forward] = []
        self._profiler: Any = None

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
        self._forwards.clear()
        self._profiler = torch.autograd.profiler.profile(use_kineto=True, use_device=kernel_device(cuda))
        self._profiler.__enter__()
        self._handles = [
            self._model.register_forward_pre_hook(self._begins, prepend=True, with_kwargs=True),
            self._model.register_forward_hook(self._ends, always_call=True),
        ]

    def stop(self, ignore_modules: Collection[type | str] = ()) -> StepProfile:
        """Stop listening, and the profile of what was heard. Raises ValueError if that is nothing."""
        recording = self._stopped()
        ended = [place for place, forward in enumerate(self._forwards) if forward.ended]
        if not ended:
            raise ValueError("expected at least one whole forward of the model between start and stop, none ran")
        forms = Counter(self._forwards[place].form for place in ended)
        form = forms.most_common(1)[0][0]
        same = [place for place in ended if self._forwards[place].form == form]
        first = self._forwards[same[0]]
        ignored = paths_below(self._model, ignore_modules)
        with naming_faults(self._model), left_as_found(self._model, trains=False):
            trace = self._traced(first)
        sizes = next((tensor.shape for tensor in tensors((first.args, first.kwargs)) if tensor.dim()), None)
        batch_size = None if sizes is None else int(sizes[0])
        told = Told(type(self._model).__name__, batch_size, str(self.device), self._precision, "forward")
        others = len(self._forwards) - len(same)
        notes = (f"{others} of {len(self._forwards)} forwards are left out: other sizes, or not ended",) if others else ()
        self._forwards.clear()
        trace = Trace(trace.operations, trace.storages, (*trace.notes, *notes))
        return table_of(recording, trace, self._model, told, ignored=ignored, only=same)

    def drop(self) -> None:
        """Stop listening and forget what was heard; nothing if it is not running."""
        if self.running:
            self._stopped()
        self._forwards.clear()
