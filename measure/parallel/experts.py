"""Expert parallelism: each rank has some of the experts, and tokens go to theirs and back, by transformers' own.

transformers sorts the tokens by expert, tells each rank how many come, and exchanges them by all-to-all
(`AllToAllEP`). How many go where is data, and fake tensors have none: there they are taken to be spread evenly over
the experts. Spread otherwise, the sum over ranks is the same and their shares are not.

Not claimed: experts that are no parameters of three dimensions in a module with `num_experts`, or that are divided over
the tensor axis, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from analysis.parallel.rank_grid import RankGrid, nearest_divisor
from measure.parallel.styles import like, matches, own_plan
from results.errors import Unavailable
from results.names import nearest

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from measure.fake.mode import FakeMode

DISPATCH, DIVIDED = "ep_dispatch_experts", "grouped_gemm"
"""Styles of a module whose tokens go to other ranks, and of its parameters, a part of the first dimension on each."""

EXPERT_STYLES = (DISPATCH, DIVIDED)


def own_expert_plan(model: torch.nn.Module) -> dict[str, str]:
    """The plan of the expert axis that the model brings (`ep_plan` of transformers); empty for one that has none."""
    plan = getattr(model, "ep_plan", None) or {}
    return {str(pattern): str(style) for pattern, style in plan.items()}


def plans_of(
    model: torch.nn.Module, grid: RankGrid, styles: Mapping[str, str] | None, instead: str = "a model that has one"
) -> tuple[dict[str, str], dict[str, str]]:
    """The plans of the tensor and of the expert axis: the model's own, or those in `styles`, which has both. With ep,
    modules whose tokens go to their experts are in the second one alone. instead: what a model without a plan needs.

    Raises ValueError for an axis of several ranks without a plan.
    """
    if styles is not None:
        return plans_of_file(styles, grid)
    plan, experts = own_plan(model), own_expert_plan(model)
    if grid.ep > 1:
        plan = {
            pattern: style
            for pattern, style in plan.items()
            if not any(pattern == other or pattern.startswith(f"{other}.") for other in experts)
        }
    for axis, size in _axes_without(grid, plan, experts):
        raise ValueError(f"has no {axis}_plan of its own: expected {instead} with {axis}={size}")
    return plan, experts


def plans_of_file(styles: Mapping[str, str], grid: RankGrid) -> tuple[dict[str, str], dict[str, str]]:
    """The plans of the tensor and of the expert axis in a plan file. Raises ValueError for an axis of several ranks
    without a style."""
    experts = {pattern: style for pattern, style in styles.items() if style in EXPERT_STYLES}
    plan = {pattern: style for pattern, style in styles.items() if pattern not in experts}
    for axis, size in _axes_without(grid, plan, experts):
        raise ValueError(f"the plan file has no style for {axis}: expected one with {axis}={size}")
    return plan, experts


def _axes_without(grid: RankGrid, plan: Mapping[str, str], experts: Mapping[str, str]) -> Iterator[tuple[str, int]]:
    """Axes of several ranks that have no plan, and of how many."""
    for axis, size, found in (("tp", grid.tp, plan), ("ep", grid.ep, experts)):
        if size > 1 and not found:
            yield axis, size


def apply_experts(
    model: torch.nn.Module, experts: DeviceMesh, tensor: DeviceMesh, plan: Mapping[str, str], strict: bool
) -> list[str]:
    """Put the plan of the expert axis on the model, in place; names of the parameters that are divided now.

    experts, tensor: meshes of these axes alone; strict: as in `apply_plan`. Raises ValueError for styles that are none
    of EXPERT_STYLES, a pattern without meaning, or experts that the ranks do not divide; Unavailable without a
    transformers that has it.
    """
    try:
        from transformers.distributed.expert_parallel import apply_expert_parallelism
    except ImportError as fault:
        raise Unavailable("ep: expected transformers 5.23 or later, whose exchange of tokens is used") from fault
    named = _named(model, plan, strict)
    divided = [name for name, style in named.items() if style == DIVIDED]
    if not divided or DISPATCH not in named.values():
        got = " and ".join(sorted(set(named.values()))) or "neither"
        raise ValueError(
            f"ep: expected a plan with {DISPATCH} for a module and {DIVIDED} for its parameters, got {got}"
        )
    for name in divided:
        count = model.get_parameter(name).shape[0]
        if count % experts.size():
            near = nearest_divisor(count, experts.size())
            raise ValueError(f"expected ep to divide {count} experts, got ep={experts.size()}; nearest {near}")
    apply_expert_parallelism(model, experts, tensor, named, ep_implementation="all_to_all")
    return divided


def _named(model: torch.nn.Module, plan: Mapping[str, str], strict: bool) -> dict[str, str]:
    """Name of a parameter or module → style: parameters first, because a module is told how many experts are left."""
    found: dict[str, str] = {}
    parameters = [name for name, _ in model.named_parameters()]
    for pattern, style in sorted(plan.items(), key=lambda each: each[1] == DISPATCH):
        if style not in EXPERT_STYLES:
            close = nearest(style, EXPERT_STYLES, 1)
            near = f"; nearest {close[0]}" if close else ""
            raise ValueError(f"style of {pattern}: expected {' or '.join(EXPERT_STYLES)} with ep, got {style!r}{near}")
        names = list(matches(model, pattern) if style == DISPATCH else like(parameters, pattern))
        if strict and not names:
            raise ValueError(f"plan: expected a pattern of {style}, got {pattern!r}, which means nothing")
        found.update(dict.fromkeys(names, style))
    return found


def spread_evenly(
    model: torch.nn.Module, mode: FakeMode, plan: Mapping[str, str], ranks: int, tensor_ranks: int
) -> None:
    """Have the divided experts of a model on fake tensors get as many tokens from each rank as from each other.

    ranks, tensor_ranks: of the expert and the tensor axis. The forward pass raises ValueError where they cannot.
    """
    paths = {path for pattern, style in plan.items() if style == DISPATCH for path in matches(model, pattern)}
    for path in paths:
        module = model.get_submodule(path)
        module.forward = _even(module.forward, mode, ranks, tensor_ranks)


def _even(forward: Callable[..., Any], mode: FakeMode, ranks: int, tensor_ranks: int) -> Callable[..., Any]:
    def run(hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor) -> Any:
        sent = top_k_index.numel()
        if sent % (ranks * tensor_ranks):
            by = f"ep={ranks}" + (f" · tp={tensor_ranks}" if tensor_ranks > 1 else "")
            raise ValueError(
                f"expected tokens × experts of each that are a multiple of {by}, got {sent} in a micro-batch"
            )
        with mode.scalars_are(sent // (ranks * tensor_ranks)):
            return forward(hidden_states, top_k_index, top_k_weights)

    return run
