"""How a command is given a model: the options of its command line, their check, and what the model is built with."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from results.errors import Unavailable
from runners.cli.arguments import names, number, sizes
from runners.cli.exits import Mistake

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
