"""Gates of the denominator: what kernels reached, by themselves, beside the sheet, and from session to session."""

import math
import re
from collections import Counter
from collections.abc import Iterator

from analysis.devices import peaks
from analysis.devices.ceilings import FAST_ALGORITHMS, able_to_be_fast, best, limit_of
from analysis.devices.precisions import PRECISIONS, unit_of
from analysis.operators import products
from analysis.utilization.ceiling_doubts import loaded
from cleaning.gates.evidence import RUN, Evidence, Finding, finding
from results.records.cell import Ceiling

SAME = 1e-6
"""Relative difference of two numbers that are one division apart."""

TIMED = 3
"""Schema version from which on ceilings say their fastest call and the mean."""

PRODUCTS = ("matmul", "convolution")

_MATMUL = re.compile(r"(?:(\d+) of )?(\d+)x(\d+)x(\d+)")
_CONVOLUTION = re.compile(r"(?:(?:grad_input|grad_weight) of )?(\d+)x(\d+)x(\d+)x(\d+), (\d+) 3x3 kernels")


def _product_ceilings(evidence: Evidence) -> list[Ceiling]:
    return [row for row in evidence.data.ceilings if row.status == "ok" and row.operation in PRODUCTS]


def _name(row: Ceiling) -> str:
    return f"{row.sitting} {row.precision} {row.operation} {row.shape} {row.layout}".rstrip()


def ceiling_rate(evidence: Evidence) -> Iterator[Finding]:
    """Each row: FLOP of its shape, FLOP ÷ median, fastest ≤ median, the unit of its precision, a status that fits."""
    for row in evidence.data.ceilings:
        if row.operation in PRODUCTS:
            lacking = row.status == "ok" and (row.best_s is None or row.mean_s is None)
            gaps = ["no fastest call or no mean"] if lacking and evidence.data.manifest.schema_version >= TIMED else []
            words = "; ".join((*_rate(row), *gaps))
            yield finding(RUN, not words, f"{_name(row)}: {words}")
    for once, count in Counter(map(_measured_once, evidence.data.ceilings)).items():
        if count > 1:
            words = " ".join(str(part) for part in once if part)
            yield Finding(RUN, False, f"{count} ceilings of one session are of {words}")
    yield from _limit(evidence)


def _measured_once(row: Ceiling) -> tuple[str | int | None, ...]:
    """What no two rows have in common: each kernel is measured once a session."""
    return (
        row.sitting,
        row.device,
        row.precision,
        row.unit,
        row.operation,
        row.shape,
        row.layout,
        row.threads,
        row.malloc,
    )


def _rate(row: Ceiling) -> Iterator[str]:
    if row.status != "ok":
        if row.flop_per_s is not None:
            yield f"{row.status} with {row.flop_per_s:.4g} FLOP/s"
        return
    if row.reason and not row.reason.startswith("note:"):
        yield f"ok with a reason: {row.reason}"
    if row.flop is None or row.median_s is None or row.flop_per_s is None or not row.median_s:
        yield "ok without a time, a count or a rate"
        return
    if not math.isclose(row.flop_per_s, row.flop / row.median_s, rel_tol=SAME):
        yield f"{row.flop_per_s:.6g} FLOP/s, {row.flop} FLOP in {row.median_s:.6g} s are {row.flop / row.median_s:.6g}"
    if row.operation == "convolution" and row.layout not in ("channels_first", "channels_last"):
        yield f"layout {row.layout!r}"
    sides = _MATMUL.fullmatch(row.shape) if row.operation == "matmul" else None
    if sides is not None and row.best_s is not None and (row.family == "square") != _square(row.shape):
        yield f"family {row.family!r}"
    flop = flop_of(row)
    if flop != row.flop:
        yield f"{row.flop} FLOP, its shape has {flop}" if flop is not None else "its shape is none that is measured"
    policy = PRECISIONS.get(row.precision)
    if policy is not None and row.unit != unit_of(policy.autocast or "float32", policy, row.device):
        yield f"unit {row.unit or 'none'} under {row.precision}"
    yield from _calls(row)


def _square(shape: str) -> bool:
    """Whether a product is one of equal sides that are a power of two."""
    sides = {int(side) for side in shape.split("x")} if " of " not in shape else set()
    return len(sides) == 1 and all(side & (side - 1) == 0 for side in sides)


def flop_of(row: Ceiling) -> int | None:
    """FLOP of one call by the row's own shape; None for a shape that cannot be read."""
    if row.operation == "matmul" and (found := _MATMUL.fullmatch(row.shape)):
        batch, m, n, k = (int(each or 1) for each in found.groups())
        return int(products.matmul(m, n, k, batch).model_flop)
    if row.operation == "convolution" and (found := _CONVOLUTION.fullmatch(row.shape)):
        images, channels, high, wide, kernels = map(int, found.groups())
        return int(products.convolution(images * kernels * high * wide, (kernels, channels, 3, 3)).model_flop)
    return None


def _calls(row: Ceiling) -> Iterator[str]:
    """Mean, median and fastest of the same calls: half of them take at least the median, none less than the fastest."""
    if row.best_s is None or row.mean_s is None or row.median_s is None:
        return
    if row.best_s > row.median_s * (1 + SAME) or row.best_s > row.mean_s * (1 + SAME):
        yield f"its fastest call took {row.best_s:.4g} s, the median {row.median_s:.4g} s, the mean {row.mean_s:.4g} s"
    repeats = row.repeats or 1
    least_s = (math.ceil(repeats / 2) * row.median_s + repeats // 2 * row.best_s) / repeats
    if row.mean_s < least_s * (1 - SAME) and repeats > 1:
        yield f"a mean of {row.mean_s:.4g} s, its fastest call and its median allow {least_s:.4g} s at least"
    if repeats == 1 and not math.isclose(row.mean_s, row.median_s, rel_tol=SAME):
        yield f"one call with a mean of {row.mean_s:.4g} s and a median of {row.median_s:.4g} s"


def ceiling_load(evidence: Evidence) -> Iterator[Finding]:
    """Calls of what cells are divided by (`_session_ceilings`) scatter little, on a device that nobody else uses."""
    for row in _session_ceilings(evidence):
        words = loaded(row)
        yield finding(RUN, not words, f"{_name(row)}: {words}")


def _limit(evidence: Evidence) -> Iterator[Finding]:
    """Each rate against the sheet's, at the highest clock. Above it is who names the fast algorithm of its kernels."""
    sittings = {sitting.sitting: sitting for sitting in evidence.data.sittings}
    for row in _product_ceilings(evidence):
        home = sittings.get(row.sitting)
        known = peaks.lookup(home.device_name) if home is not None and not home.device.startswith("cpu") else None
        if known is None or home is None or row.flop_per_s is None:
            continue
        clock_hz = home.preflight.get("sm_clock_max_hz")
        limit = limit_of(row, known, float(clock_hz) if clock_hz else None)
        if limit is None:
            continue
        words = f"{_name(row)}: {row.flop_per_s:.4g} FLOP/s, its unit has {limit:.4g}"
        if able_to_be_fast(row):
            words += f" with {row.family}" if row.family in FAST_ALGORITHMS else " and no fast algorithm is named"
        yield finding(RUN, row.flop_per_s <= limit, words)


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
    found = (best(rows, unit) for (*_, unit), rows in groups.items())
    return [row for row in found if row is not None]
