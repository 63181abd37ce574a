"""Faults that published numbers or earlier versions have had, each with the tests that must notice it.

`known_faults.csv` lists them: a module, text that stands in it once, what takes its place, and test files, separated by
spaces. Each row is a fault of its own. `python -m benchmarks.mutation_coverage --known --out DIR` plants them.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("known_faults.csv")


@dataclass(frozen=True)
class KnownFault:
    """A piece of a module's text and what takes its place."""

    module: str
    before: str
    after: str
    tests: str

    def planted(self, source: str) -> str:
        """The module's source with the fault. Raises ValueError where the text does not stand in it exactly once."""
        if (times := source.count(self.before)) != 1:
            raise ValueError(f"expected {self.before!r} once in {self.module}, it is there {times} times")
        return source.replace(self.before, self.after)


def known_faults() -> list[KnownFault]:
    with TABLE.open(newline="") as file:
        return [KnownFault(**row) for row in csv.DictReader(file)]
