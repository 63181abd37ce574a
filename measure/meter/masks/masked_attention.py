"""FLOP of attention whose masks leave out padding, from the pairs that the masks of its calls kept.

What a call costs is linear in those pairs, so that one number for each kind of call is all that a count has to say.
Not claimed: anything of calls whose masks were not read in each of their passes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from analysis.operators.attention_conventions import kept_pairs
from measure.fast_count.fast_count import MaskedFlop
from measure.meter.calls import CallKey, MaskPasses, Passes
from measure.model.batch_masks import BatchMask, with_mask

MASK_EXACT = "mask_exact"

OFF = "with read_masks=True the meter reads an attention_mask of (sequences, keys)"

UNREAD = "the meter reads one attention_mask of (sequences, keys), of each pass in its own step: one was not read so"

Masked = tuple[str, str, MaskedFlop]
"""Attention in a kind of call whose pairs the masks of the batch say: (phase, unit, what it costs dense)."""


class _Share(NamedTuple):
    """Attention of one phase, unit and rule in a call. dense: its FLOP. of_pair: FLOP for each pair that masks keep."""

    phase: str
    unit: str
    rule: str
    dense: int
    of_pair: int


class MaskedCosts:
    """What masks leave out of the calls of one model. are_read: whether the meter was asked to read them. why: what to
    say where a mask is not known."""

    def __init__(self, are_read: bool) -> None:
        self.why = UNREAD if are_read else OFF
        self._shares: dict[CallKey, tuple[_Share, ...] | None] = {}

    def less(self, key: CallKey, masked: Iterable[Masked], passes: Passes) -> dict[str, int] | None:
        """Unit → FLOP that passes of a kind of call cost less than dense; None where their masks are not known."""
        ran = passes.forward + passes.backward
        rules = {calls.rule for _, _, calls in masked}
        if any(rule not in passes.masks or passes.masks[rule].passes != ran for rule in rules):
            return None
        if key not in self._shares:
            self._shares[key] = _shares(masked, passes.masks)
        shares = self._shares[key]
        if shares is None:
            return None
        found: Counter[str] = Counter()
        for phase, unit, rule, dense, of_pair in shares:
            if phase in ("forward", "backward"):
                times, pairs = getattr(passes, phase), getattr(passes.masks[rule], phase)
                found[unit] += times * dense - of_pair * pairs
        return dict(found)

    def forget(self, key: CallKey) -> None:
        """This kind of call costs something else from here on."""
        self._shares.pop(key, None)


def _shares(masked: Iterable[Masked], masks: Mapping[str, MaskPasses]) -> tuple[_Share, ...] | None:
    """What the pairs of masks are worth; None where the masks are not those of the attention.

    masks: rule → what was read, of which only the sizes matter: they are the same in each call of a kind.
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
    return tuple(_Share(*key, *flop) for key, flop in found.items())
