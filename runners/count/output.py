"""What `runners.count` says: accounts or laws on stdout in the format asked for, and as files where `--out` is given.

Data alone is on stdout. Nothing is counted here.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.cli.output import put, show_page
from runners.cli.progress import passing

if TYPE_CHECKING:
    from reports.count.text import ModelCounts
    from results.records.accounts import Account, AccountCause, AccountLaw, AccountRatio

Laws = Sequence[tuple[str, Sequence["AccountLaw"]]]
"""(model, its laws)."""


def accounts(answers: Sequence[ModelCounts], options: Namespace) -> None:
    """The accounts of every model; with --out tables and pictures, too. Raises StoreFault."""
    passing("")
    show_page(lambda width, colour: accounts_text(answers, options, width, colour))
    if options.out is not None:
        from runners.count import output as count_output

        count_output.write(options.out, _accounts(answers), _causes(answers), _ratios(answers))


def laws(answers: Laws, options: Namespace) -> None:
    """The laws of every model; with --out laws.csv, too. Raises StoreFault."""
    passing("")
    show_page(lambda width, colour: laws_text(answers, options, width, colour))
    if options.out is not None:
        put(options.out / "laws.csv", _laws_csv(answers))


def accounts_text(answers: Sequence[ModelCounts], options: Namespace, width: int, colour: bool = False) -> str:
    """The accounts in the format that was asked for."""
    from reports.count.text import document, to_text
    from reports.sweep.table import to_csv
    from results.records.accounts import Account, AccountCause, AccountRatio

    if options.explain is not None:
        return _explanations(answers, options, width)
    if options.format == "json":
        return _json([document(answer) for answer in answers], options)
    if options.format == "table":
        texts = (to_text(each, width, colour, options.detail, options.ratios) for each in answers)
        return "\n".join(texts)
    if options.ratios:
        return to_csv(_ratios(answers), AccountRatio)
    if options.detail:
        return to_csv(_causes(answers), AccountCause)
    return to_csv(_accounts(answers), Account)


def _explanations(answers: Sequence[ModelCounts], options: Namespace, width: int) -> str:
    """Each number that was pasted, for each model."""
    from reports.count import pasted as count_pasted
    from reports.shared.layout import csv_of, page

    found = [(answer, count_pasted.explain(answer, each)) for answer in answers for each in options.pasted]
    documents = [{"model": answer.model, **count_pasted.document(each)} for answer, each in found]
    if options.format == "json":
        return json.dumps(documents, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if options.format == "csv":
        return csv_of(documents)
    return "\n".join(
        page([f"{answer.model}, batch {answer.batch_size}", *count_pasted.to_lines(answer, each)], width)
        for answer, each in found
    )


def _accounts(answers: Sequence[ModelCounts]) -> list[Account]:
    return [account for answer in answers for account in answer.accounts]


def _causes(answers: Sequence[ModelCounts]) -> list[AccountCause]:
    return [cause for answer in answers for cause in answer.causes]


def _ratios(answers: Sequence[ModelCounts]) -> list[AccountRatio]:
    return [row for answer in answers if answer.backward for row in answer.backward.ratios]


def laws_text(answers: Laws, options: Namespace, width: int, colour: bool = False) -> str:
    """The laws in the format that was asked for."""
    from reports.count.laws import batch_law_document, to_text

    if options.format == "json":
        return _json([batch_law_document(model, found) for model, found in answers], options)
    if options.format == "csv":
        return _laws_csv(answers)
    return "\n".join(to_text(model, found, width, colour, options.detail) for model, found in answers)


def _laws_csv(answers: Laws) -> str:
    from reports.sweep.table import to_csv
    from results.records.accounts import AccountLaw

    return to_csv([law for _, found in answers for law in found], AccountLaw)


def _json(documents: Sequence[Any], options: Namespace) -> str:
    """One document; of several models an array."""
    whole = documents[0] if len(options.models) == 1 else documents
    return json.dumps(whole, indent=1, allow_nan=False) + "\n"


def write(
    out: Path, accounts: Sequence[Account], causes: Sequence[AccountCause], ratios: Sequence[AccountRatio]
) -> None:
    """accounts.csv, causes.csv, ratios.csv; a waterfall of each model and pass, PNG and SVG. Raises StoreFault."""
    from reports.count import waterfall_figure
    from reports.shared import figure_style
    from reports.sweep.table import to_csv
    from results.records.accounts import Account, AccountCause, AccountRatio

    tables = {"accounts": to_csv(accounts, Account), "causes": to_csv(causes, AccountCause)}
    tables |= {"ratios": to_csv(ratios, AccountRatio)}
    for name, rows in tables.items():
        put(out / f"{name}.csv", rows)
    for name, content in figure_style.render_all(lambda: waterfall_figure.waterfalls(accounts, causes)).items():
        put(out / name, content)
