"""`python -m runners.doctor --self-test`: may numbers of this program be believed on this device?

Known work, and what it must come out as: rates of products below the datasheet, device events that agree with the wall,
planted sleeps, two independent counts of one step, energy against power × time, fp32 that is IEEE, intervals that cover
the mean, and the predicted memory of two models. Each check says what it found and what was expected; one that this
device cannot answer is `unavailable` with the reason, never a silent pass. Some three minutes on a GPU.

Not claimed: that a device which passes has no fault. A rate is only held against the datasheet, energy only against the
same board's own power, and no kernel's result is looked at but that of one product.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from analysis.devices import peaks
from analysis.devices.precisions import PRECISIONS
from results.errors import Unavailable, one_line

OK, FAILED_CHECK, NOT_AVAILABLE = "ok", "failed", "unavailable"

RATE_RATIOS = (0.05, 1.02)
"""What a product reaches of its unit's datasheet peak: less is a device that something holds down, more cannot be."""

EVENTS_RATIO, SLEEP_RATIO, MEMORY_RATIO = 0.03, 0.05, 0.02
ENERGY_RATIOS = (0.8, 1.25)
FP32_ERROR = 2e-5
"""Largest error of a product in IEEE fp32, 512 terms, relative to the largest element; TF32's is near 1e-3."""

REPEATS, BLOCKS, FEWEST_COVERED = 8, 10, 6
"""Intervals of ten blocks each; fewer than 6 of 8 that cover the common mean have a chance of 0.6 % at 95 %."""

LONG_S, BUSY_S, CEILING_S = 0.5, 3.0, 5.0
LONGEST_REASON = 300


@dataclass(frozen=True)
class Checked:
    """One check. found: a number in SI units or a ratio, None where there is none; expected: in words."""

    check: str
    verdict: str
    found: float | None
    expected: str
    reason: str = ""


@dataclass(frozen=True)
class Asked:
    """The device that is tested. name: as its driver prints it."""

    device: str
    name: str
    multiprocessors: int | None = None

    @property
    def is_cuda(self) -> bool:
        return self.device.startswith("cuda")


def self_test(device: str, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """The document of `--self-test`: the device, each check, the verdict over all. say: told of each check's start."""
    from measure.device.environment import device_facts

    facts = device_facts(device)
    asked = Asked(device, str(facts["name"] or ""), facts["multiprocessors"])
    done = []
    for name, check in CHECKS.items():
        say(f"self-test: {name}")
        done.append(_guarded(name, check, asked))
    failed = any(each.verdict == FAILED_CHECK for each in done)
    return {
        "device": asked.name,
        "checks": [asdict(each) for each in done],
        "verdict": FAILED_CHECK if failed else OK,
    }


def _guarded(name: str, check: Callable[[Asked], Checked], asked: Asked) -> Checked:
    """The check's answer under its name; whatever it meets is an answer, too."""
    try:
        return replace(check(asked), check=name)
    except Unavailable as fault:
        return Checked(name, NOT_AVAILABLE, None, "", one_line(str(fault), LONGEST_REASON))
    except Exception as fault:  # noqa: BLE001 - a broken device raises anything; it becomes the check's answer
        return Checked(
            name, FAILED_CHECK, None, "an answer", one_line(f"{type(fault).__name__}: {fault}", LONGEST_REASON)
        )


def _within(found: float, low: float, high: float, expected: str, reason: str) -> Checked:
    """ok where low ≤ found ≤ high; the reason is given where it is not."""
    fits = low <= found <= high
    return Checked("", OK if fits else FAILED_CHECK, found, expected, "" if fits else reason)


def _rate(precision: str) -> Callable[[Asked], Checked]:
    """FLOP/s of the best product in this precision, against the datasheet."""

    def check(asked: Asked) -> Checked:
        from measure.ceiling.ceilings import measure_ceilings
        from measure.timing.clocks import clock_for

        known = peaks.lookup(asked.name, asked.multiprocessors)
        unit = PRECISIONS[precision].matmul_unit
        if known is None or unit not in known.peaks:
            raise Unavailable(f"no datasheet gives {asked.name or 'this device'} a peak in {unit}")
        rows = measure_ceilings("", asked.device, PRECISIONS[precision], clock_for(asked.device), CEILING_S)
        rates = [row.flop_per_s for row in rows if row.operation == "matmul" and row.flop_per_s]
        if not rates:
            raise Unavailable(f"no product was timed: {rows[0].reason}")
        low, high = (ratio * known.peaks[unit] for ratio in RATE_RATIOS)
        expected = f"{low:.3g} to {high:.3g} FLOP/s, by the datasheet's {known.peaks[unit]:.3g}"
        return _within(max(rates), low, high, expected, f"{max(rates) / known.peaks[unit]:.3g} × the datasheet's peak")

    return check


def _long_product(asked: Asked) -> tuple[Callable[[], Any], int]:
    """A product that is long against its launch, and how many of them take LONG_S."""
    import torch

    from measure.timing.clocks import clock_for

    side = 4096 if asked.is_cuda else 512
    a = torch.randn(side, side, device=asked.device)
    clock = clock_for(asked.device)
    for _ in range(3):
        a @ a
    clock.synchronize()
    begun_s = clock.wall_s()
    a @ a
    clock.synchronize()
    return lambda: a @ a, max(3, int(LONG_S / (clock.wall_s() - begun_s)))


def _events(asked: Asked) -> Checked:
    """Device time of a long block ÷ its wall time."""
    from measure.timing.clocks import clock_for

    if not asked.is_cuda:
        raise Unavailable("a CPU has no time of its own beside the wall's")
    product, times = _long_product(asked)
    clock, ratios = clock_for(asked.device), []
    for _ in range(3):
        begun_s, first = clock.wall_s(), clock.event()
        for _ in range(times):
            product()
        last = clock.event()
        clock.synchronize()
        ratios.append((clock.between_s(first, last) or 0.0) / (clock.wall_s() - begun_s))
    best = min(ratios, key=lambda ratio: abs(ratio - 1))
    words = f"device time ÷ wall time within {EVENTS_RATIO:.0%} of 1, in the best of three blocks"
    return _within(best, 1 - EVENTS_RATIO, 1 + EVENTS_RATIO, words, "events do not agree with the host's clock")


def _sleep(asked: Asked) -> Checked:
    """A sleep twice as long ÷ a sleep, as this program's clock sees them."""
    import torch

    from measure.timing.clocks import clock_for

    clock = clock_for(asked.device)
    spin = getattr(torch.cuda, "_sleep", None)
    if asked.is_cuda and spin is None:
        raise Unavailable("this torch has no kernel that sleeps")

    def seen_s(amount: int) -> float:
        begun_s, first = clock.wall_s(), clock.event()
        if asked.is_cuda:
            spin(amount * 1_000_000)  # cycles of the multiprocessors
        else:
            time.sleep(amount * 0.001)
        last = clock.event()
        clock.synchronize()
        return clock.between_s(first, last) or clock.wall_s() - begun_s

    seen_s(10)
    found = min(seen_s(80) for _ in range(5)) / min(seen_s(40) for _ in range(5))
    words = f"2 within {SLEEP_RATIO:.0%}"
    return _within(
        found, 2 * (1 - SLEEP_RATIO), 2 * (1 + SLEEP_RATIO), words, "time is not proportional to what was slept"
    )


def _count(asked: Asked) -> Checked:
    """The exact count of a step, on fake tensors ÷ PyTorch's own count of the operations that the device ran."""
    from torch.utils.flop_counter import FlopCounterMode

    from analysis.operators.registry import cost
    from runners.footprint.step import StepOptions, parts, traced

    step = StepOptions("resnet18", "fp32", "sgd", "cuda" if asked.is_cuda else "cpu", hyper={"image_size": 64})
    counted = sum(int(cost(operation).model_flop or 0) for operation in traced(step, 2).operations)
    real = parts(step, 2, None, asked.device)
    with FlopCounterMode(display=False) as counter:
        real.step(lambda phase: None)
    executed = counter.get_total_flops()
    return _within(
        counted / executed, 1, 1, "1, exactly", f"{counted} FLOP counted, {executed} by the operations that ran"
    )


def _energy(asked: Asked) -> Checked:
    """Energy by the board's counter ÷ polled power × time, while products run."""
    from analysis.devices.telemetry import mean_power_w
    from measure.device.telemetry import Sampler, open_device
    from measure.timing.clocks import clock_for

    if not asked.is_cuda:
        raise Unavailable("no energy counter is read on a CPU")
    product, _ = _long_product(asked)
    clock = clock_for(asked.device)
    with open_device(asked.device) as board, Sampler(board) as sampler:
        begun_s = clock.wall_s()
        while clock.wall_s() < begun_s + BUSY_S:
            product()
            clock.synchronize()
        readings = sampler.between(begun_s, clock.wall_s())
        if sampler.fault:
            raise Unavailable(f"telemetry: {sampler.fault}")
    counted = [(reading.time_s, reading.energy_j) for reading in readings if reading.energy_j is not None]
    if len(counted) < 2:
        raise Unavailable("the board has no energy counter")
    (start_s, start_j), (end_s, end_j) = counted[0], counted[-1]
    power_w = mean_power_w(readings, start_s, end_s)
    if power_w is None:
        raise Unavailable("the board tells no power")
    found = (end_j - start_j) / (power_w * (end_s - start_s))
    words = f"{ENERGY_RATIOS[0]:g} to {ENERGY_RATIOS[1]:g}"
    return _within(found, *ENERGY_RATIOS, words, "the energy counter does not agree with the power")


def _ieee(asked: Asked) -> Checked:
    """Largest error of an fp32 product against fp64, with the flags of an fp32 cell."""
    import torch

    from measure.device import apply_precision

    if peaks.is_stand_in(asked.name):
        raise Unavailable("a stand-in computes nothing: there is no rounding to look at")
    precision = PRECISIONS["fp32"]
    generator = torch.Generator(asked.device).manual_seed(0)
    a, b = (torch.randn(512, 512, device=asked.device, generator=generator) for _ in range(2))
    with apply_precision.session(precision, asked.device) as found:
        disagreements = apply_precision.check(found, precision, asked.device)
        exact = a.double() @ b.double()
        error = float(((a @ b) - exact).abs().max() / exact.abs().max())
    if disagreements:
        return Checked("", FAILED_CHECK, error, "flags as they were set", "; ".join(disagreements))
    return _within(error, 0.0, FP32_ERROR, f"at most {FP32_ERROR:g}", "fp32 products are not IEEE")


def _intervals(asked: Asked) -> Checked:
    """How many of eight 95 % intervals cover the mean of all blocks."""
    from analysis.stats.summary import summarise
    from measure.timing.clocks import clock_for

    product, times = _long_product(asked)
    clock, means_s = clock_for(asked.device), []
    for _ in range(REPEATS * BLOCKS):
        begun_s, first = clock.wall_s(), clock.event()
        for _ in range(max(1, times // 20)):
            product()
        last = clock.event()
        clock.synchronize()
        means_s.append(clock.between_s(first, last) or clock.wall_s() - begun_s)
    whole_s, rounding_s = fmean(means_s), 1e-5 * fmean(means_s)
    groups = [summarise(means_s[i * BLOCKS : (i + 1) * BLOCKS]) for i in range(REPEATS)]
    covered = sum((g.low or g.mean) - rounding_s <= whole_s <= (g.high or g.mean) + rounding_s for g in groups)
    words = f"at least {FEWEST_COVERED} of {REPEATS}"
    return _within(
        covered, FEWEST_COVERED, REPEATS, words, "times drift, or others use the device: intervals say too much"
    )


def _memory(model: str, batch_size: int) -> Callable[[Asked], Checked]:
    """Bytes of tensors at the highest in a step, seen ÷ predicted."""

    def check(asked: Asked) -> Checked:
        from runners.footprint import check_task
        from runners.footprint.step import StepOptions

        found = check_task.check(
            StepOptions(model, "fp32", "sgd", "cuda" if asked.is_cuda else "cpu"), batch_size, asked.device
        )
        if found.tensors_bytes is None or not found.predicted_bytes:
            raise Unavailable(f"the allocator told nothing: {found.reason}")
        ratio = found.tensors_bytes / found.predicted_bytes
        words = f"1 within {MEMORY_RATIO:.0%}"
        said = f"{found.tensors_bytes} bytes seen, {found.predicted_bytes} predicted"
        return _within(ratio, 1 - MEMORY_RATIO, 1 + MEMORY_RATIO, words, said)

    return check


CHECKS: Mapping[str, Callable[[Asked], Checked]] = {
    **{f"rate {precision}": _rate(precision) for precision in PRECISIONS},
    "events": _events,
    "sleep": _sleep,
    "count": _count,
    "energy": _energy,
    "ieee fp32": _ieee,
    "intervals": _intervals,
    "memory resnet18": _memory("resnet18", 8),
    "memory mobilenet_v2": _memory("mobilenet_v2", 8),
}
"""Name of a check → what makes it, in the order in which they run."""
