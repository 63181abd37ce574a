"""One step of any model: forward, or forward, loss and backward, or all of it with an optimizer's step; or generating.

It announces its phases to `mark`, reads no clock, and can be made again on fake tensors, for its table of operations.
"""

import contextlib
import copy
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from analysis.devices.precisions import Precision
from measure.fake.mode import FakeMode, fake_copy, fake_mode, quiet
from measure.model.batch_masks import batch_mask
from measure.model.run import summed
from measure.operations.tracer import Trace, trace_step
from measure.profile.model_guard import leaves
from results.errors import one_line

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
        batch=batch_mask(step.model, step.args, step.kwargs),
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
