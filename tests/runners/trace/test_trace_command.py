"""Known answer, command, injected fault: `runners.trace` on real recordings; each bad input is one line."""

import gzip
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results.records.counts import CleaningLog, Kernel, OperationInstance
from results.records.rows import header
from results.store.layout import read_table
from runners import trace
from tests.support.fakes.commands import code_without, refused, running, telling

ROOT = Path(__file__).parents[3]
OURS = ROOT / "tests" / "data" / "kineto_torch215_stack.json.gz"

REAL = os.environ.get("FLOPLEDGER_TRACES", "")
real = pytest.mark.skipif(not REAL, reason="FLOPLEDGER_TRACES is not set")
V100 = "kineto_v100_resnet50_train_b32_torch19_202106.json.gz"
MI300 = "tracelens_mi300_resnet_train_actckpt.json.gz"

BLOCKED = code_without("torch torchvision pynvml nvtx psutil workloads", "runners.trace")

NET = {"first": 2 * 2 * 4 * 64 * 3 * 9, "grouped": 2 * 2 * 4 * 64 * 2 * 9, "middle": 2 * 2 * 256 * 5, "twice": 200}
"""FLOP of a step of tests/support/recordings/record_kineto.py: 2 images of 8 × 8; two convolutions 3 × 3 to 4 channels,
from 3 and from half of 4; a linear layer from 4 · 8 · 8 to 5, and one from 5 to 5 that is called twice."""

FORWARD = sum(NET.values())
BACKWARD = 2 * FORWARD - NET["first"]  # nobody asks for the gradient of the images


def traced(path: Path, us: int) -> None:
    """A trace of one product of 1000 × 1000 halves on an H100, its kernel taking so many µs."""
    event = {"ph": "X", "pid": 1, "tid": 1, "ts": 10, "dur": 50}
    sizes = {"Input Dims": [[1000, 1000], [1000, 1000]], "Input type": ["c10::Half", "c10::Half"]}
    whole = [
        {**event, "cat": "cpu_op", "name": "aten::mm", "args": {**sizes, "Concrete Inputs": ["", ""]}},
        {**event, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 20, "dur": 5, "args": {"correlation": 1}},
        {**event, "cat": "kernel", "name": "nvjet_hsh", "ts": 60, "dur": us, "tid": 7, "pid": 0}
        | {"args": {"correlation": 1, "device": 0, "stream": 7}},
    ]
    devices = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]
    path.write_text(json.dumps({"deviceProperties": devices, "traceEvents": whole}))


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    return running(trace.main, capsys)(*arguments)


def told(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    return telling(trace.main, capsys)(*arguments)


# --- a recording of our own ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.name for path in OURS.parent.glob("kineto_*.json.gz")))
def test_our_own_recordings_have_the_counts_of_their_layers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = told(capsys, OURS.parent / name)
    per_step = {"forward_flop": FORWARD, "backward_flop": BACKWARD, "recompute_flop": NET["grouped"]}
    assert answer["steps"] == 2
    assert answer["totals"]["repaired"] == {phase: 2 * flop for phase, flop in per_step.items()}
    assert answer["kernels"]["read"] == answer["kernels"]["attributed"] + answer["kernels"]["unattributed"] > 0
    assert answer["unexplained_time_ratio"] == 0


def test_out_holds_page_and_tables_and_is_made_again_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "out"
    code, _, err = run(capsys, OURS, "--out", out)
    assert code == 0
    assert err.startswith(f"written: {out / 'trace.html'}, {out / 'kernels.csv.gz'}")
    for name, record in {"kernels": Kernel, "operation_instances": OperationInstance}.items():
        assert read_table(out / f"{name}.csv.gz", record)
    assert (out / "cleaning_log.csv").read_text().startswith(",".join(header(CleaningLog)))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert run(capsys, OURS, "--out", out)[0] == 0
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_it_works_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    words = [sys.executable, "-W", "error", "-c", BLOCKED, str(OURS), "--out", str(tmp_path / "out")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (0, 1), done.stderr
    assert "51.400 k" in done.stdout


def test_a_device_that_is_named_comes_before_the_recorded_one(tmp_path: Path, capsys: Any) -> None:
    """A product of 2 · 1000³ in fp16 in 100 µs: 20 TFLOP/s; in 4 µs 500, more than a V100 can."""
    traced(tmp_path / "slow.json", 100)
    code, out, _ = run(capsys, tmp_path / "slow.json", "--device", "Tesla V100-SXM2-16GB")
    assert (code, "fp16: 20.0 TFLOP/s in its products, 16 % of 125 TFLOP/s" in out) == (0, True)
    traced(tmp_path / "fast.json", 4)
    assert run(capsys, tmp_path / "fast.json")[0] == 0  # of 989 TFLOP/s
    code, _, err = run(capsys, tmp_path / "fast.json", "--device", "Tesla V100-SXM2-16GB")
    assert (code, err.partition(" in ")[0]) == (1, "error: fp16: 500 TFLOP/s")


# --- what cannot be read ---------------------------------------------------------------------------------------------


def events(*categories: str) -> list[dict[str, Any]]:
    """One event of each category, and a step of the profiler."""
    args = {
        "kernel": {"correlation": 1, "stream": 7, "device": 0},
        "cuda_runtime": {"correlation": 1},
        "cpu_op": {"Input Dims": [[2, 3], [3, 4]], "Input type": ["float", "float"]},
    }
    names = {"kernel": "sgemm", "cuda_runtime": "cudaLaunchKernel", "cpu_op": "aten::mm", "gpu_memcpy": "Memcpy HtoD"}
    return [
        {"ph": "X", "cat": each, "name": names.get(each, each), "pid": 1, "tid": 1, "ts": 10 + n, "dur": 50 - 2 * n}
        | {"args": args.get(each, {})}
        for n, each in enumerate(categories)
    ]


def of(*categories: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(json.dumps({"traceEvents": events(*categories)}))


def cut(share: float, unpack: bool = False) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        content = OURS.read_bytes()
        content = gzip.decompress(content) if unpack else content
        path.write_bytes(content[: int(len(content) * share)])

    return write


def database(path: Path) -> None:
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    base.close()


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut.json.gz": (cut(0.5), "cut or damaged"),
    "barely_cut.json.gz": (cut(0.999), "cut or damaged"),
    "middle.json": (cut(0.5, unpack=True), "ends in the middle"),
    "barely.json": (cut(0.999, unpack=True), "ends in the middle"),
    "empty.json": (lambda path: path.touch(), "empty"),
    "words.txt": (lambda path: path.write_text("no trace\n"), "expected a Kineto trace"),
    "no_events.json": (lambda path: path.write_text("{}"), "traceEvents"),
    "neither.json": (of("python_function"), "neither operator calls nor kernels"),
    "types.json": (
        lambda path: path.write_text('[{"ph": "X", "cat": "cpu_op", "name": 5, "ts": 1, "dur": 2, "args": 3}]'),
        "not as its recorder writes it (expected a name, got 5)",
    ),
    "no_kernels.json": (
        of("cpu_op", "cuda_runtime"),
        "launched, none was recorded; record again with",
    ),
    "copies_only.json": (of("cpu_op", "gpu_memcpy"), "none was recorded; record again with"),
    "no_tables.sqlite": (database, "CUPTI"),
    "columns.csv": (lambda path: path.write_text("Idx,Kernel,FLOPs\n1,sgemm,5\n"), "column"),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("form", ["table", "json"])
def test_what_cannot_be_read_whole_is_refused_in_one_line(
    name: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write, says = BAD[name]
    write(tmp_path / name)
    out = tmp_path / "out"
    refused(run(capsys, tmp_path / name, "--format", form, "--out", out), says, name)
    assert not out.exists()


# --- real recordings -------------------------------------------------------------------------------------------------


@real
@pytest.mark.parametrize(
    ("name", "steps"),
    [
        (V100, 6),
        ("r50_v100_nsys2022ddl_seq_pyprofmarkers.sqlite", 1),
        ("r50_v100_nsys2026ddl_opid_sizes_duplaunch.sqlite", 1),
        ("pyprof_prof_r50_v100_raw.csv", 1),
        ("pyprof_parse_r50_v100.dict.gz", 1),
    ],
)
def test_a_step_of_resnet50_on_a_v100_from_every_recorder(
    name: str, steps: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """32 images: 32 × 8.178 GFLOP forward; backward twice that less the first convolution's other gradient."""
    answer = told(capsys, Path(REAL) / name)
    assert answer["steps"] == steps
    repaired = answer["totals"]["repaired"]
    assert repaired["forward_flop"] / steps / 1e9 == pytest.approx(261.708, abs=0.0005)
    assert repaired["backward_flop"] / steps / 1e9 == pytest.approx(515.86, abs=0.005)
    first = 2 * 32 * 64 * 112 * 112 * 3 * 49
    assert repaired["backward_flop"] == 2 * repaired["forward_flop"] - steps * first
    raw = answer["totals"]["raw"]
    assert raw["forward_flop"] / repaired["forward_flop"] == pytest.approx(0.557, abs=0.001)
    assert raw["backward_flop"] / repaired["backward_flop"] == pytest.approx(0.79, abs=0.005)
    changed = sum(fault["flop"] for fault in answer["faults"])
    assert sum(f or 0 for f in raw.values()) + changed == sum(f or 0 for f in repaired.values())
    assert answer["kernels"] == {"read": 1462 * steps, "attributed": 1462 * steps, "unattributed": 0}


@real
def test_a_step_with_checkpointing_on_an_mi300x(capsys: pytest.CaptureFixture[str]) -> None:
    """All three steps; the known answers are of the convolutions, the linear layer's products come beside them."""
    answer = told(capsys, Path(REAL) / MI300)
    linear = 3 * 2 * 10 * 512 * 1000
    repaired = answer["totals"]["repaired"]
    assert (repaired["forward_flop"] - linear) / 1e9 == pytest.approx(108.814, abs=0.0005)
    assert repaired["recompute_flop"] / 1e9 == pytest.approx(101.733, abs=0.0005)
    assert (repaired["backward_flop"] - 2 * linear) / 1e9 == pytest.approx(210.55, abs=0.005)
    assert answer["kernels"] == {"read": 2995, "attributed": 2238, "unattributed": 757}


@real
@pytest.mark.parametrize(
    "name",
    sorted(path.name for path in Path(REAL).iterdir() if path.suffix != ".csv" and "counters" not in path.name)
    if REAL
    else [],
)
def test_every_recording_balances_or_says_what_it_cannot_explain(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    answer = told(capsys, Path(REAL) / name)
    kernels = answer["kernels"]
    assert kernels["read"] == kernels["attributed"] + kernels["unattributed"]
    ratio = answer["unexplained_time_ratio"]
    assert ratio is None or 0 <= ratio <= 1
    if all(flop is None for flop in answer["totals"]["repaired"].values()):
        assert ratio != 0


def test_mistakes_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(run(capsys, OURS, "--device", "V100"), "V100")
    refused(run(capsys, OURS, "--html", tmp_path), "--html: expected a file, got the directory")
    (tmp_path / "file").touch()
    refused(run(capsys, OURS, "--out", tmp_path / "file"), "expected a directory")


def test_a_file_that_cannot_be_written_is_told_after_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out" / "operation_instances.csv.gz").mkdir(parents=True)
    code, out, err = run(capsys, OURS, "--out", tmp_path / "out")
    assert (code, "51.400 k" in out) == (3, True)
    assert "operation_instances.csv.gz could not be written" in err


def test_a_missing_file_names_the_nearest_and_a_directory_what_it_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "trace.json.gz").touch()
    refused(run(capsys, tmp_path / "trace.jsn.gz"), f"nearest {tmp_path / 'trace.json.gz'}")
    refused(run(capsys, tmp_path / "nowhere" / "x.json"), "does not exist")
    refused(run(capsys, tmp_path), "the file is empty")  # of a directory, each file is a rank's
