"""Measures ceilings: the highest rates that this device reaches in single matrix products and 3 × 3 convolutions.

`ceilings_by_precision` takes a device, precisions and a budget in s. It returns a `Ceiling` row for every shape of
`measure/ceiling/trials.py`, with median, mean and fastest of its calls. The ceiling of an arithmetic unit (fp32, bf16,
…) is the best median (`analysis.devices.ceilings`). docs/ceilings.md says how calls are repeated, and which calls are
left out. Operands are random normal, never zeros: an H200 multiplies zeros 13 % faster. A convolution's FLOP are its
direct multiply-adds, and a fast algorithm (Winograd, FFT) needs fewer. So kernel names are read where a convolution
exceeds the datasheet's peak of the CUDA cores. Limits: other load lowers a ceiling. A fast algorithm is recognised only
by known kernel names.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from analysis.devices import peaks
from analysis.devices.ceilings import SUSTAINED, best, has_fast_algorithm
from analysis.devices.precisions import PRECISIONS, Precision
from analysis.trace.kernel_names import fast_algorithm
from analysis.utilization.denominators import loaded
from analysis.utilization.step_times import DISTURBED_RATIO, same_placement
from measure.ceiling.trials import FP8, PARTS, SPENT, Trial, shapes, titled, trial_of
from measure.device import apply_precision
from measure.device.telemetry import DeviceTelemetry, open_device
from measure.timing.clocks import Clock, clock_for
from measure.timing.disturbance import (
    Neighbours,
    ProcessorUse,
    neighbours_warning,
    others_ratio,
    round_trip,
    run_wait_s,
)
from measure.timing.rank_blocks import CeilingKernel
from results.errors import Unavailable
from results.records.cell import Ceiling, Telemetry


def above_sheet(row: Ceiling, device_name: str) -> bool:
    """Return whether a convolution on units that are not tensor units is faster than the dense peak of its device."""
    known = peaks.lookup(device_name)
    rate = row.flop_per_s or 0.0
    return known is not None and has_fast_algorithm(row) and rate > known.peaks.get(row.unit, math.inf)


def kernel_names(call: Callable[[], Any]) -> list[str]:
    """Return names of the kernels that a call launches; none where the device's profiler does not run."""
    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
            call()
            torch.cuda.synchronize()
    except RuntimeError as fault:
        if isinstance(fault, torch.AcceleratorError):  # the context is broken: the worker must be replaced
            raise
        return []
    return [event.name for event in recorded.events() or () if event.device_type == torch._C._autograd.DeviceType.CUDA]


Call = Callable[[], Any]

DTYPES = {None: torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Autocast of a precision → dtype of the operands."""

PROBE_SIDE = {"cpu": 512, "cuda": 4096}
MOST_REPEATS = 20
LEAST_CALM, MOST_CALLS = 3, 60
"""On a CPU: disturbed calls are left out if at least this many were undisturbed; maximum calls of one kernel."""

WARM_UP_S, SUSTAINED_S, SUSTAINED_BLOCK_S = 0.3, 3.0, 0.1
"""Duration of products before the first row, which raise the clock; how long a kernel runs back to back, and in blocks
of which length."""

MOST_TRIES = 3
"""Maximum number of times that a kernel is timed while a host moves or stops the processors."""

MOVED = "the processors were moved while it was timed, or their placement is not known"

NOTE = "note: "
"""Beginning of the reason of a row that was measured."""

FORMATS = {"channels_first": torch.contiguous_format, "channels_last": torch.channels_last}


def ceilings_by_precision(device: str, precisions: Sequence[str], clock: Clock, budget_s: float) -> list[Ceiling]:
    """Return the rows of each precision, all with the same share of the budget; a precision that this device refuses
    has a row with its reason. Raises ValueError for a budget that is not above 0."""
    rows: list[Ceiling] = []
    for name in precisions:
        try:
            rows += measure_ceilings("", device, PRECISIONS[name], clock, budget_s / len(precisions))
        except Unavailable as reason:
            blank = Ceiling(session="", device=device, precision=name, unit="", operation="matmul", shape="")
            rows.append(replace(blank, status="unavailable", reason=str(reason)))
    return rows


def measure_ceilings(session: str, device: str, precision: Precision, clock: Clock, budget_s: float) -> list[Ceiling]:
    """Measure one row per kernel, in the order tried: the kernels of `shapes`, then both gradients of the fastest
    convolution, and on a GPU the fastest kernel of each unit again, back to back (`Bench.sustained`).

    device: "cpu", "cuda", "cuda:1", as in the rows. budget_s: for all kernels but the last, from when the device and
    its libraries have started. A kernel whose turn comes after the budget is a row `unavailable`, one that finds no
    memory `out_of_memory`. Flags are set for the precision and restored; if they cannot be set, the only rows are two
    `invalid` ones. Raises Unavailable if the device lacks the precision's units, ValueError for a budget that is not
    above 0.
    """
    if not budget_s > 0:
        raise ValueError(f"expected a budget above 0 s, got {budget_s}")
    apply_precision.supported(precision, device)
    with apply_precision.session(precision, device) as flags, torch.no_grad():
        blank = Ceiling(session=session, device=device, precision=precision.name, unit="", operation="", shape="")
        if disagreements := apply_precision.check(flags, precision, device):
            invalid = replace(blank, status="invalid", reason="; ".join(disagreements))
            return [titled(invalid, Trial(kind, (0, 0, 0)), precision) for kind in ("matmul", "convolution")]
        bench = Bench(device, DTYPES[precision.autocast], clock, math.inf)
        trials = shapes(bench.device.type, bench.probe())
        bench.deadline_s = clock.wall_s() + budget_s
        rows = [bench.row(titled(blank, t, precision), t, len(trials) + 2 - i) for i, t in enumerate(trials)]
        leader = best((row for row in rows if row.operation == "convolution"), precision.convolution_unit)
        gradients = [] if leader is None else [replace(trials[rows.index(leader)], part=p) for p in PARTS[1:]]
        rows += [bench.row(titled(blank, t, precision), t, 2 - i) for i, t in enumerate(gradients)]
        rows = [bench.explained(row, trial) for row, trial in zip(rows, [*trials, *gradients], strict=True)]
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()  # so that the next cells report only the memory that they reserve
        busy = neighbours_warning(others_ratio(bench.used)).removeprefix("busy: ")
        rows = [_with_note(row, busy) if row.status == "ok" else row for row in rows]
        fastest = [best(rows, unit) for unit in dict.fromkeys(row.unit for row in rows)] if device != "cpu" else []
        return rows + [bench.sustained(row) for row in fastest if row is not None]


def _with_note(row: Ceiling, note: str) -> Ceiling:
    """Return the row with one more note, if there is one."""
    text = row.reason.removeprefix(NOTE)
    return replace(row, reason=f"{NOTE}{'; '.join(filter(None, (text, note)))}") if note else row


class Bench:
    """Times kernels on one device until a deadline of its clock.

    unused: "k of n calls waited for a processor and are not used", of the last kernel timed; empty if none did. used:
    for each kernel timed, how much of the processors other processes used meanwhile; only on a CPU.
    """

    def __init__(self, device: str, dtype: torch.dtype, clock: Clock, deadline_s: float) -> None:
        self.device, self.dtype, self.clock, self.deadline_s = torch.device(device), dtype, clock, deadline_s
        self._random = torch.Generator(self.device).manual_seed(0)  # leaves the default generator unchanged
        self._flush: Call = lambda: None  # a CPU's caches are not emptied in training either
        if self.device.type == "cuda":  # overwrites four times the L2 cache
            nbytes = 4 * torch.cuda.get_device_properties(self.device).L2_cache_size
            self._flush = torch.empty(max(nbytes, 1), dtype=torch.uint8, device=self.device).zero_
        self._board: DeviceTelemetry | None = None
        with contextlib.suppress(Unavailable):
            self._board = None if self.device.type == "cpu" else open_device(device)
        self._under_load: list[Telemetry] = []
        self.unused = ""
        self.used: list[ProcessorUse] = []

    def probe(self) -> float:
        """Return the best FLOP/s of a small product, from which the sizes of the others follow.

        A convolution runs first, so that both libraries have started when the kernels that count begin; products for
        WARM_UP_S bring the clock to its level under load.
        """
        with contextlib.suppress(RuntimeError):  # a library that fails says so in the rows of its kernels
            self.prepared(Trial("convolution", (1, 64, 8), "channels_last"))()
        side = PROBE_SIDE[self.device.type]
        trial = Trial("matmul", (side, side, side))
        call = self.prepared(trial)
        call()
        times_s = [self._call_time_s(call) for _ in range(5)]
        until_s = self.clock.wall_s() + WARM_UP_S
        while self.device.type != "cpu" and self.clock.wall_s() < until_s:
            times_s.append(self._call_time_s(call))
        return trial.flop / min(times_s)

    def row(self, blank: Ceiling, trial: Trial, trials_left: int) -> Ceiling:
        """Return `blank` with the times of `trial`, in its share of the time that is left."""

        def measure_trial(until_s: float) -> Ceiling:
            call = self.prepared(trial)
            for _ in range(MOST_TRIES):
                before_s = self._round_trip_s()
                times_s = self.call_times_s(call, until_s)
                after_s = self._round_trip_s()
                placed = same_placement(before_s, after_s)
                row = replace(blank, flop=trial.flop, flop_per_s=trial.flop / median(times_s))
                row = _with_note(with_times(row, times_s), self.unused)
                calm = placed and not loaded(row)
                if calm or self.device.type != "cpu" or self.clock.wall_s() > until_s:
                    break
            return replace(row, core_round_trip_s=after_s) if placed else _with_note(row, MOVED)

        return self.guarded(blank, trials_left, measure_trial)

    def sustained(self, fastest: Ceiling) -> Ceiling:
        """Return the row of a kernel that runs back to back for SUSTAINED_S: the median of the second half of its
        blocks."""
        trial, in_a_row = trial_of(fastest), max(1, round(SUSTAINED_BLOCK_S / (fastest.median_s or math.inf)))

        def measure_blocks(_until_s: float) -> Ceiling:
            call, times_s = self.prepared(trial), []
            for _ in range(round(SUSTAINED_S / SUSTAINED_BLOCK_S)):
                times_s.append(self._call_time_s(lambda: [call() for _ in range(in_a_row)], cold=False) / in_a_row)
            self._look(call)
            settled_s = times_s[len(times_s) // 2 :]
            return with_times(replace(blank, flop_per_s=trial.flop / median(settled_s), reason=""), settled_s)

        blank = replace(fastest, family=f"{SUSTAINED} {fastest.family}".strip())
        self.deadline_s = self.clock.wall_s() + SUSTAINED_S
        return self.guarded(blank, 1, measure_blocks)

    def explained(self, row: Ceiling, trial: Trial) -> Ceiling:
        """Return the row; if it is above the datasheet, with the fast algorithm that its kernels' names show as its
        `family`."""
        if self.device.type != "cuda" or not above_sheet(row, torch.cuda.get_device_name(self.device)):
            return row
        try:
            return replace(row, family=fast_algorithm(kernel_names(self.prepared(trial))))
        except torch.OutOfMemoryError:
            return row

    def guarded(self, blank: Ceiling, trials_left: int, measured: Callable[[float], Ceiling]) -> Ceiling:
        """Return what `measured` returns for its share of the time that is left; `blank` with the reason if it fails.

        measured: takes the host time until which it may run. Raises errors that broke the device.
        """
        left_s = self.deadline_s - self.clock.wall_s()
        if left_s <= 0:
            return replace(blank, status="unavailable", reason=SPENT)
        self._under_load.clear()
        try:
            row = measured(self.clock.wall_s() + left_s / trials_left)
            for now in self._under_load[-1:]:
                watts = f"drew {now.power_w:.0f} W" if now.power_w else ""
                row = _with_note(replace(row, sm_clock_hz=now.sm_clock_hz), watts)
            return row
        except torch.OutOfMemoryError as fault:
            return replace(blank, status="out_of_memory", reason=str(fault).splitlines()[0])
        except RuntimeError as fault:
            if isinstance(fault, torch.AcceleratorError):  # the context is broken: the worker must be replaced
                raise
            status = "out_of_memory" if "allocate memory" in str(fault) else "unavailable"
            return replace(blank, status=status, reason=str(fault).splitlines()[0])

    def call_times_s(self, call: Call, until_s: float, cold: bool = True) -> list[float]:
        """Return the seconds of each call, until a host time but of at least one, after one call that does not count.

        On a CPU only calls that did not wait for a processor are returned, if there are LEAST_CALM of them. cold:
        whether a GPU's last cache is overwritten before each.
        """
        call()  # searches algorithms, allocates
        others = Neighbours()
        calls, calm_s = list[tuple[float, bool]](), list[float]()
        while not calls or (
            len(calm_s) < MOST_REPEATS and len(calls) < MOST_CALLS and self.clock.wall_s() + calls[-1][0] < until_s
        ):
            calls.append(self._call(call, cold))
            calm_s = [time_s for time_s, is_calm in calls if is_calm]
        self.used += [others.used()] if self.device.type == "cpu" else []
        self._look(call)
        lost = len(calls) - len(calm_s)
        if len(calm_s) < LEAST_CALM or not lost:
            self.unused = ""
            return [time_s for time_s, _ in calls]
        self.unused = f"{lost} of {len(calls)} calls waited for a processor and are not used"
        return calm_s

    def _look(self, call: Call) -> None:
        """Read the clock and the power while the device works on one more call."""
        if self._board is None:
            return
        call()
        try:
            self._under_load.append(self._board.poll())
        except Unavailable:
            self._board = None
        self.clock.synchronize()

    def _round_trip_s(self) -> float | None:
        """Return the seconds of a cache line's round trip between two processors; None on a GPU, or where it cannot be
        timed."""
        return round_trip() if self.device.type == "cpu" else None

    def _call(self, call: Call, cold: bool) -> tuple[float, bool]:
        """Return the seconds of one call, and whether it did not wait for a processor."""
        if self.device.type != "cpu":
            return self._call_time_s(call, cold), True
        before_s = run_wait_s()
        time_s = self._call_time_s(call, cold)
        after_s = run_wait_s()
        return time_s, None in (before_s, after_s) or (after_s or 0.0) - (before_s or 0.0) < DISTURBED_RATIO * time_s

    def _call_time_s(self, call: Call, cold: bool = True) -> float:
        """Return seconds of one call: between events, or by the wall where there is no device time."""
        if cold:
            self._flush()
        begun_s, start = self.clock.wall_s(), self.clock.event()
        call()
        end = self.clock.event()
        self.clock.synchronize()
        device_s = self.clock.between_s(start, end)
        return self.clock.wall_s() - begun_s if device_s is None else device_s

    def _normal(self, *sizes: int) -> torch.Tensor:
        return torch.randn(*sizes, generator=self._random, device=self.device, dtype=self.dtype)

    def prepared(self, trial: Trial) -> Call:
        """Return a call of the kernel on its operands; it writes into existing memory where torch offers that."""
        if trial.operation == "matmul":
            m, n, k = trial.sizes
            if trial.unit == FP8:
                x, y = (self._normal(*sizes).to(torch.float8_e4m3fn) for sizes in ((m, k), (n, k)))
                scale = torch.ones((), device=self.device)
                return lambda: torch._scaled_mm(x, y.t(), scale, scale, out_dtype=torch.bfloat16)
            many = () if trial.batch == 1 else (trial.batch,)
            a, b = self._normal(*many, m, k), self._normal(*many, k, n)
            out = torch.empty(*many, m, n, device=self.device, dtype=self.dtype)
            return lambda: torch.matmul(a, b, out=out)
        images, channels, side = trial.sizes
        layout = FORMATS[trial.layout]
        x = self._normal(images, channels, side, side).contiguous(memory_format=layout)
        weight = self._normal(channels, channels, trial.kernel, trial.kernel).contiguous(memory_format=layout)
        around = trial.kernel // 2
        if trial.part == "forward":
            return lambda: torch.nn.functional.conv2d(x, weight, padding=around)
        grad = self._normal(images, channels, side, side).contiguous(memory_format=layout)
        mask = [trial.part == "grad_input", trial.part == "grad_weight", False]
        ones, padding = [1, 1], [around, around]
        return lambda: torch.ops.aten.convolution_backward(
            grad, x, weight, None, ones, padding, ones, False, [0, 0], 1, mask
        )


@contextlib.contextmanager
def bench_of(device: str, precision: Precision, threads: int | None, share_s: float) -> Iterator[Bench]:
    """Open a bench under a precision's flags, until its share of time is over. threads: torch's; None: unchanged.

    Raises Unavailable for a precision that the device lacks, ValueError if its flags cannot be set.
    """
    apply_precision.supported(precision, device)
    if threads is not None:
        torch.set_num_threads(threads)
    with apply_precision.session(precision, device) as flags, torch.no_grad():
        if disagreements := apply_precision.check(flags, precision, device):
            raise ValueError("; ".join(disagreements))
        clock = clock_for(device)
        bench = Bench(device, DTYPES[precision.autocast], clock, 0.0)
        bench.deadline_s = clock.wall_s() + share_s  # after the device has started
        yield bench
        if bench.device.type == "cuda":
            torch.cuda.empty_cache()  # so that the next measurement reports only the memory that it reserves


LONGEST_CALL_S = 0.05
"""Longest call of a kernel that is timed between blocks of steps, if there is a kernel with so short a call."""


def ceiling_kernels(rows: Sequence[Ceiling], device: str, precision: Precision, clock: Clock) -> list[CeilingKernel]:
    """Return the fastest kernel of each unit among a session's rows, with operands on the device, to be timed again.

    Kernels with a call of at most LONGEST_CALL_S are preferred. A unit without a rate has no kernel. Call it under the
    flags of the precision.
    """
    if not rows:
        return []
    bench = Bench(device, DTYPES[precision.autocast], clock, math.inf)
    selected = []
    timed = [row for row in rows if row.median_s]
    short = [row for row in timed if (row.median_s or 0.0) <= LONGEST_CALL_S]
    for unit in dict.fromkeys(row.unit for row in timed):
        if (row := best(short, unit) or best(timed, unit)) is not None:
            trial = trial_of(row)
            name = f"{row.operation} {row.shape} {row.layout}".strip()
            selected.append(CeilingKernel(unit, name, trial.flop, bench.prepared(trial)))
    return selected


def with_times(row: Ceiling, times_s: list[float]) -> Ceiling:
    """Return the row with the times of its calls."""
    return replace(row, repeats=len(times_s), median_s=median(times_s), mean_s=fmean(times_s), best_s=min(times_s))
