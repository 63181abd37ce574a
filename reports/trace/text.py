"""What a recorded profile says, as text, as the JSON document of `python -m runners.trace`, and as its tables.

Of a recording that gives its kernels FLOP (PyProf's output) three states of the same counts stand
side by side: raw (as it attributes FLOP to kernels), deduplicated (each multiply-add once: what the 2021 post did by
hand), repaired (gaps filled from recorded shapes). Kineto and Nsight Systems record no FLOP: there is one count, from
recorded sizes, and what PyProf's rule would have given each kernel is shown where it is asked for. In the text counts
are FLOP a step, in the JSON document of the whole recording. Nothing is printed here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices.peaks import Device
from analysis.operators.registry import PRODUCTS
from cleaning.counts import whole_sum
from reports.shared.layout import WIDTH, Part, TableColumn, TextTable, csv_text, page, strong
from reports.shared.numbers import DASH, digits, percent, shortened_name, si, si_time
from reports.trace.lines import (
    completeness,
    names_without_count,
    outside_lines,
    partial_lines,
    rate_lines,
    unexplained_lines,
    utilization_line,
    verdict,
    without_count,
)
from reports.trace.rates import GROUPS, rates, time_ratios, time_shares, utilization
from reports.trace.timeline import TraceView, has_states, kernel_counts, kernel_label, sentence, timeline
from results.records import rows as records_rows
from results.records.counts import Kernel, OperationInstance
from results.records.rows import header
from results.text_files import counted

if TYPE_CHECKING:
    import pandas as pd

    from cleaning.trace.totals import Outside, PhaseTotal

STATES = {"raw": "as found", "deduplicated": "each multiply-add once", "repaired": "gaps filled from shapes, too"}
"""State of the counts → what it is. The second is what the 2021 post did by hand."""

COUNTED = "counted from recorded sizes"
"""What the total of a recording without FLOP of its own is."""

OF_THE_RECORDING = ("duplicate_launch", "autotune", "no_kernel", "no_sizes")
"""Reasons that say something of a recording; the others are of numbers that a rule gave its kernels."""

PHASES = ("forward", "backward", "recompute")

SIDES = {"forward": ("forward", "loss"), "backward": ("backward",)}
"""Side of the ratio → phases that it is the sum of."""

SOURCES = {
    "kineto": "Kineto (torch.profiler)",
    "nsys": "Nsight Systems",
    "pyprof": "PyProf",
}
"""Recorder → its name in text, where that is another."""

REASONS = {
    "duplicate_launch": "the recording has two rows for one launch, so that a join on them has its kernel twice",
    "fft_tiling": "cuDNN's FFT convolution launches a kernel for each tile of 32 × 32; each was counted whole",
    "split_k": "a matrix product in parts ends with a reduction, which was counted as the product",
    "autotune": "cuDNN tried several algorithms before it chose one; each trial was counted",
    "multi_kernel": "several kernels make one product; each was counted as the whole of it",
    "not_product": "a number that is not the product's (of a bias), on a kernel without multiply-adds",
    "renamed_kernel": "PyProf's lists know the kernel by an older name: counted as 0",
    "unlisted_kernel": "a kernel of a product that none of PyProf's lists names: counted as 0",
    "unknown_kernel": "the longest kernel of a product, whose name says nothing: counted as 0",
    "grouped": "one kernel of a grouped convolution was counted as one of its groups",
    "no_marker": "the recorder knows the kernel, but not which operation it belongs to: counted as 0",
    "no_kernel": "no kernel of the operation was recorded, or none found it: counted by sizes alone",
    "wrong_number": "the recording's number is not the one that the sizes give",
    "not_counted": "the recorder gives no number for such a call: counted by sizes",
    "no_sizes": "the recorded sizes give no count, so the number stays as it was found, once",
}
"""Reason of a fault → one sentence."""

_LARGEST = 12
_LONGEST = 8
_KERNEL_LETTERS = 40
_SHAPES_LETTERS = 34
_NAME_LETTERS = 26


# --- data ------------------------------------------------------------------------------------------------------------


def document(trace: TraceView, device: Device | None = None) -> dict[str, Any]:
    """Return the JSON document: FLOP of the whole recording, not of a step; None for unknown. device: as of
    `to_text`."""
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
            for same in largest(cleaned.instances, has_states(trace))[:_LARGEST]
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
        state: {f"{phase}_flop": getattr(totals[state][f"{phase}_flop"], what) for phase in PHASES} for state in STATES
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


def _total(trace: TraceView, state: str, phase: str) -> PhaseTotal:
    return trace.cleaned.phase_totals[state][f"{phase}_flop"]


# --- text ------------------------------------------------------------------------------------------------------------


def to_text(trace: TraceView, device: Device | None = None, width: int = WIDTH, colour: bool = False) -> str:
    """Write everything a person is shown. device: whose peaks the rates are divided by; None: none are known."""
    parts: list[Part] = [strong(line) for line in heading(trace)]
    parts += [
        "",
        totals_table(trace),
        "",
        f"Totals are {completeness(trace)}.",
        *partial_lines(trace),
        *outside_lines(trace),
    ]
    if (ratios := ratios_table(trace)).rows:
        parts += ["", ratios, ""]
    if (faults := faults_table(trace)).rows:
        parts += [faults_text(trace), "", faults, ""]
    elif not any(instance.kind in PRODUCTS for instance in trace.cleaned.instances):
        parts.append("No product was found to count.")
    elif has_states(trace):
        parts.append("No fault was found.")
    if (operations := largest_table(trace)).rows:
        parts += [largest_text(trace), "", operations, ""]
    if (shown := timeline(trace)) is not None:
        parts += [sentence(shown), ""]
    elif (trace.cleaned.kernels["untimed"] > 0).any():
        parts += ["No step has a known time: kernels in it have no usable duration.", ""]
    for table in time_tables(trace).values():
        parts += [table, ""]
    parts += [*unexplained_lines(trace), utilization_line(trace, device, shown)]
    parts += [*rate_lines(trace, device), *trace.problems]
    return page(parts, width, colour)


def heading(trace: TraceView) -> list[str]:
    """Return the heading: what was recorded, on what, how long."""
    counts = kernel_counts(trace.cleaned.kernels)
    kernels = trace.cleaned.kernels
    calls = bool((kernels["what"] == "call").any())
    lasted = int(kernels["time_ns"].sum())
    steps = "no steps marked" if trace.steps is None else counted(trace.steps, "step")
    time = si_time(lasted / 1e9) + ("" if calls else " with copies and fills") if lasted else "times not recorded"
    device = trace.device_name or ("no device" if calls else "device not recorded")
    return [
        f"{Path(trace.path).name}: {SOURCES.get(trace.source, trace.source)}, {device}, {steps}",
        f"{counted(counts['read'], 'operator call' if calls else 'kernel')}, {time}; "
        f"{counts['attributed']} found their operation, {counts['unattributed']} did not",
    ]


def totals_table(trace: TraceView) -> TextTable:
    """Return FLOP a step of each state by phase, with backward ÷ forward; "at least" where a call of it has no
    count."""
    of = "a step" if trace.steps else "in all"
    again = _total(trace, "repaired", "recompute")
    shown = [phase for phase in PHASES if phase != "recompute" or again.flop or again.unknown_calls]
    numbers = (*shown, "backward ÷ forward")
    of += "" if trace.numbered else ", recorded calls"
    columns = [
        TableColumn(f"FLOP {of}"),
        TableColumn("", wraps=True, rank=1),
        *(TableColumn(name, right=True) for name in numbers),
    ]
    rows = []
    states = STATES if has_states(trace) else {"repaired": COUNTED}
    if not has_states(trace):
        columns[1:2] = []
    for state, meaning in states.items():
        totals = [_total(trace, state, phase) for phase in shown]
        cells = (_at_least(total, trace.steps) for total in totals)
        names = [state, meaning] if has_states(trace) else [meaning]
        forward, backward = totals[0].flop, totals[1].flop
        rows.append([*names, *cells, digits(backward / forward, 4) if forward and backward is not None else DASH])
    return TextTable(columns, rows)


def ratios_table(trace: TraceView) -> TextTable:
    """Return backward ÷ forward by kind of operation, as found and as cleaned, beside the rule of thumb of 2 to 1.

    A ratio of which a side has a call without a count, or lacks calls, is unknown.
    """
    heads = {"raw": "found", "repaired": "cleaned"} if has_states(trace) else {"repaired": "counted"}
    numbers = (
        TableColumn("forward", rank=1),
        TableColumn("backward", rank=1),
        *map(TableColumn, (*heads.values(), "rule")),
    )
    rows = []
    for kind in kind_ratios(trace):
        ratios = [DASH if (ratio := kind[f"{state}_ratio"]) is None else digits(ratio, 4) for state in heads]
        rows.append([kind["kind"], str(kind["forward"]), str(kind["backward"]), *ratios, "2"])
    return TextTable([TableColumn("backward ÷ forward"), *numbers], rows)


def kind_ratios(trace: TraceView) -> Iterator[dict[str, Any]]:
    """Yield each kind of operation with a backward pass, the largest first: its forward and backward calls, backward ÷
    forward FLOP by state. Calls that may be products and have no count are of a kind, too."""
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


def faults_text(trace: TraceView) -> str:
    """Return the text above the table of faults."""
    if has_states(trace):
        return "Faults, in the whole recording; FLOP: what cleaning took out (-) or added (+)."
    return "What the recording lacks or has twice, in the whole of it."


def faults_table(trace: TraceView) -> TextTable:
    """Return one line a reason: how many operations, how many FLOP, and what it is."""
    rows = [
        [reason, str(operations), _flop(flop, None, signed=True), REASONS.get(reason, "")]
        for reason, operations, flop in trace.cleaned.faults
    ]
    columns = [
        TableColumn("reason"),
        TableColumn("operations"),
        TableColumn("FLOP", right=True),
        TableColumn("what it is", wraps=True),
    ]
    if has_states(trace):
        return TextTable(columns, rows)
    of_recording = [[*row[:2], row[3]] for row in rows if row[0] in OF_THE_RECORDING]
    return TextTable([*columns[:2], columns[3]], of_recording)


def largest_text(trace: TraceView) -> str:
    """Return the text above the table of the largest operations."""
    if has_states(trace):
        return "The largest operations; found: how often each of its products was counted, 1 is right."
    return "The largest operations, equal ones on one line; FLOP of one."


def largest_table(
    trace: TraceView, most: int = _LARGEST, rated: bool = False, device: Device | None = None
) -> TextTable:
    """Return the operations with the most FLOP, found or true, equal ones on one line with their number.

    rated: equal ones whose longest kernel is the same, with it, its FLOP/s and share of the peak.
    """
    numbers = [TableColumn("times", rank=1), TableColumn("FLOP", right=True)]
    sized = TableColumn("sizes", wraps=True, rank=2, right=False)
    columns = [TableColumn("operation", wraps=True), TableColumn("phase"), sized, *numbers]
    if has_states(trace):
        columns += [TableColumn("found", right=True), TableColumn("reason", rank=3)]
    kernels = trace.cleaned.kernels
    longest = kernels.sort_values("time_ns").drop_duplicates("instance", keep="last") if rated else kernels[:0]
    kernel_of = dict(zip(longest["instance"].tolist(), longest["name"].tolist(), strict=True))
    columns += (
        [TableColumn(name, right=True) for name in ("time", "FLOP/s", "of peak", "longest kernel")] if rated else []
    )
    rows = []
    for alike in largest(trace.cleaned.instances, has_states(trace), kernel_of)[:most]:
        first = alike[0]
        tensors = [shape for shape in first.input_shapes if shape and all(isinstance(size, int) for size in shape)]
        sizes = shortened_name(", ".join("×".join(map(str, shape)) for shape in tensors[:2]), _SHAPES_LETTERS)
        name = shortened_name(first.module or first.name.removeprefix("aten::"), _NAME_LETTERS)
        row = [name, first.phase, sizes, str(len(alike)), _flop(first.expected_flop, None, 3)]
        if has_states(trace):
            is_unknown = not first.expected_flop or first.raw_flop is None
            times = DASH if is_unknown else f"{digits((first.raw_flop or 0) / (first.expected_flop or 1))} ×"
            row += [times, first.reason]
        if rated:
            timed = [i for i in alike if i.repaired_flop and i.kernel_time_s]
            time_s, flop = (sum(getattr(i, name) for i in timed) for name in ("kernel_time_s", "repaired_flop"))
            own = kernels[kernels["instance"].isin([i.index for i in timed])]
            speeds = rates(timed, own, device) if device is not None else ()
            row += [si_time(time_s), si(flop / time_s, "FLOP/s")] if timed else [DASH, DASH]
            row += [percent(speeds[0].ratio) if speeds else DASH, kernel_label(kernel_of.get(first.index) or DASH)]
        rows.append(row)
    return TextTable(columns, rows)


def time_tables(trace: TraceView, most: int = _LONGEST, letters: int = _KERNEL_LETTERS) -> dict[str, TextTable]:
    """Return tables of the time by phase, by module (where the recording has modules) and by kernel, the longest
    first."""
    heads = {"phases_by_time": "phase", "modules_by_time": "longest modules", "kernels_by_time": "longest kernels"}
    if trace.cleaned.kernels["what"].isin(("memcpy", "memset")).any():
        heads["kernels_by_time"] = "longest kernels and copies"
    tables = {}
    for key, head in heads.items():
        rows = time_shares(trace.cleaned.kernels, GROUPS[key])
        if not rows or (key == "modules_by_time" and not any(row["name"] for row in rows)):
            continue
        columns = [TableColumn(head, wraps=True, right=False, least=24), TableColumn("phase")]
        columns += [TableColumn("count"), TableColumn("time", right=True), TableColumn("share", right=True)]
        lines = []
        for row in rows[:most]:
            name = kernel_label(row["name"], letters) if key == "kernels_by_time" else row["name"]
            numbers = (str(row["kernels"]), si_time(row["time_s"]), percent(row["time_ratio"]))
            lines.append([shortened_name(name or DASH, letters), row["phase"] or DASH, *numbers])
        if key == "phases_by_time":
            columns, lines = [columns[0], *columns[2:]], [line[1:] for line in lines]
        tables[key] = TextTable(columns, lines)
    return tables


def largest(
    instances: Iterable[OperationInstance], states: bool = True, kernel_of: Mapping[int, str] | None = None
) -> list[list[OperationInstance]]:
    """Return operations alike in everything but the step, those with the most FLOP together first. states: those that
    were found with other numbers are not alike. kernel_of: index → longest kernel, without which none is asked for."""
    groups: dict[str, list[OperationInstance]] = {}
    for i in instances:
        numbers = (i.raw_flop if states else None, i.expected_flop, (kernel_of or {}).get(i.index))
        key = (i.name, i.module, i.phase, i.input_shapes, i.concrete_inputs, *numbers)
        groups.setdefault(records_rows.to_text(key), []).append(i)
    raw = {key: sum(i.raw_flop or 0 for i in same) if states else 0 for key, same in groups.items()}
    weight = {key: max(raw[key], sum(i.expected_flop or 0 for i in same)) for key, same in groups.items()}
    return [groups[key] for key in sorted(groups, key=lambda key: -weight[key]) if weight[key]]


# --- cells -----------------------------------------------------------------------------------------------------------


def _flop(flop: int | None, steps: int | None, count: int = 5, signed: bool = False) -> str:
    """Write so many digits with a prefix, of one step: 1570248000000, 6 → "261.71 G"."""
    if flop is None:
        return DASH
    return f"{'+' if signed and flop > 0 else ''}{si(flop / (steps or 1), '', count)}"


def _at_least(total: PhaseTotal, steps: int | None) -> str:
    """Return a total; of one that leaves calls out what it is at least."""
    if total.flop is None and total.at_least is not None:
        return f"at least {_flop(total.at_least, steps)}" if total.at_least else "unknown"
    return _flop(total.flop, steps)
