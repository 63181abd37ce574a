"""One row for each package, device and format: what it says, what we say, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from analysis.devices import judge
from reports.peak_tables.answers import PackageAnswers

ABSENT = "absent"
"""The verdict of a package that has no table, or is not there."""


def audit_rows(answers: Iterable[PackageAnswers]) -> list[dict[str, Any]]:
    """The rows of `runners.audit --peaks`, as its JSON has them. FLOP/s; None: no figure."""
    return [row for each in answers for row in (_rows(each) if each.said else [_absent(each)])]


def _rows(answers: PackageAnswers) -> list[dict[str, Any]]:
    rows = []
    for (device, dtype), said in answers.said.items():
        found = judge(device, dtype, said, answers.by_rate)
        rows.append(
            {
                "package": answers.package,
                "version": answers.version,
                "device_name": device,
                "dtype": dtype,
                "said_flop_per_s": said,
                "ours_flop_per_s": found.ours_flop_per_s,
                "verdict": found.verdict,
                "took": found.took,
                "reason": answers.reasons.get((device, dtype), ""),
            }
        )
    return rows


def _absent(answers: PackageAnswers) -> dict[str, Any]:
    keys = ("device_name", "dtype", "said_flop_per_s", "ours_flop_per_s")
    named = {"package": answers.package, "version": answers.version, **dict.fromkeys(keys)}
    return {**named, "verdict": ABSENT, "took": "", "reason": answers.reason}


def tally(rows: Iterable[Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Package → verdict → rows."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        found.setdefault(row["package"], Counter())[row["verdict"]] += 1
    return found
