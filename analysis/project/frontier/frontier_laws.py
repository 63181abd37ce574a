"""First-order laws of a domain's model: fitted to its exact formulas over a sweep of widths, and their limits.

The sweep goes from an eighth of the projected size to that size and from a quarter to four times the sub-batch. A limit
is what the exact formula tends to as the model grows, at the domain's sub-batch; a fit lies below or above it as far as
embeddings and activations still weigh.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from analysis.project.frontier import first_order
from analysis.project.frontier.accelerator import Accelerator
from analysis.project.frontier.domain import Domain
from analysis.project.frontier.frontier import cost_of
from analysis.project.frontier.shipped_formulas import Formulas

FAR = 2**70
"""A width so large that a formula there is its limit to fifteen digits."""

SPAN = 8
"""The widths of a sweep are this many times apart: the parameters, 64 times."""

WIDTHS = 9
BATCHES = (0.25, 1.0, 4.0)


def fitted(domain: Domain, formulas: Formulas, target: Accelerator, grown: int) -> first_order.Fit:
    """The laws of the sweep up to this size."""
    return first_order.fit(list(sweep(domain, formulas, target, grown)))


def sweep(
    domain: Domain, formulas: Formulas, target: Accelerator, grown: int, widths: int = WIDTHS
) -> Iterator[first_order.Point]:
    """Exact steps at widths of equal ratio up to `grown`; the footprint at the sub-batch alone."""
    own = max(1, grown // SPAN)
    for step in range(widths):
        width = round(own * (grown / own) ** (step / (widths - 1)))
        for share in BATCHES:
            batch = max(1, round(domain.sub_batch * share))
            cost = cost_of(domain, formulas, target, width, batch)
            held = cost["footprint_bytes"] if batch == domain.sub_batch else None
            yield first_order.Point(cost["parameters"], batch, cost["flop"], cost["moved_bytes"], held)


def asymptote(domain: Domain, formulas: Formulas, element_bytes: int = 4) -> dict[str, float]:
    """gamma, lambda, mu and delta of a model as it grows without end, at the domain's sub-batch.

    mu: the part of the bytes that grows with the batch, over √p. delta: of what is kept for the backward pass and of a
    gradient of each parameter. element_bytes: of a number in memory.
    """
    share = element_bytes / formulas.element_bytes

    def at(quantity: str, batch: int) -> float:
        return float(formulas.exact(quantity, **{**domain.sizes_at(FAR), "batch": batch}))

    batch = domain.sub_batch
    here = {**domain.sizes_at(FAR)}
    size = at("parameters", batch)
    one, two = (formulas.exact("bytes_accessed", **{**here, "batch": each}) for each in (batch, batch + 1))
    return {
        "gamma": at("all_flop", batch) / size / batch,
        "lambda": share * float(one) / size,
        "mu": share * float(two - one) / math.sqrt(size),
        "delta": share * at("kept_bytes", batch) / size + element_bytes,
    }
