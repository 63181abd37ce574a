"""What a command is given to look at: a model with its options and check, or a recording that some profiler wrote.

A recording is read and attributed, or one line says why it cannot be: commands and workers share that. Nothing is
cleaned and nothing is printed here.
"""

from __future__ import annotations

import gzip
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from results.errors import Unavailable
from runners.cli.arguments import names, number, sizes
from runners.cli.exits import Mistake

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from measure.trace.attribution.recording import Recording


WORDS = ("input", "batch", "frozen", "checkpoint")
"""What the factory takes that is no size."""

LAYOUTS = ("channels_first", "channels_last")
"""Layouts of images in memory; the first is what a command takes."""

MODEL = "resnet50, timm:NAME, hf:CONFIG, file.py:function, …"
"""The forms of docs/models.md, in short."""


def add_model(group: Any, batch_size: str = "1") -> None:
    """The options that say what is fed to a model and how it is built. group: a parser or a group of one.

    batch_size: what is said of the default; a command that has another one than 1 sets it itself.
    """
    positive = number(int, 1)
    text = f"samples in the batch ({batch_size})"
    group.add_argument("--batch-size", type=positive, default=1, metavar="N", help=text)
    group.add_argument("--input", default="", metavar="SHAPE", help="shape of one sample, such as 3x224x224")
    group.add_argument(
        "--batch",
        default="",
        metavar="WHAT",
        help="FILE:FUNCTION that makes batches",
    )
    add_sizes(group)
    add_changes(group)


def add_sizes(group: Any, **settings: Any) -> None:
    """--size. settings: more of argparse's."""
    text = "sizes by the model's own names, such as image_size=64,num_classes=10 or hidden=256"
    group.add_argument("--size", dest="hyper", type=sizes, metavar="NAME=N,…", help=text, **settings)


def add_changes(group: Any, default: tuple[str, ...] | None = ()) -> None:
    """The options that change how a model trains, with the names that all commands give them."""
    group.add_argument(
        "--frozen",
        type=names("parameter"),
        default=default,
        metavar="PATTERNS",
        help="parameters that are not trained, such as features.*",
    )
    group.add_argument(
        "--checkpoint",
        type=names("module"),
        default=default,
        metavar="PATTERNS",
        help="modules whose forward pass is recomputed; of nested ones the outermost",
    )


def check_models(models: Sequence[str], options: Namespace) -> None:
    """Raises Mistake where a model or an input cannot be what it says, before anything is imported that is slow."""
    from workloads.catalogue.model_names import check, parse_shapes

    for name in options.hyper or {}:
        if name in WORDS:
            raise Mistake(f"--size: expected sizes that no other option says, got {name}")
    try:
        for model in models:
            check(model)
        if options.batch:
            check(options.batch)
        if options.input:
            parse_shapes(options.input)
    except (ValueError, Unavailable) as fault:
        raise Mistake(str(fault)) from fault


def hyper_of(options: Namespace) -> dict[str, Any]:
    """What the factory takes beside the model."""
    words = {name: value for name in WORDS if (value := getattr(options, name))}
    return {**(options.hyper or {}), **words}


LAUNCHES = (b'"cudaLaunchKernel', b'"cuLaunchKernel', b'"hipLaunchKernel', b'"hipExtModuleLaunchKernel"')
"""In a Kineto trace: the name of a call that launches a kernel, or its beginning."""

WITH_KERNELS = {
    "kineto": "record again with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
    "nsys": "record again with nsys profile --trace=cuda,nvtx",
}
"""Source → how to record one with its kernels."""

MALFORMED = (TypeError, AttributeError, ArithmeticError, LookupError, RecursionError)
"""What readers meet in a file whose parts are of other types than its recorder gives them."""

GZIP = b"\x1f\x8b"
CHUNK = 1 << 22
LONGEST = max(map(len, LAUNCHES))


def read_recording(path: Path, part: Callable[[Recording], Recording] | None = None) -> Recording:
    """The recording in a file, attributed. Raises ValueError, one line, for what cannot be read whole.

    part: what of it is wanted, as a recording that is not yet attributed; None: all.
    """
    from measure.trace.attribution.attribute import attribute
    from measure.trace.readers.read import read

    try:
        recording = read(path)
        recording = recording if part is None else part(recording)
    except ValueError as fault:
        raise Mistake(str(fault)) from fault
    except MALFORMED as fault:
        words = " ".join(f"{type(fault).__name__}: {fault}".split())
        message = f"{path}: expected what its recorder writes, got a part that is missing or of another type or range"
        raise Mistake(f"{message} ({words})") from fault
    if recording.source != "pyprof":  # which says itself to what each kernel belongs
        recording = attribute(recording)
    _check_kernels(recording, path)
    return recording


def _check_kernels(recording: Recording, path: Path) -> None:
    """Raises ValueError where kernels were launched, or data copied to a device, and no kernel was recorded."""
    whats = set(recording.kernels["what"])
    if "kernel" in whats:
        return
    if whats & {"memcpy", "memset"} or (recording.source == "kineto" and _launches(path)):
        unread = "".join(f" ({problem})" for problem in recording.problems if problem.startswith("not read"))
        raise Mistake(f"{path}: kernels were launched, none was recorded{unread}; {WITH_KERNELS[recording.source]}")


def _launches(path: Path) -> bool:
    """Whether a trace names a call that launches kernels."""
    with open(path, "rb") as raw:
        zipped = raw.read(2) == GZIP
        raw.seek(0)
        file = gzip.GzipFile(fileobj=raw) if zipped else raw
        tail = b""
        while chunk := file.read(CHUNK):
            text = tail + chunk
            if any(name in text for name in LAUNCHES):
                return True
            tail = text[-LONGEST:]
    return False
