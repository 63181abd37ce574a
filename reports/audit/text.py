"""What frameworks say of a model as text, CSV or documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from analysis.audit import CAUSES, CONVENTIONS, Answer, Model, backward_flop, forward_parts
from reports.shared import WIDTH, Hanging, Part, csv_text, page, table_of

COLUMNS = (
    "model", "family", "tokens", "framework", "version", "how", "status", "reason", "exact_flop", "flop", "ratio",
    "causes", "unexplained_flop",
)  # fmt: skip
"""Fields of a row that are printed."""


def document(model: Model, tokens: int, answers: Sequence[Answer]) -> dict[str, Any]:
    """One model as a JSON document: whole numbers are exact, unknown is None."""
    exact = {}
    for convention in CONVENTIONS:
        exact[convention] = {
            "forward_flop": sum(forward_parts(model, tokens, convention).values()),
            "backward_flop": backward_flop(model, tokens, convention),
        }
    rows = [answer for answer in answers if answer.model == model.name]
    return {
        "model": model.name,
        "family": model.family,
        "source": model.source,
        "tokens": tokens,
        "attention": CONVENTIONS[0],
        "exact": exact,
        "frameworks": [_framework(answer) for answer in rows],
    }


def _framework(answer: Answer) -> dict[str, Any]:
    return {
        "framework": answer.framework,
        "version": answer.version or None,
        "how": answer.how,
        "status": answer.status,
        "reason": answer.reason,
        "flop": answer.flop,
        "ratio": answer.ratio,
        "causes": [{"cause": cause, "flop": flop} for cause, flop in answer.causes.items()],
        "unexplained_flop": answer.unexplained_flop,
        "shims": list(answer.shims),
    }


def to_csv(answers: Sequence[Answer]) -> str:
    """The rows as CSV."""
    return csv_text(COLUMNS, ([_cell(answer, name) for name in COLUMNS] for answer in answers))


def _cell(answer: Answer, name: str) -> Any:
    value = getattr(answer, name)
    return json.dumps(dict(value), separators=(",", ":")) if name == "causes" else value


def to_text(answers: Sequence[Answer], width: int = WIDTH, colour: bool = False) -> str:
    """The rows as a table, the farthest from the exact count first, and what their causes mean."""
    found = sorted((a for a in answers if a.ratio is not None), key=lambda a: -distance(a))
    cells = [[a.model, a.framework, a.version, a.how, ratio(a), causes(a), str(a.unexplained_flop)] for a in found]
    heads = ["model", "framework", "version", "how", "ratio", "causes, the largest first", "unexplained"]
    parts: list[Part] = [table_of([heads, *cells], words=(0, 1, 2, 3, 5), wraps=(5,), keep=7), ""]
    parts.append("Ratio: FLOP that the framework's formula gives ÷ the exact dense count of one training step.")
    named = {cause for answer in found for cause in answer.causes}
    parts += [Hanging(f"  {cause}", meaning, 30) for cause, meaning in CAUSES.items() if cause in named]
    missing = {(a.framework, a.reason): a for a in answers if a.ratio is None}
    parts += [Hanging(f"  {name}", f"no number: {reason}", 30) for name, reason in missing]
    return page(parts, width, colour)


def distance(answer: Answer) -> float:
    """How far from the exact count: 2 × and half are as far. A ratio of 0 is the farthest."""
    if not answer.ratio:
        return float("inf")
    return max(answer.ratio, 1 / answer.ratio)


def ratio(answer: Answer) -> str:
    """With three digits behind the point, "exact" where it is so to the last FLOP."""
    if answer.flop == answer.exact_flop:
        return "exact"
    return f"{answer.ratio:.3f}"


def causes(answer: Answer) -> str:
    """Their words, the largest first."""
    return ", ".join(sorted(answer.causes, key=lambda cause: -abs(answer.causes[cause]))) or "-"
