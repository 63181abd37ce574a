"""Names that look like one that is not known; a number with the name of what it counts."""

import difflib
from collections.abc import Sequence


def nearest(got: str, valid: Sequence[str], n: int = 3, cutoff: float = 0.6) -> list[str]:
    """Up to n valid names that look like `got`, best first; letter case does not count.

    cutoff: how alike they must be, from 0 to 1, as in `difflib.get_close_matches`.
    """
    by_folded = {name.casefold(): name for name in reversed(valid)}
    return [by_folded[name] for name in difflib.get_close_matches(got.casefold(), list(by_folded), n, cutoff)]


def counted(number: int, name: str) -> str:
    """A number of things: 1, "event" → "1 event"; 2, "event" → "2 events"."""
    return f"{number} {name}{'' if number == 1 else 's'}"
