"""The time of a step as a sum over classes of operations, each with a rate that was fitted.

    step time = Σ class  factor × FLOP ÷ peak  +  Σ kind  factor × bytes ÷ bandwidth  +  cost of a launch × launches

Peaks and bandwidths are the datasheet's, so a factor is how many times longer than at the datasheet's rate a class
takes (1.25: at 80 % of it). FLOP have a factor for each class with its width, bytes one for each kind. All factors
are ≥ 0, and the same for every model: nothing is fitted to a model. A *setting* is a mode, layout, way of running,
device, precision and framework that was measured; factors of a setting lean on those of all settings of its mode,
layout and way of running (its *pool*), which also stand for devices that were not measured.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.devices.peaks import Device
from analysis.devices.precisions import PRECISIONS
from analysis.reach.step_amounts import StepAmounts
from results.errors import Unavailable

FACTORS = Path(__file__).with_name("factors.json")
"""What was fitted (`python -m benchmarks.reach fit`)."""

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


def machine_of(device: Device, precision: str) -> Machine:
    """The rates of a device in a precision. Raises Unavailable where its datasheet has none of them."""
    unit = PRECISIONS[precision].matmul_unit
    peak, bytes_per_s = device.peaks.get(unit), device.bandwidth_bytes_per_s
    if not peak or not bytes_per_s:
        raise Unavailable(f"no datasheet peak of {unit}, or no bandwidth of memory")
    return Machine(peak, bytes_per_s)


@dataclass(frozen=True)
class Terms:
    """The terms of a sum, in the order of its factors: (what, class or kind)."""

    names: tuple[tuple[str, str], ...]

    @functools.cached_property
    def index(self) -> Mapping[tuple[str, str], int]:
        return {name: index for index, name in enumerate(self.names)}

    def row(self, step: StepAmounts, batch_size: float, machine: Machine) -> Numbers:
        """The time of each term at the datasheet's rates, s: a row of the design of a fit, shape (terms,)."""
        times = np.zeros(len(self.names))
        for name, amounts in step.items():
            launches, flop, nbytes = amounts.at(batch_size)
            for term, time_s in (
                ((ARITHMETIC, name), flop / machine.peak_flop_per_s),
                ((MEMORY, kind_of_class(name)), nbytes / machine.bytes_per_s),
                ((LAUNCHES, ""), launches * LAUNCH_S),
            ):
                if (index := self.index.get(term)) is not None:
                    times[index] += time_s
        return times

    def unknown_classes(self, step: StepAmounts) -> list[str]:
        """Classes of a step that no term stands for: nothing like them was measured."""
        return sorted(name for name in step if (MEMORY, kind_of_class(name)) not in self.index)


@dataclass(frozen=True)
class Setting:
    """What was measured together, in any version of PyTorch. device, precision: empty of a pool."""

    mode: str
    layout: str
    compiled: bool
    device: str = ""
    precision: str = ""

    @property
    def pool(self) -> Setting:
        """The settings that its factors lean on."""
        return Setting(self.mode, self.layout, self.compiled)

    @property
    def text(self) -> str:
        words = (self.mode, self.layout, "compiled" if self.compiled else "eager")
        return " | ".join((*words, self.device, self.precision) if self.device else words)


@dataclass(frozen=True, eq=False)
class TimeModel:
    """terms: by way of running, eager or compiled. factors: by pool, and by setting with its framework, each of shape
    (terms,). newest: a setting (`Setting.text`) → with its newest framework. intervals, coverage: of families and
    of devices that were left out, by group: (low, high, scores) and (coverage, low, high). small: inference at a batch
    `below` which a device that was not measured may take `high` times the predicted time, by layout."""

    terms: Mapping[str, Terms]
    factors: Mapping[str, Numbers]
    newest: Mapping[str, str]
    intervals: Mapping[str, Mapping[str, Sequence[float]]]
    coverage: Mapping[str, Mapping[str, Sequence[float]]]
    small: Mapping[str, Any]

    def factors_of(self, setting: Setting) -> tuple[str, Numbers] | None:
        """(what they were fitted on, factors) of a setting or, for a device that was not measured, of its pool."""
        texts = (self.newest.get(setting.text, ""), setting.pool.text)
        return next(((text, self.factors[text]) for text in texts if text in self.factors), None)


@functools.cache
def fitted_model() -> TimeModel:
    """What was fitted, as FACTORS has it."""
    content = json.loads(FACTORS.read_text(encoding="utf-8"))
    content["terms"] = {run: Terms(tuple(map(tuple, names))) for run, names in content["terms"].items()}
    content["factors"] = {text: np.array(values, float) for text, values in content["factors"].items()}
    return TimeModel(**content)


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
    return [
        TimePart(what, name, float(times[index]), float(factors[index]))
        for index in np.argsort(-times, kind="stable")
        if times[index] > 0
        for what, name in (terms.names[index],)
    ]
