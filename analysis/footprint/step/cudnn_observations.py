"""What cuDNN took in histories that others published: `recorded_workspaces.csv`, each row with its source.

They are torch.profiler's memory events, its timeline of memory, and a trace of the caching allocator. Each allocation
that is freed inside of a convolution is that pass's workspace; convolutions are known by the calls around, or by the
order and the bytes of their outputs. Nothing here was measured by us. `analysis/footprint/step/cudnn_workspaces.py` has
the rules.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

from analysis.footprint.step.cudnn_workspaces import INDICES_BYTES, PASSES, TF32, Convolution, allowance_bytes
from results.records import Record

TABLE = Path(__file__).with_name("recorded_workspaces.csv")

FP32 = "fp32"
ITEMSIZES = {FP32: 4, TF32: 4, "bf16": 2}
"""Of the precisions in the table."""


@dataclass(frozen=True, kw_only=True)
class WorkspaceObservation(Record):
    """The workspace of one pass of one convolution in a published history. Sizes are the input's; one group.

    precision: of its numbers. block: bytes are those of the allocator's block, up to 1 MiB more than was asked for.
    calls: of the step that had the same sizes and workspace.
    """

    source: str
    gpu: str
    torch: str
    precision: str
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
        """Of the convolution."""
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
            ITEMSIZES[self.precision],
            self.precision != FP32,
        )


@functools.cache
def observations() -> tuple[WorkspaceObservation, ...]:
    """All rows of the table. Raises ValueError for one that is not of its form."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        found = tuple(WorkspaceObservation.from_row(row) for row in csv.DictReader(file))
    for each in found:
        if each.which not in PASSES or each.precision not in ITEMSIZES or not each.source.startswith("https://"):
            raise ValueError(f"expected one of {PASSES}, of {(*ITEMSIZES,)} and a source's address, got {each}")
    return found


def as_allowed(row: WorkspaceObservation) -> bool:
    """Whether a workspace was the allowance to the byte, or a block's bytes can have been."""
    beyond = row.workspace_bytes - allowance_bytes(row.sizes, row.which)
    return 0 <= beyond <= INDICES_BYTES if row.block else beyond == 0
