"""Callbacks whose own faults are one warning, and no error of somebody's training."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, Protocol

from measure.meter.meter import MeterSummary, UtilizationMeter
from results.errors import one_line


class MeterCallback(Protocol):
    """meter: once training has begun. result: what was measured, once it has ended. has_failed: whether a fault has
    ended the measurement."""

    meter: UtilizationMeter | None
    result: MeterSummary | None
    has_failed: bool


def guarded(method: Callable[..., None]) -> Callable[..., None]:
    """A method of a callback, which a trainer calls. A fault in it ends the measurement, with one warning.

    Raises ValueError and TypeError where the meter is made: the caller's options cannot be right.
    """

    @functools.wraps(method)
    def call(self: MeterCallback, *args: Any, **kwargs: Any) -> None:
        try:
            if not self.has_failed:
                method(self, *args, **kwargs)
        except Exception as fault:
            if self.meter is None and isinstance(fault, (ValueError, TypeError)):
                raise
            self.has_failed = True
            self.result = _stopped(self.meter, fault)

    return call


def _stopped(meter: UtilizationMeter | None, fault: Exception) -> MeterSummary:
    """What is left of a measurement that a fault has ended."""
    if meter is not None:
        meter.fail(fault)
        return meter.summary()
    reason = f"the meter stopped: {type(fault).__name__}: {one_line(str(fault), 200)}"
    warnings.warn(f"flopledger: {reason}", RuntimeWarning, stacklevel=3)
    return MeterSummary(steps=0, device="", device_name="", warnings=(reason,))
