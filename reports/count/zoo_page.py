"""docs/counters.md from the accounts of a zoo: how far each counter is from the exact count, and by what causes.

Everything on the page is computed from accounts.csv and causes.csv; nothing is typed. Rows of counters that failed are
listed with their reason, so that failing cannot look like agreeing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from cleaning.accounts.vocabulary import CAUSES
from reports.shared import digits, markdown, markdown_table, si
from results.records import Account, AccountCause

PASSES = ("forward", "backward")
NOT_TRIED = re.compile(r"^not tried after a batch of \d+: ")

BY_CAUSE = ("cause", "what it is", "counters", "largest share of the exact count")
BY_COUNTER = ("counter", "pass", "counted", "failed", "unexplained", "× exact, lowest", "× exact, highest")


def page(accounts: Sequence[Account], causes: Sequence[AccountCause], versions: Mapping[str, str], source: str) -> str:
    """The page as Markdown."""
    ours = [account for account in accounts if account.counter != "flopledger"]
    models = list(dict.fromkeys(account.model for account in accounts))
    batches = sorted({account.batch_size for account in accounts})
    counted = {size: len({a.model for a in accounts if a.batch_size == size}) for size in batches}
    return markdown(
        "counters",
        models=len(models),
        batches=", ".join(f"{size} ({count} models)" for size, count in counted.items()),
        versions=", ".join(f"{name} {version}" for name, version in versions.items()) or "unknown",
        source=source,
        counters=_table(BY_COUNTER, _counters(ours)),
        causes=_table(BY_CAUSE, _causes(accounts, causes)),
        first_batch=batches[0],
        by_model=_models(accounts, models, batches[0]),
        failures=_table(("counter", "models", "reason", "for example"), _failures(accounts)),
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return markdown_table(header, ([cell.replace("|", "¦") for cell in row] for row in rows))


def _counters(accounts: Sequence[Account]) -> Iterable[Sequence[str]]:
    groups: defaultdict[tuple[str, str], list[Account]] = defaultdict(list)
    for account in accounts:
        groups[account.counter, account.phase].append(account)
    for (counter, phase), rows in groups.items():
        counted = [row for row in rows if row.status == "ok"]
        fine = [row for row in counted if row.flop_ratio is not None]
        left = max((abs(row.unexplained_flop) for row in fine if row.unexplained_flop is not None), default=None)
        ordered = sorted(fine, key=lambda row: row.flop_ratio or 0)
        ends = [f"{digits(row.flop_ratio or 0, 4)} ({row.model})" for row in (ordered[:1] + ordered[-1:])] or ["", ""]
        shown = "unknown" if left is None else f"{left:,}" if not left else f"**{left:,}**"
        yield counter, phase, str(len(counted)), str(len(rows) - len(counted)), shown, ends[0], ends[-1]


def _causes(accounts: Sequence[Account], causes: Sequence[AccountCause]) -> Iterable[Sequence[str]]:
    exact = {_key(account): account.exact_flop for account in accounts}
    shares: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    sums: defaultdict[tuple[tuple[str, int, str, str], str], float] = defaultdict(float)
    for cause in causes:
        sums[_key(cause), cause.cause] += cause.flop
    for (key, name), flop in sums.items():
        if whole := exact.get(key):
            counter = key[2]
            shares[name][counter] = max(shares[name][counter], abs(flop) / whole)
    for name, words in CAUSES.items():
        if name in shares:
            ordered = sorted(shares[name].items(), key=lambda item: -item[1])
            yield (
                name.replace("_", " "),
                words,
                ", ".join(counter for counter, _ in ordered),
                (f"{_percent(ordered[0][1])} ({ordered[0][0]})"),
            )


def _percent(share: float) -> str:
    return f"{digits(share * 100, 3)} %"


def _key(row: Account | AccountCause) -> tuple[str, int, str, str]:
    return row.model, row.batch_size, row.counter, row.phase


def _models(accounts: Sequence[Account], models: Sequence[str], batch: int) -> str:
    found = {_key(account): account for account in accounts}
    counters = list(dict.fromkeys(account.counter for account in accounts if account.counter != "flopledger"))
    rows = []
    for model in models:
        exact = [found.get((model, batch, "flopledger", phase)) for phase in PASSES]
        forward, backward = (0 if row is None else row.exact_flop for row in exact)
        if forward == 0:
            continue
        cells = [_cell(found, model, batch, counter) for counter in counters]
        ratio = "–" if forward is None or backward is None else digits(backward / forward, 4)
        rows.append((model, _exact(forward, exact[0]), ratio, *cells))
    return _table(("model", "exact forward", "backward ÷ forward", *counters), rows)


def _exact(flop: int | None, row: Account | None) -> str:
    """A pass's FLOP; what is known of them, "≥", where a part has no count."""
    if flop is not None:
        return si(flop, "FLOP")
    return "–" if row is None or row.at_least_flop is None else f"≥ {si(row.at_least_flop, 'FLOP')}"


def _cell(found: Mapping[tuple[str, int, str, str], Account], model: str, batch: int, counter: str) -> str:
    parts = []
    for phase in PASSES:
        row = found.get((model, batch, counter, phase))
        if row is None:
            continue
        text = "–" if row.flop_ratio is None else digits(row.flop_ratio, 4)
        parts.append(f"**{text}**, unexplained" if row.unexplained_flop else text)
    return " ¦ ".join(parts) or "–"


def _failures(accounts: Sequence[Account]) -> Iterable[Sequence[str]]:
    groups: defaultdict[tuple[str, str], list[Account]] = defaultdict(list)
    for account in accounts:
        if account.status != "ok":
            groups[account.counter, f"{account.status}: {_short(account.reason)}"].append(account)
    for (counter, reason), rows in sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]))):
        models = list(dict.fromkeys(row.model for row in rows))
        yield counter, str(len(models)), reason, models[0]


def _short(reason: str) -> str:
    """The first words of a reason: what an exception says before it names nodes and sizes. A batch that was not tried
    after another has the other's."""
    cause = NOT_TRIED.sub("", reason.partition("While executing")[0])
    return " ".join(cause.split())[:110]
