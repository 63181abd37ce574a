"""The footprint's prediction against real allocators and torch's MemTracker, over models × batches × precisions.

    python -m benchmarks.pages.footprint --out tests/data/footprint
    python -m benchmarks.pages.footprint --device cuda --batches 8,64 --out DIR
    python -m benchmarks.pages.footprint --write docs/footprint.md tests/data/footprint \\
        tests/data/footprint-models
    python -m benchmarks.pages.footprint --again tests/data/footprint
    python -m benchmarks.pages.footprint --published tests/data/footprint
    python -m benchmarks.pages.footprint --speed

Each step runs in a process of its own: predicted on fake tensors, then run twice and measured in the second
(`measure/profiler/allocations.py`), then again under MemTracker. Rows go to checked.csv as they come; one that was
stopped goes on. Bytes repeat exactly, whatever else the machine does. `--write` makes the page from the rows of DIR.
`--again` makes the predictions of DIR's rows again, with the code as it is, and names those that differ. `--published`
makes the predictions of what others measured (`analysis/footprint/step/published_memory.csv`) and writes published.csv.
`--speed` tells what the analysis takes beyond the trace: processor seconds, least of three.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import json
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from analysis.devices.precisions import PRECISIONS
from results.records.footprint import FootprintCheck, FootprintPrediction
from results.records.rows import Record, header
from runners.footprint.step import StepOptions
from workloads.catalogue.catalogue import ENTRIES, OPTIMIZERS, SUITES

ROWS, MACHINE, PUBLISHED = "checked.csv", "machine.json", "published.csv"
SUITE = SUITES["post2021"]
TIMEOUT_S = 900.0
SIZES = {name: getattr(SUITE, name) for name in ("num_classes", "image_size")}
"""Of the suite's models; others have their own."""

GOALS = (("resnet152", 8, {}, 1.0), ("gpt", 4, {"layers": 48}, 5.0))
"""Model, batch, sizes, and the most seconds that the analysis may take beyond the trace."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or write the page."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if len(options.directories) not in ((1, 2) if options.write else (0,)):
        parser.error("expected one or two DIR after --write FILE, and none without it")
    if options.speed:
        return _speed()
    if options.again:
        return _again(read(options.again))
    if options.published:
        return _published(options.published / PUBLISHED)
    if options.write:
        options.write.write_text(_page(*options.directories), encoding="utf-8")
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / MACHINE).write_text(json.dumps(_machine(options.device), indent=1) + "\n", encoding="utf-8")
    _measure(options)
    return 0


def read(directory: Path) -> list[FootprintCheck]:
    """The rows of a directory."""
    return [FootprintCheck.from_row(row) for row in _rows(directory / ROWS)]


def read_published(directory: Path) -> dict[str, FootprintPrediction]:
    """The predictions of a directory of what others measured, by name."""
    return {row["name"]: FootprintPrediction.from_row(row) for row in _rows(directory / PUBLISHED)}


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _page(directory: Path, others: Path | None = None) -> str:
    from analysis.footprint.step.published import published
    from reports.footprint.page import page
    from reports.footprint.published import section

    machine = json.loads((directory / MACHINE).read_text(encoding="utf-8"))
    predicted = read_published(directory)
    further = (f"`{others}`", read(others)) if others else ("", ())
    more = section(published(), predicted) if predicted else ""
    return page(read(directory), machine, f"`{directory}`", more, further)


def _published(path: Path) -> int:
    """Our predictions of what others measured, into a file of their own."""
    from analysis.footprint.step.published import published
    from runners.footprint.published_task import predict

    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    for row in published():
        found = predict(row)
        _append(path, found)
        print(f"{row.name}: {found.predicted_bytes / row.measured_bytes - 1:+.2%}", flush=True)
    return 0


def _measure(options: argparse.Namespace) -> None:
    from runners.workers.fault import WorkerFault
    from runners.workers.pool import Worker

    done = {(row.model, row.batch_size, row.precision, row.optimizer) for row in read(options.out)}
    for asked, batch_size in _steps(options):
        if (asked.model, batch_size, asked.precision, asked.optimizer) in done:
            continue
        worker = Worker("footprint")
        try:
            answer = worker.call(
                "runners.footprint.check_task:check", asked, batch_size, options.device, timeout_s=TIMEOUT_S
            )
        finally:
            worker.stop()
        if isinstance(answer, WorkerFault):
            print(f"{asked.model} batch {batch_size} {asked.precision}: {answer.status}: {answer.reason}", flush=True)
            continue
        _append(options.out / ROWS, answer)
        error = answer.predicted_bytes / answer.measured_bytes - 1
        tensors = answer.predicted_bytes / answer.tensors_bytes - 1
        print(f"{asked.model} batch {batch_size} {asked.precision}: {error:+.3%}, tensors {tensors:+.4%}", flush=True)


def _again(rows: Sequence[FootprintCheck]) -> int:
    """How many predictions are still what the rows have; 1 where one is not."""
    from analysis.footprint.step.live_bytes import footprint
    from runners.footprint.step import trace_batch

    differ = 0
    for row in rows:
        step = trace_batch(_asked(row.model, row.precision, row.optimizer, row.device), row.batch_size)
        found = footprint(step.operations, step.storages)
        now_bytes = found.at_least_bytes
        if (now_bytes, found.peak_at.operation) != (row.predicted_bytes, row.predicted_at):
            differ += 1
            print(f"{row.model} batch {row.batch_size} {row.precision}: {row.predicted_bytes:,}, now {now_bytes:,}")
    print(f"{len(rows) - differ} of {len(rows)} predictions are the same")
    return min(1, differ)


def _asked(model: str, precision: str, optimizer: str, device: str) -> StepOptions:
    """A step as it is measured."""
    sizes = {name: size for name, size in SIZES.items() if name in ENTRIES[model].hyper}
    return StepOptions(model, precision, optimizer, device.partition(":")[0], hyper=sizes)


def _speed() -> int:
    """Processor seconds of trace and analysis of two large steps; 1 where a goal is missed."""
    from analysis.footprint.schedule.minimum import minimal
    from analysis.footprint.step.caching_allocator import replay
    from analysis.footprint.step.cudnn_workspaces import with_workspaces
    from analysis.footprint.step.live_bytes import footprint
    from analysis.footprint.step.workspaces import where_there_is_room
    from runners.footprint.step import trace_batch

    missed = 0
    for model, batch_size, hyper, goal_s in GOALS:
        times, analysed = [], []
        for _ in range(3):
            begun = time.process_time()
            step = trace_batch(StepOptions(model, "amp-bf16", "adamw", hyper=hyper), batch_size)
            times.append(time.process_time() - begun)
            begun = time.process_time()
            ledger = footprint(step.operations, step.storages).ledger
            replay(ledger, len(step.operations))
            replay(*with_workspaces(step.operations, ledger, "amp-bf16"))
            where_there_is_room(step.operations, ledger, "cuda", "amp-bf16")
            minimal(step.operations, step.storages)
            analysed.append(time.process_time() - begun)
        missed |= min(analysed) > goal_s
        sizes = "".join(f", {name} {size}" for name, size in hyper.items())
        print(
            f"{model}, batch {batch_size}{sizes}: {len(step.operations):,} operations, trace {min(times):.2f} s, "
            f"analysis {min(analysed):.3f} s, goal {goal_s:g} s: {'missed' if min(analysed) > goal_s else 'met'}"
        )
    return missed


def _steps(options: argparse.Namespace) -> Iterator[tuple[StepOptions, int]]:
    for batch_size in options.batches.split(","):
        for model in options.models.split(","):
            for precision in options.precisions.split(","):
                yield _asked(model, precision, options.optimizer, options.device), int(batch_size)


def _append(path: Path, row: Record) -> None:
    fresh = not path.exists()
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header(type(row)), lineterminator="\n")
        if fresh:
            writer.writeheader()
        writer.writerow(row.to_row())


def _machine(device: str) -> dict[str, str]:
    versions = {name: importlib.metadata.version(name) for name in ("torch", "torchvision")}
    said = {"device": device, "python": platform.python_version(), **versions}
    if device == "cpu":
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        said["processor"] = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")
        flags = next((line.split() for line in lines if line.startswith("flags")), [])
        said["isa"] = " ".join(name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags)
    return said


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pages.footprint", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--models", default=",".join(SUITE.models), help="names with commas (the suite post2021)")
    parser.add_argument("--batches", default="2,8", help="(2,8)")
    parser.add_argument("--precisions", default="fp32,amp-bf16", help=f"of {', '.join(PRECISIONS)} (fp32,amp-bf16)")
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N (cpu)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the rows go")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page from DIR instead")
    parser.add_argument("--again", type=Path, metavar="DIR", help="make the predictions of DIR again instead")
    parser.add_argument("--published", type=Path, metavar="DIR", help="predict what others measured instead")
    parser.add_argument("--speed", action="store_true", help="time the analysis of two large steps instead")
    parser.add_argument(
        "directories", nargs="*", type=Path, metavar="DIR", help="of --write: a second has other models"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
