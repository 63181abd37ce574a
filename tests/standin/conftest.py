"""Fixtures of the stand-in device. `standin` makes devices; each test fails by any call that the stand-in has not.

Files are the unit in which processes share the tests (`--dist loadfile`), as each has one device or sweep for all of
its tests: those that take longest come first, so that none is begun when the others end.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.standin.device.stand_in import Absent, StandIn, build

Make = Callable[..., StandIn]

LONGEST_FIRST = ("faults", "self_test", "sweep_truth", "device_bound", "commands", "step_truth", "flop", "changes")
LONGEST_FIRST += ("shared_device", "lost_device", "telemetry_truth", "out_of_memory", "meter_truth")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of this folder in the order above, after those of others; files that it does not name come last."""
    rank = {f"test_{name}": place for place, name in enumerate(LONGEST_FIRST)}
    here = Path(__file__).parent
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)) if item.path.parent == here else -1)


def built_once(folder: Path) -> Path:
    """The libraries in `folder`, built by whichever process comes first; the others wait. Raises Absent."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            build(folder)
            (folder / "built").touch()
    return folder


def built_or_skipped(folder: Path) -> Path:
    """The same, or a skip with the reason why there are none; in .ci/run that is a failure."""
    try:
        return built_once(folder)
    except Absent as absent:
        if os.environ.get("FLOPLEDGER_CI"):
            pytest.fail(f"continuous integration needs the stand-in device: {absent}")
        pytest.skip(f"no stand-in device: {absent}")


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The libraries, built once a session."""
    # the temporary folder that all processes of this run of pytest see
    own = tmp_path_factory.getbasetemp()
    return built_or_skipped((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "standin")


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
