"""Steps whose calls are not observed: steps of inputs of the same sizes ran the same passes before (`hook_every`).

With a forward hook, each call of a model takes the long way through `torch.nn.Module.__call__`, and with a hook on a
gradient, autograd runs Python code: in a step of 10 ms that is most of what a meter costs. Here the hooks are only set
in the steps that are observed: until two steps of the same sizes ran the same passes, and in steps that are drawn at
random, so that a period of the loop cannot hide anything.

Not claimed: what a step ran that was not observed. A loop that leaves out a backward pass now and then shows it in one
of `hook_every` of those steps; from then on each step is observed, and the caller is warned.
"""

from __future__ import annotations

import random
from collections.abc import Hashable

from measure.meter.forward_calls import Call, passes_of, samples_of

MAX_KEPT = 1024
"""Distinct sizes of inputs that are remembered; beyond them all are observed anew."""


class HookedSteps:
    """What steps ran when they were observed, by the sizes of their inputs.

    differs: whether steps of the same sizes ran different passes after two had run the same. Then each step is
    observed.
    """

    def __init__(self, every: int) -> None:
        self._most = 2 * every - 3  # a draw from 1 to this is every - 1 in the mean
        self._draws = random.Random(0)
        self._seen: dict[Hashable, list[list[Call]]] = {}
        self._agreed: set[Hashable] = set()
        self._left = self._planned = 0
        self.differs = self._each = False

    def plan(self, key: Hashable, unused: int) -> tuple[list[Call], int]:
        """The calls of a step of inputs of these sizes, and in how many steps in a row they are not observed.

        0 steps: the next one is to be observed. unused: steps of the plan before that did not come.
        """
        self._left -= self._planned - unused
        self._planned = 0
        observed = self._seen.get(key, [])
        if len(observed) < 2 or self.differs or self._each:
            return [], 0
        before, last = observed
        if not _ran_the_same(before, last):
            self.differs = key in self._agreed
            return [], 0
        self._agreed.add(key)
        if self._left <= 0:
            self._left = self._draws.randint(1, self._most)
            return [], 0
        self._planned = self._left
        return last, self._left

    def saw(self, key: Hashable, calls: list[Call]) -> None:
        """A step of inputs of these sizes that was observed. Its backward passes may still be to come."""
        if len(self._seen) >= MAX_KEPT and key not in self._seen:
            self.forget()
        self._seen[key] = [*self._seen.get(key, [])[-1:], calls]

    def observe_each(self) -> None:
        """From here on each step is observed."""
        self._each = True

    def forget(self) -> None:
        """The model is another one from here on."""
        self._seen.clear()
        self._agreed.clear()


def _ran_the_same(one: list[Call], other: list[Call]) -> bool:
    return passes_of(one) == passes_of(other) and samples_of(one) == samples_of(other)
