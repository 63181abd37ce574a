"""`python -m runners.predict MODEL --device NAME`: how long would a step take on a device that you do not have?

The step is traced on fake tensors; its time is a sum over operations with rates that were fitted on steps which others
published (docs/predict.md). Nothing is run, no device is needed. Exit codes: 0 answered; 1 refused, as nothing like
the step was measured; 2 the caller's mistake; 3 a file could not be written; 130 Ctrl-C.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runners.cli import (
    Parser,
    guarded,
    hyper_of,
    passing,
)

if TYPE_CHECKING:
    from analysis.devices import Device
    from reports.predict import PredictAnswer
    from runners.footprint.step import StepOptions

PRECISION = "amp-fp16"
"""Where none is given: the one that most steps were published in."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(arguments)
    from runners.reach import answer_on_device

    return guarded(lambda: answer_on_device(options, _answer, _show), options.debug)


def parser() -> Parser:
    """The parser of `runners.predict`."""
    from runners.reach import add_device_and_step

    made = Parser(
        prog="python -m runners.predict",
        description="How long would a step of this model take on a device that you do not have?",
        epilog="What it was fitted on, and what its intervals cover: docs/predict.md.",
    )
    group = add_device_and_step(made, "NVIDIA GeForce RTX 3090", PRECISION)
    group.add_argument("--compile", action="store_true", help="the step of the model under torch.compile")
    return made


def _answer(options: Namespace, device: Device) -> PredictAnswer:
    """Raises Unavailable where nothing like the step was measured, Inconsistent where the batch changes the step."""
    from analysis.predict import Setting
    from reports.predict import PredictAnswer
    from runners.footprint.step import StepOptions
    from runners.predict.step import machine_of, prediction_of, traced_step

    machine_of(device, options.precision)  # before the model is built
    setting = Setting(options.mode, options.layout, options.compile, device.name, options.precision)
    asked = StepOptions(options.model, options.precision, layout=options.layout, hyper=hyper_of(options))
    passing(f"{options.model}: batch {options.batch_size}")
    step = traced_step(asked, options.mode)
    return PredictAnswer(
        model=options.model,
        device_name=device.name,
        setting=setting,
        batch_size=options.batch_size,
        bound=step.bound(options.batch_size, device),
        is_bounded=step.is_bounded,
        prediction=prediction_of(step, options.batch_size, setting, device),
        eager_peak_bytes=_peak_bytes(asked, options, device) if options.mode == "train" else None,
        notes=tuple(_notes(options, device, not step.is_bounded)),
    )


def _peak_bytes(asked: StepOptions, options: Namespace, device: Device) -> int | None:
    """Memory of the eager training step; None where it cannot be traced at this batch."""
    from analysis.footprint.step import unsized
    from results import Unavailable
    from runners.footprint.fit import moments
    from runners.footprint.step import trace_batch

    try:
        step = trace_batch(asked, options.batch_size)
    except (Unavailable, ValueError):
        return None
    if unsized(step.operations, step.storages):
        return None
    return max(moments(step, "cuda", device.compute_capability))


def _notes(options: Namespace, device: Device, in_parts: bool) -> list[str]:
    from analysis.predict import is_power_limited
    from runners.reach import NO_BOUND

    notes = [NO_BOUND] * in_parts
    if is_power_limited(device.name):
        notes.append(
            "This card's power limit holds its clock far below the boost clock of its peak: times may be longer."
        )
    if not options.model.startswith("timm:"):
        notes.append("Fitted on image models of timm: input pipelines and other stacks are not in it.")
    return notes


def _show(answer: PredictAnswer, options: Namespace) -> None:
    from reports.predict import document, to_csv, to_text
    from runners.reach import show_answer

    show_answer(answer, options, document, to_csv, to_text)
