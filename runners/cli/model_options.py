"""Defines the options that several commands share, makes parsers from them, and checks the models that they name.

`parser_of` takes a command's table of options and returns a `Parser`. The table names a shared option as in `SHARED`,
with only those settings of argparse that differ. `check_models` raises before anything slow is imported. `hyper_of`
returns the arguments of the model's factory, the function that builds it. `read_recording` reads a recorded profile,
for commands and workers, and finds the call that launched each kernel. Nothing is printed here.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices.precisions import PRECISIONS
from results.errors import Unavailable
from runners.cli.arguments import (
    CONVENTIONS,
    FORMATS,
    SHORT_PRECISIONS,
    CombinedLists,
    Parser,
    counts,
    names,
    number,
    precision,
    sizes,
)
from runners.cli.exits import Mistake, as_mistake

if TYPE_CHECKING:
    from measure.trace.recording import Recording


TEXT_OPTIONS = ("input", "batch", "frozen", "checkpoint")
"""Options that the model's factory takes and that are not sizes."""

LAYOUTS = ("channels_first", "channels_last")
"""Layouts of images in memory; the first is the default."""

MODEL = "resnet50, timm:NAME, hf:CONFIG, file.py:function, …"
"""The forms of docs/models.md, in short."""

RULES = ("flopledger", "catamount")
"""Counting rules."""

NONE = "none"
"""Value of --optimizer with which a step computes gradients and updates nothing."""

CUSTOM_PEAK = number(float, 1e-6, 1e9)


def several(kind: Callable[[str], Any], **settings: Any) -> dict[str, Any]:
    """Return argparse's settings of an option with a list, separated by commas or spaces. kind: `type=` of a part."""
    return {"nargs": "+", "action": CombinedLists, "type": kind, "choices": None, "metavar": "NAMES", **settings}


def switches(text: str) -> tuple[bool, ...]:
    """Parse "off,on": the `type=` of a list of switches."""
    return tuple(name == "on" for name in names("setting", ("off", "on"))(text))


Options = Mapping[str, Mapping[str, Any]]
"""Name of an option or positional argument (of a shared option as in `SHARED`) → its argparse settings."""

SHARED: Options = {
    "format": {"choices": FORMATS, "default": "table", "help": "how to print (default: table)"},
    "batch-size": {"type": number(int, 1), "default": 1, "metavar": "N", "help": "samples in the batch (1)"},
    "input": {"default": "", "metavar": "SHAPE", "help": "shape of one sample, such as 3x224x224 (docs/models.md)"},
    "batch": {"default": "", "metavar": "WHAT", "help": "FILE:FUNCTION that makes batches"},
    "size": {
        "dest": "hyper",
        "type": sizes,
        "metavar": "NAME=N,…",
        "help": "sizes by the model's own names, such as image_size=64,num_classes=10 or hidden=256",
    },
    "frozen": {
        "type": names("parameter"),
        "default": (),
        "metavar": "PATTERNS",
        "help": "parameters that are not trained, such as features.*",
    },
    "checkpoint": {
        "type": names("module"),
        "default": (),
        "metavar": "PATTERNS",
        "help": "modules whose forward pass is recomputed; of nested ones the outermost",
    },
    "--models": several(names("model"), help=f"separated by commas: {MODEL}"),
    "batch-sizes": {"type": counts, "default": (), "metavar": "N,N"},
    "device": {"default": "auto", "help": "auto, cuda, cuda:1 or cpu (auto)"},
    "threads": {"type": counts, "metavar": "N,N"},
    "precision": {
        "type": precision,
        "choices": tuple(PRECISIONS),
        "default": "fp32",
        "help": f"{', '.join(PRECISIONS)} (fp32)",
    },
    "precisions": several(names("precision", tuple(PRECISIONS), SHORT_PRECISIONS), help=", ".join(PRECISIONS)),
    "layout": {"choices": LAYOUTS, "default": LAYOUTS[0], "help": "layout of images in memory (channels_first)"},
    "compile": several(switches, metavar="off,on", help="on: train torch.compile's model (off)"),
    "repeat": {"type": number(int, 1), "metavar": "N"},
    "rules": {"choices": RULES, "help": "counting rules (flopledger)"},
    "ceilings": {"type": Path, "metavar": "FILE", "help": "ceilings.csv of runners.ceiling or of a sweep"},
    "peak-tflops": {"type": CUSTOM_PEAK, "metavar": "N", "help": "a peak of your own for one device, in 1e12 FLOP/s"},
    "budget": {"type": number(float, 0), "metavar": "S"},
    "timeout": {"type": number(float, 1, 1e6), "metavar": "S"},  # poll(2) waits for at most 2.1e6 s
    "convention": {
        "choices": CONVENTIONS,
        "help": "how the numbers shown are counted: our way (flop) or the 2021 post's",
    },
    "out": {"type": Path, "metavar": "DIR"},
}
"""Options that several commands have. Their names have no dashes, except `--models`: `models` is positional."""

OF_WORKLOADS = ("suite", "optimizer")


def _of_workloads() -> Options:
    """Return shared options that need the catalogue of workloads, which commands on reports and recordings lack."""
    from workloads.catalogue.catalogue import OPTIMIZERS, OWN
    from workloads.catalogue.suites import SUITES

    text = "own: that of the model's source; none: gradients only (sgd)"
    return {
        "suite": {"choices": list(SUITES), "help": "a named list of models with its sizes"},
        "optimizer": {"choices": (*OPTIMIZERS, OWN, NONE), "default": "sgd", "help": text},
    }


INPUT = ("input", "batch", "size", "frozen", "checkpoint")
MODEL_INPUT: Options = {name: {} for name in ("batch-size", *INPUT)}
"""Options that say what is fed to a model and how it is built."""


def add_options(group: Any, options: Options) -> None:
    """Add options to a parser or to one of its groups. A shared option is named as in `SHARED`; the settings given here
    replace its own."""
    for name, settings in options.items():
        shared = (_of_workloads() if name in OF_WORKLOADS else SHARED).get(name)
        if shared is None:
            group.add_argument(name, **settings)
        else:
            group.add_argument(f"--{name.removeprefix('--')}", **{**shared, **settings})


def parser_of(
    name: str, description: str, groups: Mapping[str, Options], epilog: str | None = None, **settings: Any
) -> Parser:
    """Return the parser of a command. name: after `python -m runners.`; groups: title → its options ("": options
    without a title). settings: further arguments of argparse's parser."""
    command_parser = Parser(prog=f"python -m runners.{name}", description=description, epilog=epilog, **settings)
    for title, options in groups.items():
        add_options(command_parser.add_argument_group(title) if title else command_parser, options)
    return command_parser


def check_models(models: Sequence[str], options: Namespace) -> None:
    """Raise Mistake for a model or an input that cannot exist, before anything slow is imported."""
    from workloads.catalogue.model_names import check, parse_shapes

    for name in options.hyper or {}:
        if name in TEXT_OPTIONS:
            raise Mistake(f"--size: expected a size, got {name}, which is set by --{name}")
    with as_mistake(ValueError, Unavailable):
        for model in models:
            check(model)
        if options.batch:
            check(options.batch)
        if options.input:
            parse_shapes(options.input)


def hyper_of(options: Namespace) -> dict[str, Any]:
    """Return the arguments of the model's factory except the model."""
    texts = {name: value for name in TEXT_OPTIONS if (value := getattr(options, name))}
    return {**(options.hyper or {}), **texts}


WITH_KERNELS = {
    "kineto": "record again with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
    "nsys": "record again with nsys profile --trace=cuda,nvtx",
}
"""Source → how to record one with its kernels."""


def read_recording(path: Path, part: Callable[[Recording], Recording] | None = None) -> Recording:
    """Return the recording in a file, with the call that launched each kernel. Raises Mistake, one line, for a file
    that cannot be read whole.

    part: returns the part of the recording that is to be attributed; None: all of it.
    """
    from measure.trace.attribute import attribute
    from measure.trace.read import read

    with as_mistake(ValueError):
        recording = read(path)
        recording = recording if part is None else part(recording)
    if (recording.kernels["call"] < 0).all():  # the reader did not fill it in
        recording = attribute(recording)
    _check_kernels(recording, path)
    return recording


def _check_kernels(recording: Recording, path: Path) -> None:
    """Raise Mistake if kernels were launched, or data copied to a device, and no kernel was recorded."""
    whats = set(recording.kernels["what"])
    if "kernel" in whats:
        return
    if whats & {"memcpy", "memset"} or len(recording.lost_launches):
        unread = "".join(f" ({problem})" for problem in recording.problems if problem.startswith("not read"))
        raise Mistake(
            f"{path}: kernels were launched, none was recorded{unread}; "
            f"{WITH_KERNELS.get(recording.source, 'record again with kernels')}"
        )
