"""`python -m runners.project`: what does training a model to a target error take, and on which machine?

FILE describes a model by its learning curve, its sizes and a target error. The command predicts the data, parameters,
FLOP, memory and time with which the model reaches the target (`projection.py`). Two options ask other questions, each
with a command line of its own. `--compute` converts GPU-hours to FLOP or back. `--reproduce PAPER` compares a paper's
printed results with what our formulas give for the paper's inputs. The answer is printed. Nothing is trained, timed or
downloaded.
"""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices.precisions import PRECISIONS
from runners.cli.exits import MISTAKE, Mistake, exit_code, guarded
from runners.cli.model_options import Options, add_options, parser_of
from runners.cli.output import reserve, say, show_answer, write_file
from runners.projection import MODES, UTILIZATION, positive, project, utilization_of

if TYPE_CHECKING:
    from reports.project import ReachedUtilization


EXAMPLES = """examples:
  python -m runners.project --compute --gpu-hours 300 --device "NVIDIA A100-SXM4-80GB" --utilization 0.2..0.4
  python -m runners.project --compute --flop 1e21 --device "NVIDIA H200" --utilization 0.35"""


VERDICTS = "What the verdicts mean and what cannot be reproduced: docs/projections.md."


QUESTIONS: Options = {
    "--gpu-hours": {"type": positive, "metavar": "H", "help": "devices × hours of training → FLOP"},
    "--flop": {"type": positive, "help": "model FLOP of a training → GPU-hours"},
}
"""The amounts that `--compute` converts; exactly one of them is given."""

OPTIONS: Options = {
    "--compute": {"action": "store_true", "help": argparse.SUPPRESS},
    "device": {"required": True, "help": "name of the device, such as 'NVIDIA H200'"},
    "precision": {"default": "amp-bf16", "help": "precision of the training (amp-bf16)"},
    "peak-tflops": {"help": "peak of one device, if it is not in our table, in 1e12 FLOP/s"},
    **UTILIZATION,
    "--utilization": {**UTILIZATION["--utilization"], "required": True},
    "format": {},
}


def compute(arguments: Sequence[str]) -> int:
    """Print the answer to `--compute`; returns the exit code."""
    parser = parser_of(
        "project --compute",
        "How much training compute do GPU-hours give, or how many GPU-hours does a training take?",
        {"": OPTIONS},
        EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_options(parser.add_mutually_exclusive_group(required=True), QUESTIONS)
    options = parser.parse_args(arguments)
    return guarded(lambda: _computed(options))


def _computed(options: Namespace) -> int:
    from analysis.project.frontier import SECONDS_PER_HOUR
    from analysis.stats.intervals import Uncertain, answers
    from reports.project import GpuHoursAnswer, compute_csv, compute_document, compute_parts
    from reports.shared.layout import page

    reached, by_hours = _utilization(options), options.flop is None
    amount = {"gpu_hours": options.gpu_hours} if by_hours else {"flop": options.flop}

    def function(draws: Any) -> dict[str, Any]:
        flop_per_hour = SECONDS_PER_HOUR * reached.peak_flop_per_s * draws["utilization"]
        if by_hours:
            return {"flop": draws["gpu_hours"] * flop_per_hour, "gpu_hours": draws["gpu_hours"]}
        return {"flop": draws["flop"], "gpu_hours": draws["flop"] / flop_per_hour}

    inputs = {"utilization": reached.utilization, **{name: Uncertain(value) for name, value in amount.items()}}
    answer = GpuHoursAnswer(
        given=amount,
        answer="flop" if by_hours else "gpu_hours",
        answers=answers(function, inputs, options.confidence),
        reached=reached,
        confidence=options.confidence,
    )
    show_answer(
        options.format,
        lambda width, colour: page(compute_parts(answer), width, colour),
        lambda: compute_document(answer),
        lambda: compute_csv(answer),
    )
    return 0


def _utilization(options: Namespace) -> ReachedUtilization:
    """Return the device, its peak and the utilization. Raises Mistake."""
    from analysis.devices import peaks
    from reports.project import ReachedUtilization

    unit = PRECISIONS[options.precision].matmul_unit
    try:
        find = peaks.device_called if options.peak_tflops is None else peaks.lookup
        device = find(options.device)
    except ValueError as fault:
        raise Mistake(f"--device: {fault}; or give its --peak-tflops") from fault
    if options.peak_tflops is not None or device is None:
        peak, source = options.peak_tflops * 1e12, "given"
    elif unit not in device.peaks:
        fitting = [name for name, precision in PRECISIONS.items() if precision.matmul_unit in device.peaks]
        raise Mistake(
            f"--precision: {options.device} has no {unit} peak: expected {' or '.join(fitting)}, "
            f"got {options.precision}; or give its --peak-tflops"
        )
    else:
        peak, source = device.peaks[unit], device.source
    name = peaks.spelling(device, options.device) if device else options.device
    return ReachedUtilization(name, options.precision, unit, peak, source, utilization_of(options, unit))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. 0: printed; 1: it cannot be calculated; 2: the caller's mistake; 3: a file was not
    written."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    modes = [mode for mode in MODES if any(word == mode or word.startswith(f"{mode}=") for word in given)]
    if len(modes) > 1:
        say(f"error: expected one of {', '.join(MODES)}, got {' and '.join(modes)}")
        return MISTAKE
    if modes:
        return {"--reproduce": reproduce, "--compute": compute}[modes[0]](given)
    return project(given)


def reproduce(arguments: Sequence[str]) -> int:
    """Run the command. 0: printed; 2: the caller's mistake; 3: a file was not written."""
    from analysis.project.ppopp2019 import PAPERS

    options: Options = {
        "--reproduce": {"choices": PAPERS, "required": True, "metavar": "PAPER", "help": ", ".join(PAPERS)},
        "format": {"help": "table, csv or json (table)"},
        "--figures": {"type": Path, "metavar": "DIR", "help": "draw its figures from our numbers, too"},
    }
    description = "A paper's tables and figures, compared with what follows from its printed inputs."
    parsed = parser_of("project", description, {"": options}, VERDICTS).parse_args(arguments)
    return guarded(lambda: _reproduced(parsed))


def _reproduced(options: Namespace) -> int:
    from analysis.project.ppopp2019_case_study import reproduced
    from reports import project_paper as paper

    if options.figures:
        reserve(options.figures / "figure")
    cells = reproduced()
    if options.figures:
        for name, content in paper.paper_pictures().items():
            write_file(options.figures / name, content)
    show_answer(
        options.format,
        lambda width, colour: paper.paper_text(options.reproduce, cells, width, colour),
        lambda: paper.paper_document(options.reproduce, cells),
        lambda: paper.paper_csv(cells),
    )
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
