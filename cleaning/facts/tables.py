"""Whether an operation table, its storages and a recorded profile contradict themselves: places, links, sizes, times.

Each function gives faults in words, none where everything fits. Nothing is compared with another file here.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from analysis.operators import registry
from cleaning.facts.recorded_calls import call_faults
from cleaning.facts.values import WORDS
from results.records import Operation, ProfiledOperation, Storage

ITEM_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "uint8": 1, "bool": 1}

_ORDER = {"forward": 0, "loss": 1, "backward": 2, "recompute": 2, "optimizer": 3}

BEFORE = ("weight", "buffer", "optimizer_state", "input")
"""Roles of storages that may be older than the step."""

CLOCK_S = 2e-6
"""By how much a recorded call may seem to end after the call that made it."""


def weight_bytes(storages: Iterable[Storage]) -> int:
    """Bytes of all weights; 0 where the size of one is not known."""
    sizes = [_nbytes(storage) for storage in storages if storage.role == "weight"]
    return 0 if None in sizes else sum(filter(None, sizes))


def table_faults(table: Sequence[Operation], storages: Sequence[Storage]) -> list[str]:
    """What an operation table has that cannot be: of its rows, of the links between them, of its storages."""
    known = {storage.id: storage for storage in storages}
    found = [f"storage {storage.id} is there twice" for storage in storages if known[storage.id] is not storage]
    latest = 0
    for operation in table:
        if operation.phase not in _ORDER:
            found.append(f"{_name(operation)}: phase {operation.phase!r}")
        place = _ORDER.get(operation.phase, 0)
        if place < latest:
            found.append(f"{_name(operation)}: {operation.phase} after a later phase")
        latest = max(latest, place)
        found += [f"{_name(operation)}: {words}" for words in _row(operation, table, known)]
    return found + list(link_faults(table)) + list(_storages(table, known))


def _name(operation: Operation) -> str:
    return f"row {operation.index} ({operation.name})"


def _row(operation: Operation, table: Sequence[Operation], known: Mapping[int, Storage]) -> Iterator[str]:
    kind = registry.kind_of(operation.name)
    if kind is not None and operation.kind != kind:
        yield f"kind {operation.kind}, its name is of {kind}"
    inputs = {len(operation.input_names), len(operation.input_shapes), len(operation.input_dtypes)}
    if len(inputs | {len(operation.reads)}) > 1 or len(operation.output_shapes) != len(operation.output_dtypes):
        yield "names, shapes, dtypes and storages are not as many"
        return
    link = operation.forward_index
    if link is not None and not (0 <= link < min(operation.index, len(table)) and _forward(table[link])):
        yield f"forward call {link} is none"
    unknown = [each for each in (*operation.reads, *operation.writes) if each not in known]
    if unknown:
        yield f"storage {unknown[0]} is not known"
        return
    yield from _sizes(operation, known)
    yield from _activation_faults(operation)
    if operation.name in CONVOLUTIONS and not operation.attributes.get("transposed"):
        yield from _convolution(operation)


CONVOLUTIONS = {
    "aten.convolution": ("input", "weight", None),
    "aten.convolution_backward": ("input", "weight", "grad_output"),
}
"""Name → names of its image, of its weight, and of what the forward call gave; None: that is its own output."""

_GIVEN = ("stride", "padding", "dilation", "groups", "transposed", "output_padding")


def _activation_faults(operation: Operation) -> Iterator[str]:
    """An activation gives what it takes: as large, in the same dtype, written somewhere."""
    shapes = (*operation.input_shapes[:1], *operation.output_shapes[:1])
    if any(isinstance(size, int) and size < 0 for shape in shapes for size in shape):
        yield f"sizes {list(shapes)}"
    if operation.kind != "activation" or len(shapes) < 2:
        return
    if shapes[0] != shapes[1] or operation.input_dtypes[0] != operation.output_dtypes[0]:
        yield f"{list(shapes[0])} {operation.input_dtypes[0]} become {list(shapes[1])} {operation.output_dtypes[0]}"
    if not operation.writes:
        yield "it writes nothing"


def _forward(operation: Operation) -> bool:
    """Whether there can be a gradient of a call."""
    return _early(operation) or operation.phase == "recompute" or _makes_node(operation)


def _early(operation: Operation) -> bool:
    return _ORDER.get(operation.phase, 0) < _ORDER["backward"]


def link_faults(table: Sequence[Operation]) -> Iterator[str]:
    """Autograd numbers its nodes as forward calls make them; a gradient has the number and the module of its call.

    A call may make several nodes, of which it bears the last number; nodes that a function of one's own made belong to
    the first call after them, which bears none. Of tables that recompute, whose threads count by themselves, only the
    modules are asked.
    """
    made = [o for o in table if _makes_node(o)]
    recomputes = any(operation.phase == "recompute" for operation in table)
    numbers = [operation.sequence_nr or 0 for operation in made]
    if not recomputes and any(after <= before for before, after in itertools.pairwise(numbers)):
        yield "forward calls are not numbered in their order"
        return
    for operation in (o for o in table if not _early(o) and not _makes_node(o)):
        link = operation.forward_index
        if link is not None and not 0 <= link < len(table):
            continue  # told of the row
        if link is not None and operation.module != table[link].module:
            yield f"{_name(operation)}: of module {operation.module!r}, its forward call of {table[link].module!r}"
        if not recomputes and not _linked(operation, table, made, numbers):
            yield f"{_name(operation)}: number {operation.sequence_nr} is not that of forward call {link}"


def _makes_node(operation: Operation) -> bool:
    """Whether a call made a node: one of the forward pass, or what scales the loss as the backward pass begins."""
    return operation.forward_index is None and operation.sequence_nr is not None and operation.sequence_nr >= 0


def _linked(operation: Operation, table: Sequence[Operation], made: Sequence[Operation], numbers: list[int]) -> bool:
    """Whether the forward call of a gradient is the one that made the node of its number."""
    number, link = operation.sequence_nr, operation.forward_index
    place = bisect.bisect_right(numbers, -1 if number is None else number) - 1
    if place < 0:  # no number, or a node that is older than the step
        return link is None
    if link == made[place].index or link is None:
        return link is not None
    end = made[place + 1].index if place + 1 < len(made) else len(table)
    return made[place].index < link < end and table[link].sequence_nr is None and numbers[place] != number


def _sizes(operation: Operation, known: Mapping[int, Storage]) -> Iterator[str]:
    """What products read and write fits into its storage; a new one is exactly as large."""
    if operation.kind not in (*registry.PRODUCTS, "activation"):
        return
    for shape, dtype, storage in zip(operation.input_shapes, operation.input_dtypes, operation.reads, strict=True):
        needed, size = _bytes(shape, dtype), _nbytes(known[storage])
        if needed is not None and size is not None and needed > size:
            yield f"{needed} bytes read of storage {storage}, which has {size}"
    new = [_nbytes(known[each]) for each in operation.writes if known[each].born_index == operation.index]
    sizes = [_bytes(*each) for each in zip(operation.output_shapes, operation.output_dtypes, strict=True)]
    if None in new or None in sizes:
        return
    written = sum(filter(None, sizes))
    if new and sum(filter(None, new)) < written:
        yield f"{written} bytes written into new storages that have less"
    if len(new) == len(sizes) == 1 and new[0] != written:
        yield f"{written} bytes written, its new storage has {new[0]}"


def _nbytes(storage: Storage) -> int | None:
    """The size of a storage; None where it is not known: that of a sparse tensor."""
    return None if storage.nbytes is None else int(storage.nbytes)


def _bytes(shape: Sequence[Any], dtype: str) -> int | None:
    size = ITEM_BYTES.get(dtype)
    return None if size is None else math.prod(int(each) for each in shape) * size


def _convolution(operation: Operation) -> Iterator[str]:
    """Output sizes by input, kernel, stride, padding and dilation; channels by groups (torch.nn.Conv2d)."""
    given, shapes = operation.attributes, dict(zip(operation.input_names, operation.input_shapes, strict=True))
    names = CONVOLUTIONS[operation.name]
    image, weight = shapes.get(names[0]), shapes.get(names[1])
    came = (operation.output_shapes or (None,))[0] if names[2] is None else shapes.get(names[2])
    if missing := [name for name in _GIVEN if name not in given]:
        yield f"nothing is said of {', '.join(missing)}"
        return
    if not image or not weight or came is None:
        yield "an operand without sizes"
        return
    if names[2] is not None:
        yield from _gradients(operation, image, weight)
    if image[1] != weight[1] * given.get("groups", 1):
        yield f"{image[1]} channels come, its weight has {weight[1]} × {given.get('groups', 1)} groups"
    parts = (image[2:], weight[2:], given.get("stride", ()), given.get("padding", ()), given.get("dilation", ()))
    if len({len(part) for part in parts}) > 1:
        return
    out = [(i + 2 * p - d * (k - 1) - 1) // s + 1 if s > 0 else 0 for i, k, s, p, d in zip(*parts, strict=True)]
    expected = (image[0], weight[0], *out)
    if tuple(came) != expected:
        yield f"its output is {list(came)}, these sizes give {list(expected)}"


def _gradients(operation: Operation, image: Sequence[Any], weight: Sequence[Any]) -> Iterator[str]:
    """Each gradient that is asked for is as large as what it is of."""
    mask = operation.attributes.get("output_mask")
    if not mask:
        yield "nothing is said of its gradients"
        return
    wanted = [tuple(of) for of, asked in zip((image, weight, weight[:1]), mask, strict=False) if asked]
    given = [tuple(shape) for shape in operation.output_shapes if shape]
    if given != wanted:
        yield f"gradients of {given}, asked for {wanted}"
    bias_sizes = operation.attributes.get("bias_sizes", weight[:1])
    absent = () if len(mask) > 2 and mask[2] else (None, [], [0])
    if bias_sizes not in absent and list(bias_sizes or ()) != [weight[0]]:
        yield f"bias_sizes {bias_sizes}, its weight has {weight[0]} outputs"


def _storages(table: Sequence[Operation], known: Mapping[int, Storage]) -> Iterator[str]:
    """Each storage is used between its birth and its death, and begins with an operation that writes it."""
    used: dict[int, list[int]] = {}
    for operation in table:
        for each in {*operation.reads, *operation.writes}:
            used.setdefault(each, []).append(operation.index)
    read = _largest_reads(table)
    for storage in known.values():
        places, died, size = used.get(storage.id, []), storage.died_index, _nbytes(storage)
        if storage.born_index < -1 or storage.role not in WORDS["role"]:
            yield f"storage {storage.id}: role {storage.role!r}, born at {storage.born_index}"
        elif (size or 0) < 0 or (died is not None and died < storage.born_index):
            yield f"storage {storage.id}: {size} bytes from {storage.born_index} to {died}"
        elif places and (min(places) < storage.born_index or (died is not None and max(places) > died)):
            yield f"storage {storage.id} is used from {min(places)} to {max(places)}, it is there from " + (
                f"{storage.born_index} to {died}"
            )
        elif storage.born_index >= 0 and not _writes(table, storage):
            yield f"storage {storage.id} begins with operation {storage.born_index}, which does not write it"
        elif storage.role == "input" and size is not None and read.get(storage.id, size) != size:
            yield f"storage {storage.id} has {size} bytes, {read[storage.id]} of it are read"
        elif storage.born_index < 0 and storage.role not in BEFORE and places:
            yield f"storage {storage.id} of role {storage.role} is older than the step"


def _largest_reads(table: Sequence[Operation]) -> dict[int, int]:
    """Storage → bytes of the largest tensor that a product reads of it."""
    read: dict[int, int] = {}
    for operation in (each for each in table if each.kind in registry.PRODUCTS):
        for shape, dtype, storage in zip(operation.input_shapes, operation.input_dtypes, operation.reads, strict=False):
            read[storage] = max(read.get(storage, 0), _bytes(shape, dtype) or 0)
    return read


def _writes(table: Sequence[Operation], storage: Storage) -> bool:
    born = storage.born_index
    return born < len(table) and storage.id in table[born].writes


def profile_faults(calls: Sequence[ProfiledOperation]) -> list[str]:
    """What a recorded profile has that cannot be: of the order and the nesting of its calls."""
    works: dict[str, list[ProfiledOperation]] = {}
    for call in calls:
        works.setdefault(call.work, []).append(call)
    return [f"{work}: {words}" for work, mine in works.items() for words in _nesting(mine)]


def _nesting(calls: Sequence[ProfiledOperation]) -> Iterator[str]:
    before_s = -math.inf
    threads = {call.thread for call in calls if call.phase == "forward"}
    if len(threads) > 1:
        yield f"forward calls on {len(threads)} threads"
    yield from _overlap_faults(calls)
    for place, call in enumerate(calls):
        name = f"call {call.index} ({call.name})"
        if call.index != place:
            yield f"{name} is at place {place}"
            return
        if call.start_s < before_s - CLOCK_S:
            yield f"{name} begins before the one that comes first"
        before_s = call.start_s
        if len({len(call.input_shapes), len(call.input_dtypes), len(call.concrete_inputs)}) > 1:
            yield f"{name}: shapes, dtypes and values are not as many"
        if not call.name or _negative((call.time_s, call.start_s, call.thread, call.sequence_nr, call.found_flop)):
            yield f"{name}: {call.time_s:g} s from {call.start_s:g} on thread {call.thread}, below 0"
        if _negative(call.input_shapes):
            yield f"{name}: sizes {call.input_shapes}"
        if call.name == "aten::convolution_backward":
            yield from (f"{name}: {words}" for words in _geometry(call))
        yield from (f"{name}: {words}" for words in call_faults(call))
        if call.parent is not None:
            yield from (f"{name} {words}" for words in _inside(call, calls))
        link = call.forward_index
        if link is not None and 0 <= link < len(calls):
            yield from (f"{name} {words}" for words in _gradient_of(call, calls[link]))
        if link is not None and not (0 <= link < len(calls) and calls[link].phase in ("forward", "loss")):
            yield f"{name}: forward call {link} is none"
        elif call.name not in GRADIENTS or call.parent is not None:
            continue
        elif link is not None and calls[link].sequence_nr != call.sequence_nr:
            yield f"{name}: sequence number {call.sequence_nr}, of its forward call {calls[link].sequence_nr}"
        elif link is None and call.phase == "backward":
            yield f"{name}: no forward call"


GRADIENTS = ("aten::convolution_backward", "aten::mm", "aten::bmm")


def _gradient_of(call: ProfiledOperation, forward: ProfiledOperation) -> Iterator[str]:
    """A call that calculates a gradient is of the backward pass and of its forward call's module and number."""
    if call.phase != "backward":
        yield f"of phase {call.phase!r} is of the gradient of call {forward.index}"
    if call.module != forward.module:
        yield f"of module {call.module!r} is of the gradient of call {forward.index} of {forward.module!r}"
    if call.sequence_nr is None or (forward.sequence_nr is not None and call.sequence_nr < forward.sequence_nr):
        yield f"has the number {call.sequence_nr}, its forward call {forward.sequence_nr}"


def _negative(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_negative, value))
    return isinstance(value, (int, float)) and value < 0


def _overlap_faults(calls: Sequence[ProfiledOperation]) -> Iterator[str]:
    """Calls on one thread that are not inside of each other follow each other."""
    last: dict[tuple[int, int | None], ProfiledOperation] = {}
    for call in calls:
        before = last.get((call.thread, call.parent))
        if before is not None and before.start_s + before.time_s > call.start_s + CLOCK_S:
            yield f"call {before.index} ({before.name}) ends after call {call.index} began"
        last[call.thread, call.parent] = call


def _geometry(call: ProfiledOperation) -> Iterator[str]:
    """Gradient, image and weight of a convolution against its stride, padding and dilation, as they were recorded."""
    grad, image, weight = call.input_shapes[:3]
    stride, padding, dilation, transposed = call.concrete_inputs[4:8]
    parts = (image[2:], weight[2:], stride, padding, dilation)
    if transposed or not all(isinstance(part, (tuple, list)) for part in parts) or len({*map(len, parts)}) > 1:
        return
    out = [(i + 2 * p - d * (k - 1) - 1) // s + 1 if s > 0 else 0 for i, k, s, p, d in zip(*parts, strict=True)]
    if list(grad[2:]) != out:
        yield f"a gradient of {list(grad)}, these sizes give {out}"


SAME_CALL = {("aten::conv2d", "aten::convolution"): (2, slice(3, 6))}
"""(outer call, inner call) that are one product: operands that they share, and the values that both are given."""


def _inside(call: ProfiledOperation, calls: Sequence[ProfiledOperation]) -> Iterator[str]:
    if call.parent is None or not 0 <= call.parent < call.index:
        yield f"is inside of call {call.parent}, which does not come first"
        return
    outer = calls[call.parent]
    if call.thread != outer.thread:
        yield f"is on thread {call.thread}, the call around it on {outer.thread}"
    if call.start_s + call.time_s > outer.start_s + outer.time_s + CLOCK_S:
        yield f"ends after call {outer.index} around it"
    if call.phase != outer.phase:
        yield f"of phase {call.phase!r}, the call around it of {outer.phase!r}"
    if call.module != outer.module:
        yield f"of module {call.module!r}, the call around it of {outer.module!r}"
    node, around = (call.forward_index, call.sequence_nr), (outer.forward_index, outer.sequence_nr)
    if call.phase == "backward" and node != around:
        yield f"of the gradient of call {node[0]} (number {node[1]}), the call around it of {around[0]} ({around[1]})"
    if (outer.name, call.name) in SAME_CALL:
        operands, values = SAME_CALL[outer.name, call.name]
        shapes = [each.input_shapes[:operands] for each in (call, outer)]
        given = [
            [list(v) if isinstance(v, (tuple, list)) else v for v in e.concrete_inputs[values]] for e in (call, outer)
        ]
        if shapes[0] != shapes[1] or given[0] != given[1]:
            yield f"of {shapes[0]} {given[0]}, the call around it of {shapes[1]} {given[1]}"
