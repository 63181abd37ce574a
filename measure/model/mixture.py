"""What of a step belongs to a mixture of experts: router, experts, shared experts; parameters in all and for one token.

Told by the names that transformers, torchtitan and others give modules: `experts` within a block, beside them `gate` or
`router`, and `shared_expert` or `shared_experts`. How many experts a token is sent to is the configuration's. A name of
one's own is not known, and then there is no mixture. On fake tensors no token is sent anywhere: experts whose products
have the sizes of values are counted as the executed trace runs them (docs/limits.md).
"""

import dataclasses
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from analysis.operators import registry
from results.records.counts import Operation

EXPERTS, ROUTERS = ("experts",), ("gate", "router", "router_gate")
SHARED = ("shared_expert", "shared_experts", "shared_expert_gate")

_CHOSEN = ("num_experts_per_tok", "moe_top_k", "top_k", "num_experts_per_token")
_EVERY = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


@dataclass(frozen=True)
class MixtureFlop:
    """Model FLOP of the forward pass by part of the mixtures of a model, and its parameters.

    router_flop, experts_flop, shared_flop: what ran. chosen_flop: what the experts need that each token is sent to.
    None where the configuration does not say how many experts a token has. parameters: all; active_parameters: those
    that one token meets, with `experts_per_token` of `experts` in each mixture.
    """

    router_flop: int
    experts_flop: int
    shared_flop: int
    parameters: int
    experts: int | None = None
    experts_per_token: int | None = None
    chosen_flop: int | None = None
    active_parameters: int | None = None

    def as_row(self) -> dict[str, int | None]:
        """What a row of flop_counts.csv says of it: field → value. padding_flop is the difference of two of them."""
        return dataclasses.asdict(self)

    @property
    def padding_flop(self) -> int | None:
        """FLOP of the experts beyond those of the tokens that they were chosen for: padding to a capacity or to tiles;
        below zero: what dropped tokens lack."""
        return None if self.chosen_flop is None else self.experts_flop - self.chosen_flop


def step_mixture(model: torch.nn.Module, operations: Iterable[Operation]) -> MixtureFlop | None:
    """Adds up a step's operations; None for a model without experts."""
    weights = _weights(model)
    if not weights[EXPERTS]:
        return None
    flop: Counter[tuple[str, ...]] = Counter()
    tokens: Counter[str] = Counter()
    for each in operations:
        part = part_of(each.module) if each.phase == "forward" else ()
        if part:
            cost = registry.model_flop(each)
            flop[part] += cost
            if part == ROUTERS:
                tokens[_block_of(each.module, ROUTERS)] += cost
    every, chosen = _named(model, _EVERY), _named(model, _CHOSEN)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    mixture = MixtureFlop(flop[ROUTERS], flop[EXPERTS], flop[SHARED], parameters, every, chosen)
    if not every or not chosen:
        return mixture
    idle = weights[EXPERTS].total() * (every - chosen) // every
    return dataclasses.replace(
        mixture,
        chosen_flop=_chosen_flop(weights, tokens, every, chosen),
        active_parameters=parameters - idle,
    )


def part_of(path: str) -> tuple[str, ...]:
    """EXPERTS, ROUTERS or SHARED, by the path of a module; empty: none of them. A gate inside of experts is theirs."""
    for name in path.split("."):
        for part in (SHARED, EXPERTS, ROUTERS):
            if name in part:
                return part
    return ()


def _block_of(path: str, part: tuple[str, ...]) -> str:
    """The path of the module that holds this part."""
    names = path.split(".")
    return ".".join(names[: next(place for place, name in enumerate(names) if name in part)])


def _weights(model: torch.nn.Module) -> dict[tuple[str, ...], Counter[str]]:
    """Part → block → weights in it."""
    weights: dict[tuple[str, ...], Counter[str]] = {EXPERTS: Counter(), ROUTERS: Counter(), SHARED: Counter()}
    for path, parameter in model.named_parameters():
        part = part_of(path)
        if part and parameter.dim() > 1:
            weights[part][_block_of(path, part)] += parameter.numel()
    return weights


def _chosen_flop(
    weights: dict[tuple[str, ...], Counter[str]], router_flop: Counter[str], every: int, chosen: int
) -> int | None:
    """A router costs 2 FLOP a token and weight: so many tokens there were, and each meets `chosen` experts' weights."""
    total = 0
    for block, held in weights[EXPERTS].items():
        routers = weights[ROUTERS][block]
        if not routers or router_flop[block] % (2 * routers) or held % every:
            return None
        total += router_flop[block] // (2 * routers) * chosen * 2 * (held // every)
    return total


def _named(model: torch.nn.Module, names: Iterable[str]) -> int | None:
    """The first of these that the configuration has."""
    config: Any = getattr(model, "config", None)
    values = (getattr(config, name, None) for name in names)
    return next((each for each in values if isinstance(each, int) and not isinstance(each, bool) and each > 0), None)
