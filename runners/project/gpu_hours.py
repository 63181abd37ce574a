"""`python -m runners.project --compute`: training compute from GPU-hours, or GPU-hours from FLOP, with an interval.

Peak × hours × utilization, the last predicted from published runs and our own
(`analysis/project/compute/gpu_hours.py`), and what the hours cost at the caller's prices. Nothing is trained, timed or
downloaded.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runners.cli import Parser, guarded
from runners.project.machine import add_expenses, add_machine, expenses, machine, positive
from runners.project.output import add_output, intervals_of, reserve_all, tell
from runners.project.predicted_step import add_step

if TYPE_CHECKING:
    from reports.project import GpuHoursAnswer, ReachedUtilization

EXAMPLES = """examples:
  python -m runners.project --compute --gpu-hours 300 --device "NVIDIA A100-SXM4-80GB" --family cnn
  python -m runners.project --compute --gpu-hours 300 --device "NVIDIA RTX A6000" --precision amp-fp16 --model resnet50
  python -m runners.project --compute --flop 1e21 --device "NVIDIA H200" --family language-model --price 2..3.5
how the interval is found, and what it is worth: docs/compute.md"""


def parser() -> Parser:
    """The parser of this mode."""
    made = Parser(
        prog="python -m runners.project --compute",
        description="What training compute so many GPU-hours are, or how many GPU-hours so much compute takes.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--compute", action="store_true", help=argparse.SUPPRESS)
    asked = made.add_mutually_exclusive_group(required=True)
    asked.add_argument("--gpu-hours", type=positive, metavar="H", help="devices × hours of training → FLOP")
    asked.add_argument("--flop", type=positive, help="model FLOP of a training → GPU-hours")
    add_machine(made)
    add_step(made)
    add_expenses(made)
    add_output(made)
    return made


def main(arguments: Sequence[str]) -> int:
    """The command."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    from reports.project.gpu_hours import to_text

    reserve_all(options)
    found = answer_of(options, machine(options), expenses(options))
    return tell(
        options,
        lambda width, colour: to_text(found, options.format, options.rows, width, colour),
        found.answers,
        found.swings,
    )


def answer_of(options: Namespace, device: ReachedUtilization, given: dict[str, Any]) -> GpuHoursAnswer:
    """The answers of the options on this device."""
    from analysis.project.compute import flop_of, gpu_hours_of
    from analysis.project.frontier import running_costs
    from analysis.stats import Uncertain, answers, exactly, tornado
    from reports.project import GpuHoursAnswer

    hours, flop = options.gpu_hours, options.flop
    inputs: dict[str, Uncertain] = {"utilization": device.utilization, **given}
    inputs |= {"gpu_hours": exactly(hours)} if hours is not None else {"flop": exactly(flop)}

    def function(draws: Any) -> dict[str, Any]:
        took = draws.get("gpu_hours")
        if took is None:
            took = gpu_hours_of(draws["flop"], device.peak_flop_per_s, draws["utilization"])
        made = draws.get("flop")
        if made is None:
            made = flop_of(took, device.peak_flop_per_s, draws["utilization"])
        return {"flop": made, "gpu_hours": took, **running_costs(took, draws)}

    main_answer = "flop" if hours is not None else "gpu_hours"
    return GpuHoursAnswer(
        asked={"gpu_hours": hours} if hours is not None else {"flop": flop},
        answer=main_answer,
        answers=answers(function, inputs, options.confidence),
        swings={
            name: tornado(function, inputs, name, options.confidence) for name in _tornado_answers(main_answer, given)
        },
        reached=device,
        confidence=options.confidence,
        given=intervals_of(given, options.confidence),
    )


def _tornado_answers(answer: str, given: dict[str, Any]) -> list[str]:
    """The answers of which a tornado is drawn."""
    more = {"price": "cost", "watts": "energy_kwh", "intensity": "co2_kg"}
    return [answer, *[more[name] for name in more if name in given]]
