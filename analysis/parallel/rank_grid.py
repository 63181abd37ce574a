"""Parses a parallel plan ("ddp=2,tp=2") into a `RankGrid`: the coordinates of each rank, and a pipeline's idle share.

`parse_plan` takes the text of a trained plan, `grid_of` the sizes of the axes and a global batch. Both return a
`RankGrid`, or raise ValueError for an impossible plan. The tensor axis is innermost, then data and pipeline: rank =
(pipeline · dp + data) · tp + tensor. Experts divide the data axis: `ep` consecutive ranks of the data axis together
hold all experts, and there are dp ÷ ep such groups.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

AXES = ("dp", "tp", "pp", "ep")
"""Data, tensor, pipeline and expert parallelism, as a plan names them."""

UNTRAINED = {
    ("pp", "ep"): "torch.export does not capture transformers' exchange of tokens, whose sizes depend on data",
    ("fsdp", "ep"): "fully_shard would divide experts that are divided already",
}
"""Pairs of axes (fsdp: replicas of that kind) that a sweep does not train together, and why."""

MICROBATCHES = "m"
"""Name of the number of micro-batches in a trained plan."""

PER_STAGE = 2
"""Default number of micro-batches per stage in a trained plan."""

MOST_RANKS = 1024

SCHEDULES = ("1f1b", "gpipe")
"""Orders of micro-batches in a pipeline: both have the same bubble, 1f1b keeps fewer activations."""

REPLICAS = ("ddp", "fsdp")
"""Kinds of replicas. With ddp, each holds all weights and reduces gradients once a step; with fsdp, each holds its part
of the weights."""


@dataclass(frozen=True)
class Coordinates:
    """A rank's index on each axis."""

    pp: int
    dp: int
    tp: int


@dataclass(frozen=True)
class RankGrid:
    """Sizes of the axes. microbatches: of one replica in one step; schedule, replicas: of SCHEDULES and REPLICAS. ep is
    not an axis of its own: it divides dp."""

    dp: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    microbatches: int = 1
    schedule: str = "1f1b"
    replicas: str = "ddp"

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.dp * self.tp * self.pp

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of the axes of the world, the outermost first."""
        return {"pp": self.pp, "dp": self.dp, "tp": self.tp}

    @property
    def shares_stages(self) -> bool:
        """Whether replicas share the weights of pipeline stages; each stage is one group of weights."""
        return self.replicas == "fsdp" and self.pp > 1

    @property
    def bubble(self) -> Fraction:
        """The share of a step in which a stage waits, if all stages and micro-batches take equally long: (p − 1) ÷ (m +
        p − 1) (Narayanan et al., arXiv 2104.04473, section 2.2.1, as a share of the whole step)."""
        return Fraction(self.pp - 1, self.microbatches + self.pp - 1)

    @property
    def name(self) -> str:
        """The plan as `parse_plan` reads it: "ddp=2", "fsdp=2,tp=2", "ddp=2,pp=2,m=4". Axes of one rank are left out,
        unless all are."""
        sizes = {self.replicas: self.dp, "tp": self.tp, "ep": self.ep, "pp": self.pp}
        named = {axis: size for axis, size in sizes.items() if size > 1} or {self.replicas: 1}
        named |= {MICROBATCHES: self.microbatches} if self.pp > 1 else {}
        return ",".join(f"{axis}={size}" for axis, size in named.items())

    def coordinates(self, rank: int) -> Coordinates:
        """Return a rank's coordinates."""
        return Coordinates(rank // (self.dp * self.tp), rank // self.tp % self.dp, rank % self.tp)

    def group_size(self, group: str) -> int:
        """Return the number of ranks in a group of collectives: an axis, or "experts" for the ranks that hold the same
        experts; 0 for any other name."""
        return {**self.sizes, "ep": self.ep, "experts": self.dp * self.tp // self.ep}.get(group, 0)

    def places(self) -> Iterator[Coordinates]:
        """Return the coordinates of all ranks, in order."""
        return map(self.coordinates, range(self.world))

    def in_flight(self, stage: int) -> int:
        """Return the largest number of micro-batches whose activations a stage keeps at once: all with gpipe; with 1f1b
        the number of stages from it to the last, or all if these are fewer."""
        return self.microbatches if self.schedule == "gpipe" else min(self.pp - stage, self.microbatches)


def parse_sizes(text: str) -> dict[str, int]:
    """Parse the axis sizes of "dp=2,tp=4". Raises ValueError, one line, for an unknown axis or an invalid size."""
    sizes = _numbers(text, AXES)
    return {axis: sizes.get(axis, 1) for axis in AXES}


def _numbers(text: str, axes: Sequence[str]) -> dict[str, int]:
    """Parse name → number. Raises ValueError, one line, for anything but a list of these names with numbers."""
    sizes: dict[str, int] = {}
    for part in text.split(","):
        axis, separator, number = (piece.strip() for piece in part.partition("="))
        if not separator or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"expected AXIS=N,AXIS=N with N of 1 or more, as in dp=2,tp=4, got {part.strip()!r}")
        if axis not in axes:
            raise ValueError(f"expected the axes {', '.join(axes)}, got {axis!r}")
        if axis in sizes:
            raise ValueError(f"expected each axis once, got {axis} twice")
        sizes[axis] = int(number)
    return sizes


def parse_plan(text: str) -> RankGrid:
    """Return the grid of "ddp=2", "fsdp=4", "ddp=2,tp=2" or "pp=2,m=4": the trained axes; the kind of replicas names
    the data axis.

    dp is a synonym of ddp. m: micro-batches of a pipeline, by default two per stage. Raises ValueError, one line, for
    an invalid plan or axes that are not trained together.
    """
    axis = text.partition("=")[0].strip()
    replicas = [word for word in REPLICAS if f"{word}=" in text.replace(" ", "")]
    if len(replicas) > 1:
        raise ValueError(f"expected one of {' and '.join(REPLICAS)}, got both in {text!r}")
    if axis not in (*REPLICAS, *AXES, MICROBATCHES):
        raise ValueError(f"expected a plan like ddp=2, fsdp=2, ddp=2,tp=2 or pp=2, got {text!r}")
    plain = text
    for word in replicas:
        plain = plain.replace(word, "dp")
    sizes = _numbers(plain, (*AXES, MICROBATCHES))
    kind = replicas[0] if replicas else REPLICAS[0]
    stages, count = sizes.get("pp", 1), sizes.pop(MICROBATCHES, None)
    named = {**sizes, "fsdp": sizes.get("dp", 1) if kind == "fsdp" else 1}
    for (first, second), why in UNTRAINED.items():
        if named.get(first, 1) > 1 and named.get(second, 1) > 1:
            raise ValueError(f"expected {first} or {second}, got both in {text!r}: {why}")
    if count is not None and (stages == 1 or count < stages):
        raise ValueError(f"expected {MICROBATCHES}=N with pp, N of at least pp={stages}, got {text!r}")
    _check_experts(sizes.get("dp", 1), sizes.get("ep", 1))
    microbatches = (count or PER_STAGE * stages) if stages > 1 else 1
    return RankGrid(**sizes, microbatches=microbatches, schedule=SCHEDULES[0], replicas=kind)


def _check_experts(replicas: int, experts: int) -> None:
    if replicas % experts:
        near = nearest_divisor(replicas, experts)
        raise ValueError(f"expected ep to divide dp={replicas}, got ep={experts}; nearest {near}")


def nearest_divisor(number: int, wanted: int) -> int:
    """Return the divisor of a number that is nearest to the wanted one, the smaller of two that are equally near."""
    return min((n for n in range(1, number + 1) if number % n == 0), key=lambda n: (abs(n - wanted), n))


def grid_of(
    sizes: dict[str, int],
    batch: int,
    microbatches: int | None = None,
    schedule: str = "1f1b",
    replicas: str = "ddp",
) -> RankGrid:
    """Return the grid of a step over a global batch. microbatches: by default one without a pipeline, and one per
    sample with a pipeline. Raises ValueError for sizes that do not divide, or for too many ranks."""
    data = sizes["dp"]
    _check_experts(data, sizes["ep"])
    if replicas == "fsdp" and sizes["ep"] > 1:
        raise ValueError(f"expected ep=1 where replicas share the weights (fsdp), got ep={sizes['ep']}")
    if batch % data:
        near = max(data, round(batch / data) * data)
        raise ValueError(f"expected a batch that is a multiple of dp={data}, got {batch}; nearest {near}")
    share = batch // data
    count = (share if sizes["pp"] > 1 else 1) if microbatches is None else microbatches
    if share % count:
        near = nearest_divisor(share, count)
        raise ValueError(f"expected micro-batches that divide a replica's {share} samples, got {count}; nearest {near}")
    grid = RankGrid(**sizes, microbatches=count, schedule=schedule, replicas=replicas)
    if grid.world > MOST_RANKS:
        raise ValueError(f"expected at most {MOST_RANKS} ranks, got {grid.world}")
    return grid
