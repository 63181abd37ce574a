"""Attributes the differences between counters' totals and the exact count to causes, such as a bias that is counted.

`reconcile` takes a model's `CallRecording` and the counters' rows, and returns an `Attribution` for each total and its
causes. The counter's documented rule turns the recording into items, the parts of a total. Each product (convolution,
matrix product, attention, recurrent layer) belongs to the narrowest item around it. An item that counts more than its
products needs a cause; without one the difference stays unexplained. All rules ignore that numbers are complex. The
exact count covers the forward pass, loss and backward pass of a training step. Counters see the model in evaluation;
that difference is a cause, too.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from analysis.counters import COUNTERS, FLOP_PER_NATIVE
from analysis.operators.registry import bucket_of, model_flop
from analysis.utilization.numerators import OWN
from cleaning.accounts.items import CONVENTION, PRODUCT, Counted, Item, Native, is_complex, real_flop
from results.process import load
from results.records.answers import Attribution, AttributionCause
from results.records.calls import CallRecording
from results.records.counts import FlopCount, Operation

WEIGHT = "weight_calculation_not_seen"
"""The cause for products that a layer's call runs before the layer's own."""

Key = tuple[str, str, str]
"""Cause, kind of operation, path of the module."""

Causes = dict[Key, Native]
"""What each cause adds to the exact count, in the counter's own unit. The exact FLOP and all causes add up to the
counter's number."""


def explain(
    recording: CallRecording, phase: str, unit: str, items: Sequence[Item], missed: Callable[[Operation], str]
) -> Causes:
    """Return the causes between the exact FLOP of one pass and a counter's number in its own unit.

    unit: "mac" or "flop", the counter's own unit. missed: returns the cause for a product without an item.
    """
    causes: defaultdict[Key, Native] = defaultdict(int)
    covered, uncovered = _shared_out(recording, phase, [item for item in items if item.cause == PRODUCT])
    for operation in uncovered:
        causes[missed(operation), operation.kind, operation.module] -= model_flop(operation)
    for item, operations in covered:
        own, item_flop = operations, item.native * FLOP_PER_NATIVE[unit]
        if phase == "forward" and len(operations) > 1 and item_flop == model_flop(operations[-1]):
            own = operations[-1:]  # the others compute its weight again each time: a parametrization, spectral norm
        for operation in operations[: len(operations) - len(own)]:
            causes[WEIGHT, operation.kind, operation.module] -= model_flop(operation)
        _product(causes, item, own, FLOP_PER_NATIVE[unit])
    for item in items:
        if item.cause != PRODUCT:
            causes[item.cause, item.kind, item.module] += item.native
    return {key: native for key, native in causes.items() if native}


def _product(causes: defaultdict[Key, Native], item: Item, operations: Sequence[Operation], per_unit: int) -> None:
    exact = sum(model_flop(operation) for operation in operations)
    for operation in operations:
        flop = model_flop(operation)
        causes[CONVENTION, operation.kind, operation.module] += Fraction(flop, per_unit) - flop
    beyond = item.native - Fraction(exact, per_unit)
    if beyond:
        for operation in filter(is_complex, operations):
            less = Fraction(real_flop(operation) - model_flop(operation), per_unit)
            causes["complex_as_real", operation.kind, operation.module] += less
            beyond -= less
    if beyond and item.fault:
        causes[item.fault, operations[0].kind if operations else item.kind, item.module] += beyond


def _shared_out(
    recording: CallRecording, phase: str, products: Sequence[Item]
) -> tuple[list[tuple[Item, list[Operation]]], list[Operation]]:
    """Return (each item with its operations, operations without an item)."""
    owner: dict[int, int] = {}
    for number in sorted(range(len(products)), key=lambda number: products[number].last - products[number].first):
        for index in range(products[number].first, products[number].last):
            owner.setdefault(index, number)
    again = _first_time(recording)
    covered: list[tuple[Item, list[Operation]]] = [(item, []) for item in products]
    uncovered: list[Operation] = []
    for operation in recording.operations:
        if operation.phase != phase or not model_flop(operation):
            continue
        forward = operation.forward_index
        number = owner.get(operation.index, -1 if forward is None else owner.get(again.get(forward, forward), -1))
        (uncovered if number < 0 else covered[number][1]).append(operation)
    return covered, uncovered


def _first_time(recording: CallRecording) -> dict[int, int]:
    """Map the index of a recomputed product to that of its first run in the forward pass: where torch enters the engine
    a second time, the backward pass belongs to the former."""
    first: defaultdict[tuple[str, str, tuple[tuple[int, ...], ...]], list[int]] = defaultdict(list)
    again: dict[int, int] = {}
    for operation in recording.operations:
        key = operation.module, operation.name, operation.input_shapes
        if operation.phase == "forward":
            first[key].append(operation.index)
        elif operation.phase == "recompute" and first[key]:
            again[operation.index] = first[key].pop(0)
    return again


def counted_by(counter: str, recording: CallRecording, phase: str) -> Counted:
    """Return what a counter counts by its rule."""
    counted: Counted = load(COUNTERS[counter].attribution)(recording, phase)
    return counted


PHASES: Mapping[str, tuple[str, ...]] = {"forward": ("forward", "loss"), "backward": ("backward",)}
"""Pass → its phases of a training step."""


def reconcile(
    model: str, batch_size: int, recording: CallRecording, rows: Iterable[FlopCount]
) -> tuple[list[Attribution], list[AttributionCause]]:
    """Attribute every total among the rows. Counters that failed have a row with the reason and no causes."""
    attributions: list[Attribution] = []
    causes: list[AttributionCause] = []
    for row in rows:
        if not row.operator and row.batch_size == batch_size:
            attribution, own = _attribution(model, recording, row)
            attributions.append(attribution)
            causes += own
    return attributions, causes


def at_least(recording: CallRecording, phases: Sequence[str]) -> int:
    """Return the model FLOP of calls with a rule, in some phases of a step, or in the recorded evaluation where no step
    could be trained."""
    table = recording.training or recording.operations
    return sum(model_flop(operation) for operation in table if operation.phase in phases)


def unknown_calls(recording: CallRecording, phases: Sequence[str]) -> int:
    """Count the calls of these phases without a rule, whose products are unknown."""
    table = recording.training or recording.operations
    return sum(bucket_of(operation.name) == "not_understood" for operation in table if operation.phase in phases)


def _attribution(model: str, recording: CallRecording, row: FlopCount) -> tuple[Attribution, list[AttributionCause]]:
    native = row.native_value if row.printed is None else row.printed
    least, unknown = at_least(recording, PHASES[row.phase]), unknown_calls(recording, PHASES[row.phase])
    exact = None if unknown else least
    causes: Causes = {}
    left, largest = None, ""
    if row.status == "ok" and native is not None and exact is not None:
        causes = _causes(recording, row) if COUNTERS[row.counter].attribution else {}
        left = _number(Fraction(native) - exact - sum(causes.values(), Fraction(0)))
        sums: defaultdict[str, Native] = defaultdict(int)
        for (cause, _, _), flop in causes.items():
            sums[cause] += flop
        sums.pop(CONVENTION, None)  # the largest is named of what adds or takes beside the convention
        largest = max(
            (cause for cause in sums if sums[cause]), key=lambda cause: abs(Fraction(sums[cause])), default=""
        )
    has_no_total = exact is None and row.counter == OWN  # it stands on the same calls
    attribution = Attribution(
        model=model,
        batch_size=row.batch_size,
        counter=row.counter,
        phase=row.phase,
        status=row.status,
        reason=row.reason,
        native_unit=row.native_unit,
        native_value=None if has_no_total else native,
        flop=None if has_no_total else row.flop,
        exact_flop=exact,
        flop_ratio=None if row.flop is None or not exact else row.flop / exact,
        unexplained_flop=left,
        largest_cause=largest,
        parameters=row.parameters,
        ignored=row.ignored,
        not_understood=row.not_understood,
        duration_s=row.duration_s,
        peak_memory_bytes=row.peak_memory_bytes,
        at_least_flop=least if unknown else None,
        unknown_calls=unknown,
    )
    common: dict[str, Any] = {"model": model, "batch_size": row.batch_size, "counter": row.counter, "phase": row.phase}
    ordered = sorted(causes.items(), key=lambda item: (-abs(Fraction(item[1])), item[0]))
    return attribution, [
        AttributionCause(**common, cause=cause, kind=kind, module=module, flop=_number(flop))
        for (cause, kind, module), flop in ordered
    ]


def _causes(recording: CallRecording, row: FlopCount) -> Causes:
    """Return the causes by the counter's rule, and those by which products in evaluation differ from a training
    step's."""
    items, missed = counted_by(row.counter, recording, row.phase)
    causes = Counter(explain(recording, row.phase, COUNTERS[row.counter].unit, items, missed))
    tables = ((recording.operations, 1), (recording.training, -1)) if recording.training else ()
    for table, sign in tables:
        for operation in table:
            if operation.phase in PHASES[row.phase]:
                causes["eval_graph", operation.kind, operation.module] += sign * model_flop(operation)
    return {key: native for key, native in causes.items() if native}


def _number(native: Native) -> int | float:
    """Convert to an int, or for a fraction, which only division by the batch leaves, to the nearest float."""
    number = Fraction(native)
    return int(number) if number.denominator == 1 else float(number)
