"""Which products of a recording have a count, in each state.

A product has none where its sizes give none and the recording leaves a kernel of it that makes products without a
number; 0 is what recorders write for what they could not work out. A number that the recording gives and no sizes can
check counts as it is, once. Where a device's counters measured instructions of fp32 a product on tensor units has none.
"""

from __future__ import annotations

import re

from analysis.trace import is_product, makes_products
from cleaning.counts import known_sum
from cleaning.trace.products import Part, Product
from cleaning.trace.undercounts import repaired_flop

TENSOR_UNITS = re.compile(
    r"tensorop|[hiqw]g?mma_|mfma|tf32|xf32|bf16|fp16|half|[hs](?:884|1688|16816)|nvjet", re.IGNORECASE
)
"""In the names of kernels that run on tensor units."""

FIELDS = {"raw": "found", "deduplicated": "deduplicated", "repaired": "repaired"}
"""State → the field of a part that has its number."""


def count_of(product: Product, state: str) -> int | None:
    """FLOP of a product in a state; None if it has no count there, or one that leaves out a part of it."""
    if state == "repaired" and (not product.parts or (product.expected is not None and not product.measured)):
        return repaired_flop(product)
    known = known_sum(getattr(part, FIELDS[state]) for part in product.parts)
    if product.expected is not None and not product.measured:
        return known
    return None if any(_lacks_number(part, product.measured) for part in product.parts) else known or None


def _lacks_number(part: Part, measured: bool) -> bool:
    """Whether a row makes products and the recording gives it no number; 0 is what recorders write for unknown.

    measured: by counters of instructions of fp32, which do not see what tensor units do.
    """
    makes = is_product(part.name) if part.what == "call" else part.what == "kernel" and makes_products(part.name)
    unseen = measured and bool(TENSOR_UNITS.search(part.name))
    return makes and not part.twin and (unseen or not part.found)


def known_part(product: Product, state: str) -> int | None:
    """FLOP of what is known of a product: at least that much."""
    if state == "repaired" and not product.parts:
        return repaired_flop(product)
    return known_sum(getattr(part, FIELDS[state]) for part in product.parts)
