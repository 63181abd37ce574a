"""The words of `runners.characterize`'s command line. Nothing is checked here that needs a model or a device."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.devices.precisions import PRECISIONS
from results.records.characterization import EXECUTIONS, MODES
from runners.characterize.task import OWN
from runners.cli.arguments import SHORT_PRECISIONS, Parser, add_format, counts, names, number
from runners.cli.model_options import LAYOUTS, MODEL, add_sizes
from workloads.catalogue.catalogue import OPTIMIZERS, SUITES
from workloads.catalogue.entries import AS_CODED, AS_PAPER

BOTH = "both"
VARIANTS = (AS_CODED, AS_PAPER, BOTH)
SCALES = ("own", "small")
REPRODUCED = ("fathom",)

STEPS = 12
BATCH = 8
TIMEOUT_S = 1800.0

DESCRIPTION = "How do workloads differ: operation mix, similarity, training against inference, parallelism?"
EPILOG = "What each number means, and where its formula comes from: docs/characterize.md."


def parser() -> Parser:
    """The parser of `runners.characterize`."""
    made = Parser(prog="python -m runners.characterize", description=DESCRIPTION, epilog=EPILOG)
    made.add_argument(
        "directories", nargs="*", type=Path, metavar="DIR", help="folders of recordings to report on, together"
    )
    _add_workloads(made.add_argument_group("what is recorded"))
    _add_ways(made.add_argument_group("how it is run"))
    _add_report(made.add_argument_group("the report"))
    made.add_argument("--debug", action="store_true", help="tracebacks, and what the worker prints")
    return made


def _add_workloads(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--models", type=names("model"), metavar="NAMES", help=f"separated by commas: {MODEL}")
    group.add_argument("--suite", choices=list(SUITES), help="a named list of models")
    group.add_argument(
        "--reproduce", choices=REPRODUCED, help="compare Fathom's eight, at small sizes, with the paper's numbers"
    )
    group.add_argument("--variant", choices=VARIANTS, help="of workloads that have two variants (as_coded)")
    group.add_argument(
        "--scale", choices=SCALES, help="small: sizes for a CPU, where there are some (own; of --reproduce small)"
    )
    group.add_argument(
        "--batch-size", type=number(int, 1), metavar="N", help=f"samples in a batch (the workload's own, or {BATCH})"
    )
    add_sizes(group)
    group.add_argument(
        "--optimizer", choices=(OWN, *OPTIMIZERS), default=OWN, help="own: the workload's, else sgd (own)"
    )


def _add_ways(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--modes", type=names("mode", MODES), default=MODES, help=f"{', '.join(MODES)} (both)")
    group.add_argument(
        "--device", type=names("device"), default=("auto",), help="auto, cpu, cuda, cuda:1; several with commas (auto)"
    )
    group.add_argument(
        "--threads", type=counts, default=(1,), metavar="N,N",
        help="threads of an operation on a CPU: shares are of the first number, the others show parallelism (1)",
    )  # fmt: skip
    group.add_argument(
        "--batch-sizes", type=counts, default=(), metavar="N,N", help="further batch sizes, for parallelism"
    )
    group.add_argument(
        "--steps", type=number(int, 1), default=STEPS, metavar="N",
        help=f"steps with the profiler, and as many without; the first and last are not used ({STEPS})",
    )  # fmt: skip
    group.add_argument(
        "--repeats", type=number(int, 1), default=1, metavar="N", help="processes, each with a seed of its own (1)"
    )
    group.add_argument(
        "--alone", action="store_true", help="also time each operation by itself, and add these times up to a step"
    )
    group.add_argument(
        "--precisions", type=names("precision", tuple(PRECISIONS), SHORT_PRECISIONS), default=("fp32",), help="(fp32)"
    )
    group.add_argument("--layouts", type=names("layout", LAYOUTS), default=LAYOUTS[:1], help="(channels_first)")
    group.add_argument("--executions", type=names("execution", EXECUTIONS), default=EXECUTIONS[:1], help="(eager)")
    group.add_argument(
        "--timeout", type=number(float, 1), default=TIMEOUT_S, metavar="S", help=f"of one recording ({TIMEOUT_S:g})"
    )


def _add_report(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--place", type=_places, default={}, metavar="WHAT=GROUP,…", help="put a kind or operation into another group"
    )
    group.add_argument(
        "--ceilings", type=Path, metavar="FILE", help="ceilings.csv, for the share of the peak that each group reaches"
    )
    group.add_argument("--out", type=Path, metavar="DIR", help="write the recordings, tables and figures here")
    add_format(group, "table, csv (of shares) or json (table)")


def _places(text: str) -> dict[str, str]:
    """ "softmax=C,embedding=C" """
    found = {}
    for part in text.split(","):
        what, equals, group = (word.strip() for word in part.partition("="))
        if not (what and equals and group):
            raise argparse.ArgumentTypeError(f"expected WHAT=GROUP, as in softmax=C, got {part!r}")
        found[what] = group.upper()
    return found
