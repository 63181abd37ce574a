"""Defines the input and output of a gate, a check before a run is published: `Evidence` in, `Finding`s out.

`Evidence` holds a run's raw rows and what was derived from them. `facts_of` takes one operation table and its storages,
and returns `TraceFacts`; each table is read once, so that only one is in memory. The expected FLOP of the backward pass
follow from the forward pass and the storages that need a gradient. No file is read or written here.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from analysis.devices.precisions import PRECISIONS
from analysis.operators import registry
from analysis.operators.cost import input_dtype
from cleaning.profile import FORWARD
from results.errors import Inconsistent
from results.records.answers import Utilization
from results.records.cell import MEASURED, Run, SessionRow
from results.records.counts import Agreement, BatchLaw, Operation, ProfileCount, Storage
from results.records.rows import R
from results.store.layout import Key, by_cell, key_of
from results.store.reading import RunData

Table = tuple[Sequence[Operation], Sequence[Storage]]

TWO_FACTORS = ("convolution", "matmul")
"""Kinds whose products have two factors; each factor that needs a gradient costs one more product."""


FAULTS = (Inconsistent, ValueError, LookupError, TypeError, AttributeError, ArithmeticError)
"""Exceptions that a table from elsewhere may cause; the exception's text becomes the `fault` of its facts."""


@dataclass(frozen=True)
class TraceFacts:
    """Facts of one operation table.

    fault: why the table could not be read; the other fields are then empty. forward_flop (with the loss),
    backward_flop: model FLOP. expected_backward_flop: what the forward pass implies; None: unknown. executed:
    "kind/dtype" → model FLOP of the whole step. gaps: number of rows whose index is not their position. repeated:
    products that read and write the same storages as an earlier one. leading: first size of the first product's input.
    images: whether the first product is a convolution over images.
    """

    forward_flop: int = 0
    backward_flop: int = 0
    expected_backward_flop: int | None = None
    executed: Mapping[str, int] = field(default_factory=dict)
    gaps: int = 0
    repeated: tuple[str, ...] = ()
    leading: int | None = None
    images: bool = False
    fault: str = ""

    @property
    def model_flop(self) -> int:
        return sum(self.executed.values())


@dataclass(frozen=True)
class Evidence:
    """A run and what is derived from it.

    facts: trace id → its facts. rebuilt: rows of utilization.csv, derived again from the raw rows. self_test: the
    document in the run's directory, or the text of why it cannot be read; None: there is none.
    """

    data: RunData
    facts: Mapping[str, TraceFacts] = field(default_factory=dict)
    rebuilt: Sequence[Utilization] = ()
    profile_counts: Sequence[ProfileCount] = ()
    agreement: Sequence[Agreement] = ()
    batch_laws: Sequence[BatchLaw] = ()
    self_test: SelfTest | str | None = None

    def without(self, cell_ids: Collection[str]) -> Evidence:
        """Return this evidence without the rows of some cells."""
        if not cell_ids:
            return self

        def others(rows: Sequence[R]) -> list[R]:
            return [row for row in rows if key_of(row)[0] not in cell_ids]

        return replace(
            self,
            data=replace(self.data, runs=others(self.data.runs)),
            rebuilt=others(self.rebuilt),
            profile_counts=others(self.profile_counts),
            agreement=others(self.agreement),
            batch_laws=others(self.batch_laws),
        )

    @property
    def measured_cells(self) -> list[Run]:
        """The cells that have a time."""
        return [run for run in self.data.runs if run.status in MEASURED]

    def session(self, run: Run) -> SessionRow | None:
        """Return where and when a cell was measured."""
        return next((session for session in self.data.sessions if session.session == run.session), None)

    @property
    def used_sessions(self) -> list[SessionRow]:
        """The sessions in which the last attempt at some cell was made."""
        used = {run.session for run in self.data.runs}
        return [session for session in self.data.sessions if session.session in used]

    @functools.cached_property
    def fractions(self) -> Mapping[Key, Sequence[Utilization]]:
        """Attempt → its rows of utilization.csv, rebuilt."""
        return by_cell(self.rebuilt)


def facts_or_fault(read: Callable[[], Table]) -> TraceFacts:
    """Return the facts of one operation table, or why there are none."""
    try:
        return facts_of(*read())
    except FAULTS as fault:
        return TraceFacts(fault=f"{type(fault).__name__}: {' '.join(str(fault).split())}")


def facts_of(table: Sequence[Operation], storages: Sequence[Storage]) -> TraceFacts:
    """Compute the facts of one operation table. Raises ValueError where it lacks what a formula needs."""
    step = [operation for operation in table if operation.phase != "recompute"]
    flop = {id(operation): registry.model_flop(operation) for operation in step}
    executed: Counter[str] = Counter()
    for operation in step:
        if flop[id(operation)]:
            executed[f"{operation.kind}/{input_dtype(operation)}"] += flop[id(operation)]
    products = [operation for operation in step if flop[id(operation)]]
    first = next((o for o in products if o.phase in FORWARD and o.input_shapes), None)
    shape = first.input_shapes[0] if first is not None else ()
    calls = Counter((o.name, o.phase, o.module, o.sequence_nr, o.input_shapes, o.reads, o.writes) for o in products)
    return TraceFacts(
        forward_flop=sum(flop[id(o)] for o in products if o.phase in FORWARD),
        backward_flop=sum(flop[id(o)] for o in products if o.phase == "backward"),
        expected_backward_flop=_expected_backward(step, storages),
        executed=dict(executed),
        gaps=sum(operation.index != index for index, operation in enumerate(table)),
        repeated=tuple(f"{name} {module}".strip() for (name, _, module, *_), times in calls.items() if times > 1),
        leading=int(shape[0]) if shape else None,
        images=first is not None and first.kind == "convolution" and len(shape) == 4,
    )


def _expected_backward(table: Sequence[Operation], storages: Sequence[Storage]) -> int | None:
    """Count one more product for each factor of a forward product that needs a gradient, from the forward pass only.

    A storage needs a gradient if it is a weight's, or was written by an operation that read one that does. None where a
    product of another kind than TWO_FACTORS has FLOP, or no storage is known for a weight.
    """
    needs = {storage.id for storage in storages if storage.role == "weight"}
    if not needs:
        return None
    total = 0
    for operation in (o for o in table if o.phase in FORWARD):
        flop = registry.model_flop(operation)
        if flop and operation.kind not in TWO_FACTORS:
            return None
        if flop:
            # factors are neither a bias nor what `addmm` and `baddbmm` add
            added = {"bias"} | ({"self"} if {"mat1", "batch1"} & set(operation.input_names) else set())
            pairs = zip(operation.input_names, operation.reads, strict=True)
            total += flop * sum(storage in needs for name, storage in pairs if name not in added)
        if any(storage in needs for storage in operation.reads):
            needs.update(operation.writes)
    return total


RUN = "run"
"""Stands for a cell id in findings about the run as a whole."""


@dataclass(frozen=True)
class Finding:
    """holds: whether the condition is met. text: the numbers that show it; optional where it holds."""

    cell_id: str
    holds: bool
    text: str = ""


def finding(cell_id: str, holds: bool, text: str) -> Finding:
    """Make a finding that has its text only where it does not hold."""
    return Finding(cell_id, holds, "" if holds else text)


def faultless(cell_id: str, faults: Iterable[str]) -> Finding:
    """Make a finding that holds where there are no faults."""
    text = "; ".join(dict.fromkeys(faults))
    return Finding(cell_id, not text, text)


@dataclass(frozen=True)
class Gate:
    """name; checks: the condition, as text; check: the function; needs: what an open gate lacks; after: gates whose
    failures exclude a cell from this one; on: kinds of device on which a published run must not leave it open."""

    name: str
    checks: str
    check: Callable[[Evidence], Iterable[Finding]]
    needs: str
    after: tuple[str, ...] = ()
    on: tuple[str, ...] = ("cuda", "cpu")


SELF_TEST_FILE = "self_test.json"
"""The document of `--self-test` in the directory of its run."""

OK, FAILED, UNAVAILABLE = "ok", "failed", "unavailable"

NEEDED = ("events", "sleep", "count", "flags", "ieee fp32", "intervals")
"""Checks that every GPU can answer, with any driver and without a known datasheet."""

SELF_TEST_CHECKS = (
    *(*NEEDED, "memory resnet18", "memory mobilenet_v2"),
    *(f"{kind} {precision}" for kind in ("rate", "convolution") for precision in PRECISIONS),
)


@dataclass(frozen=True)
class CheckResult:
    """One check. found: a number in SI units or a ratio, or None; expected: as text."""

    check: str
    verdict: str
    found: float | None
    expected: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """device: its name as its driver prints it. tested_at: UTC, ISO 8601."""

    device: str
    verdict: str
    checks: tuple[CheckResult, ...]
    driver: str = ""
    torch_version: str = ""
    harness_version: str = ""
    tested_at: str = ""


def parsed(document: Any) -> SelfTest:
    """Parse the self-test in a JSON document. Raises ValueError, one line, for any other document."""
    if not isinstance(document, Mapping) or not isinstance(document.get("checks"), list):
        raise ValueError("expected an object with a list of checks")
    names = {field.name for field in fields(SelfTest)}
    try:
        checks = tuple(CheckResult(**check) for check in document["checks"])
        test = SelfTest(**{**{name: document[name] for name in names & set(document)}, "checks": checks})
    except TypeError as fault:
        raise ValueError(f"no self-test: {fault}") from fault
    texts = [test.device, test.verdict, *(text for check in checks for text in (check.check, check.verdict))]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("no self-test: expected texts for device, check and verdicts")
    return test


def self_test_faults(test: SelfTest) -> Iterator[str]:
    """Yield reasons why a self-test does not support the run's numbers."""
    verdicts = {result.check: result.verdict for result in test.checks}
    if failed := [name for name, verdict in verdicts.items() if verdict == FAILED]:
        yield f"{', '.join(failed)} failed"
    if test.verdict != OK:
        yield f"its verdict is {test.verdict!r}"
    if missing := [name for name in SELF_TEST_CHECKS if name not in verdicts]:
        yield f"it lacks {', '.join(missing)}"
    yield from (f"{name} is unavailable" for name in NEEDED if verdicts.get(name) == UNAVAILABLE)
