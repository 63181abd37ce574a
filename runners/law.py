"""`runners.count MODEL --law`: every counter's number as a line in the batch, a·b + c, and what breaks it.

The exact count is traced on fake tensors at 1, 2, 4 and 32. Counters run on real tensors as their users run them, at 1,
2, 4 and, to check the line, at 16 or what `--law-check` says. Nothing is fitted and nothing else is printed here than
what the laws say.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from results.errors import Unavailable

if TYPE_CHECKING:
    from results.accounts import AccountLaw

BATCHES = (1, 2, 4)
"""That the line is drawn through."""

EXACT_CHECK = 32
"""At which the exact one is checked: fake tensors need no memory."""

FAULTS: Mapping[str, type[Exception]] = {"unavailable": Unavailable, "invalid": ValueError}
"""Status of a process that gave nothing → what is raised."""

FACTORY, TRAINER = "runners.counted:get", "runners.counted:training"


def laws(
    model: str,
    hyper: Mapping[str, Any],
    counters: Sequence[str],
    check: int,
    timeout_s: float,
    say: Callable[[str], None],
) -> list[AccountLaw]:
    """The laws of one model, the exact count's first. say: progress.

    Raises ValueError for a model that cannot be built, Unavailable where it needs what is not here, RuntimeError where
    its process died or ran past its limit.
    """
    from cleaning.accounts.law import counter_laws, exact_laws
    from measure.counters.isolate import count_isolated, record_isolated

    sizes = (*BATCHES, EXACT_CHECK)
    say(f"{model}: tracing at {', '.join(map(str, sizes))}")
    traced, failure = record_isolated(
        model, hyper, sizes, timeout_s, factory=FACTORY, trainer=TRAINER, only_training=True
    )
    if not traced and failure is not None:
        raise FAULTS.get(failure.status, RuntimeError)(failure.reason.removeprefix("ValueError: "))
    found = exact_laws(model, traced, sizes)
    for counter in counters:
        say(f"{model}: {counter}")
        asked = tuple(sorted({*BATCHES, check}))
        found += counter_laws(model, count_isolated(counter, model, hyper, asked, timeout_s, factory=FACTORY))
    return found


def tell(answers: Sequence[tuple[str, Sequence[AccountLaw]]], options: Namespace) -> None:
    """Data on stdout, and laws.csv where a directory was asked for. Raises StoreFault."""
    from runners import account_files

    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    print(show(answers, options, sys.stdout.isatty()), end="")
    if options.out is not None:
        account_files.put(options.out, {"laws.csv": _csv(answers)})


def show(answers: Sequence[tuple[str, Sequence[AccountLaw]]], options: Namespace, colour: bool) -> str:
    """The laws of all models in the format that was asked for."""
    import json

    from reports.laws import document, to_text

    if options.format == "json":
        documents = [document(model, found) for model, found in answers]
        return json.dumps(documents[0] if len(options.models) == 1 else documents, indent=1, allow_nan=False) + "\n"
    if options.format == "csv":
        return _csv(answers)
    return "\n".join(to_text(model, found, colour=colour, detail=options.detail) for model, found in answers)


def _csv(answers: Sequence[tuple[str, Sequence[AccountLaw]]]) -> str:
    from reports.tables import to_csv
    from results.accounts import AccountLaw

    return to_csv([law for _, found in answers for law in found], AccountLaw)
