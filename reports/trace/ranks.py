"""Writes the report on recordings of many ranks as text, as the JSON document of `runners.trace DIR`, and as a page.

`ranks_text`, `ranks_document` and `ranks_html` take a `RanksReport`. They show how a step's time is spent (computing,
communicating, idle) and which rank waits for which. The page is one file that needs no network. It has the same tables
as the terminal, but with every rank. It reads no clock, so that the same recordings give the same bytes. Nothing is
printed here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from analysis.rank_report import CollectiveTotal, RanksReport, RankSummary
from reports.shared.html import PageVerdict, Section, document, page_table
from reports.shared.layout import WIDTH, Part, TableColumn, TextTable, page, strong
from reports.shared.numbers import DASH, digits, percent, si, si_time

MOST_RANKS = 16
"""Maximum number of ranks in a table in the terminal. The ranks that communicate least without computing are shown,
since the others wait for them; the JSON document has all ranks."""

MOST_ROWS = 8


def ranks_text(report: RanksReport, width: int = WIDTH, colour: bool = False) -> str:
    """Return the whole answer as text."""
    parts: list[Part] = [*(strong(line) for line in headings(report)), "", ranks_table(report.ranks), ""]
    if len(report.ranks) > MOST_RANKS:
        parts += [f"{len(report.ranks) - MOST_RANKS} more ranks are in --format json.", ""]
    for heading, table in (
        ("Who waits for whom in collectives, of a step:", waits_table(report)),
        ("Collectives of a step, mean of the ranks that have them:", collectives_table(report.collectives)),
    ):
        if table.rows:
            parts += [heading, "", table, ""]
    return page([*parts, *notes(report)], width, colour)


def ranks_document(report: RanksReport) -> dict[str, Any]:
    """Return the JSON document. Seconds and FLOP are those of a mean step; None: unknown."""
    return {
        "ranks": [
            {
                **{name: getattr(row.timeline, name) for name in ("rank", "path", "host", "device_name")},
                "steps": len(row.timeline.steps),
                **asdict(row.time),
                "flop": row.flop.flop,
                "reason": row.flop.reason,
                "flop_per_s": row.flop_per_s,
                "peak_flop_per_s": row.flop.peak_flop_per_s,
                "utilization_ratio": row.utilization_ratio,
            }
            for row in report.ranks
        ],
        "world_size": report.world_size,
        "steps": list(report.steps),
        "step_time_s": report.step_time_s,
        "flop_per_s": report.flop_per_s,
        "utilization_ratio": report.utilization_ratio,
        "imbalance_ratio": report.imbalance_ratio,
        "straggler": None if report.straggler is None else asdict(report.straggler),
        "waits": [asdict(wait) for wait in report.waits],
        "collectives": [asdict(total) for total in report.collectives],
        "clock_shifts": [asdict(shift) for shift in report.shifts],
        "problems": list(report.problems),
    }


def headings(report: RanksReport) -> list[str]:
    """Return lines: how many ranks and steps, the length of a step and what fills it, and which rank is waited for."""
    of = f" of {report.world_size}" if report.world_size and report.world_size != len(report.ranks) else ""
    steps = f"{len(report.steps)} steps" if report.steps else "no step that all have marked"
    window = sum(row.time.window_s for row in report.ranks)
    shares = {
        name: sum(getattr(row.time, f"{name}_s") for row in report.ranks) / window
        for name in ("compute", "exposed", "idle")
    }
    what = "A step" if report.steps else "The recording"
    lines = [
        f"{len(report.ranks)}{of} ranks, {steps}",
        f"{what} takes {si_time(report.step_time_s)} on the slowest rank. On average a rank computes for "
        f"{percent(shares['compute'])} of it, communicates without computing for {percent(shares['exposed'])} and is "
        f"idle for {percent(shares['idle'])}.",
    ]
    if report.utilization_ratio is not None:
        rate = si(report.flop_per_s or 0.0, "FLOP/s")
        lines.append(f"All ranks together reach {rate}, {percent(report.utilization_ratio)} of the sum of their peaks.")
    if (late := report.straggler) is not None:
        since = f", in each step from {late.since} on" if late.since is not None and late.steps > 1 else ""
        lines.append(
            f"Rank {late.rank} is waited for: of the time that ranks wait in collectives, {percent(late.share)} is for "
            f"it{since} (most of all in {late.steps} of {late.of_steps} steps)."
        )
    return lines


def ranks_table(rows: Sequence[RankSummary], most: int = MOST_RANKS) -> TextTable:
    """Return a row for each rank, for a mean step. If there are more than `most` ranks, those that communicate least
    without computing are shown."""
    columns = [TableColumn(name, right=True) for name in ("rank", "step", "compute", "exposed", "overlapped")]
    columns += [TableColumn("copies", right=True, rank=3), TableColumn("idle", right=True)]
    columns += [
        TableColumn("GFLOP", right=True, rank=2),
        TableColumn("GFLOP/s", right=True, rank=1),
        TableColumn("used", right=True),
    ]
    latest = sorted(rows, key=lambda row: row.time.exposed_s)[:most]
    return TextTable(columns, [_cells(row) for row in sorted(latest, key=lambda row: row.timeline.rank)])


def _cells(row: RankSummary) -> list[str]:
    time = row.time
    parts = (time.compute_s, time.exposed_s, time.overlapped_s, time.memory_s, time.idle_s)
    rate, used = row.flop_per_s, row.utilization_ratio
    return [
        str(row.timeline.rank),
        si_time(time.window_s),
        *(percent(part / time.window_s) for part in parts),
        DASH if row.flop.flop is None else digits(row.flop.flop / 1e9),
        DASH if rate is None else digits(rate / 1e9),
        DASH if used is None else percent(used),
    ]


def waits_table(report: RanksReport, most: int | None = MOST_ROWS) -> TextTable:
    """Return the longest waits; None: all."""
    rows = [
        [str(wait.rank), str(wait.for_rank), si_time(wait.wait_s), digits(wait.collectives)]
        for wait in report.waits[:most]
        if wait.wait_s
    ]
    return TextTable([TableColumn(name, right=True) for name in ("rank", "waits for", "time", "collectives")], rows)


def collectives_table(totals: Iterable[CollectiveTotal]) -> TextTable:
    """Return a row for each kind and size of group."""
    groups: dict[tuple[str, int | None], list[CollectiveTotal]] = {}
    for total in totals:
        groups.setdefault((total.kind, total.group_size), []).append(total)
    rows = []
    for (kind, size), same in sorted(groups.items(), key=lambda item: -sum(total.time_s for total in item[1])):
        known = [total.nbytes for total in same if total.nbytes is not None]
        count = len(same)
        rows.append(
            [
                kind,
                DASH if size is None else str(size),
                digits(sum(total.calls for total in same) / count),
                si(sum(known) / count, "B") if len(known) == count else DASH,
                si_time(sum(total.time_s for total in same) / count),
            ]
        )
    columns = [
        TableColumn("kind", right=False),
        *(TableColumn(name, right=True) for name in ("ranks", "calls", "bytes", "time")),
    ]
    return TextTable(columns, rows)


def notes(report: RanksReport) -> list[str]:
    """Return notes on unknowns, and the recordings' problems."""
    lines = []
    if moved := [shift for shift in report.shifts if shift.shift_s]:
        most = max(moved, key=lambda shift: abs(shift.shift_s))
        spread = max(shift.spread_s or 0.0 for shift in moved)
        lines.append(
            f"Clocks of {len(moved)} ranks were set by the ends of collectives (the most, of rank {most.rank}, by "
            f"{digits(most.shift_s)} s); ends still differ by {si_time(spread)}: waits of that size are not known."
        )
    if report.world_size and len(report.ranks) < report.world_size:
        lines.append(f"Waits for the {report.world_size - len(report.ranks)} ranks without a recording are not known.")
    if not any(row.timeline.device for row in report.ranks):
        lines.append("Without a device, computing is the operator calls on the host.")
    reasons = dict.fromkeys(row.flop.reason for row in report.ranks if row.flop.flop is None and row.flop.reason)
    lines += [f"FLOP are not known: {reason}." for reason in reasons]
    return lines + [f"note: {problem}" for problem in report.problems]


def ranks_html(report: RanksReport) -> str:
    """Return the whole document."""
    named, sentence, *more = headings(report)
    ranks = ranks_table(report.ranks, len(report.ranks))
    sections = (
        Section("ranks", "Ranks", (*more, page_table(ranks, _SHARES))),
        Section("waits", "Waits", (page_table(waits_table(report, None), _WAITS),)),
        Section("collectives", "Collectives", (page_table(collectives_table(report.collectives), _MOVED),)),
        Section("notes", "What is not known", (tuple(notes(report)),)),
    )
    hosts = tuple(dict.fromkeys(row.timeline.host for row in report.ranks if row.timeline.host))
    devices = tuple(dict.fromkeys(row.timeline.device_name for row in report.ranks if row.timeline.device_name))
    rests_on = [(name, lines) for name, lines in (("hosts", hosts), ("devices", devices)) if lines]
    return document(f"flopledger · trace · {named}", PageVerdict(sentence, named, rests_on), sections)


_SHARES = "A step of each rank on average, and its parts as shares of it; overlapped is a part of compute"
_WAITS = "Who waits for whom in collectives, of a step, the longest first"
_MOVED = "Collectives of a step, mean of the ranks that have them"
