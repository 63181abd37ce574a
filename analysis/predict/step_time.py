"""The time of a step as a sum over classes of operations, each with a rate that was fitted.

    step time = Σ class  factor × FLOP ÷ peak  +  Σ kind  factor × bytes ÷ bandwidth  +  cost of a launch × launches

Peaks and bandwidths are the datasheet's, so a factor is how many times longer than at the datasheet's rate a class
takes (1.25: at 80 % of it). FLOP have a factor for each class with its width, bytes one for each kind. All factors
are ≥ 0, and the same for every model: nothing is fitted to a model. A *setting* is a mode, layout, way of running,
device, precision and framework that was measured; factors of a setting lean on those of all settings of its mode,
layout and way of running (`Pool`), which also stand for devices that were not measured.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.predict.operation_amounts import StepAmounts

FACTORS = Path(__file__).with_name("factors.json")
"""What was fitted (`python -m benchmarks.pages.predict`)."""

LAUNCH_S = 1e-5
"""The unit of a launch's factor."""

ARITHMETIC, MEMORY, LAUNCHES = "arithmetic", "memory", "launches"

Numbers = NDArray[np.float64]

_WIDTH = re.compile(r" [≤>]\d+$")


def kind_of_class(name: str) -> str:
    """The class without its width: "convolution 1x1 backward ≤64" is a "convolution 1x1 backward"."""
    return _WIDTH.sub("", name)


@dataclass(frozen=True)
class Machine:
    """The datasheet: FLOP/s of the unit that runs the products, bytes/s of memory."""

    peak_flop_per_s: float
    bytes_per_s: float


@dataclass(frozen=True)
class Terms:
    """The terms of a sum, in the order of its factors: (what, class or kind)."""

    names: tuple[tuple[str, str], ...]

    @functools.cached_property
    def place(self) -> Mapping[tuple[str, str], int]:
        return {name: place for place, name in enumerate(self.names)}

    def row(self, step: StepAmounts, batch_size: float, machine: Machine) -> Numbers:
        """The time of each term at the datasheet's rates, s: a row of the design of a fit, shape (terms,)."""
        found = np.zeros(len(self.names))
        for name, each in step.items():
            launches, flop, nbytes = each.at(batch_size)
            for term, time_s in (
                ((ARITHMETIC, name), flop / machine.peak_flop_per_s),
                ((MEMORY, kind_of_class(name)), nbytes / machine.bytes_per_s),
                ((LAUNCHES, ""), launches * LAUNCH_S),
            ):
                if (place := self.place.get(term)) is not None:
                    found[place] += time_s
        return found

    def unknown_classes(self, step: StepAmounts) -> list[str]:
        """Classes of a step that no term stands for: nothing like them was measured."""
        return sorted(name for name in step if (MEMORY, kind_of_class(name)) not in self.place)


def terms_of(steps: Sequence[StepAmounts]) -> Terms:
    """The terms of a fit on these steps."""
    classes = sorted({(name, each.flop != (0.0, 0.0)) for step in steps for name, each in step.items()})
    arithmetic = sorted({name for name, has_flop in classes if has_flop})
    kinds = sorted({kind_of_class(name) for name, _ in classes})
    return Terms((*((ARITHMETIC, name) for name in arithmetic), *((MEMORY, kind) for kind in kinds), (LAUNCHES, "")))


@dataclass(frozen=True)
class Setting:
    """What was measured together. framework: as the source prints it, empty where it does not."""

    mode: str
    layout: str
    compiled: bool
    device: str = ""
    precision: str = ""
    framework: str = ""

    @property
    def pool(self) -> Setting:
        """The settings that its factors lean on."""
        return Setting(self.mode, self.layout, self.compiled)

    @property
    def text(self) -> str:
        words = (self.mode, self.layout, "compiled" if self.compiled else "eager")
        return " | ".join((*words, self.device, self.precision, self.framework) if self.device else words)


@dataclass(frozen=True, eq=False)
class TimeModel:
    """terms: by way of running, eager or compiled. factors: by setting (`Setting.text`), of pools too, each of shape
    (terms,). newest: a setting without its framework → the one with the newest. details: the whole file, with intervals
    and coverage."""

    terms: Mapping[str, Terms]
    factors: Mapping[str, Numbers]
    newest: Mapping[str, str]
    details: Mapping[str, Any]

    def factors_of(self, setting: Setting) -> tuple[str, Numbers] | None:
        """(what they were fitted on, factors) of a setting or, for a device that was not measured, of its pool."""
        for text in (setting.text, self.newest.get(_without_framework(setting), ""), setting.pool.text):
            if text in self.factors:
                return text, self.factors[text]
        return None


def _without_framework(setting: Setting) -> str:
    return Setting(setting.mode, setting.layout, setting.compiled, setting.device, setting.precision).text


@dataclass(frozen=True)
class TimePart:
    """A term's part of a step: time_s, and its factor (times the datasheet's time)."""

    what: str
    name: str
    time_s: float
    factor: float


def parts_of(terms: Terms, factors: Numbers, row: Numbers) -> list[TimePart]:
    """The parts of a step's time, the longest first."""
    times = factors * row
    order = np.argsort(-times, kind="stable")
    return [
        TimePart(terms.names[place][0], terms.names[place][1], float(times[place]), float(factors[place]))
        for place in order
        if times[place] > 0
    ]


def rounded(numbers: Numbers, digits: int = 5) -> list[float]:
    """Factors as they are kept."""
    return [float(f"{number:.{digits}g}") if math.isfinite(number) else 0.0 for number in numbers]


@functools.cache
def fitted_model(path: Path = FACTORS) -> TimeModel:
    """What was fitted. Raises ValueError for a file that is not the table of factors."""
    content = json.loads(path.read_text(encoding="utf-8"))
    terms = {how: Terms(tuple((what, name) for what, name in names)) for how, names in content["terms"].items()}
    factors = {text: np.array(values, float) for text, values in content["factors"].items()}
    return TimeModel(terms, factors, content["newest"], content)
