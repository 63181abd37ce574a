"""FLOP of attention whose masks leave out padding, from the pairs that the masks of its calls kept.

What a call costs is linear in those pairs, so that one number for each kind of call is all that a count has to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from analysis.operators import kept_pairs
from measure.fast_count import MaskedFlop
from measure.meter.calls import MaskPasses
from measure.model import BatchMask, with_mask

MASK_EXACT = "mask_exact"

UNREAD = "with read_masks=True the meter reads an attention_mask of (sequences, keys), of each pass in its own step"


class MaskedShare(NamedTuple):
    """Attention of one phase, unit and rule in a call. dense: its FLOP. of_pair: FLOP for each pair that masks keep."""

    phase: str
    unit: str
    rule: str
    dense: int
    of_pair: int


def masked_shares(
    masked: Iterable[tuple[str, str, MaskedFlop]], masks: Mapping[str, MaskPasses]
) -> tuple[MaskedShare, ...] | None:
    """What the pairs of masks are worth; None where the masks are not those of the attention.

    masked: (phase, unit, calls) of a kind of call. masks: rule → what was read, of which only the sizes matter.
    """
    found: dict[tuple[str, str, str], tuple[int, int]] = {}
    for phase, unit, (operation, rule, dense) in masked:
        one = BatchMask(keys=masks[rule].keys, sequences=masks[rule].sequences, sums={rule: 1})
        pairs = kept_pairs(with_mask(operation, rule, one))
        less = None if pairs is None else pairs.less(MASK_EXACT, dense)
        if less is None:
            return None
        before = found.get((phase, unit, rule), (0, 0))
        found[phase, unit, rule] = before[0] + dense, before[1] + dense - int(less)
    return tuple(MaskedShare(*key, *flop) for key, flop in found.items())
