"""Multiply-adds that were counted at two levels of one nest count once: at the outermost level that has a number.

Autocast records a convolution inside a convolution, both with the whole count; a recorder that knows aten::linear and
aten::addmm counts both. Nothing is judged by sizes here: whether the number that stays is right is asked by
`undercounts.py`. A number of 0 is none: it is what recorders write for what they could not work out.

Gaps filled and wrong numbers put right from recorded shapes, one log row a repair.

A recorder that counts forward convolutions only, or divides by groups where it should not, leaves numbers out or
wrong; the sizes of every argument are recorded beside them. Each instance gets the count of its shapes by the formulas
of `analysis/`. Where the outer call does not say enough (a padding by name, weights in a list), the products inside it
do, if all of them can be counted. Where nothing can, the count is unknown, and stays so.
"""

from dataclasses import replace

from analysis.trace.operations import is_product, product_flop
from cleaning.counts.steps import Outcome
from cleaning.profile.instances import CallNode, Instance, entry, number_of
from results.errors import Unavailable
from results.records.counts import CleanedOperation, CleaningLog


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


def repaired(instances: tuple[Instance, ...]) -> Outcome[Instance]:
    """cleaned_flop of each instance: the count of its shapes; and what that says of the recorder's own number."""
    kept, log = [], []
    for instance in instances:
        row = _judged(instance)
        if (row.cleaned_flop, row.verdict) == (instance.row.cleaned_flop, instance.row.verdict):
            kept.append(instance)
            continue
        if row.cleaned_flop != row.deduplicated_flop:
            log.append(entry("repaired", row, "cleaned_flop", row.deduplicated_flop, row.cleaned_flop, row.reason))
        kept.append(replace(instance, row=row))
    return Outcome(tuple(kept), (), tuple(log))


def shapes_flop(node: CallNode) -> int:
    """Model FLOP of a nest by its recorded shapes: of its outermost call, else of the products inside it together.

    Raises Unavailable, with why, where neither is known.
    """
    if not is_product(node.call.name):
        return sum(shapes_flop(child) for child in _products(node))
    try:
        return product_flop(node.call)
    except Unavailable as fault:
        inside = _products(node)
        if not inside:
            raise
        try:
            return sum(shapes_flop(child) for child in inside)
        except Unavailable as deeper:
            raise Unavailable(f"{fault}; inside it {deeper}") from fault


def _products(node: CallNode) -> list[CallNode]:
    """The outermost products inside a call."""
    found = []
    for child in node.children:
        found.extend([child] if is_product(child.call.name) else _products(child))
    return found


def _judged(instance: Instance) -> CleanedOperation:
    row = instance.row
    try:
        flop = shapes_flop(instance.node)
    except Unavailable as fault:
        had = "nothing was counted" if row.deduplicated_flop is None else f"{row.deduplicated_flop} FLOP were recorded"
        return replace(row, cleaned_flop=None, verdict="unknown", reason=f"{had} and shapes give no count: {fault}")
    return replace(row, cleaned_flop=flop, verdict=_verdict(row.found_flop, flop), reason=_why(row, flop))


def _verdict(found: int | None, flop: int) -> str:
    """What the recorder's own number was; none at all is right only where there was nothing to count."""
    if (found or 0) == flop:
        return "right"
    return "under" if (found or 0) < flop else "over"


def _why(row: CleanedOperation, flop: int) -> str:
    if row.deduplicated_flop is None and flop:
        return f"no number was recorded; the shapes give {flop} FLOP"
    if (row.deduplicated_flop or 0) != flop:
        return f"{row.deduplicated_flop} FLOP were recorded, the shapes give {flop}"
    if row.found_flop != row.deduplicated_flop:
        return f"{(row.found_flop or 0) - flop} FLOP were counted twice"
    return ""
