"""Derived records of a made-up run for tests of report.html: every table has rows, every number is chosen.

`suite` has a cell for each model, batch and precision on a device that calls itself an H200: the peak is 1 PFLOP/s in
bf16 and a tenth of it in fp32, and vgg16 at the largest batch in fp32 ran out of memory. Nothing was measured.
"""

import itertools
from collections.abc import Sequence
from typing import Any

from analysis.utilization.numerators import TableCount
from cleaning.reconcile.derived import Built, View
from results.records.answers import Utilization, WorkTime
from results.records.cell import Run, SessionRow
from results.records.counts import Agreement, BatchLaw, CleaningLog, FlopCount, ProfileCount, Ratio

SUITE = "resnet18 resnet34 resnet50 resnet101 resnet152 vgg11 vgg13 vgg16 vgg19 wide_resnet50_2 alexnet mobilenet_v2"
SUITE_13 = (*SUITE.split(), "efficientnet_b0")
COUNTERS = ("flopledger", "flop_counter_mode", "torch_profiler", "fvcore", "ptflops", "ptflops_aten", "pthflops")
PEAKS = {"fp32": 1e14, "tf32": 5e14, "amp-bf16": 1e15}
METHODS = (("exact", "flopledger"), ("theory", "fvcore"), ("theory", "ptflops"), ("theory_as_published", "fvcore"))
METHODS += tuple((method, "torch_profiler") for method in ("one", "batch", "epoch"))
OUT_OF_MEMORY = "tried to allocate 61.2 GiB, 3.1 GiB were free"


def suite(
    models: Sequence[str] = SUITE_13, batches: Sequence[int] = (1, 64, 128), precisions: Sequence[str] = tuple(PEAKS)
) -> Built:
    """Everything that is derived from a sweep over these."""
    keys = list(itertools.product(models, batches, precisions))
    views = [_view(*key, place) for place, key in enumerate(keys)]
    told = [view for view in views if view.measured]
    return built(
        views,
        work_times=[row for view in told for row in _work_times(view.run)],
        profile_counts=[row for view in told for row in _profile_counts(view.run)],
        ratios=[row for view in told for row in _ratios(view.run)],
        agreement=[row for view in told for row in _agreement(view.run)],
        batch_laws=[row for view in told for row in _laws(view.run)],
        log=[row for view in told for row in _log(view.run)],
    )


def built(views: Sequence[View], log: Sequence[CleaningLog] = (), problems: Sequence[str] = (), **more: Any) -> Built:
    """A Built of these views on one made-up machine."""
    fractions = tuple(row for view in views for row in view.fractions)
    counts = tuple(
        FlopCount(counter="fvcore", workload=view.run.model, batch_size=128, phase="forward", extrapolated=True)
        for view in views
    )
    derived = {name: tuple(rows) for name, rows in more.items()}
    derived |= {"flop_counts": counts, "log": tuple(log)}
    return Built(fractions, (), tuple(views), (session(),), tuple(problems), **derived)


def session(name: str = "s1", **more: Any) -> SessionRow:
    values: dict[str, Any] = {"started_at": "2026-01-02T03:04:05Z", "host": "host", "device": "cuda"}
    values |= {"device_name": "NVIDIA H200", "driver": "570.86.15", "torch_version": "2.15.0+cu132"}
    values["environment"] = {
        "cpu": "a processor",
        "cpu_isa": {"avx2": True, "amx_tile": False},
        "memory_bytes": 150_000_000_000,
        "clock_hz": 1_980_000_000,
        "multiprocessors": 132,
        "governor": None,
        "variables": {"CUDA_VISIBLE_DEVICES": "0"},
    }
    values["preflight"] = {"ecc": True, "power_limit_w": 700.0, "other_processes": []}
    return SessionRow(**{"session": name, **values, **more})


def run_of(model: str, batch: int, precision: str, status: str = "ok", **more: Any) -> Run:
    values: dict[str, Any] = {"model": model, "batch_size": batch, "device": "cuda", "precision": precision}
    values |= {"cell_id": f"{model}-{batch}-{precision}", "attempt": 1, "session": "s1", "status": status}
    return Run(**{**values, **more})


def fraction(run: Run, method: str, source: str, denominator: str, ratio: float | None, **more: Any) -> Utilization:
    """One fraction with an interval of ± 2 %; without a ratio it has neither peak nor interval."""
    peak = PEAKS[run.precision] * {"datasheet": 1.0, "clock": 0.9, "ceiling": 0.8, "user": 1.0}[denominator]
    values: dict[str, Any] = {name: getattr(run, name) for name in ("cell_id", "attempt", "model", "batch_size")}
    values |= {"precision": run.precision, "device": run.device, "method": method, "numerator_source": source}
    values |= {"denominator": denominator, "model_flop": 10**12, "time_s": 0.1, "time_low_s": 0.098}
    values |= {"time_high_s": 0.102, "items_per_s": 10.0 * run.batch_size, "status": run.status}
    if ratio is not None:
        values |= {"peak_flop_per_s": peak, "peak_source": f"{run.precision} dense: a sheet, page 3"}
        values |= {"achieved_flop_per_s": ratio * peak, "utilization_ratio": ratio}
        values |= {"utilization_low_ratio": ratio * 0.98, "utilization_high_ratio": ratio * 1.02}
    return Utilization(**{**values, **more})


def failed(run: Run, reason: str) -> View:
    """A cell that was not measured."""
    row = fraction(run, "exact", "flopledger", "datasheet", None, reason=reason, time_s=None, items_per_s=None)
    return View(run, (row,))


def _view(model: str, batch: int, precision: str, place: int) -> View:
    if (model, batch, precision) == ("vgg16", 128, "fp32"):
        return failed(run_of(model, batch, precision, "out_of_memory", reason=OUT_OF_MEMORY), OUT_OF_MEMORY)
    run = run_of(model, batch, precision, "not_converged" if place % 7 == 3 else "ok", host_bound=batch == 1)
    ratio = 0.05 + 0.007 * (place % 80)
    marks = ("clock_limited: the clock was held down by sw_power_cap",) if place % 4 == 0 else ()
    rows = []
    for denominator, factor in (("datasheet", 1.0), ("clock", 1 / 0.9), ("ceiling", 1 / 0.8)):
        for step, (method, source) in enumerate(METHODS):
            value = ratio * factor * (0.5 if method == "theory_as_published" else 1 + 0.01 * step)
            rows.append(fraction(run, method, source, denominator, value, warnings=marks))
    why = "no peak was given (--peak-tflops)"
    rows += [fraction(run, *method, "user", None, reason=why, status="unavailable") for method in METHODS]
    return View(run, tuple(rows), TableCount({("convolution", "float32"): 10**12}, 0, 6 * 10**9, 4 * 10**9, {}))


def _shared(run: Run) -> dict[str, Any]:
    names = ("cell_id", "attempt", "model", "batch_size", "precision")
    return {name: getattr(run, name) for name in names}


def _work_times(run: Run) -> list[WorkTime]:
    shared = {**_shared(run), "device": run.device}
    times = {"one": (1, 1, 0.004), "batch": (run.batch_size, 1, 0.1), "epoch": (10_000, 10_000 // run.batch_size, 8.0)}
    rows = []
    for work, (items, steps, time_s) in times.items():
        real = {"real_time_s": 8.04, "real_low_s": 7.9, "real_high_s": 8.2, "agrees": True} if work == "epoch" else {}
        profiled = {"profiled_time_s": 1.5 * time_s, "profiled_low_s": 1.4 * time_s, "profiled_high_s": 1.6 * time_s}
        around = {"time_s": time_s, "low_s": 0.98 * time_s, "high_s": 1.02 * time_s, "overhead_ratio": 0.5}
        rows.append(WorkTime(**shared, work=work, items=items, steps=steps, **around, **profiled, **real))
    return rows


def _profile_counts(run: Run) -> list[ProfileCount]:
    shared = {**_shared(run), "device": run.device, "source": "torch_profiler"}
    flop = {"forward": 3_600_000_000 * run.batch_size, "backward": 7_100_000_000 * run.batch_size}
    return [
        ProfileCount(
            **shared,
            work="batch",
            items=run.batch_size,
            phase=phase,
            found_flop=value if phase == "forward" else value // 3,
            deduplicated_flop=value,
            cleaned_flop=value,
            exact_flop=value,
            operations=20,
            repaired=0 if phase == "forward" else 20,
        )
        for phase, value in flop.items()
    ]


def _ratios(run: Run) -> list[Ratio]:
    shared = {**_shared(run), "level": "model", "name": "", "exact_ratio": 1.9671}
    rows = [
        Ratio(**shared, source="torch_profiler", work=work, state=state, ratio=ratio)
        for work in ("one", "batch", "epoch")
        for state, ratio in (("found", 0.3321), ("cleaned", 1.9671))
    ]
    rows += [Ratio(**shared, source="flopledger", work="", state=s, ratio=1.9671) for s in ("found", "cleaned")]
    why = "counts no backward"
    return [*rows, Ratio(**shared, source="fvcore", work="", state="found", status="unavailable", reason=why)]


def _agreement(run: Run) -> list[Agreement]:
    exact = 3_600_000_000 * run.batch_size
    rows = []
    for phase, counter in itertools.product(("forward", "backward"), COUNTERS):
        of = {name: value for name, value in _shared(run).items() if name != "precision"}
        shared = {**of, "counter": counter, "phase": phase, "exact_flop": exact}
        if phase == "backward" and counter not in ("flopledger", "flop_counter_mode"):
            rows.append(Agreement(**shared, status="unavailable", reason="counts forward only"))
            continue
        off = {"ptflops": exact // 200, "pthflops": exact}.get(counter, 0)
        why = "pthflops: sees no product of a function" if off == exact else ""
        rows.append(
            Agreement(**shared, difference_flop=-off, ratio=1 - off / exact, model_flop=exact - off, reason=why)
        )
    return rows


def _laws(run: Run) -> list[BatchLaw]:
    shared = {"cell_id": run.cell_id, "attempt": 1, "model": run.model, "phase": "forward", "batches": (1, 2, 16)}
    holds = BatchLaw(**shared, counter="fvcore", slope_flop=3_600_000_000, constant_flop=0, holds=True)
    why = "batch 2: 7.2 GFLOP more than the law says"
    return [holds, BatchLaw(**shared, counter="pthflops", holds=False, reason=why)]


def _log(run: Run) -> list[CleaningLog]:
    shared = {"cell_id": run.cell_id, "attempt": 1, "subject": "fvcore forward batch 1 batch_norm", "field": "flop"}
    left = "left out: normalization is neither a convolution nor a matrix product"
    return [
        CleaningLog(**shared, step="model_operators", file="flop_counts.csv", before="7476224", after="", reason=left),
        CleaningLog(
            **shared, step="undercounts", file="profile", before="", after="231211008", reason="gap: backward of conv2d"
        ),
    ]
