"""The pytest fixture `flopledger_step`: tests that hold the cost of a training step to a file.

    def test_my_step(flopledger_step):
        step = flopledger_step(model, inputs, optimizer=torch.optim.SGD)
        assert step.flop == 2 * 3 * 64 * 256 * 10
        step.check("baseline.json")                  # FLOP, bytes, launches, memory: equal to the last digit
        step.check("baseline.json", slower="25%")    # and the time of a step, against that of the same machine

`pytest --flopledger-update` writes the files instead of checking them. Pytest finds the fixture if the project is
installed; in a checkout use `pytest -p flopledger.pytest_plugin`. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NOTES: list[str] = []
"""What was not compared, for the end of the session."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("flopledger").addoption(
        "--flopledger-update", action="store_true", help="write the baselines of flopledger_step in place of checking"
    )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if NOTES:
        terminalreporter.section("flopledger: not compared")
        for note in NOTES:
            terminalreporter.line(note)
        NOTES.clear()


class CheckedStep:
    """The counts of a step (`flop`, `bytes`, `launches`, `memory`), and `check`, which compares them with a file."""

    def __init__(self, step: Any, node: pytest.Item, update: bool, name: str) -> None:
        self._step, self._node, self._update, self._name = step, node, update, name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)

    def check(self, baseline: str | Path, slower: str | float | None = None) -> None:
        """Fails if a count differs from the baseline, or if the step is slower by more than `slower` ("25%" or 0.25).

        baseline: a JSON file, relative to the folder of the test file; it may hold many tests. Time is compared if
        device and torch are those of the baseline; elsewhere the test says that it is not.
        """
        from measure.step.pinned_step import read_baseline, slower_line, write_baseline

        limit = None if slower is None else _ratio(slower)
        path = self._node.path.parent / baseline
        times_s = None if limit is None else self._step.block_times_s()
        if self._update:
            entry = {**self._step.counts(), **_place(self._step.device)}
            write_baseline(path, self._name, entry if times_s is None else {**entry, "block_times_s": times_s})
            return
        kept = read_baseline(path, self._name)
        if kept is None:
            pytest.fail(f"{path} has no {self._name!r}: run pytest --flopledger-update once", pytrace=False)
        if lines := self._step.differences(kept):
            here = _place(self._step.device)
            other = (
                "" if kept.get("torch") == here["torch"] else f" (torch {kept.get('torch')} then, {here['torch']} now)"
            )
            changes = "; ".join(lines)
            pytest.fail(f"{self._name}: {changes}{other}; pytest --flopledger-update accepts it", pytrace=False)
        if limit is not None and times_s is not None:
            self._check_time(kept, times_s, limit, slower_line)

    def _check_time(
        self, kept: dict[str, Any], times_s: list[float], limit: float, slower_line: Callable[..., str]
    ) -> None:
        here = _place(self._step.device)
        before_s = kept.get("block_times_s")
        differing = [
            f"{name} {kept.get(name)!r} then, {here[name]!r} now" for name in here if kept.get(name) != here[name]
        ]
        if not before_s or differing:
            NOTES.append(f"{self._name}: time: {'; '.join(differing) or 'the baseline has none'}")
        elif line := slower_line(before_s, times_s, limit, self._step.device):
            pytest.fail(f"{self._name}: {line}", pytrace=False)


@pytest.fixture
def flopledger_step(request: pytest.FixtureRequest) -> Callable[..., CheckedStep]:
    """A function (model, inputs, *, kwargs, optimizer, loss_of, run, name) → the step's counts, with `check`."""
    update = bool(request.config.getoption("--flopledger-update"))

    def step(model: Any, inputs: Any, *, name: str = "", **more: Any) -> CheckedStep:
        from measure.step.pinned_step import pinned_step

        key = f"{request.node.name}{f' {name}' if name else ''}"
        return CheckedStep(pinned_step(model, inputs, **more), request.node, update, key)

    return step


def _ratio(limit: str | float) -> float:
    """ "25%" or 0.25. Raises ValueError."""
    text = str(limit).strip()
    try:
        ratio = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio < 100:
        raise ValueError(f"slower: expected a limit such as '25%' or 0.25, got {limit!r}")
    return ratio


def _place(device: str) -> dict[str, str]:
    """What a time depends on beside the step."""
    import torch

    from measure.device.environment import device_facts

    name = device_facts(device).name or platform.processor() or platform.machine()
    return {"device": str(name), "torch": str(torch.__version__), "threads": str(torch.get_num_threads())}
