"""What `runners.count` says: accounts or laws on stdout in the format asked for, and as files where `--out` is given.

Data alone is on stdout. Nothing is counted here.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.cli.output import put, show_answer
from runners.cli.progress import passing

if TYPE_CHECKING:
    from reports.count.text import ModelCounts
    from results.records.accounts import Account, AccountCause, AccountLaw, AccountRatio

Laws = Sequence[tuple[str, Sequence["AccountLaw"]]]
"""(model, its laws)."""


def accounts(answers: Sequence[ModelCounts], options: Namespace) -> None:
    """The accounts of every model; with --out tables and pictures, too. Raises StoreFault."""
    from reports.count.text import document, to_text
    from reports.sweep.table import to_csv
    from results.records.accounts import Account, AccountCause, AccountRatio

    passing("")
    account_rows = [account for answer in answers for account in answer.accounts]
    causes = [cause for answer in answers for cause in answer.causes]
    ratios = [row for answer in answers if answer.backward for row in answer.backward.ratios]
    if options.explain is not None:
        _show_explanations(answers, options)
    else:
        show_answer(
            options.format,
            lambda width, colour: "\n".join(
                to_text(answer, width, colour, options.detail, options.ratios) for answer in answers
            ),
            lambda: _single_or_all([document(answer) for answer in answers], options),
            lambda: (
                to_csv(ratios, AccountRatio)
                if options.ratios
                else to_csv(causes, AccountCause)
                if options.detail
                else to_csv(account_rows, Account)
            ),
        )
    if options.out is not None:
        write(options.out, account_rows, causes, ratios)


def laws(answers: Laws, options: Namespace) -> None:
    """The laws of every model; with --out laws.csv, too. Raises StoreFault."""
    from reports.count.laws import batch_law_document, to_text
    from reports.sweep.table import to_csv
    from results.records.accounts import AccountLaw

    passing("")
    table = to_csv([law for _, found in answers for law in found], AccountLaw)
    show_answer(
        options.format,
        lambda width, colour: "\n".join(to_text(*answer, width, colour, options.detail) for answer in answers),
        lambda: _single_or_all([batch_law_document(*answer) for answer in answers], options),
        lambda: table,
    )
    if options.out is not None:
        put(options.out / "laws.csv", table)


def _show_explanations(answers: Sequence[ModelCounts], options: Namespace) -> None:
    """Each number that was pasted, for each model."""
    from reports.count.pasted import document, explain, to_lines
    from reports.shared.layout import csv_of, page

    found = [(answer, explain(answer, number)) for answer in answers for number in options.pasted]
    documents = [{"model": answer.model, **document(explained)} for answer, explained in found]
    show_answer(
        options.format,
        lambda width, _: "\n".join(
            page([f"{answer.model}, batch {answer.batch_size}", *to_lines(answer, explained)], width)
            for answer, explained in found
        ),
        lambda: documents,
        lambda: csv_of(documents),
    )


def _single_or_all(documents: Sequence[Any], options: Namespace) -> Any:
    """One document; of several models an array."""
    return documents[0] if len(options.models) == 1 else documents


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
