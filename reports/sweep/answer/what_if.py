"""The table of `--what-if`: changes of a training step, ranked by what each brought, and why others have no number.

It says what was measured, not why a change helped.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from reports.shared import DASH, WIDTH, Column, Part, TextTable, digits, fitting, page, si, si_time, strong
from results.records import UNCHANGED, ChangeTrial

NAME_LETTERS = 20

MEANING = (
    "speed: samples per second with the change ÷ without it, each change alone, its blocks interleaved with "
    "those of the unchanged step, in one process; memory: what a step holds at its highest. A change may alter what "
    "is computed."
)


def what_if_text(rows: Sequence[ChangeTrial], width: int = WIDTH, colour: bool = False) -> str:
    """A table for each cell, under what it is of, and a sentence that says what the columns mean."""
    parts: list[Part] = []
    for _, group in itertools.groupby(rows, key=_cell):
        parts += [*_of_cell(list(group)), ""]
    return page([*parts, MEANING] if parts else ["No change was tried."], width, colour)


def verdict_of(row: ChangeTrial) -> str:
    """What its interval says: faster or slower, if 1 is not in it."""
    if row.change == UNCHANGED:
        return "as it is"
    if row.low is None or row.high is None:
        return "no interval"
    word = "faster" if row.low > 1 else "slower" if row.high < 1 else "not distinguished"
    return word if row.status == "ok" else f"{word}, wide"


def _cell(row: ChangeTrial) -> tuple[str, int | None, str, str]:
    return row.model, row.batch_size, row.precision, row.device


def _of_cell(rows: Sequence[ChangeTrial]) -> Iterator[Part]:
    first = rows[0]
    batch = f"batch {first.batch_size}" if first.batch_size is not None else ""
    named = next((row.device_name for row in rows if row.device_name), "")
    yield strong(" · ".join(filter(None, (first.model, batch, first.precision, first.device, named))))
    yield ""
    known = [row for row in rows if row.ratio is not None]
    if known:
        change, verdict = Column("change", right=False, wraps=True), Column("verdict", right=False, wraps=True)
        speed = (Column("speed", right=True), Column("95 % interval", right=True))
        beside = (Column("step", right=True, rank=2), Column("memory", right=True, rank=1))
        yield TextTable((change, *speed, *beside, verdict), list(map(_line, known)), rule=False)
    for row in rows:
        if row.ratio is None:
            yield f"{row.change}: {row.status}: {row.reason}"


def _line(row: ChangeTrial) -> tuple[str, ...]:
    assert row.ratio is not None
    interval = DASH if row.low is None or row.high is None else f"{digits(row.low)} to {digits(row.high)}"
    return (
        fitting(row.change, NAME_LETTERS),
        f"{digits(row.ratio)} ×",
        interval,
        DASH if row.step_time_s is None else si_time(row.step_time_s),
        DASH if row.memory_bytes is None else si(row.memory_bytes, "B"),
        verdict_of(row),
    )
