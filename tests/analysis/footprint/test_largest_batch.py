"""The largest batch that fits: by brute force, over memory that is a line, bends, jumps or does not grow.

Predictions of checkpointing against steps that torch checkpoints, to the byte; and the curve's laws.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from statistics import fmean

import pytest

from analysis.footprint.checkpointing import checkpointed, curve, stretches_of, units
from analysis.footprint.largest_batch import BatchFit, largest_batch, reserved_fits
from analysis.footprint.live_bytes import footprint, live_bytes
from analysis.operators import registry
from measure.operations.tracer import Trace
from tests.support.nets.checkpoint_nets import BLOCKS, NETS, Stretches
from tests.support.nets.small_steps import fake_trace, parts


def brute(need, available: int, most: int) -> int:
    """The last batch before the first that does not fit."""
    for batch in range(1, most + 1):
        found = need(batch)
        if (found if isinstance(found, int) else max(found)) > available:
            return batch - 1
    return most


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("whole", [False, True])
def test_equals_brute_force(seed: int, whole: bool) -> None:
    """Moments that are lines, of which another one is the highest at another batch."""
    dice = random.Random(seed)
    lines = [(dice.randint(0, 500), dice.randint(0, 40)) for _ in range(dice.randint(1, 6))]
    available = dice.randint(0, 4000)

    def need(batch: int):
        moments = [at + slope * batch for at, slope in lines]
        return max(moments) if whole else moments

    most = 2000
    found = largest_batch(need, available, most=most)
    assert found.largest_batch == brute(need, available, most)
    assert found.capped == (found.largest_batch == most)
    edge = {found.largest_batch, found.largest_batch + 1} & set(range(1, most + 1))
    assert edge <= found.needed.keys(), "the largest that fits and the next were looked at themselves"


@pytest.mark.parametrize("seed", range(20))
def test_jumps_are_found(seed: int) -> None:
    """A step that takes another course from some batch on: no line predicts it."""
    dice = random.Random(seed)
    jumps = sorted((dice.randint(1, 300), dice.randint(1, 900)) for _ in range(3))

    def need(batch: int) -> int:
        return 7 * batch + sum(more for start, more in jumps if batch >= start)

    available = dice.randint(10, 4000)
    assert largest_batch(need, available, most=1000).largest_batch == brute(need, available, 1000)


def test_a_line_needs_four_looks_beside_the_first() -> None:
    """12 bytes a sample and 100: 1,000,000 hold 83,325 samples (999,900 ÷ 12 = 83,325)."""
    found = largest_batch(lambda batch: [100 + 12 * batch, 50], 1_000_000)
    assert (found.largest_batch, found.predicted) == (83_325, 83_325)
    assert sorted(found.needed) == [1, 2, 4, 83_325, 83_326]
    assert found.needed[83_325] == 1_000_000


@pytest.mark.parametrize(("least", "expected"), [(1, 0), (3, 0)])
def test_nothing_fits(least: int, expected: int) -> None:
    found = largest_batch(lambda batch: 10 * batch, 9, least=least)
    assert (found.largest_batch, found.predicted, found.needed) == (expected, None, {least: 10 * least})


def test_a_step_that_takes_no_single_sample_starts_at_its_least() -> None:
    def need(batch: int) -> int:
        if batch < 2:
            raise ValueError("more than one value a channel")
        return 5 * batch

    assert largest_batch(need, 52, least=2).largest_batch == 10


@pytest.mark.parametrize(("most", "available"), [(1, 10**6), (2, 10**6), (3, 10**6), (57, 10**6), (57, 200), (57, 8)])
def test_a_step_that_takes_no_larger_batch(most: int, available: int) -> None:
    """3 bytes a sample, up to a batch that an exported graph may have as its largest: that one, or what fits below."""

    def need(batch: int):
        if batch > most:
            raise ValueError(f"batch of 1 to {most}, got {batch}")
        return [3 * batch, 2]

    found = largest_batch(need, available)
    assert found.largest_batch == min(most, available // 3)
    assert found.capped == (found.largest_batch == most)
    assert found.refused == (f"batch of 1 to {most}, got {most + 1}" if found.capped else "")
    assert found.capped or found.largest_batch + 1 in found.needed


@pytest.mark.parametrize(
    ("at_most", "reserved", "expected"),
    [
        (83, lambda n: 12 * n, (80, 960)),  # the segments of 83 would fit; the multiple of eight below it does
        (83, lambda n: 15 * n, (64, 960)),  # 80 takes 1,200 of 1,000: 80 · 1,000 ÷ 1,200 = 66, and 64 of that
        (83, lambda n: 900 + 15 * n, (6, 990)),  # below eight no rounding: 6 fits, 7 would take 1,005
        (7, lambda n: 100 * n, (7, 700)),
        (83, lambda n: 2000, (0, 0)),  # a pool that is too large for any batch
        (0, lambda n: 1, (0, 0)),  # no batch fits by live bytes
    ],
)
def test_a_batch_fits_by_what_the_allocator_reserves(
    at_most: int, reserved: Callable[[int], int], expected: tuple[int, int]
) -> None:
    fit = reserved_fits(BatchFit(at_most, 1000, {}, None), reserved, 1)
    assert (fit.fits, fit.reserved_bytes) == expected
    assert fit.largest_batch == at_most


ALL = tuple((number, number) for number in range(BLOCKS))
CHOICES: dict[str, Stretches] = {
    "all": ALL,
    "every other": ALL[::2],
    "the first": ALL[:1],
    "pairs": ((0, 1), (2, 3), (4, 5)),
    "a long one": ((1, 4),),
}


@cache
def traced(net: str, chosen: str = "") -> Trace:
    make, shape = NETS[net]
    return fake_trace(parts(lambda: make(CHOICES[chosen] if chosen else ()), shape, "adamw"))


@cache
def predicted(net: str, chosen: str) -> Trace:
    plain = traced(net)
    blocks = {unit.name: unit.stretch for unit in units(plain.operations)}
    stretches = [(blocks[f"blocks.{a}"][0], blocks[f"blocks.{b}"][1]) for a, b in CHOICES[chosen]]
    return Trace(*checkpointed(plain.operations, plain.storages, stretches))


def recomputed(trace: Trace) -> tuple[int, int]:
    """(model FLOP, all other FLOP) of what is done again."""
    costs = [registry.cost(o) for o in trace.operations if o.phase == "recompute"]
    return sum(c.model_flop for c in costs), sum(c.other_flop for c in costs)


@pytest.mark.parametrize("chosen", CHOICES)
@pytest.mark.parametrize("net", NETS)
def test_it_is_what_torch_checkpoints(net: str, chosen: str) -> None:
    """The same peak, of the same parts, at the same operation; and what is done again, view for view apart."""
    real, ours = traced(net, chosen), predicted(net, chosen)
    there, here = (footprint(trace.operations, trace.storages) for trace in (real, ours))
    assert here.peak_bytes == there.peak_bytes
    assert here.peak_at.operation == there.peak_at.operation
    assert here.peak_at.module == there.peak_at.module
    assert here.by_category["weight"] == there.by_category["weight"]
    assert recomputed(ours) == recomputed(real)
    names = [[o.name for o in trace.operations if o.kind != "view"] for trace in (real, ours)]
    assert names[0] == names[1]
    lives = [live_bytes(trace.storages, len(trace.operations))[1:] for trace in (real, ours)]
    seen = [
        [nbytes for o, nbytes in zip(trace.operations, live, strict=True) if o.kind != "view"]
        for trace, live in zip((real, ours), lives, strict=True)
    ]
    apart = [abs(a - b) / max(seen[0]) for a, b in zip(*seen, strict=True)]
    assert max(apart) < 0.2  # a variable of a block's forward pass holds what is not used any more
    assert fmean(apart) < 0.03


@pytest.mark.parametrize("net", NETS)
def test_the_curve_falls_and_begins_with_the_step_as_it_is(net: str) -> None:
    plain = traced(net)
    found = curve(plain.operations, plain.storages)
    assert found[0].peak_bytes == footprint(plain.operations, plain.storages).peak_bytes
    assert (found[0].recomputed_flop, found[0].stretches) == (0, ())
    assert len(found) >= 4
    for before, after in pairwise(found):
        assert after.peak_bytes < before.peak_bytes
        assert 0 < after.recomputed_flop > before.recomputed_flop
        assert 0 < after.recomputed_ratio <= 1
    last = Trace(*checkpointed(plain.operations, plain.storages, stretches_of(plain.operations, found[-1])))
    forward = [registry.cost(o) for o in plain.operations if o.phase in ("forward", "loss")]
    assert found[-1].peak_bytes == footprint(last.operations, last.storages).peak_bytes
    assert found[-1].recomputed_flop == sum(recomputed(last))
    assert found[-1].recomputed_ratio == sum(recomputed(last)) / sum(c.model_flop + c.other_flop for c in forward)
    lowest = min(
        footprint(predicted(net, name).operations, predicted(net, name).storages).peak_bytes for name in CHOICES
    )
    assert found[-1].peak_bytes <= lowest


def test_nothing_to_choose() -> None:
    plain = traced("wide")
    assert checkpointed(plain.operations, plain.storages, []) == (plain.operations, plain.storages)
    (only,) = curve((), ())
    assert (only.peak_bytes, only.recomputed_ratio) == (0, 0)


def test_units_of_lists_inside_a_model() -> None:
    """Lists deep in a model; a module beside a list; one that is called before and after another, and joins with it."""
    calls = ("net.embed", "net.h.0.fc", "net.h.0.act", "net.h.1.fc", "net.norm", "head", "tail", "head")
    (first, *_), plain = traced("wide").operations, traced("wide")
    rows = [replace(first, index=place, module=module, phase="forward") for place, module in enumerate(calls)]
    found = units(rows)
    assert [unit.name for unit in found] == ["net.embed", "net.h.0", "net.h.1", "net.norm", "head + tail"]
    assert [unit.stretch for unit in found] == [(0, 0), (1, 2), (3, 3), (4, 4), (5, 7)]
    assert units([o for o in plain.operations if o.phase == "backward"]) == ()
