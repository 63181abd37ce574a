"""Rows of a made-up search: every plan of a device, at round rates, so that tables and pictures can be read."""

from dataclasses import replace

from analysis.devices.precisions import PRECISIONS
from measure.ceiling.trials import moves, sweep, titled
from reports.ceiling import CeilingAnswer
from results.records.cell import Ceiling

RATES = {"fp32": 50e12, "tf32": 400e12, "amp-bf16": 780e12}


def blank(device: str, name: str, precision: str, threads: int | None) -> Ceiling:
    values = {"session": "", "unit": "", "operation": "", "shape": "", "repeats": 20}
    return Ceiling(device=device, precision=precision, threads=threads, device_name=name, **values)


def products(device: str, name: str, precision: str, threads: int | None = None, factor: float = 1.0) -> list[Ceiling]:
    """Each trial a little slower than the one before it; the fastest call is 1.25 times as fast as the median."""
    rows = []
    for i, trial in enumerate(sweep(device, 780e12 if device == "cuda" else 200e9)):
        time_s = trial.flop / (factor * RATES[precision] * (1 - i / 100))
        row = titled(blank(device, name, precision, threads), trial, PRECISIONS[precision])
        rate = trial.flop / time_s
        rows.append(
            replace(row, flop=trial.flop, flop_per_s=rate, median_s=time_s, mean_s=1.1 * time_s, best_s=0.8 * time_s)
        )
    return rows


def others(device: str, name: str, threads: int | None = None, rate: float = 4e12) -> list[Ceiling]:
    """Copies of one rate in memory and of the double within caches; launches of 4 µs, 3 at best."""
    row = blank(device, name, "", threads)
    rows = []
    for move in moves(device, 60 << 20, 140 << 30):
        time_s = move.moved_bytes / (rate if move.family == "memory" else 2 * rate)
        told = {"operation": move.operation, "shape": move.shape, "family": move.family}
        times = {"median_s": time_s, "mean_s": time_s, "best_s": 0.8 * time_s}
        rows.append(replace(row, **told, moved_bytes=move.moved_bytes, bytes_per_s=move.moved_bytes / time_s, **times))
    views = ("launch", "call") if device == "cuda" else ("call",)
    return rows + [
        replace(row, operation=view, shape="500 times", median_s=4e-6, mean_s=4.5e-6, best_s=3e-6) for view in views
    ]


def gpu(**more: object) -> CeilingAnswer:
    name = "NVIDIA H200"
    rows = [row for precision in RATES for row in products("cuda", name, precision)] + others("cuda", name)
    rows = [replace(row, sm_clock_hz=1.7e9) for row in rows]
    values = {"multiprocessors": 132, "environment": {"torch": "2.15.0", "driver": "580.1"}, **more}
    return CeilingAnswer(device="cuda", device_name=name, rows=tuple(rows), **values)


def cpu(*threads: int) -> CeilingAnswer:
    rows: list[Ceiling] = []
    for count in threads or (2,):
        rows += products("cpu", "Some CPU", "fp32", count, factor=count * 1e-3) + others("cpu", "Some CPU", count, 2e10)
    return CeilingAnswer(device="cpu", device_name="Some CPU", rows=tuple(rows), environment={"torch": "2.15.0"})
