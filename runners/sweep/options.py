"""Defines the command line of `runners.sweep`: its options (`OPTIONS`), and how each of them is read.

`parser` returns the command's `Parser`, which takes a command line and returns a Namespace. Each option is an entry of
`OPTIONS`, and is read without any knowledge of the device. `request.py` checks the options together.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from analysis.counters import COUNTERS
from analysis.parallel.rank_grid import parse_plan
from results.records.cell import RECORDERS
from runners.cli.arguments import (
    CombinedLists,
    LinesFormatter,
    Parser,
    counts,
    names,
    number,
)
from runners.cli.model_options import INPUT, LAYOUTS, Options, parser_of, several
from runners.sweep.plan import METHODS, Grid
from workloads.catalogue.catalogue import OPTIMIZERS, OWN

RUNS = Path("results/runs")

LOCAL, RAY = "local", "ray"


TORCHRUN = "torchrun --nproc-per-node N -m runners.sweep …"


FED = ("inputs", "batch_maker")
"""Options that determine a model's inputs."""

RETRIED = ("failed", "unconverged")
"""Cells that --retry measures again, in the order of the arguments of `Store.done`."""

OWN_SIZES = ("image_size", "num_classes")
"""Sizes that are fields of a cell; all others are in its `hyper`."""


ALL, AUTO = "all", "auto"

DESCRIPTION = """Measure the training of models on this device and report what fraction of its peak it uses.
Without arguments: resnet18 and mobilenet_v2, on a CUDA device if there is one, else on the CPU (two minutes)."""


EXAMPLES = """All options: --help all. Lists are separated by commas or spaces. Examples:
python -m runners.sweep --models resnet50 vgg16 --batch-sizes 64 256 --precisions fp32 bf16
python -m runners.sweep --resume results/runs/DATE-DEVICE --retry failed"""

RARE = (
    *(
        "hyper",
        "inputs",
        "batch_maker",
        "frozen",
        "checkpoint",
        "data",
        "parallel",
        "scaling",
        "profile",
    ),
    *("epoch_images", "cudnn_benchmark", "deterministic", "seed", "executor", "accelerator", "cell_timeout"),
    "convention",
)
"""Destinations of options that only `--help all` shows."""


class _Sizes(argparse.Action):
    """Puts sizes into the fields that a grid has for them."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, values: Any, _option: str | None = None) -> None:
        others = {name: size for name, size in values.items() if name not in OWN_SIZES}
        vars(namespace).update({name: values.get(name) for name in OWN_SIZES}, hyper=others or None)


class _Batches(CombinedLists):
    """Stores batch sizes; () for "auto", whose sizes are found once the device is known."""

    def __call__(self, _parser: Any, namespace: argparse.Namespace, values: Any, _option: str | None = None) -> None:
        super().__call__(_parser, namespace, values)
        if AUTO in namespace.batch_sizes:
            if len(namespace.batch_sizes) > 1:
                raise argparse.ArgumentError(self, f"expected sizes or {AUTO}, got both")
            namespace.batch_sizes = ()


def _batches(text: str) -> tuple[int | str, ...]:
    if text == AUTO:
        return (AUTO,)
    try:
        return counts(text)
    except argparse.ArgumentTypeError as fault:
        raise argparse.ArgumentTypeError(f"{fault}; or {AUTO} alone") from fault


def _counters(text: str) -> tuple[str, ...]:
    chosen = names("counter", [*COUNTERS, ALL])(text)
    return tuple(COUNTERS) if ALL in chosen else chosen


def _on_off(text: str) -> bool:
    if text not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"expected on or off, got {text!r}")
    return text == "on"


def _plan(text: str) -> str:
    """Return a plan in the form in which it is stored."""
    try:
        return parse_plan(text).name
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault


SWITCH: Mapping[str, Any] = {"action": "store_true", "default": None}

OPTIONS: Mapping[str, Options] = {
    "what is measured": {
        "--models": {},
        "suite": {},
        "--batch-sizes": several(
            _batches,
            action=_Batches,
            metavar="N,N|auto",
            help="auto: powers of two up to the largest that fits (default: 8 on a CPU, 64 on CUDA; each model's own "
            "in the suites gpu, fathom and fathom-small)",
        ),
        "precisions": {},
        "device": {"default": None},
        "--layout": several(names("layout", LAYOUTS), help=f"layouts of images: {', '.join(LAYOUTS)} ({LAYOUTS[0]})"),
        "compile": {},
        "--optimizer": several(
            names("optimizer", (*OPTIMIZERS, OWN)),
            help=f"{', '.join(OPTIMIZERS)}, or own: that of the model's source (sgd)",
        ),
        **{name: {"default": None} for name in INPUT},
        "input": {"dest": FED[0], "default": None},
        "batch": {"dest": FED[1], "default": None},
        "size": {"action": _Sizes},
        "--data": {"help": "synthetic (default) or cifar10:DIR"},
    },
    "on several ranks": {
        "--parallel": {
            "nargs": "+",
            "type": _plan,
            "metavar": "PLAN",
            "help": f"under {TORCHRUN}: ddp=2, fsdp=4, …, one after another (default: ddp over all ranks; "
            "docs/cluster.md)",
        },
        "--scaling": {
            "choices": ("strong", "weak"),
            "help": "with --parallel: whether --batch-sizes are those of all ranks together (strong, default) or of "
            "each replica (weak)",
        },
    },
    "how it is counted and timed": {
        "--methods": several(
            names("method", METHODS),
            metavar=None,
            help=f"methods of counting: {','.join(METHODS)} (default: {','.join(Grid.methods)})",
        ),
        "--profile": {
            "choices": RECORDERS,
            "help": "keep each pass's recording, and count by its kernels, too (docs/traces.md)",
        },
        "--epoch-images": {
            "type": number(int, 1),
            "metavar": "N",
            "help": "images of an epoch, for the method epoch (default: 10000)",
        },
        "--counters": several(
            _counters,
            metavar=None,
            help=f"counters of the method theory: {', '.join(COUNTERS)}, or all "
            f"(default: {','.join(Grid.counters)}; in the suite post2021 all)",
        ),
        "peak-tflops": {"help": "a denominator of your own, in 1e12 FLOP/s"},
        "--target-ci": {
            "dest": "target_ci_ratio",
            "type": number(float, 1e-6, 0.999999),
            "metavar": "RATIO",
            "help": "half width of the 95 %% interval ÷ mean at which a cell is done (default: 0.005 on CUDA, 0.03 on "
            "a CPU)",
        },
        "--cudnn-benchmark": {
            "type": _on_off,
            "metavar": "on|off",
            "help": "let cuDNN search for its fastest algorithms (default: on)",
        },
        "--deterministic": {**SWITCH, "help": "deterministic algorithms where there are any"},
        "--quick": {**SWITCH, "help": "all times divided by 5; rows are marked"},
        "repeat": {"help": "measure each cell in N fresh workers"},
        "--seed": {"type": number(int, 0, 2**31 - 1), "help": "seed of the order of cells, the weights and the data"},
    },
    "the run": {
        "out": {"help": f"new run directory (default: {RUNS}/DATE-DEVICE)"},
        "--resume": {
            "nargs": "?",
            "const": "",
            "metavar": "DIR",
            "help": "go on with a run (default: --out, or the last run)",
        },
        "--retry": several(
            names("kind of cell", RETRIED),
            default=(),
            metavar="KINDS",
            help="with --resume: measure again the cells that are failed, or unconverged (their interval is too wide)",
        ),
        "--executor": {
            "choices": (LOCAL, RAY),
            "default": LOCAL,
            "help": "where cells are measured: here (default), or on the devices of a Ray cluster (docs/cluster.md)",
        },
        "--accelerator": {"metavar": "NAME", "help": "with --executor ray: the device model, as Ray names it"},
        "--time-budget": {
            "type": number(float, 0),
            "metavar": "S",
            "help": "seconds for this session: no cell is started that would not finish within them",
        },
        "--cell-timeout": {
            "type": number(float, 1, 1e6),  # poll(2) waits for at most 2.1e6 s
            "default": 900.0,
            "metavar": "S",
            "help": "seconds after which a cell is given up (default: 900)",
        },
        "format": {},
        "convention": {},
    },
}


def parser() -> Parser:
    """Return the parser of `runners.sweep`."""
    options_parser = parser_of("sweep", DESCRIPTION, OPTIONS, EXAMPLES, formatter_class=LinesFormatter)
    options_parser.rare = RARE
    return options_parser
