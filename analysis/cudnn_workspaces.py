"""What cuDNN takes beside the tensors of a convolution while it runs: an allowance, learnt from published histories.

cuDNN picks its algorithm from sizes, version and device, and its workspace goes with that. Two published histories of
whole training steps in float32 have each workspace with its convolution (`recorded_workspaces.csv`: ResNet-50 at batch
32 on a V100, ResNet-18 at batch 8 on a GPU that is not named). They show:

* **3 × 3, stride 1, not dilated, one group**: the transforms of Winograd's F(4 × 4, 3 × 3) (Lavin and Gray,
  arXiv 1509.09308) lie in the workspace: 36 numbers for each pair of channels, in and out, and for each channel of each
  tile of 4 × 4. Every gradient of weights in both is that, in all its bytes; the other passes are, too, where channels
  are many, and need less elsewhere.
* **any other**: at most its input again for the input's gradient, its weights again for theirs; in the forward pass
  nothing of windows of 1 × 1 and 7 × 7, and its input, output and twice the weights of 3 × 3 (taken for all other
  sizes, too, of which there was none); and up to 1 MiB of tables. Most need much less.

So it is an allowance, above all that was recorded and no prediction of each. Where memory is short, torch takes an
algorithm that needs less (`aten/src/ATen/native/cudnn`): a step takes this where there is room, and does not need it.

Not claimed: half precision, TF32 and channels_last, of which no history was found (the same rules, in their bytes);
what `torch.backends.cudnn.benchmark` tries; three dimensions; recurrent layers. Depthwise convolutions run in torch's
own kernels, without a workspace, but in half precision, and count as 0.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from analysis.operands import attribute, output_mask, shape
from analysis.traffic import itemsize
from results.records import Operation
from results.rows import Record

TABLE = Path(__file__).with_name("recorded_workspaces.csv")

TILE, TRANSFORMED = 4, 36
"""Winograd's: a tile has 4 × 4 outputs and 6 × 6 numbers when transformed."""

INDICES_BYTES = 2**20
"""Tables, and what a block has beyond what was asked for."""

IN_PLACE = ((1, 1), (7, 7))
"""Windows whose forward pass took no copies in either history."""

FORWARD, INPUT, WEIGHT = "forward", "input", "weight"
PASSES = (FORWARD, INPUT, WEIGHT)
"""The forward pass, the gradient of the input, that of the weights."""


@dataclass(frozen=True)
class Convolution:
    """Sizes of one convolution of images. itemsize: bytes of a number.

    inputs: (N, C, H, W); outputs: (N, K, P, Q); weights: (K, C ÷ groups, R, S).
    """

    inputs: tuple[int, ...]
    weights: tuple[int, ...]
    outputs: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    itemsize: int

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
    inputs, weights, outputs = (sizes.itemsize * prod(each) for each in (sizes.inputs, sizes.weights, sizes.outputs))
    if sizes.winograd:
        return _winograd_bytes(sizes, sizes.inputs if which == INPUT else sizes.outputs)
    again = 0 if sizes.weights[2:] in IN_PLACE else inputs + outputs + 2 * weights
    return {FORWARD: again, INPUT: inputs, WEIGHT: weights}[which] + INDICES_BYTES


def _winograd_bytes(sizes: Convolution, computed: Sequence[int]) -> int:
    """Transforms of weights, and of both images for each tile of the one that is computed, or of its gradient."""
    (into, out), (batch, _, height, width) = (sizes.inputs[1], sizes.outputs[1]), computed
    tiles = batch * -(-height // TILE) * -(-width // TILE)
    return TRANSFORMED * sizes.itemsize * (into * out + tiles * (into + out))


@dataclass(frozen=True, kw_only=True)
class Recorded(Record):
    """The workspace of one pass of one convolution in a published history. Sizes are the input's; one group.

    block: bytes are those of the allocator's block, which has up to 1 MiB more than was asked for. calls: of the step
    that had the same sizes and workspace.
    """

    source: str
    gpu: str
    torch: str
    batch_size: int
    in_channels: int
    height: int
    width: int
    out_channels: int
    kernel_height: int
    kernel_width: int
    stride: int
    padding: int
    which: str
    workspace_bytes: int
    block: bool
    calls: int

    @property
    def sizes(self) -> Convolution:
        """In float32."""
        window = (self.kernel_height, self.kernel_width)
        image = (self.height, self.width)
        made = ((size + 2 * self.padding - of) // self.stride + 1 for size, of in zip(image, window, strict=True))
        return Convolution(
            (self.batch_size, self.in_channels, *image),
            (self.out_channels, self.in_channels, *window),
            (self.batch_size, self.out_channels, *made),
            (self.stride, self.stride),
            (1, 1),
            1,
            4,
        )


@functools.cache
def recorded() -> tuple[Recorded, ...]:
    """All rows of the table. Raises ValueError for one that is not of its form."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        found = tuple(Recorded.from_row(row) for row in csv.DictReader(file))
    for each in found:
        if each.which not in PASSES or not each.source.startswith("https://"):
            raise ValueError(f"expected one of {PASSES} and a source's address, got {each}")
    return found


def passing_bytes(operation: Operation) -> int:
    """How far a convolution lifts the moment in which it runs above what it reads and makes; 0 for other operations.

    In the backward pass the gradient of the input comes first, while that of the weights is not there yet.
    """
    sizes = _sizes(operation)
    if sizes is None:
        return 0
    if operation.name == "aten.convolution":
        return allowance_bytes(sizes, FORWARD)
    of_input, of_weights = output_mask(operation)[:2]
    lifted = [0]
    if of_input:
        later = sizes.itemsize * prod(sizes.weights) if of_weights else 0
        lifted.append(allowance_bytes(sizes, INPUT) - later)
    if of_weights:
        lifted.append(allowance_bytes(sizes, WEIGHT))
    return max(lifted)


def moments(operations: Sequence[Operation]) -> list[int]:
    """`passing_bytes` at each moment of a step: 0 before the first operation, then while each runs."""
    return [0, *(passing_bytes(each) for each in operations)]


def _sizes(operation: Operation) -> Convolution | None:
    """Of a convolution of images, where the operation is one."""
    back = operation.name == "aten.convolution_backward"
    if not back and operation.name != "aten.convolution":
        return None
    inputs, weights = shape(operation, "input"), shape(operation, "weight")
    outputs = shape(operation, "grad_output") if back else operation.output_shapes[0]
    if len(inputs) != 4 or attribute(operation, "transposed", False):
        return None
    return Convolution(
        tuple(inputs),
        tuple(weights),
        tuple(outputs),
        tuple(attribute(operation, "stride", (1, 1))),
        tuple(attribute(operation, "dilation", (1, 1))),
        attribute(operation, "groups", 1),
        itemsize(operation.input_dtypes[0]),
    )
