"""Writes a profiled step as a summary of a dozen lines, as a JSON document, and as tables of modules and operations.

`document`, `module_rows`, `operation_rows` and `summary_lines` take a `StepProfile`. In the document numbers are as
exact as they were measured or counted; unknown is null, or an empty field. The times of the operations and
`between_operations_time_s` add up to `step.time_s`. The latency of a pass is the mean time of its operations and of the
waits between them. Forward, backward and optimizer therefore add up to the step. FLOP are model FLOP, 2 per
multiply-add, counted from shapes. In the summary a dash means unknown.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from analysis.module_tree import OPTIMIZER, SIDES, ModuleNode, tree
from analysis.operators.attention_conventions import BY_RULE
from analysis.roofline import RECOMPUTE, RooflineRatios, StepRoof, roofline_points, step_roof
from analysis.stats.summary import summarise
from reports.shared.numbers import DASH, digits, percent, si, si_time
from results.records.answers import StepProfile

PLACED = (
    "intensity", "arithmetic_s", "memory_s", "launch_s", "roof_flop_per_s", "datasheet_roof_flop_per_s",
    "attained_flop_per_s", "attained_ratio", "datasheet_attained_ratio", "bound",
)  # fmt: skip
"""Fields of an operation's row that come from its position under the roofline."""


TOLERANCE = 1e-6
"""Share of the step's time by which the sum of the parts may differ, since nanoseconds are added up in floating
point."""


def headline(roof: StepRoof) -> tuple[str, RooflineRatios]:
    """Return (denominator, ratios) of the step: relative to the measured peak, or to the datasheet's where there is
    none."""
    if roof.ceiling.utilization_ratio is None and roof.datasheet.utilization_ratio is not None:
        return "datasheet", roof.datasheet
    return "ceiling", roof.ceiling


def verdict(profile: StepProfile) -> str:
    """Return one sentence: the utilization, and what was attainable."""
    _, against = headline(step_roof(profile))
    used = against.utilization_ratio
    if used is None:
        return f"{profile.model}: its utilization is not known here ({against.reason})."
    sentence = f"{profile.model} uses {percent(used)} of what this device can calculate"
    if against.attainable_ratio is None:
        return f"{sentence}."
    if against.raised:
        return f"{sentence}, as much as its memory allows."
    return f"{sentence}; at most {percent(against.attainable_ratio)} is possible for it here."


def document(profile: StepProfile) -> dict[str, Any]:
    """Return the JSON document of one profile."""
    nodes = tree(profile)
    return {
        "step": _step(profile, nodes),
        "modules": module_rows(profile),
        "operations": operation_rows(profile),
        "between_operations_time_s": sum(profile.between_s.values()),
        "between_operations_time_s_by_phase": dict(profile.between_s),
        "machine": None if profile.machine is None else vars(profile.machine),
        "attention": dict(profile.attention) or None,
        "not_understood": dict(profile.not_understood),
        "notes": list(profile.notes),
    }


def _flop(node: ModuleNode) -> dict[str, int | None]:
    """Return model FLOP by pass; None where an operation of the pass has no rule."""
    return {
        "model_flop": None if node.unknowns() else node.model_flop,
        "forward_flop": None if node.unknowns("forward") else node.forward_flop,
        "backward_flop": None if node.unknowns("backward") else node.backward_flop,
        "recompute_flop": None if node.unknowns("recompute") else node.recompute_flop,
    }


def _partial_totals(node: ModuleNode) -> dict[str, float | None]:
    """Return partial totals: FLOP of the operations that have a rule, how many have none, their share of the time."""
    return {
        "at_least_flop": node.model_flop,
        "unknown_calls": node.unknowns(),
        "unknown_time_ratio": node.unknown_time_ratio,
    }


def module_rows(profile: StepProfile) -> list[dict[str, Any]]:
    """Return one dict a module with all below it, in the order of the model: every figure has a key."""
    return [
        {
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
            "forward_time_s": None if node.untimed_calls.get("forward") else node.forward_time_s,
            "backward_time_s": None if node.untimed_calls.get("backward") else node.backward_time_s,
            "optimizer_time_s": None if node.untimed_calls.get(OPTIMIZER) else node.optimizer_time_s,
            "waited_s": node.waited_s,
            "flop_per_s": node.flop_per_s,
            "utilization_ratio": node.utilization_ratio,
            "bound": node.bound or None,
            **_partial_totals(node),
            "at_least_time_s": node.time_s,
            "untimed_operations": sum(node.untimed_calls.values()),
        }
        for node in tree(profile).values()
    ]


def operation_rows(profile: StepProfile) -> list[dict[str, Any]]:
    """Return a dict for each operation: its record and its point under the roofline."""
    return [
        {
            **vars(operation),
            "understood": operation.understood,
            **{name: getattr(roof_point, name) for name in PLACED},
            "roof_unit": roof_point.unit,
            "bound": roof_point.bound or None,
        }
        for operation, roof_point in zip(profile.operations, roofline_points(profile), strict=True)
    ]


def _step(profile: StepProfile, nodes: Mapping[str, ModuleNode]) -> dict[str, Any]:
    root, roof = nodes[""], step_roof(profile)
    denominator, against = headline(roof)
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
        "conserved": all(conservation(profile, root).values()),
        **_partial_totals(root),
    }


def _spread(times_s: Sequence[float]) -> dict[str, float | None]:
    """Return the median of the steps, and the 95 % interval of their mean, which takes two."""
    if not times_s:
        return dict.fromkeys(("median_time_s", "low_time_s", "high_time_s"))
    spread = summarise(times_s)
    return {"median_time_s": spread.median, "low_time_s": spread.low, "high_time_s": spread.high}


# --- the summary -----------------------------------------------------------------------------------------------------


SIDE_NAMES = {"forward": "forward", "backward": "backward", OPTIMIZER: "optimizer step"}

Line = tuple[str, str]
"""(label, value as text)."""


def latencies(profile: StepProfile, root: ModuleNode) -> dict[str, float | None]:
    """Return pass → seconds, waits included; None if no part of it was timed."""
    between: dict[str, float] = dict.fromkeys(SIDE_NAMES, 0.0)
    for phase, waited_s in profile.between_s.items():
        between[SIDES.get(phase, OPTIMIZER)] += waited_s
    taken = {"forward": root.forward_time_s, "backward": root.backward_time_s, OPTIMIZER: root.optimizer_time_s}
    return {side: None if time_s is None else time_s + between[side] for side, time_s in taken.items()}


def summary_lines(profile: StepProfile, root: ModuleNode) -> list[Line]:
    """Return the summary."""
    flop = {"forward": root.forward_flop, "backward": root.backward_flop, OPTIMIZER: root.optimizer_flop}
    return [
        *_size_lines(profile),
        *_flop_lines(root, profile.model_parallel),
        *_attention_lines(profile, root),
        *[
            (
                f"{SIDE_NAMES[side]} latency",
                f"{time(time_s)}{'' if root.unknowns(side) else _rate(flop[side], time_s)}",
            )
            for side, time_s in latencies(profile, root).items()
            if time_s is not None
        ],
        *_recompute_lines(profile, root),
        *_step_lines(profile, root),
        *ratio_lines(step_roof(profile)),
    ]


def conservation(profile: StepProfile, root: ModuleNode) -> dict[str, bool]:
    """Check that parts add up: sums that a reader can check → whether they do. The step's operations are added up anew,
    without the tree."""
    times_s = [operation.time_s for operation in profile.operations if operation.time_s is not None]
    step_flop = sum(o.at_least_flop for o in profile.operations if o.phase != RECOMPUTE)
    parameters = sum(module.own_parameters for module in profile.modules) if profile.modules else profile.parameters
    some, sums = root.at_least(), dict[str, bool]()
    if times_s and profile.step_times_s:
        all_s = sum(times_s), sum(profile.between_s.values()), fmean(profile.step_times_s)
        holds = abs(all_s[0] + all_s[1] - all_s[2]) <= TOLERANCE * all_s[2]
        attributed, between, step = (f"{1e3 * time_s:.3f} ms" for time_s in all_s)
        sums[f"operations {attributed} + between them {between} {'=' if holds else 'is not'} step {step}"] = holds
    holds = root.model_flop == step_flop
    equal = "=" if holds else "is not"
    sums[f"FLOP of the tree {some}{root.model_flop:,} {equal} of the step {some}{step_flop:,}"] = holds
    holds = parameters == profile.parameters
    equal = "=" if holds else "are not"
    sums[f"parameters of the tree {parameters:,} {equal} of the model {profile.parameters:,}"] = holds
    return sums


def _size_lines(profile: StepProfile) -> list[Line]:
    machine = profile.machine.device_name if profile.machine else ""
    batch = DASH if profile.batch_size is None else str(profile.batch_size)
    world, together = profile.world_size, profile.model_parallel
    replicas = f"{world} = {world // together} data parallel × {together} model parallel"
    sizes = [("world size, batch per device", f"{world}, {batch}")]
    return [
        ("model", f"{profile.model}, {profile.mode}, {profile.precision}"),
        ("device", f"{profile.device} ({machine})" if machine else profile.device),
        *([("world size", replicas), ("batch of each model", batch)] if together > 1 else sizes),
        ("parameters", si(profile.parameters, "")),
        *_of_model("parameters", si(profile.parameters * together, ""), together),
    ]


def _of_model(name: str, text: str, together: int) -> list[Line]:
    """Return lines on the whole model, if several devices hold it together."""
    return [(f"{name} of the model (× {together})", text)] if together > 1 else []


def _flop_lines(root: ModuleNode, together: int) -> list[Line]:
    before, more, again = root.at_least("forward"), root.at_least("forward", "backward"), root.at_least("recompute")
    whole = f"{si(root.forward_mac * together, 'MAC')} = {before}{si(root.forward_flop * together, 'FLOP')}"
    back = "" if more else _multiple(root.backward_flop, root.forward_flop)
    twice = "" if again or more else _multiple(root.recompute_flop, root.forward_flop)
    backward = ("backward", f"{root.at_least('backward')}{si(root.backward_flop, 'FLOP')}{back}")
    recomputed = ("calculated again in it", f"{again}{si(root.recompute_flop, 'FLOP')}{twice}")
    return [
        ("forward", f"{before}{si(root.forward_mac, 'MAC')} = {before}{si(root.forward_flop, 'FLOP')}"),
        *_of_model("forward", f"{before}{whole}", together),
        *([backward] if root.backward_flop or root.unknowns("backward") else []),
        *([recomputed] if root.recompute_flop or root.unknowns("recompute") else []),
        ("a step", f"{root.at_least()}{si(root.model_flop, 'FLOP')}"),
        *_of_model("a step", f"{root.at_least()}{si(root.model_flop * together, 'FLOP')}", together),
        ("other arithmetic", f"{'' if root.knows_all else '≥ '}{si(root.other_flop, 'FLOP')}"),
    ]


def _attention_lines(profile: StepProfile, root: ModuleNode) -> list[Line]:
    """Return a step's FLOP by the other conventions of attention, if there are any."""
    counted = profile.attention
    if not counted.get("calls") or not root.model_flop:
        return []
    texts = []
    for name in BY_RULE:
        flop, text = counted.get(name), f"not known ({counted['reasons'].get(name, '')})"
        if flop is not None:
            text = f"{si(flop, 'FLOP')} ({percent(flop / root.model_flop)} of dense)"
        texts.append(f"{name.replace('_', '-')} {text}")
    return [("attention is counted dense", ", ".join(texts))]


def _multiple(part: int, whole: int) -> str:
    return f" = {digits(part / whole)} × forward" if whole else ""


def _recompute_lines(profile: StepProfile, root: ModuleNode) -> list[Line]:
    """Return rates that include recomputation: as recorded, and as the caller states it."""
    factor, back_s = profile.recompute_fwd_factor, latencies(profile, root)["backward"]
    if root.unknowns() or root.unknowns("recompute") or not back_s:
        return []
    again, more = round(factor * root.forward_flop), f"with {factor:g} × forward again"
    ran = [("backward with what ran again", back_s, root.backward_flop + root.recompute_flop)]
    taken = [
        (f"backward {more}", back_s, root.backward_flop + again),
        (f"step {more}", _mean(profile.step_times_s), root.model_flop + again),
    ]
    rates = [*(ran if root.recompute_flop else []), *(taken if factor else [])]
    return [(name, f"{time(time_s)}{_rate(flop, time_s)}") for name, time_s, flop in rates]


def _step_lines(profile: StepProfile, root: ModuleNode) -> list[Line]:
    recorded, unprofiled = profile.step_times_s, profile.unprofiled_times_s
    flop = 0 if root.unknowns() else root.model_flop  # no rate of a part of the work
    lines = [("step latency, profiled", f"{_steps(recorded)}{_rate(flop, _mean(recorded))}")]
    if unprofiled:
        more = fmean(recorded) / fmean(unprofiled) - 1 if recorded else 0.0
        text = f"profiled steps took {percent(abs(more))} {'more' if more >= 0 else 'less'}"
        lines += [("step latency, not profiled", f"{_steps(unprofiled)}{_rate(flop, _mean(unprofiled))}; {text}")]
    if profile.samples and (step_s := _mean(unprofiled or recorded)):
        lines += [("samples a second", digits(profile.samples / step_s))]
    return lines


def ratio_lines(roof: StepRoof) -> list[Line]:
    """Return the utilization and its bounds, relative to measured ceilings and to the datasheet, where known."""
    lines = []
    for label, against in (("the measured peak", roof.ceiling), ("the datasheet", roof.datasheet)):
        if against.utilization_ratio is not None:
            lines.append((f"utilization of {label}", _ratios(against)))
    if not lines:
        lines.append(("utilization", f"{DASH} ({roof.ceiling.reason or roof.datasheet.reason})"))
    if whole_s := sum(roof.time_by_bound_s.values()):
        shares = {name: time_s / whole_s for name, time_s in roof.time_by_bound_s.items()}
        largest = sorted((name for name in shares if shares[name] >= 0.005), key=lambda name: -shares[name])
        shares_of_time = [f"{name or 'unknown'} {percent(shares[name])}" for name in largest]
        lines.append(("time is bound by", ", ".join(shares_of_time)))
    return lines


def _ratios(ratios: RooflineRatios) -> str:
    parts = [digits(ratios.utilization_ratio or 0.0)]
    if ratios.attainable_ratio is not None:
        parts.append(f"at most {digits(ratios.attainable_ratio)} attainable{' (as measured)' if ratios.raised else ''}")
    if ratios.unfused_estimate_ratio is not None:
        parts.append(f"{digits(ratios.unfused_estimate_ratio)} estimated if nothing is fused")
    return "; ".join(parts)


def time(value: float | None) -> str:
    """Write seconds with a unit, or a dash."""
    return DASH if value is None else si_time(value)


def _rate(flop: int, time_s: float | None) -> str:
    return f", {si(flop / time_s, 'FLOP/s')}" if flop and time_s else ""


def _mean(times_s: Sequence[float]) -> float | None:
    return fmean(times_s) if times_s else None


def _steps(times_s: Sequence[float]) -> str:
    """Write the mean of several times, with the median, if there is a middle one, and the range."""
    if not times_s:
        return DASH
    if len(times_s) == 1:
        return f"{si_time(times_s[0])} (1 step)"
    middle = f"median {si_time(median(times_s))}, " if len(times_s) > 2 else ""
    extremes = f"{si_time(min(times_s))} to {si_time(max(times_s))}"
    return f"{si_time(fmean(times_s))} (mean of {len(times_s)}, {middle}{extremes})"
