"""Findings that are times: low utilization, what the post's numbers mean, batch and layout and the like, energy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from analysis import kinds
from analysis.comparison import MARGIN_RATIO, difference
from analysis.conditions import conditions
from analysis.fusion import fused
from analysis.numerators import count_table
from analysis.step_times import block_means, whole_steps
from cleaning.evidence import samples_and_telemetry
from reports.findings_data import Published, bandwidth, largest_batch
from reports.findings_words import IN_PART, OPEN, SETTLED, Section, cells, link, named, picture, share, table
from reports.words import digits, percent, si
from results.layout import Key, key_of
from results.records import Operation, Run, Sample, Utilization
from results.rows import to_text
from results.store import read_operations

Blocks = Mapping[Key, Sequence[Sample]]

LOW = ("mobilenet_v2", "efficientnet_b0")
"""The models whose utilization the post could not explain."""

COMPARED = ("batch_size", "layout", "precision", "compile")

PICTURE = "findings_bytes.png"
"""Utilization against FLOP for each byte (`reports/figures_findings.py`)."""


@dataclass(frozen=True)
class Traffic:
    """One cell beside the bytes of its operations. grouped_ratio: share of grouped convolutions in forward FLOP; the
    two intensities: FLOP for each byte with nothing fused, and with ideal fusion; attainable_ratio: over the peak, at
    the published bandwidth, by ideal fusion; None where none is published. products_ratio: of a profiled step's time.
    """

    run: Run
    row: Utilization
    grouped_ratio: float
    unfused_flop_per_byte: float
    fused_flop_per_byte: float
    unfused_bytes_per_s: float
    attainable_ratio: float | None
    products_ratio: float | None


def traffic(run: Published) -> list[Traffic]:
    """Each model of a run at its largest common batch, the lowest utilization first."""
    size = largest_batch(run.measured)
    known = bandwidth(run.path.parent, run.device_name)
    found = []
    for cell in (cell for cell in run.measured if cell.batch_size == size and cell.repeat == 0 and cell.trace_id):
        row = run.headline(cell)
        if row is not None:
            found.append(_traffic(run, cell, row, known[0] if known else None))
    return sorted(found, key=lambda each: each.row.utilization_ratio or 0.0)


def _traffic(run: Published, cell: Run, row: Utilization, bytes_per_s: float | None) -> Traffic:
    table, storages = read_operations(run.path, cell.trace_id)
    counted = count_table(table)
    forward = [(o, int(kinds.cost(o).model_flop)) for o in table if o.phase in ("forward", "loss")]
    grouped = sum(flop for o, flop in forward if int(o.attributes.get("groups") or 1) > 1)
    moved = counted.read_bytes + counted.written_bytes
    groups = fused(table, storages)
    times = {work.cell_id: work.profiled_time_s for work in run.work_times if work.work == "batch"}
    products_s = sum(product.time_s or 0.0 for product in run.products(cell.cell_id, "batch"))
    profiled_s = times.get(cell.cell_id)
    return Traffic(
        run=cell,
        row=row,
        grouped_ratio=grouped / sum(flop for _, flop in forward),
        unfused_flop_per_byte=counted.model_flop / moved,
        fused_flop_per_byte=counted.model_flop / sum(size for _, size in groups),
        unfused_bytes_per_s=moved / (row.time_s or math.inf),
        attainable_ratio=_attainable(table, groups, row.peak_flop_per_s, bytes_per_s),
        products_ratio=products_s / profiled_s if profiled_s and products_s else None,
    )


def _attainable(
    table: Sequence[Operation],
    groups: Sequence[tuple[int | None, int]],
    peak_flop_per_s: float | None,
    bytes_per_s: float | None,
) -> float | None:
    """Model FLOP ÷ peak over the sum, group by group, of the longer of its FLOP ÷ peak and its bytes ÷ bandwidth."""
    if not peak_flop_per_s or not bytes_per_s:
        return None
    flop: dict[int, int] = {}
    moved: dict[int, int] = {}
    for operation, (leader, size) in zip(table, groups, strict=True):
        if leader is not None:
            flop[leader] = flop.get(leader, 0) + int(kinds.cost(operation).model_flop)
            moved[leader] = moved.get(leader, 0) + size
    least_s = sum(max(flop[each] / peak_flop_per_s, moved[each] / bytes_per_s) for each in flop)
    return sum(flop.values()) / peak_flop_per_s / least_s if least_s else None


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's: Pearson's of the ranks. For values without ties."""
    a, b = (_ranks(values) for values in (first, second))
    mean = (len(a) - 1) / 2
    above = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    return above / sum((x - mean) ** 2 for x in a)


def _ranks(values: Sequence[float]) -> list[int]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0] * len(values)
    for rank, place in enumerate(order):
        ranks[place] = rank
    return ranks


def best_timed(runs: Sequence[Published]) -> Published | None:
    """The run that answers for low utilization: with both low models, on a GPU before a CPU, and with the most cells
    whose intervals converged; of equal ones the latest."""

    def merit(run: Published) -> tuple[bool, int, str]:
        return run.on_gpu, sum(cell.status == "ok" for cell in run.measured), run.data.manifest.created_at

    return max((run for run in runs if {cell.model for cell in run.measured} >= set(LOW)), key=merit, default=None)


def low_utilization(runs: Sequence[Published], folder: str) -> Section:
    """The post's open question: is it a miscount or real?"""
    title = "Is the low utilization of MobileNet and EfficientNet a miscount or real?"
    run = best_timed(runs)
    if run is None:
        return Section(title, OPEN, f"No published run has {' and '.join(LOW)}.")
    found = traffic(run)
    low, others = [t for t in found if t.run.model in LOW], [t for t in found if t.run.model not in LOW]
    gap = median(_used(t) for t in others) / max(_used(t) for t in low)
    bound = any(t.attainable_ratio is not None for t in found)
    still_open = "" if bound else " The attainable bound, and every GPU, are open."
    answer = (
        f"Real, on {run.device_name}: by the exact count {' and '.join(_said(t) for t in low)} of the peak, at most "
        f"1/{gap:.2g} of the median of the other {len(others)} models, and no miscount explains it.{still_open}"
    )
    missing = (
        "**Open**: achieved DRAM bandwidth (of a GPU that has such counters), and the attainable bound: no memory "
        "bandwidth of this device is published (`python -m runners.ceiling --out results/published/NAME`)."
    )
    body = (
        "\n".join((*_not_the_count(runs, low), *_the_bytes(found, low))),
        picture("Utilization against FLOP for each byte that operations move, one dot a model", f"images/{PICTURE}"),
        _traffic_table(run, found),
        f"That both are low on GPUs as well others measured: {link('post2021', 'post2021.md')}.",
        *(() if bound else (missing,)),
    )
    return Section(title, SETTLED if bound and run.on_gpu else IN_PART, answer, body)


def _used(each: Traffic) -> float:
    return each.row.utilization_ratio or 0.0


def _said(each: Traffic) -> str:
    return f"{each.run.model} {share(each.row)} % [`{each.run.cell_id}`]"


def _not_the_count(runs: Sequence[Published], low: Sequence[Traffic]) -> list[str]:
    """What counters say of the low models, from whichever run asked the most of them."""
    counted = max(runs, key=lambda run: len(run.agreement))
    rows = [row for row in counted.agreement if row.model in LOW and row.total_ratio is not None]
    forward = [row for row in rows if row.phase == "forward" and row.ratio is not None]
    grouped = " and ".join(f"{percent(t.grouped_ratio)} of {t.run.model}'s" for t in low)
    suspected = (
        f"* **Grouped convolutions**, which the post suspected, are {grouped} forward FLOP: to leave them out "
        f"altogether would not explain it {named(t.run.cell_id for t in low)}."
    )
    if not forward:
        return [suspected]
    agreeing = sum(row.ratio == 1 for row in forward)
    far = max(abs((row.total_ratio or 1.0) - 1) for row in forward)
    over = sorted((row for row in rows if (row.total_ratio or 0.0) > 2), key=lambda row: row.total_ratio or 0.0)
    told = ", ".join(f"{row.counter}'s {row.phase} pass of {row.model} {row.total_ratio:.3g} ×" for row in over)
    raised = f" What is far off is too high ({told}), which would raise utilization, not lower it." if over else ""
    return [
        f"* **Not the count.** {agreeing} of {len(forward)} forward counts of these two models' products equal ours "
        "to the unit, and so does what one real step executed; with normalisation and the like they are at most "
        f"{percent(far)} away.{raised} {named(row.cell_id for row in rows)}",
        suspected,
    ]


def _the_bytes(found: Sequence[Traffic], low: Sequence[Traffic]) -> list[str]:
    """What the models move, beside what they reach."""
    others = [t.unfused_flop_per_byte for t in found if t.run.model not in LOW]
    least = {t.run.model for t in sorted(found, key=lambda t: t.unfused_flop_per_byte)[:3]}
    same = "the same three" if least == {t.run.model for t in found[:3]} else "not the same three"
    rho = rank_correlation([t.unfused_flop_per_byte for t in found], [_used(t) for t in found])
    fastest = sorted(found, key=lambda t: -t.unfused_bytes_per_s)[:3]
    return [
        f"* **The bytes.** With nothing fused they do {' and '.join(digits(t.unfused_flop_per_byte) for t in low)} "
        f"FLOP for each byte that their operations move; the median of the others is {digits(median(others))}. The "
        f"three models with the least are {same} that have the lowest utilization "
        f"({', '.join(t.run.model for t in found[:3])}); over all {len(found)} models the rank correlation of FLOP "
        f"for each byte with utilization is {rho:.2f}.",
        "* **They are not idle.** By the same estimate those that move the most bytes a second are "
        f"{', '.join(map(_moving, fastest))} {named(t.run.cell_id for t in fastest)}.",
    ]


def _moving(each: Traffic) -> str:
    return f"{each.run.model} ({si(each.unfused_bytes_per_s, 'B/s')})"


def _traffic_table(run: Published, found: Sequence[Traffic]) -> str:
    first = ("model", "cell", "used %, 95 %", "FLOP/B unfused", "FLOP/B ideal fusion", "B/s unfused", "grouped")
    heads = (*first, "products' share of time", "attainable %")
    rows = [
        (
            t.run.model,
            cells([t.run.cell_id]),
            share(t.row),
            digits(t.unfused_flop_per_byte),
            digits(t.fused_flop_per_byte),
            si(t.unfused_bytes_per_s, "B/s"),
            percent(t.grouped_ratio) if t.grouped_ratio else "0",
            "–" if t.products_ratio is None else percent(t.products_ratio),
            OPEN if t.attainable_ratio is None else digits(100 * t.attainable_ratio),
        )
        for t in found
    ]
    peak = found[0].row
    said = (
        f"{run.name}, batch {found[0].run.batch_size}, over the {peak.denominator} ({peak.peak_source}). Unfused "
        "bytes are an estimate (each operation's tensors once), no bound; ideal fusion is what a perfect compiler "
        "would leave. *Products' share* is of a step under the profiler. Cells without an upper end, or with a far "
        "one, did not converge."
    )
    return f"{said}\n\n{table(heads, rows)}"


# --- what the post's numbers mean ------------------------------------------------------------------------------------


def what_the_post_means(runs: Sequence[Published], folder: str) -> Section:
    """Both arithmetics over the same cells: ours, and multiply-adds over a peak in FLOP."""
    title = "What the post's 0.3 to 0.75 mean, in FLOP over the right peak"
    run = next((run for run in reversed(runs) if run.post2021), None)
    answer = (
        "About 0.6 to 1.5: it divides multiply-adds by a peak in FLOP, where a multiply-add is 2 (independent P100 "
        f"measurements: {link('post2021', 'post2021.md')}). "
    )
    if run is None:
        return Section(title, IN_PART, answer + "No published run has both arithmetics.")
    rows, factors, ids = [], [], []
    for cell in run.measured:
        ours, theirs = run.headline(cell), _of_the_post(run, cell)
        if ours is None or theirs is None or not theirs.utilization_ratio:
            continue
        factor = (ours.utilization_ratio or 0.0) / theirs.utilization_ratio
        factors.append(factor)
        ids.append(cell.cell_id)
        rows.append((cell.model, cells([cell.cell_id]), share(theirs), share(ours), f"{factor:.3f}"))
    if not rows:
        return Section(title, IN_PART, answer + "No published run has both arithmetics.")
    answer += (
        f"Here, both over the same times, ours is {min(factors):.3g} to {max(factors):.3g} × the post's {named(ids)}; "
        "on a P100 this project has measured nothing."
    )
    note = (
        f"{run.name}. *Post*: 3 × fvcore's total of multiply-adds over {_post_peak(run)}; *ours*: exact FLOP over "
        "the same peak. The factor is not 2 exactly: fvcore adds normalisation (below 2), and 3 × forward has a "
        "gradient that nobody asks for (below 2, too)."
    )
    heads = ("model", "cell", "post's arithmetic, %", "FLOP over the peak, %", "factor")
    return Section(title, IN_PART, answer, (note, table(heads, rows)))


def _of_the_post(run: Published, cell: Run) -> Utilization | None:
    rows = [row for row in run.post2021 if row.cell_id == cell.cell_id and row.utilization_ratio is not None]
    return next((row for row in rows if row.method in ("theory_as_published", "theory") and _is_fvcore(row)), None)


def _is_fvcore(row: Utilization) -> bool:
    return row.numerator_source == "fvcore"


def _post_peak(run: Published) -> str:
    row = next((row for row in run.post2021 if row.peak_source), None)
    return row.peak_source if row else "the fp32 peak"


# --- conditions ------------------------------------------------------------------------------------------------------


def conditions_compared(runs: Sequence[Published], folder: str) -> Section:
    """Cells of one run that differ in one condition alone: items a second, one against the other."""
    parts, still_open, answers = [], [], []
    for name in COMPARED:
        rows, gains, ids = [], [], []
        for run in runs:
            for found in _pairs(run, name):
                rows.append(found[0])
                gains.append(found[1])
                ids += found[2]
        words = name.replace("_", " ")
        if not rows:
            still_open.append(words)
            continue
        answers.append(f"by {words} {min(gains):.3g} to {max(gains):.3g} × the items a second ({len(rows)} pairs)")
        heads = ("model", words, "cells", "items/s, second ÷ first", "95 % interval")
        parts.append(f"### By {words}\n\n{table(heads, rows)}")
    if still_open:
        parts.append(f"**Open**: {', '.join(still_open)}: no published run has two cells that differ in it alone.")
    state = OPEN if not answers else IN_PART if still_open else SETTLED
    answer = "; ".join(answers).capitalize() + (f"; {', '.join(still_open)}: open." if still_open and answers else "")
    return Section("Batch size, layout, precision, compile", state, answer or "No published run says.", tuple(parts))


def _pairs(run: Published, name: str) -> list[tuple[tuple[str, ...], float, list[str]]]:
    """Rows, gains and cell ids of neighbours in one condition."""
    samples, _ = samples_and_telemetry(run.data)
    groups: dict[tuple[str, ...], list[Run]] = {}
    for cell in run.measured:
        if cell.repeat == 0 and cell.items_per_step and whole_steps(samples.get(key_of(cell), ())):
            groups.setdefault(conditions(cell, name), []).append(cell)
    found = []
    for group in groups.values():
        ordered = sorted(group, key=lambda cell: (isinstance(getattr(cell, name), str), getattr(cell, name)))
        for first, second in itertools.pairwise(ordered):
            if getattr(first, name) != getattr(second, name):
                found += _pair(name, first, second, samples)
    return sorted(found)


def _pair(name: str, first: Run, second: Run, samples: Blocks) -> list[tuple[tuple[str, ...], float, list[str]]]:
    """The row of one pair; none where a single block has no interval."""
    times = [block_means(whole_steps(samples[key_of(cell)]))[1] for cell in (first, second)]
    steps = difference([times[0]], [times[1]], MARGIN_RATIO[first.device.partition(":")[0]])
    if steps.low_ratio is None or steps.high_ratio is None:
        return []
    items = (second.items_per_step or 1) / (first.items_per_step or 1)
    interval = f"{digits(items / steps.high_ratio)} to {digits(items / steps.low_ratio)}"
    values = f"{to_text(getattr(first, name))} → {to_text(getattr(second, name))}"
    ids, gain = [first.cell_id, second.cell_id], items / steps.ratio
    return [((first.model, values, cells(ids), digits(gain), interval), gain, ids)]


def energy(runs: Sequence[Published], folder: str) -> Section:
    """Joules an image, where a device tells its energy."""
    title = "Energy an image"
    rows = []
    for run in runs:
        for cell in run.measured:
            row = run.headline(cell)
            if row is not None and row.energy_per_item_j is not None:
                used = digits(row.energy_per_item_j * 1e3)
                rows.append(
                    (cell.model, str(cell.batch_size), cell.precision, cells([cell.cell_id]), used, cell.energy_method)
                )
    if not rows:
        return Section(title, OPEN, "No published run has energy: a CPU's is not read, and no GPU was measured.")
    heads = ("model", "batch", "precision", "cell", "mJ an item", "by")
    return Section(title, SETTLED, f"{len(rows)} cells, ± 5 % by what the devices claim.", (table(heads, rows),))
