"""How modes of `runners.project` tell their answer: on stdout, into --out, and as the picture of --tornado."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runners.cli import Mistake, Parser, add_format

if TYPE_CHECKING:
    from analysis.stats import Estimate, Swing, Uncertain
    from runners.cli import Page

ENDINGS = (".png", ".svg")

HOURS: Mapping[str, float] = {"GPU-hours": 1.0, "GPU-days": 24.0, "GPU-weeks": 168.0, "GPU-years": 8766.0}
FLOP = "FLOP"


def add_output(made: Parser) -> None:
    """--rows, --out, --tornado and --format."""
    made.add_argument("--rows", action="store_true", help="list the published runs that the utilization is from")
    made.add_argument("--out", type=Path, metavar="FILE", help="also write what is printed here")
    made.add_argument(
        "--tornado", type=Path, metavar="PNG", help="draw here which inputs the results depend on most (.png or .svg)"
    )
    add_format(made)


def reserve_all(options: Namespace) -> None:
    """Make sure that what will be written can be. Raises Mistake or StoreFault."""
    from runners.cli import reserve

    if options.tornado is not None and options.tornado.suffix not in ENDINGS:
        raise Mistake(f"--tornado: expected a file ending in .png or .svg, got {options.tornado}")
    for path in (options.out, options.tornado):
        if path is not None:
            if path.is_dir():
                raise Mistake(f"expected a file to write, got the directory {path}")
            reserve(path)


def intervals_of(given: Mapping[str, Uncertain], confidence: float) -> dict[str, tuple[float, float, float]]:
    """Name → median and ends."""
    return {name: (each.median, *each.interval(confidence)) for name, each in given.items()}


def tell(options: Namespace, page: Page, answers: Mapping[str, Estimate], swings: Mapping[str, Sequence[Swing]]) -> int:
    """Write what was asked for, print the page; the exit code. Raises Mistake for a picture of nothing."""
    from runners.cli import put, show_page

    if options.tornado is not None:
        from reports.project import tornadoes
        from reports.shared import render_all

        moved = {name: (answers[name], each) for name, each in swings.items() if each and _ends(answers[name], each)}
        if not moved:
            raise Mistake("--tornado: expected an answer with an interval that ends, there is none")
        pictures = render_all(lambda: {"tornado": tornadoes(moved, options.confidence)})
        put(options.tornado, next(data for name, data in pictures.items() if name.endswith(options.tornado.suffix)))
    show_page(page, options.out)
    return 0


def _ends(answer: Estimate, swings: Sequence[Swing]) -> bool:
    return all(map(math.isfinite, (answer.low, answer.high, *(end for s in swings for end in (s.low, s.high)))))


def budget_flop(options: Namespace, peak_flop_per_s: float, draws: Mapping[str, Any]) -> tuple[Any, Any]:
    """(FLOP, GPU-hours) of the budget for draws of the utilization."""
    from analysis.project.compute import flop_of, gpu_hours_of

    amount, unit = options.budget
    if unit == FLOP:
        flop = amount + 0 * draws["utilization"]
        return flop, gpu_hours_of(flop, peak_flop_per_s, draws["utilization"])
    hours = amount * HOURS[unit] + 0 * draws["utilization"]
    return flop_of(hours, peak_flop_per_s, draws["utilization"]), hours


def request_json(options: Namespace) -> dict[str, float | str]:
    """What was asked, as JSON has it."""
    if options.budget is None:
        return {"loss": options.reach}
    amount, unit = options.budget
    return {"budget": amount, "unit": unit}
