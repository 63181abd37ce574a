"""Predictions of checkpointing against steps that torch checkpoints, to the byte; and the curve's laws."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from statistics import fmean

import pytest

from analysis.footprint.checkpointing import checkpointed, curve, stretches_of, units
from analysis.footprint.live_bytes import footprint, live_bytes
from analysis.footprint.minimum import minimal
from analysis.operators import registry
from measure.operations.tracer import Trace
from tests.support.nets.checkpoint_nets import BLOCKS, NETS, Stretches
from tests.support.nets.small_steps import check_laws, fake_trace, parts

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
def test_the_table_is_a_trace_like_any_other(net: str) -> None:
    ours = predicted(net, "pairs")
    plain = [o for o in ours.operations if o.phase != "recompute"]
    assert [o.name for o in plain] == [o.name for o in traced(net).operations]
    storages = {s.id: s for s in ours.storages}
    for operation in ours.operations:
        for number in (*operation.reads, *operation.writes):
            assert storages[number].born_index <= operation.index
            assert storages[number].died_index is None or operation.index <= storages[number].died_index
    assert [o.index for o in ours.operations] == list(range(len(ours.operations)))
    check_laws(traced(net))


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


def test_an_order_finds_more_after_checkpointing() -> None:
    """Both together: gradients go as they come, and activations are made again."""
    ours = predicted("wide", "all")
    eager, both = (footprint(ours.operations, ours.storages).peak_bytes, minimal(ours.operations, ours.storages))
    assert both.minimal_bytes < eager
    assert both.minimal_bytes < minimal(traced("wide").operations, traced("wide").storages).minimal_bytes


def test_units_of_lists_inside_a_model() -> None:
    """Lists deep in a model; a module beside a list; one that is called before and after another, and joins with it."""
    calls = ("net.embed", "net.h.0.fc", "net.h.0.act", "net.h.1.fc", "net.norm", "head", "tail", "head")
    (first, *_), plain = traced("wide").operations, traced("wide")
    rows = [replace(first, index=place, module=module, phase="forward") for place, module in enumerate(calls)]
    found = units(rows)
    assert [unit.name for unit in found] == ["net.embed", "net.h.0", "net.h.1", "net.norm", "head + tail"]
    assert [unit.stretch for unit in found] == [(0, 0), (1, 2), (3, 3), (4, 4), (5, 7)]
    assert units([o for o in plain.operations if o.phase == "backward"]) == ()
