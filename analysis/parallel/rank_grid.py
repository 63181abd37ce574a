"""How ranks are laid out: the axes of a plan, each rank's coordinates, and the idle part of a pipeline.

The tensor axis is innermost, then data, then pipeline, as in `analysis.project.parallelism`: rank = (pipeline · dp +
data) · tp + tensor. Context and expert parallelism are names that are known here and refused: nothing is left out of a
count without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

AXES = ("dp", "tp", "pp")
"""Data, tensor and pipeline parallelism, as a plan names them."""

LATER = ("cp", "ep")
"""Axes that are known and not counted, but for size 1."""

MOST_RANKS = 1024

SCHEDULES = ("1f1b", "gpipe")
"""Orders of micro-batches in a pipeline: both have the same bubble, 1f1b keeps fewer activations."""

REPLICAS = ("ddp", "fsdp")
"""What replicas do: each keeps all weights and gradients are reduced once a step, or each keeps its part."""


@dataclass(frozen=True)
class Coordinates:
    """A rank's place on each axis."""

    pp: int
    dp: int
    tp: int


@dataclass(frozen=True)
class RankGrid:
    """Sizes of the axes. microbatches: of one replica in one step; schedule, replicas: of SCHEDULES and REPLICAS."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    microbatches: int = 1
    schedule: str = "1f1b"
    replicas: str = "ddp"

    @property
    def world(self) -> int:
        """All ranks."""
        return self.dp * self.tp * self.pp

    @property
    def bubble(self) -> Fraction:
        """The share of a step in which a stage waits, all stages and micro-batches taking equally long:
        (p − 1) ÷ (m + p − 1) (Narayanan et al., arXiv 2104.04473, section 2.2.1, as a share of the whole step)."""
        return Fraction(self.pp - 1, self.microbatches + self.pp - 1)

    @property
    def name(self) -> str:
        """As `parse_plan` reads it: "ddp=2", "fsdp=2,tp=2"; an axis of one rank is left out, unless all are."""
        sizes = {self.replicas: self.dp, "tp": self.tp, "pp": self.pp}
        kept = {axis: size for axis, size in sizes.items() if size > 1} or {self.replicas: 1}
        return ",".join(f"{axis}={size}" for axis, size in kept.items())

    def coordinates(self, rank: int) -> Coordinates:
        """Where a rank is."""
        return Coordinates(rank // (self.dp * self.tp), rank // self.tp % self.dp, rank % self.tp)

    def rank(self, pp: int = 0, dp: int = 0, tp: int = 0) -> int:
        """The rank at these coordinates."""
        return (pp * self.dp + dp) * self.tp + tp

    def places(self) -> Iterator[Coordinates]:
        """Of all ranks, in order."""
        return map(self.coordinates, range(self.world))

    def in_flight(self, stage: int) -> int:
        """Micro-batches whose activations a stage keeps at most: all with gpipe; with 1f1b those of the stages from it
        to the last."""
        return self.microbatches if self.schedule == "gpipe" else min(self.pp - stage, self.microbatches)


def parse_sizes(text: str) -> dict[str, int]:
    """The axes of "dp=2,tp=4". Raises ValueError, one line, for an axis or a size that is none."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        axis, separator, number = (piece.strip() for piece in part.partition("="))
        if not separator or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"expected AXIS=N,AXIS=N with N of 1 or more, as in dp=2,tp=4, got {part.strip()!r}")
        if axis not in (*AXES, *LATER):
            raise ValueError(f"expected the axes {', '.join(AXES)}, got {axis!r}")
        if axis in sizes:
            raise ValueError(f"expected each axis once, got {axis} twice")
        if axis in LATER and int(number) > 1:
            raise ValueError(f"{axis}={number}: expected 1: {axis} is not counted yet, {', '.join(AXES)} are")
        sizes[axis] = int(number)
    return {axis: sizes.get(axis, 1) for axis in AXES}


def parse_plan(text: str) -> RankGrid:
    """The grid of "ddp=2", "fsdp=4" or "ddp=2,tp=2": of `parse_sizes`' axes, the data axis named by what replicas do.

    dp is another word for ddp. Raises ValueError, one line, for what is no plan, or for an axis that is not trained.
    """
    axis = text.partition("=")[0].strip()
    replicas = [word for word in REPLICAS if f"{word}=" in text.replace(" ", "")]
    if len(replicas) > 1:
        raise ValueError(f"expected one of {' and '.join(REPLICAS)}, got both in {text!r}")
    if axis not in (*REPLICAS, *AXES, *LATER):
        raise ValueError(f"expected a plan like ddp=2, fsdp=2 or ddp=2,tp=2, got {text!r}")
    plain = text
    for word in replicas:
        plain = plain.replace(word, "dp")
    sizes = parse_sizes(plain)
    if sizes["pp"] > 1:
        raise ValueError(
            f"expected the axes {', '.join(REPLICAS)} and tp, got pp={sizes['pp']}, which is counted alone"
        )
    kind = replicas[0] if replicas else REPLICAS[0]
    return RankGrid(dp=sizes["dp"], tp=sizes["tp"], replicas=kind)


def grid_of(
    sizes: dict[str, int],
    batch: int,
    microbatches: int | None = None,
    schedule: str = "1f1b",
    replicas: str = "ddp",
) -> RankGrid:
    """The grid of a step over a global batch of so many samples. microbatches: None for one without a pipeline, and
    for one of each sample with one. Raises ValueError for what does not divide, or for too many ranks."""
    data = sizes["dp"]
    if replicas == "fsdp" and sizes["pp"] > 1:
        raise ValueError(f"expected pp=1 where replicas share the weights (fsdp), got pp={sizes['pp']}")
    if batch % data:
        near = max(data, round(batch / data) * data)
        raise ValueError(f"expected a batch that is a multiple of dp={data}, got {batch}; nearest {near}")
    share = batch // data
    count = (share if sizes["pp"] > 1 else 1) if microbatches is None else microbatches
    if share % count:
        divisors = [each for each in range(1, share + 1) if share % each == 0]
        near = min(divisors, key=lambda each: abs(each - count))
        raise ValueError(f"expected micro-batches that divide a replica's {share} samples, got {count}; nearest {near}")
    grid = RankGrid(**sizes, microbatches=count, schedule=schedule, replicas=replicas)
    if grid.world > MOST_RANKS:
        raise ValueError(f"expected at most {MOST_RANKS} ranks, got {grid.world}")
    return grid
