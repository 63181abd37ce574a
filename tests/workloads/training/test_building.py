"""What the author's code raises while a model is built becomes one line."""

from __future__ import annotations

import sys

import pytest

from results.errors import Unavailable
from workloads.training.building import building


def test_a_build_that_ends_the_program_is_a_fault_of_the_build() -> None:
    with (
        pytest.raises(ValueError, match=r"net\.py called sys\.exit\(3\): expected it to return a model"),
        building("net.py"),
    ):
        sys.exit(3)


def test_a_package_that_is_not_there_is_no_mistake() -> None:
    with pytest.raises(Unavailable, match=r"net\.py raised ModuleNotFoundError"), building("net.py"):
        import no_such_package_anywhere  # noqa: F401


def test_memory_that_runs_out_stays_that() -> None:
    with pytest.raises(MemoryError), building("net.py"):
        raise MemoryError
