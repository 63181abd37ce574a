"""A machine without neighbours, so that simulated clocks see no wait of the real one."""

import pytest

from tests.support.fakes.hosts import without_neighbours


@pytest.fixture(autouse=True)
def _no_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    without_neighbours(monkeypatch)
