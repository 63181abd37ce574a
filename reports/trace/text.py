"""Writes a recorded profile as text, and builds the tables that the text and trace.html share.

`to_text` takes a `TraceView`, one cleaned recording; `totals_table` and other functions return the tables. If the
recording's kernels have FLOP (PyProf's output), three states of the counts are side by side: as found, deduplicated and
repaired. Kineto and Nsight Systems record no FLOP, and have one count. On request, PyProf's FLOP per kernel are shown,
too. Counts are FLOP per step; `document.py` has those of the whole recording. Nothing is printed here.
"""

from __future__ import annotations

from pathlib import Path

from analysis.devices.peaks import Device
from analysis.operators.registry import PRODUCTS
from cleaning.trace.totals import PhaseTotal
from reports.shared.layout import WIDTH, Part, TableColumn, TextTable, page, strong
from reports.shared.numbers import DASH, digits, percent, shortened_name, si, si_time
from reports.trace.document import LARGEST, STATES, kind_ratios, largest
from reports.trace.lines import (
    TOTALS,
    completeness,
    outside_lines,
    partial_lines,
    rate_lines,
    unexplained_lines,
    utilization_line,
)
from reports.trace.rates import GROUPS, rates, time_shares
from reports.trace.timeline import TraceView, has_states, kernel_counts, kernel_label, sentence, timeline
from results.text_files import counted

COUNTED = "counted from recorded sizes"
"""Name of the total of a recording whose kernels have no FLOP."""

OF_THE_RECORDING = ("duplicate_launch", "autotune", "no_kernel", "no_sizes")
"""Reasons that concern the recording itself; the others concern numbers that a recorder's rule gave to kernels."""

SOURCES = {
    "kineto": "Kineto (torch.profiler)",
    "nsys": "Nsight Systems",
    "pyprof": "PyProf",
}
"""Recorder → its name in text, where that differs."""

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

_SHAPES_LETTERS = 34
_NAME_LETTERS = 26


def _total(trace: TraceView, state: str, phase: str) -> PhaseTotal:
    return trace.cleaned.phase_totals[state][f"{phase}_flop"]


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
        "",
    ]
    if (ratios := ratios_table(trace)).rows:
        parts += [ratios, ""]
    if (faults := faults_table(trace)).rows:
        parts += [faults_text(trace), "", faults, ""]
    elif not any(instance.kind in PRODUCTS for instance in trace.cleaned.instances):
        parts += ["No product was found to count.", ""]
    elif has_states(trace):
        parts += ["No fault was found.", ""]
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
    """Return FLOP per step of each state by phase, with backward ÷ forward; "at least" where a call of the phase has no
    count."""
    of = "a step" if trace.steps else "in all"
    again = _total(trace, "repaired", "recompute")
    shown = [phase for phase in TOTALS if phase != "recompute" or again.flop or again.unknown_calls]
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
        cells = []
        for total in totals:
            text = _flop(total.flop, trace.steps)
            if total.flop is None and total.at_least is not None:
                text = f"at least {_flop(total.at_least, trace.steps)}" if total.at_least else "unknown"
            cells.append(text)
        names = [state, meaning] if has_states(trace) else [meaning]
        forward, backward = totals[0].flop, totals[1].flop
        rows.append([*names, *cells, digits(backward / forward, 4) if forward and backward is not None else DASH])
    return TextTable(columns, rows)


def ratios_table(trace: TraceView) -> TextTable:
    """Return backward ÷ forward by kind of operation, as found and as cleaned, beside the rule of thumb of 2 to 1.

    A ratio is unknown if a side has a call without a count, or lacks calls.
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


def faults_text(trace: TraceView) -> str:
    """Return the text above the table of faults."""
    if has_states(trace):
        return "Faults, in the whole recording; FLOP: what cleaning took out (-) or added (+)."
    return "What the recording lacks or has twice, in the whole of it."


def faults_table(trace: TraceView) -> TextTable:
    """Return one line a reason: the number of operations, their FLOP, and an explanation."""
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
    trace: TraceView, most: int = LARGEST, rated: bool = False, device: Device | None = None
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


def time_tables(trace: TraceView, most: int = 8, letters: int = 40) -> dict[str, TextTable]:
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


# --- cells -----------------------------------------------------------------------------------------------------------


def _flop(flop: int | None, steps: int | None, count: int = 5, signed: bool = False) -> str:
    """Write the FLOP of one step with so many digits and a prefix: 1570248000000, 6 → "261.71 G"."""
    if flop is None:
        return DASH
    return f"{'+' if signed and flop > 0 else ''}{si(flop / (steps or 1), '', count)}"
