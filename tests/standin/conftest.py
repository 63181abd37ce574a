"""Fixtures of the stand-in device. `standin` makes devices; each test fails by any call that the stand-in has not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.standin.device.stand_in import Absent, StandIn, build

Make = Callable[..., StandIn]


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries, built once a session. Skipped with the reason where they cannot be; never in .ci/run."""
    try:
        return build(tmp_path_factory.mktemp("standin"))
    except Absent as absent:
        if os.environ.get("FLOPLEDGER_CI"):
            pytest.fail(f"continuous integration needs the stand-in device: {absent}")
        pytest.skip(f"no stand-in device: {absent}")


def makes(libraries: Path, folder: Callable[[], Path]) -> Iterator[Make]:
    """Makes devices, each in a new folder; in the end none may have been asked for what it has not."""
    made: list[StandIn] = []

    def make(**plan: float | str) -> StandIn:
        made.append(StandIn(libraries, folder(), plan))
        return made[-1]

    yield make
    assert [name for device in made for name in device.missing()] == []


@pytest.fixture(scope="module")
def standin_of_module(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Makes devices that live as long as the module's tests."""
    yield from makes(libraries, lambda: tmp_path_factory.mktemp("device"))


@pytest.fixture
def standin(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Makes devices for one test."""
    yield from makes(libraries, lambda: tmp_path_factory.mktemp("device"))
