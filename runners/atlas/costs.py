"""Costs of many models, counted on fake tensors and kept in a folder, one file a model, image size and mode.

A count that was interrupted goes on with the models that have no file. torch and timm are imported in the workers.
"""

from __future__ import annotations

import json
import os
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from analysis.reach import BatchCost, StepCost
from results import Inconsistent, Unavailable, one_line

TRACED = "amp-bf16"
"""The precision of every trace: amp-fp16 has the same sizes, and the measurements had no scaler."""

DAMAGED = (
    OSError, ValueError, KeyError, TypeError, IndexError, EOFError, RuntimeError, MemoryError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What NumPy, zipfile and JSON raise for a file that is not as it was written; such a model is counted again."""

_FIELDS = ("group_flop", "group_bytes", "operation_flop", "operation_bytes", "recomputed_flop")


@dataclass(frozen=True)
class CostKey:
    """Which step: a model in the words of `--models`, square images of this size, "train" or "infer"."""

    model: str
    image_size: int
    mode: str

    @property
    def file(self) -> str:
        """Its file's name."""
        return f"{self.model.replace(':', '-')}-{self.image_size}-{self.mode}.npz"


@dataclass(frozen=True, eq=False)
class ModelCost:
    """What one step costs at any batch. parameters: trained numbers. reason: why there is no cost."""

    parameters: int | None = None
    cost: BatchCost | None = None
    reason: str = ""


def count_all(keys: Iterable[CostKey], folder: Path, processes: int) -> Iterator[tuple[int, int]]:
    """Counts what the folder does not have; yields (counted, to count) after each."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [key for key in dict.fromkeys(keys) if read_cost(key, folder) is None]
    if not missing:
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        running = [pool.submit(_count, key, folder) for key in missing]
        for done, each in enumerate(as_completed(running), 1):
            each.result()
            yield done, len(missing)


def read_cost(key: CostKey, folder: Path) -> ModelCost | None:
    """What the folder has of a step; None where it has nothing, or a file that is damaged."""
    try:
        with (folder / key.file).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            head = json.loads(str(arrays["head"]))
            if head["reason"]:
                return ModelCost(head["parameters"], None, head["reason"])
            steps = [
                StepCost(tuple(head["units"]), *(arrays[f"{which}_{name}"] for name in _FIELDS))
                for which in ("low", "high")
            ]
            low, high = head["batches"]
            return ModelCost(head["parameters"], BatchCost(low, steps[0], high, steps[1]))
    except DAMAGED:
        return None


def _count(key: CostKey, folder: Path) -> None:
    """A worker's task: one model into its file."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # names that timm has renamed
    found = _cost(key)
    head: dict[str, Any] = {"parameters": found.parameters, "reason": found.reason, "units": [], "batches": []}
    arrays: dict[str, Any] = {}
    if found.cost is not None:
        head |= {"units": found.cost.low.units, "batches": [found.cost.low_batch, found.cost.high_batch]}
        for which in ("low", "high"):
            arrays |= {f"{which}_{name}": getattr(getattr(found.cost, which), name) for name in _FIELDS}
    part = folder / f"{key.file}.{os.getpid()}.part.npz"
    np.savez_compressed(part, head=np.array(json.dumps(head)), **arrays)
    part.replace(folder / key.file)


def _cost(key: CostKey) -> ModelCost:
    from runners.footprint.step import StepOptions
    from runners.reach import batch_cost
    from runners.workers import get

    parameters = None
    try:
        workload = get(key.model, image_size=key.image_size)
        parameters = _parameters(workload)
        asked = StepOptions(key.model, TRACED, hyper={"image_size": key.image_size})
        return ModelCost(parameters, batch_cost(asked, key.mode))
    except (ValueError, Unavailable, Inconsistent) as fault:
        return ModelCost(parameters, None, one_line(str(fault), 200))
    except Exception as fault:  # noqa: BLE001  the edge: a model's own code may raise anything
        return ModelCost(parameters, None, one_line(f"{type(fault).__name__}: {fault}", 200))


def _parameters(workload: object) -> int:
    import torch

    with torch.device("meta"):
        model = workload.build(**workload.hyper)  # type: ignore[attr-defined]
    return sum(parameter.numel() for parameter in model.parameters())
