"""Definition: the line of progress on a terminal has the stage, the count and the time left; stdout stays empty."""

import io

import pytest

from results.records.cell import Cell, Run
from runners.cli.output import Progress

CELL = Cell(model="resnet18", batch_size=8, device="cpu")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(status: str = "ok", reason: str = "", duration_s: float | None = 12.0, **more: object) -> Run:
    parameters = {**vars(CELL), **more}
    return Run(**parameters, cell_id="c", attempt=1, session="s0", status=status, reason=reason, duration_s=duration_s)


@pytest.fixture(autouse=True)
def able(monkeypatch):
    """A terminal that can replace lines, whatever these tests run in."""
    monkeypatch.setenv("TERM", "xterm")


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
