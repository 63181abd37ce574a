"""Chooses the points at which a model's cost formulas are sampled, and traces its operation table at each.

`runners.formula` fits its formulas to these tables. `axes` takes a model and symbols, and returns the values to try of
each symbol. `sampler` takes a model, and returns a function from a point to the table of a training step there. The
step is traced on fake tensors, without memory or a device. The symbols are the batch and the sizes that a model is
built from (`Workload.hyper`). Each symbol starts at a small value that the model accepts, so that unrolled loops are
short, else at the model's own. Each symbol then grows in the smallest steps that the model accepts. For example, a
width must be a multiple of the number of heads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import count
from typing import Any

from analysis.formula.interpolate import Point, point_text
from analysis.formula.sampling import Axis, SizeSample
from results.errors import Unavailable, depends_on_data, plain_message
from runners.workers.pool import user_location
from workloads.catalogue.catalogue import ENTRIES

BATCH = "batch"

ALIASES = {"image": "image_size", "classes": "num_classes"}
"""Symbol → the size that it is short for."""

SMALL = (3, 5, 7, 11, 13, 17, 19, 23)
"""First values of symbols: all different, so that two sizes are equal only where the model makes them so."""

SMALL_IMAGE = 64

STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64)

FEWEST = 2
"""First value of a number of layers, or of steps of an unrolled loop."""

LOOPS = ("layers", "depth", "seq", "length", "steps", "frames", "hops", "source_words", "target_words")
"""Sizes that often unroll a loop: they start at FEWEST, as a longer loop shows nothing new."""

PERIODS: Mapping[str, tuple[tuple[str, str, int | str], ...]] = {"speech": (("frames", "a multiple of", 4),)}
"""Model → further limits of its sizes; its formulas hold only within them. Speech pools its frames by two, twice."""

MOST_CHARACTERS = 200
"""Characters of an error message of the model's own code that are shown."""

ONE_BATCH = "a formula holds for all values; python -m runners.footprint or runners.count answers for one batch"


class NotBuilt(ValueError):
    """The model cannot be built or trained at some point."""

    def __init__(self, message: str, point: Point | None = None) -> None:
        self.point = dict(point or {})
        super().__init__(message)


class FixedSymbol(NotBuilt):
    """The model accepts only one value of a symbol while the others stay as they are."""

    def __init__(self, symbol: str, value: int, why: NotBuilt | None) -> None:
        self.symbol = symbol
        super().__init__(f"{symbol} cannot be other than {value}" + (f": {why}" if why else ""))


@dataclass(frozen=True)
class SizedModel:
    """A model as the command line has it. sizes: all sizes it is built from, with their values; fixed: other arguments
    of its factory; constant: sizes that never become symbols, since an option has their name; fused: whether chains of
    pointwise operations are one each (`analysis/operators/fusion.py`)."""

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
        """Symbol → the size it stands for ("batch": the batch). A symbol is the size's short name, if no other size
        has that name."""
        short = {size: name for name, size in ALIASES.items() if name not in self.sizes}
        return {BATCH: BATCH, **{short.get(size, size): size for size in self.sizes}}

    def value(self, symbol: str) -> int:
        """Return the size that a symbol has in the model itself."""
        return self.batch_size if symbol == BATCH else self.sizes[self.symbols[symbol]]


def sampler(
    subject: SizedModel, on_point: Callable[[int], None] = lambda _count: None
) -> Callable[[Point], SizeSample]:
    """Return a function from a point to its table, which is traced once. The function raises NotBuilt.

    on_point: called before a point is traced, with the number of points so far.
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
    """Return why a step could not be traced, in one line that names the line of the model's own code."""
    cause = " ".join(str(fault).split())[:MOST_CHARACTERS]
    if not (cause and isinstance(fault, (Unavailable, ValueError))):
        cause = f"{type(fault).__name__}: {cause}"
    cause = plain_message(cause)
    return f"{cause}{user_location(fault)}{f'; {ONE_BATCH}' if depends_on_data(cause) else ''}"


def step_at(subject: SizedModel, point: Point) -> tuple[Any, Any, Any]:
    """Return the operations, storages and parameters of a step at a point, on fake tensors. Raises whatever the model
    raises."""
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
    own sizes."""
    planned = tuple(_planned(subject, symbols))
    own = {symbol: max(2, subject.value(symbol)) for symbol in symbols}
    small = {axis.symbol: axis.base for axis in planned}
    starts = (small, *({**small, symbol: own[symbol]} for symbol in symbols))
    base = next((start for start in starts if _is_traceable(start, sample_at)), None)
    if base is None:
        base = own
        sample_at(base)  # raises where not even this can be traced
        for symbol in symbols:
            smaller = {**base, symbol: small[symbol]}
            base = smaller if _is_traceable(smaller, sample_at) else base
    return tuple(_axis(axis, base, subject.value(axis.symbol), sample_at) for axis in planned)


def _planned(subject: SizedModel, symbols: Sequence[str]) -> Iterator[Axis]:
    """Yield an axis for each symbol from the catalogue, without building the model: small, in steps that its limits
    demand."""
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
    """Return the axis with the smallest step that the model accepts twice, the planned step first."""
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


def _is_traceable(point: Point, sample_at: Callable[[Point], SizeSample]) -> bool:
    try:
        sample_at(point)
    except NotBuilt:
        return False
    return True


def fixed_symbol(fault: NotBuilt, axes: Sequence[Axis], sample_at: Callable[[Point], SizeSample]) -> NotBuilt:
    """Return a FixedSymbol if one symbol alone keeps the model from being traced at a point; else the fault."""
    for axis in axes:
        if axis.symbol in fault.point and _is_traceable({**fault.point, axis.symbol: axis.base}, sample_at):
            return FixedSymbol(axis.symbol, axis.base, fault)
    return fault
