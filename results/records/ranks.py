"""What the ranks of a step that was trained on several devices at once said: one row or more for each of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from results.records.rows import Record
from results.records.samples import Sample, Telemetry
from results.records.vocabulary import Json


@dataclass(frozen=True, kw_only=True)
class RankRow(Record):
    """ranks.csv: one rank of an attempt at a cell. Times are of a step on average; those of the recorded steps are
    taken under a profiler, and say how a step is divided, not how long it takes."""

    cell_id: str
    attempt: int
    rank: int
    place: str = ""  # its coordinates in the plan: "dp=1,tp=0"
    host: str = ""
    device: str = ""
    device_name: str = ""
    status: str = "ok"
    reason: str = ""
    steps: int | None = None  # measured on this rank
    time_s: float | None = None  # of a measured step, by its own clock
    executed: Json = field(default_factory=dict)  # "kind/dtype" → model FLOP of one real step of this rank
    ceiling: Json = field(default_factory=dict)  # unit → FLOP/s, measured while all ranks measured theirs
    parameters: int | None = None  # that it holds
    peak_memory_bytes: int | None = None
    energy_j: float | None = None  # of its device over the measured blocks
    recorded_steps: int | None = None
    compute_s: float | None = None  # of a recorded step
    exposed_s: float | None = None  # communicating, while nothing was computed
    overlapped_s: float | None = None  # communicating beside computing
    memory_s: float | None = None  # copying alone
    idle_s: float | None = None
    wait_s: float | None = None  # for others to enter a collective
    waited_for_ratio: float | None = None  # of all waiting of all ranks: that for this rank
    late_since_step: int | None = (
        None  # from which on the others waited for it most, to the last; empty: not to the last
    )


@dataclass(frozen=True, kw_only=True)
class RankSample(Sample):
    """rank_samples.csv: one timed block of steps of one rank, by its own host's clock."""

    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class RankTelemetry(Telemetry):
    """rank_telemetry.csv: one poll of one rank's device, by its own host's clock."""

    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class RankCollective(Record):
    """collectives.csv: the collectives of one kind of one rank in a recorded step, on average."""

    cell_id: str
    attempt: int
    rank: int
    kind: str  # all_reduce, all_gather, reduce_scatter, …
    group_size: int | None = None  # ranks in it; None: several groups
    calls: float
    given_bytes: float | None = None  # that the rank hands over
    time_s: float  # in which one of them ran
