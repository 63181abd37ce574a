"""Rates of known products and convolutions, compared with the datasheet's peak of the unit that should run them.

A rate above the peak cannot be: the time, the clock or the sheet is wrong, or another unit ran it. One that the vector
units could reach does not show that tensor units ran. Convolutions have kernels of 1 × 1, so that no algorithm needs
fewer multiplications than the direct one (Winograd's and Fourier's do for larger kernels).

Not claimed: that a rate between these bounds is what the device can do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from analysis.devices import peaks
from analysis.devices.precisions import PRECISIONS
from cleaning.facts.self_test import rate_bounds
from results.errors import Unavailable
from runners.doctor.known_work.answers import Check, CheckResult, DeviceUnderTest, within

if TYPE_CHECKING:
    from measure.ceiling.ceilings import Bench
    from measure.ceiling.trials import Trial

RATE_S = 2.5
"""For one precision and kind of kernel."""

CHANNELS, SIDE, MOST_IMAGES, CALL_S = 1024, 14, 512, 0.01
"""Of the convolutions: images of that many channels and pixels squared, as many as take about CALL_S. 512 FLOP a byte
moved in bf16, so that memory does not hold them down."""


def products(precision: str) -> Check:
    """FLOP/s of the best matrix product in this precision."""

    def check(asked: DeviceUnderTest) -> CheckResult:
        from measure.ceiling.trials import shapes

        with _bench(asked, precision) as bench:
            planned = shapes(bench.device.type, bench.probe())
            return _held(asked, precision, bench, [trial for trial in planned if trial.operation == "matmul"])

    return check


def convolutions(precision: str) -> Check:
    """FLOP/s of the better of two 1 × 1 convolutions in this precision, channels first and last."""

    def check(asked: DeviceUnderTest) -> CheckResult:
        from measure.ceiling.trials import LAYOUTS, Trial

        with _bench(asked, precision) as bench:
            one = Trial("convolution", (1, CHANNELS, SIDE), kernel=1).flop
            images = min(max(1, int(bench.probe() * CALL_S / one)), MOST_IMAGES)
            trials = [Trial("convolution", (images, CHANNELS, SIDE), layout, kernel=1) for layout in LAYOUTS]
            return _held(asked, precision, bench, trials)

    return check


@contextmanager
def _bench(asked: DeviceUnderTest, precision: str) -> Iterator[Bench]:
    """A bench under the flags of the precision. Raises Unavailable where the device or its sheet lacks the unit."""
    import torch

    from measure.ceiling.ceilings import DTYPES, Bench
    from measure.device import apply_precision
    from measure.timing.clocks import clock_for

    policy = PRECISIONS[precision]
    known = peaks.lookup(asked.name, asked.multiprocessors)
    for unit in {policy.matmul_unit, policy.convolution_unit}:
        if known is None or unit not in known.peaks:
            raise Unavailable(f"no datasheet gives {asked.name or 'this device'} a peak in {unit}")
    apply_precision.supported(policy, asked.device)
    with apply_precision.session(policy, asked.device), torch.no_grad():
        yield Bench(asked.device, DTYPES[policy.autocast], clock_for(asked.device), math.inf)
    if asked.is_cuda:
        torch.cuda.empty_cache()


def _held(asked: DeviceUnderTest, precision: str, bench: Bench, trials: list[Trial]) -> CheckResult:
    """The best rate of these kernels against the sheet. Raises Unavailable where none of them was timed."""
    from measure.ceiling.trials import titled
    from results.records.samples import Ceiling

    policy = PRECISIONS[precision]
    blank = Ceiling(sitting="", device=asked.device, precision=precision, unit="", operation="", shape="")
    bench.deadline_s = bench.clock.wall_s() + RATE_S
    rows = [bench.row(titled(blank, t, policy), t, len(trials) - i) for i, t in enumerate(trials)]
    rates = [row.flop_per_s for row in rows if row.flop_per_s]
    if not rates:
        raise Unavailable(f"no kernel was timed: {rows[0].reason}")
    unit = rows[0].unit
    known = peaks.lookup(asked.name, asked.multiprocessors)
    assert known is not None  # _bench has looked
    low, high = rate_bounds(known, unit)
    expected = f"{low:.3g} to {high:.3g} FLOP/s, by the datasheet's {known.peaks[unit]:.3g} in {unit}"
    ratio = max(rates) / known.peaks[unit]
    why = "more than the unit can do" if ratio > 1 else "no more than other units could do, or held down"
    return within(max(rates), low, high, expected, f"{ratio:.3g} × the datasheet's peak: {why}")
