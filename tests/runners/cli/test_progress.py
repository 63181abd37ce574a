"""What a person sees while a sweep runs: a line a cell in a log, one line on a terminal; nothing on stdout."""

import io

import pytest

from results.records.cell import Cell, Run
from runners.cli import progress
from runners.cli.progress import Progress

CELL = Cell(model="resnet18", batch_size=8, device="cpu")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(status: str = "ok", reason: str = "", duration_s: float | None = 12.0, **more: object) -> Run:
    parameters = {**vars(CELL), **more}
    return Run(**parameters, cell_id="c", attempt=1, sitting="s0", status=status, reason=reason, duration_s=duration_s)


@pytest.fixture(autouse=True)
def able(monkeypatch):
    """A terminal that can replace lines, whatever these tests run in."""
    monkeypatch.setenv("TERM", "xterm")


@pytest.fixture
def clock(monkeypatch):
    """Host time that a test sets."""
    now = {"s": 100.0}
    monkeypatch.setattr(progress.time, "monotonic", lambda: now["s"])
    return now


def test_a_terminal_has_a_line_with_the_stage_the_count_and_the_time_left(capsys):
    stream = Terminal()
    with Progress(3, stream) as said:
        said.stage(CELL, "counting")
        said.done(run("crashed", "it printed: [red]not a colour[/red] [1]"))
        said.stage(CELL, "finding the device's ceiling")
        said.say("[bold]as it is[/bold]")
    text = stream.getvalue()
    assert "resnet18 batch 8 fp32: finding the device's ceiling" in text
    assert "1/3" in text
    assert "ETA" in text
    assert "crashed (it printed: [red]not a colour[/red] [1])" in text, "a reason is no markup"
    assert "[bold]as it is[/bold]" in text
    assert capsys.readouterr() == ("", "")


def test_the_time_left_is_a_number_from_the_first_cell_on(clock):
    """Planned 10 + 4 + 4 s: at least 18; 3 s later 15. The first took 30 s, 3 times the plan: 3 · 8 = 24 are left."""
    said = Progress(3, Terminal())
    assert said.left_s() is None
    said.expect([10.0, 4.0, 4.0])
    assert said.left_s() == (18.0, True)
    assert said.line(100).endswith(" 0/3 0:00:00 ETA ≥ 0:00:18")
    clock["s"] += 3.0
    assert said.left_s() == (15.0, True)
    clock["s"] += 17.0
    assert said.left_s() == (8.0, True), "a cell that takes longer than its plan may end at any time"
    clock["s"] += 10.0
    said.done(run())
    assert said.left_s() == (24.0, False)
    said.expect([4.0, 4.0])
    clock["s"] += 12.0
    said.done(run())
    assert said.left_s() == (12.0, False)
    assert said.line(100).endswith(" 2/3 0:00:42 ETA 0:00:12")
