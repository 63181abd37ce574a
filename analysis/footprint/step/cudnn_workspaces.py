"""What cuDNN takes beside the tensors of a convolution while it runs: an allowance, learnt from published histories.

cuDNN picks its algorithm from sizes, version and device, and its workspace goes with that. Published histories have the
workspaces of each convolution (`recorded_workspaces.csv`): whole training steps of ResNet-50 at batch 32 on a V100 and
ResNet-18 at batch 8 on a GPU that is not named, in float32, and of ResNet-50 at batch 128 on an A100 in TF32; and some
convolutions in bfloat16 on an H100. All are channels_first.

In float32:

* **3 × 3, stride 1, not dilated, one group**: the transforms of Winograd's F(4 × 4, 3 × 3) (Lavin and Gray,
  arXiv 1509.09308) lie in the workspace: 36 numbers for each pair of channels, in and out, and for each channel of each
  tile of 4 × 4. Every gradient of weights is that, in all its bytes; the other passes are, too, where channels are
  many, and need less elsewhere.
* **any other**: at most its input and weights again for the input's gradient, its weights again for theirs; in the
  forward pass nothing of windows of 1 × 1 and 7 × 7, and its input, output and twice the weights of 3 × 3 (taken for
  all other sizes, too, of which there was none); and up to 1 MiB of tables. Most need much less.

In TF32 and half precision, **tensor cores** read channels last, so that the workspace holds copies of the operands and
of the result (TF32's forward pass writes it in place), with channels filled up to 16 bytes and a result of half
precision in four bytes a number; and parts of sums, up to 32 MiB. Most of 1 × 1 need none in the forward pass and for
their input's gradient.

So it is an allowance, above all that was recorded and no prediction of each. Where memory is short, torch takes an
algorithm that needs less (`aten/src/ATen/native/cudnn`): a step takes this where there is room, and does not need it.

Not claimed: gradients in half precision, of which no history was found; channels_last, which needs no copies: the
same numbers, and too high; what `torch.backends.cudnn.benchmark` tries; sound and volumes (0); recurrent layers.
Depthwise convolutions run in torch's own kernels, without a workspace, but in half precision, and count as 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from analysis.footprint.step.live_bytes import BEFORE
from analysis.operators import attribute, itemsize, output_mask, shape
from results.records import Operation, Storage

TF32 = "tf32"
"""The policy (`analysis.devices.precisions`) under which float32 is calculated on tensor cores."""

ONWARD, BACKWARD = "aten.convolution", "aten.convolution_backward"

PARTS = 2
"""Moments of an operation on the timeline of `with_workspaces`."""

TILE, TRANSFORMED = 4, 36
"""Winograd's: a tile has 4 × 4 outputs and 6 × 6 numbers when transformed."""

INDICES_BYTES = 2**20
"""Tables, and what a block has beyond what was asked for."""

ALIGNED_BYTES = 16
"""Channels of one place are filled up to this on tensor cores."""

PARTS_BYTES = 32 * 2**20
"""Parts of sums: 26 MB at most was recorded beside copies."""

RESULT_BYTES = 4
"""A number of a result on tensor cores, before it is rounded."""

IN_PLACE = ((1, 1), (7, 7))
"""Windows whose forward pass took no copies in float32."""

FORWARD, INPUT, WEIGHT = "forward", "input", "weight"
PASSES = (FORWARD, INPUT, WEIGHT)
"""The forward pass, the gradient of the input, that of the weights."""


@dataclass(frozen=True)
class Convolution:
    """Sizes of one convolution of images. itemsize: bytes of a number. tensor_cores: whether they calculate it.

    inputs: (N, C, H, W); outputs: (N, K, P, Q); weights: (K, C ÷ groups, R, S).
    """

    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    outputs: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    itemsize: int
    tensor_cores: bool = False

    @property
    def depthwise(self) -> bool:
        """Whether each channel of the input has outputs of its own."""
        return self.groups > 1 and self.groups == self.inputs[1]

    @property
    def winograd(self) -> bool:
        """Whether F(4 × 4, 3 × 3) applies."""
        ones = {*self.stride, *self.dilation, self.groups}
        return self.weights[2:] == (3, 3) and ones == {1}


def allowance_bytes(sizes: Convolution, which: str) -> int:
    """The most that one of PASSES may take for itself. 0: it has no workspace."""
    if sizes.depthwise:
        return 0
    if sizes.tensor_cores:
        return _copied_bytes(sizes, which) + INDICES_BYTES
    if sizes.winograd:
        return _winograd_bytes(sizes, sizes.inputs if which == INPUT else sizes.outputs)
    inputs, weights, outputs = (sizes.itemsize * prod(each) for each in (sizes.inputs, sizes.weights, sizes.outputs))
    again = 0 if sizes.weights[2:] in IN_PLACE else inputs + outputs + 2 * weights
    return {FORWARD: again, INPUT: inputs + weights, WEIGHT: weights}[which] + INDICES_BYTES


def _copied_bytes(sizes: Convolution, which: str) -> int:
    """Operands and result with their channels last, and parts of sums."""
    filled = ALIGNED_BYTES // sizes.itemsize
    each = (sizes.inputs, sizes.weights, sizes.outputs)
    numbers = [prod(form) // form[1] * -(-form[1] // filled) * filled for form in each]
    inputs, weights, outputs = (sizes.itemsize * count for count in numbers)
    wider = RESULT_BYTES // sizes.itemsize
    return {
        FORWARD: inputs + weights + (outputs * wider if wider > 1 else min(2 * outputs, PARTS_BYTES)),
        INPUT: inputs * wider + weights + outputs,
        WEIGHT: inputs + outputs + max(weights * wider, PARTS_BYTES),
    }[which]


def _winograd_bytes(sizes: Convolution, computed: Sequence[int]) -> int:
    """Transforms of weights, and of both images for each tile of the one that is computed, or of its gradient."""
    (into, out), (batch, _, height, width) = (sizes.inputs[1], sizes.outputs[1]), computed
    tiles = batch * -(-height // TILE) * -(-width // TILE)
    return TRANSFORMED * sizes.itemsize * (into * out + tiles * (into + out))


def convolves(operations: Iterable[Operation]) -> bool:
    """Whether one of them is a convolution, which may have a workspace."""
    return any(each.name in (ONWARD, BACKWARD) for each in operations)


def with_workspaces(
    operations: Sequence[Operation], storages: Iterable[Storage], precision: str
) -> tuple[list[Storage], int]:
    """(storages and each convolution's workspaces, moments): on a timeline of PARTS moments an operation.

    In a convolution's backward pass the gradient of the input comes first, with its workspace; that of the weights and
    its own follow. All else is there in both moments of its operation. precision: the policy of the step.
    """
    given = list(storages)
    asked = [(each, list(_passes(each, precision))) for each in operations]
    second = {each.writes[1]: each.index for each, passes in asked if len(passes) > 1}
    moved = [
        replace(
            each,
            born_index=each.born_index * PARTS + (second.get(each.id) == each.born_index) if each.born_index > BEFORE
            else BEFORE,
            died_index=None if each.died_index is None else each.died_index * PARTS + PARTS - 1,
        )
        for each in given
    ]  # fmt: skip
    fresh = max((each.id for each in given), default=-1) + 1
    taken = [
        (operation.index * PARTS + part, nbytes) for operation, passes in asked for part, nbytes in enumerate(passes)
    ]
    made = [Storage(fresh + at, nbytes, "temporary", at, at) for at, nbytes in taken if nbytes]
    return moved + made, PARTS * len(operations)


def _passes(operation: Operation, precision: str) -> Iterator[int]:
    """The allowance of each pass that an operation runs, in their order; none for other operations."""
    sizes = _sizes(operation, precision == TF32)
    if sizes is None:
        return
    if operation.name == ONWARD:
        yield allowance_bytes(sizes, FORWARD)
        return
    for which, asked in zip((INPUT, WEIGHT), output_mask(operation)[:2], strict=True):
        if asked:
            yield allowance_bytes(sizes, which)


def _sizes(operation: Operation, tf32: bool) -> Convolution | None:
    """Of a convolution of images, where the operation is one."""
    back = operation.name == BACKWARD
    if not back and operation.name != ONWARD:
        return None
    inputs, weights = shape(operation, "input"), shape(operation, "weight")
    outputs = shape(operation, "grad_output") if back else operation.output_shapes[0]
    if len(inputs) != 4 or attribute(operation, "transposed", False):
        return None
    dtype = operation.input_dtypes[0]
    return Convolution(
        tuple(inputs),
        tuple(weights),
        tuple(outputs),
        tuple(attribute(operation, "stride", (1, 1))),
        tuple(attribute(operation, "dilation", (1, 1))),
        attribute(operation, "groups", 1),
        itemsize(dtype),
        tf32 or dtype != "float32",
    )
