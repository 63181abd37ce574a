"""Where a model is looked at so that its formulas can be found, and its operation table at each such point.

Which symbols a model has are the sizes that it is built from (`Workload.hyper`) and the batch. Each starts as small as
the model takes it, so that unrolled loops are short, and goes in the smallest steps that it takes (a width in multiples
of the heads). Tables are those of a step on fake tensors: no memory, no device.

One step of a model at one point of its sizes, on fake tensors: its operations, storages and parameters. Where there is
none, the reason names the line of a user's own code.

Many small tables are made one after the other, and all of them are kept: Python's collector of cycles would look
through all of them, and all of torch and sympy, again and again, for a fifth of the time. So the command works without
it (`results/limits.py`), and `tidied` collects now and then.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from analysis.devices.precisions import PRECISIONS
from analysis.formula.derivation.interpolate import Point, point_text
from analysis.formula.derivation.sampling import Axis, NoSample, SizeSample, spread
from results.errors import Unavailable
from results.printable import depends_on_data, plain_words
from runners.workers.pool import place_of_user
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

CELLS = 2
"""Steps from the base that must be there."""


class NotBuilt(NoSample):
    """The model cannot be built or trained at some point."""

    def __init__(self, words: str, point: Point | None = None) -> None:
        self.point = dict(point or {})
        super().__init__(words)


class FixedSymbol(NotBuilt):
    """A symbol whose size the model takes one value of, while the others stay as they are."""

    def __init__(self, symbol: str, value: int, why: NotBuilt | None) -> None:
        self.symbol = symbol
        super().__init__(f"{symbol} cannot be other than {value}" + (f": {why}" if why else ""))


@dataclass(frozen=True)
class Subject:
    """A model as the command line has it. sizes: all it is built from, with their values; fixed: what else its factory
    takes; symbols: symbol → its size, "batch" for the batch; smallest: size → where it starts; limits: (size, relation,
    a number or another size) that hold, or the model cannot be built; kept: sizes that stay as they are, as an option
    has their name; fused: chains of pointwise operations are one each (`analysis/optables/fuse_pointwise.py`)."""

    model: str
    sizes: Mapping[str, int]
    fixed: Mapping[str, Any]
    symbols: Mapping[str, str]
    batch_size: int
    optimizer: str
    precision: str = "fp32"
    smallest: Mapping[str, int] | None = None
    limits: Sequence[tuple[str, str, int | str]] = ()
    kept: Mapping[str, int] = field(default_factory=dict)
    fused: bool = False

    def value(self, symbol: str) -> int:
        """What a symbol's size is where it is no symbol."""
        return self.batch_size if symbol == BATCH else self.sizes[self.symbols[symbol]]


def names_of(sizes: Mapping[str, int]) -> dict[str, str]:
    """Symbol → size, of every size a model has; a short name where there is one that is no size itself."""
    short = {size: name for name, size in ALIASES.items() if name not in sizes}
    return {BATCH: BATCH, **{short.get(size, size): size for size in sizes}}


def sampler(subject: Subject, on_point: Callable[[int], None] = lambda _count: None) -> Callable[[Point], SizeSample]:
    """What gives the table at a point; a point that was asked for before is not looked at again.

    on_point: how many points there are so far. Raises NotBuilt.
    """
    seen: dict[tuple[tuple[str, int], ...], SizeSample | NotBuilt] = {}

    def sample_at(point: Point) -> SizeSample:
        key = tuple(sorted(point.items()))
        if key not in seen:
            on_point(len(seen) + 1)
            try:
                seen[key] = _sample(subject, point)
            except NotBuilt as fault:
                seen[key] = fault
            tidied(len(seen))
        found = seen[key]
        if isinstance(found, NotBuilt):
            raise found
        return found

    return sample_at


def _sample(subject: Subject, point: Point) -> SizeSample:
    try:
        return SizeSample(dict(point), *step_at(subject, point))
    except Exception as fault:  # a model's own code may raise anything
        raise NotBuilt(f"{subject.model} at {point_text(point)}: {why(fault)}", point) from fault


def step_at(subject: Subject, point: Point) -> tuple[Any, Any, Any]:
    """The operations, storages and parameters of a step at a point. Raises what the model does."""
    sizes = {subject.symbols[symbol]: value for symbol, value in point.items()}
    batch_size = sizes.pop(BATCH, subject.batch_size)
    return trace_sizes(subject, {**subject.sizes, **sizes}, batch_size)


def axes(subject: Subject, symbols: Sequence[str], sample_at: Callable[[Point], SizeSample]) -> tuple[Axis, ...]:
    """Where each symbol is looked at. Raises NotBuilt where the model cannot be had even at its own sizes."""
    quick = tuple(_planned(subject, symbols))
    if all(_there(point, sample_at) for point in _corners(quick)):
        return quick
    base = _base(subject, symbols, sample_at)
    for symbol in symbols:
        axis = _axis(symbol, base, subject.value(symbol), sample_at)
        fewest = {**base, symbol: FEWEST}
        if (
            base[symbol] > FEWEST
            and axis.step == 1
            and sample_at({**base, axis.symbol: axis.at(1)}).structure != sample_at(base).structure
            and _there(fewest, sample_at)
        ):
            base = fewest
    return tuple(_axis(symbol, base, subject.value(symbol), sample_at) for symbol in symbols)


def _planned(subject: Subject, symbols: Sequence[str]) -> Iterator[Axis]:
    """Where symbols would be looked at, from what is known of the model alone: small, in steps that its limits name."""
    small = dict(zip(symbols, _small(subject, symbols), strict=True))
    names = {size: symbol for symbol, size in subject.symbols.items()}
    for symbol in symbols:
        size = subject.symbols[symbol]
        start, step = FEWEST if size in LOOPS else small[symbol], 1
        for limited, relation, bound in subject.limits:
            number = bound if isinstance(bound, int) else subject.value(names[bound])
            if limited == size and relation == "a multiple of":
                start, step = (FEWEST if size in LOOPS else -(-start // number)) * number, number
            elif limited == size and relation == "at least":
                start = max(start, number)
            elif bound == size and relation == "at most":
                start = max(start, subject.value(symbol))
        yield Axis(symbol, start, step, size in LOOPS)


def _corners(axes: Sequence[Axis]) -> Iterator[dict[str, int]]:
    """The points that must be there for axes to do as they are planned."""
    base = {axis.symbol: axis.base for axis in axes}
    calm = [axis for axis in axes if not axis.loops]
    yield base
    for point in islice(spread(calm), CELLS if calm else 0):
        yield {**base, **point}
    for axis in axes:
        if axis.loops:
            yield from ({**base, axis.symbol: axis.at(count)} for count in range(1, CELLS + 1))


def limits(model: str) -> tuple[tuple[str, str, int | str], ...]:
    """The limits of a model of the catalogue, with the steps of its images and of its loops."""
    known = ENTRIES.get(model)
    if known is None:
        return ()
    steps = (("image_size", "a multiple of", known.image_step),) if known.image_step > 1 else ()
    return (*known.limits, *steps, *PERIODS.get(model, ()))


def _base(subject: Subject, symbols: Sequence[str], sample_at: Callable[[Point], SizeSample]) -> dict[str, int]:
    """A small value of each symbol at which the model can be built; its own where a small one does not do."""
    own = {symbol: max(2, subject.value(symbol)) for symbol in symbols}
    small = dict(zip(symbols, _small(subject, symbols), strict=True))
    for point in _starts(own, small):
        if _there(point, sample_at):
            return point
    found = dict(own)
    sample_at(found)  # says why, where not even this can be had
    for symbol in symbols:
        if _there({**found, symbol: small[symbol]}, sample_at):
            found[symbol] = small[symbol]
    return found


def _starts(own: Mapping[str, int], small: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """All small; then all but one."""
    yield dict(small)
    for symbol in small:
        yield {**small, symbol: own[symbol]}


def _small(subject: Subject, symbols: Sequence[str]) -> Iterator[int]:
    primes = iter(SMALL * len(symbols))
    for symbol in symbols:
        size = subject.symbols[symbol]
        least = (subject.smallest or {}).get(size)
        if least is not None:
            yield least
        else:
            yield next(primes)


def _axis(symbol: str, base: Mapping[str, int], own: int, sample_at: Callable[[Point], SizeSample]) -> Axis:
    """The smallest step that the model takes twice."""
    why = None
    for step in (*STEPS, own):
        axis = Axis(symbol, base[symbol], step)
        try:
            for count in range(1, CELLS + 1):
                sample_at({**base, symbol: axis.at(count)})
        except NotBuilt as fault:
            why = why or fault
        else:
            return axis
    raise FixedSymbol(symbol, base[symbol], why)


def _there(point: Point, sample_at: Callable[[Point], SizeSample]) -> bool:
    try:
        sample_at(point)
    except NotBuilt:
        return False
    return True


def fixed_symbol(fault: NotBuilt, axes: Sequence[Axis], sample_at: Callable[[Point], SizeSample]) -> NotBuilt:
    """The symbol that keeps the model from taking a point, if it is one; else the fault."""
    for axis in axes:
        if axis.symbol in fault.point and _there({**fault.point, axis.symbol: axis.base}, sample_at):
            return FixedSymbol(axis.symbol, axis.base, fault)
    return fault


def smallest(model: str) -> dict[str, int]:
    """Size → where it starts, of models whose images have a least size or a step."""
    known = ENTRIES.get(model)
    if known is None or "image_size" not in known.hyper:
        return {}
    if known.fixed:
        return {"image_size": known.hyper["image_size"]}
    least = max(known.smallest_image, min(SMALL_IMAGE, known.hyper["image_size"]))
    return {"image_size": -(-least // known.image_step) * known.image_step}


MOST_WORDS = 200
ONE_BATCH = "a formula holds for all values; python -m runners.footprint or runners.count answers for one batch"
"""Letters of what a model's own code says."""

COLLECTED = 32
"""Points after which garbage is collected, where it is not by itself."""


def tidied(points: int) -> None:
    """Collect what garbage that many points have left, if it is time to."""
    if points % COLLECTED == 0 and not gc.isenabled():
        gc.collect()


def why(fault: Exception) -> str:
    """What kept a step from being had, with the line of the model's own code."""
    plain = isinstance(fault, (Unavailable, ValueError))
    cause = " ".join(str(fault).split())[:MOST_WORDS]
    cause = plain_words(cause if plain and cause else f"{type(fault).__name__}: {cause}")
    instead = f"; {ONE_BATCH}" if depends_on_data(cause) else ""
    return f"{cause}{place_of_user(fault)}{instead}"


def trace_sizes(subject: Subject, sizes: Mapping[str, int], batch_size: int) -> tuple[Any, Any, Any]:
    """The operations, storages and parameters of a step with these sizes. Raises what the model does."""
    import torch

    from measure.fake.mode import fake_mode, quiet, to_fake
    from measure.operations.tracer import trace_step
    from runners.workers.any_model import get
    from workloads.training.step import TrainingStep, have_state, optimizer_of

    policy = PRECISIONS[subject.precision]
    with quiet():
        workload = get(subject.model, **{**subject.fixed, **sizes})
        with torch.device("meta"):
            model = workload.build(**workload.hyper).train()
        parameters = tuple((name, tuple(parameter.shape)) for name, parameter in model.named_parameters())
        mode = fake_mode()
        to_fake(model, mode)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        with mode:
            batch = workload.batch(workload.hyper, batch_size, torch.device("cpu"), None)
            optimizer = optimizer_of(subject.optimizer, workload, trained)
            autocast = getattr(torch, policy.autocast) if policy.autocast else None
            scaler = torch.amp.GradScaler("cpu") if policy.scaler else None
            step = TrainingStep(model, workload.loss, optimizer, [batch], "cpu", autocast, scaler)
            have_state(optimizer, trained)
        inputs = (batch.inputs, batch.target)
        found = trace_step(step, model=model, optimizer=optimizer, inputs=inputs, mode=mode, steps_before=0)
    if not subject.fused:
        return found.operations, found.storages, parameters
    from analysis.optables.builder import StepTable, renumbered
    from analysis.optables.fuse_pointwise import fuse_pointwise, understand_fused

    understand_fused()
    table = renumbered(fuse_pointwise(StepTable(found.operations, found.storages)))
    return table.operations, table.storages, parameters
