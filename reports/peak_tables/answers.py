"""What packages answered when they were last asked, kept as a table, so that the page can be made again without them.

`answers.csv`: package, version, what it tells apart, and each figure that it gave; a device and format without a row is
one for which it gave none. Figures are facts about a version, with the version beside them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ANSWERS = Path(__file__).with_name("answers.csv")

HEADER = ("package", "version", "device_name", "dtype", "said_flop_per_s", "reason")


@dataclass(frozen=True)
class PackageAnswers:
    """One package's. said: (device name, format) → FLOP/s, None for no figure. reasons: of the same, why there is none;
    of the whole, `reason`. by_rate: it has rates per unit and clock, no figures of devices."""

    package: str
    version: str | None
    said: Mapping[tuple[str, str], float | None] = field(default_factory=dict)
    reasons: Mapping[tuple[str, str], str] = field(default_factory=dict)
    reason: str = ""
    by_rate: bool = False


def write_answers(answers: Iterable[PackageAnswers], path: Path = ANSWERS) -> None:
    """One row an answer; a package without answers is one row with its reason."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for each in answers:
            if not each.said:
                writer.writerow((each.package, each.version or "", "", "", "", each.reason))
            for (device, dtype), said in each.said.items():
                figure = "" if said is None else f"{said:.6g}"
                words = (each.package, each.version, device, dtype, figure, each.reasons.get((device, dtype), ""))
                writer.writerow(words)


def read_answers(by_rate: Iterable[str], path: Path = ANSWERS) -> list[PackageAnswers]:
    """The kept answers, in their order. by_rate: packages that have rates alone."""
    said: dict[str, dict[tuple[str, str], float | None]] = {}
    reasons: dict[str, dict[tuple[str, str], str]] = {}
    whole: dict[str, tuple[str | None, str]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            package, asked = row["package"], (row["device_name"], row["dtype"])
            whole.setdefault(package, (row["version"] or None, "" if row["device_name"] else row["reason"]))
            if row["device_name"]:
                figure = row["said_flop_per_s"]
                said.setdefault(package, {})[asked] = float(figure) if figure else None
                if row["reason"]:
                    reasons.setdefault(package, {})[asked] = row["reason"]
    rates = set(by_rate)
    return [
        PackageAnswers(name, version, said.get(name, {}), reasons.get(name, {}), reason, name in rates)
        for name, (version, reason) in whole.items()
    ]
