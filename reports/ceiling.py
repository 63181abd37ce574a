"""Writes the answer of `runners.ceiling`, the highest rates measured on a device, as text and JSON.

`to_text` and `document` take a `CeilingAnswer`: the device and every kernel that was timed. They show the best kernel
of each arithmetic unit, then memory bandwidth and the cost of kernel launches. The best kernel has the highest median,
as in a sweep's denominator. Next to its median are its mean, its fastest call and its share of the datasheet's rate.
Rates that others published are shown for comparison. `collectives_text` takes rates of collectives, and returns a table
with a row per buffer size and a column per collective. Nothing is printed.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from analysis.devices import ceilings
from analysis.devices.ceilings import ABOVE_SHEET, CollectiveRate, best, impossible, impossible_bandwidth
from analysis.devices.precisions import UNITS
from analysis.roofline import LAUNCHES, MOVES, bandwidth, launch_cost
from analysis.utilization import denominators
from reports.shared.layout import WIDTH, Part, TableColumn, TextTable, page, strong
from reports.shared.numbers import DASH, STATUS_TEXTS, digits, percent, scaled, si, si_time
from results.records.cell import Ceiling

PRODUCTS = ("matmul", "convolution")


@dataclass(frozen=True)
class CeilingAnswer:
    """The result of a search for the highest rates.

    rows: every kernel that was timed. environment: facts of the host (torch, driver). notes: remarks on the whole
    search.
    """

    device: str
    device_name: str
    rows: tuple[Ceiling, ...]
    multiprocessors: int | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def threads(self) -> list[int | None]:
        return list(dict.fromkeys(row.threads for row in self.rows))

    @property
    def sheet(self) -> denominators.Denominator:
        return denominators.datasheet(self.device_name, self.device, self.multiprocessors)

    @property
    def sheet_bytes_per_s(self) -> float | None:
        return self.sheet.device.bandwidth_bytes_per_s if self.sheet.device else None

    @property
    def refused(self) -> dict[str, str]:
        """Unit, or "memory" → why the measured rate is impossible; nothing is compared with a rate that is."""
        known, highest_hz = self.sheet.device, self.environment.get("clock_hz")
        reasons = {unit: impossible(self.rows, unit, known, highest_hz) for unit in UNITS}
        reasons["memory"] = impossible_bandwidth(bandwidth(self.rows), known)
        return {unit: why for unit, why in reasons.items() if why}

    @property
    def warnings(self) -> list[str]:
        """The notes, and why rates are impossible."""
        return [*self.notes, *(f"{ABOVE_SHEET}: {why}" for why in self.refused.values())]

    def of(self, threads: int | None) -> list[Ceiling]:
        return [row for row in self.rows if row.threads == threads]


def bests(answer: CeilingAnswer) -> list[Ceiling]:
    """Return the best product and the best convolution of each number of threads and unit; then the best copy and
    triad; then launches."""
    by_threads = [answer.of(threads) for threads in answer.threads]
    rows = [
        best((row for row in rows if row.operation == operation), unit)
        for rows in by_threads
        for unit in UNITS
        for operation in PRODUCTS
    ]
    rows += [bandwidth(row for row in rows if row.operation == operation) for rows in by_threads for operation in MOVES]
    launches = [row for rows in by_threads for row in rows if row.operation in LAUNCHES.values() and row.median_s]
    return [row for row in (*rows, *launches) if row is not None]


def to_text(answer: CeilingAnswer, width: int = WIDTH, colour: bool = False) -> str:
    """Return the whole answer as text."""
    parts: list[Part] = [strong(heading(answer)), strong(_closing(answer)), ""]
    if rows := bests(answer):
        parts += [_table(answer, rows), ""]
    reasons = Counter((row.status, row.reason) for row in answer.rows if row.status != "ok")
    return page(
        [
            *parts,
            *_references(answer),
            *[
                f"{count} row{'s' * (count > 1)}: {STATUS_TEXTS.get(status, status)}{f': {reason}' if reason else ''}"
                for (status, reason), count in reasons.items()
            ],
            *(f"note: {note}" for note in answer.warnings),
        ],
        width,
        colour,
    )


def heading(answer: CeilingAnswer) -> str:
    """Return the heading: the device and the host."""
    facts = answer.environment
    parts = [answer.device_name or "unknown device", answer.device]
    parts += [f"torch {facts['torch']}"] if facts.get("torch") else []
    parts += [f"driver {facts['driver']}"] if facts.get("driver") else []
    return " · ".join(parts)


_COLUMNS = (
    TableColumn("what", right=False, wraps=True),
    TableColumn("threads", right=True),
    TableColumn("median", right=True),
    TableColumn("mean", right=True, rank=4),
    TableColumn("fastest", right=True, rank=3),
    TableColumn("of sheet", right=True),
    TableColumn("clock", right=True, rank=2),
    TableColumn("where", right=False, rank=1, wraps=True, least=20),
)


def _table(answer: CeilingAnswer, rows: Sequence[Ceiling]) -> TextTable:
    shown = {"threads": any(row.threads for row in rows), "clock": any(row.sm_clock_hz for row in rows)}
    columns = [column for column in _COLUMNS if shown.get(column.name, True)]
    lines = []
    for row in rows:
        names = {"matmul": "product", "launch": "launch, on the device", "call": "call, on the host"}
        ratio = _sheet_ratio(answer, row)
        cells = {
            "what": f"{row.unit} {names.get(row.operation, row.operation)}".strip(),
            "threads": str(row.threads or DASH),
            **_amounts(row),
            "of sheet": (DASH if ratio is None else percent(ratio)),
            "clock": f"{row.sm_clock_hz / 1e6:.0f} MHz" if row.sm_clock_hz else DASH,
            "where": ", ".join(filter(None, (row.shape, row.layout))),
        }
        lines.append([cells[column.name] for column in columns])
    return TextTable(columns, lines)


def _amounts(row: Ceiling) -> dict[str, str]:
    """Return median, mean, fastest: as rates where an amount is known, else as times."""
    times = {"median": row.median_s, "mean": row.mean_s, "fastest": row.best_s}
    amount, unit = (row.flop, "FLOP/s") if row.flop is not None else (row.moved_bytes, "B/s")
    if amount is None:
        return {name: DASH if time_s is None else si_time(time_s) for name, time_s in times.items()}
    rates = {name: amount / time_s if time_s else None for name, time_s in times.items()}
    return {  # all in the power of ten of the median
        name: DASH
        if rate is None
        else si(rate, unit)
        if name == "median"
        else digits(rate / scaled(rates["median"] or rate)[0])
        for name, rate in rates.items()
    }


def _sheet_ratio(answer: CeilingAnswer, row: Ceiling) -> float | None:
    printed = answer.sheet.peak_by_unit.get(row.unit) if row.flop_per_s else answer.sheet_bytes_per_s
    rate = row.flop_per_s or row.bytes_per_s
    return rate / printed if rate and printed else None


def _references(answer: CeilingAnswer) -> list[str]:
    """Return lines with the datasheet's and others' published rates, for the units that were measured."""
    units = [unit for unit in UNITS if any(row.unit == unit for row in answer.rows)]
    printed = [f"{unit} {si(peak, 'FLOP/s')}" for unit in units if (peak := answer.sheet.peak_by_unit.get(unit))]
    printed += [f"memory {si(answer.sheet_bytes_per_s, 'B/s')}"] if answer.sheet_bytes_per_s else []
    known = answer.sheet.device
    lines = [f"sheet: dense {', '.join(printed)} ({known.source})"] if known and printed else []
    lines += [f"sheet: {answer.sheet.reason}"] if answer.sheet.reason else []
    for unit in units:
        for figure in ceilings.published_rates(answer.device_name, unit):
            lines.append(f"others: {unit} {si(figure.flop_per_s, 'FLOP/s')} on {figure.accelerator} ({figure.source})")
    return lines


def _closing(answer: CeilingAnswer) -> str:
    """Return the limits that a step here is compared with."""
    parts = []
    for unit in UNITS:
        top = None if unit in answer.refused else best(answer.rows, unit)
        if top is not None and top.flop_per_s:
            parts.append(f"{si(top.flop_per_s, 'FLOP/s')} in {unit}")
    memory = None if "memory" in answer.refused else bandwidth(answer.rows)
    launch = launch_cost(answer.rows, answer.device)
    parts += [f"{si(memory.bytes_per_s, 'B/s')} of memory"] if memory and memory.bytes_per_s else []
    parts += [f"{si_time(launch.best_s)} a {launch.operation}"] if launch and launch.best_s else []
    return f"A step here is compared with {', '.join(parts)}." if parts else "Nothing was measured."


def document(answer: CeilingAnswer) -> dict[str, Any]:
    """Return the JSON document. Every key is present; unknown is null."""
    return {
        "device": answer.device,
        "device_name": answer.device_name,
        "torch": answer.environment.get("torch"),
        "driver": answer.environment.get("driver"),
        "best": [
            {name: getattr(row, name) for name in _OF_BEST} | {"datasheet_ratio": _sheet_ratio(answer, row)}
            for row in bests(answer)
        ],
        "datasheet": {"flop_per_s": dict(answer.sheet.peak_by_unit), "bytes_per_s": answer.sheet_bytes_per_s},
        "achievable": [
            {"unit": figure.unit, "flop_per_s": figure.flop_per_s, "source": figure.source}
            for unit in UNITS
            for figure in ceilings.published_rates(answer.device_name, unit)
        ],
        "rows": [asdict(row) for row in answer.rows],
        "notes": answer.warnings,
    }


_OF_BEST = (
    *("unit", "precision", "operation", "threads", "shape", "layout", "flop_per_s", "bytes_per_s"),
    *("median_s", "mean_s", "best_s", "sm_clock_hz"),
)


def collectives_text(rows: Sequence[CollectiveRate], width: int, colour: bool) -> str:
    """Return the link rate of each collective and size, the time of the smallest size, and what failed. rows: one at
    least."""
    first, operations = rows[0], list(dict.fromkeys(row.operation for row in rows))
    sizes = sorted({row.nbytes for row in rows})
    rates = {
        (row.operation, row.nbytes): DASH if row.link_bytes_per_s is None else si(row.link_bytes_per_s, "B/s")
        for row in rows
    }
    cells = [[si(size, "B"), *(rates.get((operation, size), DASH) for operation in operations)] for size in sizes]
    columns = [TableColumn("buffer", right=True), *(TableColumn(operation, right=True) for operation in operations)]
    parts: list[Part] = [
        strong(f"{first.ranks} ranks over {first.backend} ({first.device}): bytes/s that each rank sends at least"),
        "",
        TextTable(columns, cells),
        "",
    ]
    smallest = [row for row in rows if row.nbytes == sizes[0] and row.median_s is not None]
    if smallest:
        times = ", ".join(f"{row.operation} {si_time(row.median_s or 0.0)}" for row in smallest)
        parts.append(f"{si(sizes[0], 'B')} takes: {times}")
    parts += list(dict.fromkeys(f"{row.operation}: {row.status}: {row.reason}" for row in rows if row.status != "ok"))
    return page(parts, width, colour)
