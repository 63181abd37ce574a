"""Chooses the points at which a model's formulas are sampled, and traces its operation table at each.

The symbols are the sizes that a model is built from (`Workload.hyper`) and the batch. Each starts as small as the model
takes it, so that unrolled loops are short, and goes in the smallest steps that it takes (a width in multiples of the
heads). Tables are those of a step on fake tensors: no memory, no device.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import count
from typing import Any

from analysis.formula.interpolate import Point, point_text
from analysis.formula.sampling import Axis, SizeSample
from results.errors import Unavailable
from results.printable import depends_on_data, plain_message
from runners.workers.pool import user_location
from workloads.catalogue.catalogue import ENTRIES

BATCH = "batch"

ALIASES = {"image": "image_size", "classes": "num_classes"}
"""Symbol → the size that it is short for."""

SMALL = (3, 5, 7, 11, 13, 17, 19, 23)
"""Where symbols start: all different, so that equal sizes are equal for a reason."""

SMALL_IMAGE = 64

STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)

FEWEST = 2
"""Layers, or steps of an unrolled loop, to begin with."""

LOOPS = ("layers", "depth", "seq", "length", "steps", "frames", "hops", "source_words", "target_words")
"""Sizes that often unroll a loop: they begin with the fewest, as a longer loop says no more."""

PERIODS: Mapping[str, tuple[tuple[str, str, int | str], ...]] = {"speech": (("frames", "a multiple of", 4),)}
"""Model → steps in which its loops grow: two pools of two stand before speech's. Its formulas hold for these only."""

MOST_CHARACTERS = 200
"""Letters of what a model's own code says."""

ONE_BATCH = "a formula holds for all values; python -m runners.footprint or runners.count answers for one batch"


class NotBuilt(ValueError):
    """The model cannot be built or trained at some point."""

    def __init__(self, message: str, point: Point | None = None) -> None:
        self.point = dict(point or {})
        super().__init__(message)


class FixedSymbol(NotBuilt):
    """A symbol whose size the model takes one value of, while the others stay as they are."""

    def __init__(self, symbol: str, value: int, why: NotBuilt | None) -> None:
        self.symbol = symbol
        super().__init__(f"{symbol} cannot be other than {value}" + (f": {why}" if why else ""))


@dataclass(frozen=True)
class SizedModel:
    """A model as the command line has it. sizes: all it is built from, with their values; fixed: what else its factory
    takes; constant: sizes that stay, as an option has their name; fused: chains of pointwise operations are one each
    (`analysis/operators/fusion.py`)."""

    model: str
    sizes: Mapping[str, int]
    batch_size: int
    optimizer: str = "sgd"
    precision: str = "fp32"
    fixed: Mapping[str, Any] = field(default_factory=dict)
    constant: Mapping[str, int] = field(default_factory=dict)
    fused: bool = False

    @cached_property
    def symbols(self) -> dict[str, str]:
        """Symbol → its size, "batch" for the batch; a short name where there is one that is no size itself."""
        short = {size: name for name, size in ALIASES.items() if name not in self.sizes}
        return {BATCH: BATCH, **{short.get(size, size): size for size in self.sizes}}

    def value(self, symbol: str) -> int:
        """Return the size that a symbol has in the model itself."""
        return self.batch_size if symbol == BATCH else self.sizes[self.symbols[symbol]]


def sampler(
    subject: SizedModel, on_point: Callable[[int], None] = lambda _count: None
) -> Callable[[Point], SizeSample]:
    """Return a function that gives the table at a point, made once.

    on_point: how many points there are so far. Raises NotBuilt.
    """
    numbers = count(1)

    @cache
    def sample_at(items: tuple[tuple[str, int], ...]) -> SizeSample:
        on_point(next(numbers))
        point = dict(items)
        try:
            return SizeSample(point, *step_at(subject, point))
        except Exception as fault:  # a model's own code may raise anything
            raise NotBuilt(f"{subject.model} at {point_text(point)}: {why(fault)}", point) from fault

    return lambda point: sample_at(tuple(sorted(point.items())))


def why(fault: Exception) -> str:
    """Return why a step could not be traced, with the line of the model's own code."""
    cause = " ".join(str(fault).split())[:MOST_CHARACTERS]
    if not (cause and isinstance(fault, (Unavailable, ValueError))):
        cause = f"{type(fault).__name__}: {cause}"
    cause = plain_message(cause)
    return f"{cause}{user_location(fault)}{f'; {ONE_BATCH}' if depends_on_data(cause) else ''}"


def step_at(subject: SizedModel, point: Point) -> tuple[Any, Any, Any]:
    """Return the operations, storages and parameters of a step at a point, on fake tensors. Raises what the model
    does."""
    from measure.operations.fake_mode import fake_mode, quiet_logs
    from runners.workers.traced_step import StepOptions, traced

    sizes = {**subject.sizes, **{subject.symbols[symbol]: value for symbol, value in point.items()}}
    batch_size = sizes.pop(BATCH, subject.batch_size)
    hyper = {**subject.fixed, **sizes}
    with quiet_logs():
        options = StepOptions(subject.model, subject.precision, subject.optimizer, "cpu", hyper=hyper)
        built, step = traced(options, batch_size, fake_mode())
    parameters = tuple((name, tuple(parameter.shape)) for name, parameter in built.model.named_parameters())
    if not subject.fused:
        return step.operations, step.storages, parameters
    from analysis.operators.fusion import fuse_pointwise, understand_fused
    from analysis.operators.step_table import StepTable, renumbered

    understand_fused()
    table = renumbered(fuse_pointwise(StepTable(step.operations, step.storages)))
    return table.operations, table.storages, parameters


def axes(subject: SizedModel, symbols: Sequence[str], sample_at: Callable[[Point], SizeSample]) -> tuple[Axis, ...]:
    """Choose the sizes at which each symbol is sampled. Raises NotBuilt where the model cannot be traced even at its
    own."""
    planned = tuple(_planned(subject, symbols))
    own = {symbol: max(2, subject.value(symbol)) for symbol in symbols}
    small = {axis.symbol: axis.base for axis in planned}
    starts = (small, *({**small, symbol: own[symbol]} for symbol in symbols))
    base = next((start for start in starts if _there(start, sample_at)), None)
    if base is None:
        base = own
        sample_at(base)  # says why, where not even this can be had
        for symbol in symbols:
            smaller = {**base, symbol: small[symbol]}
            base = smaller if _there(smaller, sample_at) else base
    return tuple(_axis(axis, base, subject.value(axis.symbol), sample_at) for axis in planned)


def _planned(subject: SizedModel, symbols: Sequence[str]) -> Iterator[Axis]:
    """Yield sizes at which symbols would be sampled, from what is known of the model alone: small, in steps that its
    limits name."""
    entry = ENTRIES.get(subject.model)
    limits = (*(entry.limits if entry else ()), *PERIODS.get(subject.model, ()))
    names = {size: symbol for symbol, size in subject.symbols.items()}
    primes = iter(SMALL * len(symbols))
    for symbol in symbols:
        size = subject.symbols[symbol]
        if entry and size == "image_size":
            own, step = entry.hyper["image_size"], max(1, entry.image_step)
            start = own if entry.fixed else max(entry.smallest_image, min(SMALL_IMAGE, own))
            start = -(-start // step) * step
        else:
            prime, step = next(primes), 1
            start = FEWEST if size in LOOPS else prime
        for limited, relation, bound in limits:
            number = bound if isinstance(bound, int) else subject.value(names[bound])
            if limited == size and relation == "a multiple of":
                start, step = (FEWEST if size in LOOPS else -(-start // number)) * number, number
            elif limited == size and relation == "at least":
                start = max(start, number)
            elif bound == size and relation == "at most":
                start = max(start, subject.value(symbol))
        yield Axis(symbol, start, step)


def _axis(planned: Axis, base: Mapping[str, int], own: int, sample_at: Callable[[Point], SizeSample]) -> Axis:
    """Return the smallest step that the model takes twice, the planned one first."""
    fault = None
    for step in (planned.step, *STEPS, own):
        axis = Axis(planned.symbol, base[planned.symbol], step)
        try:
            for steps in (1, 2):
                sample_at({**base, axis.symbol: axis.value(steps)})
        except NotBuilt as refused:
            fault = fault or refused
        else:
            return axis
    raise FixedSymbol(planned.symbol, base[planned.symbol], fault)


def _there(point: Point, sample_at: Callable[[Point], SizeSample]) -> bool:
    try:
        sample_at(point)
    except NotBuilt:
        return False
    return True


def fixed_symbol(fault: NotBuilt, axes: Sequence[Axis], sample_at: Callable[[Point], SizeSample]) -> NotBuilt:
    """Return the symbol that keeps the model from taking a point, if it is one; else the fault."""
    for axis in axes:
        if axis.symbol in fault.point and _there({**fault.point, axis.symbol: axis.base}, sample_at):
            return FixedSymbol(axis.symbol, axis.base, fault)
    return fault
