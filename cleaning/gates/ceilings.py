"""Gates of the denominator: what kernels reached, by themselves, beside the sheet, and from session to session."""

import math
from collections.abc import Iterator

from analysis.devices import peaks
from analysis.devices.ceilings import FAST_ALGORITHMS, able_to_be_fast, best, limit_of
from analysis.utilization.ceiling_doubts import loaded
from cleaning.gates.evidence import RUN, Evidence, Finding, finding
from results.records.cell import Ceiling

SAME = 1e-6
"""Relative difference of two numbers that are one division apart."""

PRODUCTS = ("matmul", "convolution")


def _product_ceilings(evidence: Evidence) -> list[Ceiling]:
    return [row for row in evidence.data.ceilings if row.status == "ok" and row.operation in PRODUCTS]


def _name(row: Ceiling) -> str:
    return f"{row.sitting} {row.precision} {row.operation} {row.shape} {row.layout}".rstrip()


def ceiling_rate(evidence: Evidence) -> Iterator[Finding]:
    """Each row is FLOP ÷ median, and within the sheet's rate at the highest clock. Above it is only who names the fast
    algorithm of its kernels."""
    sittings = {sitting.sitting: sitting for sitting in evidence.data.sittings}
    for row in _product_ceilings(evidence):
        if row.flop is None or not row.median_s or row.flop_per_s is None:
            yield Finding(RUN, False, f"{_name(row)}: ok without a time, a count or a rate")
            continue
        rate = row.flop / row.median_s
        words = f"{_name(row)}: {row.flop_per_s:.6g} FLOP/s, {row.flop} FLOP in {row.median_s:.6g} s are {rate:.6g}"
        yield finding(RUN, math.isclose(row.flop_per_s, rate, rel_tol=SAME), words)
        home = sittings.get(row.sitting)
        known = peaks.lookup(home.device_name) if home is not None and not home.device.startswith("cpu") else None
        if known is None or home is None:
            continue
        clock_hz = home.preflight.get("sm_clock_max_hz")
        limit = limit_of(row, known, float(clock_hz) if clock_hz else None)
        if limit is not None:
            words = f"{_name(row)}: {row.flop_per_s:.4g} FLOP/s, its unit has {limit:.4g}"
            if able_to_be_fast(row):
                words += f" with {row.family}" if row.family in FAST_ALGORITHMS else " and no fast algorithm is named"
            yield finding(RUN, row.flop_per_s <= limit, words)


def ceiling_load(evidence: Evidence) -> Iterator[Finding]:
    """Calls of what cells are divided by (`_session_ceilings`) scatter little, on a device that nobody else uses."""
    for row in _session_ceilings(evidence):
        words = loaded(row)
        yield finding(RUN, not words, f"{_name(row)}: {words}")


def _session_ceilings(evidence: Evidence) -> list[Ceiling]:
    """What cells are divided by: of each session the fastest kernel of a unit, by device, precision and allocator.

    Left out are those of a session in which no cell of the precision has its last attempt.
    """
    used = {(run.sitting, run.device, run.precision, run.malloc) for run in evidence.data.runs}
    groups: dict[tuple[str, ...], list[Ceiling]] = {}
    for row in _product_ceilings(evidence):
        home = row.sitting, row.device, row.precision, row.malloc
        if home in used:
            groups.setdefault((*home, row.unit), []).append(row)
    fastest = (best(rows, unit) for (*_, unit), rows in groups.items())
    return [row for row in fastest if row is not None]
