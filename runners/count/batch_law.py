"""`runners.count MODEL --law`: every counter's number as a line in the batch, a·b + c, and what breaks it.

The exact count is traced on fake tensors at 1, 2, 4 and 32. Counters run on real tensors as their users run them, at 1,
2, 4 and, to check the line, at 16 or what `--law-check` says. Nothing is fitted, and nothing is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from results.errors import Unavailable
from runners.workers.any_model import FACTORY, TRAINER

if TYPE_CHECKING:
    from results.records.accounts import AccountLaw

BATCHES = (1, 2, 4)
"""That the line is drawn through."""

EXACT_CHECK = 32
"""At which the exact one is checked: fake tensors need no memory."""

FAULTS: Mapping[str, type[Exception]] = {"unavailable": Unavailable, "invalid": ValueError}
"""Status of a process that gave nothing → what is raised."""


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
    from cleaning.accounts.account.batch_law import counter_laws, exact_laws
    from measure.counters.harness.isolation import count_isolated, record_isolated

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
