"""`python -m runners.reach MODEL --device NAME`: what could this model reach at best on a device that nobody here has?

The step is traced on fake tensors and compared with the device's datasheet: nothing is run, no device is needed. Exit
codes: 0 answered; 1 the step has no bound (an operation without a rule, no peak of its dtype); 2 the caller's mistake;
3 a file could not be written; 130 Ctrl-C.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runners.cli import (
    FAILED,
    LAYOUTS,
    MARGIN_RATIO,
    MODEL,
    SHOWN,
    Mistake,
    Parser,
    add_format,
    add_model,
    check_models,
    guarded,
    hyper_of,
    instructed,
    passing,
    say,
    show_page,
)

if TYPE_CHECKING:
    from argparse import _ArgumentGroup as ArgumentGroup

    from analysis.atlas import RelativeStep
    from analysis.devices import Device
    from reports.reach import ReachAnswer
    from runners.footprint.command import Steps

A = TypeVar("A")

BATCH_SIZE = 32
"""Where none is given."""

MODES = ("train", "infer")

NO_BOUND = "No bound: attention is in parts here, which CUDA may run as one kernel that moves fewer bytes."

RELATIVES = 5
"""Published steps that are shown."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(arguments)
    return guarded(lambda: answer_on_device(options, _answer, _show), options.debug)


def parser() -> Parser:
    """The parser of `runners.reach`."""
    made = Parser(
        prog="python -m runners.reach",
        description="What could this model reach at best on a device that you do not have?",
        epilog="What the bound is, and what it does not claim: docs/reach.md. Models of any form: docs/models.md.",
    )
    group = add_device_and_step(made, "NVIDIA A100-SXM4-80GB", "fp32")
    group.add_argument("--compile", action="store_true", help="compare with published steps under torch.compile only")
    return made


def add_device_and_step(made: Parser, device: str, precision: str) -> ArgumentGroup:
    """The options of a step on a device that nobody here has; the group of the step's.

    device: a name for the help. precision: where none is given.
    """
    from analysis.devices import PRECISIONS

    made.add_argument("model", metavar="MODEL", help=MODEL)
    made.add_argument("--device", required=True, metavar="NAME", help=f"the name that its driver prints: {device}")
    group = made.add_argument_group("the step")
    add_model(group, str(BATCH_SIZE))
    made.set_defaults(batch_size=BATCH_SIZE)
    group.add_argument(
        "--precision", choices=tuple(PRECISIONS), default=precision, help=f"{', '.join(PRECISIONS)} ({precision})"
    )
    group.add_argument("--layout", choices=LAYOUTS, default=LAYOUTS[0], help="of images (channels_first)")
    group.add_argument("--mode", choices=MODES, default=MODES[0], help="a training step, or a forward pass (train)")
    add_format(made, "table, csv (one row) or json (table)")
    made.add_argument("--out", type=Path, metavar="FILE", help="write to this file, too")
    made.add_argument("--debug", action="store_true", help="tracebacks")
    return group


def known_device(name: str) -> Device:
    """The row of the peaks table, also by the end of its name. Raises Mistake with the nearest names."""
    from analysis.devices import lookup_short, nearest

    found = lookup_short(name)
    if found is None:
        near = nearest(name)
        like = f", nearest {' or '.join(near[:SHOWN])}" if near else ""
        raise Mistake(f"--device: expected a device of the table of peaks, got {name!r}{like}")
    return found


def answer_on_device(
    options: Namespace, answer: Callable[[Namespace, Device], A], show: Callable[[A, Namespace], None]
) -> int:
    """Everything after parsing: the exit code. Raises Mistake, StoreFault, KeyboardInterrupt.

    answer: raises Unavailable or Inconsistent for a step that has none, which is one line and exit code 1.
    """
    from results import Inconsistent, Unavailable, collector_off

    check_models([options.model], options)
    device = known_device(options.device)
    if options.out is not None:
        from runners.cli import reserve

        reserve(options.out)
    try:
        with collector_off():  # a third of the time of a large model's trace is the collector's
            found = answer(options, device)
    except (Unavailable, Inconsistent) as fault:
        passing("")
        say(f"error: {options.model} on {device.name}: {instructed(str(fault))}")
        return FAILED
    passing("")
    show(found, options)
    return 0


def _answer(options: Namespace, device: Device) -> ReachAnswer:
    """Raises Unavailable where the step has no bound."""
    from analysis.footprint.step import unsized
    from analysis.reach import IN_PARTS, step_bound, step_cost
    from reports.reach import ReachAnswer
    from results import Unavailable
    from runners.footprint.command import Steps, Untraced
    from runners.footprint.step import StepOptions
    from runners.reach.step import operations_at, operations_of

    asked = StepOptions(options.model, options.precision, layout=options.layout, hyper=hyper_of(options))
    notes: list[str] = []
    memory: dict[str, Any] = {}
    if options.mode == "train":
        steps = Steps(asked)
        try:
            step = steps.at(options.batch_size)
            operations = operations_of(asked, step)
            memory = _memory(steps, options, device, notes)
            memory["is_partial"] = bool(unsized(step.operations, step.storages))
        except Untraced as fault:
            raise Unavailable(str(fault)) from fault
    else:
        passing(f"{options.model}: batch {options.batch_size}")
        operations = operations_at(asked, options.batch_size, options.mode)
    cost = step_cost(operations)
    in_parts = any(operation.name == IN_PARTS for operation in operations)
    if in_parts:
        notes.append(NO_BOUND)
    if options.compile:
        notes.append("The bound is of eager and compiled steps alike; memory is that of an eager step.")
    return ReachAnswer(
        model=options.model,
        device_name=device.name,
        source=device.source,
        precision=options.precision,
        layout=options.layout,
        mode=options.mode,
        batch_size=options.batch_size,
        bound=step_bound(cost, device.peaks, device.bandwidth_bytes_per_s),
        is_bounded=not in_parts,
        reached=_best_relatives(options, device),
        notes=tuple(notes),
        **memory,
    )


def _best_relatives(options: Namespace, device: Device) -> list[RelativeStep]:
    """The best published steps of the model or its family on the device."""
    from analysis.atlas import best_of_each, published_steps_on, relatives

    rows = [
        row
        for row in published_steps_on(device.name)
        if row.mode == options.mode and (row.compiled or not options.compile)
    ]
    return best_of_each(relatives(rows, options.model), RELATIVES)


def _memory(steps: Steps, options: Namespace, device: Device, notes: list[str]) -> dict[str, Any]:
    """Memory of the eager step, and the largest batch in the device's; what is not known is a note."""
    from analysis.devices import memory
    from runners.footprint.command import Untraced
    from runners.footprint.fit import moments

    peak = max(moments(steps.at(options.batch_size), "cuda", device.compute_capability))
    known = next((found for name in (options.device, *device.names) if (found := memory.lookup(name))), None)
    if known is None:
        notes.append(f"the memory of {device.name} is not in the table: no largest batch")
        return {"eager_peak_bytes": peak}
    try:
        largest = _largest(steps, known.memory_bytes, device.name)
    except (Untraced, Mistake) as fault:
        notes.append(f"no largest batch: {fault}")
        return {"eager_peak_bytes": peak, "memory_bytes": known.memory_bytes}
    return {"eager_peak_bytes": peak, "memory_bytes": known.memory_bytes, "largest_batch": largest}


def _largest(steps: Steps, memory_bytes: int, name: str) -> int:
    """The largest batch. A batch of one is traced only where two do not fit, or the step takes no two."""
    from analysis.footprint.step import SMALL
    from runners.footprint.fit import fit

    asked = (steps.at, memory_bytes, MARGIN_RATIO, "cuda", name)
    try:
        largest = fit(*asked, least=SMALL[0]).largest_batch
    except Mistake:
        largest = 0
    return largest or fit(*asked).largest_batch


def _show(answer: ReachAnswer, options: Namespace) -> None:
    from reports.reach import document, to_csv, to_text

    show_answer(answer, options, document, to_csv, to_text)


def show_answer(
    answer: A, options: Namespace, document: Callable[[A], dict[str, Any]], to_csv: Callable[[A], str],
    to_text: Callable[[A, int, bool], str],
) -> None:  # fmt: skip
    """The answer in the form of --format, on stdout and in the file of --out."""

    def page(width: int, colour: bool) -> str:
        if options.format == "json":
            return json.dumps(document(answer), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        return to_csv(answer) if options.format == "csv" else to_text(answer, width, colour)

    show_page(page, options.out)
