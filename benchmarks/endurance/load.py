"""How long does a report of ten thousand cells take, how much memory, and how large is its page?

    python -m benchmarks.endurance.load --cells 10000 --samples 100

A run of so many cells is written through the store: models × batch sizes × precisions × repetitions, each cell with its
samples and the rows of two counters, each model and batch with an operation table. Everything in it is made up from the
cell's place, so that two runs of this are equal. Then each part of `runners.report` is timed once: reading, deriving,
tables, figures, page and text. memory: the largest of the process, with what it has imported.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from results.records import SCHEMA_VERSION, Ceiling, FlopCount, Run, Sample, Sitting
from results.store import Manifest, Store, read_operations
from results.store.disk import Disk

PRECISIONS = ("fp32", "tf32", "amp-bf16", "amp-fp16")
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
REPEATS = 5
CELLS_OF_A_MODEL = len(PRECISIONS) * len(BATCHES) * REPEATS

PUBLISHED = Path(__file__).parents[2] / "results/published/amd-epyc-2-cores-2026-11-21"
TABLE = "98f2813c667e6db0"
"""Of AlexNet, 175 operations: every model and batch has it as its own."""


class Unsynced(Disk):
    """A disk without its waits."""

    def fsync(self, fd: int) -> None:
        pass


def cells(count: int) -> Iterator[Run]:
    """Models of 200 cells each: every batch, precision and repetition."""
    for number in range(count):
        model, place = divmod(number, CELLS_OF_A_MODEL)
        batch, rest = divmod(place, len(PRECISIONS) * REPEATS)
        precision, repeat = divmod(rest, REPEATS)
        yield Run(
            model=f"net{model:03d}",
            batch_size=BATCHES[batch],
            precision=PRECISIONS[precision],
            device="cuda",
            repeat=repeat,
            cell_id=f"{number:016x}",
            attempt=1,
            sitting="s0",
            status="ok",
            methods=("theory", "exact"),
            counters=("fvcore", "ptflops"),
            trace_id=f"{model:08x}{BATCHES[batch]:08x}",
            items_per_step=BATCHES[batch],
            parameters=10_000_000 + model,
            convolution_unit="fp32",
            matmul_unit="fp32",
            started_at="2026-11-24T00:00:00Z",
        )


def samples_of(run: Run, count: int) -> list[Sample]:
    """Blocks whose times scatter by a few per cent around one that grows with the batch."""
    step_s = 1e-3 * (run.batch_size + 3) * (1 + PRECISIONS.index(run.precision))
    return [
        Sample(
            cell_id=run.cell_id,
            attempt=1,
            index=index,
            part="measure",
            steps=10,
            start_s=index * 10 * step_s,
            wall_s=10 * step_s * (1 + ((index * 7919 + run.repeat) % 41 - 20) / 1000),
        )
        for index in range(count)
    ]


def counts_of(run: Run) -> list[FlopCount]:
    """One total of each counter at the cell's batch."""
    flop = 4_000_000_000 * run.batch_size
    return [
        FlopCount(
            cell_id=run.cell_id,
            attempt=1,
            counter=counter,
            workload=run.model,
            batch_size=run.batch_size,
            phase="forward",
            native_value=flop // 2 + add,
            native_unit="mac",
            flop=flop + 2 * add,
            status="ok",
            parameters=run.parameters,
        )
        for counter, add in (("fvcore", 0), ("ptflops", 1_000_000))
    ]


def write(path: Path, count: int, samples: int) -> None:
    """The whole run."""
    manifest = Manifest(name="load", created_at="2026-11-24T00:00:00Z", schema_version=SCHEMA_VERSION)
    sitting = Sitting(
        sitting="s0", started_at="2026-11-24T00:00:00Z", host="", device="cuda", device_name="NVIDIA A100-SXM4-80GB"
    )
    with Store.create(path, manifest, Unsynced()) as store:
        store.append_sitting(sitting)
        store.append_ceilings(
            [
                Ceiling(
                    sitting="s0",
                    device="cuda",
                    precision=precision,
                    operation="matmul",
                    shape="4096x4096x4096",
                    unit="fp32",
                    flop=2 * 4096**3,
                    median_s=2 * 4096**3 / (1e14 * (1 + place)),
                    flop_per_s=1e14 * (1 + place),
                )
                for place, precision in enumerate(PRECISIONS)
            ]
        )
        tables, traced = read_operations(PUBLISHED, TABLE), set[str]()
        for run in cells(count):
            if run.trace_id not in traced:
                store.write_operations(run.trace_id, *tables)
                traced.add(run.trace_id)
            store.commit(run, {"samples.csv": samples_of(run, samples), "flop_counts.csv": counts_of(run)})


def timed(name: str, work: Callable[[], Any], say: Callable[[str], None]) -> Any:
    """What the work gives; says how long it took, on the wall and of the processor, and the largest memory so far."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    found = work()
    taken_s, cpu_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    say(f"{name:<10} {taken_s:8.2f} s, of the processor {cpu_s:8.2f} s   {peak_bytes / 1e9:6.2f} GB")
    return found


def measure(path: Path, out: Path, say: Callable[[str], None]) -> None:
    """Each part of a report, as `runners.report.command.rebuild` does them one after the other."""
    from cleaning.reconcile import build
    from reports.sweep.answer import to_text
    from results.store import read_operation_table, read_profile, read_run
    from runners.cli import put
    from runners.report import command
    from runners.report.derived import derived_tables
    from runners.report.recordings import table_processes

    with table_processes(path) as each:
        data = timed("read", lambda: read_run(path), say)
        sources = partial(read_operation_table, path), partial(read_profile, path), None
        built = timed("derive", lambda: build(data, *sources, each), say)
    timed("tables", lambda: [put(out / file, content) for file, content in derived_tables(built)], say)
    timed("text", lambda: to_text(built, 100, False, "flop"), say)
    drawn = timed("figures", lambda: command._pictures(out), say)
    page = timed("page", lambda: command._page(built, drawn, data.manifest, data.ceilings, None), say)
    say(f"{len(data.runs)} cells, {len(drawn)} pictures of {sum(map(len, drawn.values())) / 1e6:.1f} MB")
    say(f"page: {len(page) / 1e6:.2f} MB")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--run", type=Path, help="a directory that keeps the run; one that is there is used")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="load-") as name:
        run = options.run or Path(name) / "run"
        if not run.exists():
            timed("write", lambda: write(run, options.cells, options.samples), print)
        measure(run, Path(name) / "out", lambda line: print(line, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
