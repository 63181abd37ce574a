"""What a profiled step comes to in a dozen lines: sizes, FLOP, latencies, rates, and whether the parts are the whole.

Latency of a pass: the mean time of its operations and of what was waited between them, so that forward, backward and
optimizer are the step. FLOP are model FLOP, 2 a multiply-add, counted from shapes; unknown is a dash.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from analysis.roofline import Against, StepRoof, step_roof
from analysis.step_tree import OPTIMIZER, SIDES, Conservation, Node, conservation
from reports.words import digits, percent, si, si_time
from results.step_profile import StepProfile

UNKNOWN = "–"

SIDE_WORDS = {"forward": "forward", "backward": "backward", OPTIMIZER: "optimizer step"}

Line = tuple[str, str]
"""(what it is, its value in words)."""


def latencies(profile: StepProfile, root: Node) -> dict[str, float | None]:
    """Pass → seconds, waits included; None where nothing of it was timed."""
    between: dict[str, float] = dict.fromkeys(SIDE_WORDS, 0.0)
    for phase, waited_s in profile.between_s.items():
        between[SIDES.get(phase, OPTIMIZER)] += waited_s
    taken = {"forward": root.forward_time_s, "backward": root.backward_time_s, OPTIMIZER: root.optimizer_time_s}
    return {side: None if time_s is None else time_s + between[side] for side, time_s in taken.items()}


def summary_lines(
    profile: StepProfile, root: Node, *, recompute_fwd_factor: float = 0.0, model_parallel: int = 1
) -> list[Line]:
    """The summary. recompute_fwd_factor: share of the forward pass that is taken to run again in the backward one, for
    a rate beside the measured one. model_parallel: devices that hold one model between them."""
    return [
        *_size_lines(profile, root, model_parallel),
        *_flop_lines(root, model_parallel),
        *_time_lines(profile, root, recompute_fwd_factor),
        *ratio_lines(step_roof(profile)),
    ]


def conservation_lines(profile: StepProfile, root: Node) -> list[str]:
    """What adds up, as sums that a reader can check."""
    told = conservation(profile, {"": root})
    lines = [_time_sum(told)] if told.attributed_s is not None and told.step_s is not None else []
    same = "=" if told.tree_flop == told.step_flop else "is not"
    lines.append(f"FLOP of the tree {told.tree_flop:,} {same} of the step {told.step_flop:,}")
    same = "=" if told.tree_parameters == told.parameters else "are not"
    lines.append(f"parameters of the tree {told.tree_parameters:,} {same} of the model {told.parameters:,}")
    return lines


def _time_sum(told: Conservation) -> str:
    attributed_s, step_s = told.attributed_s or 0.0, told.step_s or 0.0
    same = "=" if told.times_hold else "is not"
    return (
        f"operations {attributed_s * 1e3:.3f} ms + between them {told.between_s * 1e3:.3f} ms {same} "
        f"step {step_s * 1e3:.3f} ms"
    )


def _size_lines(profile: StepProfile, root: Node, model_parallel: int) -> list[Line]:
    machine = profile.machine.device_name if profile.machine else ""
    device = f"{profile.device} ({machine})" if machine else profile.device
    batch = UNKNOWN if profile.batch_size is None else str(profile.batch_size)
    lines = [("model", f"{profile.model}, {profile.mode}, {profile.precision}"), ("device", device)]
    lines += [("world size, batch per device", f"{profile.world_size}, {batch}")]
    lines += [("parameters", si(profile.parameters, ""))]
    if model_parallel > 1:
        lines += [(f"parameters of the model (× {model_parallel})", si(profile.parameters * model_parallel, ""))]
    return lines


def _flop_lines(root: Node, model_parallel: int) -> list[Line]:
    both = f"{si(root.forward_mac, 'MAC')} = {si(root.forward_flop, 'FLOP')}"
    lines = [("forward", both)]
    if root.backward_flop:
        lines += [("backward", f"{si(root.backward_flop, 'FLOP')}{_times(root.backward_flop, root.forward_flop)}")]
    if root.recompute_flop:
        lines += [("calculated again in it", si(root.recompute_flop, "FLOP"))]
    lines += [("a step", si(root.model_flop, "FLOP"))]
    if model_parallel > 1:
        lines += [(f"a step of the model (× {model_parallel})", si(root.model_flop * model_parallel, "FLOP"))]
    return [*lines, ("other arithmetic", si(root.other_flop, "FLOP"))]


def _times(part: int, whole: int) -> str:
    return f" = {digits(part / whole)} × forward" if whole else ""


def _time_lines(profile: StepProfile, root: Node, factor: float) -> list[Line]:
    found = latencies(profile, root)
    flop = {"forward": root.forward_flop, "backward": root.backward_flop, OPTIMIZER: root.optimizer_flop}
    lines = [
        (f"{SIDE_WORDS[side]} latency", f"{time(time_s)}{_rate(flop[side], time_s)}")
        for side, time_s in found.items()
        if time_s is not None
    ]
    back_s = found["backward"]
    if factor and back_s:
        again = root.backward_flop + round(factor * root.forward_flop)
        lines += [(f"backward with {factor:g} × forward again", f"{time(back_s)}{_rate(again, back_s)}")]
    recorded, alone = profile.step_times_s, profile.unprofiled_times_s
    lines += [("step latency, profiled", f"{_steps(recorded)}{_rate(root.model_flop, _mean(recorded))}")]
    if alone:
        more = fmean(recorded) / fmean(alone) - 1 if recorded else 0.0
        said = f"profiled steps took {percent(abs(more))} {'more' if more >= 0 else 'less'}"
        lines += [("step latency, not profiled", f"{_steps(alone)}{_rate(root.model_flop, _mean(alone))}; {said}")]
    if profile.batch_size and (step_s := _mean(alone or recorded)):
        rate = profile.batch_size * profile.world_size / step_s
        lines += [("samples a second", digits(rate))]
    return lines


def ratio_lines(roof: StepRoof) -> list[Line]:
    """Utilization and what bounds it, against measured ceilings and against the datasheet, where known."""
    lines = []
    for words, against in (("the measured ceiling", roof.ceiling), ("the datasheet", roof.datasheet)):
        if against.utilization_ratio is not None:
            lines.append((f"utilization of {words}", _ratios(against)))
    if not lines:
        lines.append(("utilization", f"{UNKNOWN} ({roof.ceiling.reason or roof.datasheet.reason})"))
    if roof.share_by_bound:
        shares = sorted(roof.share_by_bound.items(), key=lambda item: -item[1])
        told = [f"{name or 'unknown'} {percent(share)}" for name, share in shares if share >= 0.005]
        lines.append(("time is bound by", ", ".join(told)))
    return lines


def _ratios(against: Against) -> str:
    parts = [ratio(against.utilization_ratio)]
    if against.attainable_ratio is not None:
        parts.append(
            f"at most {ratio(against.attainable_ratio)} attainable{' (as measured)' if against.raised else ''}"
        )
    if against.unfused_estimate_ratio is not None:
        parts.append(f"{ratio(against.unfused_estimate_ratio)} estimated if nothing is fused")
    return "; ".join(parts)


def ratio(value: float | None) -> str:
    """0.06123 → "0.0612"."""
    return UNKNOWN if value is None else digits(value)


def time(value: float | None) -> str:
    """Seconds in words, or a dash."""
    return UNKNOWN if value is None else si_time(value)


def _rate(flop: int, time_s: float | None) -> str:
    return f", {si(flop / time_s, 'FLOP/s')}" if flop and time_s else ""


def _mean(times_s: Sequence[float]) -> float | None:
    return fmean(times_s) if times_s else None


def _steps(times_s: Sequence[float]) -> str:
    """Mean, and the range of several."""
    if not times_s:
        return UNKNOWN
    if len(times_s) == 1:
        return f"{si_time(times_s[0])} (1 step)"
    return f"{si_time(fmean(times_s))} (mean of {len(times_s)}, {si_time(min(times_s))} to {si_time(max(times_s))})"
