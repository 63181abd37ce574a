"""Findings that are times: what the numbers of Hobbhahn's post of 2021 mean, batch and layout and the like, energy."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from analysis.devices import PRECISIONS
from analysis.stats import MARGIN_RATIO, conditions, difference
from analysis.utilization import block_means_s, whole_steps
from cleaning.gates import samples_and_telemetry
from reports.findings.data import Published, common_settings, widest
from reports.findings.shared import IN_PART, OPEN, SETTLED, Section, cells, link, named, share, table
from reports.shared import digits
from results.records import Run, Sample, Utilization, to_text
from results.store import Key, key_of

Blocks = Mapping[Key, Sequence[Sample]]

COMPARED = ("batch_size", "layout", "precision", "compile")


def what_the_post_means(runs: Sequence[Published], folder: str) -> Section:
    """Both arithmetics over the cells of the commonest precision and layout."""
    title = "What the post's 0.3 to 0.75 mean, in FLOP over the right peak"
    run = next((run for run in widest(runs) if run.post2021), None)
    answer = (
        "About 0.6 to 1.5: it divides multiply-adds by a peak in FLOP, where a multiply-add is 2 (independent P100 "
        f"measurements: {link('post2021', 'post2021.md')}). "
    )
    if run is None:
        return Section(title, IN_PART, answer + "No published run has both arithmetics.")
    rows, factors, ids = [], [], []
    for cell in sorted(common_settings(run.measured_cells), key=lambda cell: (cell.model, cell.batch_size)):
        ours, theirs = run.headline(cell), _of_the_post(run, cell)
        if ours is None or theirs is None or not theirs.utilization_ratio:
            continue
        factor = (ours.utilization_ratio or 0.0) / theirs.utilization_ratio
        factors.append(factor)
        ids.append(cell.cell_id)
        where = (cell.model, str(cell.batch_size), cells([cell.cell_id]))
        rows.append((*where, share(theirs), share(ours), f"{factor:.3f}"))
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
    heads = ("model", "batch", "cell", "post's arithmetic, %", "FLOP over the peak, %", "factor")
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
        words = f"**Open**: {', '.join(still_open)}: no published run has two cells that differ in it alone"
        parts.append(f"{words}; what others measured on GPUs is in section 10.")
    state = OPEN if not answers else IN_PART if still_open else SETTLED
    answer = "; ".join(answers).capitalize() + (f"; {', '.join(still_open)}: open." if still_open and answers else "")
    return Section("Batch size, layout, precision, compile", state, answer or "No published run says.", tuple(parts))


def _pairs(run: Published, name: str) -> list[tuple[tuple[str, ...], float, list[str]]]:
    """Rows, gains and cell ids of neighbours in one condition."""
    samples, _ = samples_and_telemetry(run.data)
    groups: dict[tuple[str, ...], list[Run]] = {}
    for cell in run.measured_cells:
        if cell.repeat == 0 and cell.items_per_step and whole_steps(samples.get(key_of(cell), ())):
            groups.setdefault(conditions(cell, name), []).append(cell)
    found = []
    for group in groups.values():
        ordered = sorted(group, key=lambda cell: _place(name, getattr(cell, name)))
        for first, second in itertools.pairwise(ordered):
            if getattr(first, name) != getattr(second, name):
                found += _pair(name, first, second, samples)
    return sorted(found)


def _place(name: str, value: str | int | bool) -> tuple[bool, str | int | bool]:
    """A value's place among those of a condition; precisions as they are listed, the plainest first."""
    known = list(PRECISIONS)
    return (False, known.index(value)) if name == "precision" and value in known else (isinstance(value, str), value)


def _pair(name: str, first: Run, second: Run, samples: Blocks) -> list[tuple[tuple[str, ...], float, list[str]]]:
    """The row of one pair; none where a single block has no interval."""
    times = [block_means_s(whole_steps(samples[key_of(cell)])) for cell in (first, second)]
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
        for cell in run.measured_cells:
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
