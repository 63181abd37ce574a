"""Golden answers about models: counts, accounts, formulas, footprints, the meter, trees."""

from __future__ import annotations

from collections.abc import Collection

from tests.golden import Answer

ANSWERS: dict[str, Answer] = {}
PLAIN: dict[str, Collection[str]] = {}
