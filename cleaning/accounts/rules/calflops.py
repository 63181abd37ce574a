"""calflops by its patches: those of DeepSpeed's profiler without `@`, mm, bmm and fused attention, with shapes laid
together from the left, and with a backward pass that is twice the forward one (calflops/pytorch_ops.py of 0.3.2)."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from cleaning.accounts.rules.deepspeed import MODULES, SHARED
from cleaning.accounts.vocabulary import module_hooks, patched_functions
from cleaning.accounts.vocabulary.items import FUSED_NOT_SEEN, Counted, Item, bound, missed_by, other, product
from results.records.counts import Call, CallRecording

UNIT = "flop"

BACKWARD = 2
"""Its backward pass: so many times the forward one, whatever the layer."""


def count(recording: CallRecording, phase: str) -> Counted:
    """Its items of one pass. A module with several parents is met once for each of them."""
    times = module_hooks.visits(recording)
    found = [
        (next((each.serial for each in (call, *recording.around(call)) if each.serial >= 0), 0), item)
        for call, item in patched_functions.calls(recording, FUNCTIONS)
    ]
    found += list(module_hooks.items(recording, MODULES))
    items = list(module_hooks.multiplied(iter(found), times))
    if phase == "backward":
        return [
            replace(item, native=BACKWARD * item.native, fault="backward_as_twice_forward") for item in items
        ], missed_by({}, "backward_not_counted")
    return items, missed_by(FUSED_NOT_SEEN, "operator_without_rule")


def _transposed(call: Call) -> Iterator[Item]:
    given = bound(call, "input weight bias stride padding output_padding groups dilation")
    weight, sizes, groups = given["weight"].shape, given["input"].shape, given.get("groups", 1)
    macs = prod(weight[2:]) * sizes[1] * (weight[1] // groups) * sizes[0] * prod(sizes[2:])
    yield product(call, 2 * macs, "transposed_divided_by_groups", "convolution")
    if given.get("bias") is not None:
        positions = patched_functions.conv_sizes(given, sizes[2:], weight[2:])
        yield other(call, "bias_counted", weight[1] * sizes[0] * prod(positions), "convolution")


def _resizing(call: Call) -> Iterator[Item]:
    given = bound(call, "input size scale_factor")
    size = given.get("size")
    native = given["input"].numel if size is None else prod(size) if isinstance(size, tuple) else int(size)
    yield other(call, "resizing_counted", native, "pooling")


FUNCTIONS: dict[str, patched_functions.Rule] = {
    **SHARED,
    **dict.fromkeys(patched_functions.TRANSPOSED, _transposed),
    **dict.fromkeys(("F.upsample", "F.interpolate"), _resizing),
    **dict.fromkeys(patched_functions.ADDITIONS, patched_functions.elementwise("addition_counted", left_aligned=True)),
    **dict.fromkeys(
        patched_functions.MULTIPLICATIONS, patched_functions.elementwise("multiplication_counted", left_aligned=True)
    ),
}
