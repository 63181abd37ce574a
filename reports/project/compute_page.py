"""docs/compute.md: how compute, budgets and plans are found, and what that is worth, with every table made anew.

Text and tables only. What the commands print comes in as an argument, from `benchmarks/pages/compute.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from analysis.devices import links
from analysis.project.compute import TooFew, excluded_runs, left_out, observations, predicted_utilization, scaling_laws
from analysis.project.parallelism import Cluster, Plan, Transformer
from analysis.project.parallelism.step import step
from reports.project.shared import quantity

MEGATRON: Sequence[tuple[str, Transformer, int, int, float, float]] = (
    ("22 billion", Transformer(48, 6144, 64, 2048, 51200), 1, 4, 1.42, 1.10),
    ("175 billion", Transformer(96, 12288, 96, 2048, 51200), 8, 64, 18.13, 13.75),
    ("530 billion", Transformer(105, 20480, 128, 2048, 51200), 35, 280, 49.05, 37.83),
    ("1 trillion", Transformer(128, 25600, 160, 2048, 51200), 64, 512, 94.42, 71.49),
)
"""Korthikanti et al. (arXiv 2205.05198), table 5, from memory: model, its shape, pipeline stages, sequences a step, and
seconds a step with full and with selective recomputation. Tensor parallelism 8, one replica, A100-80GB."""

A100 = Cluster(312e12, 2.039e12, 80e9, links()["NVLink 3"], links()["InfiniBand HDR"], reachable=271.2 / 312)
"""0.87 of the peak: what stas00/ml-engineering reached in matrix products (analysis/devices/achievable.csv)."""

BUDGETS = (1e20, 1e21, 1e22, 1e23, 1e24, 1e25)

HEAD = """# Compute, budgets and plans

    python -m runners.project --compute --gpu-hours 300 --device "NVIDIA A100-SXM4-80GB" --family cnn
    python -m runners.project --compute --flop 1e21 --device "NVIDIA H200" --family language-model --price 2..3.5
    python -m runners.project --budget "64 GPU-days" --device "NVIDIA H100 80GB HBM3" --domain transformer
    python -m runners.project --reach 2.1 --device "NVIDIA H200"
    python -m runners.project --parallel --parameters 70e9 --devices 64 --batch 512 --device "NVIDIA H100 80GB HBM3"

This page is made by `python -m benchmarks.pages.compute --write docs/compute.md`. Nothing on it was measured by us.

## How many FLOP were those GPU-hours?

"""

METHOD = """
FLOP = devices × hours × peak × utilization. The peak is the datasheet's, dense, of the unit that the precision runs on
(`analysis/devices/peaks.csv`). The utilization of a run that nobody measured is *predicted*, as the outcome of **one new run by
somebody else**, from published runs (`analysis/project/compute/published_utilization.csv`) and our own. An interval of the mean of the
old runs would be far too narrow for that.

* Each ratio is recomputed: items a second × FLOP an item ÷ peak. FLOP of images are our own exact count; FLOP of tokens
  follow from the model's sizes. What a source prints is kept beside it (`published_ratio`) and compared by a test.
* Runs of one **stack** (who ran which software) resemble each other: the model has a random effect of the stack and one
  of the run within it, on the logit scale (for fp32 on the logarithm, as fast algorithms go beyond 1). A stack with 65
  rows counts as much as one with 1.
* The location is the mean of the stacks on devices of the same generation (compute capability; GeForce apart); the
  spread is pooled over all generations of that family, and over `half` (`fp16` and `bf16`) and `tf32`. The degrees of
  freedom are never more than those between stacks.
* Fallback, always said: without a run on that generation the stacks of all generations are one group. With less than
  two degrees of freedom between stacks there is no interval, and the command asks for `--utilization`.
* `--run DIR` (again and again) takes runs of yours among them, `--utilization 0.3` or `0.2..0.4` replaces them.

Utilization is of **model FLOP** (MFU): a multiply-add is 2, convolutions and matrix products of forward and backward,
causal attention dense, nothing recomputed. Hardware utilization (HFU), which counts recomputation, is higher; where a
source prints it, it is the column `hardware_ratio`. The hours are those of training steps: failed runs, evaluation and
waiting are not in any of these ratios.

### What a new run would reach

A row for each generation that has runs; `–`: too few stacks for an interval. `seen` is from the lowest to the highest.

"""  # noqa: E501

COVERAGE = """
### What the intervals are worth

Leave one stack out, predict each of its runs from all others, and count those that are held:

| asked for | runs held | mean of the stacks' shares |
| ---: | ---: | ---: |
"""

AFTER_COVERAGE = """
Take 80 % as about right and 95 % as less than it says: publishers are no random sample, and a stack that resembles none
of the others (Lambda's scripts, far below them on new devices; timm's, far above) is not foreseen by them.

### What was left out, and what was put right

| source | model | device | why not |
| --- | --- | --- | --- |
"""

AFTER_LEFT_OUT = """
* TensorFlow's benchmarks of 2017 have ResNet v1 (the stride in the first 1×1 convolution) and an AlexNet of their own
  (227 pixels, 384 channels in the fourth convolution): with the FLOP of those, ResNet-50 is at 0.473 instead of 0.502,
  and AlexNet at 1.379 instead of 1.168.
* llm-foundry counts position embeddings as multiplied: up to 1.1 points at 125 million parameters. Its column of model
  TFLOP disagrees with its own ratios by 100 × in some tables; only its throughput is used.
* Korthikanti et al. count the recomputation of attention's scores three times (their equation 8 has s/3h where forward
  alone is s/18h more): their hardware utilizations are 1 to 3.5 points high. Model utilization is not touched by it.
* A rule of thumb (Epoch AI, 2022: 0.30 for language models, 0.40 for others) is printed beside each answer and not
  used.

## What JSON says

`--format json` of `--compute` has `question`, `asked`, `answer` (the name of the main one), `confidence`, `answers`
(name → `value`, `low`, `high`: `flop`, `gpu_hours`, and as far as their inputs are given `cost`, `energy_kwh`,
`co2_kg`), `given` (price and so on, likewise), `hangs_on` (answer → `input`, `low`, `high`, the widest first),
`device`, `precision`, `unit`, `peak_flop_per_s`, `peak_source`, `family`, `utilization` (`ratio`, `low_ratio`,
`high_ratio`, `scale`, `given`, `group`, `fallback`, `runs` and `stacks` that the location is of, `runs_of_spread`,
`degrees_of_freedom`), `rule_of_thumb_ratio`, `flop_convention`, `runs` (those of the location, with source and
conditions) and `own_runs_left_out` (reason → rows). `--budget` and `--reach` have `domain`, `law`, `units`, `contrast`
(law → its answers), `fit` (`shape`, `devices`, `batch_sequences`, `batch_tokens`, `memory_bytes`, `plan`, `held_bytes`,
`floor_step_s`, `floor_model_ratio`, `least_devices`) and `notes` as well. `--parallel` has the model's `shape`, the
devices' figures and `plans`, the fastest first. An end that is not there, and whatever is unknown, is null.

## Costs, and how intervals are carried through

`--price` (of a device-hour), `--watts` (of a device with its share of the host), `--pue` and `--intensity` (gCO2e a
kWh) are yours: nothing is looked up and no datasheet's limit stands in for watts. Each is a value, or `LOW..HIGH`, read
as the interval of `--confidence` of a lognormal. Answers are of 8,192 draws of a Latin hypercube with a fixed seed,
inputs independent of each other but for a law's constants, which keep their covariance. `--tornado FILE.png` draws what
each answer hangs on: its interval with one input unknown and the others at their medians.

## What a budget buys

A transformer's loss is L = E + A/Nᵅ + B/Dᵝ nats a token of N parameters and D tokens at 6 N D FLOP, and the optimum has
a closed form. The constants are those of Besiroglu et al. 2024, a re-fit of the points of Hoffmann et al. 2022 (`--law
hoffmann2022` has theirs); the covariance is of our own resampling of those points. Kaplan et al. 2020 is for contrast.
Losses are of MassiveText with its tokenizer; a level says little of other text.

"""

AFTER_BUDGETS = """
`--parameters` fixes a size, `--reach LOSS` asks for the budget. The batch goes up to the critical batch of Kaplan et
al. (2e8 tokens ÷ L^(1/0.21), of their text). `--domain word_lm` (`char_lm`, `nmt`, `speech`, `image`, or a file like
those, [frontier](frontier.md)) inverts that domain's own learning curve instead; numbers that the file gives as
`[value, low, high]` are drawn between their ends and are in every interval.

## How a step is split

`--parallel` goes through every way to split a step over devices that divides evenly and fits, the fastest first. Ring
and tree collectives, ZeRO's stages, pipelines, activations and their recomputation are the formulas of their papers,
named in `analysis/project/parallelism/collectives.py`, `analysis/project/parallelism/step.py` and `analysis/project/parallelism/transformer.py`, each held by tests against
the papers' own numbers and against rings, shards and pipelines that are walked step by step. Links are
`analysis/devices/interconnects.csv`: half of what datasheets print for both directions, of which 0.8 is assumed to be reached.

The time is a **floor**: a roofline of products and memory, plus what of the communication nothing hides. Beside what
Megatron-LM measured on A100 (seconds a step; full: all of a block recomputed):

| model | measured, full | floor, full | measured | floor | floor ÷ measured | full ÷ not, measured | floor |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
"""  # noqa: E501

TAIL = """
Not claimed: experts, context parallelism, fp8, uneven stages, contention in a network, links that differ within a node.
Products are as fast on small pieces as on large ones here, so that the first plan of the table is not always the best.
Not checked on a GPU yet.
"""


def page(shown: Mapping[str, str]) -> str:
    """The whole document. shown: "compute" and "budget" → what these commands print."""
    parts = [HEAD, _block(shown["compute"]), METHOD, reach_table(), COVERAGE, coverage(), AFTER_COVERAGE]
    parts += [_left_out(), AFTER_LEFT_OUT, budgets(), "\n", _block(shown["budget"]), AFTER_BUDGETS, floors(), TAIL]
    return "".join(parts)


def _block(text: str) -> str:
    return "".join(f"    {line}".rstrip() + "\n" for line in text.splitlines())


def reach_table() -> str:
    """What is predicted for each family, class and generation that has runs."""
    rows = observations()
    lines = ["| family | class | generation | runs | stacks | seen | median | 80 % | 95 % |"]
    lines.append("| --- | --- | --- | ---: | ---: | --- | ---: | --- | --- |")
    for family, kind, generation in sorted({(r.family, r.precision_class, r.generation) for r in rows}, key=_order):
        here = [r for r in rows if (r.family, r.precision_class, r.generation) == (family, kind, generation)]
        ratios = [row.ratio for row in here]
        seen = f"{min(ratios):.3f} to {max(ratios):.3f}" if len(here) > 1 else f"{ratios[0]:.3f}"
        stacks = len({row.stack for row in here})
        told = _prediction_cells(family, generation, kind)
        lines.append(f"| {family} | {kind} | {generation} | {len(here)} | {stacks} | {seen} | {told} |")
    return "\n".join(lines) + "\n"


def _order(key: tuple[str, str, str]) -> tuple[str, str, float, str]:
    family, kind, generation = key
    return family, kind, float(generation.split()[0]), generation


def _prediction_cells(family: str, generation: str, kind: str) -> str:
    try:
        where = predicted_utilization(observations(), family, generation, kind)
    except TooFew:
        return "– | – | –"
    mark = "*" if where.fallback else ""
    ends = (where.utilization.interval(confidence) for confidence in (0.8, 0.95))
    return " | ".join(
        [f"{where.utilization.median:.3f}{mark}", *(f"{low:.3f} to {high:.3f}{mark}" for low, high in ends)]
    )


def coverage() -> str:
    """How many held-out runs the intervals hold."""
    found = [left_out(observations(), confidence) for confidence in (0.5, 0.8, 0.95)]
    return "".join(f"| {100 * f.asked:g} % | {f.held} of {f.runs} | {100 * f.stacks_held:.0f} % |\n" for f in found)


def _left_out() -> str:
    rows = ((row.source, row.model or "–", row.printed_device, row.why) for row in excluded_runs())
    return "".join(f"| {' | '.join(row)} |\n" for row in dict.fromkeys(rows))


def budgets() -> str:
    """Parameters, tokens and loss of each law at some budgets."""
    lines = ["| FLOP | besiroglu2024: N | D | L | hoffmann2022: N | D | L | kaplan2020: N | D |"]
    lines.append("| --- |" + " ---: |" * 8)
    for flop in BUDGETS:
        budget = np.asarray([flop])
        cells = [quantity(flop)]
        for law in scaling_laws.LAWS.values():
            parameters, tokens = scaling_laws.optimum(law.constants(), budget)
            loss = float(scaling_laws.loss(law.constants(), parameters, tokens)[0])
            cells += [quantity(float(parameters[0])), quantity(float(tokens[0])), f"{loss:.3f}"]
        parameters, tokens = scaling_laws.kaplan_optimum(budget)
        cells += [quantity(float(parameters[0])), quantity(float(tokens[0]))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def floors() -> str:
    """What Megatron-LM measured beside our floor."""
    lines = []
    for name, model, stages, batch, full_s, selective_s in MEGATRON:
        micro = batch if stages == 1 else 1
        full, kept = (
            step(model, Plan(1, 8, stages, micro, 0, again), batch, A100).step_s for again in ("full", "selective")
        )
        cells = [f"{full_s:.2f}", f"{full:.2f}", f"{selective_s:.2f}", f"{kept:.2f}", f"{kept / selective_s:.2f}"]
        lines.append(f"| {name} | {' | '.join([*cells, f'{full_s / selective_s:.2f}', f'{full / kept:.2f}'])} |\n")
    return "".join(lines)
