"""Reading a Kineto trace: this project beside HolisticTraceAnalysis, in the same run, with the numbers that both give.

    python -m benchmarks.hta trace.json.gz --peer-python /path/to/venv/bin/python
    python -m benchmarks.hta --file-bytes 100000000 --peer-python /path/to/venv/bin/python

The peer (package HolisticTraceAnalysis) brings jupyterlab, plotly and a pandas of its own, so that it is asked in an
environment of its own, whose interpreter is named here. Each reading runs in a process of its own, which tells its time
(imports left out) and its peak memory; the two take turns, and medians are told. Ours is read and attributed: every
kernel with its call, phase and module. The peer's is loaded as `TraceAnalysis` does, every profiler step kept, and its
temporal breakdown taken: it gives no phase, module or FLOP, so that its time is that of less work.

Both must agree on what both give: how many kernels, copies and fills there are, their time, and the time from the first
to the last in which none of them runs; all of rows with a recorded launch, since the peer leaves the others out, which
this project keeps. Exit code 1 where they do not.

It does not compare results that only one of them has.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from measure.trace.recording import Recording

PEER = """
import json, logging, resource, sys, time
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
begun = time.perf_counter()
found = TraceAnalysis(trace_files={0: sys.argv[1]}, include_last_profiler_step=True)
table = found.get_temporal_breakdown(visualize=False).iloc[0]
spent_s = time.perf_counter() - begun
frame, names = found.t.get_trace(0), found.t.symbol_table.get_sym_table()
rows = frame[frame["stream"] >= 0]
kinds = rows["cat"].map(lambda number: names[number].lower().removeprefix("gpu_"))
rows = rows[kinds.isin(["kernel", "memcpy", "memset"])]
told = rows.groupby(kinds)["dur"].agg(["count", "sum"])
print(json.dumps({
    "read_s": spent_s,
    "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "count": {kind: int(row["count"]) for kind, row in told.iterrows()},
    "time_s": {kind: float(row["sum"]) / 1e6 for kind, row in told.iterrows()},
    "idle_s": float(table["idle_time(us)"]) / 1e6,
}))
"""

ROUNDED_S = 2e-6
"""The peer cuts a row's begin and end to whole µs inside of it, which takes up to this from its time."""

KINDS = ("kernel", "memcpy", "memset")


def ours(path: Path) -> dict[str, Any]:
    """Read and attribute a file, in this process."""
    import numpy as np

    from measure.trace import kineto
    from measure.trace.attribute import attribute

    begun = time.perf_counter()
    kernels = attribute(kineto.read(path)).kernels
    spent_s = time.perf_counter() - begun
    kernels = kernels[kernels["what"].isin(KINDS)]
    every, kernels = len(kernels), kernels[kernels["launch_start_ns"] >= 0]
    start = kernels["start_ns"].to_numpy(np.int64)
    order = np.argsort(start, kind="stable")
    start, end = start[order], (start + kernels["time_ns"].to_numpy(np.int64))[order]
    idle_ns = int(np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0).sum())
    told = kernels.groupby("what")["time_ns"].agg(["count", "sum"])
    return {
        "read_s": spent_s,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "count": {str(kind): int(row["count"]) for kind, row in told.iterrows()},
        "time_s": {str(kind): float(row["sum"]) / 1e9 for kind, row in told.iterrows()},
        "idle_s": idle_ns / 1e9,
        "unlaunched": every - len(kernels),
    }


def slow(steps: int) -> Recording:
    """The recording that `benchmarks.traces` makes up, a thousand times slower: all times are whole µs."""
    from benchmarks.traces import made_up

    made = made_up(steps)
    tables = {name: getattr(made, name).copy() for name in ("calls", "kernels", "ranges")}
    for table in tables.values():
        for column in (name for name in table if name.endswith("_ns")):
            table[column] *= 1000
    return replace(made, **tables)


def asked(words: Sequence[str]) -> dict[str, Any]:
    """What a process of one of the two says in its last line. Raises ValueError with its own last line if it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise ValueError(f"{words[0]}: {last}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def differences(mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """What both give and do not agree on, a line each; none if there is nothing."""
    told = [] if mine["count"] == theirs["count"] else [f"counts: {mine['count']} against {theirs['count']}"]
    rows = {kind: mine["count"].get(kind, 0) for kind in KINDS}
    times = {kind: (mine["time_s"].get(kind, 0.0), theirs["time_s"].get(kind, 0.0), rows[kind]) for kind in KINDS}
    times["idle"] = (mine["idle_s"], theirs["idle_s"], sum(rows.values()))
    for name, (one, other, count) in times.items():
        if abs(one - other) > ROUNDED_S * count:
            told.append(f"{name}: {one:.6f} s against {other:.6f} s")
    return told


def compare(path: Path, peer_python: str, repeats: int) -> int:
    """Prints both, their ratio, and where they differ; the exit code."""
    own = [sys.executable, "-m", "benchmarks.hta", str(path), "--ours"]
    pairs = [(asked(own), asked([peer_python, "-c", PEER, str(path)])) for _ in range(repeats)]
    mine, theirs = pairs[-1]
    print(f"{path.name}: {path.stat().st_size:,} bytes; {mine['count']}, idle {mine['idle_s']:.6f} s")
    if mine["unlaunched"]:
        print(f"{mine['unlaunched']} more without a recorded launch, which the peer leaves out")
    for name, unit, scale in (("read_s", "s", 1.0), ("peak_memory_bytes", "GB", 1e9)):
        one, other = (statistics.median(pair[side][name] for pair in pairs) / scale for side in (0, 1))
        print(f"{name:>18} ours {one:.2f} {unit}, HolisticTraceAnalysis {other:.2f} {unit}: ratio {one / other:.2f}")
    differing = differences(mine, theirs)
    for line in differing or ["both agree on counts, times by kind and idle time"]:
        print(line)
    return 1 if differing else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?", help="a Kineto trace; none: one that is made up")
    parser.add_argument("--peer-python", help="the interpreter of an environment with HolisticTraceAnalysis")
    parser.add_argument("--file-bytes", type=int, default=20_000_000, help="of one that is made up")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--ours", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.ours:
        print(json.dumps(ours(options.file)))
        return 0
    if not options.peer_python:
        parser.error("expected --peer-python, the interpreter of an environment with HolisticTraceAnalysis")
    try:
        return _compared(options)
    except ValueError as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1


def _compared(options: argparse.Namespace) -> int:
    if options.file:
        return compare(options.file, options.peer_python, options.repeats)
    from benchmarks.traces import steps_of, write

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        write(slow(steps_of(options.file_bytes)), path)
        return compare(path, options.peer_python, options.repeats)


if __name__ == "__main__":
    raise SystemExit(main())
