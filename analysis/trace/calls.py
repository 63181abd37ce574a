"""Holds a profile's operator calls as a tree, and returns a call's children, owner and record by row number.

`Calls` takes a table with a row per call (index, parent, name, phase, module, arguments). It raises Inconsistent for a
repeated index or a parent that was not recorded. A call's *owner* is the outermost product (convolution, matrix
product, attention, recurrent layer) around it, or without a product the outermost operator. `call` returns one call as
a `ProfiledOperation`. Nothing is counted here. In a truncated recording, a profiler was stopped within a step, or calls
were removed from the file; sums over it are no totals. `Missing` gives the phase that lacks calls, and how that is
known.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.trace.operations import is_product
from results.errors import Inconsistent
from results.records.counts import ProfiledOperation

MISSING = "missing: "
"""Prefix of the reason of a row for calls that are missing from a recording."""


UNNUMBERED = "not numbered: counts are of the calls recorded, and a missing call may not be noticed"
"""Reason of the row for possibly missing calls, where the recorder did not number the calls."""


@dataclass(frozen=True, order=True)
class Missing:
    """Calls that a recording lacks: their phase (one that was recorded), at least how many, and how that is known."""

    phase: str
    calls: int
    reason: str


Ints = NDArray[np.int64]
NONE = -1

OPERATOR = re.compile(r"(?!autograd::|torch::autograd::|profiler::|prim::)\w+::\w+")
"""Matches names of operators, but not of the autograd engine's frames or of annotated ranges."""


def named(names: pd.Series, wanted: Callable[[str], object]) -> NDArray[np.bool_]:
    """Return which names are wanted; `wanted` is asked once per distinct name."""
    flags: NDArray[np.bool_] = names.map({name: bool(wanted(str(name))) for name in names.unique()}).to_numpy(bool)
    return flags


class Calls:
    """A recording's calls in the order of their index, addressed by position."""

    def __init__(self, calls: pd.DataFrame) -> None:
        """Raise Inconsistent for a repeated index, or a missing parent."""
        sort = not calls["index"].is_monotonic_increasing
        self.table = calls.sort_values("index", kind="stable", ignore_index=True) if sort else calls
        self.index = self.table["index"].to_numpy(np.int64)
        self._positions = pd.Index(self.index)
        if not self._positions.is_unique:
            raise Inconsistent(
                f"expected each call of a recording once, got {self._positions.nunique()} calls in {len(self)} rows"
            )
        self.parent = self.positions(self.table["parent"].to_numpy(np.int64), "parent")
        self.names: list[str] = self.table["name"].tolist()
        self.columns: dict[str, NDArray[Any]] = {str(name): self.table[name].to_numpy() for name in self.table}

    def __len__(self) -> int:
        return len(self.index)

    def positions(self, index: Ints, what: str = "") -> Ints:
        """Return the positions of calls with these indices; NONE for -1 and for an index without a call. what: what the
        indices are, for the message; if given, an index without a call raises Inconsistent."""
        position = np.asarray(self._positions.get_indexer(pd.Index(index)), np.int64)
        position[index < 0] = NONE
        if what and (missing := index[(index >= 0) & (position < 0)]).size:
            raise Inconsistent(f"call {missing[0]} is named as {what}, and was not recorded")
        return position

    @cached_property
    def owner(self) -> Ints:
        """Position of each call's owner; NONE for a call without one."""
        product, operator = self.outermost(is_product), self.outermost(lambda name: bool(OPERATOR.fullmatch(name)))
        return np.where(product >= 0, product, operator)

    @cached_property
    def product(self) -> NDArray[np.bool_]:
        """Which calls are products."""
        return named(self.table["name"], is_product)

    @cached_property
    def _by_parent(self) -> tuple[Ints, Ints]:
        """Positions sorted by parent, and for each parent the offset of its first child in them."""
        order = np.argsort(self.parent, kind="stable")
        return order, np.searchsorted(self.parent[order], np.arange(len(self) + 1))

    def inside(self, position: int) -> list[int]:
        """Return the positions of a call's direct children, in order."""
        order, begin = self._by_parent
        return order[begin[position] : begin[position + 1]].tolist()  # type: ignore[no-any-return]

    def call(self, position: int) -> ProfiledOperation:
        """Return one call as a record, without times. Arguments that were not recorded are empty."""
        sequence, forward = int(self.columns["sequence_nr"][position]), int(self.columns["forward_index"][position])
        return ProfiledOperation(
            work="",
            index=int(self.index[position]),
            parent=None,
            name=self.names[position],
            phase=self.columns["phase"][position],
            module=self.columns["module"][position],
            sequence_nr=None if sequence < 0 else sequence,
            forward_index=None if forward < 0 else forward,
            thread=int(self.columns["thread"][position]),
            input_shapes=self.columns["input_shapes"][position] or (),
            input_dtypes=self.columns["input_dtypes"][position] or (),
            concrete_inputs=self.columns["concrete_inputs"][position] or (),
            found_flop=None,
            start_s=0.0,
            time_s=0.0,
        )

    def within(self, position: int) -> Iterator[int]:
        """Yield the positions of all calls inside one, outer before inner."""
        left = self.inside(position)[::-1]
        while left:
            inner = left.pop()
            yield inner
            left += self.inside(inner)[::-1]

    def outermost(self, wanted: Any) -> Ints:
        """Return the position of the outermost wanted call around each call, itself included.

        Raises Inconsistent for calls that are inside themselves.
        """
        flags = named(self.table["name"], wanted)
        outer = np.full(len(self), NONE, np.int64)
        rows = np.arange(len(self), dtype=np.int64)
        around = rows.copy()
        for _ in range(len(self) + 1):
            if not rows.size:
                return outer
            hits = flags[around]
            outer[rows[hits]] = around[hits]
            around = self.parent[around]
            rows, around = rows[around >= 0], around[around >= 0]
        raise Inconsistent(f"{len(rows)} calls of a recording are inside themselves")
