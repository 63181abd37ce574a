"""Multiply-adds that were counted at two levels of one nest count once: at the outermost level that has a number.

Autocast records a convolution inside a convolution, both with the whole count; a recorder that knows aten::linear and
aten::addmm counts both. Nothing is judged by sizes here: whether the number that stays is right is asked by
`undercounts.py`. A number of 0 is none: it is what recorders write for what they could not work out.
"""

from __future__ import annotations

from dataclasses import replace

from cleaning.counts.steps import Outcome
from cleaning.profile.instances import CallNode, Instance, entry, number_of
from results.records.counts import CleaningLog


def counted_once(instances: tuple[Instance, ...]) -> Outcome[Instance]:
    """deduplicated_flop of each instance: what its outermost counted level says, summed where calls stand in a row."""
    kept, log = [], []
    for instance in instances:
        flop = None if instance.row.found_flop is None else outermost_count(instance.node)
        if flop != instance.row.deduplicated_flop:
            log.append(_removed(instance, flop))
        kept.append(replace(instance, row=replace(instance.row, deduplicated_flop=flop)))
    return Outcome(tuple(kept), (), tuple(log))


def outermost_count(node: CallNode) -> int:
    """What a nest counts if each multiply-add counts at the outermost level that has a number; 0 if none has."""
    return number_of(node) or sum(outermost_count(child) for child in node.children)


def _removed(instance: Instance, flop: int | None) -> CleaningLog:
    row = instance.row
    gone = (row.deduplicated_flop or 0) - (flop or 0)
    levels = (f"{inner.call.name} {number}" for inner in instance.node.walk() if (number := number_of(inner)))
    reason = f"{gone} FLOP were counted again inside: {', '.join(levels)}"
    for node in instance.node.walk():
        inner = sum(outermost_count(child) for child in node.children)
        number = number_of(node)
        if number and inner > number:
            reason += f"; {node.call.name} counts {number}, less than the {inner} inside it"
    return entry("counted_once", row, "deduplicated_flop", row.deduplicated_flop, flop, reason)
