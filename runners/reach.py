"""`python -m runners.reach MODEL --device NAME`: a step's best and predicted time on a device that you do not have.

The step is traced on fake tensors, so that no device is needed. A small batch runs on real tensors only where fake
tensors cannot run the step. The best time follows from the device's datasheet. The predicted time is a sum over
operations, with rates that were fitted to published step times. Step times that others measured of this model or on
this device are listed. The answer is printed and written to `--out`. Exit codes: 0 answered; 1 the step has no bound
(an operation without a rule, no peak of its dtype); 2 the caller's mistake; 3 a file could not be written; 130 Ctrl-C.
"""

from __future__ import annotations

import contextlib
import math
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from analysis.devices.peaks import Device, device_called
from analysis.footprint.largest_batch import SMALL_BATCHES, BatchFit
from results.errors import Inconsistent, Unavailable
from runners.cli.arguments import MARGIN_RATIO
from runners.cli.exits import FAILED, Mistake, as_mistake, exit_code, guarded
from runners.cli.model_options import MODEL, MODEL_INPUT, Options, check_models, hyper_of, parser_of
from runners.cli.output import reserve, say, show_answer, show_transient, with_install_hint
from runners.footprint import StepTraces
from runners.workers.traced_step import StepOptions, fit, moments, parts, rules, trace_batch

if TYPE_CHECKING:
    from analysis.reach.bound import StepBound
    from analysis.reach.prediction import Prediction
    from measure.operations.tracer import Trace
    from reports.reach import ReachAnswer
    from results.records.answers import StepOperation

    Operations = Sequence[StepOperation]


BATCH_SIZE = 32
"""Default batch size."""

MODES = ("train", "infer")

NO_BOUND = "No bound: attention is in parts here, which CUDA may run as one kernel that moves fewer bytes."


OPTIONS: Mapping[str, Options] = {
    "": {
        "model": {"metavar": "MODEL", "help": MODEL},
        "device": {
            "default": None,
            "required": True,
            "metavar": "NAME",
            "help": "the device, named as its driver prints it, such as 'NVIDIA A100-SXM4-80GB'",
        },
        "format": {"help": "table, csv (one row) or json (table)"},
        "out": {"metavar": "FILE", "help": "write to this file, too"},
    },
    "the step": {
        **MODEL_INPUT,
        "batch-size": {"default": BATCH_SIZE, "help": f"samples in the batch ({BATCH_SIZE})"},
        "precision": {},
        "layout": {},
        "--mode": {"choices": MODES, "default": MODES[0], "help": "a training step, or a forward pass (train)"},
        "--compile": {"action": "store_true", "help": "predict steps under torch.compile, and list only such"},
    },
}

parser = partial(
    parser_of,
    "reach",
    "What could a step take at best on a device that you do not have, and what will it take?",
    OPTIONS,
    "What bound and interval are: docs/projections.md. Models of any form: docs/models.md.",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    """Do everything after parsing; return the exit code. Raises Mistake, StoreFault, KeyboardInterrupt."""
    from results.process import collector_off

    check_models([options.model], options)
    with as_mistake(ValueError, about="--device: "):
        device = device_called(options.device)
    if options.out is not None:
        reserve(options.out)
    try:
        with collector_off():  # a third of the time of a large model's trace is the collector's
            answer = _answer(options, device)
    except (Unavailable, Inconsistent) as fault:
        show_transient("")
        say(f"error: {options.model} on {device.name}: {with_install_hint(str(fault))}")
        return FAILED
    show_transient("")
    from reports.reach import document, to_csv, to_text

    show_answer(
        options.format,
        lambda width, colour: to_text(answer, width, colour),
        lambda: document(answer),
        lambda: to_csv(answer),
        options.out,
    )
    return 0


def _answer(options: Namespace, device: Device) -> ReachAnswer:
    """Return the answer for a step on the device. Raises Unavailable where the step has no bound or cannot be
    traced."""
    from analysis.footprint.live_bytes import unsized
    from analysis.reach.bound import IN_PARTS, step_bound, step_cost
    from reports.reach import ReachAnswer

    step_options = StepOptions(options.model, options.precision, layout=options.layout, hyper=hyper_of(options))
    steps = StepTraces(step_options, trace_batch if options.mode == "train" else trace_forward)
    step = steps.trace_of(options.batch_size)
    operations = operations_of(step_options, step)
    bound = step_bound(step_cost(operations), device.peaks, device.bandwidth_bytes_per_s)
    is_bounded = all(operation.name != IN_PARTS for operation in operations)
    notes = [] if is_bounded else [NO_BOUND]
    memory: dict[str, Any] = {}
    if options.mode == "train":
        memory = _memory(steps, options, device, notes)
        memory["is_partial"] = bool(unsized(step.operations, step.storages))
    if options.compile:
        notes.append("The bound is of eager and compiled steps alike; memory is that of an eager step.")
    prediction, reason = prediction_of(steps, operations, options, device, bound if is_bounded else None)
    from analysis.reach.published import nearest_steps

    what, rows = nearest_steps(options.model, device, options.mode, options.compile)
    return ReachAnswer(
        model=options.model,
        device=device,
        precision=options.precision,
        layout=options.layout,
        mode=options.mode,
        compiled=options.compile,
        batch_size=options.batch_size,
        bound=bound,
        is_bounded=is_bounded,
        prediction=prediction,
        no_prediction=reason,
        notes=(*notes, *_doubts(options.model, device, prediction)),
        published_are=what,
        published=[_published_row(row) for row in rows.itertuples()],
        **memory,
    )


def operations_of(step_options: StepOptions, step: Trace) -> Operations:
    """Return the operations of a traced step, in the groups of ideal fusion."""
    from analysis.operators.fusion import fused
    from measure.profile.step_profile import operation_rows

    groups = fused(step.operations, step.storages)
    return operation_rows(step.operations, (), step_options.precision, step_options.device, groups)[0]


def trace_forward(step_options: StepOptions, batch_size: int) -> Trace:
    """Return the forward pass of a model in evaluation mode, without gradients, on fake tensors."""
    from analysis.devices.precisions import PRECISIONS
    from measure.operations.fake_mode import fake_mode, quiet_logs
    from measure.operations.tracer import trace_step
    from measure.profile.model_step import ModelStep

    with quiet_logs():
        mode = fake_mode()
        built = parts(replace(step_options, optimizer="none"), batch_size, mode)
        model, (inputs, _target) = built.model.eval(), built.inputs
        policy = PRECISIONS[step_options.precision]
        step = ModelStep(model, tuple(inputs), {}, None, None, None, "forward", policy, "cpu")
        with rules(step_options.device):
            trace = trace_step(step, model=model, inputs=inputs, mode=mode, steps_before=0)
    return trace


def prediction_of(
    steps: StepTraces, operations: Operations, options: Namespace, device: Device, bound: StepBound | None
) -> tuple[Prediction | None, str]:
    """Return the predicted time of the step, or the reason why there is none."""
    from analysis.reach.prediction import predict
    from analysis.reach.step_time import Setting, amounts, fitted_model, machine_of

    setting = Setting(options.mode, options.layout, options.compile, device.name, options.precision)
    try:
        machine = machine_of(device, options.precision)
        low, high = (operations_of(steps.options, steps.trace_of(batch)) for batch in SMALL_BATCHES)
        if [operation.name for operation in low] != [operation.name for operation in operations]:
            raise Inconsistent(f"the step has other operations at batches {SMALL_BATCHES[0]} and {options.batch_size}")
        step = amounts(low, SMALL_BATCHES[0], high, SMALL_BATCHES[1])
        least_s = None if bound is None else bound.bound_time_s
        return predict(fitted_model(), step, options.batch_size, setting, machine, least_s), ""
    except (Unavailable, Inconsistent, Mistake) as fault:
        return None, str(fault)


def _doubts(model: str, device: Device, prediction: Prediction | None) -> list[str]:
    """Return notes on what a prediction does not cover."""
    from analysis.reach.prediction import is_power_limited

    notes = []
    if prediction and is_power_limited(device):
        notes.append(
            "This card's power limit holds its clock far below the boost clock of its peak: times may be longer."
        )
    if prediction and not model.startswith("timm:"):
        notes.append("Fitted on image models of timm: input pipelines and other stacks are not in it.")
    return notes


def _published_row(row: Any) -> dict[str, Any]:
    """Return a published row for the document: unknown values, NaN in the table, are None."""
    return {
        "model": row.counted_model,
        "device": row.device,
        "precision": row.precision,
        "batch_size": None if math.isnan(row.batch_size) else int(row.batch_size),
        "layout": row.layout,
        "framework": row.framework + ", compiled" * row.compiled,
        "utilization_ratio": row.utilization_ratio,
        "achieved_over_bound_ratio": None if math.isnan(row.bound_time_s) else row.bound_time_s / row.step_time_s,
        "source": row.source,
    }


def _memory(steps: StepTraces, options: Namespace, device: Device, notes: list[str]) -> dict[str, Any]:
    """Return the memory of the eager step, and the largest batch that fits on the device; unknown ones get a note."""
    from analysis.devices import memory

    peak = max(moments(steps.trace_of(options.batch_size), "cuda", device.compute_capability))
    known = next((memory_row for name in (options.device, *device.names) if (memory_row := memory.lookup(name))), None)
    if known is None:
        notes.append(f"the memory of {device.name} is not in the table: no largest batch")
        return {"eager_peak_bytes": peak}
    try:
        fit = _largest(steps, known.memory_bytes, device.name)
    except (Unavailable, Mistake) as fault:
        notes.append(f"no largest batch: {fault}")
        return {"eager_peak_bytes": peak, "memory_bytes": known.memory_bytes}
    known_bytes = {"eager_peak_bytes": peak, "memory_bytes": known.memory_bytes}
    return {**known_bytes, "largest_batch": fit.fits, "at_most_batch": fit.largest_batch}


def _largest(steps: StepTraces, memory_bytes: int, name: str) -> BatchFit:
    """Return the largest batches. A batch of one is traced only if two do not fit, or the step does not take two."""
    arguments = (steps.trace_of, memory_bytes, MARGIN_RATIO, "cuda", name)
    with contextlib.suppress(Mistake):
        largest = fit(*arguments, least=SMALL_BATCHES[0])
        if largest.largest_batch:
            return largest
    return fit(*arguments)


if __name__ == "__main__":
    sys.exit(exit_code(main))
