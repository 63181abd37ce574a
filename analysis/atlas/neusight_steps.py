"""NeuSight's end-to-end times of transformers (sitar-lab/NeuSight, `scripts/asplos/label`), as published steps.

How they were measured (`neusight/Tracing/trace.py`): the whole model in float32 with TF32 off, transformers' classes
with attention in parts, input tokens that are all the same; CUDA events around the forward pass and around the backward
pass, 25 times, of which each one's mean of the five fastest counts. A training step is the sum of the two: the forward
pass of the loss is between them and not in it, and there is no optimizer. The source prints no parameters: which model
it is, its configuration and class say.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from analysis.atlas.published_step import PublishedStep

SOURCE = "NeuSight"

COMMIT = "6945927d9afcca2b9daf021f8395e53edc5b4eef"

FILE = "end_to_end.csv.xz"

MODELS = {
    ("bert_large", "infer"): ("bert_large_classification", "bert"),
    ("bert_large", "train"): ("bert_large_pretraining", "bert"),
    ("gpt2_large", "infer"): ("gpt2_large", "gpt2"),
    ("gpt2_large", "train"): ("gpt2_large", "gpt2"),
    ("gpt3_xl", "infer"): ("gpt3_xl", "gpt2"),
    ("gpt3_xl", "train"): ("gpt3_xl", "gpt2"),
    ("gpt3_27", "infer"): ("gpt3_27", "gpt2"),
    ("gpt3_27", "train"): ("gpt3_27", "gpt2"),
    ("opt_13", "infer"): ("opt_13", "opt"),
    ("opt_13", "train"): ("opt_13", "opt"),
}
"""(name, mode) → the function of `workloads/text/published_transformers.py`, and the family."""

MODULE = "workloads.text.published_transformers"

MODES = {"inf": "infer", "train": "train"}

BY_CONFIGURATION = "the model is built from the source's configuration: it prints no parameters"

ROUTED = "its tokens go to experts by their values, which are not published, and its authors' own forward pass"

SHARED = "one step of four devices that share it, of which the source does not say what each does"

NO_MODEL = "no configuration of this name is known here"


def is_neusight_steps(path: Path) -> bool:
    """Whether a file is the source's table of whole steps."""
    return path.parent.name == "neusight" and path.name in (FILE, FILE.removesuffix(".xz"))


def read_neusight_steps(path: Path) -> Iterator[PublishedStep]:
    """The rows of the table; one that cannot be used has a status and the reason.

    Raises ValueError for a file of another form.
    """
    raw = path.read_bytes()
    rows = csv.DictReader(io.StringIO((lzma.decompress(raw) if path.suffix == ".xz" else raw).decode()))
    if missing := sorted({"device", "case", "json"} - set(rows.fieldnames or ())):
        raise ValueError(f"{path.name}: expected the columns device, case and json, got none called {missing[0]}")
    for row in rows:
        yield _step(row["device"], row["case"], row["json"])


def _step(device: str, case: str, text: str) -> PublishedStep:
    """case: name, mode, tokens, batch and perhaps an option, as in "gpt2_large-train-1024-4-dp4"."""
    name, mode, tokens, batch, *option = case.split("-")
    counted, family = MODELS.get((name, MODES.get(mode, "")), ("", ""))
    common: dict[str, Any] = {
        "source": SOURCE, "commit": COMMIT, "file": f"scripts/asplos/label/{device}/{case}.json", "row": 1,
        "model": name, "mode": MODES.get(mode, mode), "precision": "fp32", "layout": "", "framework": "torch",
        "compiled": option == ["fusion"], "device": device.replace("_", " "), "family": family,
        "counted_model": f"{MODULE}:{counted}" if counted else "",
    }  # fmt: skip
    try:
        common |= {"batch_size": int(batch), "sequence_length": int(tokens)}
        step_time_s = _milliseconds(json.loads(text)) / 1e3
    except (ValueError, KeyError, TypeError) as fault:
        return PublishedStep(**common, status="invalid", reason=f"{type(fault).__name__}: {fault}")
    if option and option != ["fusion"]:
        return PublishedStep(**common | {"devices": 4}, status="not_counted", reason=f"{SHARED} ({option[0]})")
    common |= {"step_time_s": step_time_s, "items_per_s": int(batch) / step_time_s}
    if not counted:
        return PublishedStep(**common, status="no_model", reason=ROUTED if name.startswith("switch") else NO_MODEL)
    return PublishedStep(**common, reason=BY_CONFIGURATION)


def _milliseconds(times: dict[str, Any]) -> float:
    """The step's time. Raises ValueError for one that cannot be, or that is not the sum of its parts."""
    whole = float(times["e2e_latency"])
    parts = float(times["fw_latency"]) + float(times["bwall_latency"])
    if not 0 < whole < math.inf:
        raise ValueError(f"{whole} for a time above 0")
    if parts and not math.isclose(parts, whole, rel_tol=1e-6):
        raise ValueError(f"forward and backward are {parts:g} ms, the step {whole:g} ms")
    return whole
