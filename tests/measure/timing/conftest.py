"""A machine without neighbours, so that simulated clocks see no wait of the real one."""

from __future__ import annotations

import pytest

from measure.timing.disturbance import CoreState, Disturbance


@pytest.fixture(autouse=True)
def _no_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("measure.timing.blocks.disturbance", lambda: Disturbance(0.0, 0, 0.0, None))
    monkeypatch.setattr("measure.timing.blocks.core_state", lambda with_round_trip: CoreState(None, None))
