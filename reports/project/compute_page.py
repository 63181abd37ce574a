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
from reports.shared import markdown

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


def page(shown: Mapping[str, str]) -> str:
    """The whole document. shown: "compute" and "budget" → what these commands print."""
    return markdown(
        "compute",
        compute=_block(shown["compute"]),
        budget=_block(shown["budget"]),
        reach_table=reach_table(),
        coverage=coverage(),
        excluded=_excluded(),
        budgets=budgets(),
        floors=floors(),
    )


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
        prediction = _prediction_cells(family, generation, kind)
        lines.append(f"| {family} | {kind} | {generation} | {len(here)} | {stacks} | {seen} | {prediction} |")
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


def _excluded() -> str:
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
