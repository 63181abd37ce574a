"""The arithmetic of the 2021 post, over our own rows, so that its 0.3 to 0.75 can be compared with something.

A multiply-add counts as 1 and the peak is the fp32 one of the CUDA cores, whatever the precision policy lets run
elsewhere. The method `theory` is three times fvcore's native total, unconverted, normalisation included. It is not
claimed that these fractions are utilizations: `docs/results.md` says what is wrong with them. Times are the same as in
`utilization.csv`; only the two halves that were counted otherwise are counted otherwise here. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from analysis.devices.precisions import PRECISIONS, TENSOR_UNITS
from analysis.utilization import utilization
from analysis.utilization.denominators import Denominator
from analysis.utilization.numerators import Numerator
from analysis.utilization.utilization import Measurement
from results.errors import Unavailable
from results.records.answers import Utilization
from results.records.cell import Run

FLOP_PER_MULTIPLY_ADD = 2

UNIT = "fp32"
"""The unit whose peak the post divides by."""

PEAKS = ("datasheet", "user", "ceiling")
"""The first of these that has a peak for UNIT is divided by."""

METHODS = ("theory", "one", "batch", "epoch", "exact")

CONVENTION = "convention: post2021: a multiply-add is 1, over the fp32 peak whatever the precision"


def rows(measured: Measurement, found: Iterable[Numerator], peak: Denominator) -> list[Utilization]:
    """utilization_post2021.csv of one cell: each method over one peak, `fp32_peak` of the cell's denominators.

    found: as for `utilization.rows`.
    """
    return [
        _with_warning(measured.run, row) for row in utilization.rows(measured, numerators(found, measured.run), [peak])
    ]


def numerators(others: Iterable[Numerator], run: Run) -> list[Numerator]:
    """The post's numerator of each method that the run was asked for, in the order of METHODS."""
    given = list(others)
    counted = [_theory(given)] if "theory" in run.methods else []
    counted += [
        _on_fp32(numerator, FLOP_PER_MULTIPLY_ADD, numerator.method)
        for numerator in given
        if numerator.method in METHODS[1:]
    ]
    return sorted(counted, key=lambda numerator: METHODS.index(numerator.method))


def fp32_peak(under: Sequence[Denominator]) -> Denominator:
    """The fp32 peak of the first of PEAKS that has one; where it is not the datasheet's, its source says why."""
    by_name = {denominator.name: denominator for denominator in under}
    missing: list[str] = []
    for name in (name for name in PEAKS if name in by_name):
        try:
            known = by_name[name]
            work = {UNIT: 1}
            because = f" (not the datasheet's: {missing[0]})" if missing else ""
            return Denominator(known.name, {UNIT: known.peak(work)}, {UNIT: known.source(work) + because})
        except Unavailable as fault:
            missing.append(str(fault))
    return Denominator(PEAKS[0], reason=f"no {UNIT} peak: {'; '.join(missing)}")


def _theory(numerators: Iterable[Numerator]) -> Numerator:
    native = next((numerator for numerator in numerators if numerator.method == "theory_as_published"), None)
    if native is None:
        return Numerator("theory", "fvcore", reason="fvcore was not among the counters")
    return _on_fp32(native, 1, "theory")


def _on_fp32(numerator: Numerator, divisor: int, method: str) -> Numerator:
    """All of it on UNIT, divided. Model FLOP are pairs of a multiplication and an addition, so that nothing is lost."""
    flop = numerator.model_flop
    units = {} if flop is None else {UNIT: flop // divisor}
    least = numerator.at_least_flop
    marks = tuple(mark for mark in numerator.warnings if not mark.startswith("convention"))
    return replace(
        numerator,
        method=method,
        flop_by_unit=units,
        all_flop=None,
        at_least_flop=None if least is None else least // divisor,
        warnings=(CONVENTION, *marks),
    )


def _with_warning(run: Run, row: Utilization) -> Utilization:
    """A ratio above 1 on tensor units says nothing of an algorithm: they are faster than the peak divided by."""
    policy = PRECISIONS[run.precision]
    ran = {run.convolution_unit or policy.convolution_unit, run.matmul_unit or policy.matmul_unit}
    if row.utilization_ratio is None or row.utilization_ratio <= 1 or not ran & set(TENSOR_UNITS):
        return row
    marks = tuple(mark for mark in row.warnings if not mark.startswith(("above_one", "ceiling_too_low")))
    why = f"above_one: {', '.join(sorted(ran))} is faster than the fp32 peak, over which this is"
    return replace(row, warnings=(*marks, why))
