"""Finds what bounds each operation of a step on a `Machine` (roofline model), and the step's attainable utilization.

`roofline_points` and `step_roof` take a `StepProfile`; `machine_of` builds its `Machine` from ceiling rows.
**Arithmetic time** is FLOP ÷ the unit's measured rate: model FLOP of products, other FLOP of the rest on fp32 or fp64
cores. **Memory time** is unfused bytes ÷ bandwidth, **launch time** kernels × the time of an empty kernel. The
**attained** ratio is the larger of the first two ÷ measured time. The bound is `host` where the device waited for an
operation longer than it ran, else the largest of the three times. It is "" if a time is unknown. The **attainable**
ratio is (Σ model FLOP ÷ peak) ÷ the least step time under ideal fusion. A higher measured ratio takes its place
(`raised`). `unfused_estimate_ratio` sums over single operations; fused steps may exceed it. Not claimed: that kernels
reach the roof, or that the times overlap.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from analysis.devices.ceilings import ABOVE_SHEET, impossible_bandwidth
from analysis.utilization import denominators
from results.errors import Inconsistent
from results.records.answers import Machine, StepOperation, StepProfile
from results.records.cell import Ceiling

BOUNDS = ("arithmetic", "memory", "launch", "host")
"""What can bind an operation; earlier ones win ties."""

BETWEEN = "between"
"""Key, next to the bounds, of the time in which no operation ran."""

UNKNOWN = ""

RECOMPUTE = "recompute"


@dataclass(frozen=True, kw_only=True)
class RooflinePoint:
    """One operation under the roofline. Unknown is None; bound is one of BOUNDS, or empty.

    intensity: all FLOP per byte; None for an operation that moves nothing or has no count. unit: the arithmetic unit
    whose rate is the roof. roof_flop_per_s: what this unit and the memory allow at this intensity, counting `flop`.
    """

    unit: str
    flop: int | None  # that its unit runs
    moved_bytes: int
    intensity: float | None
    arithmetic_s: float | None
    memory_s: float | None
    launch_s: float | None
    roof_flop_per_s: float | None
    datasheet_roof_flop_per_s: float | None
    attained_flop_per_s: float | None
    attained_ratio: float | None
    datasheet_attained_ratio: float | None
    bound: str


@dataclass(frozen=True, kw_only=True)
class RooflineRatios:
    """A step's ratios relative to one set of peaks. reason: why some of them are None.

    raised: attainable_ratio was below the measured ratio, and was set to it.
    """

    utilization_ratio: float | None = None
    attainable_ratio: float | None = None
    unfused_estimate_ratio: float | None = None
    raised: bool = False
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class StepRoof:
    """A step under the roofline. step_s: mean of unprofiled steps, or else of profiled ones.

    time_by_bound_s: seconds of the profiled step by bound, by UNKNOWN and by BETWEEN; they add up to the step except
    for what the recording lost.
    """

    step_s: float | None
    ceiling: RooflineRatios
    datasheet: RooflineRatios
    time_by_bound_s: Mapping[str, float]


def roofline_point(operation: StepOperation, machine: Machine) -> RooflinePoint:
    """Compare one operation with a machine."""
    unit, flop = unit_and_flop(operation)
    moved, taken_s = moved_bytes(operation), operation.time_s
    all_flop = None if flop is None or operation.other_flop is None else operation.at_least_flop + operation.other_flop
    launch_s = _seconds(operation.kernels, 1 / machine.launch_s if machine.launch_s else None)
    times_s = (_seconds(flop, machine.peak_by_unit.get(unit)), _seconds(moved, machine.bytes_per_s))
    sheet_s = (_seconds(flop, machine.datasheet_by_unit.get(unit)), _seconds(moved, machine.datasheet_bytes_per_s))
    least_s, sheet_least_s = _largest(times_s), _largest(sheet_s)
    return RooflinePoint(
        unit=unit,
        flop=flop,
        moved_bytes=moved,
        intensity=_ratio(all_flop, moved),
        arithmetic_s=times_s[0],
        memory_s=times_s[1],
        launch_s=launch_s,
        roof_flop_per_s=_ratio(flop, least_s),
        datasheet_roof_flop_per_s=_ratio(flop, sheet_least_s),
        attained_flop_per_s=_ratio(flop, taken_s),
        attained_ratio=_ratio(least_s, taken_s),
        datasheet_attained_ratio=_ratio(sheet_least_s, taken_s),
        bound=_bound(operation, (*times_s, launch_s)),
    )


def roofline_points(profile: StepProfile) -> tuple[RooflinePoint, ...]:
    """Compare every operation of a step with its machine, in order."""
    return tuple(roofline_point(operation, profile.machine or Machine()) for operation in profile.operations)


def unit_and_flop(operation: StepOperation) -> tuple[str, int | None]:
    """Return the unit whose rate is the operation's roof, and the FLOP that it runs there; None where unknown."""
    if operation.model_flop is None:
        return UNKNOWN, None
    if operation.unit:
        return operation.unit, operation.model_flop
    if operation.model_flop:
        return UNKNOWN, operation.model_flop  # a product whose unit nobody knows
    return ("fp64" if operation.dtype == "float64" else "fp32"), operation.other_flop


def moved_bytes(operation: StepOperation) -> int:
    """Return the operation's unfused bytes."""
    return operation.read_bytes + operation.written_bytes


def time_by_bound(
    operations: Iterable[StepOperation], places: Iterable[RooflinePoint], between_s: Iterable[float] = ()
) -> dict[str, float]:
    """Sum seconds by bound, by UNKNOWN and by BETWEEN, with every key present. An operation without time adds none.

    between_s: the times without an operation: a step's gaps of each phase, or the `waited_s` of a module's operations.
    """
    times = dict.fromkeys((*BOUNDS, UNKNOWN, BETWEEN), 0.0)
    for operation, limit in zip(operations, places, strict=True):
        times[limit.bound] += operation.time_s or 0.0
    times[BETWEEN] += sum(between_s)
    return times


def main_bound(time_by_bound_s: Mapping[str, float]) -> str:
    """Return the bound of a module or step: the one with the most time, waiting counted as the host's. Empty if no time
    was taken, or if the most time has no known bound."""
    times = {bound: time_by_bound_s.get(bound, 0.0) for bound in (*BOUNDS, UNKNOWN)}
    times["host"] += time_by_bound_s.get(BETWEEN, 0.0)
    most = max(times, key=lambda bound: times[bound])
    return most if times[most] > 0 else UNKNOWN


def step_roof(profile: StepProfile) -> StepRoof:
    """Compute the whole step's roofline. Raises Inconsistent where a fusion group has no leader."""
    machine = profile.machine or Machine()
    times_s = profile.unprofiled_times_s or profile.step_times_s
    step_s = fmean(times_s) if times_s else None
    return StepRoof(
        step_s=step_s,
        ceiling=roofline_ratios(profile.operations, step_s, machine.peak_by_unit, machine.bytes_per_s),
        datasheet=roofline_ratios(profile.operations, step_s, machine.datasheet_by_unit, machine.datasheet_bytes_per_s),
        time_by_bound_s=time_by_bound(profile.operations, roofline_points(profile), profile.between_s.values()),
    )


def roofline_ratios(
    operations: Sequence[StepOperation],
    step_s: float | None,
    peak_by_unit: Mapping[str, float],
    bytes_per_s: float | None,
) -> RooflineRatios:
    """Compute utilization, attainable ratio and unfused estimate relative to one set of peaks."""
    if unknown := sum(not operation.understood for operation in operations):
        return RooflineRatios(reason=f"{unknown} operations have no rule, and the FLOP of the step are not known")
    products = [operation for operation in operations if operation.model_flop]
    if not products:
        return RooflineRatios(reason="the step has no model FLOP")
    if missing := sorted({operation.unit or "unknown unit" for operation in products} - {*peak_by_unit}):
        return RooflineRatios(reason=f"no peak of {', '.join(missing)}")
    needed = {op.index: op.at_least_flop / peak_by_unit[op.unit] if op.model_flop else 0.0 for op in operations}
    model_s = sum(needed[op.index] for op in products if op.phase != RECOMPUTE)
    ratios = RooflineRatios(utilization_ratio=model_s / step_s if step_s else None)
    if not bytes_per_s:
        return replace(ratios, reason="no bandwidth of memory is known")
    unfused_s = sum(max(needed[op.index], moved_bytes(op) / bytes_per_s) for op in operations)
    ratios = replace(ratios, unfused_estimate_ratio=model_s / unfused_s)
    if any(op.group is None and moved_bytes(op) for op in operations):
        return replace(ratios, reason="operations are not grouped")
    fused_s = sum(max(sum(needed[m] for m in members), nbytes / bytes_per_s) for members, nbytes in groups(operations))
    used, attainable = ratios.utilization_ratio or 0.0, model_s / fused_s
    return replace(
        ratios,
        attainable_ratio=max(attainable, used),
        raised=used > attainable,
        reason="" if step_s else "no step was timed",
    )


def groups(operations: Sequence[StepOperation]) -> list[tuple[tuple[int, ...], int]]:
    """Return (indices of its operations, bytes that it moves) for each group of ideal fusion. An operation without a
    group is a group of its own. Raises Inconsistent where a group's leader is missing."""
    members: dict[int, list[int]] = {}
    for operation in operations:
        members.setdefault(operation.index if operation.group is None else operation.group, []).append(operation.index)
    nbytes = {op.index: op.fused_bytes if op.group is not None else moved_bytes(op) for op in operations}
    if lost := members.keys() - nbytes.keys():
        raise Inconsistent(f"expected operation {min(lost)}, which leads a fusion group, in the step, got none")
    return [(tuple(indices), nbytes[leader]) for leader, indices in members.items()]


def _bound(operation: StepOperation, times_s: tuple[float | None, ...]) -> str:
    """Return the operation's bound. times_s: arithmetic, memory, launch."""
    taken_s, waited_s = operation.time_s, operation.waited_s
    if taken_s is None:
        return UNKNOWN
    if waited_s is not None and waited_s > taken_s:
        return "host"
    largest = _largest(times_s)
    return BOUNDS[times_s.index(largest)] if largest else UNKNOWN


def _seconds(amount: float | None, rate: float | None) -> float | None:
    """Divide an amount by a rate. An amount of 0 takes no time at any rate; an unknown amount, an unknown time."""
    if amount == 0:
        return 0.0
    return amount / rate if amount and rate else None


def _largest(times_s: Sequence[float | None]) -> float | None:
    """Return the largest time; None where one is unknown."""
    known = [time_s for time_s in times_s if time_s is not None]
    return max(known) if len(known) == len(times_s) else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


MOVES = ("copy", "triad")
LAUNCHES = {"cuda": "launch", "cpu": "call"}
"""Kind of device → the ceiling's operation that measures the cost of starting work."""


def machine_of(
    rows: Iterable[Ceiling],
    device: str,
    device_name: str,
    multiprocessors: int | None = None,
    threads: int | None = None,
    highest_hz: float | None = None,
) -> Machine:
    """Build the machine from ceiling rows. device: "cpu", "cuda" or "cuda:1"; threads: torch's on a CPU, None: any.

    A rate that no row and no datasheet has stays empty, as does one timed above the datasheet's. multiprocessors: as
    the device reports them (analysis.devices.peaks); highest_hz: its highest SM clock. Keys of `sources` are units for
    the ceiling, "datasheet UNIT" for the datasheet, and field names; an impossible rate has the reason instead.
    """
    rows = rows_of(rows, device, device_name, threads)
    sheet = denominators.datasheet(device_name, device, multiprocessors)
    known = sheet.device
    ceiling = denominators.ceiling_of(rows, known, highest_hz)
    memory, launch = bandwidth(rows), launch_cost(rows, device)
    sources = {**ceiling.sources, **{unit: f"{ABOVE_SHEET}: {why}" for unit, why in ceiling.refused.items()}}
    sources |= {f"datasheet {unit}": source for unit, source in sheet.sources.items()}
    if above := impossible_bandwidth(memory, known):
        sources["bytes_per_s"], memory = f"{ABOVE_SHEET}: {above}", None
    elif memory is not None:
        sources["bytes_per_s"] = f"{memory.operation}, {memory.shape}, measured here"
    if launch is not None:
        sources["launch_s"] = f"{launch.operation}, {launch.shape}, measured here"
    if known is not None and known.bandwidth_bytes_per_s:
        sources["datasheet_bytes_per_s"] = known.source
    return Machine(
        device=device,
        device_name=device_name,
        peak_by_unit=dict(ceiling.peak_by_unit),
        datasheet_by_unit=dict(sheet.peak_by_unit),
        bytes_per_s=memory.bytes_per_s if memory else None,
        launch_s=launch.best_s if launch else None,
        sources=sources,
        datasheet_bytes_per_s=known.bandwidth_bytes_per_s if known else None,
    )


def rows_of(rows: Iterable[Ceiling], device: str, device_name: str, threads: int | None = None) -> list[Ceiling]:
    """Select the rows of this kind of device, of its name where they have one, and of this number of threads."""
    kind = _kind(device)
    return [
        row
        for row in rows
        if _kind(row.device) == kind
        and row.device_name in ("", device_name)
        and (threads is None or row.threads in (None, threads))
    ]


def bandwidth(rows: Iterable[Ceiling]) -> Ceiling | None:
    """Return the fastest copy or triad with operands beyond the last cache."""
    moves = [row for row in rows if row.operation in MOVES and row.family == "memory" and row.bytes_per_s is not None]
    return max(moves, key=lambda row: row.bytes_per_s or 0.0, default=None)


def launch_cost(rows: Iterable[Ceiling], device: str) -> Ceiling | None:
    """Return the cheapest launch on a device, or call on a CPU."""
    operation = LAUNCHES.get(_kind(device))
    launches = [row for row in rows if row.operation == operation and row.best_s is not None]
    return min(launches, key=lambda row: row.best_s or 0.0, default=None)


def _kind(device: str) -> str:
    return device.partition(":")[0]
