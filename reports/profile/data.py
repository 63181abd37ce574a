"""A profiled step as data: the JSON document of `python -m runners.profile`, and its tables of modules and operations.

Numbers are as exact as they were measured or counted; unknown is null, or an empty field. The times of the operations
and `between_operations_time_s` add up to `step.time_s`.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from analysis.profile.module_tree import OPTIMIZER, ModuleNode, conservation, tree
from analysis.profile.roofline import Against, StepRoof, places, step_roof
from analysis.stats.summary import summarise
from reports.profile.summary import latencies
from reports.shared.layout import csv_of
from results.records.step_profile import StepProfile

PLACED = (
    "intensity", "arithmetic_s", "memory_s", "launch_s", "roof_flop_per_s", "datasheet_roof_flop_per_s",
    "attained_flop_per_s", "attained_ratio", "datasheet_attained_ratio", "bound",
)  # fmt: skip
"""What an operation's row has of its place under the roof."""


def headline(roof: StepRoof) -> tuple[str, Against]:
    """(denominator, ratios) that the step is reported with: of the measured peak, of the datasheet where there is
    none."""
    if roof.ceiling.utilization_ratio is None and roof.datasheet.utilization_ratio is not None:
        return "datasheet", roof.datasheet
    return "ceiling", roof.ceiling


def document(profile: StepProfile) -> dict[str, Any]:
    """The JSON document of one profile."""
    nodes = tree(profile)
    return {
        "step": _step(profile, nodes),
        "modules": [module_row(node) for node in nodes.values()],
        "operations": operation_rows(profile),
        "between_operations_time_s": sum(profile.between_s.values()),
        "between_operations_time_s_by_phase": dict(profile.between_s),
        "machine": None if profile.machine is None else vars(profile.machine),
        "attention": dict(profile.attention) or None,
        "not_understood": dict(profile.not_understood),
        "notes": list(profile.notes),
    }


def module_row(node: ModuleNode) -> dict[str, Any]:
    """One module with all below it: every figure has a key."""
    return {
        "module": node.module,
        "type": node.type,
        "depth": node.depth,
        "settings": node.settings,
        "parameters": node.parameters,
        **_flop(node),
        "other_flop": node.other_flop if node.knows_all else None,
        "moved_bytes": node.moved_bytes,
        "operations": node.operations,
        "kernels": node.kernels,
        **_times(node),
        "waited_s": node.waited_s,
        "flop_per_s": node.flop_per_s,
        "utilization_ratio": node.utilization_ratio,
        "bound": node.bound or None,
        **_partial_totals(node),
        "at_least_time_s": node.time_s,
        "untimed_operations": sum(node.untimed_calls.values()),
    }


def _flop(node: ModuleNode) -> dict[str, int | None]:
    """Model FLOP by pass; None where an operation of the pass has no rule."""
    return {
        "model_flop": None if node.unknowns() else node.model_flop,
        "forward_flop": None if node.unknowns("forward") else node.forward_flop,
        "backward_flop": None if node.unknowns("backward") else node.backward_flop,
        "recompute_flop": None if node.unknowns("recompute") else node.recompute_flop,
    }


def _times(node: ModuleNode) -> dict[str, float | None]:
    """Seconds by pass; None where an operation of the pass has no time."""
    times = {"forward": node.forward_time_s, "backward": node.backward_time_s, OPTIMIZER: node.optimizer_time_s}
    return {f"{side}_time_s": None if node.untimed_calls.get(side) else time_s for side, time_s in times.items()}


def _partial_totals(node: ModuleNode) -> dict[str, float | None]:
    """What is known beside: FLOP of the operations that have a rule, how many have none, their share of the time."""
    return {
        "at_least_flop": node.model_flop,
        "unknown_calls": node.unknowns(),
        "unknown_time_ratio": node.unknown_time_ratio,
    }


def operation_rows(profile: StepProfile) -> list[dict[str, Any]]:
    """One dict an operation: its record and its place under the roof."""
    found = zip(profile.operations, places(profile), strict=True)
    return [
        {
            **vars(operation),
            "understood": operation.understood,
            **{name: getattr(its, name) for name in PLACED},
            "roof_unit": its.unit,
            "bound": its.bound or None,
        }
        for operation, its in found
    ]


def modules_csv(profile: StepProfile) -> str:
    """The modules as CSV, in the order of the model."""
    return csv_of([module_row(node) for node in tree(profile).values()])


def operations_csv(profile: StepProfile) -> str:
    """The operations as CSV, in the order of the step."""
    return csv_of(operation_rows(profile))


def _step(profile: StepProfile, nodes: Mapping[str, ModuleNode]) -> dict[str, Any]:
    root, roof = nodes[""], step_roof(profile)
    denominator, against = headline(roof)
    sums = conservation(profile, nodes)
    passes = latencies(profile, root)
    return {
        "model": profile.model,
        "mode": profile.mode,
        "precision": profile.precision,
        "device": profile.device,
        "world_size": profile.world_size,
        "model_parallel": profile.model_parallel,
        "batch_size": profile.batch_size,
        "time_s": fmean(profile.step_times_s) if profile.step_times_s else None,
        **_spread(profile.step_times_s),
        "step_times_s": list(profile.step_times_s),
        "unprofiled_times_s": list(profile.unprofiled_times_s),
        "forward_latency_s": passes["forward"],
        "backward_latency_s": passes["backward"],
        "optimizer_latency_s": passes["optimizer"],
        "samples_per_s": profile.samples / roof.step_s if profile.samples and roof.step_s else None,
        **_flop(root),
        "recompute_fwd_factor": profile.recompute_fwd_factor,
        "other_flop": root.other_flop if root.knows_all else None,
        "parameters": profile.parameters,
        "utilization_ratio": against.utilization_ratio,
        "utilization_time_s": roof.step_s,
        "attainable_ratio": against.attainable_ratio,
        "unfused_estimate_ratio": against.unfused_estimate_ratio,
        "attainable_raised": against.raised,
        "denominator": denominator if against.utilization_ratio is not None else None,
        "reason": against.reason or None,
        "datasheet_utilization_ratio": roof.datasheet.utilization_ratio,
        "datasheet_attainable_ratio": roof.datasheet.attainable_ratio,
        "time_by_bound_s": {bound or "unknown": time_s for bound, time_s in roof.time_by_bound_s.items()},
        "conserved": sums.holds,
        **_partial_totals(root),
    }


def _spread(times_s: Sequence[float]) -> dict[str, float | None]:
    """Median of the steps, and the 95 % interval of their mean, which takes two."""
    if not times_s:
        return dict.fromkeys(("median_time_s", "low_time_s", "high_time_s"))
    spread = summarise(times_s)
    return {"median_time_s": spread.median, "low_time_s": spread.low, "high_time_s": spread.high}
