"""What the runs of one source say of our predictions, derived from the rows: xMem's, of its training on two GPUs.

Its number is what the driver says is used on the device above what the sampling found at first. The sampling begins
while the model is moved, so that the number may miss the parameters: three runs of VGG-16, which is not among the rows,
differ by the bytes of its first linear layer. Kernels that are loaded are in it.

Not claimed: that a line through these runs is that of another device or another torch.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from statistics import linear_regression, median

from analysis.footprint.step import Published
from results.records import FootprintPrediction

SOURCE = "https://github.com/Stone-ResearchLife/xMem"

MIB = 2**20
LARGE_BYTES = 2**30
NEAR, NEARER = 0.1, 0.05

WIDTH, TIED = 119, "\N{NO-BREAK SPACE}"
"""Of the page's lines, and what holds a number and its unit on one."""

Of = Callable[[FootprintPrediction], int]
"""One of the two predictions: with the allowance for cuDNN, or without."""

CHOSEN = """* **{count} trainings of one source** ({gpus}; images of 86 × 86, TF32) were chosen before an error was
looked at: of each model SGD and Adam at the smallest and the largest batch that could be listed (on the RTX 4060 Adam
at the smallest alone, and of regnet_y_400mf SGD at the largest alone), the first of its runs, if the parameters, which
the number may miss, are at most 5 % of the prediction, and that is at most 80 % of the device. The context is not in
it."""

FOUND = """Of the {large} of 1 GiB and more {near} are within 5 %, {tenth} within 10 %, and the median error is {error};
without the allowance for cuDNN {bare_near} and {bare_tenth} are, and it is {bare_error}: cuDNN seems to take little of
it there. The other {small} have {least} to {most} MiB more than is predicted without it: kernels as they are loaded,
and workspaces."""

LINE = """A straight line through all has {constant} MiB, the same for each, and {slope} of what is predicted; with that
of the other models each is {off} off at the median, {line_near} within 5 %. Without the allowance the line has
{bare_constant} MiB and {bare_slope}, and each is {bare_off} off, {bare_line_near} within 5 %."""


def trainings(rows: Sequence[Published], predicted: Mapping[str, FootprintPrediction]) -> list[str]:
    """The lines of one item of the page's list; none where the source has no rows."""
    found = [row for row in rows if row.source == SOURCE]
    if not found:
        return []
    pairs = [(row, predicted[row.name]) for row in found]
    large = [pair for pair in pairs if pair[0].measured_bytes >= LARGE_BYTES]
    more = [(row.measured_bytes - each.without_bytes) / MIB for row, each in pairs if row.measured_bytes < LARGE_BYTES]
    words = {
        "count": len(found),
        "gpus": ", ".join(dict.fromkeys(row.gpu for row in found)),
        "large": len(large),
        "small": len(more),
        "least": f"{min(more):.0f}",
        "most": f"{max(more):.0f}",
        **_error_row(large, pairs, _with, ""),
        **_error_row(large, pairs, _without, "bare_"),
    }
    text = " ".join(each.replace("\n", " ").format(**words) for each in (CHOSEN, FOUND, LINE))
    kept = text.replace(" %", f"{TIED}%").replace(" MiB", f"{TIED}MiB")
    lines = textwrap.wrap(kept, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return [each.replace(TIED, " ") for each in lines]


def line(pairs: Sequence[tuple[Published, FootprintPrediction]], of: Of) -> tuple[float, float]:
    """(bytes, ratio): measured ≈ bytes + ratio × predicted, by least squares."""
    slope, constant = linear_regression([of(each) for _, each in pairs], [row.measured_bytes for row, _ in pairs])
    return constant, slope


def by_the_others(pairs: Sequence[tuple[Published, FootprintPrediction]], of: Of) -> list[float]:
    """Errors of the line through all runs of other models, a run each."""
    errors = []
    for row, each in pairs:
        constant, slope = line([pair for pair in pairs if pair[0].model != row.model], of)
        errors.append((constant + slope * of(each)) / row.measured_bytes - 1)
    return errors


def _error_row(
    large: Sequence[tuple[Published, FootprintPrediction]],
    pairs: Sequence[tuple[Published, FootprintPrediction]],
    of: Of,
    which: str,
) -> dict[str, str | int]:
    errors = [of(each) / row.measured_bytes - 1 for row, each in large]
    constant, slope = line(pairs, of)
    others = [abs(error) for error in by_the_others(pairs, of)]
    fields: dict[str, str | int] = {
        "error": f"{100 * median(errors):+.1f} %".replace("-", "−"),
        "near": sum(abs(error) <= NEARER for error in errors),
        "tenth": sum(abs(error) <= NEAR for error in errors),
        "constant": f"{constant / MIB:.0f}".replace("-", "−"),
        "slope": f"{slope:.3f}",
        "off": f"{100 * median(others):.1f} %",
        "line_near": sum(error <= NEARER for error in others),
    }
    return {which + name: value for name, value in fields.items()}


def _with(each: FootprintPrediction) -> int:
    return each.predicted_bytes


def _without(each: FootprintPrediction) -> int:
    return each.without_bytes
