"""Laws of counts, as tables for people and as JSON: the law of the batch by counter, and the rule of 2.

The law of the batch is a FLOP a sample and c FLOP a batch, and what breaks it. Its numbers are written in full: a law
holds to the unit or not at all.

Backward ÷ forward is shown of the model, its kinds of operation and the counters beside the rule of 2. Under the table
stands why 3 × forward is not the step, reason by reason to the last FLOP, and what runs besides.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from cleaning.accounts.account.backward_ratio import EXACT, INPUT, REASONS, Backward, Missing
from reports.shared.layout import WIDTH, Cell, Column, Part, Styled, TextTable, page, strong
from reports.shared.numbers import STATUS_WORDS, digits, fitting, listed, si
from results.records.accounts import AccountLaw, AccountRatio

PARTS = 6
"""Parts of one law that the table has without `detail`."""

SHOWN = "note: the constant is of "
"""What the rows of parts show already."""

_LAW_LETTERS = 40
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
        name = fitting(part.part, _LAW_LETTERS)
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


def batch_law_document(model: str, laws: Sequence[AccountLaw]) -> dict[str, Any]:
    """The laws as JSON: every key is there, unknown is null."""
    keys = ("slope", "constant", "holds", "reason")
    documents = [
        {
            **_one(law),
            "parts": [{"part": part.part, **{key: _one(part)[key] for key in keys}} for part in _parts(laws, law)],
        }
        for law in laws
        if not law.part
    ]
    return {"model": model, "laws": documents}


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


RULE = 2
"""The rule of thumb."""

KINDS_OF_PRODUCT = ("convolution", "matmul", "attention", "recurrent")

_FULL = 1000
"""Smaller numbers are written in full."""

_SHOWN_MODULES = 3
_LETTERS = 32


def parts(backward: Backward) -> list[Part]:
    """The table and the sentences, for a page."""
    rows = [
        [
            _name(row),
            _flop(row.forward_flop),
            _flop(row.backward_flop),
            "" if row.ratio is None else f"{digits(row.ratio, 5)}",
            _beside(row),
        ]
        for row in backward.ratios
        if row.level in ("model", "kind")
    ]
    numbers = (Column(name, right=True) for name in ("forward", "backward", "ratio"))
    table = TextTable((Column("of", right=False), *numbers, Column("", right=False, wraps=True)), rows, rule=False)
    return ["", strong("backward ÷ forward, 2 by rule of thumb"), table, _closed(backward), *estimate(backward)]


def _name(row: AccountRatio) -> str:
    if row.level == "kind":
        return f"  {row.name}"
    return "exact" if row.source == EXACT else row.source


def _flop(flop: int | None) -> str:
    return "–" if flop is None else si(flop, "") if abs(flop) >= _FULL else str(flop)


def _beside(row: AccountRatio) -> str:
    """How far from the rule; of what a kind's numbers are where they are no products."""
    of_products = row.level == "model" or row.name in KINDS_OF_PRODUCT
    if row.ratio is None or not of_products:
        return "" if of_products else "no products: other FLOP"
    off = row.ratio / RULE - 1
    return "as the rule says" if not off else f"{'+' if off > 0 else '−'}{digits(100 * abs(off), 2)} %"


def _closed(backward: Backward) -> str:
    if backward.closed.ratio is not None:
        holds = f"{backward.closed.ratio:.6f}"
        return f"2 − first product ÷ forward = {holds}, which is the exact ratio."
    if backward.forward_flop and not backward.missing:
        return "Every product has both gradients, the first one too: the exact ratio is 2."
    return f"{backward.closed.reason[:1].upper()}{backward.closed.reason[1:]}."


def estimate(backward: Backward) -> list[str]:
    """What 3 × forward says of the step, why it is off, and what runs besides the products that are counted."""
    error = backward.estimate_error
    if error is None:
        return ["3 × forward says nothing: the forward pass has no product."]
    amount = si(3 * backward.forward_flop, "FLOP")
    if not backward.missing:
        why = ": an embedding takes the input, so that no product is without a gradient" if backward.embeds else ""
        lines = [f"3 × forward, {amount}, is exactly the step{why}."]
    else:
        why = ", because of" if error else ". These cancel out:"
        lines = [f"3 × forward, {amount}, is {_off(error)} the step{why}"]
        lines += [f"  {_missing(each)}" for each in backward.missing]
    extras = [
        (backward.again_flop, "calculated again by checkpointing"),
        (backward.scores_flop, "for the scores that fused attention calculates again in its backward pass"),
    ]
    parts = [f"{si(flop, 'FLOP')} {words}" for flop, words in extras if flop]
    if parts and backward.executed_error is not None:
        besides = f"Executed besides, and no model FLOP: {' and '.join(parts)}"
        lines.append(f"{besides}; 3 × forward is {_off(backward.executed_error)} what runs.")
    return lines


def _off(error: float) -> str:
    return "exactly" if not error else f"{digits(100 * abs(error), 2)} % {'above' if error > 0 else 'below'}"


def _missing(each: Missing) -> str:
    """The FLOP that one reason takes from 2 × forward, in full, and where."""
    where = listed([fitting(module or "the model itself", _LETTERS) for module in each.modules], _SHOWN_MODULES)
    lead = " (the first product's input is the data)" if each.reason == INPUT and len(each.modules) == 1 else ""
    return f"{each.flop:,} FLOP of {REASONS[each.reason]}: {where}{lead}"


def backward_document(backward: Backward) -> dict[str, Any]:
    """Backward ÷ forward as JSON: every key is there, unknown is null."""
    return {
        "ratio": backward.ratio,
        "closed_form_ratio": backward.closed.ratio,
        "closed_form_reason": backward.closed.reason or None,
        "three_times_forward_error": backward.estimate_error,
        "three_times_forward_executed_error": backward.executed_error,
        "recomputed_flop": backward.again_flop,
        "scores_again_flop": backward.scores_flop,
        "missing": [
            {"reason": each.reason, "flop": each.flop, "modules": list(each.modules)} for each in backward.missing
        ],
        "ratios": [
            {
                "source": row.source,
                "level": row.level,
                "name": row.name or None,
                "forward_flop": row.forward_flop,
                "backward_flop": row.backward_flop,
                "ratio": row.ratio,
            }
            for row in backward.ratios
            if row.level in ("model", "kind", "operation")
        ],
    }
