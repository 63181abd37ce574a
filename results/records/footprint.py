"""A row of `benchmarks.pages.footprint`: how far a predicted footprint is from what an allocator saw."""

from __future__ import annotations

from dataclasses import dataclass

from results.records.rows import Record


@dataclass(frozen=True, kw_only=True)
class FootprintCheck(Record):
    """One step: what was predicted before it, and what was measured. Bytes; None: not measured, `reason` says why.

    predicted_bytes: the eager footprint; measured_bytes: the allocator's highest; tensors_bytes: of it, what outlives
    the operation that made it, at its own highest; own_bytes: what the operation at the peak took for itself;
    rounding_bytes: of blocks on CUDA; tracked_bytes: MemTracker's.
    """

    model: str
    batch_size: int
    precision: str
    optimizer: str
    device: str
    predicted_bytes: int
    predicted_at: str
    predicted_phase: str
    unknown: int
    measured_bytes: int | None = None
    tensors_bytes: int | None = None
    own_bytes: int | None = None
    rounding_bytes: int | None = None
    reserved_bytes: int | None = None
    predicted_allocated_bytes: int | None = None
    predicted_reserved_bytes: int | None = None
    predicted_workspace_bytes: int | None = None
    measured_at: str = ""
    tracked_bytes: int | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class FootprintPrediction(Record):
    """What we predict of a number that others measured (`analysis.footprint.step.published`), by its name.

    predicted_bytes: of the quantity that was measured; without_bytes: the same without cuDNN's workspaces; live_bytes:
    the eager footprint alone, and where its peak is.
    """

    name: str
    predicted_bytes: int
    without_bytes: int
    live_bytes: int
    predicted_at: str
    predicted_phase: str
