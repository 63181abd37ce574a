"""Ways to split a training step: as a table a person reads, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.project.parallelism import Cluster, ParallelStep, Plan, Transformer
from reports.project.budget import plan_words
from reports.project.shared import quantity
from reports.shared import wrapped

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


def to_text(told: ParallelismAnswer, form: str, most: int) -> str:
    """The ways in a format: table, csv or json. most: rows of a table."""
    if form == "json":
        return json.dumps(_document(told), indent=2, ensure_ascii=False) + "\n"
    return _csv(told) if form == "csv" else _table(told, most)


def _document(told: ParallelismAnswer) -> dict[str, Any]:
    cluster = told.cluster
    return {
        "question": "parallel",
        "device": told.device,
        "devices": told.devices,
        "batch_sequences": told.batch,
        "shape": {**vars(told.model), "parameters": told.model.parameters},
        "step_flop": told.model.step_flop(told.batch),
        "peak_flop_per_s": cluster.peak_flop_per_s,
        "reachable_ratio": cluster.reachable,
        "memory_bytes": cluster.memory_bytes,
        "node_devices": cluster.node,
        "within": cluster.within.name,
        "between": cluster.between.name,
        "link_ratio": cluster.achieved,
        "plans": [_row(plan, step) for plan, step in told.found],
    }


def _row(plan: Plan, step: ParallelStep) -> dict[str, Any]:
    held = {f"{name}_bytes": getattr(step.held, name) for name in HELD}
    times = {name: getattr(step, name) for name in TIMES}
    ratios = {"model_ratio": step.model_ratio, "hardware_ratio": step.hardware_ratio}
    return {**{name: getattr(plan, name) for name in PLAN}, "step_s": step.step_s, **ratios, **held, **times}


def _csv(told: ParallelismAnswer) -> str:
    out = io.StringIO()
    rows = [_row(plan, step) for plan, step in told.found]
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _table(told: ParallelismAnswer, most: int) -> str:
    model, cluster = told.model, told.cluster
    top = (
        f"{quantity(model.parameters)} parameters ({model.layers} layers × {model.width}, {model.heads} heads, "
        f"sequence {model.sequence}), {told.batch} sequences a step on {told.devices} × {told.device}"
    )
    joined = (
        f"{cluster.node} a node over {cluster.within.name}, nodes over {cluster.between.name}, at {cluster.achieved:g} "
        f"of their rates; {cluster.reachable:g} of the peak in products; {cluster.memory_bytes / 1e9:.1f} GB a device"
    )
    lines = [*wrapped(top), *wrapped(joined), "", _head()]
    lines += [_line(plan, step) for plan, step in told.found[:most]]
    if len(told.found) > most:
        lines.append(f"and {len(told.found) - most} more that fit (--most)")
    lines += ["", *wrapped(_meaning(*told.found[0]))]
    note = (
        "seconds of a step, a floor: no launches, stragglers or input. products: the longer of FLOP and bytes; "
        "exposed: what of the replicas' communication nothing hides, and the update; used: model FLOP, of the peak"
    )
    return "\n".join([*lines, "", *wrapped(note)]) + "\n"


def _head() -> str:
    names = f"{'data':>4} {'tensor':>6} {'stages':>6} {'micro':>5} {'ZeRO':>4} {'again':<9}"
    costs = f"{'GB':>5} {'step s':>7} {'used':>5} {'products':>8} {'tensor':>7} {'send':>7} {'bubble':>7}"
    return f"{names} {costs} {'exposed':>7}"


def _meaning(plan: Plan, step: ParallelStep) -> str:
    """The fastest way in one sentence."""
    seconds, used = quantity(step.step_s), f"{step.model_ratio:.2f}"
    return f"Fastest that fits: {plan_words(plan)}. A step takes {seconds} s or more, at most {used} of the peak."


def _line(plan: Plan, step: ParallelStep) -> str:
    exposed = step.data_exposed_s + step.update_s
    return (
        f"{plan.data:>4} {plan.tensor:>6} {plan.pipeline:>6} {plan.micro:>5} {plan.zero:>4} {plan.recompute:<9} "
        f"{step.held.total / 1e9:>5.1f} {quantity(step.step_s):>7} {step.model_ratio:>5.3f} "
        f"{quantity(step.kernels_s):>8} {quantity(step.tensor_s):>7} {quantity(step.send_s):>7} "
        f"{quantity(step.bubble_s):>7} {quantity(exposed):>7}"
    )
