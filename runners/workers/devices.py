"""Describes the device that a command was given, watches it while cells are timed, and chooses a CPU's threads.

`probe` returns a `ProbeResult`; it runs in a worker, since the parent never imports torch. `rank_process` returns which
of torchrun's processes this is. `TelemetryWatch` polls the device from the parent, and returns the readings and the
energy of a window of time. `thread_settings` times the first cell's step with several numbers of threads, and returns
the fewest threads among the fastest. Threads of one operation wait for each other. If the host of a virtual machine
takes processors away, fewer threads may be faster. Threads that yield their core while they wait may also be faster.
Not claimed: that the choice suits another model or batch, or that the machine stays as it was.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median, stdev
from typing import Any

from analysis.devices.peaks import manifest_row
from analysis.devices.precisions import PRECISIONS
from analysis.devices.telemetry import energy
from measure.device import processes
from measure.device.environment import Facts, host_state
from measure.device.telemetry import DeviceTelemetry, Processes, Sampler, new_processes, open_device
from measure.timing.disturbance import absent
from results.errors import DeviceLost, Unavailable
from results.records.cell import Cell, SessionRow, Telemetry
from runners.cli.exits import Mistake
from runners.cli.output import say, show_transient
from runners.workers.pool import Worker, WorkerFault, prepare

PROBE_TIMEOUT_S = 180.0

BUSY_LOAD_RATIO = 0.5
"""Load per core above which other processes may have slowed a measurement down."""


def check_name(device: str) -> None:
    """Raise Mistake for a text that names no device."""
    kind, _, index = device.partition(":")
    numbered = kind == "cuda" and index.isdecimal()
    if kind not in ("auto", "cpu", "cuda") or (":" in device and not numbered):
        raise Mistake(f"--device: expected auto, cpu, cuda or cuda:N, got {device!r}")


def probed_device(worker: Any, device: str) -> ProbeResult:
    """Probe the device in a worker (`pool.Worker`). Raises Mistake for a device that does not exist."""
    show_transient("looking at the device")
    answer = worker.call("runners.workers.devices:probe", device, timeout_s=PROBE_TIMEOUT_S)
    if isinstance(answer, WorkerFault):
        raise Mistake(answer.reason)
    probed: ProbeResult = answer
    return probed


def busy(device: str, host: Facts, so: str = "times include the work of other processes") -> tuple[str, ...]:
    """Return one line if others used this processor as the command began. so: what that means for its numbers."""
    load, cores = host.get("load_1min"), host.get("cpu_usable") or 1
    if not device.startswith("cpu") or load is None or load <= BUSY_LOAD_RATIO * cores:
        return ()
    return (f"the load was {load:.1f} on {cores} cores when this began: {so}",)


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """A device's properties and the software around it (`measure.device.environment`). refused: precision → why it
    cannot be measured here."""

    device: str
    environment: Facts = field(default_factory=dict)
    properties: Facts = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name that the driver prints; "" without one."""
        return self.properties.get("name") or ""

    def as_json(self) -> Mapping[str, Any]:
        """Return the environment and the device as one JSON object."""
        return {**self.environment, **self.properties}


def probe(device: str) -> ProbeResult:
    """Return the device that "auto" means here, and its facts. Raises ValueError for a device that torch does not
    see."""
    import torch

    from measure.device import apply_precision, environment

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda"):
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (index := torch.device(device).index or 0) >= count:
            seen = f"{count} of them, numbered from 0" if count else "none; --device cpu measures on the processor"
            raise ValueError(f"--device: expected a CUDA device that torch sees, got {device}; it sees {seen}")
        device = f"cuda:{index}" if index else "cuda"
    refused = {}
    for name, policy in PRECISIONS.items():
        try:
            apply_precision.supported(policy, device)
        except Unavailable as reason:
            refused[name] = str(reason)
    return ProbeResult(
        device=device,
        environment=environment.environment(),
        properties=environment.device_facts(device),
        refused=refused,
    )


@dataclass(frozen=True)
class RankProcess:
    """A process of torchrun. address: host and port of the store where the ranks meet."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    address: tuple[str, int]

    @property
    def is_single_host(self) -> bool:
        """Whether all ranks are on this host."""
        return self.local_world == self.world

    def device(self, kind: str) -> str:
        """Return this process's device of a kind: torchrun gives each process of a host a number, which is its
        GPU's."""
        return f"cuda:{self.local_rank}" if kind == "cuda" and self.local_rank else kind


def rank_process(environ: Mapping[str, str]) -> RankProcess | None:
    """Return this process among the ranks; None where torchrun did not start it."""
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    names = {"rank": "RANK", "world": "WORLD_SIZE", "local_rank": "LOCAL_RANK", "local_world": "LOCAL_WORLD_SIZE"}
    numbers = {field: int(environ[name]) for field, name in names.items()}
    return RankProcess(**numbers, address=(environ["MASTER_ADDR"], int(environ["MASTER_PORT"])))


def session_of(
    name: str, began_at: str, host: str, probed: ProbeResult, preflight: Mapping[str, Any], facts: Mapping[str, Any]
) -> SessionRow:
    """Return a session on a device. began_at: UTC, by the clock of the process that writes the run. facts: of the
    environment, in addition to what was probed."""
    environment, row = probed.environment, peak_row(probed)
    return SessionRow(
        session=name,
        started_at=began_at,
        host=host,
        device=probed.device,
        device_name=probed.name,
        device_uuid=probed.properties.get("uuid_hash") or "",
        driver=environment.get("driver") or "",
        torch_version=environment.get("torch") or "",
        peak_row="" if row is None else str(row["row_id"]),
        environment={**probed.as_json(), **facts},
        preflight=dict(preflight),
    )


def peak_row(probed: ProbeResult) -> dict[str, Any] | None:
    """Return a copy of the device's row of analysis/devices/peaks.csv; None where it has none."""
    return manifest_row(probed.name, probed.properties.get("multiprocessors"))


WORKERS = 1
"""Processes of ours on the GPU when a cell was timed: the one that measured it. Where that one has ended by then (a
cell that was recorded with Nsight Systems), one foreign process goes unnoticed."""

OF_A_SLICE = "energy: of the whole GPU, a slice (MIG) of which was measured"


@dataclass(frozen=True)
class WindowEnergy:
    """Energy over a window, J, and how it was found; fields of a Run. warnings: why it is unknown or doubtful."""

    energy_j: float | None = None
    energy_method: str = ""
    warnings: tuple[str, ...] = ()


class TelemetryWatch:
    """Polls one device from `open` to `close`. device: as torch calls it ("cpu", "cuda", "cuda:1").

    reason: why there is no telemetry; empty where there is, and for a CPU, of which only the host's state is known.
    """

    def __init__(self, device: str) -> None:
        self.reason = ""
        self._device = device
        self._telemetry: DeviceTelemetry | None = None
        self._sampler: Sampler | None = None
        self._before: Processes | None = None
        self._slice = False
        try:
            self._telemetry = None if device == "cpu" else open_device(device)
        except Unavailable as fault:
            self.reason = f"telemetry: {fault}"

    def preflight(self) -> dict[str, Any]:
        """Return the device's state; call it while no process of ours uses the device. A device that gives no state has
        only `absent`: column of telemetry.csv or samples.csv → why it stays empty."""
        state: dict[str, Any] = host_state() if self._device == "cpu" else {"absent": {"telemetry": self.reason}}
        if self._telemetry is not None:
            try:
                self._before = self._telemetry.processes()
                state = self._telemetry.preflight(self._before)
                self._slice = bool(state.get("mig"))
            except Unavailable as fault:
                state = {"absent": {"preflight": str(fault)}}
        return {**state, "absent": {**absent(self._device == "cpu"), **state.get("absent", {})}}

    def start(self) -> None:
        """Begin to poll, if that gives anything."""
        if self._telemetry is not None:
            self._sampler = Sampler(self._telemetry)
            self._sampler.start()

    def window(self, start_s: float, end_s: float) -> list[Telemetry]:
        """Return the readings of a window of host time, and their neighbours."""
        return [] if self._sampler is None else self._sampler.between(start_s, end_s)

    def energy(self, start_s: float, end_s: float) -> WindowEnergy:
        """Return the energy of a window."""
        if self._sampler is None:
            return WindowEnergy(warnings=(self.reason,) if self.reason else ())
        warnings = [f"telemetry: {self._sampler.fault}"] if self._sampler.fault else []
        readings = self.window(start_s, end_s)
        if not readings:
            return WindowEnergy(warnings=(*warnings, "telemetry: no reading within the window"))
        used = energy(readings, start_s, end_s)
        if used.reason:
            warnings.append(f"energy: {used.reason}")
        if self._slice and used.joules is not None:
            warnings.append(OF_A_SLICE)
        if self._telemetry is not None and self._before is not None:
            with contextlib.suppress(Unavailable):
                foreign = new_processes(self._before, self._telemetry.processes() or ()) - WORKERS
                text = f"shared_device: {foreign} process{'es' * (foreign > 1)} of others came since the session began"
                warnings += [text] if foreign > 0 else []
        return WindowEnergy(used.joules, used.method, tuple(warnings))

    def loss(self, ask: bool = False) -> str:
        """Return why the device is gone for good, by its telemetry; empty while it is there or telemetry cannot tell.

        ask: also poll now, since a cell may fail sooner than the sampler's next poll.
        """
        if self._sampler is not None and self._sampler.lost:
            return f"telemetry: {self._sampler.fault}"
        if ask and self._sampler is not None and self._telemetry is not None:
            try:
                self._telemetry.poll()
            except Unavailable as fault:
                return f"telemetry: {type(fault).__name__}: {fault}" if isinstance(fault, DeviceLost) else ""
        return ""

    def close(self) -> None:
        """End polling and let go of the device."""
        if self._sampler is not None:
            self._sampler.stop()
        if self._telemetry is not None:
            self._telemetry.close()
        self._sampler = self._telemetry = None


COUNT, WAIT = "OMP_NUM_THREADS", "OMP_WAIT_POLICY"
PASSIVE = "passive"
"""The wait policy of threads that leave their processors at once."""

ROUNDS_S = 4.0
"""Time from the start of the search within which further rounds begin, beyond the least number of them."""

STEP_S = 0.2
"""Intended time of a step: the batch is as large as that allows, from two samples up to the cell's own batch."""

LONGEST_S, FIRST_S = 6.0, 60.0
"""Limit of a step, and of the first step of a process, which loads torch."""

SLOWER, ROUNDS = 2.0, 3
"""A choice whose first step takes SLOWER times the fastest is dropped; the others are timed ROUNDS times at least."""

SET, WAITS = frozenset({COUNT, "MKL_NUM_THREADS"}), frozenset({WAIT, "GOMP_SPINCOUNT", "KMP_BLOCKTIME"})
"""Environment variables by which a user sets the number of threads, and how they wait."""

Choice = tuple[int, str]
"""Threads, wait policy."""


def adopt_threads(threads: int | None, wait_policy: str) -> None:
    """Set the threads and the wait policy of all processes that start from now on. None, "": as the environment has
    them."""
    variables = {name: value for name, value in ((COUNT, str(threads or "")), (WAIT, wait_policy)) if value}
    if variables.items() - os.environ.items():
        os.environ.update(variables)
        processes.stop_server()
        prepare()


def fastest(step_s: Callable[[Choice], float], most: int, passive: bool = True) -> tuple[Choice, str]:
    """Return the choice of threads for a session, and why, in words. most: threads that torch takes by itself.

    step_s: times a step with a choice; LONGEST_S where it did not end. passive: whether PASSIVE is tried. Returned is
    the choice of fewest threads within the scatter of the fastest one (the standard deviation of its steps).
    """
    counts, until_s = [most >> halved for halved in range(most.bit_length())], time.monotonic() + ROUNDS_S
    first: dict[Choice, float] = {}
    for count in counts[:-1] if passive else []:
        first[count, PASSIVE] = step_s((count, PASSIVE))
        if first[count, PASSIVE] >= min(LONGEST_S, SLOWER * min(first.values())):
            counts = counts[: counts.index(count)]
            break
    for count in reversed(counts):
        first[count, ""] = step_s((count, ""))
    if min(first.values()) >= LONGEST_S:
        return (most, ""), f"torch's own {most}, as no step could be timed within {LONGEST_S:g} s"
    close = [choice for choice, time_s in first.items() if time_s < SLOWER * min(first.values())]
    times: dict[Choice, list[float]] = {choice: [] for choice in close}
    while len(times[close[0]]) < ROUNDS or time.monotonic() < until_s:
        for choice in close:
            times[choice].append(step_s(choice))
    typical = first | {choice: median(steps_s) for choice, steps_s in times.items()}
    best = min(close, key=lambda choice: typical[choice])
    scatter_s = stdev(times[best])
    chosen = min(choice for choice in close if typical[choice] <= typical[best] + scatter_s)
    why = "" if chosen == best else f", within the scatter of the fastest (±{scatter_s / typical[best]:.0%})"
    slower = [choice for choice in sorted(typical, key=lambda choice: typical[choice]) if choice != chosen]
    texts = []
    for count, policy in (chosen, *slower):
        threads = f"{count} thread{'s' * (count > 1)}{' that wait passively' if policy else ''}"
        texts.append(f"{threads} {typical[count, policy] * 1e3:.4g} ms")
    return chosen, "; ".join([f"{texts[0]} a step{why}", *texts[1:]])


def thread_settings(cell: Cell, probed: ProbeResult) -> dict[str, Any]:
    """Return the parameters of a new run's cells that set threads: as the environment asks, else those of the first
    cell's fastest step, which all later processes then have. Empty where torch's own number is kept."""
    most = probed.properties.get("threads") or 1
    if probed.device != "cpu" or not SET.isdisjoint(os.environ) or most < 2:
        return {"threads": most} if probed.device == "cpu" and COUNT in os.environ else {}
    show_transient("looking for the number of threads")
    (threads, policy), why = probe_threads(cell, most)
    show_transient("")
    say(why)
    if (threads, policy) == (most, ""):
        return {}
    adopt_threads(threads, policy)
    return {"threads": threads, "wait_policy": policy}


def probe_threads(cell: Cell, most: int) -> tuple[Choice, str]:
    """Time steps of a session's first cell. Returns the choice of threads, and a line of text about it."""
    passive = WAITS.isdisjoint(os.environ)
    workers = {"": Worker("probe"), PASSIVE: Worker("probe", environ={WAIT: PASSIVE})}
    small = replace(cell, batch_size=min(2, cell.batch_size))

    def step_s(choice: Choice) -> float:
        limit_s = LONGEST_S if workers[choice[1]].alive else FIRST_S
        answer = workers[choice[1]].call("runners.sweep.cell:probe_step", small, choice[0], timeout_s=limit_s)
        return LONGEST_S if isinstance(answer, WorkerFault) else float(answer)

    try:
        first_s = step_s((most, PASSIVE if passive else ""))
        small = replace(cell, batch_size=min(cell.batch_size, max(small.batch_size, int(2 * STEP_S / first_s))))
        chosen, why = fastest(step_s, most, passive)
    finally:
        for worker in workers.values():
            worker.stop()
    return chosen, f"threads: {why} ({cell.model}, batch {small.batch_size}; {COUNT}=N sets them)"
