"""Ways to split a training step: as a table a person reads, as CSV and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.project.parallelism import Cluster, ParallelStep, Plan, Transformer
from reports.project.budget import plan_words
from reports.project.shared import quantity
from reports.shared import WIDTH, Column, Part, TextTable, csv_of, page, strong

PLAN = ("data", "tensor", "pipeline", "micro", "zero", "recompute")
TIMES = ("compute_s", "moved_s", "kernels_s", "tensor_s", "send_s", "bubble_s", "data_s", "data_exposed_s", "update_s")
HELD = ("weights", "gradients", "optimizer", "activations", "total")


@dataclass(frozen=True)
class ParallelismAnswer:
    """found: (plan, step), the fastest first; batch: sequences a step."""

    model: Transformer
    devices: int
    batch: int
    device: str
    cluster: Cluster
    found: Sequence[tuple[Plan, ParallelStep]]


def to_text(answer: ParallelismAnswer, form: str, most: int, width: int = WIDTH, colour: bool = False) -> str:
    """The ways in a format: table, csv or json. most: rows of a table. width, colour: of that."""
    if form == "json":
        return json.dumps(_document(answer), indent=2, ensure_ascii=False) + "\n"
    return _csv(answer) if form == "csv" else page(_parts(answer, most), width, colour)


def _document(answer: ParallelismAnswer) -> dict[str, Any]:
    cluster = answer.cluster
    return {
        "question": "parallel",
        "device": answer.device,
        "devices": answer.devices,
        "batch_sequences": answer.batch,
        "shape": {**vars(answer.model), "parameters": answer.model.parameters},
        "step_flop": answer.model.step_flop(answer.batch),
        "peak_flop_per_s": cluster.peak_flop_per_s,
        "reachable_ratio": cluster.reachable,
        "memory_bytes": cluster.memory_bytes,
        "node_devices": cluster.node,
        "within": cluster.within.name,
        "between": cluster.between.name,
        "link_ratio": cluster.achieved,
        "plans": [_row(plan, step) for plan, step in answer.found],
    }


def _row(plan: Plan, step: ParallelStep) -> dict[str, Any]:
    held = {f"{name}_bytes": getattr(step.held, name) for name in HELD}
    times = {name: getattr(step, name) for name in TIMES}
    ratios = {"model_ratio": step.model_ratio, "hardware_ratio": step.hardware_ratio}
    return {**{name: getattr(plan, name) for name in PLAN}, "step_s": step.step_s, **ratios, **held, **times}


def _csv(answer: ParallelismAnswer) -> str:
    return csv_of([_row(plan, step) for plan, step in answer.found])


def _parts(answer: ParallelismAnswer, most: int) -> list[Part]:
    model, cluster = answer.model, answer.cluster
    top = (
        f"{quantity(model.parameters)} parameters ({model.layers} layers × {model.width}, {model.heads} heads, "
        f"sequence {model.sequence}), {answer.batch} sequences a step on {answer.devices} × {answer.device}"
    )
    joined = (
        f"{cluster.node} a node over {cluster.within.name}, nodes over {cluster.between.name}, at {cluster.achieved:g} "
        f"of their rates; {cluster.reachable:g} of the peak in products; {cluster.memory_bytes / 1e9:.1f} GB a device"
    )
    table = TextTable(_COLUMNS, [_line(plan, step) for plan, step in answer.found[:most]], rule=False)
    parts: list[Part] = [strong(top), strong(_meaning(*answer.found[0])), "", joined, "", table]
    if len(answer.found) > most:
        parts.append(f"and {len(answer.found) - most} more that fit (--most)")
    note = (
        "seconds of a step, a floor: no launches, stragglers or input. products: the longer of FLOP and bytes; "
        "exposed: what of the replicas' communication nothing hides, and the update; used: model FLOP, of the peak"
    )
    return [*parts, "", note]


_COLUMNS = tuple(
    Column(name, right=name != "again", rank=rank)
    for name, rank in {
        "data": 0, "tensor": 0, "stages": 0, "micro": 1, "ZeRO": 1, "again": 2, "GB": 0, "step s": 0, "used": 0,
        "products": 3, "tensor s": 4, "send": 5, "bubble": 6, "exposed": 7,
    }.items()
)  # fmt: skip


def _meaning(plan: Plan, step: ParallelStep) -> str:
    """The fastest way in one sentence."""
    seconds, used = quantity(step.step_s), f"{step.model_ratio:.2f}"
    return f"Fastest that fits: {plan_words(plan)}. A step takes {seconds} s or more, at most {used} of the peak."


def _line(plan: Plan, step: ParallelStep) -> list[str]:
    exposed = step.data_exposed_s + step.update_s
    sizes = map(str, (plan.data, plan.tensor, plan.pipeline, plan.micro, plan.zero, plan.recompute))
    costs = [f"{step.held.total / 1e9:.1f}", quantity(step.step_s), f"{step.model_ratio:.3f}"]
    times = map(quantity, (step.kernels_s, step.tensor_s, step.send_s, step.bubble_s, exposed))
    return [*sizes, *costs, *times]
