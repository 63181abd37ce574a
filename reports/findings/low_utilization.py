"""The post's open question: is the low utilization of two models a miscount or real?"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from statistics import median

from reports.findings.data import Published, bandwidth, common_settings, widest
from reports.findings.real_gpus import families_on_a_gpu
from reports.findings.shared import IN_PART, OPEN, SETTLED, Section, link, named, picture, share
from reports.findings.traffic import Traffic, traffic, traffic_table
from reports.shared import digits, percent, shown_interval, si
from results.records import Run, Utilization

LOW = ("mobilenet_v2", "efficientnet_b0")
"""The models whose utilization Hobbhahn's post of 2021 could not explain."""

PICTURE = "findings_bytes.png"
"""Utilization against FLOP for each byte (`reports/findings/figure.py`)."""


def best_timed(runs: Sequence[Published]) -> Published | None:
    """The run that answers for low utilization: with both low models, on a GPU before a CPU, and with the most cells
    whose intervals converged; of equal ones the latest."""

    def merit(run: Published) -> tuple[bool, int, str]:
        return run.on_gpu, sum(cell.status == "ok" for cell in run.measured_cells), run.data.manifest.created_at

    return max(
        (run for run in runs if {cell.model for cell in run.measured_cells} >= set(LOW)), key=merit, default=None
    )


def low_utilization(runs: Sequence[Published], folder: str) -> Section:
    """The post's open question: is it a miscount or real?"""
    title = "Is the low utilization of MobileNet and EfficientNet a miscount or real?"
    run = best_timed(runs)
    if run is None:
        return Section(title, OPEN, f"No published run has {' and '.join(LOW)}.")
    found = traffic(run)
    low, others = [t for t in found if t.run.model in LOW], [t for t in found if t.run.model not in LOW]
    gap = median(t.used_ratio for t in others) / max(t.used_ratio for t in low)
    bound = any(t.attainable_ratio is not None for t in found)
    elsewhere = None if bound else bounded(runs)
    still_open = "" if bound else f" The attainable bound{_but_for(elsewhere)}, and every GPU, are open."
    reached = " and ".join(_traffic_sentence(t, repeated(runs, run, t)) for t in low)
    answer = (
        f"Real, on {run.device_name}: by the exact count {reached}, "
        f"at most 1/{gap:.2g} of the median of the other {len(others)} models of the run, and no miscount explains it."
        f"{still_open}"
    )
    missing = (
        "**Open**: achieved DRAM bandwidth (of a GPU that has such counters), and the attainable bound: no memory "
        "bandwidth of this device is published (`python -m runners.ceiling --out results/published/NAME`)."
    )
    body = (
        "\n".join((*_not_the_count(runs, low), *_the_bytes(found, low), *_between_runs(runs, run, low))),
        picture("Utilization against FLOP for each byte that operations move, one dot a model", f"images/{PICTURE}"),
        traffic_table(run, found),
        *(() if elsewhere is None else _with_bounds(elsewhere)),
        f"That both are low on GPUs as well others measured: {link('post2021', 'post2021.md')}. {families_on_a_gpu()}",
        *(() if bound else (missing,)),
    )
    return Section(title, SETTLED if bound and run.on_gpu else IN_PART, answer, body)


def repeated(runs: Sequence[Published], run: Published, each: Traffic) -> list[Utilization]:
    """The fractions of the same cell in other runs on a device of the same name, the oldest run first."""
    own = each.run
    rows = []
    for other in sorted(runs, key=lambda other: other.data.manifest.created_at):
        same = [
            cell
            for cell in other.measured_cells
            if other is not run and other.device_name == run.device_name and _conditions(cell) == _conditions(own)
        ]
        rows += [row for cell in same if (row := other.headline(cell)) is not None]
    return rows


def _conditions(cell: Run) -> tuple[object, ...]:
    """What decides a training step of a cell. Repeats and what else was asked of it do not."""
    return (
        cell.model,
        cell.batch_size,
        cell.precision,
        cell.layout,
        cell.compile,
        cell.malloc,
        cell.optimizer,
        cell.hyper,
    )


def bounded(runs: Sequence[Published]) -> Published | None:
    """The widest run with both low models on a device whose memory bandwidth is published."""
    for run in widest(runs):
        if {cell.model for cell in run.measured_cells} >= set(LOW) and bandwidth(run.path.parent, run.device_name):
            return run
    return None


def _but_for(run: Published | None) -> str:
    return "" if run is None else f" (but for {run.device_name}'s, below)"


def _with_bounds(run: Published) -> tuple[str, ...]:
    """What an ideal fusion could reach on another device, beside what was reached, at the batch that is known best."""
    known = bandwidth(run.path.parent, run.device_name)
    found = traffic(run, _steadiest(run))
    low = [t for t in found if t.run.model in LOW and t.attainable_ratio]
    others = [t.attainable_ratio for t in found if t.run.model not in LOW and t.attainable_ratio]
    if known is None or not low or not others:
        return ()
    reached = " and ".join(f"{t.run.model} {digits(100 * (t.attainable_ratio or 0.0))} %" for t in low)
    share_of = " and ".join(f"1/{(t.attainable_ratio or 0.0) / t.used_ratio:.2g}" for t in low)
    words = (
        f"**With a bound**, on {run.device_name}: if all that can be fused were, and each group took the longer of "
        f"its FLOP at the peak and its bytes at {si(known[0], 'B/s')} ({known[1]}), {reached} of the peak would be the "
        f"most; for the others {digits(100 * min(others))} to {digits(100 * max(others))} %. They reached {share_of} "
        f"of theirs {named(t.run.cell_id for t in low)}: {_blame(low)}{_inside_products(low)}"
    )
    return words, traffic_table(run, found)


def _blame(low: Sequence[Traffic]) -> str:
    """Whether memory's bound explains the low utilization."""
    if all((t.attainable_ratio or 0.0) < 2 * t.used_ratio for t in low):
        return "within a factor of 2, memory's bandwidth explains it."
    return "memory's bandwidth alone does not explain it."


def _inside_products(low: Sequence[Traffic]) -> str:
    """What convolutions and matrix products reach while they run, by their share of a profiled step."""
    if not all(t.products_ratio for t in low):
        return ""
    shares = " and ".join(percent(t.products_ratio or 0.0) for t in low)
    inside = " and ".join(f"{digits(100 * t.used_ratio / (t.products_ratio or 1.0), 2)} %" for t in low)
    return (
        f" Their convolutions and products take {shares} of a step under the profiler, so that these alone reach about "
        f"{inside} of the peak: their kernels are slow, besides what is not fused."
    )


def _steadiest(run: Published) -> int:
    """Of the batches that the most models have the one whose widest interval is the narrowest."""
    sizes: dict[int, list[float]] = {}
    for cell in common_settings(run.measured_cells):
        row = run.headline(cell)
        if row is not None and row.time_s and row.time_low_s is not None and row.time_high_s is not None:
            sizes.setdefault(cell.batch_size, []).append((row.time_high_s - row.time_low_s) / row.time_s)
    return min(sizes, key=lambda size: (-len(sizes[size]), max(sizes[size])))


def _traffic_sentence(each: Traffic, others: Sequence[Utilization]) -> str:
    own = f"{each.run.model} {share(each.row)} % of the peak [`{each.run.cell_id}`]"
    if not others:
        return own
    elsewhere = " and ".join(f"{share(row)} % [`{row.cell_id}`]" for row in others)
    return f"{own} (in another run {elsewhere})"


def _between_runs(runs: Sequence[Published], run: Published, low: Sequence[Traffic]) -> list[str]:
    """What the intervals do not hold, with the runs of one machine that show it."""
    apart = []
    for each in low:
        for row in repeated(runs, run, each):
            peaks = (each.row.peak_flop_per_s, row.peak_flop_per_s)
            ceilings = " and ".join(si(peak, "FLOP/s") for peak in peaks if peak)
            verdict = "overlap" if _overlap(each.row, row) else "do not overlap"
            apart.append(f"of {each.run.model} {share(each.row)} and {share(row)} % {verdict} (peaks: {ceilings})")
    shown = f" The intervals {'; those '.join(apart)}." if apart else ""
    return [
        "* **Between runs.** An interval is of the timed blocks of one process against one ceiling, and of what "
        "processes differ by where a run repeats cells. What runs and ceilings differ by is not in it."
        f"{shown} {named(each.run.cell_id for each in low)}"
    ]


def _overlap(a: Utilization, b: Utilization) -> bool:
    """Whether two intervals have a point in common; without both ends an interval is taken as without end."""

    def ends(row: Utilization) -> tuple[float, float]:
        low, high = shown_interval(row)
        return (0.0 if low is None else low), (inf if high is None else high)

    (low_a, high_a), (low_b, high_b) = ends(a), ends(b)
    return low_a <= high_b and low_b <= high_a


def _not_the_count(runs: Sequence[Published], low: Sequence[Traffic]) -> list[str]:
    """What counters say of the low models, by the widest run that asked several."""
    counted = next((run for run in widest(runs) if len({row.counter for row in run.agreement}) > 2), widest(runs)[0])
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
    passes = ", ".join(f"{row.counter}'s {row.phase} pass of {row.model} {row.total_ratio:.3g} ×" for row in over)
    raised = f" What is far off is too high ({passes}), which would raise utilization, not lower it." if over else ""
    return [
        f"* **Not the count.** {agreeing} of {len(forward)} forward counts of these two models' products equal ours "
        f"to the unit{_executed(low)}; with normalisation and the like they are at most "
        f"{percent(far)} away.{raised} {named(row.cell_id for row in rows)}",
        suspected,
    ]


def _executed(low: Sequence[Traffic]) -> str:
    """That the counts are those of one real step, where each cell recorded one and none differed."""
    differs = any(mark.startswith("executed_differs") for t in low for mark in t.row.warnings)
    return ", and so does what one real step executed" if all(t.run.executed for t in low) and not differs else ""


def _the_bytes(traffic: Sequence[Traffic], low: Sequence[Traffic]) -> list[str]:
    """What the models move, beside what they reach."""
    others = [t.unfused_flop_per_byte for t in traffic if t.run.model not in LOW]
    least = {t.run.model for t in sorted(traffic, key=lambda t: t.unfused_flop_per_byte)[:3]}
    same = "the same three" if least == {t.run.model for t in traffic[:3]} else "not the same three"
    from scipy.stats import spearmanr  # 1 s to import: not for a command's --help

    rho = spearmanr([t.unfused_flop_per_byte for t in traffic], [t.used_ratio for t in traffic]).statistic
    fastest = sorted(traffic, key=lambda t: -t.unfused_bytes_per_s)[:3]
    return [
        f"* **The bytes.** With nothing fused they do {' and '.join(digits(t.unfused_flop_per_byte) for t in low)} "
        f"FLOP for each byte that their operations move; the median of the others is {digits(median(others))}. The "
        f"three models with the least are {same} that have the lowest utilization "
        f"({', '.join(t.run.model for t in traffic[:3])}); over all {len(traffic)} models the rank correlation of FLOP "
        f"for each byte with utilization is {rho:.2f}.",
        "* **They are not idle.** By the same estimate those that move the most bytes a second are "
        f"{', '.join(map(_moving, fastest))} {named(t.run.cell_id for t in fastest)}.",
    ]


def _moving(each: Traffic) -> str:
    return f"{each.run.model} ({si(each.unfused_bytes_per_s, 'B/s')})"
