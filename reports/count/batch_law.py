"""The law of the batch by counter, as a table for people and as JSON: a FLOP a sample, c FLOP a batch, what breaks it.

Numbers are written in full: a law holds to the unit or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from reports.shared.layout import WIDTH, Cell, Column, Styled, TextTable, page, strong
from reports.shared.numbers import STATUS_WORDS, fitting
from results.records.accounts import AccountLaw

PARTS = 6
"""Parts of one law that the table has without `detail`."""

SHOWN = "note: the constant is of "
"""What the rows of parts show already."""

_LETTERS = 40
_REASON_LETTERS = 240

_COLUMNS = (
    Column("counter", right=False, wraps=True),
    Column("pass"),
    Column("unit", rank=1),
    Column("a, a sample", right=True),
    Column("c, a batch", right=True),
    Column("holds"),
    Column("at batches", right=False, wraps=True, least=4),
)


def to_text(
    model: str, laws: Sequence[AccountLaw], width: int = WIDTH, colour: bool = False, detail: bool = False
) -> str:
    """The table of one model: a row a counter and pass, under it the parts that have a constant or break the law."""
    rows: list[list[Cell]] = []
    for law in laws:
        if not law.part:
            rows += _rows(law, _parts(laws, law), None if detail else PARTS)
    table = TextTable(_COLUMNS, rows, rule=False)
    return page([strong(f"{model}: the law of the batch, a · b + c"), table, *closing(laws)], width, colour)


def _rows(law: AccountLaw, parts: Sequence[AccountLaw], most: int | None) -> Iterator[list[Cell]]:
    if law.status != "ok":
        yield [law.counter, "", "", "", "", STATUS_WORDS.get(law.status, law.status), ""]
        return
    holds = Styled(held(law), "bold red" if law.holds is False else "")
    batches = ", ".join(map(str, law.batches))
    yield [law.counter, law.phase, law.native_unit, _number(law.slope), _number(law.constant), holds, batches]
    for part in parts[:most]:
        name = fitting(part.part, _LETTERS)
        yield [f"  {name}", "", "", _number(part.slope), _number(part.constant), held(part), ""]
    if rest := [] if most is None else parts[most:]:
        sums = (sum(part.slope or 0 for part in rest), sum(part.constant or 0 for part in rest))
        yield [f"  {len(rest)} more (--detail)", "", "", *(f"{each:,}" for each in sums), "", ""]


def held(law: AccountLaw) -> str:
    """Whether a law holds, in a word."""
    return {True: "yes", False: "no", None: "not known"}[law.holds]


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def _parts(laws: Sequence[AccountLaw], total: AccountLaw) -> list[AccountLaw]:
    return [law for law in laws if law.part and (law.counter, law.phase) == (total.counter, total.phase)]


def closing(laws: Sequence[AccountLaw]) -> list[str]:
    """A sentence for each law of which the table does not say all: broken, unknown, or explained."""
    lines = []
    for law in laws:
        if (
            words := ""
            if law.part
            else "; ".join(part for part in law.reason.split("; ") if not part.startswith(SHOWN))
        ):
            name = f"{law.counter}, {law.phase}" if law.status == "ok" else law.counter
            words = words.removeprefix("note: ")
            lines.append(f"{name}: {words if len(words) <= _REASON_LETTERS else words[:_REASON_LETTERS] + '…'}.")
    return lines


def document(model: str, laws: Sequence[AccountLaw]) -> dict[str, Any]:
    """The laws as JSON: every key is there, unknown is null."""
    totals = [law for law in laws if not law.part]
    return {"model": model, "laws": [{**_one(law), "parts": _laws_json(_parts(laws, law))} for law in totals]}


def _laws_json(parts: Sequence[AccountLaw]) -> list[dict[str, Any]]:
    keys = ("slope", "constant", "holds", "reason")
    return [{"part": part.part, **{key: _one(part)[key] for key in keys}} for part in parts]


def _one(law: AccountLaw) -> dict[str, Any]:
    return {
        "counter": law.counter,
        "phase": law.phase,
        "native_unit": law.native_unit or None,
        "batches": list(law.batches),
        "slope": law.slope,
        "constant": law.constant,
        "holds": law.holds,
        "status": law.status,
        "reason": law.reason or None,
    }
