"""The words of `runners.footprint`'s command line. Nothing is checked here that needs a model."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.devices.precisions import PRECISIONS
from runners.cli.arguments import Parser, add_format, number, precision
from runners.cli.model_options import LAYOUTS, MODEL, add_model
from runners.footprint.step import NONE
from workloads.catalogue.catalogue import OPTIMIZERS, OWN

BATCH_SIZE = 32
"""Where neither a batch nor a memory is said."""

DEVICES = ("cuda", "cpu")

TOP = 8

EPILOG = (
    "How it is counted, how far it is from real allocators, and what is not claimed: docs/footprint.md. Models of any "
    "form, and their inputs: docs/models.md."
)


def parser() -> Parser:
    """The parser of `runners.footprint`."""
    made = Parser(
        prog="python -m runners.footprint",
        description="How much memory does a step need, what fills it, and what is the largest batch that fits?",
        epilog=EPILOG,
    )
    made.add_argument("model", metavar="MODEL", help=MODEL)
    group = made.add_argument_group("the model and its batch")
    add_model(group, f"{BATCH_SIZE}; with --fit: the largest that fits")
    group.add_argument("--layout", choices=LAYOUTS, default=LAYOUTS[0], help="of images (channels_first)")
    _add_step(made.add_argument_group("the step"))
    made.add_argument_group("the largest batch that fits").add_argument(
        "--fit", type=_name, metavar="NAME", help="into this device's memory, by the driver's name"
    )
    _add_output_options(made.add_argument_group("the answer"))
    made.set_defaults(batch_size=None)
    made.add_argument("--debug", action="store_true", help="tracebacks")
    return made


def _add_step(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--precision", type=precision, choices=tuple(PRECISIONS), default="fp32", help=f"{', '.join(PRECISIONS)} (fp32)"
    )
    group.add_argument(
        "--optimizer",
        choices=(*OPTIMIZERS, OWN, NONE),
        default="sgd",
        help="own: the model's own; none: gradients only (sgd)",
    )
    group.add_argument(
        "--accumulate", type=number(int, 1), default=1, metavar="N", help="batches a step of the optimizer (1)"
    )
    group.add_argument(
        "--device", choices=DEVICES, default=DEVICES[0],
        help="whose optimizer: on cuda it updates all parameters at once, on cpu one after the other (cuda)",
    )  # fmt: skip


def _add_output_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--top", type=number(int, 0), default=TOP, metavar="K", help=f"largest tensors shown ({TOP})")
    group.add_argument(
        "--checkpoints", action="store_true",
        help="what checkpointing would save: peak, recomputed FLOP and largest batch for the best choices of modules",
    )  # fmt: skip
    add_format(group, "table, csv (a row, or one a choice of checkpoints) or json (table)")
    group.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write footprint.json, timeline.csv and timeline.png here, and checkpoints.csv and .png",
    )


def _name(text: str) -> str:
    """A `type=` for a device's name: an empty one, of a variable that is not set, asks for nothing."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"expected the name that the driver prints, got {text!r}")
    return text
