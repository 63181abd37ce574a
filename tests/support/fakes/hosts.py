"""A host without a device, as a clock for what times steps: its time passes only where a test says so."""

import pytest


def without_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks see no wait of the real machine, and not where its processors are: their clock is a simulated one."""
    monkeypatch.setattr("measure.timing.blocks.disturbance", lambda: {"run_wait_s": 0.0, "steal_s": 0.0})
    monkeypatch.setattr("measure.timing.blocks.round_trip", lambda: None)


class Host:
    """now_s: its time. There is no device, so that `between_s` is None."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def wall_s(self) -> float:
        return self.now_s

    def event(self) -> float:
        return self.now_s

    def between_s(self, _start: float, _end: float) -> float | None:
        return None

    def synchronize(self) -> None:
        pass
