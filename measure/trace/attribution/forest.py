"""The calls of a recording as a forest, for whoever asks what is missing from it: columns as Python lists.

Numbers are those that the recorder gave the calls themselves, before `attribute` hands those of nodes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from analysis.trace.operations import is_product
from measure.trace.attribution.nesting import NODE, OPERATOR, CallNesting, Flags, Ints, matches
from results.records.operations import ProfiledOperation

FORWARD = ("forward", "loss")


@dataclass(frozen=True)
class Forest:
    """The calls in the order of start; `number`: of autograd's node, as recorded (-1: none)."""

    calls: pd.DataFrame
    place: CallNesting
    number: Ints

    def __len__(self) -> int:
        return len(self.calls)

    def column(self, name: str) -> list[Any]:
        """A column as Python values."""
        if name not in self._lists:
            self._lists[name] = self.calls[name].tolist()
        return self._lists[name]

    @cached_property
    def _lists(self) -> dict[str, list[Any]]:
        return {}

    @cached_property
    def names(self) -> list[str]:
        return [str(name) for name in self.calls["name"].tolist()]

    @cached_property
    def parent(self) -> list[int]:
        found: list[int] = self.place.parent.tolist()
        return found

    @cached_property
    def start(self) -> list[int]:
        return [int(start) for start in self.calls["start_ns"]]

    @cached_property
    def end(self) -> list[int]:
        return [begin + int(length) for begin, length in zip(self.start, self.calls["time_ns"], strict=True)]

    @cached_property
    def phase(self) -> list[str]:
        return self.calls["phase"].tolist()

    @cached_property
    def is_node(self) -> Flags:
        """Frames of autograd by their names."""
        return matches(NODE, self.calls["name"])

    @cached_property
    def is_operator(self) -> Flags:
        return matches(OPERATOR, self.calls["name"]) & ~self.is_node

    @cached_property
    def is_product(self) -> Flags:
        known = {name: is_product(name) for name in set(self.names)}
        return np.fromiter((known[name] for name in self.names), bool, len(self))

    @cached_property
    def owner(self) -> list[int]:
        """Row of the outermost product around each call, itself included; -1: none."""
        return self._outermost(self.is_product)

    @cached_property
    def top(self) -> list[int]:
        """Row of the outermost operator around each call, itself included; -1: none."""
        return self._outermost(self.is_operator)

    def _outermost(self, wanted: Flags) -> list[int]:
        found: list[int] = []
        for at, (above, mine) in enumerate(zip(self.parent, wanted.tolist(), strict=True)):
            around = found[above] if above >= 0 else -1
            found.append(around if around >= 0 else at if mine else -1)
        return found

    def around(self, at: int) -> list[int]:
        """A row and those around it, the inner first."""
        found = []
        while at >= 0:
            found.append(at)
            at = self.parent[at]
        return found

    def call(self, at: int) -> ProfiledOperation:
        """A call as a record of its arguments."""
        return ProfiledOperation(
            work="",
            index=at,
            parent=None,
            name=self.names[at],
            phase=self.phase[at],
            module="",
            sequence_nr=None,
            forward_index=None,
            thread=0,
            input_shapes=self.column("input_shapes")[at] or (),
            input_dtypes=self.column("input_dtypes")[at] or (),
            concrete_inputs=self.column("concrete_inputs")[at] or (),
            found_flop=None,
            start_s=0.0,
            time_s=0.0,
        )
