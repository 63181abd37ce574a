"""Writes the lines below the tables of a recorded profile: what has no total and why, and how fast products ran.

`partial_lines`, `rate_lines` and the other functions take a `TraceView` (one cleaned recording) and return text. The
lines name the phases without a total, with the reason, and the share of time that nothing explains. A rate is the FLOP
of the calls that have a count ÷ the time of the kernels of these calls. The lines also have the share of all kernels'
time that the rates cover. Nothing is printed here.
"""

from analysis.devices.peaks import Device
from analysis.operators.registry import PRODUCTS
from cleaning.trace.totals import WITHOUT_COUNT
from reports.shared.numbers import percent, shortened_name, si, si_time
from reports.trace.rates import FAST_ALGORITHM, IMPOSSIBLE, Rate, overall_ratio, rates, time_ratios, utilization
from reports.trace.timeline import Timeline, TraceView, kernel_counts
from results.records.counts import OperationInstance
from results.text_files import counted

_KERNEL_LETTERS = 70
_LEAST_UNNAMED = 0.001
"""Kernels with uninformative names are listed in the text if their share of time is at least this; the document lists
all."""

TOTALS = ("forward", "backward", "recompute")
"""Phases that have a total."""

OUTSIDE = {"optimizer": "in the optimizer", "none": "in no phase"}
"""Key of `outside_phases` → where its products ran, in words."""


def completeness(trace: TraceView) -> str:
    """Return what the totals cover, and whether it would be noticed that calls are missing from the recording."""
    if trace.cleaned.missing:
        return "of the calls recorded; some are missing"
    if not trace.numbered:
        return "of the calls recorded; they are not numbered, so that a missing call may not be noticed"
    after = "" if trace.after_last_s is None else f", which ends {si_time(trace.after_last_s)} before the recording"
    return f"of the calls recorded; they are numbered, and none is missing up to the last one{after}"


def partial_lines(trace: TraceView) -> list[str]:
    """Return why phases have no total: calls are missing, or have no count in some state. Each line has the share of
    time of such calls."""
    lines: dict[str, None] = {}
    for sign in trace.cleaned.missing:
        phase = "forward" if sign.phase == "loss" else sign.phase
        where = f"calls are missing {OUTSIDE.get(phase or 'none', phase)}"
        lines[f"{f'{phase} has no total' if phase in TOTALS else where}: {sign.reason}"] = None
    sentences: dict[str, str] = {}
    for state, totals in reversed(list(trace.cleaned.phase_totals.items())):
        for name, total in totals.items():
            if total.unknown_calls:
                calls = "1 call has" if total.unknown_calls == 1 else f"{total.unknown_calls} calls have"
                ratio = total.unknown_time_ratio
                time = "of unknown time" if ratio is None else f"{percent(ratio)} of its time"
                where = "" if state == "repaired" else f" as {state}"
                no_total = f"{name.removesuffix('_flop')} has no total{where}"
                sentences.setdefault(name, f"{no_total}: {calls} no count, {time}")
    assumed = []
    if gradients := trace.cleaned.assumed_gradients:
        unsaid = f"the recording does not say which gradients {counted(gradients, 'backward call')} were asked for"
        assumed = [f"assumed: no layer is frozen, and all that fused kernels compute is needed; {unsaid}"]
    return [*lines, *sentences.values(), *assumed]


def outside_lines(trace: TraceView) -> list[str]:
    """Return a line of products that are in no phase's total: how many, their FLOP, and how long they ran."""
    lines = []
    for name, outside in trace.cleaned.outside_phases.items():
        if outside.calls:
            total, products = outside.totals["repaired"], counted(outside.calls, "product")
            time = "of unknown time" if outside.time_s is None else si_time(outside.time_s)
            lacking = "1 has" if total.unknown_calls == 1 else f"{total.unknown_calls} have"
            at_least = f"at least {si(total.at_least or 0, 'FLOP')} ({lacking} no count)"
            flop = at_least if total.flop is None else si(total.flop, "FLOP")
            lines.append(f"{OUTSIDE[name]}: {products}, {flop}, {time}; in no total")
    return lines


def without_count(instance: OperationInstance) -> bool:
    """Return whether an operation is a product, or an operator that is not known and may be one, and has no count."""
    is_product = instance.kind in PRODUCTS or instance.reason in WITHOUT_COUNT
    return is_product and instance.repaired_flop is None


def unexplained_lines(trace: TraceView) -> list[str]:
    """Return the share of time that nothing explains, the operations without a count, and the longest kernels whose
    names do not tell whether they make products."""
    cleaned = trace.cleaned
    ratio = cleaned.unexplained_time_ratio
    share = "unknown" if ratio is None else f"{percent(ratio)} of the time of kernels that make products by their name"
    lines = [f"unexplained: {share}"]
    if cleaned.outside_time_ratio:
        lines.append(
            f"outside of recorded calls: {percent(cleaned.outside_time_ratio)} of that time; in no phase's total"
        )
    if lost := names_without_count(trace):
        names = list(dict.fromkeys(lost))
        listed = f"{', '.join(names[:3])}{', …' * (len(names) > 3)}"
        lines.append(f"no count from sizes: {counted(len(lost), 'operation')} ({listed})")
    unnamed = cleaned.unnamed
    if unnamed.time_ratio and unnamed.time_ratio >= _LEAST_UNNAMED:
        share = f"{percent(unnamed.time_ratio)} of the time of kernels"
        lines.append(f"names that do not say whether they make products: {share}; the longest:")
        for name, time_s in unnamed.longest:
            lines.append(f"  {shortened_name(name.removeprefix('void '), _KERNEL_LETTERS)} {si_time(time_s)}")
    return lines


def names_without_count(trace: TraceView) -> list[str]:
    """Return the name of each operation that has no count and may be a product."""
    cleaned = trace.cleaned
    return [
        *(i.name for i in cleaned.instances if without_count(i)),
        *(call.name for call in cleaned.unknown_calls if call.instance < 0),
    ]


def verdict(trace: TraceView, device: Device | None, shown: Timeline | None) -> str:
    """Say what a step needs, how long the device worked, how fast its products ran, and the step's utilization."""
    parts = []
    if shown is not None:
        runner = "operators" if shown.calls else "the device"
        of_steps = f" of {trace.steps} steps" if (trace.steps or 0) > 1 else ""
        subject = f"the recording{of_steps}" if shown.step is None else "a step"
        share = percent(shown.busy_ns / shown.length_ns)
        parts.append(f"{subject} takes {si_time(shown.length_ns / 1e9)}, of which {runner} ran for {share}")
    totals = trace.cleaned.phase_totals["repaired"].values()
    flop = sum(total.flop or 0 for total in totals) / (trace.steps or 1)
    if flop and not trace.cleaned.missing and not any(total.unknown_calls for total in totals):
        of_step = "of a step " if trace.steps is not None and (shown is None or shown.step is None) else ""
        parts.append(f"the recorded calls {of_step}need {si(flop, 'FLOP')}")
    if device is not None:
        speeds = rates(trace.cleaned.instances, trace.cleaned.kernels, device)
        if (ratio := overall_ratio(speeds)) is not None:
            parts.append(f"products ran at {percent(ratio)} of the dense peak of {device.name}")
    if (whole := utilization(trace, device, shown).ratio) is not None:
        parts.append(f"with all other time its utilization is {percent(whole)}")
    sentence = "; ".join(parts) or "What was recorded, by time and by FLOP"
    return f"{sentence[0].upper()}{sentence[1:]}."


def utilization_line(trace: TraceView, device: Device | None, shown: Timeline | None) -> str:
    """Return the utilization of the step that is shown, or why there is none."""
    used = utilization(trace, device, shown)
    if used.ratio is None:
        return f"no utilization: {used.reason}"
    needs = f"{si(used.flop or 0, 'FLOP')} of model in {si_time(used.time_s or 0)}"
    of = f"of a peak of {si(used.peak_flop_per_s or 0, 'FLOP/s')}"
    return f"utilization {percent(used.ratio)}: {needs} {of}; as recorded, and a profiler slows the host"


def rate_lines(trace: TraceView, device: Device | None) -> list[str]:
    """Return how fast the products with a count ran, which share of the time they are, and a line for each unit."""
    if device is None:
        return []
    cleaned = trace.cleaned
    speeds = rates(cleaned.instances, cleaned.kernels, device)
    share = overall_ratio(speeds)
    if share is None:
        return [f"no rate: no product has a count, a time of its kernels and a peak of {device.name}"]
    wholes = ("of the time of kernels that make products", "of all kernels' time")
    ratios = zip(time_ratios(speeds, cleaned), wholes, strict=True)
    parts = [f"{percent(ratio)} {whole}" for ratio, whole in ratios if ratio is not None]
    untimed = ", those without a usable duration aside" if (cleaned.kernels["untimed"] > 0).any() else ""
    lost = kernel_counts(cleaned.kernels)["unattributed"]
    return [
        f"{percent(share)} of the dense peak in the calls that are counted ({device.name}: {device.source})",
        f"it covers {', '.join(parts)}{untimed}; it says nothing about the rest",
        *(_rate_line(rate, lost) for rate in speeds),
    ]


def impossible(trace: TraceView, device: Device | None) -> list[str]:
    """Return a line for each tensor unit whose products ran faster than its dense peak.

    No line where some kernels belong to no operation: they may have run part of these products.
    """
    if device is None or kernel_counts(trace.cleaned.kernels)["unattributed"]:
        return []
    speeds = rates(trace.cleaned.instances, trace.cleaned.kernels, device)
    return [_rate_line(rate) for rate in speeds if rate.mark == IMPOSSIBLE]


def _rate_line(rate: Rate, lost: int = 0) -> str:
    """Write the line of one unit. lost: how many kernels belong to no operation."""
    peak = f"{si(rate.peak_flop_per_s, 'FLOP/s')}"
    text = f"{rate.unit}: {si(rate.flop / rate.time_s, 'FLOP/s')} in its products, {percent(rate.ratio)} of {peak}"
    if not rate.mark:
        return text
    above = f"{rate.above} of {len(rate.indices)} operations are above the peak"
    why = "Winograd or FFT need fewer multiplications"
    if rate.mark != FAST_ALGORITHM:
        why = f"some of the {lost} kernels without an operation may be theirs" if lost else "which cannot be"
    return f"{text}; {rate.mark}: {above}, {why}"
