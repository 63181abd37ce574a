"""`python -m runners.project`: what training at the accuracy frontier takes, and on which machine.

It answers several questions, each with a command line of its own; the option that stands for a question chooses it, and
without one a model is projected from a file. `--reproduce PAPER` compares a paper's printed results with what follows
from its inputs. Nothing is trained, timed or downloaded.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices.precisions import PRECISIONS, TENSOR_UNITS
from runners.cli.arguments import Parser, number
from runners.cli.exits import MISTAKE, Mistake, guarded
from runners.cli.model_options import Options, add_options, parser_of
from runners.cli.output import put, reserve, say, show_answer

if TYPE_CHECKING:
    from analysis.stats.intervals import Uncertain
    from reports.project.text import GpuHoursAnswer, ReachedUtilization


LEAST, MOST = 1e-9, 1e60
"""Prefix of any amount that is given: 10¹²."""


def positive(text: str) -> float:
    """A `type=` for a number above 0, of a size that something has; 1e21 and 300 alike."""
    value = float(number(float)(text))
    if not LEAST <= value <= MOST:  # `not` refuses nan
        raise argparse.ArgumentTypeError(f"expected a number above 0, from {LEAST:g} to {MOST:g}, got {text!r}")
    return value


def interval(text: str) -> tuple[float, float]:
    """A `type=` for VALUE or LOW..HIGH, both finite and above 0."""
    low, dots, high = text.partition("..")
    try:
        ends = positive(low), positive(high if dots else low)
    except argparse.ArgumentTypeError as fault:
        raise argparse.ArgumentTypeError(f"expected VALUE or LOW..HIGH, both above 0, got {text!r}") from fault
    if ends[0] > ends[1]:
        raise argparse.ArgumentTypeError(f"expected LOW..HIGH with LOW first, got {text!r}")
    return ends


UTILIZATION: Options = {
    "--utilization": {
        "type": interval,
        "metavar": "RATIO|LOW..HIGH",
        "help": "model FLOP ÷ (time × peak), a value or an interval",
    },
    "--confidence": {"type": number(float, 0.5, 0.999), "default": 0.95, "help": "of every interval (0.95)"},
}


def utilization_of(options: Namespace, unit: str) -> Uncertain:
    """The utilization that the options give. Only IEEE units go beyond 1: fast algorithms save their products.

    Raises Mistake.
    """
    from analysis.stats.intervals import between

    low, high = options.utilization
    is_fraction = unit in TENSOR_UNITS
    if is_fraction and (high > 1 or low < high == 1):
        raise Mistake(f"--utilization: expected less than 1 on {unit} units, got {low:g}..{high:g}")
    return between(low, high, options.confidence, "logit" if is_fraction else "log")


EXAMPLES = """examples:
  python -m runners.project --compute --gpu-hours 300 --device "NVIDIA A100-SXM4-80GB" --utilization 0.2..0.4
  python -m runners.project --compute --flop 1e21 --device "NVIDIA H200" --utilization 0.35"""

TERA = 1e12

VERDICTS = "What the verdicts mean and what cannot be reproduced: docs/projections.md."


ASKED: Options = {
    "--gpu-hours": {"type": positive, "metavar": "H", "help": "devices × hours of training → FLOP"},
    "--flop": {"type": positive, "help": "model FLOP of a training → GPU-hours"},
}
"""One of them."""

OPTIONS: Options = {
    "--compute": {"action": "store_true", "help": argparse.SUPPRESS},
    "device": {"required": True, "help": "its name, such as 'NVIDIA H200'"},
    "precision": {"default": "amp-bf16", "help": "of the training (amp-bf16)"},
    "peak-tflops": {"help": "of one device, if it is not in our table"},
    **UTILIZATION,
    "--utilization": {**UTILIZATION["--utilization"], "required": True},
    "format": {},
}


def parser() -> Parser:
    """The parser of this mode."""
    made = parser_of(
        "project --compute",
        "What training compute so many GPU-hours are, or how many GPU-hours so much compute takes.",
        {"": OPTIONS},
        EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(made.add_mutually_exclusive_group(required=True), ASKED)
    return made


def compute(arguments: Sequence[str]) -> int:
    """Prints what `--compute` asks for; the exit code."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    from reports.project.text import compute_csv, compute_document, compute_parts
    from reports.shared.layout import page

    answer = answer_of(options, _utilization(options))
    show_answer(
        options.format,
        lambda width, colour: page(compute_parts(answer), width, colour),
        lambda: compute_document(answer),
        lambda: compute_csv(answer),
    )
    return 0


def answer_of(options: Namespace, reached: ReachedUtilization) -> GpuHoursAnswer:
    """The answers of the options on this device."""
    from analysis.project.frontier import SECONDS_PER_HOUR
    from analysis.stats.intervals import Uncertain, answers
    from reports.project.text import GpuHoursAnswer

    peak, by_hours = reached.peak_flop_per_s, options.flop is None
    asked = {"gpu_hours": options.gpu_hours} if by_hours else {"flop": options.flop}

    def function(draws: Any) -> dict[str, Any]:
        if by_hours:
            hours = draws["gpu_hours"]
            return {"flop": hours * SECONDS_PER_HOUR * peak * draws["utilization"], "gpu_hours": hours}
        flop = draws["flop"]
        return {"flop": flop, "gpu_hours": flop / (peak * draws["utilization"] * SECONDS_PER_HOUR)}

    inputs = {"utilization": reached.utilization, **{name: Uncertain(value) for name, value in asked.items()}}
    return GpuHoursAnswer(
        asked=asked,
        answer="flop" if by_hours else "gpu_hours",
        answers=answers(function, inputs, options.confidence),
        reached=reached,
        confidence=options.confidence,
    )


def _utilization(options: Namespace) -> ReachedUtilization:
    """The device, its peak and what of it is reached. Raises Mistake."""
    from analysis.devices import peaks
    from reports.project.text import ReachedUtilization

    unit = PRECISIONS[options.precision].matmul_unit
    try:
        find = peaks.device_called if options.peak_tflops is None else peaks.lookup
        device = find(options.device)
    except ValueError as fault:
        raise Mistake(f"--device: {fault}; or give its --peak-tflops") from fault
    if options.peak_tflops is not None or device is None:
        peak, source = options.peak_tflops * TERA, "given"
    elif unit not in device.peaks:
        fitting = [name for name, each in PRECISIONS.items() if each.matmul_unit in device.peaks]
        raise Mistake(
            f"--precision: {options.device} has no {unit} peak: expected {' or '.join(fitting)}, "
            f"got {options.precision}; or give its --peak-tflops"
        )
    else:
        peak, source = device.peaks[unit], device.source
    name = peaks.spelling(device, options.device) if device else options.device
    return ReachedUtilization(name, options.precision, unit, peak, source, utilization_of(options, unit))


MODES = {
    "--reproduce": (
        "runners.project.command:reproduce",
        "a paper's tables and figures, compared with what follows from its inputs",
    ),
    "--compute": ("runners.project.command:compute", "training compute of GPU-hours and back, with an interval"),
}
"""The option that asks → (the command that answers, the question)."""

PROJECTION = "runners.project.model:main"
"""What answers where none of them asks."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: printed; 1: it cannot be calculated; 2: the caller's mistake; 3: a file was not written."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    asked = [mode for mode in MODES if any(word == mode or word.startswith(f"{mode}=") for word in given)]
    if len(asked) > 1:
        say(f"error: expected one of {', '.join(MODES)}, got {' and '.join(asked)}")
        return MISTAKE
    module, _, name = (MODES[asked[0]][0] if asked else PROJECTION).partition(":")
    command: Callable[[Sequence[str]], int] = getattr(import_module(module), name)
    return command(given)


def modes() -> str:
    """The other questions, for the end of a help."""
    return "; ".join(f"{option} ({question})" for option, (_, question) in MODES.items())


def reproduction_parser() -> Parser:
    """The parser of a reproduction."""
    from analysis.project.ppopp2019 import PAPERS

    options: Options = {
        "--reproduce": {"choices": PAPERS, "required": True, "metavar": "PAPER", "help": ", ".join(PAPERS)},
        "format": {"help": "table, csv or json (table)"},
        "--figures": {"type": Path, "metavar": "DIR", "help": "draw its figures from our numbers, too"},
    }
    description = "A paper's tables and figures, compared with what follows from its printed inputs."
    return parser_of("project", description, {"": options}, VERDICTS)


def reproduce(arguments: Sequence[str]) -> int:
    """The command. 0: printed; 2: the caller's mistake; 3: a file was not written."""
    options = reproduction_parser().parse_args(arguments)
    return guarded(lambda: _reproduced(options))


def _reproduced(options: Namespace) -> int:
    from analysis.project.ppopp2019_case_study import reproduced
    from reports.project import paper

    if options.figures:
        reserve(options.figures / "figure")
    cells = reproduced()
    if options.figures:
        from reports.project.figures import paper_pictures

        for name, content in paper_pictures().items():
            put(options.figures / name, content)
    show_answer(
        options.format,
        lambda width, colour: paper.to_text(options.reproduce, cells, width, colour),
        lambda: paper.document(options.reproduce, cells),
        lambda: paper.to_csv(cells),
    )
    return 0
