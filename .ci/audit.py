"""Reads `python -m runners.audit --format csv`: fails where a framework has no number, or a difference has no cause."""

from __future__ import annotations

import csv
import sys
from collections import Counter

FEWEST = 20
"""Numbers of each framework: fewer, and its package was not run."""


def main() -> int:
    """Its exit code; what is wrong, a line each."""
    rows = list(csv.DictReader(sys.stdin))
    numbers = Counter(row["framework"] for row in rows if row["flop"])
    wrong = [
        f"{row['framework']} {row['model']}: {row['unexplained_flop']} FLOP have no cause"
        for row in rows
        if row["flop"] and row["unexplained_flop"] != "0"
    ]
    wrong += [
        f"{name}: expected at least {FEWEST} numbers, got {numbers[name]}"
        for name in dict.fromkeys(row["framework"] for row in rows)
        if numbers[name] < FEWEST
    ]
    print("\n".join(wrong) or f"{sum(numbers.values())} numbers, each difference has its causes")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
