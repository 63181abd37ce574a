"""Definition, injected fault: shapes and FLOP by hand, times from a made-up clock, and faults as rows."""

import itertools
from dataclasses import replace

import pytest
import torch

from analysis.devices.ceilings import best
from analysis.devices.precisions import PRECISIONS
from measure.ceiling import ceilings as ceiling_ceilings
from measure.ceiling import trials
from measure.ceiling.ceilings import Bench, above_sheet, kernel_names, measure_ceilings
from measure.ceiling.trials import Trial
from measure.device.apply_precision import read_flags
from measure.timing.clocks import Clock
from results.errors import Unavailable
from results.records.cell import Ceiling
from results.records.rows import header
from results.store.layout import encode, read_block


def row(rate: float | None, unit: str = "fp32", status: str = "ok", operation: str = "matmul") -> Ceiling:
    return Ceiling(
        session="s",
        device="cpu",
        precision="fp32",
        unit=unit,
        operation=operation,
        shape=str(rate),
        flop_per_s=rate,
        status=status,
    )


@pytest.fixture(autouse=True)
def _no_neighbours(monkeypatch):
    """Times from a made-up clock see no wait, no neighbour and no placement of the real machine."""
    monkeypatch.setattr(ceiling_ceilings, "run_wait_s", lambda: 0.0)
    monkeypatch.setattr(ceiling_ceilings.Neighbours, "used", lambda _: ceiling_ceilings.ProcessorUse(0.0, 1.0))
    monkeypatch.setattr(Bench, "_round_trip_s", lambda _: None)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(trials, "SIDES", {"cpu": (32, 64), "cuda": (32, 64)})
    monkeypatch.setattr(ceiling_ceilings, "PROBE_SIDE", {"cpu": 64, "cuda": 64})
    monkeypatch.setattr(trials, "MOST_IMAGES", 1)


class Ticking:
    """A clock on which every call takes the next of the device times, and 1 ms of the host."""

    def __init__(self, *device_s: float) -> None:
        self.device_s = itertools.chain(device_s, itertools.repeat(device_s[-1]))
        self.now_s = 0.0

    def wall_s(self) -> float:
        return self.now_s

    def event(self) -> float:
        self.now_s += 0.0005
        return self.now_s

    def between_s(self, start: float, end: float) -> float:
        return next(self.device_s)

    def synchronize(self) -> None:
        pass


# --- calls that waited for a processor ---


def waits(monkeypatch, *waits_s):
    """Before and after each call: what the process had waited by then."""
    total_s, readings = 0.0, []
    for wait_s in waits_s:
        readings += [total_s, total_s + wait_s]
        total_s += wait_s
    readings = iter(readings)
    monkeypatch.setattr(ceiling_ceilings, "run_wait_s", lambda: next(readings, total_s))


def test_calls_on_a_cpu_that_waited_for_a_processor_are_not_used(monkeypatch):
    """Six calls; the second and fifth waited for at least a twentieth of their time, the third for less."""
    monkeypatch.setattr(ceiling_ceilings, "MOST_CALLS", 6)
    waits(monkeypatch, 0.0, 0.5, 0.049, 0.0, 0.055, 0.0)
    bench = Bench("cpu", torch.float32, Ticking(1.0, 2.0, 1.0, 1.1, 1.0, 1.2, 9.0), 1e9)
    assert bench.call_times_s(lambda: None, 9.0) == [1.0, 1.0, 1.1, 1.2]
    assert bench.unused == "2 of 6 calls waited for a processor and are not used"


# --- where the processors are, and who else uses them ---


def trips(monkeypatch, *trips_s):
    """Of a cache line, before and after the calls of a kernel."""
    readings = iter(trips_s)
    monkeypatch.setattr(Bench, "_round_trip_s", lambda _: next(readings))


def placed(monkeypatch, *trips_s):
    trips(monkeypatch, *trips_s)
    return Bench("cpu", torch.float32, Ticking(0.01), 1e9).row(row(None), Trial("matmul", (32, 32, 32)), 1)


def test_a_kernel_in_whose_calls_the_processors_were_moved_is_timed_again(small, monkeypatch):
    """Near before and far after: again, both far. A reading that failed is no placement either."""
    assert placed(monkeypatch, 80e-9, 90e-9).core_round_trip_s == 90e-9
    assert placed(monkeypatch, 80e-9, 340e-9, 340e-9, 350e-9).core_round_trip_s == 350e-9
    assert placed(monkeypatch, None, 80e-9, 80e-9, 80e-9).core_round_trip_s == 80e-9
    assert placed(monkeypatch, None, None).reason == ""


def test_a_kernel_whose_calls_scatter_as_beside_other_work_is_timed_again(small, monkeypatch):
    """Eleven of 20 calls take 8 times the fastest; those of the second try take as long as each other. Where each try
    scatters so, the last one is the row."""
    clock = Ticking(1.0, *[0.01] * 9, *[0.08] * 11, 0.01)
    found = Bench("cpu", torch.float32, clock, 1e9).row(row(None), Trial("matmul", (32, 32, 32)), 1)
    assert (found.median_s, found.best_s) == (0.01, 0.01)
    clock = Ticking(1.0, *([*[0.01] * 9, *[0.08] * 12] * 4))
    found = Bench("cpu", torch.float32, clock, 1e9).row(row(None), Trial("matmul", (32, 32, 32)), 1)
    assert (found.median_s, found.best_s) == (0.08, 0.01)


@pytest.mark.usefixtures("small")
def test_what_others_used_is_of_the_windows_of_the_calls(monkeypatch):
    """Others are at rest while calls are timed, then busy."""
    rows = measure_ceilings("s", "cpu", PRECISIONS["fp32"], Clock(), 60.0)
    assert not any("others used" in r.reason for r in rows)
    monkeypatch.setattr(ceiling_ceilings.Neighbours, "used", lambda _: ceiling_ceilings.ProcessorUse(0.5, 1.0))
    rows = measure_ceilings("s", "cpu", PRECISIONS["fp32"], Clock(), 60.0)
    assert all("others used 50% of the processors while this was timed" in r.reason for r in rows)


# --- kernels that are timed again beside steps ---


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_the_kernel_of_each_row_is_read_back_from_its_shape(kind):
    plans = dict.fromkeys(trials.sweep(kind, 2e11))
    assert len(plans) > 30
    assert {trial.part for trial in plans} == set(trials.PARTS)
    for trial in plans:
        again = trials.trial_of(trials.titled(row(1.0), trial, PRECISIONS["fp32"]))
        assert (again.shape, again.flop, again.layout, again.operation) == (
            trial.shape, trial.flop, trial.layout, trial.operation,
        )  # fmt: skip


def test_the_fastest_short_kernel_of_each_unit_is_timed_again():
    fast, short, other = (
        replace(row(rate, unit, operation=operation), shape=shape, median_s=median_s, layout=layout)
        for rate, unit, operation, shape, median_s, layout in (
            (9.0, "fp32", "matmul", "32x32x32", 0.2, ""),
            (5.0, "fp32", "convolution", "1x4x8x8, 4 3x3 kernels", 0.05, "channels_last"),
            (3.0, "bf16", "matmul", "16x16x16", 0.2, ""),
        )
    )
    slower = replace(short, flop_per_s=4.0, operation="matmul", shape="8x8x8", layout="")
    failed = replace(fast, unit="fp16", status="unavailable")
    cores = replace(other, operation="issue", shape="fma", median_s=0.0001)
    found = ceiling_ceilings.ceiling_kernels(
        [fast, short, slower, other, failed, cores], "cpu", PRECISIONS["fp32"], Clock()
    )
    assert [(kernel.unit, kernel.name) for kernel in found] == [
        ("fp32", "convolution 1x4x8x8, 4 3x3 kernels channels_last"),
        ("bf16", "matmul 16x16x16"),
    ]
    assert [kernel.flop for kernel in found] == [2 * 4 * 4 * 9 * 8 * 8, 2 * 16**3]
    assert found[0].call().shape == (1, 4, 8, 8)


# --- which one is the ceiling ---


def test_the_fastest_kernel_of_the_unit_is_the_ceiling():
    convolution = row(5.0, operation="convolution")
    rows = [row(3.0), convolution, row(9.0, unit="bf16"), row(7.0, status="out_of_memory"), row(None)]
    assert best(rows, "fp32") is convolution
    assert best(rows, "bf16").flop_per_s == 9.0
    assert best(rows, "fp16") is None
    assert best([], "fp32") is None
    assert best(iter(rows), "fp32") is convolution


# --- shapes ---


@pytest.mark.parametrize("part", ["forward", "grad_input", "grad_weight"])
def test_a_convolutions_shape_is_what_runs(part):
    bench = Bench("cpu", torch.float32, Clock(), 1.0)
    result = bench.prepared(Trial("convolution", (2, 4, 8), "channels_last", part))()
    result = result if part == "forward" else next(t for t in result if t is not None and t.numel())
    assert tuple(result.shape) == {"grad_weight": (4, 4, 3, 3)}.get(part, (2, 4, 8, 8))


# --- timing ---


def test_a_row_holds_the_median_of_its_calls():
    # call and probe aside: 20 timed calls, of which one is slow
    bench = Bench("cpu", torch.float32, Ticking(0.5, 0.002, 0.002, 0.004), 10.0)
    blank = row(None)
    trial = Trial("matmul", (10, 20, 30))
    found = bench.row(blank, trial, 1)
    assert found.repeats == ceiling_ceilings.MOST_REPEATS == 20
    assert found.median_s == 0.004
    assert found.flop == 2 * 10 * 20 * 30
    assert found.flop_per_s == pytest.approx(12000 / 0.004)


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried\nmore"), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out_of_memory"),
        (RuntimeError("GET was unable to find an engine"), "unavailable"),
    ],
)
def test_a_kernel_that_cannot_run_is_a_row(monkeypatch, fault, status):
    bench = Bench("cpu", torch.float32, Ticking(0.001), 5.0)

    def prepared(trial):
        raise fault

    monkeypatch.setattr(bench, "prepared", prepared)
    found = bench.row(row(None), Trial("matmul", (8, 8, 8)), 3)
    assert (found.status, found.flop_per_s) == (status, None)
    assert found.reason == str(fault).splitlines()[0]


# --- the whole ---


@pytest.mark.usefixtures("small")
def test_all_shapes_are_measured_in_the_precisions_units():
    before = read_flags()
    rows = measure_ceilings("session", "cpu", PRECISIONS["fp32"], Clock(), 60.0)
    assert len(rows) == 4 + 8 + 2
    assert {r.status for r in rows} == {"ok"}
    assert {r.unit for r in rows} == {"fp32"}
    assert {(r.session, r.device, r.precision) for r in rows} == {("session", "cpu", "fp32")}
    assert all(r.flop_per_s == pytest.approx(r.flop / r.median_s) for r in rows)
    gradients = [r for r in rows if r.shape.startswith("grad_")]
    assert [r.shape.split()[0] for r in gradients] == ["grad_input", "grad_weight"]
    fastest = best([r for r in rows[:-2] if r.operation == "convolution"], "fp32")
    assert all(r.shape.endswith(fastest.shape) and r.layout == fastest.layout for r in gradients)
    assert {k: v for k, v in read_flags().items() if "matmul" not in k} == {
        k: v for k, v in before.items() if "matmul" not in k
    }
    assert read_block(Ceiling, header(Ceiling), encode(rows)) == [*rows]


@pytest.mark.usefixtures("small")
def test_flags_that_do_not_take_are_invalid_rows(monkeypatch):
    monkeypatch.setattr(ceiling_ceilings.apply_precision, "check", lambda *_: ["a: expected b, found c"])
    rows = measure_ceilings("s", "cpu", PRECISIONS["fp32"], Clock(), 60.0)
    assert [(r.operation, r.status, r.reason, r.flop_per_s) for r in rows] == [
        (operation, "invalid", "a: expected b, found c", None) for operation in ("matmul", "convolution")
    ]


@pytest.mark.gpu
def test_a_gpus_ceilings_come_in_six_seconds():
    """Needs a CUDA device: every precision that it has, tensor units faster than IEEE fp32."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from measure.timing.clocks import CudaClock

    ceilings = {}
    for name, precision in PRECISIONS.items():
        clock = CudaClock("cuda")
        begun_s = clock.wall_s()
        try:
            rows = measure_ceilings("s", "cuda", precision, clock, 6.0)
        except Unavailable:
            continue
        assert clock.wall_s() - begun_s < 12
        ceilings[name] = best(rows, precision.matmul_unit).flop_per_s
    assert ceilings["fp32"] > 1e12
    assert all(rate > ceilings["fp32"] for name, rate in ceilings.items() if name.startswith("amp"))


# --- the algorithm of kernels above the sheet ---

V100, FP32 = "Tesla V100-SXM2-16GB", 15.7e12
"""Its sheet: 15.7 TFLOP/s of IEEE fp32."""


@pytest.mark.parametrize(
    ("made", "name", "asked"),
    [
        (row(1.1 * FP32, operation="convolution"), V100, True),
        (row(0.9 * FP32, operation="convolution"), V100, False),
        (row(1.1 * FP32), V100, False),
        (row(200e12, unit="fp16", operation="convolution"), V100, False),  # tensor units have no such algorithm
        (row(1.1 * FP32, operation="convolution"), "Abacus 1", False),
    ],
)
def test_convolutions_of_vector_units_above_the_sheet_are_asked(made: Ceiling, name: str, asked: bool) -> None:
    assert above_sheet(made, name) is asked


@pytest.mark.parametrize(
    ("kernels", "algorithm"),
    [(["volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"], "winograd"), (["volta_scudnn_128x64"], "")],
)
def test_its_kernels_name_the_algorithm(monkeypatch: pytest.MonkeyPatch, kernels: list[str], algorithm: str) -> None:
    bench = object.__new__(Bench)
    bench.device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: V100)
    monkeypatch.setattr(bench, "prepared", lambda trial: lambda: None)
    monkeypatch.setattr(ceiling_ceilings, "kernel_names", lambda call: kernels)
    trial = Trial("convolution", (1, 64, 8), "channels_last")
    assert bench.explained(row(1.1 * FP32, operation="convolution"), trial).family == algorithm
    assert bench.explained(row(0.9 * FP32, operation="convolution"), trial).family == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_device_tells_the_names_of_its_kernels() -> None:
    a = torch.ones(64, 64, device="cuda")
    assert kernel_names(lambda: a @ a)


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(Unavailable, match="tf32 on cpu"):
        measure_ceilings("s", "cpu", PRECISIONS["tf32"], Clock(), 1.0)
    with pytest.raises(ValueError, match="budget above 0"):
        measure_ceilings("s", "cpu", PRECISIONS["fp32"], Clock(), 0.0)


def test_a_broken_device_is_no_row(monkeypatch):
    bench = Bench("cpu", torch.float32, Ticking(0.001), 5.0)

    def prepared(trial):
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered", 700)

    monkeypatch.setattr(bench, "prepared", prepared)
    with pytest.raises(torch.AcceleratorError):
        bench.row(row(None), Trial("matmul", (8, 8, 8)), 3)
