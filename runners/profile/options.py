"""The words of `runners.profile`'s command line. Nothing is checked here that needs a model or a device."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.devices.precisions import PRECISIONS
from runners.cli.arguments import Parser, add_format, names, number, precision
from runners.cli.model_options import LAYOUTS, MODEL, add_model
from runners.profile.deepspeed_config import DEFAULTS
from runners.profile.task import NONE
from workloads.catalogue.catalogue import OPTIMIZERS, OWN

MODES = ("train", "forward", "generate")

TIMEOUT_S = 1800.0
COMPARED = 4
CEILING_S = 20.0

EPILOG = (
    "Models of any form, and their inputs: docs/models.md. The report and its rules: docs/profile.md. --config takes "
    "a DeepSpeed configuration with flops_profiler; the command line comes first."
)


def parser() -> Parser:
    """The parser of `runners.profile`. What a file may say, too, is None where the command line does not say it."""
    made = Parser(
        prog="python -m runners.profile",
        description="Where inside the model do time, FLOPs, bytes and parameters go, and what bounds each part?",
        epilog=EPILOG,
    )
    made.add_argument("model", metavar="MODEL", help=MODEL)
    group = made.add_argument_group("the model and its batch")
    add_model(group)
    group.add_argument("--layout", choices=LAYOUTS, default=LAYOUTS[0], help="of images (channels_first)")
    _add_run(made.add_argument_group("what is run"))
    _add_report(made.add_argument_group("the report"))
    made.add_argument("--debug", action="store_true", help="tracebacks, and what the worker prints")
    return made


def _add_run(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--device", default="auto", help="auto, cuda, cuda:1 or cpu (auto)")
    group.add_argument(
        "--precision", type=precision, choices=tuple(PRECISIONS), default="fp32", help=f"{', '.join(PRECISIONS)} (fp32)"
    )
    group.add_argument("--mode", choices=MODES, default="train", help="train, forward (in eval mode) or generate")
    group.add_argument(
        "--optimizer",
        choices=(*OPTIMIZERS, OWN, NONE),
        default="sgd",
        help="of mode train; own: the one of the model's source (sgd)",
    )
    group.add_argument("--steps", type=number(int, 1), metavar="N", help=f"steps profiled ({DEFAULTS['steps']})")
    group.add_argument("--warm-up", type=number(int, 0), metavar="N", help=f"steps before them ({DEFAULTS['warm_up']})")
    group.add_argument(
        "--compare-steps", type=number(int, 0), default=COMPARED, metavar="N",
        help=f"steps timed without the profiler, for comparison ({COMPARED})",
    )  # fmt: skip
    group.add_argument(
        "--ignore-modules",
        type=names("module"),
        default=(),
        metavar="NAMES",
        help="classes or paths of modules to leave out",
    )
    group.add_argument("--ceilings", type=Path, metavar="FILE", help="ceilings.csv of runners.ceiling or of a sweep")
    group.add_argument(
        "--ceiling-budget", type=number(float, 0), default=CEILING_S, metavar="S",
        help=f"seconds to measure ceilings where no file is given; 0: the datasheet alone ({CEILING_S:g})",
    )  # fmt: skip
    group.add_argument(
        "--timeout", type=number(float, 1), default=TIMEOUT_S, metavar="S", help=f"of the profile ({TIMEOUT_S:g})"
    )


def _add_report(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--module-depth", type=number(int, -1), metavar="D", help="depth to which modules are shown; -1: all"
    )
    group.add_argument(
        "--top-modules", type=number(int, 1), metavar="K", help=f"classes in each ranking ({DEFAULTS['top_modules']})"
    )
    group.add_argument("--detailed", action=argparse.BooleanOptionalAction, help="the tree of modules (yes)")
    group.add_argument("--operations", action="store_true", help="show operations, too; with csv: instead of modules")
    group.add_argument(
        "--recompute-fwd-factor", type=number(float, 0), metavar="R",
        help="share of the forward pass that activation checkpointing runs again, for a rate beside the measured one",
    )  # fmt: skip
    group.add_argument(
        "--world-size", type=number(int, 1), metavar="N",
        help="devices that train together, a multiple of those that hold one model (as many as hold one)",
    )  # fmt: skip
    group.add_argument(
        "--model-parallel", type=number(int, 1), default=1, metavar="N", help="devices that hold one model (1)"
    )
    group.add_argument("--config", type=Path, metavar="FILE", help="JSON settings with DeepSpeed's keys")
    add_format(group, "table, csv (of modules) or json (table)")
    group.add_argument(
        "--output-file", type=Path, metavar="FILE", help="write the report to this file instead of stdout"
    )
    group.add_argument("--out", type=Path, metavar="DIR", help="write profile.html, its tables and pictures here")
