"""`python -m runners.doctor --self-test`: may numbers of this program be believed on this device?

`self_test` runs known work on a device and returns a document of checks against known answers. Rates are compared with
the datasheet, device events with the wall clock, and sleeps with their known length. Counted FLOP are compared with
those of the calls whose kernels ran, and predicted memory with observed memory. Flags are read back, fp32 must be free
of TF32, and intervals must cover the mean. A check that this device cannot answer is `unavailable`, with the reason.
Convolutions are 1 × 1: no algorithm saves multiplications there. Not claimed: that a device which passes has no fault.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

from analysis.devices import peaks
from analysis.devices.precisions import PRECISIONS
from analysis.operators.registry import model_flop
from analysis.stats.summary import summarise
from analysis.trace.operations import is_product, product_flop
from cleaning.gates.evidence import FAILED, OK, UNAVAILABLE, CheckResult
from measure.ceiling.trials import LAYOUTS, Trial, shapes, titled
from measure.device.telemetry import DeviceTelemetry, open_device
from measure.timing.clocks import clock_for
from results.errors import Unavailable, one_line
from results.records.cell import Ceiling
from results.records.counts import ProfiledOperation
from results.store.manifest import harness_version
from runners.workers import traced_step as training

REPORTED = "reported"
"""The verdict of a check whose number is reported and not judged."""
UNFINISHED = "unfinished"
"""The verdict of a self-test whose document was written before all its checks had run."""

RATE_RATIOS = (0.05, 1.02)
"""Range of a kernel's rate ÷ its unit's datasheet peak. Below it something slows the device down; above it the measured
time is wrong."""
TENSOR_RATIO = 0.2
"""A tensor unit must exceed the vector units' peak, or this share of its own peak, whichever is less. Some tensor units
are no faster than the vector units (GeForce in tf32)."""

EVENTS_RATIO, SLEEP_RATIO, MEMORY_RATIO = 0.03, 0.05, 0.02
FP32_ERROR = 2e-5
"""Largest error of a product in IEEE fp32, 512 terms, relative to the largest element; TF32's is near 1e-3."""

REPEATS, BLOCKS, FEWEST_COVERED = 8, 10, 6
"""Intervals of ten blocks each; fewer than 6 of 8 that cover the common mean have a chance of 0.6 % at 95 %."""

CLOCK_STEP_HZ = 15e6
"""The step by which NVIDIA's clocks change."""


@dataclass(frozen=True)
class DeviceUnderTest:
    """The device that is tested. name: as its driver prints it."""

    device: str
    name: str
    multiprocessors: int | None = None

    @property
    def kind(self) -> str:
        return self.device.partition(":")[0]

    @property
    def is_cuda(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def is_stand_in(self) -> bool:
        """Whether it computes nothing (docs/evidence.md)."""
        return peaks.is_stand_in(self.name)


Check = Callable[[DeviceUnderTest], CheckResult]


def check_range(measured: float, low: float, high: float, expected: str, reason: str) -> CheckResult:
    """Return ok where low ≤ measured ≤ high; the reason is given where it is not."""
    fits = low <= measured <= high
    return CheckResult("", OK if fits else FAILED, measured, expected, "" if fits else reason)


MODEL, IMAGE_SIZE, BATCH = "resnet18", 64, 2


def count(tested: DeviceUnderTest) -> CheckResult:
    """Return the exact count of a step, on fake tensors ÷ the FLOP of the calls whose kernels ran."""
    from measure.profile.recording import profile_step

    step = training.StepOptions(MODEL, "fp32", "sgd", tested.kind, hyper={"image_size": IMAGE_SIZE})
    counted = sum(model_flop(operation) for operation in training.trace_batch(step, BATCH).operations)
    real = training.parts(step, BATCH, None, tested.device)
    recorded = profile_step(
        real.step, real.model, clock_for(tested.device), pass_name="batch", cuda=tested.is_cuda, most_steps=1
    )
    executed, idle = executed_flop(recorded.operations, tested.is_cuda)
    why = f"{counted} FLOP counted, {executed} by the sizes of the calls that ran"
    idle_too = f"; of {idle} products no kernel was recorded" if idle else ""
    return check_range(counted / executed if executed else 0.0, 1, 1, "1, exactly", why + idle_too)


def memory(model: str, batch_size: int, image_size: int = 224) -> Check:
    """Return a check of the highest bytes of tensors in a step, observed ÷ predicted. A difference is reported and not
    judged, until a real GPU has confirmed the limit."""

    def check(tested: DeviceUnderTest) -> CheckResult:
        step = training.StepOptions(model, "fp32", "sgd", tested.kind, hyper={"image_size": image_size})
        predicted, seen = training.check(step, batch_size, tested.device)
        text = f"{seen} bytes seen, {predicted} predicted"
        result = check_range(seen / predicted, 1 - MEMORY_RATIO, 1 + MEMORY_RATIO, f"1 within {MEMORY_RATIO:.0%}", text)
        return replace(result, verdict=REPORTED) if result.verdict == FAILED else result

    return check


def executed_flop(operations: Sequence[ProfiledOperation], cuda: bool) -> tuple[int, int]:
    """Return (FLOP of the products that ran, products without a kernel on the device). On a CPU a call that was made
    has run.

    Raises Unavailable where no kernel was recorded at all, or no product.
    """
    products = {call.index: call for call in operations if is_product(call.name)}
    calls = [call for call in products.values() if call.parent not in products]
    if not calls:
        raise Unavailable("the profiler recorded no product")
    if cuda and all(call.device_time_s is None for call in operations):
        raise Unavailable("the profiler recorded no kernel: CUPTI gave it none (no permission, or another listens)")
    ran = [call for call in calls if not cuda or call.device_time_s]
    return sum(map(product_flop, ran)), len(calls) - len(ran)


TERMS = 512
"""Terms of each sum, in the product and in the convolution: what FP32_ERROR is for."""


def flags_read_back(tested: DeviceUnderTest) -> CheckResult:
    """Return how many flags disagree with what a cell of each precision sets, and the variables that override them."""
    from measure.device import apply_precision

    wrong = []
    for precision in (p for p in PRECISIONS.values() if tested.is_cuda or not p.tf32):  # of tf32, which no CPU has
        with apply_precision.session(precision, tested.device) as flags:
            disagreements = apply_precision.check(flags, precision, tested.device)
            wrong += [f"{precision.name}: {disagreement}" for disagreement in disagreements]
    reason = "; ".join(dict.fromkeys(wrong))
    return CheckResult("", FAILED if wrong else OK, len(wrong), "0 flags that differ from their setting", reason)


def ieee(tested: DeviceUnderTest) -> CheckResult:
    """Return the larger error of an fp32 product and of a convolution against fp64, with the flags of an fp32 cell."""
    import torch

    from measure.device import apply_precision

    if tested.is_stand_in:
        raise Unavailable("a stand-in computes nothing: there is no rounding to look at; `flags` has been read")
    generator = torch.Generator(tested.device).manual_seed(0)
    a, b = (torch.randn(TERMS, TERMS, device=tested.device, generator=generator) for _ in range(2))
    images, kernels = a.reshape(2, TERMS, 16, 16), b.reshape(TERMS, TERMS, 1, 1)  # sums of as many terms
    convolve = torch.nn.functional.conv2d
    with apply_precision.session(PRECISIONS["fp32"], tested.device):
        pairs = (
            (a @ b, a.double() @ b.double()),
            (convolve(images, kernels), convolve(images.double(), kernels.double())),
        )
    error = max(float((product - exact).abs().max() / exact.abs().max()) for product, exact in pairs)
    return check_range(error, 0.0, FP32_ERROR, f"at most {FP32_ERROR:g}", "fp32 products or convolutions are not IEEE")


RATE_S = 2.5
"""Seconds for one precision and kind of kernel."""

CHANNELS, SIDE, MOST_IMAGES, CALL_S = 1024, 14, 512, 0.01
"""The convolutions: images of that many channels and pixels squared, as many as take about CALL_S. 512 FLOP a byte
moved in bf16, so that memory does not hold them down."""


def rate(kind: str, precision: str) -> Check:
    """Return a check of FLOP/s against the datasheet: of the best matrix product in this precision (kind "rate"), or of
    the better of two 1 × 1 convolutions, channels first and last (kind "convolution")."""

    def check(tested: DeviceUnderTest) -> CheckResult:
        from measure.ceiling.ceilings import bench_of

        policy, known = PRECISIONS[precision], peaks.lookup(tested.name, tested.multiprocessors)
        unit = policy.matmul_unit if kind == "rate" else policy.convolution_unit
        if known is None or unit not in known.peaks:
            raise Unavailable(f"no datasheet gives {tested.name or 'this device'} a peak in {unit}")
        with bench_of(tested.device, policy, None, math.inf) as bench:
            probed = bench.probe()
            trials = [trial for trial in shapes(tested.kind, probed) if trial.operation == "matmul"]
            if kind == "convolution":
                image_flop = Trial("convolution", (1, CHANNELS, SIDE), kernel=1).flop
                images = min(max(1, int(probed * CALL_S / image_flop)), MOST_IMAGES)
                trials = [Trial("convolution", (images, CHANNELS, SIDE), layout, kernel=1) for layout in LAYOUTS]
            blank = Ceiling(session="", device=tested.device, precision=precision, unit="", operation="", shape="")
            bench.deadline_s = bench.clock.wall_s() + RATE_S
            rows = [bench.row(titled(blank, t, policy), t, len(trials) - i) for i, t in enumerate(trials)]
        best, peak = max(row.flop_per_s or 0.0 for row in rows), known.peaks[unit]
        if not best:
            raise Unavailable(f"no kernel was timed: {rows[0].reason}")
        low, high = rate_bounds(known, unit)
        expected = f"{low:.3g} to {high:.3g} FLOP/s, by the datasheet's {peak:.3g} in {unit}"
        why = "more than the unit can do" if best > peak else "no more than other units could do, or held down"
        return check_range(best, low, high, expected, f"{best / peak:.3g} × the datasheet's peak: {why}")

    return check


def rate_bounds(known: peaks.Device, unit: str) -> tuple[float, float]:
    """Return the lowest and highest believable FLOP/s of a kernel in this unit of a device, which has a peak in it."""
    peak, (least, most) = known.peaks[unit], RATE_RATIOS
    vector = 0.0 if unit == "fp32" else known.peaks.get("fp32", 0.0)
    return max(least * peak, min(most * vector, TENSOR_RATIO * peak)), most * peak


FEWEST_BLOCKS, MOST_BLOCKS = 5, 10
"""Least and most blocks that are timed. Another process may lengthen the wall time of a block, but hardly of every one;
at least five are timed, so that a device time that is too long shows."""
LONG_S = 0.5
"""Length of a block that is long against whatever an event or a call adds."""
SLEEPS, CYCLES, PAUSE_S = (40, 80), 100_000, 0.001
"""A sleep and one twice as long, in units: cycles of the multiprocessors (2 and 4 ms, far above what a launch takes and
short enough to see an offset of a tenth of that), or seconds of the host."""


def long_product(tested: DeviceUnderTest) -> tuple[Callable[[], Any], int]:
    """Return a product that takes long compared with its launch, and how many of them take LONG_S."""
    import torch

    side = 4096 if tested.is_cuda else 512
    a = torch.randn(side, side, device=tested.device)
    clock = clock_for(tested.device)
    for _ in range(3):
        a @ a
    clock.synchronize()
    begun_s = clock.wall_s()
    a @ a
    clock.synchronize()
    return lambda: a @ a, max(3, int(LONG_S / max(clock.wall_s() - begun_s, 1e-6)))


def events(tested: DeviceUnderTest) -> CheckResult:
    """Compare the device time of a long block with its wall time."""
    if not tested.is_cuda:
        raise Unavailable("a CPU has no device time, only wall time")
    product, times = long_product(tested)
    most = 0.0
    for block in range(MOST_BLOCKS):  # whatever disturbs the host makes the wall's time longer, never shorter
        device_s, wall_s, _ = _time_of(tested, product, times)
        most = max(most, (device_s or 0.0) / wall_s)
        if block + 1 >= FEWEST_BLOCKS and most >= 1 - EVENTS_RATIO:
            break
    expected = f"device time ÷ wall time within {EVENTS_RATIO:.0%} of 1, the highest of up to {MOST_BLOCKS} blocks"
    return check_range(most, 1 - EVENTS_RATIO, 1 + EVENTS_RATIO, expected, "events do not agree with the host's clock")


def sleep(tested: DeviceUnderTest) -> CheckResult:
    """Return the time of a sleep that is twice as long ÷ that of a sleep, by this program's clock."""
    import torch

    spin: Any = getattr(torch.cuda, "_sleep", None)
    if tested.is_cuda and spin is None:
        raise Unavailable("this torch has no kernel that sleeps")

    def seen_s(amount: int) -> float:
        sleeps = (lambda: spin(amount * CYCLES)) if tested.is_cuda else (lambda: time.sleep(amount * PAUSE_S))
        device_s, wall_s, _ = _time_of(tested, sleeps, 1)
        return device_s or wall_s

    seen_s(10)
    short_s, long_s = (min(seen_s(amount) for _ in range(5)) for amount in SLEEPS)
    why = "time is not proportional to what was slept"
    return check_range(
        long_s / short_s, 2 * (1 - SLEEP_RATIO), 2 * (1 + SLEEP_RATIO), f"2 within {SLEEP_RATIO:.0%}", why
    )


def intervals(tested: DeviceUnderTest) -> CheckResult:
    """Return how many of eight 95 % intervals cover the mean of all blocks, counted in cycles where the device states
    its clock.

    In cycles, a clock that falls in the middle is not an error. A clock that moves is known only to within one step.
    """
    product, times = long_product(tested)
    blocks_s, clocks_hz = list[float](), list[float]()
    with contextlib.ExitStack() as stack:
        board: DeviceTelemetry | None = None
        with contextlib.suppress(Unavailable):
            board = stack.enter_context(open_device(tested.device)) if tested.is_cuda else None
        for _ in range(REPEATS * BLOCKS):
            device_s, wall_s, hz = _time_of(tested, product, max(1, times // 20), board)
            blocks_s.append(device_s or wall_s)
            clocks_hz += [hz] if hz else []
    whole_hz = fmean(clocks_hz) if len(clocks_hz) == len(blocks_s) else 0.0
    moved = whole_hz > 0 and min(clocks_hz) < max(clocks_hz)
    means_s = [time_s * hz / whole_hz for time_s, hz in zip(blocks_s, clocks_hz, strict=True)] if moved else blocks_s
    whole_s, slack_s = fmean(means_s), (CLOCK_STEP_HZ / whole_hz if moved else 1e-5) * fmean(means_s)
    groups = [summarise(means_s[i * BLOCKS : (i + 1) * BLOCKS]) for i in range(REPEATS)]
    covered = sum((g.low or g.mean) - slack_s <= whole_s <= (g.high or g.mean) + slack_s for g in groups)
    expected = f"at least {FEWEST_COVERED} of {REPEATS}{', at one clock' if moved else ''}"
    why = "intervals are too narrow, as times drift or other processes use the device"
    return check_range(covered, FEWEST_COVERED, REPEATS, expected, why)


def _time_of(
    tested: DeviceUnderTest, call: Callable[[], Any], times: int, board: DeviceTelemetry | None = None
) -> tuple[float | None, float, int | None]:
    """Measure device time (None on a CPU) and wall time of so many calls, and the board's clock while it works."""
    clock = clock_for(tested.device)
    begun_s, first = clock.wall_s(), clock.event()
    for _ in range(times):
        call()
    last = clock.event()
    hz = None if board is None else board.poll().sm_clock_hz
    clock.synchronize()
    return clock.between_s(first, last), clock.wall_s() - begun_s, hz


CHECKS: Mapping[str, Check] = {
    **{f"{kind} {name}": rate(kind, name) for kind in ("rate", "convolution") for name in PRECISIONS},
    "events": events,
    "sleep": sleep,
    "count": count,
    "flags": flags_read_back,
    "ieee fp32": ieee,
    "intervals": intervals,
    "memory resnet18": memory("resnet18", 8),
    "memory mobilenet_v2": memory("mobilenet_v2", 8),
}
"""Name of a check → its function, in the order in which they run."""

GROUPS = ("rate", "convolution", "memory")
"""Names for all checks that begin with them."""


def self_test(
    device: str,
    say: Callable[[str], None] = lambda line: None,
    only: Sequence[str] = (),
    budget_s: float = math.inf,
    keep: Callable[[dict[str, Any]], object] = lambda document: None,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """Return the document of `--self-test`: the device, each check, the verdict over all, and where and with what it
    was made.

    say: called with each check's name when it starts. only: checks or GROUPS; none: all. budget_s: no check is begun
    after so many seconds. keep: called with the document after each check but the last.
    """
    from measure.device.environment import device_facts, environment

    facts, here = device_facts(device), environment()
    tested = DeviceUnderTest(device, str(facts["name"] or ""), facts["multiprocessors"])
    begun, begun_s, done = datetime.now(UTC), clock(), list[CheckResult]()

    def document(verdict: str) -> dict[str, Any]:
        failed = any(result.verdict == FAILED for result in done)
        return {
            "device": tested.name,
            "checks": [asdict(result) for result in done],
            "verdict": FAILED if failed else verdict,
            "driver": str(here["driver"] or ""),
            "torch_version": str(here["torch"] or ""),
            "harness_version": harness_version(),
            "tested_at": f"{begun:%Y-%m-%dT%H:%M:%SZ}",
            "seconds": round(clock() - begun_s, 1),
            "stand_in": tested.is_stand_in,
            "facts": facts,
            "environment": here,
        }

    for name, check in CHECKS.items():
        if only and not {name, name.partition(" ")[0]} & set(only):
            continue
        if done:
            keep(document(UNFINISHED))
        if clock() - begun_s > budget_s:
            done.append(CheckResult(name, UNAVAILABLE, None, "", f"not tried: {budget_s:g} s were over"))
            continue
        say(f"self-test: {name}")
        done.append(guarded(name, check, tested))
    return document(OK)


def guarded(name: str, check: Check, tested: DeviceUnderTest) -> CheckResult:
    """Run a check; return its answer under its name. Any exception becomes an answer, too."""
    try:
        return replace(check(tested), check=name)
    except Unavailable as fault:
        return CheckResult(name, UNAVAILABLE, None, "", one_line(str(fault), 300))
    except Exception as fault:  # noqa: BLE001 - a broken device raises anything; it becomes the check's answer
        return CheckResult(name, FAILED, None, "an answer", one_line(f"{type(fault).__name__}: {fault}", 300))
