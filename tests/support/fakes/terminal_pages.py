"""A process whose terminal is a real one, of widths that it sets itself: every command's page in each of them.

Run as `python -m tests.support.fakes.terminal_pages WIDTHS NAME…` by `tests/runners/cli/test_page_width.py`. One
process for all of them, because each would import the same libraries; commands that measure tell what a made-up worker
measured, once.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import shutil
import struct
import sys
import tempfile
import termios
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from results.errors import StoreFault
from runners.__main__ import installed
from runners.cli.progress import Progress
from tests.reports.compare.test_gate import slow, write
from tests.runners.cli.test_terminal import CASES, command, module_of

BEGIN, END = "\x1b[0m<<<", "\x1b[0m>>>"
"""Around a page: BEGIN, its name and width, the page, END."""


def _fails() -> int:
    raise StoreFault("the output could not be written: " + "too long " * 20)


def notes(_: str) -> None:
    """A line on stderr, an error, and the progress of a sweep."""
    from results.records.cell import Cell, Run
    from runners.cli import exits
    from runners.cli.output import say

    say(
        "note: earlier sessions of this run were collected by version 0.9, this is 1.0, and what they recorded is in "
        "results/runs/2026-11-24_resnet18_channels_last/sittings.csv beside the manifest"
    )
    exits.guarded(_fails)
    cell = Cell(model="timm:vit_small_patch16_224", batch_size=8, device="cpu")
    with Progress(2) as progress:
        progress.expect([60.0, 60.0])
        progress.stage(cell, "finding the device's ceiling")
        progress.say("measuring on the CPU: there is no datasheet peak, the ceiling found here is the denominator")
        reason = "killed at its limit of 90 s, as --cell-timeout says; what was measured before that is kept"
        values: dict[str, Any] = {"cell_id": "c", "attempt": 1, "sitting": "s0", "status": "timeout", "reason": reason}
        progress.done(Run(**vars(cell), **values, duration_s=90.0))


def reach(_: str) -> None:
    told = ["synthetic_matmul", "--batch-size", "8", "--device", "NVIDIA GeForce RTX 3090"]
    assert import_module("runners.reach").main(told) == 0


def gates(_: str) -> None:
    from reports.sweep import checks
    from results.records.comparisons import FAIL, OPEN, PASS, Verdict
    from runners.cli.output import show_page

    rule = "every product of the step is counted once, by each of the counters that were asked for it"
    found = {"c0ffee": "fvcore counts 1,814,073,344 forward, ours 3,628,146,688: more than 0.1 % apart"}
    asked = {"checks": rule, "asked": 12, "needed": True}
    told = [Verdict(gate=f"gate_of_{name}", verdict=name, **asked) for name in (PASS, OPEN)]
    told.append(Verdict(gate="counts_agree", verdict=FAIL, checks=rule, asked=3, found=found))
    show_page(lambda width, colour: checks.to_text(told, {"c0ffee": "resnet18 b8 fp32"}, width, colour))


def compared(*more: str) -> Callable[[str], None]:
    """Two runs, and what a gate says of them."""

    def tell(_: str) -> None:
        a, b = pair()
        assert import_module("runners.report.command").main([str(a), str(b), *more]) in (0, 5)

    return tell


@functools.cache
def pair() -> tuple[Path, Path]:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, True)
    return write(folder / "a"), write(folder / "b", slow(1.1))


def helping(name: str) -> Callable[[str], None]:
    """`--help`, which ends the process."""

    def tell(_: str) -> None:
        try:
            import_module(module_of(name)).main(["--help"])
        except SystemExit as end:
            assert end.code == 0  # noqa: PT017

    return tell


def commands(_: str) -> None:
    assert import_module("runners.__main__").main([]) == 0


PAGES = {**{name: tell for name, (tell, _) in CASES.items()}, "reach": reach, "gates": gates}
PAGES |= {"notes": notes, "commands": commands}
PAGES |= {"compare": compared(), "gate": compared("--fail-if", "slower:2%,flop:0")}
PAGES |= {
    "explain": command("count", "synthetic_matmul", "--explain", "fvcore=33M,ptflops=30M"),
    "checkpoints": command("footprint", "synthetic_matmul", "--checkpoints"),
}
PAGES |= {f"help {name}": helping(name) for name in installed()}
"""What is told → how, on this process's stdout and stderr."""


def main(widths: str, *names: str) -> None:
    for name in names:
        for width in widths.split(","):
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, int(width), 0, 0))
            print(f"{BEGIN}{name},{width}", flush=True)
            PAGES[name]("table")
            sys.stderr.flush()
            print(END, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
