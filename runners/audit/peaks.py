"""`--peaks` of the audit: asks each package's table about devices by their drivers' names, and shows the verdicts."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.shared import Part, csv_of, page, strong, table_of
from runners.cli import FAILED, Mistake, say, show_page

if TYPE_CHECKING:
    from reports.peak_tables import PackageAnswers

PACKAGES = Path.home() / ".cache" / "flopledger" / "audit"

FETCH_S = 300

SAYS = "right: within 2 % of ours; wrong: another figure, and csv and json say in each row what it was taken for."


def add_peaks(made: ArgumentParser) -> None:
    """The options of `--peaks`."""
    group = made.add_argument_group("peaks")
    group.add_argument("--peaks", action="store_true", help="other packages' tables of peaks beside ours")
    where = "where wheels and checkouts are (~/.cache/flopledger/audit)"
    group.add_argument("--packages", type=Path, default=PACKAGES, metavar="DIR", help=where)
    group.add_argument("--fetch", action="store_true", help="download what DIR lacks, with pip --no-deps")
    group.add_argument("--only", nargs="+", metavar="PACKAGE", help="these alone (all)")


def answer_peaks(options: Namespace) -> int:
    """Ask and print; the exit code."""
    from reports.peak_tables import audit_rows

    answers = peak_answers(options.packages, options.only, options.fetch)
    rows = audit_rows(answers)
    _show(rows, options.format)
    return 0 if any(each.said for each in answers) else FAILED


def peak_answers(folder: Path, only: Sequence[str] | None = None, fetches: bool = False) -> list[PackageAnswers]:
    """What each package says of each device. Raises Mistake for a package that is not known."""
    from measure.peak_tables import ABSENT, TABLES

    names = list(only or (*TABLES, *ABSENT))
    if unknown := [name for name in names if name not in TABLES and name not in ABSENT]:
        raise Mistake(f"--only: expected one of {', '.join((*TABLES, *ABSENT))}, got {unknown[0]!r}")
    if fetches:
        _fetch([TABLES[name].distribution for name in names if name in TABLES and not TABLES[name].is_checkout], folder)
    return [_answers(name, folder) for name in names]


def _answers(package: str, folder: Path) -> PackageAnswers:
    from analysis.devices import DRIVER_NAMES
    from measure.peak_tables import TABLES, ask
    from reports.peak_tables import PackageAnswers

    rows = ask(package, [_device(name) for name in DRIVER_NAMES], folder)
    by_rate = package in TABLES and TABLES[package].by_rate
    if rows[0].device_name is None:
        return PackageAnswers(package, rows[0].version, reason=rows[0].reason, by_rate=by_rate)
    said = {(str(row.device_name), str(row.dtype)): row.said_flop_per_s for row in rows}
    reasons = {(str(row.device_name), str(row.dtype)): row.reason for row in rows if row.reason}
    return PackageAnswers(package, rows[0].version, said, reasons, by_rate=by_rate)


def _device(name: str) -> Any:
    from analysis.devices import lookup
    from measure.peak_tables import AskedDevice

    row = lookup(name)
    if row is None:
        return AskedDevice(name)
    return AskedDevice(name, row.compute_capability, row.multiprocessors, row.boost_hz)


def _fetch(distributions: Sequence[str], folder: Path) -> None:
    """Downloads wheels without what they need; one that cannot be had is said, and is a row later."""
    folder.mkdir(parents=True, exist_ok=True)
    installed = {"torch", "triton"}  # large, and read where they are installed
    for name in dict.fromkeys(distributions):
        if name in installed or any(folder.glob(f"{name.replace('-', '_')}-*.whl")):
            continue
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
        except subprocess.TimeoutExpired:
            say(f"{name}: not downloaded in {FETCH_S} s")
            continue
        if done.returncode:
            say(f"{name}: {(done.stderr.strip().splitlines() or ['not downloaded'])[-1]}")


def _show(rows: Sequence[Mapping[str, Any]], form: str) -> None:
    if form == "json":
        print(json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False))
    elif form == "csv":
        sys.stdout.write(csv_of(rows))
    else:
        show_page(lambda width, colour: page(_parts(rows), width, colour))


def _parts(rows: Sequence[Mapping[str, Any]]) -> list[Part]:
    from analysis.devices import VERDICTS
    from reports.peak_tables import ABSENT, tally

    versions = {row["package"]: row["version"] or "" for row in rows}
    reasons = {row["package"]: row["reason"] for row in rows if row["verdict"] == ABSENT}
    cells = [
        (package, versions[package], *(str(counts[verdict]) for verdict in VERDICTS))
        for package, counts in tally(rows).items()
        if package not in reasons
    ]
    heads = ("package", "version", *VERDICTS)
    parts: list[Part] = [
        strong("Answers for devices and formats, by verdict"),
        "",
        table_of([heads, *cells], words=(0, 1)),
        "",
        SAYS,
    ]
    return [*parts, "", *(f"{package}: {reason}" for package, reason in reasons.items())]
