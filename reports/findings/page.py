"""docs/findings.md: what the published runs say of the questions that this project began with.

Everything on the page is worked out from the published rows and tables; nothing is typed but words. Each claim names
the cells that it rests on; what no run supports says *open*. Nothing is measured here and nothing is filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reports.findings import counts as findings_counts
from reports.findings import low_utilization, real_gpus
from reports.findings import published as findings_published
from reports.findings import times as findings_times
from reports.findings.data import Published
from reports.findings.shared import OPEN, Section, cells, link, table
from reports.shared import markdown, percent, si_time

CELL_HEADS = ("cell_id", "model", "batch", "precision", "what else", "status", "step", "± 95 %", "items/s")


SECTIONS: tuple[Callable[[Sequence[Published], str], Section], ...] = (
    findings_counts.figures_of_the_post,
    low_utilization.low_utilization,
    findings_times.what_the_post_means,
    findings_counts.counters,
    findings_counts.backward_forward,
    findings_times.conditions_compared,
    findings_published.beside_published,
    findings_times.energy,
    findings_published.to_assume,
    real_gpus.real_gpus,
)
"""In the order of the page; each is asked with the runs and the folder of links."""


def page(runs: Sequence[Published], folder: str) -> str:
    """The page as Markdown. runs: published ones; folder: of `results/published`, relative to the page."""
    sections = [make(runs, folder) for make in SECTIONS]
    return markdown(
        "findings",
        on_gpu=any(run.on_gpu for run in runs),
        in_short=_short(sections),
        runs=_runs(runs, folder),
        sections=sections,
        cells="\n\n".join(_cells(run) for run in runs),
    )


def _short(sections: Sequence[Section]) -> str:
    rows = [(str(i), section.title, section.state, section.answer) for i, section in enumerate(sections, start=1)]
    return table(("", "question", "state", "answer"), rows)


def _runs(runs: Sequence[Published], folder: str) -> str:
    rows = []
    for run in runs:
        torch = ", ".join(dict.fromkeys(sitting.torch_version for sitting in run.data.sittings))
        wide = sum(cell.status == "not_converged" for cell in run.measured_cells)
        quick = "yes" if any(cell.quick for cell in run.measured_cells) else "no"
        asked = "; ".join(f"`{command}`" for command in run.data.manifest.commands) or OPEN
        counted = f"{len(run.measured_cells)}, of them {wide} with a wider interval than asked for"
        rows.append((link(run.name, f"{folder}/{run.name}/runs.csv"), run.device_name, torch, counted, quick, asked))
    return table(("run", "device", "torch", "measured cells", "quick", "command"), rows)


def _cells(run: Published) -> str:
    rows = []
    for cell in run.data.runs:
        row = run.headline(cell) or next((r for r in run.utilization if r.cell_id == cell.cell_id), None)
        time_s = row.time_s if row else None
        low_s, high_s = (row.time_low_s, row.time_high_s) if row else (None, None)
        wide = "–"
        if time_s is not None and low_s is not None and high_s is not None:
            wide = percent((high_s - low_s) / (2 * time_s))
        rate = f"{row.items_per_s:.4g}" if row and row.items_per_s is not None else "–"
        words = (cell.model, str(cell.batch_size), cell.precision, row.variant if row else "", cell.status)
        rows.append((cells([cell.cell_id]), *words, "–" if time_s is None else si_time(time_s), wide, rate))
    return f"### {run.name}\n\n{table(CELL_HEADS, rows)}"
