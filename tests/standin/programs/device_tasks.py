"""What tests ask of a process on a stand-in device (`StandIn.tasks`): a cell, a profiled step, a step's times, the
largest batch.

Each function is a task: JSON in, JSON out. The device's own page says how many kernels it was given, which is the
independent side of the comparisons.
"""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.standin.device.stand_in import State, state_of

if TYPE_CHECKING:
    from workloads.step import TrainingStep


def page() -> State:
    """What this process's device was given until now."""
    return state_of(Path(os.environ["STANDIN_STATE"]))


def launched(call: Callable[[], Any]) -> int:
    """Kernels of one call."""
    before = page().launches
    call()
    return page().launches - before


def cell(parameters: dict[str, Any]) -> tuple[str, str]:
    """Status and reason of a quick cell, measured as a sweep's worker does."""
    from measure.timing.stopping import Protocol
    from results.records.cell import Cell
    from runners.sweep import cell as sweep_cell
    from runners.workers.pool import classify

    asked = Cell(device="cuda", quick=True, methods=("exact",), **parameters)
    try:
        found = sweep_cell.measure(asked, Protocol.for_device("cuda", quick=True))
    except Exception as fault:  # noqa: BLE001 - as in a worker: whatever a cell raises becomes its row
        what = classify(fault)
        return what.status, what.reason
    return found.run.status, found.run.reason


# ---- a small model whose modules can be counted one by one ----


def net() -> Any:
    """Convolution, normalisation, rectifier, and a linear layer."""
    import torch
    from torch import nn

    with torch.device("cuda"):
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))


def batch() -> tuple[Any, Any]:
    """Inputs and labels of `net`."""
    import torch

    return torch.zeros(4, 3, 16, 16, device="cuda"), torch.zeros(4, dtype=torch.long, device="cuda")


def training(kind: str) -> TrainingStep:
    """A training step of `net` after three others, which compile and allocate.

    kind: "eager"; "graphs", the model's forward and backward pass each a CUDA graph; "compiled".
    """
    import torch

    from workloads.catalogue.base import Batch
    from workloads.step import TrainingStep

    model, (images, labels) = net(), batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    made = {
        "eager": lambda: model,
        "graphs": lambda: torch.cuda.make_graphed_callables(model, (images,)),
        "compiled": lambda: torch.compile(model, dynamic=False),
    }[kind]()
    step = TrainingStep(made, torch.nn.functional.cross_entropy, optimizer, [Batch((images,), labels)], "cuda")
    for _ in range(3):
        step()
    return step


def profile() -> dict[str, Any]:
    """A profiled step of `net`, and the kernels that the device was given: by module in a forward pass, and in a step.

    "forward": {module: kernels}; "step": kernels of each step.
    """
    import torch

    from measure.profile.step_profile import profile_step
    from reports.profile import document

    step, value = training("eager"), batch()[0]
    model, forward = step.model, {}
    for name, module in model.named_children():
        held = [value]
        forward[name] = launched(lambda module=module, held=held: held.append(module(held[0])))
        value = held[-1]
    loss = torch.nn.functional.cross_entropy
    images, labels = batch()
    found = profile_step(model, images, target=labels, loss=loss, optimizer=step.optimizer, steps=2)
    return {"step": launched(step), "forward": forward, "profile": document(found)}


def phases(kind: str) -> dict[str, Any]:
    """Kernels of each phase of a step, graphs launched in it, and the phases' blocks as a cell times them."""
    from measure.timing.blocks import measure_phases
    from measure.timing.clocks import clock_for
    from measure.timing.stopping import Protocol

    step = training(kind)
    before = page()
    seen = [("optimizer", before.launches)]  # of zero_grad
    step(lambda phase: seen.append((phase, page().launches)))
    kernels: dict[str, int] = {}
    for (phase, first), (_, last) in itertools.pairwise(seen):
        kernels[phase] = kernels.get(phase, 0) + last - first
    graphs = page().graph_launches - before.graph_launches
    blocks = measure_phases(step, clock_for("cuda"), Protocol.for_device("cuda", quick=True), 0.01)
    return {"kernels": kernels, "graphs": graphs, "blocks": [asdict(block) for block in blocks]}


def timing(rules: dict[str, Any]) -> dict[str, Any]:
    """Blocks of a step, timed as a cell's. rules: fields of its quick protocol that are others.

    "kernels": of a step; "before": kernels of this process until the first block began.
    """
    from measure.timing.blocks import measure_blocks, warm_up
    from measure.timing.clocks import clock_for
    from measure.timing.stopping import Protocol

    step, clock = training("eager"), clock_for("cuda")
    protocol = replace(Protocol.for_device("cuda", quick=True), **rules)
    kernels, warm = launched(step), warm_up(step, clock, protocol)
    before = page().launches
    found = measure_blocks(step, clock, protocol, warm.step_s)
    blocks = [asdict(block) for block in found.blocks]
    said = {"status": found.status, "reason": found.reason, "host_bound": found.host_bound}
    return {"kernels": kernels, "before": before, "blocks": blocks, **said}


# ---- memory ----


def largest_batch(model: str, pixels: int, memory_bytes: int) -> dict[str, int]:
    """The largest batches that are predicted for a memory none of which is left free, and the largest that trains."""
    from runners.workers.traced_step import StepOptions, fitting

    asked = StepOptions(model, "fp32", "sgd", "cuda", hyper={"image_size": pixels, "num_classes": 1000})
    predicted = fitting(asked, memory_bytes, 0.0, "")
    low, high = predicted.largest_batch // 2, 2 * predicted.largest_batch
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if trains(model, pixels, middle) else (low, middle)
    return {"fits": predicted.fits, "at_most": predicted.largest_batch, "trained": low}


def trains(model: str, pixels: int, size: int) -> bool:
    """Whether two steps of a cell of this batch find the memory that they need. Raises what else they raise."""
    import torch

    from results.records.cell import Cell
    from runners.sweep.cell import prepare
    from runners.workers.pool import classify

    asked = Cell(model=model, batch_size=size, device="cuda", image_size=pixels, cudnn_benchmark=False)
    try:
        made = prepare(asked)
        made.step()
        made.step()
        return True
    except RuntimeError as fault:
        if classify(fault).status != "out_of_memory":
            raise
        return False
    finally:
        made = None
        gc.collect()
        torch.cuda.empty_cache()
