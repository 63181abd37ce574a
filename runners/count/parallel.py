"""`runners.count MODEL --parallel "dp=2,tp=4,pp=2"`: what each rank of a parallel step runs, and what all of them do.

Each distinct rank's step is recorded on a fake process group and fake tensors (`measure/parallel`), in this process:
first and last rank of the tensor and the context axis, and the ones between them only where these two differ. The
single device's count comes from the trace of the whole model, which knows nothing of ranks.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.parallel.ledger import Ledger, Recording, ledger_of
from analysis.parallel.rank_grid import RankGrid, grid_of, parse_sizes
from analysis.parallel.rank_trace import RankTrace, is_causal, same_work
from results.errors import Unavailable
from results.text_files import json_value, read_text, toml_tables
from runners.cli.exits import FAILED, MISTAKE, Mistake, as_mistake, instructed
from runners.cli.model_options import hyper_of
from runners.cli.output import say, show_answer
from runners.cli.progress import passing

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from measure.parallel.rank_trace import RankStep
    from workloads.catalogue.base import Workload


def run(options: Namespace) -> int:
    """The ledger of every model, printed. 0: everything is explained; 1: a model could not be counted, or a FLOP is not
    explained. Raises Mistake for options that do not go together, for a grid or a plan that is none."""
    from reports.count.parallel import document, parts, rows
    from reports.shared.layout import csv_of, page

    check(options)
    answers = []
    code = 0
    for model in options.models:
        try:
            answers.append((model, options.batch_size, ledger_of_model(model, options)))
        except (ValueError, Unavailable) as fault:
            say(f"error: {instructed(f'{model}: {fault}')}")
            code = max(code, FAILED if isinstance(fault, Unavailable) else MISTAKE)
    passing("")
    if answers:
        documents = [document(*answer) for answer in answers]
        show_answer(
            options.format,
            lambda width, colour: "\n".join(page(parts(*answer), width, colour) for answer in answers),
            lambda: documents[0] if len(options.models) == 1 else documents,
            lambda: csv_of(rows(answers)),
        )
    return max(code, FAILED if any(answer[-1].unexplained_flop for answer in answers) else 0)


def check(options: Namespace) -> None:
    """Raises Mistake where the options cannot be meant together, before torch is imported. Fills in the batch size."""
    with as_mistake(ValueError, about="--parallel: "):
        options.sizes = parse_sizes(options.parallel)
        if options.batch_size is None:
            options.batch_size = options.sizes["dp"] * options.sizes["pp"]
        options.grid = grid_of(
            options.sizes, options.batch_size, options.microbatches, options.schedule, options.replicas
        )
    options.styles = None if options.plan is None else read_plan(options.plan)


def read_plan(file: Path) -> dict[str, str]:
    """Patterns of modules → styles, from a TOML or JSON file, or from its table `plan`. Raises Mistake."""
    with as_mistake(OSError, ValueError, about=f"--plan: expected a TOML or JSON file, got {file}: "):
        content = read_text(file)
        said = json_value(content) if file.suffix == ".json" else toml_tables(content)
    plan = said.get("plan", said) if isinstance(said, dict) else said
    if not isinstance(plan, dict) or not plan or not all(isinstance(style, str) for style in plan.values()):
        raise Mistake(f'--plan: expected lines like "layers.*.linear1" = "colwise", got something else in {file}')
    return plan


def ledger_of_model(model: str, options: Namespace) -> Ledger:
    """One model's ledger. Raises ValueError for a plan that does not fit, Unavailable for a model that cannot run."""
    from measure.parallel.rank_trace import gradient_buckets, trace_single
    from runners.workers.any_model import get

    grid: RankGrid = options.grid
    workload = get(model, **hyper_of(options))
    passing(f"{model}: a single device")
    whole, micro = (
        _step(workload, size) for size in (options.batch_size, options.batch_size // grid.dp // grid.microbatches)
    )
    single = _single_flop(whole)
    step = replace(_planned(micro, workload, options), sharded=grid.replicas == "fsdp" and not grid.shares_stages)
    undivided = trace_single(micro)
    part = None
    if grid.cp > 1:
        step, part = _divided(step, micro, undivided, grid)
    passing(f"{model}: ranks")
    recording = Recording(_ranks(step, grid), undivided, trace_single(whole), single, part)
    return ledger_of(recording, grid, gradient_buckets)


def _divided(step: RankStep, micro: RankStep, undivided: RankTrace, grid: RankGrid) -> tuple[RankStep, RankTrace]:
    """The step that ranks of the context axis run, and a single device's on one part of the sequence. Raises ValueError
    for a model whose sequences or attention cannot be divided."""
    from measure.parallel.context import is_balanced, sequence_length, sequence_part
    from measure.parallel.rank_trace import trace_single

    causal = is_causal(undivided)
    balanced = is_balanced(sequence_length(micro.inputs), grid.cp, causal)
    parts = tuple(sequence_part(each, 0, grid.cp, balanced) for each in micro.inputs)
    return replace(step, balanced=balanced, causal=causal), trace_single(replace(micro, inputs=parts))


def _step(workload: Workload, size: int) -> RankStep:
    import torch

    from measure.parallel.rank_trace import RankStep

    batch = workload.batch(workload.hyper, size, torch.device("meta"), None)
    return RankStep(lambda: _built(workload), tuple(batch.inputs))


def _built(workload: Workload) -> torch.nn.Module:
    return workload.build(**workload.hyper)


def _single_flop(step: RankStep) -> int:
    """Model FLOP of forward and backward on one device. Raises Unavailable where a call has no rule."""
    import torch

    from measure.step.count import count_of
    from measure.step.register import step_trace

    with torch.device("meta"):
        model = step.build()
    found = count_of(step_trace(model, step.inputs, None, None, None, train=True), model)
    if found.model_flop is None:
        raise Unavailable(f"operators without a rule: {', '.join(found.not_understood)}")
    return found.model_flop


def _planned(step: RankStep, workload: Workload, options: Namespace) -> RankStep:
    """The step with the plans of the tensor and the expert axis: the file's, or the model's own.

    Raises ValueError for an axis without a plan.
    """
    import torch

    from measure.parallel.styles import plans_of, plans_of_file

    grid: RankGrid = options.grid
    if grid.tp == 1 and grid.ep == 1:
        return step
    strict = options.styles is not None
    if strict:
        plan, experts = plans_of_file(options.styles, grid)
    else:
        with torch.device("meta"):
            model = _built(workload)
        plan, experts = plans_of(model, grid, None, "--plan FILE")
    return replace(step, plan=plan, strict=strict, experts=experts, expert_ranks=grid.ep)


def _ranks(step: RankStep, grid: RankGrid) -> list[RankTrace]:
    """The traces of one replica and stage, context × tensor.

    Shards of a dimension never grow with the rank (torch.chunk), so that where the first and the last rank of an axis
    do the same, all between them do. Under causal attention each rank of the context axis has masks of its own.
    """
    from measure.parallel.rank_trace import trace_rank

    def tensor_line(context: int) -> list[RankTrace]:
        return _line(lambda place: [trace_rank(step, grid.sizes, grid.rank(tp=place, cp=context))], grid.tp)

    return _line(tensor_line, grid.cp)


def _line(trace: Callable[[int], list[RankTrace]], size: int) -> list[RankTrace]:
    """The traces of all places of an axis, in order: of its ends alone where those do the same."""
    first = trace(0)
    if size == 1:
        return first
    last = trace(size - 1)
    if all(map(same_work, first, last)):
        return first * size
    between = [each for place in range(1, size - 1) for each in trace(place)]
    return [*first, *between, *last]
