"""Writes a recorded profile as a JSON document (`document`) and as a CSV of its kernels (`kernels_csv`).

Both take a `TraceView`, one cleaned recording. A recording whose kernels have FLOP (PyProf's output) has three states
of the counts. "raw" is the FLOP as recorded, "deduplicated" counts each multiply-add once, "repaired" fills gaps from
recorded shapes. Kineto and Nsight Systems record no FLOP; such a recording has one count, from recorded sizes. Totals
are FLOP of the whole recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from analysis.devices.peaks import Device
from cleaning.counts import whole_sum
from cleaning.trace.totals import Outside
from reports.shared.layout import csv_text
from reports.trace.lines import (
    TOTALS,
    completeness,
    names_without_count,
    verdict,
    without_count,
)
from reports.trace.rates import GROUPS, rates, time_ratios, time_shares, utilization
from reports.trace.timeline import TraceView, has_states, kernel_counts, timeline
from results.records import rows as records_rows
from results.records.counts import Kernel, OperationInstance
from results.records.rows import header

STATES = {"raw": "as found", "deduplicated": "each multiply-add once", "repaired": "gaps filled from shapes, too"}
"""State of the counts → its description. The 2021 post made the second state by hand."""

SIDES = {"forward": ("forward", "loss"), "backward": ("backward",)}
"""Side of backward ÷ forward → the phases that it sums."""

LARGEST = 12


def document(trace: TraceView, device: Device | None = None) -> dict[str, Any]:
    """Return the JSON document. Totals are FLOP of the whole recording, `step_flop` is of one step; None: unknown.
    device: the device whose peaks the rates are divided by; None: no rates."""
    cleaned, shown = trace.cleaned, timeline(trace)
    used = utilization(trace, device, shown)
    step: dict[str, Any] | None = None
    if shown is not None and shown.length_ns:
        length = shown.length_ns
        step = {  # the shares in which kernels ran, copies or fills alone, and nothing
            "number": shown.step,
            "time_s": length * 1e-9,
            "kernels_ratio": shown.kernels_ns / length,
            "copies_ratio": (shown.busy_ns - shown.kernels_ns) / length,
            "idle_ratio": 1 - shown.busy_ns / length,
            "other_devices": [{"device": n, "kernels_ratio": ns / length} for n, ns in shown.others.items()],
        }
    speeds = () if device is None else rates(cleaned.instances, cleaned.kernels, device)
    rates_of = time_ratios(speeds, cleaned) if speeds else (None, None)
    return {
        "totals": _by_phase(trace, "flop"),
        "steps": trace.steps,
        "kernels": kernel_counts(cleaned.kernels),
        "faults": [
            {"reason": reason, "operations": operations, "flop": flop} for reason, operations, flop in cleaned.faults
        ],
        "unexplained_time_ratio": cleaned.unexplained_time_ratio,
        "at_least": _by_phase(trace, "at_least"),
        "unknown_calls": _by_phase(trace, "unknown_calls"),
        "unknown_time_ratio": _by_phase(trace, "unknown_time_ratio"),
        "outside_time_ratio": cleaned.outside_time_ratio,
        "outside_phases": {name: _outside(outside) for name, outside in cleaned.outside_phases.items()},
        "totals_are": completeness(trace),
        "numbered": trace.numbered,
        "after_last_s": trace.after_last_s,
        "missing": [{"phase": sign.phase, "calls": sign.calls, "reason": sign.reason} for sign in cleaned.missing],
        "assumed_gradients": cleaned.assumed_gradients,
        "unnamed_time_ratio": cleaned.unnamed.time_ratio,
        "unnamed_kernels": [{"name": name, "time_s": time_s} for name, time_s in cleaned.unnamed.longest],
        **{key: time_shares(cleaned.kernels, columns) for key, columns in GROUPS.items()},
        "device": trace.device_name or None,
        "step": step,
        "step_time_s": step and step["time_s"],
        "busy_ratio": step and 1 - step["idle_ratio"],
        "idle_s": step and step["idle_ratio"] * step["time_s"],
        "step_flop": used.flop,
        "achieved_flop_per_s": used.flop_per_s,
        "peak_flop_per_s": used.peak_flop_per_s,
        "peak_source": None if device is None else f"{device.name}: {device.source}",
        "utilization_ratio": used.ratio,
        "utilization_reason": used.reason,
        "verdict": verdict(trace, device, shown),
        "rates": [
            {
                "unit": rate.unit,
                "flop": rate.flop,
                "time_s": rate.time_s,
                "flop_per_s": rate.flop / rate.time_s,
                "peak_flop_per_s": rate.peak_flop_per_s,
                "peak_ratio": rate.ratio,
                "mark": rate.mark,
            }
            for rate in speeds
        ],
        "rates_time_ratio": rates_of[1],
        "rates_products_time_ratio": rates_of[0],
        "source": trace.source,
        "backward_forward": [*kind_ratios(trace)],
        "largest": [
            {
                "name": same[0].name,
                "module": same[0].module,
                "phase": same[0].phase,
                "input_shapes": same[0].input_shapes,
                "operations": len(same),
                "flop": same[0].expected_flop,
            }
            for same in largest(cleaned.instances, has_states(trace))[:LARGEST]
        ],
        "without_count": names_without_count(trace),
        "problems": list(trace.problems),
    }


def _outside(outside: Outside) -> dict[str, Any]:
    """Return products that are in no phase's total, and what is known of them by state."""
    fields = ("flop", "at_least", "unknown_calls")
    by_state = {name: {state: getattr(outside.totals[state], name) for state in STATES} for name in fields}
    return {"calls": outside.calls, **by_state, "time_s": outside.time_s}


def _by_phase(trace: TraceView, what: str) -> dict[str, dict[str, Any]]:
    """Return state → phase → one field of its total: the shape of the totals."""
    totals = trace.cleaned.phase_totals
    return {
        state: {f"{phase}_flop": getattr(totals[state][f"{phase}_flop"], what) for phase in TOTALS} for state in STATES
    }


def kernels_csv(trace: TraceView) -> str:
    """Return the table of kernels as CSV, made column by column: a recording may hold millions.

    Starts are since the recording's, times are in seconds; unknown is empty.
    """
    kernels, begin_ns = trace.cleaned.kernels, trace.cleaned.kernels["start_ns"]
    starts_s = ((begin_ns - trace.begin_ns) / 1e9).where(begin_ns >= 0)
    frame = kernels.assign(start_s=starts_s, time_s=kernels["time_ns"] / 1e9)
    return csv_text(header(Kernel), zip(*(_known(frame[name]) for name in header(Kernel)), strict=True))


def _known(column: pd.Series[Any]) -> list[Any]:
    """Return the values of a column; -1 (as recordings say unknown) and NaN are None."""
    unknown = column.isna()
    if column.dtype.kind == "i":
        unknown |= column < 0
    return [None if gap else value for gap, value in zip(unknown.tolist(), column.tolist(), strict=True)]


def kind_ratios(trace: TraceView) -> Iterator[dict[str, Any]]:
    """Yield each kind of operation with a backward pass, the largest first: its forward and backward calls, and
    backward ÷ forward FLOP by state. Calls that have no count but may be products have a kind, too."""
    kinds: dict[str, list[OperationInstance]] = {}
    for instance in trace.cleaned.instances:
        if instance.expected_flop or instance.raw_flop or without_count(instance):
            kinds.setdefault(instance.kind or "other", []).append(instance)
    cut = {sign.phase for sign in trace.cleaned.missing} & {"forward", "loss", "backward"}
    for kind, instances in sorted(kinds.items(), key=lambda item: -sum(i.repaired_flop or 0 for i in item[1])):
        forward, backward = ([i for i in instances if i.phase in phases] for phases in SIDES.values())
        row: dict[str, Any] = {"kind": kind, "forward": len(forward), "backward": len(backward)}
        for state in ("raw", "repaired"):
            sums = [whole_sum(getattr(i, f"{state}_flop") for i in side) for side in (forward, backward)]
            known = [flop for flop in sums if flop is not None]
            row[f"{state}_ratio"] = known[1] / known[0] if len(known) == 2 and known[0] and not cut else None
        if backward:
            yield row


def largest(
    instances: Iterable[OperationInstance], states: bool = True, kernel_of: Mapping[int, str] | None = None
) -> list[list[OperationInstance]]:
    """Return groups of operations that are alike in everything but the step, the group with the most FLOP first.
    states: operations whose numbers differ in one of these are not alike. kernel_of: index → longest kernel, if kernels
    are to be alike, too."""
    groups: dict[str, list[OperationInstance]] = {}
    for i in instances:
        numbers = (i.raw_flop if states else None, i.expected_flop, (kernel_of or {}).get(i.index))
        key = (i.name, i.module, i.phase, i.input_shapes, i.concrete_inputs, *numbers)
        groups.setdefault(records_rows.to_text(key), []).append(i)
    raw = {key: sum(i.raw_flop or 0 for i in same) if states else 0 for key, same in groups.items()}
    weight = {key: max(raw[key], sum(i.expected_flop or 0 for i in same)) for key, same in groups.items()}
    return [groups[key] for key in sorted(groups, key=lambda key: -weight[key]) if weight[key]]
