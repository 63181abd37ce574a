"""`runners.project --compute --model MODEL`: the utilization of a training by the predicted time of its step.

In place of a table of published trainings: the model is traced, and its step's time on the device is what
`runners.predict` says (docs/predict.md). The interval of the utilization is the calibrated one of the time. Not in it:
input pipelines, evaluation, several devices.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from runners.cli import LAYOUTS, Mistake, check_models, hyper_of, instructed, number, passing, sizes

if TYPE_CHECKING:
    from analysis.devices import Device
    from analysis.predict import Prediction
    from analysis.stats import Uncertain
    from runners.cli import Parser

BATCH_SIZE = 64
"""Where none is given."""


def add_step(parser: Parser) -> None:
    """--model and the options of its step."""
    group = parser.add_argument_group("a step of your model, in place of published trainings")
    group.add_argument("--model", metavar="MODEL", help="resnet50, timm:NAME, …: its predicted step (docs/predict.md)")
    group.add_argument("--batch-size", type=number(int, 1), default=BATCH_SIZE, metavar="N", help=f"({BATCH_SIZE})")
    group.add_argument("--image-size", type=number(int, 1), metavar="N", help="of models that have this size")
    group.add_argument("--layout", choices=LAYOUTS, default=LAYOUTS[0], help="of images (channels_first)")
    group.add_argument("--hyper", type=sizes, metavar="NAME=N,NAME=N", help="any sizes by the model's own names")
    group.add_argument("--compile", action="store_true", help="the step of the model under torch.compile")
    # what `check_models` and `hyper_of` ask of other commands
    others = ("num_classes", "frames", "boxes", "seq", "input", "batch", "frozen", "checkpoint")
    parser.set_defaults(**dict.fromkeys(others))


def step_utilization(options: Namespace, device: Device | None) -> tuple[Uncertain, str]:
    """(utilization, where it is from) of the options' step. Raises Mistake, also where nothing like it was measured."""
    from analysis.predict import Setting
    from results import Inconsistent, Unavailable
    from runners.footprint.step import StepOptions
    from runners.predict import prediction_of, traced_step

    if device is None or options.peak is not None:
        raise Mistake("--model: expected a device of the table of peaks, without --peak")
    if options.family or options.utilization is not None or options.run:
        raise Mistake("--model: expected it without --family, --utilization and --run, which it stands for")
    check_models([options.model], options)
    passing(f"{options.model}: batch {options.batch_size}")
    asked = StepOptions(options.model, options.precision, layout=options.layout, hyper=hyper_of(options))
    setting = Setting("train", options.layout, options.compile, device.name, options.precision)
    try:
        step = traced_step(asked, "train")
        bound = step.bound(options.batch_size, device)
        found = prediction_of(step, options.batch_size, setting, device)
    except (Unavailable, Inconsistent, ValueError) as fault:
        raise Mistake(f"--model: {options.model} on {device.name}: {instructed(str(fault))}") from fault
    finally:
        passing("")
    at_peak_s = bound.model_flop / bound.peak_flop_per_s
    return _uncertain(found, at_peak_s), _words(options, found)


def _uncertain(prediction: Prediction, at_peak_s: float) -> Uncertain:
    """The utilization whose interval has the ends of the time's. Raises Mistake where it reaches the peak."""
    from analysis.stats import between

    low, high = at_peak_s / prediction.high_s, at_peak_s / prediction.low_s
    try:
        return between(low, high, prediction.nominal, "logit")
    except ValueError as fault:
        raise Mistake(f"--model: no interval of its utilization: {fault}") from fault


def _words(options: Namespace, prediction: Prediction) -> str:
    """What the utilization is of, and what it stands on."""
    rate = "" if prediction.coverage is None else f"; it held {prediction.coverage[0]:.0%} of rows that were left out"
    return (
        f"of one training step of {options.model}, batch {options.batch_size}, predicted from {prediction.scores:,} "
        f"published rows ({prediction.device} on this device, {prediction.ground}), "
        f"interval of {prediction.nominal:.0%}{rate}"
    )
