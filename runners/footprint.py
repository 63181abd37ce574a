"""`python -m runners.footprint MODEL`: how much memory does a training step need, what fills it, which batch fits?

The step is traced on fake tensors, which need no device and no memory. Where fake tensors cannot run the step, a small
batch runs on real tensors. The answer is printed. `--out DIR` writes it as footprint.json, and the memory at each
moment of the step as timeline.csv. Exit codes: 0 printed; 1 not even the smallest batch fits, or the step cannot be
traced; 2 the caller's mistake, such as a device of unknown memory; 3 a file could not be written; 130 Ctrl-C.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from results.errors import Unavailable, plain_message
from results.text_files import nearest
from runners.cli.arguments import MARGIN_RATIO, SHOWN, number
from runners.cli.exits import FAILED, Mistake, exit_code, guarded
from runners.cli.model_options import MODEL, MODEL_INPUT, Options, check_models, hyper_of, parser_of
from runners.cli.output import json_text, reserve, say, show_answer, show_transient, with_install_hint, write_file
from runners.workers.traced_step import StepOptions, capability, fit, trace_batch

if TYPE_CHECKING:
    from analysis.devices.memory import Memory
    from measure.operations.tracer import Trace
    from reports.footprint import FootprintAnswer, MemoryFit


BATCH_SIZE = 32
"""Batch size if neither a batch nor a memory is given."""

DEVICES = ("cuda", "cpu")

TOP = 8

EPILOG = (
    "How it is counted, how far it is from real allocators, and what is not claimed: docs/footprint.md. Models of any "
    "form, and their inputs: docs/models.md."
)


OPTIONS: Mapping[str, Options] = {
    "": {"model": {"metavar": "MODEL", "help": MODEL}},
    "the model and its batch": {
        **MODEL_INPUT,
        "batch-size": {
            "default": None,
            "help": f"samples in the batch ({BATCH_SIZE}; with --fit: the largest that fits)",
        },
        "layout": {},
    },
    "the step": {
        "precision": {},
        "optimizer": {},
        "--accumulate": {
            "type": number(int, 1),
            "default": 1,
            "metavar": "N",
            "help": "batches per step of the optimizer (1)",
        },
        "device": {
            "choices": DEVICES,
            "default": DEVICES[0],
            "help": "on cuda the optimizer updates all parameters at once, on cpu one after the other (cuda)",
        },
    },
    "the largest batch that fits": {
        "--fit": {
            "metavar": "NAME",
            "help": "find the largest batch for this device, named as its driver prints it",
        },
    },
    "the answer": {
        "--top": {"type": number(int, 0), "default": TOP, "metavar": "K", "help": f"largest tensors shown ({TOP})"},
        "format": {"help": "table, csv (a row) or json (table)"},
        "out": {"help": "write footprint.json and timeline.csv here"},
    },
}

DESCRIPTION = "How much memory does a step need, what fills it, and what is the largest batch that fits?"

parser = partial(parser_of, "footprint", DESCRIPTION, OPTIONS, EPILOG)


TABLE = "timeline.csv"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    """Do everything after parsing. Raises Mistake, StoreFault, KeyboardInterrupt."""
    check_models([options.model], options)
    memory = None if options.fit is None else memory_of(options.fit)
    if options.out is not None:
        reserve(options.out / TABLE)
    from reports.footprint import MemoryFit

    step_options = StepOptions(
        options.model, options.precision, options.optimizer, options.device, options.accumulate, options.layout,
        hyper_of(options),
    )  # fmt: skip
    steps = StepTraces(step_options)
    try:
        fitted = None
        if memory:
            fits = fit(steps.trace_of, memory.memory_bytes, MARGIN_RATIO, options.device, memory.name)
            fitted = MemoryFit(memory, MARGIN_RATIO, fits)
        answer = _answer(steps, options, fitted)
    except Unavailable as fault:
        show_transient("")
        say(f"error: {with_install_hint(str(fault))}")
        return FAILED
    show_transient("")
    _show(answer, options)
    if fitted is not None and not fitted.fit.largest_batch:
        say(f"error: {too_large(options.model, fitted)}")
        return FAILED
    return 0


class StepTraces:
    """Traces the step at any batch, once each. Raises Unavailable, or Mistake if the fault is the caller's."""

    def __init__(self, options: StepOptions, trace: Callable[[StepOptions, int], Trace] | None = None) -> None:
        """Keep the options. trace: traces one batch; None: `trace_batch`."""
        self.options = options
        self.trace_of = cache(partial(self._trace, trace or trace_batch))

    def _trace(self, trace: Callable[[StepOptions, int], Trace], batch_size: int) -> Trace:
        model = self.options.model
        show_transient(f"{model}: batch {batch_size}")
        try:
            return trace(self.options, batch_size)
        except Unavailable as fault:
            raise Unavailable(plain_message(f"{model} at batch {batch_size}: {fault}")) from fault
        except ValueError as fault:
            text = " ".join(str(fault).split()).removeprefix(f"{model}: ")
            raise Mistake(f"{model} at batch {batch_size}: {text}") from fault
        except Exception as fault:  # a model's own code may raise anything; torch adds the stack of its C++
            text = " ".join(str(fault).partition("Exception raised from ")[0].split())
            message = plain_message(f"{type(fault).__name__}: {text}")
            raise Unavailable(f"{model} at batch {batch_size}: {message}") from fault


def memory_of(name: str) -> Memory:
    """Return the memory into which the step must fit. Raises Mistake for a device of unknown memory."""
    from analysis.devices import memory as devices_memory

    known = devices_memory.lookup(name)
    if known is not None:
        return known
    near = [device for device in devices_memory.names() if name.casefold() in device.casefold()] or nearest(
        name, devices_memory.names()
    )
    like = f", nearest {' or '.join(near[:SHOWN])}" if near else ""
    raise Mistake(f"--fit: expected a device of known memory, got {name!r}{like}")


def _answer(steps: StepTraces, options: Namespace, fitted: MemoryFit | None) -> FootprintAnswer:
    from analysis.footprint.device_memory import allowance, replay, unknown_memory
    from analysis.footprint.live_bytes import footprint
    from analysis.footprint.minimum import minimal
    from reports.footprint import FootprintAnswer

    largest = fitted.fit.fits or fitted.least_batch if fitted else BATCH_SIZE
    batch_size = options.batch_size or largest
    step = steps.trace_of(batch_size)
    live = footprint(step.operations, step.storages)
    notes = [unknown_memory(step.operations, options.device)]
    if fitted and fitted.fit.refused:
        notes.append(f"no larger batch: {fitted.fit.refused}")
    if options.accumulate > 2:
        notes.append(f"two of the {options.accumulate} batches were traced: all later ones are like the second")
    if count := len(live.unknown):
        have = "storages have" if count > 1 else "storage has"
        notes.append(f"{count} {have} no known size: bytes are at least those of the others")
    least = minimal(step.operations, step.storages)
    return FootprintAnswer(
        model=options.model,
        batch_size=batch_size,
        precision=options.precision,
        optimizer=options.optimizer,
        device=options.device,
        accumulate=options.accumulate,
        layout=options.layout,
        operations=step.operations,
        live=live,
        reserved=replay(live.ledger),
        workspaces=allowance(step.operations, options.device, capability(options.fit)),
        fitted=fitted,
        minimal_bytes=least.minimal_bytes,
        lower_bound_bytes=least.lower_bound_bytes,
        notes=(*filter(None, notes), *step.notes),
    )


def too_large(model: str, fitted: MemoryFit) -> str:
    """Return one line that says that not even the smallest batch fits."""
    from analysis.formula.requests import amount

    least, available = fitted.least_batch, fitted.fit.available_bytes
    needed = amount(fitted.fit.needed[least], "B")
    return (
        f"{model} does not fit at batch {least}: it needs {needed}, and {amount(available, 'B')} are left of "
        f"{amount(fitted.memory.memory_bytes, 'B')} after a margin of {100 * fitted.margin_ratio:g} %"
    )


def _show(answer: FootprintAnswer, options: Namespace) -> None:
    """Write the files of --out, and print the answer on stdout. Raises StoreFault."""
    from reports.footprint import document, parts, timeline_csv, to_csv
    from reports.shared.layout import page

    if options.out is not None:
        write_file(options.out / "footprint.json", json_text(document(answer, options.top)))
        write_file(options.out / TABLE, timeline_csv(answer))
        say(f"written to {options.out}")
    show_answer(
        options.format,
        lambda width, colour: page(parts(answer, options.top), width, colour),
        lambda: document(answer, options.top),
        lambda: to_csv(answer),
    )


if __name__ == "__main__":
    sys.exit(exit_code(main))
