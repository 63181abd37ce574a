"""Golden answers about data: derived tables of kept runs, recordings, peaks, steps elsewhere, published numbers.

Each comes out of a command that is run in this process. What a command gives beyond the columns and rows of a CSV is
not compared: a new column or another row is no difference.
"""

import contextlib
import csv
import functools
import gzip
import io
import json
import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest

import flopledger
from tests.golden import FOLDER, Answer, Row, Value, Wanted, printed, read

ROOT = FOLDER.parents[1]
PUBLISHED = ROOT / "results" / "published"
RUN = PUBLISHED / "amd-epyc-2-cores-2026-11-28-third"
FATHOM = PUBLISHED / "fathom-2026-11-22"
RECORDED = ROOT / "tests" / "data"
ELSEWHERE = "FLOPLEDGER_TRACES"

# --- commands --------------------------------------------------------------------------------------------------------


def document(command: str, *arguments: object) -> Any:
    """The JSON document of a command; {} where it refuses."""
    return json.loads(printed(command, *arguments, "--format", "json")[1] or "{}")


def flat(nested: Mapping[str, Any], prefix: str = "") -> Row:
    """Nested objects in one level, keys joined by points; lists are left out."""
    row: Row = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            row |= flat(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            row[f"{prefix}{key}"] = value
    return row


def picked(row: Mapping[str, Any], columns: Iterable[str]) -> Row:
    return {column: row.get(column) for column in columns}


# --- samples of the tables that a command writes ---------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Each `every`th row of a file, in the order of their cases. keys: the columns that name a case together."""

    file: str
    keys: Sequence[str]
    columns: Sequence[str]
    every: int = 1

    def rows(self, name: str, table: Iterable[Mapping[str, str]]) -> list[Row]:
        """The rows of the cases that the CSV of this name holds; where there is none, those of a new sample."""
        by_case = {" ".join(row[key] for key in self.keys if row[key]): row for row in table}
        is_stored = (FOLDER / f"{name}.csv").exists()
        cases = [row["case"] for row in read(name)] if is_stored else sorted(by_case)[:: self.every]
        return [
            {"case": case, **{column: number(by_case.get(case, {}).get(column)) for column in self.columns}}
            for case in cases
        ]


def number(text: str | None) -> Value:
    """A field of a CSV as int, float or text; None for an empty one."""
    for kind in (int, float):
        with contextlib.suppress(ValueError, TypeError):
            return kind(text)  # type: ignore[arg-type]
    return text or None


def csv_table(path: Path) -> list[dict[str, str]]:
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def written(files: Collection[str], command: str, *arguments: object) -> dict[str, list[dict[str, str]]]:
    """File → rows, of the files that a command writes with --out. Figures are refused, which take most of its time and
    come after the tables."""
    no_figures = mock.patch("matplotlib.figure.Figure.__init__", side_effect=ValueError("no figures"))
    with tempfile.TemporaryDirectory() as folder, no_figures:
        with contextlib.suppress(ValueError):
            printed(command, *arguments, "--out", folder)
        return {file: csv_table(Path(folder, file)) for file in files}


def answer_from(rows: Callable[[], Mapping[str, list[Row]]], name: str) -> Answer:
    """The rows of this name, of all that are computed at once."""
    return lambda wanted: [row for row in rows()[name] if wanted(str(row["case"]))]


# --- derived tables of a run -----------------------------------------------------------------------------------------

RATIO = ("utilization_ratio", "utilization_low_ratio", "utilization_high_ratio")
STEP = ("model_flop", "time_s", "time_low_s", "time_high_s", "achieved_flop_per_s", "peak_flop_per_s", *RATIO)
DIVIDED = ("method", "numerator_source", "denominator")

DERIVED = {
    "tables_utilization": Sample(
        "utilization.csv",
        ("cell", *DIVIDED),
        ("all_flop", *STEP, "windows_low_ratio", "windows_high_ratio", "items_per_s", "attention"),
        17,
    ),
    "tables_post2021": Sample("utilization_post2021.csv", ("cell", *DIVIDED), (*STEP, "items_per_s"), 13),
    "tables_headline": Sample(
        "headline.csv",
        ("cell",),
        (
            *("step_time_s", "items_per_s", "model_flop", "denominator"),
            *("achieved_flop_per_s", "peak_flop_per_s", *RATIO, "repeats"),
        ),
        5,
    ),
    "tables_step_times": Sample(
        "step_times.csv",
        ("cell", "phase", "clock"),
        ("mean_s", "median_s", "p5_s", "p95_s", "low_s", "high_s", "blocks", "effective_blocks", "steps", "outliers"),
        17,
    ),
    "tables_counts": Sample(
        "cleaned/flop_counts.csv",
        ("cell", "counter", "batch_size", "phase", "scope", "operator"),
        ("native_value", "native_unit", "flop", "extrapolated", "parameters"),
        97,
    ),
    "tables_agreement": Sample(
        "cleaned/agreement.csv",
        ("cell", "counter", "phase"),
        ("native_value", "native_unit", "total_flop", "model_flop", "exact_flop", "difference_flop", "ratio"),
        7,
    ),
    "tables_batch_laws": Sample(
        "cleaned/batch_law.csv",
        ("cell", "counter", "phase", "scope", "operator"),
        ("slope_flop", "constant_flop", "holds"),
        41,
    ),
    "tables_ratios": Sample(
        "cleaned/ratios.csv",
        ("cell", "source", "state", "level", "name"),
        ("forward_flop", "backward_flop", "ratio", "exact_ratio"),
        97,
    ),
}

SUMS = {
    "utilization.csv": (DIVIDED, "model_flop"),
    "utilization_post2021.csv": (DIVIDED, "model_flop"),
    "step_times.csv": (("phase", "clock"), "steps"),
    "cleaned/flop_counts.csv": (("counter", "phase"), "flop"),
    "cleaned/agreement.csv": (("counter", "phase"), "difference_flop"),
    "cleaned/batch_law.csv": (("counter", "holds"), "slope_flop"),
    "cleaned/ratios.csv": (("level",), "backward_flop"),
    "cleaned/cleaning_log.csv": (("step", "field"), "before"),
}
"""File → what its rows are grouped by, and the whole numbers that are added up in a group."""


@functools.cache
def derived() -> dict[str, list[Row]]:
    """Samples of the tables that `report` derives from the raw rows of the kept run, of rows that have a value."""
    tables = written({sample.file for sample in DERIVED.values()} | set(SUMS), "report", RUN)
    cells = {row["cell_id"]: cell_name(row) for row in tables["utilization.csv"]}
    tables = {
        file: [row | {"cell": cells[row["cell_id"]]} for row in rows if row.get("status", "ok") == "ok"]
        for file, rows in tables.items()
    }
    samples = {name: sample.rows(name, tables[sample.file]) for name, sample in DERIVED.items()}
    return samples | {"tables_sums": list(sums(tables))}


def cell_name(row: Mapping[str, str]) -> str:
    layout = "channels_last" if "channels_last" in row["variant"] else "channels_first"
    return f"{row['model']} {row['batch_size']} {row['precision']} {layout} {row['repeat']}"


def sums(tables: Mapping[str, list[dict[str, str]]]) -> Iterable[Row]:
    for file, (keys, column) in SUMS.items():
        groups = defaultdict(list)
        for row in tables[file]:
            groups[" ".join([file, *(row[key] or "-" for key in keys)])].append(int(row[column] or 0))
        for case, values in sorted(groups.items()):
            yield {"case": case, "rows": len(values), "column": column, "sum": sum(values)}


GATES = (
    *("committed", "one_machine", "hardware", "flags", "operations_once", "executed", "backward_forward"),
    *("affine", "conventions", "synchronised", "ceiling_rate", "possible_time"),
    *("at_most_one", "converged", "losses", "alone"),
)
"""Those that guard physics or what was kept; the others guard fields against being falsified."""


def gates(_wanted: Wanted) -> Iterable[Row]:
    verdicts = {row["gate"]: row["verdict"] for row in document("report", RUN, "--check")}
    return [{"case": gate, "verdict": verdicts.get(gate)} for gate in GATES]


def comparison(_wanted: Wanted) -> Iterable[Row]:
    """The run beside itself as it was after half of its cells: which cells are compared, and how many blocks of each.
    Verdicts on times are known to be wrong, and are left out."""
    with tempfile.TemporaryDirectory() as folder:
        other = shutil.copytree(RUN, Path(folder, "run"), ignore=shutil.ignore_patterns("figures"))
        lines = (other / "runs.csv").read_text().splitlines(keepends=True)
        (other / "runs.csv").write_text("".join(lines[: len(lines) // 2]))
        rows = document("report", RUN, other)
    compared = {
        cell_name(row | {"repeat": "all"}): {
            **{f"cells_{side}": len(row[f"cells_{side}"]) for side in "ab"},
            **picked(row, ("blocks_a", "blocks_b")),
        }
        for row in rows
    }
    return [{"case": case, **row} for case, row in sorted(compared.items())]


# --- recordings ------------------------------------------------------------------------------------------------------

REAL = (
    "kineto_v100_resnet50_train_b32_torch19_202106.json.gz",
    "qanthony_h100_transformer_fwd_shapes.json.gz",
    "tracelens_mi300_resnet_train_actckpt.json.gz",
    "tracelens_mi300_torchcompile_triton.json.gz",
    "pyprof_parse_r50_v100.dict.gz",
    "pyprof_prof_r50_v100_raw.csv",
    "pyprof_prof_r50_v100_autotune_firstiter_raw.csv",
    "nsysai_h100_fsdp_emitnvtx_seq_opid_nsys2026.2.sqlite",
    "pipit_a100_saxpy_nsys2022.2.sqlite",
    "r50_v100_nsys2022ddl_seq_pyprofmarkers.sqlite",
    "r50_v100_nsys2026ddl_opid_sizes_duplaunch.sqlite",
)
STATES = ("raw", "deduplicated", "repaired")
SAYS = [f"{what}.{state}.{phase}_flop" for what in ("totals", "at_least") for state in STATES for phase in
        ("forward", "backward", "recompute")]  # fmt: skip
TIMES = ("window_s", "compute_s", "communication_s", "exposed_s", "overlapped_s", "memory_s", "idle_s")


def recording(path: Path) -> Row:
    """What one recording says: its device, FLOP by phase and state, kernels, and what its time is spent on."""
    whole = document("trace", path)
    said = flat(whole)
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, folder)
        (rank, *_) = document("trace", folder, "--times-only").get("ranks") or [{}]
    read_file = flopledger.read_trace(path)
    kernels = {key: value for key, value in said.items() if key.startswith("kernels.")}
    faults = {f"faults.{fault['reason']}": fault["flop"] for fault in whole.get("faults", [])}
    return {
        "case": path.name,
        "source": read_file.source,
        "device_name": read_file.device_name,
        "calls": len(read_file.calls),
        "steps": said.get("steps"),
        **picked(said, SAYS),
        **kernels,
        **faults,
        "unexplained_time_ratio": said.get("unexplained_time_ratio"),
        **busy(read_file.kernels),
        **picked(rank, TIMES),
    }


def busy(kernels: pd.DataFrame) -> Row:
    """Time from the first kernel to the last, and of it the time in which any ran; copies are left out."""
    rows = kernels[kernels["what"] == "kernel"].sort_values("start_ns")
    starts, ends = rows["start_ns"], rows["start_ns"] + rows["time_ns"]
    if rows.empty or starts.min() < 0:
        return {}
    ran = ends - np.maximum(starts, ends.cummax().shift(fill_value=0))
    return {"span_ns": int(ends.max() - starts.min()), "busy_ns": int(ran.clip(lower=0).sum())}


def own_recordings(wanted: Wanted) -> Iterable[Row]:
    return [recording(path) for path in sorted(RECORDED.glob("kineto_torch*.json.gz")) if wanted(path.name)]


def real_recordings(wanted: Wanted) -> Iterable[Row]:
    if ELSEWHERE not in os.environ:
        pytest.skip(f"{ELSEWHERE} is not set")
    return [recording(Path(os.environ[ELSEWHERE], name)) for name in REAL if wanted(name)]


def ranks(_wanted: Wanted) -> Iterable[Row]:
    """The recordings of three ranks together."""
    together = document("trace", RECORDED / "ranks")
    for rank in together["ranks"]:
        yield {"case": f"rank {rank['rank']}", **picked(rank, ("device_name", "steps", "flop", *TIMES))}
    yield {"case": "all", **picked(together, ("world_size", "step_time_s", "flop_per_s", "imbalance_ratio"))}


# --- peaks -----------------------------------------------------------------------------------------------------------

OTHER_NAMES = (
    *("nvidia h100 80gb hbm3", "A100-SXM4-80GB", "NVIDIA H800", "NVIDIA GeForce RTX 4090 Laptop GPU"),
    *("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "Quadro RTX 5000 with Max-Q Design", "NVIDIA GB10", "Orin", "NVIDIA T4G"),
    *("trn2", "AMD Instinct MI308X", "Intel(R) Data Center GPU Max 1550", "NVIDIA GeForce RTX 5090 D", "NVIDIA H100"),
    *("NVIDIA A100", "RTX 3090", "TPU v9", "GeForce"),
)
UNITS = (
    *("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "mxfp8", "fp6", "fp4"),
    *("fp64_tensor", "fp16_fp16acc", "fp16_cuda_core"),
)


def peaks(wanted: Wanted) -> Iterable[Row]:
    """Each name of the table, and names that are spelled otherwise, have no peak or are not known."""
    from analysis.devices import memory
    from analysis.devices.peaks import all_devices

    names = [name for device in all_devices() for name in device.names]
    for name in dict.fromkeys([*names, *OTHER_NAMES]):
        if wanted(name):
            sheet = document("doctor", "--peaks", name)
            known = memory.lookup(name)
            yield {
                "case": name,
                **picked(sheet, ("device", "bandwidth_bytes_per_s")),
                "memory_bytes": known and known.memory_bytes,
                **picked(sheet.get("peaks", {}), UNITS),
                "sparse_bf16": sheet.get("sparse", {}).get("bf16"),
                "refused": " ".join(sorted(sheet.get("refused", {}))),
                **picked(sheet, ("verification", "source")),
                "refusal": refusal(name),
            }


def refusal(name: str) -> str:
    try:
        return flopledger.peak_refusal(name, "fp32") or ""
    except ValueError:
        return "unknown"


# --- steps on devices that nobody here has ---------------------------------------------------------------------------

A100, H100, H200, V100, T4 = (
    *("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "Tesla V100-SXM2-16GB", "Tesla T4"),
)
RTX3090, RTX4090, MI300, L4 = "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090", "AMD Instinct MI300X", "NVIDIA L4"
LAST, INFER, COMPILE = ("--layout", "channels_last"), ("--mode", "infer"), ("--compile",)

STEPS: tuple[tuple[Any, ...], ...] = (
    ("resnet18", A100, "amp-bf16", 32),
    ("resnet18", RTX3090, "amp-fp16", 64),
    ("resnet18", RTX3090, "amp-fp16", 64, *LAST),
    ("resnet18", RTX3090, "amp-fp16", 8, *INFER),
    ("resnet18", RTX4090, "amp-fp16", 256, *INFER, *COMPILE),
    ("resnet18", H100, "fp32", 128),
    ("resnet18", V100, "fp32", 1, *INFER),
    ("resnet18", T4, "amp-fp16", 16),
    ("resnet18", "Tesla K80", "fp32", 16),
    ("resnet18", "Tesla P4", "amp-fp16", 16),
    ("resnet34", A100, "tf32", 64),
    ("resnet50", A100, "amp-bf16", 256, *LAST),
    ("resnet50", H100, "amp-bf16", 256, *LAST),
    ("resnet50", H200, "amp-bf16", 256, *LAST),
    ("resnet50", V100, "amp-fp16", 64),
    ("resnet50", RTX3090, "amp-fp16", 128, *LAST),
    ("resnet50", RTX4090, "amp-fp16", 128),
    ("resnet50", RTX4090, "amp-fp16", 1, *INFER),
    ("resnet50", MI300, "amp-bf16", 64),
    ("resnet50", L4, "amp-fp16", 32, *INFER, *LAST),
    ("resnet101", A100, "amp-fp16", 32),
    ("resnet152", H100, "amp-bf16", 32),
    ("wide_resnet50_2", A100, "amp-bf16", 64),
    ("resnext50_32x4d", RTX3090, "amp-fp16", 64),
    ("densenet121", A100, "amp-fp16", 32),
    ("alexnet", T4, "amp-fp16", 128),
    ("alexnet", H200, "fp32", 512),
    ("vgg11", A100, "tf32", 32),
    ("vgg16", V100, "fp32", 32),
    ("vgg19", RTX3090, "amp-fp16", 64, *INFER),
    ("mobilenet_v2", A100, "amp-bf16", 128, *LAST),
    ("mobilenet_v2", RTX4090, "amp-fp16", 64, *INFER, *COMPILE),
    ("efficientnet_b0", RTX3090, "amp-fp16", 64),
    ("efficientnet_b0", H100, "amp-bf16", 32, *LAST),
    ("squeezenet1_0", T4, "amp-fp16", 32),
    ("vit_b_16", A100, "amp-bf16", 32),
    ("vit_b_16", RTX3090, "amp-fp16", 32, *INFER),
    ("vit_b_16", H100, "amp-bf16", 64, *LAST),
    ("wordlm", A100, "fp32", 8),
    ("synthetic_matmul", H100, "tf32", 64),
)  # fmt: skip
BOUND = (
    *("model_flop", "peak_flop_per_s", "bound_time_s", "attainable_ratio"),
    *("unfused_time_s", "unfused_ratio", "bound_by.arithmetic", "bound_by.memory"),
)
PREDICTED = (
    *("step_time_s", "low_step_time_s", "high_step_time_s", "items_per_s"),
    *("utilization_ratio", "low_utilization_ratio", "high_utilization_ratio", "device_status", "raised_to_bound"),
    "widened_for_small_batch",
)


def case_of(*words: object) -> str:
    return " ".join(map(str, words))


@functools.cache
def reach(asked: tuple[Any, ...]) -> Row:
    return flat(document("reach", *asked))


def steps(columns: Sequence[str]) -> Answer:
    def rows(wanted: Wanted) -> Iterable[Row]:
        for model, device, precision, batch, *more in STEPS:
            case = case_of(model, device, precision, batch, *more)
            if wanted(case):
                asked = (model, "--device", device, "--precision", precision, "--batch-size", batch, *more)
                yield {"case": case, **picked(reach(asked), columns)}

    return rows


# --- Catamount, its paper, projections -------------------------------------------------------------------------------

CATAMOUNT = {
    "wordlm": 64,
    "charlm": 128,
    "nmt": 128,
    "speech": 32,
    **dict.fromkeys(("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"), 32),
}
"""Model → the batch of its published numbers."""


def catamount(wanted: Wanted) -> Iterable[Row]:
    """What Catamount's own tests assert at base sizes, by its rules."""
    for model, batch in CATAMOUNT.items():
        if wanted(model):
            asked = (model, "--rules", "catamount", "--symbols", "batch", "--at", f"batch={batch}")
            values = document("formula", *asked)["values"]
            names = ("parameters", "all_flop", "bytes_accessed", "total_footprint_bytes", "kept_bytes", "io_bytes")
            yield {"case": model, **picked(values, names)}


def paper(_wanted: Wanted) -> Iterable[Row]:
    """Tables 1 to 5 and figures 7 to 12 of the paper: printed, calculated, and what is said of both."""
    for cell in document("project", "--reproduce", "ppopp2019")["cells"]:
        case = f"{cell['table']} | {cell['row']} | {cell['column']}"
        yield {"case": case, **picked(cell, ("paper", "ours", "ours_low", "ours_high", "unit", "verdict"))}


OWN_DOMAIN = """
model = "resnet18"
grows = "width"
sub_batch = 64
sizes = { image = 64, classes = 10 }
learning_curve = { alpha = 15.0, beta_g = [-0.3, -0.32, -0.28] }
model_size = { sigma = 20000.0, beta_p = 0.57 }
error = { target = 0.2, unit = "wrong" }
data = { unit = "image" }
"""
A100_BF16 = ("--device", A100, "--dtype", "bf16")
PROJECTIONS: tuple[tuple[str, ...], ...] = (
    *((domain,) for domain in ("word_lm", "char_lm", "nmt", "speech", "image")),
    ("word_lm", "--rules", "flopledger"),
    ("char_lm", "--rules", "flopledger"),
    ("word_lm", "--target", "3", "--sub-batch", "64"),
    ("word_lm", *A100_BF16),
    ("image", *A100_BF16, "--sub-batch", "256"),
    ("nmt", "--peak-tflops", "100", "--bandwidth-gbs", "1000", "--memory-gib", "1e4", "--compute-ratio", "0.5"),
    ("image", *A100_BF16, "--devices", "64"),
    ("word_lm", *A100_BF16, "--devices", "1024", "--node", "8"),
    ("speech", *A100_BF16, "--utilization", "0.2..0.4"),
    ("own.toml",),
    ("own.toml", *A100_BF16, "--utilization", "0.2..0.4", "--confidence", "0.8"),
    ("--compute", "--gpu-hours", "300", "--device", A100, "--utilization", "0.2..0.4"),
    ("--compute", "--flop", "1e21", "--device", H200, "--utilization", "0.35"),
)
PROJECTED = ("projection.", "laws.", "sub_batches.", "accelerators_for_memory", "answers.")


def projections(wanted: Wanted) -> Iterable[Row]:
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder, "own.toml")
        own.write_text(OWN_DOMAIN)
        for words in PROJECTIONS:
            if wanted(" ".join(words)):
                said = flat(document("project", *(own if word == own.name else word for word in words)))
                values = {key: value for key, value in said.items() if key.startswith(PROJECTED)}
                units = {key for key in values if key.endswith(".unit")}
                yield {"case": " ".join(words), **{key: values[key] for key in values if key not in units}}


# --- Fathom ----------------------------------------------------------------------------------------------------------

CHARACTERIZED = {
    "tables_groups": Sample(
        "groups.csv",
        ("workload", "mode", "group"),
        ("share_ratio", "low_ratio", "high_ratio", "unclassified_ratio", "step_time_s", "profiled_step_time_s"),
    ),
    "tables_linkage": Sample("linkage.csv", ("left", "right"), ("height",)),
    "tables_stationarity": Sample(
        "stationarity.csv",
        ("workload", "mode"),
        ("n", "median_s", "spread_ratio", "spread_low", "spread_high", "trend_ratio", "autocorrelation", "verdict"),
    ),
    "tables_tails": Sample(
        "tails.csv",
        ("workload", "law"),
        ("calls", "median_s", "longest_s", "top_1_ratio", "top_10_ratio", "aic", "distance"),
    ),
    "tables_types": Sample(
        "types.csv", ("workload", "mode", "type"), ("group", "share_ratio", "time_s", "calls", "launches"), 5
    ),
    "tables_group_costs": Sample(
        "group_costs.csv",
        ("workload", "group"),
        ("model_flop", "other_flop", "at_least_flop", "bytes", "at_least_bytes", "flop_per_byte", "flop_per_s"),
    ),
}


@functools.cache
def characterized() -> dict[str, list[Row]]:
    """Samples of what `characterize` derives from the recorded training steps of Fathom's workloads."""
    files = {sample.file for sample in CHARACTERIZED.values()}
    tables = written(files, "characterize", FATHOM, "--reproduce", "fathom")
    return {name: sample.rows(name, tables[sample.file]) for name, sample in CHARACTERIZED.items()}


ANSWERS: dict[str, Answer] = {
    **{name: answer_from(derived, name) for name in (*DERIVED, "tables_sums")},
    "tables_gates": gates,
    "tables_comparison": comparison,
    "tables_recordings": own_recordings,
    "tables_recordings_elsewhere": real_recordings,
    "tables_ranks": ranks,
    "tables_peaks": peaks,
    "tables_bounds": steps(BOUND),
    "tables_predictions": steps(PREDICTED),
    "tables_catamount": catamount,
    "tables_paper": paper,
    "tables_projections": projections,
    **{name: answer_from(characterized, name) for name in CHARACTERIZED},
}
SIMPLE = [case_of(*STEPS[place]) for place in (0, 4, 9, 39)]
PLAIN: dict[str, Collection[str]] = {
    "tables_gates": [],
    "tables_recordings_elsewhere": [REAL[1], REAL[3], REAL[5], REAL[8]],
    "tables_bounds": SIMPLE,
    "tables_predictions": SIMPLE,
    "tables_catamount": ["wordlm"],
}
TOLERANCES = {"tables_predictions": 1e-6}
