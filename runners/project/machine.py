"""The device that a projection is for, what of its peak training will reach, and what an hour of it costs.

Options of several modes of `runners.project`, and what is made of them: a peak with its source, a utilization with an
interval, and the caller's own prices. Every mistake is one line.

`own_runs` has the runs that the caller names as observations of utilization.
"""

from __future__ import annotations

import argparse
import csv
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.devices import PRECISIONS, TENSOR_UNITS
from analysis.project.compute import Observation, ours
from results.records import MEASURED
from runners.cli import Mistake, Parser, choice_error, number

if TYPE_CHECKING:
    from analysis.devices import Device
    from analysis.project.compute import PredictedUtilization
    from analysis.stats import Uncertain
    from reports.project import ReachedUtilization

LEAST, MOST = 1e-9, 1e60
"""Of any amount that is given."""

UNKNOWN_GENERATION = "a device of its own"


@dataclass(frozen=True)
class Range:
    """A number that the caller gave, or the ends of an interval."""

    low: float
    high: float


def positive(text: str) -> float:
    """A `type=` for a number above 0, of a size that something has; 1e21 and 300 alike."""
    value = float(number(float)(text))
    if not LEAST <= value <= MOST:  # `not` refuses nan
        raise argparse.ArgumentTypeError(f"expected a number above 0, from {LEAST:g} to {MOST:g}, got {text!r}")
    return value


def amount(text: str) -> Range:
    """A `type=` for VALUE or LOW..HIGH, both finite and above 0."""
    low, dots, high = text.partition("..")
    try:
        found = Range(positive(low), positive(high if dots else low))
    except argparse.ArgumentTypeError as fault:
        raise argparse.ArgumentTypeError(f"expected VALUE or LOW..HIGH, both above 0, got {text!r}") from fault
    if found.low > found.high:
        raise argparse.ArgumentTypeError(f"expected LOW..HIGH with LOW first, got {text!r}")
    return found


def add_machine(parser: Parser, family: str | None = None) -> None:
    """--device, --precision, --peak and those of `add_utilization`. family: its default."""
    group = parser.add_argument_group("the device and what of its peak is reached")
    group.add_argument("--device", required=True, help="as its driver prints it, such as 'NVIDIA H200'")
    group.add_argument("--precision", choices=PRECISIONS, default="amp-bf16", help="of the training (amp-bf16)")
    group.add_argument("--peak", type=positive, metavar="FLOP/S", help="of one device, if it is not in our table")
    add_utilization(group, family)


def add_utilization(group: argparse._ArgumentGroup, family: str | None = None) -> None:
    """--family, --utilization, --run, --confidence. family: its default."""
    default = f" ({family})" if family else ""
    group.add_argument("--family", default=family, help=f"of the model: cnn, language-model, …{default}")
    group.add_argument(
        "--utilization",
        type=amount,
        metavar="RATIO|LOW..HIGH",
        help="your own value or interval, instead of a prediction",
    )
    group.add_argument(
        "--run",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a run of yours, added to the published ones",
    )
    group.add_argument("--confidence", type=number(float, 0.5, 0.999), default=0.95, help="of every interval (0.95)")


def add_expenses(parser: Parser) -> None:
    """--price, --watts, --pue, --intensity: each VALUE or LOW..HIGH."""
    group = parser.add_argument_group("what it costs (each VALUE, or LOW..HIGH for an interval)")
    group.add_argument("--price", type=amount, help="of a device-hour, in any currency")
    group.add_argument("--watts", type=amount, help="of a device with its share of the host, averaged over the run")
    group.add_argument("--pue", type=amount, help="energy of the facility ÷ that of its devices")
    group.add_argument("--intensity", type=amount, help="gCO2e per kWh of electricity")


def machine(options: Namespace) -> ReachedUtilization:
    """What the options say. Raises Mistake."""
    device, unit = _device(options), PRECISIONS[options.precision].matmul_unit
    peak, source = _peak(options, device, unit)
    if getattr(options, "model", None) is not None:
        from runners.project.predicted_step import step_utilization

        utilization, words = step_utilization(options, device)
        return replace(_machine(options, device, unit, peak, source, utilization), step=words)
    return reached_of(options, device, unit, peak, source)


def reached_of(options: Namespace, device: Device | None, unit: str, peak: float, source: str) -> ReachedUtilization:
    """What of this peak a training reaches: as the options give it, else as runs predict it. Raises Mistake."""
    if options.utilization is not None:
        return _machine(options, device, unit, peak, source, _utilization(options, unit))
    from analysis.project.compute import TooFew, predicted_utilization, published_runs

    if unit not in published_runs.CLASS_OF_UNIT:
        raise Mistake(f"--utilization: expected with {unit}: no published run is known here")

    mine, left_out = own_runs(options.run)
    found = [*published_runs.observations(), *mine]
    if options.family not in (known := published_runs.families(found)):
        words = choice_error("family", options.family, known) if options.family else f"expected {', '.join(known)}"
        raise Mistake(f"--family: {words}; or give --utilization")
    generation = published_runs.generation(device) if device else UNKNOWN_GENERATION
    try:
        guess = predicted_utilization(found, options.family, generation, published_runs.CLASS_OF_UNIT[unit])
    except TooFew as fault:
        raise Mistake(f"{fault}: give --utilization RATIO or LOW..HIGH, or --run of your own") from fault
    return _machine(options, device, unit, peak, source, guess.utilization, guess, left_out)


def expenses(options: Namespace) -> dict[str, Uncertain]:
    """The given ones by name. Raises Mistake for what cannot be, or cannot be used."""
    if options.pue is not None and options.pue.low < 1:
        raise Mistake(f"--pue: expected 1 or more, got {options.pue.low:g}")
    for name, needs in (("pue", "watts"), ("intensity", "watts")):
        if getattr(options, name) is not None and getattr(options, needs) is None:
            raise Mistake(f"--{name}: expected --{needs} with it")
    names = [name for name in ("price", "watts", "pue", "intensity") if getattr(options, name) is not None]
    return {name: _caller_interval(getattr(options, name), options.confidence, "log") for name in names}


def _machine(
    options: Namespace,
    device: Device | None,
    unit: str,
    peak: float,
    source: str,
    utilization: Uncertain,
    guess: PredictedUtilization | None = None,
    left_out: Mapping[str, int] | None = None,
) -> ReachedUtilization:
    from analysis.devices import peaks
    from reports.project import ReachedUtilization

    name = peaks.spelling(device, options.device) if device else options.device
    family = options.family or ""
    return ReachedUtilization(name, options.precision, unit, peak, source, family, utilization, guess, left_out or {})


def _device(options: Namespace) -> Device | None:
    """The row of the table; None for another device whose peak the caller gives."""
    from analysis.devices import peaks

    device = peaks.lookup(options.device)
    if device is None and options.peak is None:
        near = ", ".join(peaks.nearest(options.device)) or "none"
        raise Mistake(
            f"--device: expected a name as its driver prints it, got {options.device!r}, nearest: {near}; "
            "or give its --peak in FLOP/s"
        )
    return device


def _peak(options: Namespace, device: Device | None, unit: str) -> tuple[float, str]:
    if options.peak is not None:
        return options.peak, "given"
    assert device is not None
    if unit not in device.peaks:
        from analysis.devices import peaks

        fitting = [name for name, each in PRECISIONS.items() if each.matmul_unit in device.peaks]
        name = peaks.spelling(device, options.device)
        raise Mistake(
            f"--precision: {name} has no {unit} peak: expected {' or '.join(fitting)}, got {options.precision}; "
            "or give its --peak in FLOP/s"
        )
    return device.peaks[unit], device.source


def _utilization(options: Namespace, unit: str) -> Uncertain:
    """The caller's own. Beyond 1 only IEEE units go, whose products fast algorithms save. Raises Mistake."""
    given: Range = options.utilization
    if unit in TENSOR_UNITS and (given.high > 1 or (given.high == 1 and given.low < 1)):
        raise Mistake(f"--utilization: expected less than 1 on {unit} units, got {given.low:g}..{given.high:g}")
    return _caller_interval(given, options.confidence, "logit" if unit in TENSOR_UNITS else "log")


def _caller_interval(given: Range, confidence: float, scale: str) -> Uncertain:
    """The caller's number or interval."""
    from analysis.stats import between, exactly

    return exactly(given.low) if given.low == given.high else between(given.low, given.high, confidence, scale)


WHAT = ("exact", "datasheet")
"""Method and denominator of the rows that are taken."""


def own_runs(asked: Iterable[Path]) -> tuple[list[Observation], dict[str, int]]:
    """The observations of these runs, and reason → rows that are none. Raises Mistake."""
    rows = [each for path in asked for each in _rows(path)]
    left_out = Counter(each for each in rows if isinstance(each, str))
    return [each for each in rows if isinstance(each, Observation)], dict(left_out)


def _rows(path: Path) -> list[Observation | str]:
    """The rows of one run. Raises Mistake where there is none, or it is of several devices."""
    try:
        rows, sittings = _table(path / "utilization.csv"), _table(path / "sittings.csv")
        names = {row["device_name"] for row in sittings}
        if len(names) != 1:
            raise Mistake(f"--run: expected a run on one device, got {path} on {', '.join(sorted(names)) or 'none'}")
        kept = [row for row in rows if (row["method"], row["denominator"]) == WHAT]
        return [ours(row, min(names), path.name) for row in kept if row["status"] in (*MEASURED, "unavailable")]
    except OSError as fault:
        raise Mistake(f"--run: expected the directory of a reported run, got {path}: {fault.strerror}") from fault
    except KeyError as fault:
        raise Mistake(f"--run: expected the tables of a run, got {path} without the column {fault}") from fault
    except (ValueError, csv.Error) as fault:
        raise Mistake(f"--run: expected the tables of a run, got {path}: {fault}") from fault


def _table(path: Path) -> list[Mapping[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
