"""`runners.count MODEL --parallel "dp=2,tp=4,pp=2"`: the operations of each rank in a parallel step, and their totals.

`run` takes the parsed options and prints a `Ledger` per model: each rank's FLOP, memory and collectives. Each distinct
rank's step is recorded in this process, on a fake process group and fake tensors (`measure/parallel`). On the tensor
axis the first and the last rank are recorded. The ranks between them are recorded only if these two differ. The count
of a single device comes from a trace of the whole model, which knows nothing of ranks.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.parallel.ledger import Ledger, RankRecording, ledger_of
from analysis.parallel.rank_grid import RankGrid, grid_of, parse_sizes
from analysis.parallel.rank_trace import RankTrace, are_alike
from results.errors import Unavailable
from results.text_files import json_value, read_text, toml_tables
from runners.cli.exits import FAILED, MISTAKE, Mistake, as_mistake
from runners.cli.model_options import hyper_of
from runners.cli.output import say, show_answer, show_transient, with_install_hint

if TYPE_CHECKING:
    from measure.parallel.rank_trace import RankStep


def run(options: Namespace) -> int:
    """Print the ledger of every model, and return the exit code.

    The code is 0 if every FLOP is explained, and 1 if a FLOP is not explained or a model cannot run. It is 2 if a plan
    does not fit a model. Raises Mistake, before torch is imported, for an invalid grid or plan."""
    from reports.count.parallel import document, parts, rows
    from reports.shared.layout import csv_of, page

    with as_mistake(ValueError, about="--parallel: "):
        sizes = parse_sizes(options.parallel)
        options.batch_size = options.batch_size or sizes["dp"] * sizes["pp"]
        grid = grid_of(sizes, options.batch_size, options.microbatches, options.schedule, options.replicas)
    styles = None if options.plan is None else read_plan(options.plan)
    answers = []
    code = 0
    for model in options.models:
        try:
            answers.append((model, options.batch_size, ledger_of_model(model, options, grid, styles)))
        except (ValueError, Unavailable) as fault:
            say(f"error: {with_install_hint(f'{model}: {fault}')}")
            code = max(code, FAILED if isinstance(fault, Unavailable) else MISTAKE)
    show_transient("")
    if answers:
        documents = [document(*answer) for answer in answers]
        show_answer(
            options.format,
            lambda width, colour: "\n".join(page(parts(*answer), width, colour) for answer in answers),
            lambda: documents[0] if len(options.models) == 1 else documents,
            lambda: csv_of(rows(answers)),
        )
    return max(code, FAILED if any(answer[-1].unexplained_flop for answer in answers) else 0)


def read_plan(file: Path) -> dict[str, str]:
    """Read patterns of modules → styles, from a TOML or JSON file, or from its table `plan`. Raises Mistake."""
    with as_mistake(OSError, ValueError, about=f"--plan: expected a TOML or JSON file, got {file}: "):
        content = read_text(file)
        tables = json_value(content) if file.suffix == ".json" else toml_tables(content)
    plan = tables.get("plan", tables) if isinstance(tables, dict) else tables
    if not isinstance(plan, dict) or not plan or not all(isinstance(style, str) for style in plan.values()):
        raise Mistake(f'--plan: expected lines like "layers.*.linear1" = "colwise", got something else in {file}')
    return plan


def ledger_of_model(model: str, options: Namespace, grid: RankGrid, styles: dict[str, str] | None) -> Ledger:
    """Return one model's ledger. styles: of the file of `--plan`. Raises ValueError for a plan that does not fit,
    Unavailable for a model that cannot run."""
    import torch

    from measure.parallel.rank_trace import RankStep, gradient_buckets, trace_single
    from runners.workers.any_model import get

    workload = get(model, **hyper_of(options))
    build = partial(workload.build, **workload.hyper)

    def step_of(size: int) -> RankStep:
        return RankStep(build, tuple(workload.batch(workload.hyper, size, torch.device("meta"), None).inputs))

    show_transient(f"{model}: a single device")
    whole, micro = step_of(options.batch_size), step_of(options.batch_size // grid.dp // grid.microbatches)
    single_flop = _single_flop(whole)
    step = replace(_planned(micro, grid, styles), sharded=grid.replicas == "fsdp" and not grid.shares_stages)
    undivided = trace_single(micro)
    show_transient(f"{model}: ranks")
    recording = RankRecording(_ranks(step, grid), undivided, trace_single(whole), single_flop)
    return ledger_of(recording, grid, gradient_buckets)


def _single_flop(step: RankStep) -> int:
    """Return model FLOP of forward and backward on one device. Raises Unavailable where a call has no rule."""
    import torch

    from measure.step import count_of, step_trace

    with torch.device("meta"):
        model = step.build()
    count = count_of(step_trace(model, step.inputs, None, None, None, train=True))
    if count.model_flop is None:
        raise Unavailable(f"operators without a rule: {', '.join(count.not_understood)}")
    return count.model_flop


def _planned(step: RankStep, grid: RankGrid, styles: dict[str, str] | None) -> RankStep:
    """Return the step with the plans of the tensor and the expert axis: the file's, or the model's own.

    Raises ValueError for an axis without a plan.
    """
    import torch

    from measure.parallel.styles import plans_of

    if grid.tp == 1 and grid.ep == 1:
        return step
    with torch.device("meta"):
        plan, experts = plans_of(step.build(), grid, styles, "--plan FILE")
    return replace(step, plan=plan, strict=styles is not None, experts=experts, expert_ranks=grid.ep)


def _ranks(step: RankStep, grid: RankGrid) -> list[RankTrace]:
    """Return a trace for each rank of the tensor axis, of one replica and stage. Where the first and the last rank do
    the same, those between do too, because shards never grow with the rank (torch.chunk)."""
    from measure.parallel.rank_trace import trace_rank

    first = trace_rank(step, grid.sizes, 0)
    if grid.tp == 1:
        return [first]
    last = trace_rank(step, grid.sizes, grid.tp - 1)
    if are_alike(first, last):
        return [first] * grid.tp
    return [first, *(trace_rank(step, grid.sizes, rank) for rank in range(1, grid.tp - 1)), last]
