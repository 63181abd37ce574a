"""Costs of many models, counted on fake tensors and kept in a folder, one file a model, image size and mode.

A count that was interrupted goes on with the models that have no file. A file names the rules that it was counted by
(`counting_rules`): by other rules it is not believed, and counted again. torch and timm are imported in the workers.
"""

from __future__ import annotations

import json
import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.reach import IN_PARTS, BatchCost, StepCost, step_cost
from results import Inconsistent, Unavailable, collector_off, one_line
from results.records import StepOperation
from runners.atlas.counting_rules import rules_digest

if TYPE_CHECKING:
    from runners.footprint.step import StepOptions

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
    """Which step: a model in the words of `--models`, square images of this size, "train" or "infer".

    sequence_length: tokens of a text, in place of images. precision: of the trace. timed: the phases of a training
    step that were timed; empty: all of them, with SGD.
    """

    model: str
    image_size: int | None
    mode: str
    sequence_length: int | None = None
    precision: str = TRACED
    timed: tuple[str, ...] = ()

    @property
    def file(self) -> str:
        """Its file's name."""
        words = [self.model.replace(":", "-"), str(self.image_size or f"seq{self.sequence_length}"), self.mode]
        words += [self.precision] * (self.precision != TRACED)
        return f"{'-'.join([*words, *self.timed])}.npz"

    @property
    def hyper(self) -> dict[str, Any]:
        """The sizes that its workload takes."""
        sizes = {"image_size": self.image_size, "seq": self.sequence_length}
        return {name: size for name, size in sizes.items() if size is not None}


Operations = tuple[StepOperation, ...]


@dataclass(frozen=True, eq=False)
class ModelCost:
    """What one step costs at any batch. parameters: trained numbers. reason: why there is no cost. operations: of the
    step at both batches, of a new count.
    is_bounded: False where the step has attention that the trace has in parts (`analysis.reach.IN_PARTS`)."""

    parameters: int | None = None
    cost: BatchCost | None = None
    reason: str = ""
    operations: tuple[Operations, Operations] | tuple[()] = ()
    is_bounded: bool = True


def count_all(keys: Iterable[CostKey], folder: Path, processes: int) -> Iterator[tuple[int, int]]:
    """Counts what the folder does not have; yields (counted, to count) after each."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [key for key in dict.fromkeys(keys) if read_cost(key, folder) is None]
    yield from in_processes(_count, missing, folder, processes)


def in_processes(
    task: Callable[[CostKey, Path], None], keys: Sequence[CostKey], folder: Path, processes: int
) -> Iterator[tuple[int, int]]:
    """Does a task for each key in processes of their own, with 0 in this one; yields (done, all) after each."""
    if not processes:
        for done, key in enumerate(keys, 1):
            task(key, folder)
            yield done, len(keys)
    if not keys or not processes:
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), initializer=_in_worker) as pool:
        running = [pool.submit(task, key, folder) for key in keys]
        for done, each in enumerate(as_completed(running), 1):
            each.result()
            yield done, len(keys)


def _in_worker() -> None:
    """One thread: the workers are as many as the processors."""
    import torch

    torch.set_num_threads(1)


def read_cost(key: CostKey, folder: Path) -> ModelCost | None:
    """What the folder has of a step; None where it has nothing, a file that is damaged, or a count by other rules."""
    try:
        with (folder / key.file).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            head = json.loads(str(arrays["head"]))
            if head["rules"] != rules_digest():
                return None
            in_parts = "low_operations" in arrays and IN_PARTS.encode() in arrays["low_operations"].tobytes()
            if head["reason"]:
                return ModelCost(head["parameters"], None, head["reason"])
            steps = [
                StepCost(tuple(head["units"]), *(arrays[f"{which}_{name}"] for name in _FIELDS))
                for which in ("low", "high")
            ]
            low, high = head["batches"]
            return ModelCost(head["parameters"], BatchCost(low, steps[0], high, steps[1]), is_bounded=not in_parts)
    except DAMAGED:
        return None


def read_operations(key: CostKey, folder: Path) -> tuple[Operations, Operations] | None:
    """The operations of a step at both batches, with the fields KEPT; None where the folder has no cost of it by
    today's rules."""
    try:
        with (folder / key.file).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if json.loads(str(arrays["head"]))["rules"] != rules_digest():
                return None
            texts = [arrays[f"{which}_operations"].tobytes() for which in ("low", "high")]
    except DAMAGED:
        return None
    low, high = (tuple(_operation(row, values) for row, values in enumerate(json.loads(text))) for text in texts)
    return low, high


def _operation(index: int, values: Sequence[Any]) -> StepOperation:
    return StepOperation(index=index, **dict(zip(KEPT, values, strict=True)))


def _count(key: CostKey, folder: Path) -> None:
    """A worker's task: one model into its file."""
    with warnings.catch_warnings(), collector_off():
        warnings.simplefilter("ignore")  # names that timm has renamed
        found = _cost(key)
    head: dict[str, Any] = {"rules": rules_digest(), "parameters": found.parameters, "reason": found.reason,
                            "units": [], "batches": []}  # fmt: skip
    arrays: dict[str, Any] = {}
    if found.cost is not None:
        head |= {"units": found.cost.low.units, "batches": [found.cost.low_batch, found.cost.high_batch]}
        for which in ("low", "high"):
            arrays |= {f"{which}_{name}": getattr(getattr(found.cost, which), name) for name in _FIELDS}
        for which, rows in zip(("low", "high"), found.operations, strict=True):
            arrays[f"{which}_operations"] = np.frombuffer(_packed(rows), np.uint8)
    part = folder / f"{key.file}.{os.getpid()}.part.npz"
    np.savez_compressed(part, head=np.array(json.dumps(head)), **arrays)
    part.replace(folder / key.file)


def _cost(key: CostKey) -> ModelCost:
    from runners.footprint.step import NONE, StepOptions
    from runners.reach import SMALL
    from runners.workers import get

    parameters = None
    try:
        workload = get(key.model, **key.hyper)
        parameters = _parameters(workload)
        asked = StepOptions(key.model, key.precision, "sgd" if not key.timed else NONE, hyper=key.hyper)
        low, high = (timed_part(operations, key.timed) for operations in _at_small(asked, key.mode))
        return ModelCost(parameters, BatchCost(SMALL[0], step_cost(low), SMALL[1], step_cost(high)), "", (low, high))
    except (ValueError, Unavailable, Inconsistent) as fault:
        return ModelCost(parameters, None, one_line(str(fault), 200))
    except Exception as fault:  # noqa: BLE001  the edge: a model's own code may raise anything
        return ModelCost(parameters, None, one_line(f"{type(fault).__name__}: {fault}", 200))


def _at_small(asked: StepOptions, mode: str) -> list[Operations]:
    """The operations at both batches, of one model. Where they differ, of a model each: the first step of some
    (convit's relative positions) makes what later ones use again."""
    from runners.reach import SMALL, operations_at, operations_at_each

    low, high = operations_at_each(asked, SMALL, mode)
    if [each.name for each in low] == [each.name for each in high]:
        return [low, high]
    return [operations_at(asked, batch_size, mode) for batch_size in SMALL]


def timed_part(operations: Operations, phases: Sequence[str]) -> Operations:
    """The operations of these phases (empty: all), whose bound is a least time of theirs alone.

    A group of ideal fusion that other phases have a part in moves 0 bytes here: how many are its own is not known, and
    fewer are no fault of a least time.
    """
    if not phases:
        return operations
    parted = {_group(each) for each in operations if each.phase not in phases}
    leaders: dict[int, int] = {}
    found = []
    for each in operations:
        if each.phase in phases:
            leader = leaders.setdefault(_group(each), each.index)
            own = replace(each, group=leader, fused_bytes=0) if _group(each) in parted else each
            found.append(own)
    return tuple(found)


def _group(operation: StepOperation) -> int:
    return operation.index if operation.group is None else operation.group


KEPT = (
    "name", "kind", "phase", "unit", "dtype", "group", "fused_bytes", "model_flop", "other_flop", "read_bytes",
    "written_bytes", "input_shapes", "output_shapes",
)  # fmt: skip
"""Fields of an operation that are kept."""


def _packed(operations: Operations) -> bytes:
    """The operations as JSON, one list of KEPT each."""
    return json.dumps([[getattr(each, name) for name in KEPT] for each in operations], separators=(",", ":")).encode()


def _parameters(workload: object) -> int:
    import torch

    with torch.device("meta"):
        model = workload.build(**workload.hyper)  # type: ignore[attr-defined]
    return sum(parameter.numel() for parameter in model.parameters())
