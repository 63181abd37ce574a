"""In which steps gradient hooks are set, and what stands for them in the others (`hook_every`).

A hook on the gradient of each call costs as much as the rest of a meter: objects made in each step, and Python code in
each backward pass. Once two steps ran the same calls and backward passes, and each call was of one kind, the hooks are
set in steps that are drawn at random, so that a period of the loop cannot hide anything. Each other step is compared
with those two: its calls by their inputs and modes, one by one (`measure.meter.forward_calls`), and its backward passes
by how often one parameter of the model gets a gradient. A step that differs is in no number, and hooks are set in each
step after it.

Not claimed: backward passes through the model that do not come to that parameter, and a further one after the end of
a step. Only a step with hooks shows them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from measure.meter.calls import Call, OpenStep, SeenCall

DIFFERS = (
    "steps with equal calls and equal gradients of a parameter ran different backward passes, and not all had gradient "
    "hooks (hook_every): numbers so far may be wrong; each step has them from here on"
)

_Ran = tuple[SeenCall, int, int, int]
"""What a step ran: the kind of all its calls, how many they are, their backward passes, gradients of the parameter."""


class HookedSteps:
    """Draws the steps of one model that have gradient hooks.

    every: in one of how many steps they are set, in the mean; 1: in each. expected: the calls of each step that is only
    compared, and its gradients. wants_next: whether the next step should be shown, since it may be like the last.
    differs: whether a step with hooks ran something that the comparison does not see. left_out: steps that ran
    something else than was expected, and are in no number. on_late: called when gradients that one lacked come after
    its end. on_fault: called with what went wrong in here.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        step: OpenStep,
        every: int,
        on_late: Callable[[], None],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._model = model
        self._step = step
        self._on_late = on_late
        self._on_fault = on_fault
        self._lacks_gradients = False
        self._most = 2 * every - 3  # a draw from 1 to this is every - 1 in the mean
        self._draws = random.Random(0)
        self._before: _Ran | None = None
        self._trusted: _Ran | None = None
        self._handle: Any = None
        self._each = every == 1
        self.wants_next = False
        self.expected: tuple[list[Call], int] = [], 0
        self.differs = False
        self.left_out = 0

    def attach(self) -> None:
        """Begin to see gradients of a parameter, unless hooks are set in each step."""
        if self._handle is None and not self._each:
            found = (each for each in self._model.parameters() if each.requires_grad and type(each) in _PLAIN)
            parameter = next(found, None)
            if parameter is None:  # all are frozen, or have tensors inside that autograd does not see (DTensor)
                self._each = True
                return
            self._handle = parameter.register_hook(self._hook())

    def detach(self) -> None:
        """See none any more."""
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.remove()

    def saw(self, calls: list[Call], gradients: int) -> None:
        """A step with hooks has ended."""
        self._lacks_gradients = False
        if self._each:
            return
        ran = _one_kind(calls, gradients)
        known, self._trusted = self._trusted, ran if ran == self._before else None
        self.wants_next = ran is not None and self._trusted is None and not self.wants_next
        self._before, self.expected = ran, (calls, gradients)
        if known and ran and ran != known and (ran[0], ran[1], ran[3]) == (known[0], known[1], known[3]):
            self.differs = True
            self.observe_each()

    def plan(self) -> int:
        """How many steps from here on are only compared; 0: the next one has hooks."""
        if self._each or self._trusted is None:
            return 0
        return self._draws.randint(1, max(1, self._most))

    def leave_out(self) -> None:
        """A step that was only compared ran something else than was expected."""
        self.left_out += 1
        self._lacks_gradients = self._step.gradients < self._step.expected_gradients
        self._each, self._trusted = True, None  # the hook stays, for gradients that come late

    def _hook(self) -> Callable[[torch.Tensor], None]:
        """The hook on the parameter."""

        def on_gradient(_gradient: torch.Tensor, step: OpenStep = self._step) -> None:
            try:
                step.gradients += 1
                if step.begun is None and self._lacks_gradients:
                    self._lacks_gradients = False
                    self._on_late()
            except Exception as fault:  # noqa: BLE001  the user's training goes on whatever happens in here
                self._on_fault(fault)

        return on_gradient

    def observe_each(self) -> None:
        """From here on each step has hooks."""
        self._each = True
        self._trusted = None
        self.detach()

    def model_changed(self) -> None:
        """The model is another one from here on."""
        self._before = self._trusted = None
        self.detach()
        self.attach()

    def notes(self) -> tuple[str, ...]:
        """What a summary has to say."""
        if not self.left_out:
            return ()
        return (
            f"{self.left_out} step without gradient hooks (hook_every) ran other passes than those before: it is in no "
            "number, and each step has hooks from there on",
        )


_PLAIN = (torch.nn.Parameter,)


def _one_kind(calls: Sequence[Call], gradients: int) -> _Ran | None:
    """What a step ran, if its calls are of one kind, and its backward passes came to the parameter."""
    if not calls:
        return None
    seen, backward = calls[0].seen, sum(each.backward for each in calls)
    plain = all(each.seen is seen and each.forward and not each.hidden for each in calls)
    return (seen, len(calls), backward, gradients) if plain and backward and gradients else None
