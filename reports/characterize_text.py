"""Writes the answer of `runners.characterize`, how workloads differ in operations and parallelism, as text.

`to_text` takes a `CharacterizeAnswer`, whose numbers `reports/characterize.py` computes, and returns the page. Its
sections are shares by group, similarity, the paper's results (Fathom), steps, and inference; then threads, batches,
cost and calls. Nothing is printed and no file is read.
"""

import itertools
import operator
from collections.abc import Iterator, Sequence

from analysis.characterize.fathom_groups import GROUPS, MOST_UNCLASSIFIED_RATIO, OPERATIONS, figure3_groups
from analysis.characterize.operation_mix import Merge, types_for
from analysis.characterize.parallelism import Amdahl
from reports.characterize import CharacterizeAnswer, paper_label, paper_name
from reports.shared.layout import WIDTH, Part, page, table_of
from reports.shared.numbers import DASH, STATUS_TEXTS, digits, percent, si, si_time
from results.records.characterization import WARM_UP


def to_text(seen: CharacterizeAnswer, width: int = WIDTH, colour: bool = False) -> str:
    """Return the whole answer as text."""
    sections = (
        _groups(seen),
        _likeness(seen),
        _reproduced(seen),
        _steady(seen),
        _against(seen),
        parallel(seen),
        batches(seen),
        costs(seen),
        unequal(seen),
        reconstruction_lines(seen),
        _lost(seen),
    )
    return page([part for section in sections for part in ("", *section)], width, colour)


def percent_text(ratio: float) -> str:
    """Write a ratio in per cent as the paper does, without a sign: 0.41 → "41", 0.004 → "<1", 0 → ""."""
    return "" if ratio == 0 else "<1" if ratio < 0.01 else f"{100 * ratio:.0f}"


def in_range(low: float | None, high: float | None, sign: str = "") -> str:
    return DASH if low is None or high is None else f"{100 * low:{sign}.0f} to {100 * high:{sign}.0f} %"


def times(ratio: float | None) -> str:
    return DASH if ratio is None else digits(ratio, 2)


def at_least_time(time_s: float | None, at_least_s: float | None) -> str:
    """Write a time, with "at least" where only a part of it is known."""
    if time_s is not None:
        return si_time(time_s)
    return f"≥ {si_time(at_least_s)}" if at_least_s else DASH


def _table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], text_columns: Sequence[int] = (0,)
) -> Iterator[Part]:
    """Yield a title and a table below it; nothing without rows. text_columns: indices of the columns that hold text."""
    if rows:
        yield title
        yield table_of([heads, *rows], text_columns=text_columns, wraps=text_columns)


def _groups(seen: CharacterizeAnswer) -> Iterator[Part]:
    if not seen.mixes:
        return
    fewest, most = (pick(mix.steps for mix in seen.mixes) for pick in (min, max))
    steps = str(most) if fewest == most else f"{fewest} to {most}"
    rows = [
        [
            mix.label,
            DASH if mix.step_s is None else si_time(mix.step_s),
            *(percent_text(mix.groups[group].ratio) for group in GROUPS),
            percent_text(mix.unclassified_ratio) or "0",
            DASH if (types := types_for(share.share_ratio for share in mix.operations)) is None else str(types),
            str(len(mix.operations)),
        ]
        for mix in seen.mixes
    ]
    title = f"Share of a step by group, per cent (median of {steps} profiled steps)"
    yield from _table(title, ["workload", "step", *GROUPS, "unclassified", "types for 90 %", "of all"], rows)
    yield "; ".join(f"{letter}: {kinds}" for letter, kinds in GROUPS.items())
    largest = [(mix.label, max(GROUPS, key=lambda group: mix.groups[group].ratio), mix) for mix in seen.mixes]
    shares = (f"{label} in {group} ({percent_text(mix.groups[group].ratio)} %)" for label, group, mix in largest)
    yield f"Most of a step is spent: {', '.join(shares)}."
    for mix in seen.mixes:
        if mix.unclassified_ratio > MOST_UNCLASSIFIED_RATIO:
            names = ", ".join(f"{name} {percent(ratio)}" for name, ratio in list(mix.unclassified.items())[:5])
            yield f"warning: {mix.label}: {percent(mix.unclassified_ratio)} of the step is in no group: {names}"


def _likeness(seen: CharacterizeAnswer) -> Iterator[Part]:
    """Yield the linkage of all, and of each variant."""
    yield from _linkage("Likeness by operation types: cosine distance, centroid linkage", seen.linkage)
    if crossed := sum(later.height < earlier.height for earlier, later in itertools.pairwise(seen.linkage)):
        yield f"note: {crossed} of these distances are below that of the merge before, as happens with centroids"
    yield ""
    for variant, merges in seen.pictures.items():
        yield from _linkage(f"Likeness, {variant} where there are two: cosine distance, centroid linkage", merges)


def _linkage(title: str, merges: Sequence[Merge]) -> Iterator[Part]:
    rows = [[f"{merge.height:.4f}", " + ".join(merge.left), " + ".join(merge.right)] for merge in merges]
    return _table(title, ["distance", "joins", "with"], rows, (1, 2))


def _reproduced(seen: CharacterizeAnswer) -> Iterator[Part]:
    if not seen.reproduce:
        return
    paper = figure3_groups()
    yield "Ours beside the paper's (Adolf et al. 2016, Figure 3: a CPU of eight threads, TensorFlow 0.8), per cent"
    rows = [["workload", "", *OPERATIONS, "H", "largest"]]
    shown = [mix for mix in seen.compared if paper_name(mix) in paper]
    for mix in shown:
        printed = {group: cell / 100 for group, cell in paper[paper_name(mix)].items()}
        largest = max(printed, key=lambda group: printed[group])
        verdict = f"{mix.dominant}, {'same' if largest == mix.dominant else 'another'}"
        rows.append([paper_label(mix), "ours", *(percent_text(mix.groups[group].ratio) for group in GROUPS), verdict])
        rows.append(["", "paper", *(percent_text(printed[group]) for group in OPERATIONS), "", largest])
    yield table_of(rows, text_columns=(0, 1, 10), wraps=(0, 1, 10))
    if missing := [name for name in paper if name not in map(paper_name, shown)]:
        yield f"note: not recorded here: {', '.join(missing)}"
    yield "note: the paper's rows sum to 94 to 99; our H, and what PyTorch does as a view, is in none of its columns"
    yield "note: the work of F and H does not grow with the batch: at small sizes both are larger than in the paper"


def _steady(seen: CharacterizeAnswer) -> Iterator[Part]:
    level, trend = list[list[str]](), list[list[str]]()
    firsts = {step.recording: step.time_s for step in seen.data.steps if (step.part, step.step) == (WARM_UP, 0)}
    for recording, series in seen.steadiness:
        who, first_s = [recording.workload, recording.mode], firsts.get(recording.recording)
        first = DASH if first_s is None else si_time(first_s)
        low, high = (
            None if end_s is None else end_s / series["median_s"] - 1 for end_s in (series["low_s"], series["high_s"])
        )
        spread = [DASH if series["spread_ratio"] is None else percent(series["spread_ratio"])]
        spread.append(in_range(series["spread_low"], series["spread_high"]))
        level.append([*who, str(series["n"]), first, si_time(series["median_s"]), in_range(low, high, "+"), *spread])
        slope = DASH if series["trend_ratio"] is None else f"{100 * series['trend_ratio']:+.0f} %"
        p = DASH if series["p_value"] is None else f"{series['p_value']:.2g}"
        trend.append([*who, slope, in_range(series["trend_low"], series["trend_high"], "+"), p, series["verdict"]])
    heads = ["workload", "mode", "steps", "first", "median", "95 %", "spread", "95 %"]
    yield from _table("Steps one after another, without the profiler: level and spread", heads, level, (0, 1))
    heads = ["workload", "mode", "trend", "95 %", "p", "verdict"]
    yield from _table("A trend over all of these steps (Mann-Kendall)", heads, trend, (0, 1))


def _against(seen: CharacterizeAnswer) -> Iterator[Part]:
    ways = list(dict.fromkeys((step["device"], step["mode"]) for step in seen.against))
    if len(ways) < 2:
        return
    rows = []
    for workload in dict.fromkeys(step["workload"] for step in seen.against):
        steps = {(s["device"], s["mode"]): s for s in seen.against if s["workload"] == workload}
        cells = [
            [si_time(steps[way]["step_s"]), times(steps[way]["ratio"])] if way in steps else [DASH, DASH]
            for way in ways
        ]
        rows.append([workload, *itertools.chain(*cells)])
    heads = ["workload", *(text for device, mode in ways for text in (f"{mode}, {device}", "÷"))]
    yield from _table("Training against inference: a step, and ÷ training on the CPU", heads, rows)


def _lost(seen: CharacterizeAnswer) -> Iterator[Part]:
    for row in seen.data.recordings:
        if row.status != "ok":
            status = STATUS_TEXTS.get(row.status, row.status)
            yield f"not recorded: {row.workload}, {row.mode}, {row.device}, for {row.why}: {status}: {row.reason}"
    profiled = [row.profiled_s / row.step_s for row in seen.mixes if row.step_s]
    if profiled and max(profiled) > 1.1:
        few, most = f"{min(profiled):.2f}", f"{max(profiled):.2f}"
        yield f"note: under the profiler steps took {few if few == most else f'{few} to {most}'} times as long"
    torches = {(row.torch_version, row.device, row.device_name) for row in seen.data.recordings}
    for version, device, name in sorted(torches):
        if version:
            yield f"note: recorded with PyTorch {version} on {device}{f' ({name})' if name else ''}"
    yield from (f"note: {note}" for note in seen.notes)


NO_GROUP = "none"
"""Text in place of the group of operations without one."""


def _serial(law: Amdahl) -> tuple[str, str]:
    """Return the serial share and its interval, or that more threads make the type slower."""
    if law.serial_ratio > 1:
        return "slower", ""
    return f"{100 * law.serial_ratio:.0f} %", in_range(law.serial_low, law.serial_high)


def parallel(seen: CharacterizeAnswer) -> Iterator[Part]:
    counts = sorted({count for scaling in seen.parallelism for count in scaling.times_s})
    rows: list[list[str]] = []
    for _, scalings in itertools.groupby(seen.parallelism, key=operator.attrgetter("workload")):
        rows += [
            [
                scaling.workload if scaling.name == "step" else "",
                scaling.name,
                scaling.group,
                *(si_time(scaling.times_s[count]) if count in scaling.times_s else DASH for count in counts),
                DASH if scaling.law is None else f"{scaling.law.speed_up:.2f}",
                *([DASH, DASH] if scaling.law is None else _serial(scaling.law)),
            ]
            for scaling in itertools.islice(scalings, 4 + 1)
        ]
    title = "Over threads: time a step, and the part that Amdahl's law leaves serial (of the time at one thread)"
    heads = ["workload", "type", "group", *(f"{count} thr." for count in counts), "speed-up", "serial", "95 %"]
    return _table(title, heads, rows, (0, 1, 2))


def batches(seen: CharacterizeAnswer) -> Iterator[Part]:
    rows = [
        [
            recording.workload,
            str(recording.batch_size),
            si_time(shares.profiled_s),
            si_time(shares.profiled_s / recording.batch_size),
            *(percent_text(shares.groups[group].ratio) for group in GROUPS),
        ]
        for recording, shares in seen.over_batch
    ]
    title = "Over the batch: a step under the profiler, a sample of it, and the shares"
    return _table(title, ["workload", "batch", "step", "a sample", *GROUPS], rows)


def costs(seen: CharacterizeAnswer) -> Iterator[Part]:
    rows = [
        [
            "" if number else workload,
            cost["group"] or NO_GROUP,
            str(cost["calls"]),
            f"{'≥ ' if cost['unknown_calls'] else ''}{si(cost['at_least_flop'], '')}",
            f"{'≥ ' if cost['unsized_calls'] else ''}{si(cost['at_least_bytes'], 'B')}",
            times(cost["flop_per_byte"]),
            at_least_time(cost["time_s"], cost["at_least_time_s"]),
            DASH if cost["flop_per_s"] is None else si(cost["flop_per_s"], ""),
            DASH if cost["bytes_per_s"] is None else si(cost["bytes_per_s"], "B"),
            *([DASH if (ratio := cost["utilization_ratio"]) is None else percent(ratio)] if seen.peaks else []),
        ]
        for workload, group_rows in itertools.groupby(seen.costs, key=operator.itemgetter("workload"))
        for number, cost in enumerate(group_rows)
    ]
    heads = ["workload", "group", "calls", "FLOP", "bytes", "FLOP/byte", "time", "FLOP/s", "bytes/s"]
    heads += ["of peak"] if seen.peaks else []
    title = "What the groups of a training step do (exact), and at what rate (under the profiler)"
    return _table(title, heads, rows, (0, 1))


def unequal(seen: CharacterizeAnswer) -> Iterator[Part]:
    rows = [
        [
            mix.label,
            str(tail["calls"]),
            si_time(tail["median_s"]),
            si_time(tail["longest_s"]),
            percent(tail["top_1_ratio"]),
            percent(tail["top_10_ratio"]),
            *([tail["fits"][0]["law"], digits(tail["fits"][0]["distance"], 2)] if tail["fits"] else [DASH, DASH]),
        ]
        for mix, tail in seen.tails
    ]
    title = "Times of single calls in one step: how unequal, and the law that fits best of three"
    heads = ["workload", "calls", "median", "longest", "longest 1 %", "longest 10 %", "law", "distance"]
    return _table(f"{title} (distance: Kolmogorov's)", heads, rows, (0, 6))


def reconstruction_lines(seen: CharacterizeAnswer) -> Iterator[Part]:
    rows = [
        [
            part["workload"],
            part["mode"],
            part["group"] or NO_GROUP,
            str(part["calls"]),
            str(part["kinds"]),
            at_least_time(part["alone_s"], part["at_least_alone_s"]),
            DASH if part["recorded_s"] is None else si_time(part["recorded_s"]),
            times(part["ratio"]),
            "" if part["step_ratio"] is None else times(part["step_ratio"]),
        ]
        for part in seen.reconstructed
    ]
    heads = ["workload", "mode", "group", "calls", "distinct", "alone", "in the step", "÷", "÷ whole step"]
    yield from _table("The step put together from its operations timed alone", heads, rows, (0, 1, 2))
    wholes = [part for part in seen.reconstructed if part["group"] == "all" and part["untimed"]]
    if wholes:
        text = ", ".join(f"{part['untimed']} of {part['workload']}" for part in wholes)
        yield f"note: calls that could not be run again, so that sums with them are at least so much: {text}"
