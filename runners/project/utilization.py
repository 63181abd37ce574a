"""What of a peak a training reaches, as the caller says: --utilization and --confidence of `runners.project`."""

from __future__ import annotations

import argparse
from argparse import Namespace
from typing import TYPE_CHECKING

from analysis.devices.precisions import TENSOR_UNITS
from runners.cli.arguments import number
from runners.cli.exits import Mistake

if TYPE_CHECKING:
    from analysis.stats.intervals import Uncertain

LEAST, MOST = 1e-9, 1e60
"""Of any amount that is given."""


def positive(text: str) -> float:
    """A `type=` for a number above 0, of a size that something has; 1e21 and 300 alike."""
    value = float(number(float)(text))
    if not LEAST <= value <= MOST:  # `not` refuses nan
        raise argparse.ArgumentTypeError(f"expected a number above 0, from {LEAST:g} to {MOST:g}, got {text!r}")
    return value


def interval(text: str) -> tuple[float, float]:
    """A `type=` for VALUE or LOW..HIGH, both finite and above 0."""
    low, dots, high = text.partition("..")
    try:
        ends = positive(low), positive(high if dots else low)
    except argparse.ArgumentTypeError as fault:
        raise argparse.ArgumentTypeError(f"expected VALUE or LOW..HIGH, both above 0, got {text!r}") from fault
    if ends[0] > ends[1]:
        raise argparse.ArgumentTypeError(f"expected LOW..HIGH with LOW first, got {text!r}")
    return ends


def add_utilization(group: argparse._ActionsContainer, required: bool = False) -> None:
    """--utilization and --confidence."""
    words = "model FLOP ÷ (time × peak), a value or an interval"
    group.add_argument("--utilization", type=interval, metavar="RATIO|LOW..HIGH", required=required, help=words)
    group.add_argument("--confidence", type=number(float, 0.5, 0.999), default=0.95, help="of every interval (0.95)")


def utilization_of(options: Namespace, unit: str) -> Uncertain:
    """The utilization that the options give. Only IEEE units go beyond 1: fast algorithms save their products.

    Raises Mistake.
    """
    from analysis.stats.intervals import between

    low, high = options.utilization
    is_fraction = unit in TENSOR_UNITS
    if is_fraction and (high > 1 or low < high == 1):
        raise Mistake(f"--utilization: expected less than 1 on {unit} units, got {low:g}..{high:g}")
    return between(low, high, options.confidence, "logit" if is_fraction else "log")
