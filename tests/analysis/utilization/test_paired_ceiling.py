"""Definition, known answer: ratios to a paired ceiling by hand, and intervals that hold while a machine drifts."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from analysis.utilization.numerators import Numerator
from analysis.utilization.step_times import PairedCeiling, paired_ceiling
from analysis.utilization.utilization import measurement, rows
from results.errors import Unavailable
from results.records.cell import Run, Sample

KERNEL = "matmul 64x64x64"
FLOP = 524_288  # 2 · 64³
RUN = Run(
    model="m", batch_size=2, device="cpu", cell_id="c", attempt=1, session="s", status="ok", paired_ceiling=True,
    window_start_s=0.0, window_end_s=100.0, energy_j=500.0,
)  # fmt: skip


def block(start_s: float, wall_s: float, part: str = "measure", **more: Any) -> Sample:
    values: dict[str, Any] = {"steps": 1, "run_wait_s": 0.0} | more
    return Sample(cell_id="c", attempt=1, part=part, start_s=start_s, wall_s=wall_s, **values)


def kernel(start_s: float, wall_s: float, unit: str = "fp32", calls: int = 10, **more: Any) -> Sample:
    return block(start_s, wall_s, "ceiling", steps=calls, unit=unit, kernel=KERNEL, flop=calls * FLOP, **more)


def interleaved(step_s: Sequence[float], kernel_s: Sequence[float]) -> list[Sample]:
    """C S S C C S S C … of one step and ten calls."""
    made, now_s = [], 0.0
    for index, (step, call) in enumerate(zip(step_s, kernel_s, strict=True)):
        pair = [(kernel, 10 * call), (block, step)]
        for make, lasted_s in pair if index % 2 == 0 else pair[::-1]:
            made.append(make(now_s, lasted_s))
            now_s += lasted_s
    return made


def paired(samples: Sequence[Sample]) -> PairedCeiling:
    return paired_ceiling(samples)  # type: ignore[return-value]


def test_the_ratio_is_that_of_the_means() -> None:
    """A step of 1000 kernels' FLOP; a call takes 1, 2 and 3 ms, a step 2, 4 and 6 s: half of the kernel's rate."""
    samples = interleaved([2.0, 4.0, 6.0], [0.001, 0.002, 0.003])
    found = paired(samples).utilization({"fp32": 1000 * FLOP})
    assert (found.ratio, found.low, found.high, found.pairs) == pytest.approx((0.5, 0.5, 0.5, 3))
    uneven = paired(interleaved([2.0, 4.0, 9.0], [0.001, 0.002, 0.003])).utilization({"fp32": 1000 * FLOP})
    assert uneven.ratio == pytest.approx(6 / 15)
    assert uneven.low < uneven.ratio < uneven.high
    assert uneven.low * uneven.high == pytest.approx(uneven.ratio**2)  # symmetric on a logarithmic scale


def test_work_on_two_units_takes_the_time_of_both() -> None:
    """Ten calls of bf16 in 1 ms, ten of fp32 in 10 ms: 100 and 10 calls' FLOP take 10 ms each, of a step of 80 ms."""
    samples = [
        each
        for i in range(4)
        for each in (kernel(i, 0.001, "bf16"), kernel(i + 0.1, 0.010, "fp32"), block(i + 0.2, 0.080))
    ]
    found = paired(samples)
    assert found.utilization({"bf16": 100 * FLOP, "fp32": 10 * FLOP}).ratio == pytest.approx(0.25)
    assert found.source({"bf16": 1, "fp32": 0}) == f"bf16 {KERNEL}, timed beside the steps, 4 pairs"
    with pytest.raises(Unavailable, match="no kernel of tf32 was timed beside the steps; known units: bf16, fp32"):
        found.utilization({"tf32": 5})
    with pytest.raises(Unavailable, match="no model FLOP"):
        found.utilization({"fp32": 0})


def test_the_interval_covers_the_true_ratio_while_the_machine_drifts() -> None:
    """Speed falls by half over 20 pairs, each half with noise of its own of 3 %. Of 400 such cells the interval covers
    the truth in about 95 %, and is far narrower than that of the step time."""
    rng = np.random.default_rng(28)
    covered, widths = 0, []
    for _ in range(400):
        slow = np.linspace(1.0, 2.0, 20)
        steps = slow * np.exp(0.03 * rng.standard_normal(20))
        calls = 0.0005 * slow * np.exp(0.03 * rng.standard_normal(20))
        found = paired(interleaved(list(steps), list(calls))).utilization({"fp32": 1000 * FLOP})
        covered += found.low <= 0.5 <= found.high
        widths.append(math.log(found.high / found.low) / 2)
    assert 0.92 <= covered / 400 <= 0.985
    assert np.mean(widths) < 0.03


def test_pairs_in_which_one_half_waited_are_left_out_where_three_others_are_left() -> None:
    samples = interleaved([2.0, 2.0, 2.0, 2.0, 9.0], [0.001, 0.001, 0.001, 0.009, 0.001])
    waited = [
        Sample(**{**vars(each), "run_wait_s": each.wall_s}) if each.wall_s in (9.0, pytest.approx(0.09)) else each
        for each in samples
    ]
    assert paired(waited).utilization({"fp32": 1000 * FLOP}).pairs == 3
    assert paired(waited).utilization({"fp32": 1000 * FLOP}).ratio == pytest.approx(0.5)
    assert paired(samples).utilization({"fp32": 1000 * FLOP}).pairs == 5
    assert paired(waited[4:]).utilization({"fp32": 1000 * FLOP}).pairs == 3  # one undisturbed pair is too few


def test_the_row_has_the_ratio_and_its_own_interval_and_no_energy() -> None:
    samples = interleaved([2.0, 4.0, 9.0], [0.001, 0.002, 0.003])
    numerator = Numerator("exact", "flopledger", {"fp32": 1000 * FLOP})
    (row,) = rows(measurement(RUN, samples, ()), [numerator], ())
    found = paired(samples).utilization({"fp32": 1000 * FLOP})
    assert (row.denominator, row.status) == ("paired_ceiling", "ok")
    assert (row.utilization_ratio, row.utilization_low_ratio, row.utilization_high_ratio) == (
        found.ratio, found.low, found.high,
    )  # fmt: skip
    assert 1000 * FLOP / (row.time_s * row.peak_flop_per_s) == pytest.approx(found.ratio)
    assert row.energy_per_item_j is None
    without = [each for each in samples if each.part != "ceiling"]
    assert measurement(RUN, without, ()).power_w == 5.0
    assert rows(measurement(RUN, without, ()), [numerator], ()) == []


def test_a_unit_without_a_kernel_and_another_work_are_rows_with_a_reason() -> None:
    measured = measurement(RUN, interleaved([2.0, 2.0], [0.001, 0.001]), ())
    (row,) = rows(measured, [Numerator("exact", "flopledger", {"tf32": 5})], ())
    assert (row.status, row.utilization_ratio) == ("unavailable", None)
    assert row.reason.startswith("no kernel of tf32 was timed beside the steps")
    assert row.achieved_flop_per_s == 5 / 2
    (row,) = rows(measured, [Numerator("batch", "profiler", {"fp32": 5})], ())
    assert row.status == "unavailable"


def test_the_width_is_that_of_the_widest_unit():
    samples = interleaved([1.0] * 8, [0.01, 0.012] * 4)
    start_s = max(sample.start_s for sample in samples)
    both = [*samples, *(kernel(index * start_s / 8, 0.1, "tf32") for index in range(8))]
    found = paired(both)
    alone = PairedCeiling(found.step_s, {"fp32": found.s_per_flop["fp32"]}, found.kernels)
    assert found.half_width_ratio == alone.half_width_ratio > 0
    ends = alone.utilization({"fp32": 12345})
    assert math.log(ends.high / ends.low) / 2 == pytest.approx(alone.half_width_ratio)
    assert paired(interleaved([1.0], [0.01])).half_width_ratio is None


def test_a_disturbed_block_takes_its_kernel_along() -> None:
    """The second step is set aside: the kernels beside the others are still theirs."""
    samples = interleaved([2.0, 8.0, 4.0, 6.0], [0.001, 0.5, 0.002, 0.003])
    aside = [Sample(**{**vars(each), "part": "disturbed"}) if each.wall_s == 8.0 else each for each in samples]
    assert paired(aside).step_s == (2.0, 4.0, 6.0)
    assert paired(aside).utilization({"fp32": 1000 * FLOP}).ratio == pytest.approx(0.5)
