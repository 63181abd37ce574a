"""What the cleaning of a recording works on: products with their kernels, and nothing that is not needed to judge them.

A `Product` is an outermost convolution, matrix product, attention or recurrent call of a recording, or what a recorder
without calls took for one; its `Part`s are the rows of kernels that belong to it, in the order of start. A cleaning
step replaces them, never the recording. Nothing is cleaned here.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from analysis.trace.kernel_names import makes_products
from results.records.counts import CleaningLog
from results.records.rows import to_text

UNTOLD = -1
"""Which unit a kernel works for is not known."""

FILE = "kernels.csv.gz"


class Part(NamedTuple):
    """One row of kernels in a product, and its FLOP so far. None: unknown."""

    row: int  # in the table of kernels, in the order of start
    name: str
    what: str
    time_ns: int
    unit: int = UNTOLD  # which of the product's units it works for
    twin: bool = False  # a second row of one launch
    source_flop: int | None = None  # what the recording says
    call_flop: int | None = None  # of a row that is a call: what that call's own sizes give
    found: int | None = None
    deduplicated: int | None = None
    repaired: int | None = None
    fault: str = ""

    @property
    def makes_products(self) -> bool:
        """Whether it does multiply-adds, by its name; of a call its own sizes tell."""
        return bool(self.call_flop) if self.what == "call" else makes_products(self.name)


class Product(NamedTuple):
    """One outermost product of a recording.

    units: 1, or how many gradients a backward call calculates. unit_flop: model FLOP of one. Both None: unknown.
    """

    instance: int  # its index
    name: str
    kind: str
    phase: str
    module: str
    parts: tuple[Part, ...]
    units: int | None = None
    unit_flop: int | None = None
    forward_name: str = ""  # of a backward product: name of the forward call
    place: int = 0  # of a backward product: how many kernels of the same layer's gradients came before it
    groups: int = 1
    tiles: int = 0  # launches of the convolution by FFT_TILING; 0: not known
    why_unknown: str = ""
    assumed: bool = False  # the recording does not say which gradients were asked for
    columns: Mapping[str, Any] = {}  # of its row among the instances; once it is cleaned
    known: Mapping[str, int | None] = {}  # state → FLOP of what is known of it: at least that much

    @property
    def expected(self) -> int | None:
        """Model FLOP by sizes."""
        return None if self.units is None or self.unit_flop is None else self.units * self.unit_flop


def label(index: int, name: str, phase: str, module: str) -> str:
    """How the log names a product. index: of its instance."""
    return " ".join(word for word in (str(index), name, phase, module) if word)


def entry(step: str, product: Product, field: str, before: object, after: object, reason: str) -> CleaningLog:
    """One row of the cleaning log."""
    return CleaningLog(
        step=step,
        file=FILE,
        cell_id="",
        attempt=0,
        subject=label(product.instance, product.name, product.phase, product.module),
        field=field,
        before=to_text(before),
        after=to_text(after),
        reason=reason,
    )
