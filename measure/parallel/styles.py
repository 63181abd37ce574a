"""Splits a model over ranks, in place: by a tensor-parallel plan, by an expert plan, or all weights by FSDP.

`apply_plan`, `apply_experts` and `shard_weights` take a model and a mesh. A plan maps patterns of module paths to
styles, with the names of transformers' `tp_plan`; torch's parallelize_module applies it. A pattern has as many parts as
a path, and `*` matches any one part. Parameters become DTensors without communication: each rank keeps its part of its
own copy. With expert parallelism each rank has some of the experts. transformers sorts the tokens by expert and
exchanges them by all-to-all (`AllToAllEP`). How many tokens each rank gets depends on values. On fake tensors the
tokens are taken to be spread evenly; another distribution changes the ranks' shares, but not their sum. Not claimed:
packed or quantized weights; styles outside of STYLES, which are refused.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed._functional_collectives import all_reduce
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from analysis.parallel.rank_grid import RankGrid, nearest_divisor
from results.errors import Unavailable
from results.text_files import nearest

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from measure.operations.fake_mode import FakeMode


class ReplicatedParallel(ParallelStyle):
    """Keeps the whole module on every rank, which runs it on its part of the inputs; gradients of the module's
    parameters are summed over the ranks."""

    def _apply(self, module: torch.nn.Module, device_mesh: DeviceMesh) -> torch.nn.Module:
        hooked: set[int] = set()

        def reduce(gradient: torch.Tensor) -> torch.Tensor:
            summed: torch.Tensor = all_reduce(gradient, "sum", device_mesh.get_group())
            return summed

        def hook(module: torch.nn.Module, _inputs: Any) -> None:
            """Hook the weights when the forward pass begins: weights that replicas share are other tensors before."""
            for parameter in module.parameters(recurse=False):
                if parameter.requires_grad and id(parameter) not in hooked:
                    hooked.add(id(parameter))
                    parameter.register_hook(reduce)

        module.register_forward_pre_hook(hook)
        return module


STYLES: Mapping[str, Callable[[], ParallelStyle | None]] = {
    "colwise": ColwiseParallel,
    "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rowwise": RowwiseParallel,
    "rowwise_rep": lambda: RowwiseParallel(input_layouts=Replicate()),
    "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate()),
    "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
    "embedding_colwise": lambda: ColwiseParallel(output_layouts=Replicate()),
    "sequence_parallel": SequenceParallel,
    "replicated_with_grad_allreduce": ReplicatedParallel,
    "replicate": lambda: None,
}
"""Style of a plan → torch's style; None: the module stays as it is."""


def own_plan(model: torch.nn.Module, name: str = "tp_plan") -> dict[str, str]:
    """Return the model's own plan (`tp_plan` or `ep_plan` of transformers); empty if it has none."""
    plan = getattr(model, name, None) or getattr(model, f"_{name}", None) or {}
    return {str(pattern): str(style) for pattern, style in plan.items()}


def check_heads(model: torch.nn.Module, plan: Mapping[str, str], ranks: int) -> None:
    """Raise ValueError if the ranks do not divide the number of attention heads in the model's configuration."""
    config = getattr(model, "config", None)
    attends = any("attn" in pattern or "attention" in pattern for pattern in plan)
    if config is None or not attends:
        return
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(text, name, None)
        if isinstance(heads, int) and heads % ranks:
            near = nearest_divisor(heads, ranks)
            raise ValueError(f"expected tp to divide {heads} {name}, got tp={ranks}; nearest {near}")


def matching_modules(model: torch.nn.Module, pattern: str) -> Iterator[str]:
    """Return the paths of the modules that match a pattern."""
    return matching_names((path for path, _ in model.named_modules() if path), pattern)


def matching_names(names: Iterable[str], pattern: str) -> Iterator[str]:
    """Yield those of these dotted names that match a pattern."""
    parts = pattern.split(".")
    for name in names:
        segments = name.split(".")
        if len(segments) == len(parts) and all(map(fnmatch.fnmatchcase, segments, parts)):
            yield name


def apply_plan(model: torch.nn.Module, mesh: DeviceMesh, plan: Mapping[str, str], strict: bool) -> None:
    """Apply the plan to the model, in place. mesh: only of the tensor axis. strict: whether a pattern without a match
    is refused (for a plan from a file); a model's own plan covers all its variants.

    Raises ValueError for an unknown style, for such a pattern, and for whatever torch refuses.
    """
    for pattern, style in plan.items():
        if style not in STYLES:
            raise ValueError(
                f"style of {pattern}: expected one of {', '.join(STYLES)}, got {style!r}{_nearest_hint(style, STYLES)}"
            )
    check_heads(model, plan, mesh.size())
    tied = _tied(model)
    for pattern, style in plan.items():
        paths = list(matching_modules(model, pattern))
        if strict and not paths:
            near = _nearest_hint(pattern, [path for path, _ in model.named_modules() if path])
            raise ValueError(f"plan: expected patterns of modules, got {pattern!r}, which matches none{near}")
        for path in paths:
            parallel_style: Any = STYLES[style]()
            if parallel_style is None:
                break
            try:
                parallelize_module(model.get_submodule(path), mesh, parallel_style, src_data_rank=None)
            except (NotImplementedError, RuntimeError, ValueError) as fault:
                raise ValueError(f"plan: {path} cannot be {style}: {' '.join(str(fault).split())}") from fault
    _tie(model, tied)


def _nearest_hint(name: str, known: Iterable[str]) -> str:
    """Return the nearest known name, as an addition to a message."""
    close = nearest(name, list(known), 1)
    return f"; nearest {close[0]}" if close else ""


def _tied(model: torch.nn.Module) -> list[list[str]]:
    """Return names of parameters that are the same object."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [several for several in names.values() if len(several) > 1]


def _tie(model: torch.nn.Module, tied: list[list[str]]) -> None:
    """Tie parameters again that were the same object, if the rank has the same part of each."""
    for first, *others in tied:
        tied_to = model.get_parameter(first)
        for name in others:
            path, _, attribute = name.rpartition(".")
            other = model.get_parameter(name)
            if isinstance(tied_to, DTensor) and isinstance(other, DTensor) and tied_to.placements == other.placements:
                setattr(model.get_submodule(path), attribute, tied_to)


def shard_weights(model: torch.nn.Module, mesh: DeviceMesh) -> None:
    """Shard parameters over the replicas, by torch's fully_shard: each element of the outermost lists of modules
    separately, and the rest with the whole model. mesh: only of the data axis."""
    for _, layer in outermost_elements(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def repeat_split_modules(model: torch.nn.Module, mesh: DeviceMesh, but: Sequence[str] = ()) -> None:
    """Make replicas of a model with DTensors, which DistributedDataParallel refuses, reduce their gradients, by torch's
    `replicate`; each rank keeps its part. mesh: only of the replicas; but: names of parameters that are left as they
    are. Raises Unavailable if this torch has no `replicate`."""
    try:
        from torch.distributed._composable.replicate_with_fsdp import replicate
    except ImportError as fault:
        raise Unavailable(f"torch {torch.__version__} has no replicate() that keeps split modules") from fault
    left = {model.get_parameter(name) for name in but}
    for layer in (*(element for _, element in outermost_elements(model)), model):
        replicate(layer, mesh=mesh, ignored_params=left)


def outermost_elements(module: torch.nn.Module, path: str = "") -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield (path, element) of lists of modules that are inside no other list, if they have parameters. path: of the
    module."""
    for name, child in module.named_children():
        child_path = f"{path}.{name}" if path else name
        if isinstance(child, torch.nn.ModuleList):
            yield from (
                (f"{child_path}.{number}", element)
                for number, element in child.named_children()
                if next(element.parameters(), None) is not None
            )
        else:
            yield from outermost_elements(child, child_path)


DISPATCH, DIVIDED = "ep_dispatch_experts", "grouped_gemm"
"""Styles of a module whose tokens go to other ranks, and of its parameters, divided by their first dimension."""

EXPERT_STYLES = (DISPATCH, DIVIDED)


def plans_of(
    model: torch.nn.Module, grid: RankGrid, styles: Mapping[str, str] | None, instead: str = "a model with one"
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the plans of the tensor and of the expert axis: the model's own, or those in `styles`, which has both.
    With ep, modules whose tokens go to their experts are only in the second one. instead: what a message tells the
    caller to pass for a model without a plan.

    Raises ValueError for an axis of several ranks without a plan.
    """
    if styles is not None:
        experts = {pattern: style for pattern, style in styles.items() if style in EXPERT_STYLES}
        plan = {pattern: style for pattern, style in styles.items() if pattern not in experts}
    else:
        plan, experts = own_plan(model), own_plan(model, "ep_plan")
        if grid.ep > 1:
            prefixes = tuple(f"{other}." for other in experts)
            plan = {pattern: style for pattern, style in plan.items() if not f"{pattern}.".startswith(prefixes)}
    for axis, size, styled in (("tp", grid.tp, plan), ("ep", grid.ep, experts)):
        if size > 1 and not styled:
            lacks = f"the model has no {axis}_plan: expected {instead}"
            if styles is not None:
                lacks = f"the plan file has no style for {axis}: expected one"
            raise ValueError(f"{lacks} for {axis}={size}")
    return plan, experts


def apply_experts(
    model: torch.nn.Module, experts: DeviceMesh, tensor: DeviceMesh, plan: Mapping[str, str], strict: bool
) -> list[str]:
    """Apply the plan of the expert axis to the model, in place. Return the names of the divided parameters.

    experts, tensor: meshes of only these axes; strict: as in `apply_plan`. Not claimed: experts that are not
    three-dimensional parameters of a module with `num_experts`, or are divided over the tensor axis, too. Raises
    ValueError for styles outside of EXPERT_STYLES, a plan that divides no parameters, a pattern without a match if
    `strict`, or experts that the ranks do not divide; Unavailable for a transformers without expert parallelism.
    """
    try:
        from transformers.distributed.expert_parallel import apply_expert_parallelism
    except ImportError as fault:
        raise Unavailable("ep: expected transformers 5.23 or later, which exchanges the tokens") from fault
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
    """Return name of a parameter or module → style. Parameters come first: dividing them changes the number of experts
    that their module has."""
    styles: dict[str, str] = {}
    parameters = [name for name, _ in model.named_parameters()]
    for pattern, style in sorted(plan.items(), key=lambda item: item[1] == DISPATCH):
        if style not in EXPERT_STYLES:
            expected = f"expected {' or '.join(EXPERT_STYLES)} with ep"
            raise ValueError(f"style of {pattern}: {expected}, got {style!r}{_nearest_hint(style, EXPERT_STYLES)}")
        names = list(matching_modules(model, pattern) if style == DISPATCH else matching_names(parameters, pattern))
        if strict and not names:
            raise ValueError(f"plan: expected a pattern of {style}, got {pattern!r}, which matches nothing")
        styles.update(dict.fromkeys(names, style))
    return styles


def spread_evenly(
    model: torch.nn.Module, mode: FakeMode, plan: Mapping[str, str], ranks: int, tensor_ranks: int
) -> None:
    """Make each divided expert of a model on fake tensors get the same number of tokens from every rank.

    ranks, tensor_ranks: of the expert and the tensor axis. The forward pass raises ValueError if they do not divide.
    """
    paths = {path for pattern, style in plan.items() if style == DISPATCH for path in matching_modules(model, pattern)}
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
        with mode.reading_scalars_as(sent // (ranks * tensor_ranks)):
            return forward(hidden_states, top_k_index, top_k_weights)

    return run
