"""How long it takes to read and attribute large recordings, and how much memory.

    python -m benchmarks.traces --file-bytes 1000000000

The recording is made up with numpy: training steps of 100 convolutions, each with the calls that torch 2.15 records
around it (five forward on one thread, six backward on the engine's), two kernels each way, sequence numbers and forward
threads, so that every rule of `measure/trace/attribute.py` has work to do. The result is checked before a
time is told: every kernel found the call that launched it, every backward call its forward call.
The file holds the same as a Kineto trace of torch 2.15, gzipped if its name ends in .gz; reading it runs in a process
of its own, whose peak memory is told. `benchmarks/hta.py` has a peer read the same.

It does not measure a disk: the file was just written and lies in the page cache.
"""

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from measure.trace import kineto
from measure.trace.attribute import attribute
from measure.trace.recording import Recording, calls_table, kernels_table, ranges_table

OPERATIONS = 100
"""Convolutions in a step."""

FORWARD = (
    ("aten::conv2d", 0, 1000),
    ("aten::convolution", 10, 980),
    ("aten::_convolution", 20, 960),
    ("aten::cudnn_convolution", 30, 940),
    ("aten::empty", 40, 20),
)
BACKWARD = (
    ("autograd::engine::evaluate_function: ConvolutionBackward0", 0, 1000),
    ("ConvolutionBackward0", 10, 980),
    ("aten::convolution_backward", 20, 960),
    ("aten::empty", 30, 20),
    ("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 1010, 80),
    ("torch::autograd::AccumulateGrad", 1020, 60),
)
"""Calls of one convolution: name, start and length in ns since it began."""

LAUNCHES_AT = (300, 600)
GAP_NS = 1200
KERNELS_A_STEP = 2 * OPERATIONS * len(LAUNCHES_AT)
CALLS_AN_OPERATION = len(FORWARD) + len(BACKWARD)
MAIN, ENGINE = 100, 200
EVENT_BYTES = 385
"""Of a call or kernel with its launch in the file, on average; as measured, to choose how many steps fill a file."""

SHAPES = ((32, 64, 56, 56), (64, 64, 3, 3), (), (), (), (), ())
DTYPES = ("float", "float", "", "ScalarList", "ScalarList", "ScalarList", "Scalar")
CONCRETE = (None, None, None, (1, 1), (1, 1), (1, 1), 1)


def made_up(steps: int) -> Recording:
    """A recording of so many steps, calls and kernels in the order of start."""
    numbers = np.arange(steps * OPERATIONS)
    step = numbers // OPERATIONS
    pass_ns = OPERATIONS * GAP_NS
    forward_ns = step * 2 * pass_ns + (numbers % OPERATIONS) * GAP_NS
    backward_ns = step * 2 * pass_ns + pass_ns + (OPERATIONS - 1 - numbers % OPERATIONS) * GAP_NS
    parts = [
        (name, base + at, time_ns, thread, numbers)
        for calls, base, thread in ((FORWARD, forward_ns, MAIN), (BACKWARD, backward_ns, ENGINE))
        for name, at, time_ns in calls
    ]
    columns: dict[str, Any] = {
        "name": np.concatenate([np.full(len(numbers), name, object) for name, *_ in parts]),
        "start_ns": np.concatenate([start for _, start, *_ in parts]),
        "time_ns": np.concatenate([np.full(len(numbers), time_ns) for _, _, time_ns, *_ in parts]),
        "thread": np.concatenate([np.full(len(numbers), thread) for *_, thread, _ in parts]),
        "sequence_nr": np.concatenate([number if _numbered(name) else number * 0 - 1 for name, *_, number in parts]),
        "forward_thread": np.concatenate(
            [np.full(len(numbers), int("Convolution" in name)) for name, *_ in parts]
        ),
    }  # fmt: skip
    order = np.lexsort((-columns["time_ns"], columns["start_ns"]))
    columns = {name: values[order] for name, values in columns.items()}
    count = len(order)
    calls = calls_table(
        **columns,
        process=np.full(count, 1),
        external_id=np.arange(count),
        input_shapes=[SHAPES] * count,
        input_dtypes=[DTYPES] * count,
        concrete_inputs=[CONCRETE] * count,
    )
    passes = ((forward_ns, MAIN), (backward_ns, ENGINE))
    launched = [(base + at, thread) for base, thread in passes for at in LAUNCHES_AT]
    launch_ns = np.concatenate([at for at, _ in launched])
    launch_thread = np.concatenate([np.full(len(at), thread) for at, thread in launched])
    order = np.argsort(launch_ns, kind="stable")
    launch_ns, launch_thread = launch_ns[order], launch_thread[order]
    kernels = kernels_table(
        name=["implicit_convolve_sgemm"] * len(order),
        start_ns=launch_ns + 5000,
        time_ns=np.full(len(order), 250),
        device=np.zeros(len(order), np.int64),
        stream=np.full(len(order), 7),
        process=np.full(len(order), 1),
        correlation=np.arange(len(order)),
        launch_start_ns=launch_ns,
        launch_end_ns=launch_ns + 5,
        launch_thread=launch_thread,
    )
    ranges = ranges_table(
        name=[f"ProfilerStep#{number}" for number in range(steps)],
        thread=np.full(steps, MAIN),
        process=np.full(steps, 1),
        start_ns=np.arange(steps) * 2 * pass_ns,
        time_ns=np.full(steps, 2 * pass_ns),
    )
    return Recording("kineto", "made up", calls, kernels, ranges=ranges)


def _numbered(name: str) -> bool:
    return name in ("aten::conv2d", "aten::convolution") or "Convolution" in name


def write(recording: Recording, path: Path) -> None:
    """The recording as torch.profiler would have exported it."""
    with gzip.open(path, "wt", compresslevel=1) if path.suffix == ".gz" else path.open("w") as file:
        file.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "Made Up"}], "traceEvents": [')
        _write_events(recording, file)
        file.write('{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}}], ')
        file.write('"baseTimeNanoseconds": 1790000000000000000}\n')


def _write_events(recording: Recording, file: IO[str]) -> None:
    inputs = json.dumps(
        {
            "Concrete Inputs": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"],
            "Input type": list(DTYPES),
            "Input Dims": [list(shape) for shape in SHAPES],
        }
    )[1:]
    names = ("name", "thread", "start_ns", "time_ns", "sequence_nr", "forward_thread", "external_id")
    for name, tid, start, length, number, thread, external in zip(
        *(recording.calls[column].tolist() for column in names), strict=True
    ):
        numbers = f'"Sequence number": {number}, "Fwd thread id": {thread}, ' if number >= 0 else ""
        file.write(
            f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": {tid}, "ts": {_us(start)}, '
            f'"dur": {_us(length)}, "args": {{"External id": {external}, "Record function id": 0, {numbers}'
            f"{inputs}}},\n"
        )
    ranges = (recording.ranges[column].tolist() for column in ("name", "thread", "start_ns", "time_ns"))
    for name, tid, start, length in zip(*ranges, strict=True):
        file.write(
            f'{{"ph": "X", "cat": "user_annotation", "name": "{name}", "pid": 1, "tid": {tid}, '
            f'"ts": {_us(start)}, "dur": {_us(length)}, "args": {{}}}},\n'
        )
    kernels = recording.kernels
    columns = ("name", "start_ns", "time_ns", "correlation", "launch_start_ns", "launch_thread")
    for name, start, length, number, launch, tid in zip(*(kernels[column].tolist() for column in columns), strict=True):
        file.write(
            f'{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": {tid}, '
            f'"ts": {_us(launch)}, "dur": 0.005, "args": {{"cbid": 211, "correlation": {number}}}}},\n'
            f'{{"ph": "X", "cat": "kernel", "name": "{name}", "pid": 0, "tid": 7, "ts": {_us(start)}, '
            f'"dur": {_us(length)}, "args": {{"device": 0, "context": 1, "stream": 7, "correlation": {number}, '
            f'"registers per thread": 128, "blocks per SM": 39.2, "grid": [3136, 1, 1], "block": [128, 1, 1]}}}},\n'
        )


def _us(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


def time_file(path: Path) -> dict[str, Any]:
    """Read and attribute a file, in this process."""
    begun = time.perf_counter()
    recording = kineto.read(path)
    read_s = time.perf_counter() - begun
    found = attribute(recording)
    return {
        "file_bytes": path.stat().st_size,
        "kernels": len(found.kernels),
        "calls": len(found.calls),
        "linked": int((found.kernels["call"] >= 0).sum()),
        "read_s": read_s,
        "attribute_s": time.perf_counter() - begun - read_s,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def steps_of(file_bytes: int) -> int:
    """How many steps fill a file of about so many bytes."""
    events = OPERATIONS * CALLS_AN_OPERATION + KERNELS_A_STEP
    return max(file_bytes // (events * EVENT_BYTES), 1)


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file-bytes", type=int, default=1_000_000_000, help="write a trace of about this size")
    parser.add_argument("--gzip", action="store_true", help="gzip the file (--file-bytes is its size unzipped)")
    parser.add_argument("--read", type=Path, help="read and attribute this file instead, in this process")
    options = parser.parse_args(argv)
    if options.read:
        print(json.dumps(time_file(options.read)))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / ("trace.json.gz" if options.gzip else "trace.json")
        write(made_up(steps_of(options.file_bytes)), path)
        command = [sys.executable, "-m", "benchmarks.traces", "--read", str(path)]
        measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for name, value in measured.items():
        print(f"{name:>18} {value:,.1f}" if isinstance(value, float) else f"{name:>18} {value:,}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
