"""What the callbacks of all trainers share: a meter around each step, and faults that are one warning, and no error of
somebody's training."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

from measure.meter.meter import MeterSummary, UtilizationMeter
from results.errors import one_line


class MeterCallback:
    """A meter of a trainer's steps. options: of `UtilizationMeter`. meter: the meter, once training has begun. result:
    of all steps, once it has ended. has_failed: whether a fault has ended the measurement."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.meter: UtilizationMeter | None = None
        self.result: MeterSummary | None = None
        self.has_failed = False
        self._begun = False

    def _begin(self, is_last: bool) -> None:
        if self.meter is not None:
            if is_last:
                self.meter.observe_next()
            self.meter.begin()
            self._begun = True

    def _end(self) -> None:
        if self.meter is not None and self._begun:
            self.meter.update()
            self._begun = False

    def _finish(self) -> None:
        if self.meter is not None:
            self.result = self.meter.summary()
            self.meter.close()


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
            if self.meter is not None:
                self.meter.fail(fault)
                self.result = self.meter.summary()
                return
            reason = f"the meter stopped: {type(fault).__name__}: {one_line(str(fault), 200)}"
            warnings.warn(f"flopledger: {reason}", RuntimeWarning, stacklevel=2)
            self.result = MeterSummary(steps=0, device="", device_name="", warnings=(reason,))

    return call
