"""The answer of `runners.characterize` as text. This half: shares by group, likeness, the paper, steps, inference.

Prints nothing and reads no file; the numbers are calculated by `reports/characterize/text.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from analysis.characterize.fathom_groups import GROUPS, MOST_UNCLASSIFIED_RATIO, OPERATIONS, figure3_groups
from analysis.characterize.outlier_steps import slow_steps
from analysis.characterize.similarity import inverted
from reports.characterize import text_costs, variants
from reports.characterize.text import CharacterizeAnswer, paper_label, paper_name, shown_types
from reports.characterize.words import in_range, ratio, times, whole
from reports.shared.layout import WIDTH, Part, page, table_of
from reports.shared.numbers import DASH, STATUS_WORDS, percent, si, si_time
from results.records.characterization import WARM_UP, Characterization, WorkloadRecording

REASONS = {
    None: "",
    True: "; a processor was at work all the while: on a CPU subnormal numbers do that",
    False: "; no processor was at work meanwhile: others had it, or it waited",
}
"""What the processor time of a slow step says."""


def to_text(seen: CharacterizeAnswer, width: int = WIDTH, colour: bool = False) -> str:
    """Everything a person is shown."""
    sections = (
        _groups(seen),
        _likeness(seen),
        variants.to_lines(seen),
        _reproduced(seen),
        _steady(seen),
        _against(seen),
        text_costs.parallel(seen),
        text_costs.batches(seen),
        text_costs.costs(seen),
        text_costs.launches(seen),
        text_costs.unequal(seen),
        text_costs.reconstruction_lines(seen),
        text_costs.other_ways(seen),
        _lost(seen),
    )
    return page([part for section in sections for part in ("", *section)], width, colour)


def _groups(seen: CharacterizeAnswer) -> Iterator[Part]:
    if not seen.mixes:
        return
    fewest, most = (pick(each.steps for each in seen.mixes) for pick in (min, max))
    steps = str(most) if fewest == most else f"{fewest} to {most}"
    yield f"Share of a step by group, per cent (median of {steps} profiled steps)"
    rows = [["workload", "step", *GROUPS, "unclassified", "types for 90 %", "of all"]]
    for each in seen.mixes:
        types = shown_types(each)
        rows.append(
            [
                each.label,
                DASH if each.step_s is None else si_time(each.step_s),
                *(whole(each.groups[group].ratio) for group in GROUPS),
                whole(each.unclassified_ratio) or "0",
                DASH if types is None else str(types),
                str(len(each.operations)),
            ]
        )
    yield table_of(rows, words=(0,), wraps=(0,))
    yield "; ".join(f"{letter}: {words}" for letter, words in GROUPS.items())
    largest = [(mix.label, max(GROUPS, key=lambda group: mix.groups[group].ratio), mix) for mix in seen.mixes]
    shares = (f"{label} in {group} ({whole(mix.groups[group].ratio)} %)" for label, group, mix in largest)
    yield f"Most of a step is spent: {', '.join(shares)}."
    for each in seen.mixes:
        if each.unclassified_ratio > MOST_UNCLASSIFIED_RATIO:
            names = ", ".join(f"{name} {percent(ratio)}" for name, ratio in list(each.unclassified.items())[:5])
            yield f"warning: {each.label}: {percent(each.unclassified_ratio)} of the step is in no group: {names}"


def _likeness(seen: CharacterizeAnswer) -> Iterator[Part]:
    if not seen.linkage:
        return
    yield "Likeness by operation types: cosine distance, centroid linkage"
    rows = [["distance", "joins", "with"]]
    rows += [[f"{merge.height:.4f}", " + ".join(merge.left), " + ".join(merge.right)] for merge in seen.linkage]
    yield table_of(rows, words=(1, 2), wraps=(1, 2))
    if crossed := inverted(seen.linkage):
        yield f"note: {len(crossed)} of these lie below one that made a part of them, as centroids may"


def _reproduced(seen: CharacterizeAnswer) -> Iterator[Part]:
    if not seen.reproduce:
        return
    paper = figure3_groups()
    yield "Ours beside the paper's (Adolf et al. 2016, Figure 3: a CPU of eight threads, TensorFlow 0.8), per cent"
    rows = [["workload", "", *OPERATIONS, "H", "largest"]]
    missing = list(paper)
    for each in seen.compared:
        name = paper_name(each)
        if name not in paper:
            continue
        missing = [one for one in missing if one != name]
        ours = {group: each.groups[group].ratio for group in GROUPS}
        theirs = {group: cell / 100 for group, cell in paper[name].items()}
        largest = max(theirs, key=lambda group: theirs[group])
        same = "same" if largest == each.dominant else "another"
        rows.append([paper_label(each), "ours", *(whole(ours[group]) for group in GROUPS), f"{each.dominant}, {same}"])
        rows.append(["", "paper", *(whole(theirs[group]) for group in OPERATIONS), "", largest])
    yield table_of(rows, words=(0, 1, 10), wraps=(0, 1, 10))
    if missing:
        yield f"note: not recorded here: {', '.join(missing)}"
    yield "note: the paper's rows sum to 94 to 99; our H, and what PyTorch does as a view, is in none of its columns"
    yield "note: the work of F and H does not grow with the batch: at small sizes both are larger than in the paper"


def _steady(seen: CharacterizeAnswer) -> Iterator[Part]:
    if not seen.steadiness:
        return
    yield "Steps one after another, without the profiler: level and spread"
    level = [["workload", "mode", "steps", "first", "median", "95 %", "spread", "95 %"]]
    trend = [["workload", "mode", "trend", "95 %", "p", "verdict"]]
    for recording, each in seen.steadiness:
        who = [recording.workload, recording.mode]
        around = _around(each.low_s, each.median_s, each.high_s)
        spread = [ratio(each.spread_ratio), in_range(each.spread_low, each.spread_high)]
        level.append([*who, str(each.n), _first(seen.data, recording), si_time(each.median_s), around, *spread])
        slope = [
            (DASH if each.trend_ratio is None else f"{100 * each.trend_ratio:+.0f} %"),
            in_range(each.trend_low, each.trend_high, signed=True),
        ]
        trend.append([*who, *slope, DASH if each.p_value is None else f"{each.p_value:.2g}", each.verdict])
    yield table_of(level, words=(0, 1), wraps=(0, 1))
    yield "A trend over all of these steps (Mann-Kendall)"
    yield table_of(trend, words=(0, 1), wraps=(0, 1))


def _around(low_s: float | None, middle_s: float, high_s: float | None) -> str:
    """An interval as how far its ends are from the middle."""
    if low_s is None or high_s is None:
        return DASH
    return in_range(low_s / middle_s - 1, high_s / middle_s - 1, signed=True)


def _first(data: Characterization, recording: WorkloadRecording) -> str:
    """The very first step, that warms up."""
    times = [s.time_s for s in data.steps if (s.recording, s.part, s.step) == (recording.recording, WARM_UP, 0)]
    return si_time(times[0]) if times else DASH


def _against(seen: CharacterizeAnswer) -> Iterator[Part]:
    if len({(each.mode, each.device) for each in seen.against}) < 2:
        return
    yield "Training against inference: a step, and ÷ training on the CPU"
    ways = list(dict.fromkeys((each.device, each.mode) for each in seen.against))
    rows = [["workload", *(text for device, mode in ways for text in (f"{mode}, {device}", "÷"))]]
    for workload in dict.fromkeys(each.workload for each in seen.against):
        mine = {(each.device, each.mode): each for each in seen.against if each.workload == workload}
        cells = []
        for way in ways:
            each = mine.get(way)
            cells += [DASH, DASH] if each is None else [si_time(each.step_s), times(each.ratio)]
        rows.append([workload, *cells])
    yield table_of(rows, words=(0,), wraps=(0,))


def _lost(seen: CharacterizeAnswer) -> Iterator[Part]:
    for each in seen.data.recordings:
        if each.status != "ok":
            words = STATUS_WORDS.get(each.status, each.status)
            yield f"not recorded: {each.workload}, {each.mode}, {each.device}, for {each.why}: {words}: {each.reason}"
    profiled = [each.profiled_s / each.step_s for each in seen.mixes if each.step_s]
    if profiled and max(profiled) > 1.1:
        few, most = f"{min(profiled):.2f}", f"{max(profiled):.2f}"
        yield f"note: under the profiler steps took {few if few == most else f'{few} to {most}'} times as long"
    yield from _slow(seen.data)
    yield from _cost(seen.data)
    yield from (f"note: {note}" for note in seen.notes)


def _slow(data: Characterization) -> Iterator[Part]:
    """Steps that took much longer than their neighbours."""
    for each in slow_steps(data):
        took, usual = each.step.time_s, each.others_s
        yield (
            f"note: {each.recording.workload}, {each.recording.mode}: of its {each.step.part} steps number "
            f"{each.step.step + 1} took {si_time(took)}, {took / usual:.1f} times as long as the others"
            f"{REASONS[each.busy]}"
        )


def _cost(data: Characterization) -> Iterator[Part]:
    """Where this was recorded, and what it took."""
    of = {(each.torch_version, each.device, each.device_name) for each in data.recordings if each.torch_version}
    for version, device, name in sorted(of):
        yield f"note: recorded with PyTorch {version} on {device}{f' ({name})' if name else ''}"
    took = [each.took_s for each in data.recordings if each.took_s is not None]
    held = [each.peak_memory_bytes for each in data.recordings if each.peak_memory_bytes and each.device == "cpu"]
    if took:
        memory = f", each in at most {si(max(held), 'B')} of memory" if held else ""
        yield f"note: {len(took)} recordings of {si_time(sum(took))} together{memory}, one after the other"
