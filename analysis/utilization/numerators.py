"""Provides the FLOP of one training step by each counting method, split by the unit that runs them.

The functions take a cell's `Run` and its counts, and return a `Numerator`. `exact` is our own count of this very step.
`theory` is three times a counter's forward pass. `one`, `batch` and `epoch` are the cleaned operations of a profile of
that pass, forward and backward. Recomputation is not model FLOP and is left out. Nothing is measured or divided here:
`utilization.py` divides.
"""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from analysis.counters import COUNTERS, TRAINING_PER_FORWARD, kind_of_operator
from analysis.devices.precisions import PRECISIONS, unit_of
from analysis.operators import registry
from analysis.operators.attention_conventions import CONVENTIONS, kept_pairs, may_have_mask
from analysis.operators.cost import Cost, input_dtype
from analysis.operators.traffic import lacks_sizes
from analysis.utilization.work_times import epoch_parts
from results.errors import Inconsistent, Unavailable
from results.records.cell import Run
from results.records.counts import WHOLE, CleanedOperation, FlopCount, Operation, ProfileCount
from results.records.rows import to_text

OWN = "flopledger"

METER = "flopledger.UtilizationMeter"

DENSE = "dense"
"""Attention convention of all of our counts (`analysis/operators/attention_conventions.py`)."""

PROFILER = "torch_profiler"
"""Source of a profile that is missing; a profile that exists names its source."""

PROFILED_METHODS = ("one", "batch", "epoch")
"""Methods whose FLOP come from a profile of the pass of the same name."""


@dataclass(frozen=True)
class Numerator:
    """Model FLOP of one step by arithmetic unit, or the reason why there is no count.

    all_flop adds every operation that is not a convolution or matrix product, where the method knows them. Where calls
    have no count, at_least_flop is that of the others, unknown_calls their number and unknown_time_ratio their share of
    a profile's time. attention: "dense", or "" for the counter's own way. less: convention of attention → unit → FLOP
    that it counts less; an unknown one is absent.
    """

    method: str
    source: str
    flop_by_unit: Mapping[str, int] = field(default_factory=dict)
    all_flop: int | None = None
    reason: str = ""
    warnings: tuple[str, ...] = ()
    at_least_flop: int | None = None
    unknown_calls: int = 0
    unknown_time_ratio: float | None = None
    attention: str = ""
    less: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @functools.cached_property
    def model_flop(self) -> int | None:
        """Sum over units; None if the method could not count."""
        return None if self.reason else sum(self.flop_by_unit.values())

    def by_convention(self, attention: str) -> dict[str, int] | None:
        """Return unit → model FLOP with attention counted "causal", "mask_exact" or "hardware"; None: unknown."""
        if self.reason or attention not in self.less:
            return None
        return {unit: flop - self.less[attention].get(unit, 0) for unit, flop in self.flop_by_unit.items()}


@dataclass(frozen=True)
class TableCount:
    """Sums of one operation table: model FLOP by (kind, input dtype), all other FLOP, and bytes.

    read_bytes and written_bytes are the unfused sum over operations: an estimate of traffic, no bound. unsized_calls:
    calls whose bytes are known only in part. less: convention of attention → dtype → FLOP that it counts less than the
    dense count here; an unknown one is absent.
    """

    flop_by_kind_dtype: Mapping[tuple[str, str], int]
    other_flop: int
    read_bytes: int
    written_bytes: int
    unsupported: Mapping[str, int]
    unsized_calls: int = 0
    less: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def model_flop(self) -> int:
        return sum(self.flop_by_kind_dtype.values())

    @property
    def flop_per_byte(self) -> float | None:
        """Model FLOP per unfused byte; None where an operation has no formula, or no size of what it writes."""
        moved, whole = self.read_bytes + self.written_bytes, not self.unsupported and not self.unsized_calls
        return self.model_flop / moved if moved and whole else None


def count_table(operations: Sequence[Operation], costs: Sequence[Cost] | None = None) -> TableCount:
    """Sum one operation table, without recomputation. costs: of each operation, where known."""
    known = map(registry.cost, operations) if costs is None else costs
    priced = [pair for pair in zip(operations, known, strict=True) if pair[0].phase != "recompute"]
    table = [operation for operation, _ in priced]
    by_kind: Counter[tuple[str, str]] = Counter()
    for operation, cost in priced:
        if cost.model_flop:
            by_kind[operation.kind, input_dtype(operation)] += int(cost.model_flop)
    return TableCount(
        flop_by_kind_dtype=dict(by_kind),
        other_flop=sum(int(cost.other_flop) for _, cost in priced),
        read_bytes=sum(int(cost.read_bytes) for _, cost in priced),
        written_bytes=sum(int(cost.written_bytes) for _, cost in priced),
        unsupported=dict(registry.unsupported(table)),
        unsized_calls=sum(map(lacks_sizes, table)),
        less=_less(priced),
    )


def _less(priced: Iterable[tuple[Operation, Cost]]) -> dict[str, dict[str, int]]:
    """Return convention of attention → dtype → FLOP that it counts less than the dense one, where known; "hardware" is
    absent where nothing is attention."""
    less_by_name: dict[str, Counter[str]] = {name: Counter() for name in CONVENTIONS[1:]}
    is_there = False
    for operation, cost in priced:
        pairs = kept_pairs(operation) if may_have_mask(operation) else None
        if pairs is None:
            continue
        is_there = True
        for name in list(less_by_name):
            less = pairs.less(name, int(cost.model_flop))
            if less is None:
                del less_by_name[name]
            else:
                less_by_name[name][input_dtype(operation)] += less
    return {name: dict(less) for name, less in less_by_name.items() if is_there or name != "hardware"}


def exact(counted: TableCount, run: Run) -> Numerator:
    """Return our own count of this step, each product on the unit of its dtype and the precision policy.

    If an operation has no formula, there is no count: the sum of the others is a lower bound.
    """
    policy = PRECISIONS[run.precision]
    try:
        units = _added(
            (unit_of(dtype, policy, run.device), flop) for (_, dtype), flop in counted.flop_by_kind_dtype.items()
        )
        less = {
            name: _added((unit_of(dtype, policy, run.device), flop) for dtype, flop in by_dtype.items())
            for name, by_dtype in counted.less.items()
        }
    except ValueError as fault:
        return Numerator("exact", OWN, reason=str(fault))
    traced = {f"{kind}/{dtype}": flop for (kind, dtype), flop in counted.flop_by_kind_dtype.items()}
    text = ", ".join(f"{name} {flop} against {real}" for name, flop, real in differing_kinds(traced, run))
    warnings = (f"executed_differs: FLOP of the trace against one real step: {text}",) if text else ()
    if counted.unsupported:
        reason = f"not_understood: {_calls(counted.unsupported)} have no formula"
        return _partial("exact", OWN, reason, counted.model_flop, counted.unsupported, warnings)
    every = counted.model_flop + counted.other_flop
    return Numerator("exact", OWN, units, every, warnings=warnings, attention=DENSE, less=less)


def _added(parts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return name → sum of its parts."""
    sums: Counter[str] = Counter()
    for name, flop in parts:
        sums[name] += flop
    return dict(sums)


def of_loop(run: Run) -> Numerator:
    """Return the FLOP that the meter counted per step of a loop, by unit; a mean where inputs differ in size."""
    if not run.executed:
        reason = "the meter has no count of these steps: see the warnings of the cell"
        return Numerator(
            "exact", METER, reason=reason, at_least_flop=run.at_least_flop, unknown_calls=run.unknown_calls or 0
        )
    held = (*run.executed.values(), *run.attention.values())
    if any(isinstance(flop, bool) or not isinstance(flop, (int, float)) for flop in held):
        return Numerator("exact", METER, reason="the meter's count of these steps is not a number")

    def unit(kind: str, dtype: str) -> str:
        own = unit_of(dtype, PRECISIONS[run.precision], run.device)
        return unit_of_kind(kind, run) if dtype == "float32" and own in ("fp32", "tf32") else own

    try:
        units = _added((unit(*name.split("/", 1)), flop) for name, flop in run.executed.items())
        less: dict[str, dict[str, int]] = {}
        for name, flop in run.attention.items():
            convention, _, dtype = name.partition("/")
            own = less.setdefault(convention, {})
            own[unit("attention", dtype)] = own.get(unit("attention", dtype), 0) + flop
    except ValueError as fault:
        return Numerator("exact", METER, reason=str(fault))
    return Numerator("exact", METER, units, attention=DENSE, less=less)


def theory(counts: Iterable[FlopCount], run: Run, counter: str) -> Numerator:
    """Return 3 × forward, the forward being a counter's convolutions and matrix products, cleaned to FLOP.

    A counter that is not in COUNTERS has no operators with a known kind: its whole total counts, and the row has a
    warning. If the counter has no rule for operators that may be products, the sum of the others is a lower bound.
    """
    try:
        total, operators = _forward(counts, run, counter)
    except Unavailable as fault:
        return Numerator("theory", counter, reason=str(fault))
    units: Counter[str] = Counter()
    for count in operators:
        kind = kind_of_operator(counter, count.operator) or ""
        units[unit_of_kind(kind, run)] += TRAINING_PER_FORWARD * (count.flop or 0)
    warnings: tuple[str, ...] = ()
    if total.extrapolated:
        warnings = (f"extrapolated: {total.counter} counted smaller batches, this one by an affine law",)
    if counter not in COUNTERS:
        units[unit_of_kind("", run)] += TRAINING_PER_FORWARD * (total.flop or 0)
        warnings += (f"convention: {counter} adds bias, normalisation, activation and pooling to its multiply-adds",)
    return _of_products("theory", counter, units, total, warnings)


def theory_as_published(counts: Iterable[FlopCount], run: Run, counter: str = "fvcore") -> Numerator:
    """Return 3 × the counter's native total, with multiply-adds taken for FLOP: the 2021 post's number, half of the
    true one."""
    try:
        total, _ = _forward(counts, run, counter)
    except Unavailable as fault:
        return Numerator("theory_as_published", counter, reason=str(fault))
    if total.native_value is None:
        return Numerator("theory_as_published", counter, reason=f"{counter}: its total has no native value")
    units = {unit_of_kind("", run): round(TRAINING_PER_FORWARD * total.native_value)}
    warnings = (f"convention: {counter}'s own number in {total.native_unit.upper()}, not converted to FLOP",)
    return _of_products("theory_as_published", counter, units, total, warnings)


def _of_products(
    method: str, counter: str, units: Mapping[str, int], total: FlopCount, warnings: tuple[str, ...]
) -> Numerator:
    """Return a counter's FLOP by unit; only a lower bound where it lacks a rule for operators that may be products."""
    products = {}
    for name, calls in total.not_understood.items():  # "aten::add_", "ReLU6", "Tensor.relu": unknown ones may be some
        spelt = (name.replace("::", "."), f"aten.{name.rpartition('.')[2].lower()}")
        if next(filter(None, map(registry.kind_of, spelt)), "") in ("", *registry.PRODUCTS):
            products[name] = calls
    if products:
        reason = f"not_understood: {counter} has no rule for {_calls(products)}"
        return _partial(method, counter, reason, sum(units.values()), products, warnings)
    return Numerator(method, counter, dict(units), warnings=warnings)


def _partial(
    method: str, source: str, reason: str, at_least_flop: int, unknown: Mapping[str, int], warnings: tuple[str, ...]
) -> Numerator:
    """Return a numerator without a count but with a lower bound. unknown: operator → calls without a count, whose times
    are unknown."""
    calls = sum(unknown.values())
    return Numerator(method, source, reason=reason, warnings=warnings, at_least_flop=at_least_flop, unknown_calls=calls)


def no_less_than_known(numerators: Sequence[Numerator]) -> list[Numerator]:
    """Return one cell's numerators; drop the count of `theory` where the exact count lacks calls without a formula.

    The counter may not have counted these calls either.
    """
    partial = next((row for row in numerators if row.method == "exact" and row.reason and row.at_least_flop), None)
    if partial is None:
        return list(numerators)
    least, compared = partial.at_least_flop or 0, []
    for numerator in numerators:
        flop = numerator.model_flop if numerator.method == "theory" else None
        if flop is not None:
            start, unknown = f"{numerator.source} counts {flop} FLOP,", {"": partial.unknown_calls}
            reason = f"unproven: {start} which may be a part: {partial.reason}"
            if flop < least:
                reason = f"{start} a part: {least} are known at least, and {partial.reason}"
            flop = min(flop, least)
            numerator = _partial("theory", numerator.source, reason, flop, unknown, numerator.warnings)
        compared.append(numerator)
    return compared


def profiled(
    method: str, counts: Sequence[ProfileCount], operations: Sequence[CleanedOperation], run: Run
) -> list[Numerator]:
    """Return the cleaned forward + backward of the pass `method` ("one", "batch", "epoch"), one numerator per source.

    counts, operations: of this cell only, of any pass. Without a count there is one numerator with the reason.
    """
    sources = dict.fromkeys(count.source for count in counts if count.work == method)
    return [_of_profile(method, source, counts, operations, run) for source in sources or (PROFILER,)]


def unit_of_kind(kind: str, run: Run) -> str:
    """Return the run's matmul unit for what runs as matrix products, and its convolution unit for everything else."""
    policy = PRECISIONS[run.precision]
    if kind in _MATRIX_KINDS:
        return run.matmul_unit or policy.matmul_unit
    return run.convolution_unit or policy.convolution_unit


_MATRIX_KINDS = tuple(kind for kind in registry.PRODUCTS if kind != "convolution")


def _of_profile(
    method: str, source: str, counts: Sequence[ProfileCount], operations: Sequence[CleanedOperation], run: Run
) -> Numerator:
    """Return the numerator of one source. It is divided by the time of a whole pass, so it must include all products:
    kernels without a recorded call and products without a phase are in no total, but in the time. An epoch is full
    batches × their number + the last one."""
    own = [count for count in counts if (count.work, count.source) == (method, source)]
    products = [op for op in operations if op.source == source]
    passes: Mapping[str, int] = epoch_parts(run) if method == "epoch" else {method: 1}  # how often each is in it
    units: Counter[str] = Counter()
    try:
        flop = _cleaned_flop(own, method, run)
        if outside := max((count.outside_time_ratio or 0.0 for count in own), default=0.0):
            raise Unavailable(f"{100 * outside:.2g} % of the time of kernels that make products is in no recorded call")
        if lost := sum(op.work in passes and not op.phase for op in products):
            raise Unavailable(f"{lost} products are in no phase: forward and backward are not all of the {method}")
        for op in products:
            if op.work in passes and op.phase in ("forward", "loss", "backward") and op.cleaned_flop:
                policy = PRECISIONS[run.precision]  # where no dtype was recorded
                unit = unit_of(op.dtype, policy, run.device) if op.dtype else unit_of_kind(op.kind, run)
                units[unit] += passes[op.work] * op.cleaned_flop
        if sum(units.values()) != flop:
            raise Inconsistent(f"operations of the profile add up to {sum(units.values())} FLOP, its counts to {flop}")
    except (Unavailable, Inconsistent, ValueError) as fault:
        known = [count.at_least_flop for count in own if count.at_least_flop is not None]
        shares = {count.unknown_time_ratio for count in own}
        return Numerator(
            method,
            source,
            reason=str(fault),
            at_least_flop=sum(known) if known else None,
            unknown_calls=sum(count.unknown_calls for count in own),
            unknown_time_ratio=shares.pop() if len(shares) == 1 else None,
        )
    return Numerator(method, source, dict(units), warnings=_profile_marks(own), attention=DENSE)


def _cleaned_flop(own: Sequence[ProfileCount], method: str, run: Run) -> int:
    """Return forward and backward FLOP of one pass and source. Raises Unavailable, with the reason, without a count."""
    if broken := next((count for count in own if count.status != "ok"), None):
        raise Unavailable(broken.reason or broken.status)
    if sorted(count.phase for count in own) != ["backward", "forward"]:
        raise Unavailable(str(run.unprofiled.get(method, "")) or f"no profile of {method}")
    if lacking := next((count for count in own if count.cleaned_flop is None), None):
        products = f"{lacking.unknown} products of {lacking.phase}"
        raise Unavailable(f"unknown: {products} whose recorded shapes give no count")
    return sum(count.cleaned_flop or 0 for count in own)


def _profile_marks(own: Sequence[ProfileCount]) -> tuple[str, ...]:
    """Return warnings on what cleaning changed in a profile, and on where it differs from our own count."""
    products, marks = sum(count.operations for count in own), []
    if repaired := sum(count.repaired for count in own):
        marks.append(f"repaired: {repaired} of {products} products counted from their recorded shapes")
    if removed := sum(count.removed for count in own):
        marks.append(f"duplicates: {removed} of {products} products were recorded twice and count once")
    marks += dict.fromkeys(f"profile: {count.reason}" for count in own if count.reason)
    differing = [count for count in own if count.exact_flop is not None and count.exact_flop != count.cleaned_flop]
    if differing:
        text = ", ".join(f"{count.phase} {count.cleaned_flop} against {count.exact_flop}" for count in differing)
        marks.append(f"profile_differs: FLOP of the profile against our own count: {text}")
    return tuple(marks)


def _forward(counts: Iterable[FlopCount], run: Run, counter: str) -> tuple[FlopCount, list[FlopCount]]:
    """Return the total and the operators of one counter's forward pass at the run's batch size. Raises Unavailable,
    with the reason, without a total or, for a counter of COUNTERS, without operators."""
    own = [c for c in counts if (c.cell_id, c.attempt, c.counter) == (run.cell_id, run.attempt, counter)]
    here = [c for c in own if c.scope == WHOLE and c.phase == "forward" and c.batch_size == run.batch_size]
    broken = [c for c in (here or own) if c.status != "ok" or c.flop is None]
    if broken:
        raise Unavailable(f"{counter}: {broken[0].reason or broken[0].status}")
    totals = [c for c in here if not c.operator]
    if len(totals) != 1:
        raise Unavailable(f"{counter}: expected one forward total at batch {run.batch_size}, found {len(totals)}")
    operators = [c for c in here if c.operator and counter in COUNTERS]
    if counter in COUNTERS and not operators:
        raise Unavailable(f"{counter}: no convolution or matrix product among its operators")
    return totals[0], operators


def differing_kinds(counted: Mapping[str, int], run: Run) -> list[tuple[str, int, int]]:
    """Return ("kind/dtype", model FLOP of the trace, of one real step on the device) where the two differ; nothing
    where the run recorded no real step. counted: "kind/dtype" → model FLOP of the trace."""
    flop = [(name, counted.get(name, 0), run.executed.get(name, 0)) for name in sorted({*counted, *run.executed})]
    return [(name, count, ran) for name, count, ran in flop if run.executed and count != ran]


def _calls(operators: Mapping[str, int]) -> str:
    return ", ".join(f"{name} × {to_text(calls)}" for name, calls in sorted(operators.items()))
