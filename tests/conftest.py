"""Tests marked `gpu` are skipped without a CUDA device, for one reason that the list of expected skips knows; the whole
suite runs in two processes where pytest-xdist is installed, a file or a selection in one."""

import gc
import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

from measure.ceiling import trials
from tests.support import server
from tests.support.collector import Frozen

server.install()

settings.register_profile(
    "shared", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
settings.load_profile("shared")  # a neighbour's load, or a seed that draws much in vain, is no fault of a test

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a shell: tests of Ctrl-C would fail
    signal.signal(signal.SIGINT, signal.default_int_handler)

trials.OWN_PEAK_S = 0.0  # or each summary of a meter would measure this machine first

os.environ.pop("COLUMNS", None)  # or pages would be as wide as the terminal that the tests were started in
os.unsetenv("COLUMNS")  # which readline sets for child processes only
if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):  # or each process would compile all tests, and the project, again
    sys.dont_write_bytecode = False

PROCESSES = 2
"""More would have tests that time something hold each other up, each has torch's libraries of its own in memory."""

LONGEST = (
    "test_golden",
    "test_sweep_end_to_end",
    "test_sweep_profile",
    "test_account_rules",
    "test_pytest_plugin",
    "test_vision",
    "test_report_command",
    "test_gates",
    "test_count_command",
    "test_partial_counts",
    "test_isolate",
    "test_store_kill",
    "test_figures",
)
"""Files that take 15 s and more: none of them is begun when the others end."""

PLAIN = "not slow and not standin and not survival and not notebooks and not wheel and not cluster"
"""What `python -m pytest` runs (`addopts` in pyproject.toml); .ci/run has a step for each of the others but `slow`."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Take two processes for the whole suite, unless the command line says how many (`-n`) or wants to look inside.

    They share the tests by files: what a file makes once is not made in both. Each computes in one thread, as two
    threads on two cores that others use mostly wait for each other.
    """
    options = config.option
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and options.markexpr == PLAIN
    asked = options.keyword or options.usepdb or options.collectonly or getattr(options, "numprocesses", 0) is not None
    if whole and not asked and (os.cpu_count() or 1) >= PROCESSES and not hasattr(config, "workerinput"):
        options.numprocesses, options.dist, options.loadscopereorder = PROCESSES, "loadfile", False
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not getattr(options, "numprocesses", 0):
        gc.disable()  # while all modules are imported there is nothing to collect


def pytest_collection_finish() -> None:
    """Collect seldom from now on: records, syntax trees and formulas are many objects and few cycles."""
    gc.enable()
    gc.set_threshold(50_000, 20, 20)


_frozen = Frozen()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> None:
    """Collecting by hand is cheap in every test."""
    _frozen.begin(item.path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip `gpu` tests without a device; torch is asked only if there are any. Several processes begin with LONGEST."""
    if hasattr(config, "workerinput"):
        rank = {name: place for place, name in enumerate(LONGEST)}
        items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _has_cuda():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
