"""Windows of time in which a sampler polled as often as a test says, however long a busy machine takes for it."""

import time
from collections.abc import Callable

from runners.workers.devices import TelemetryWatch


def until(condition: Callable[[], object], within_s: float = 60.0) -> None:
    """Wait until something is so. Raises AssertionError after `within_s` seconds."""
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def polled(watch: TelemetryWatch, polls: int = 3) -> tuple[float, float]:
    """A window of host time with so many readings of a watch that was started; one more is before it, one after it."""
    assert watch._sampler is not None
    readings = watch._sampler._readings

    def more(count: int) -> float:
        enough = len(readings) + count
        until(lambda: len(readings) >= enough)
        return time.monotonic()

    start_s, end_s = more(1), more(polls)
    more(1)
    return start_s, end_s
