"""Which products of a recording have a count, in each state.

A product has none where its sizes give none and the recording leaves a kernel of it that makes products without a
number; 0 is what recorders write for what they could not work out. A number that the recording gives and no sizes can
check counts as it is, once.
"""

from __future__ import annotations

from analysis.trace.kernel_names import makes_products
from analysis.trace.operations import is_product
from cleaning.counts.steps import known_sum
from cleaning.trace.products import Part, Product
from cleaning.trace.undercounts import repaired_flop

FIELDS = {"raw": "found", "deduplicated": "deduplicated", "repaired": "repaired"}
"""State → the field of a part that has its number."""


def count_of(product: Product, state: str) -> int | None:
    """FLOP of a product in a state; None if it has no count there, or one that leaves out a part of it."""
    if state == "repaired" and (not product.parts or product.expected is not None):
        return repaired_flop(product)
    known = known_sum(getattr(part, FIELDS[state]) for part in product.parts)
    if product.expected is not None:
        return known
    return None if any(_lacks_number(part) for part in product.parts) else known or None


def _lacks_number(part: Part) -> bool:
    """Whether a row makes products and the recording gives it no number; 0 is what recorders write for unknown."""
    makes = is_product(part.name) if part.what == "call" else part.what == "kernel" and makes_products(part.name)
    return makes and not part.twin and not part.found


def known_part(product: Product, state: str) -> int | None:
    """FLOP of what is known of a product: at least that much."""
    if state == "repaired" and not product.parts:
        return repaired_flop(product)
    return known_sum(getattr(part, FIELDS[state]) for part in product.parts)
