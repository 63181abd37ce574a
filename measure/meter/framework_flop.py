"""What a framework itself says a step costs, beside the exact count, and the difference by cause.

Every cause is an amount of FLOP: the exact count plus all of them, plus `unexplained_flop`, is what the framework said.

* 6 × parameters × tokens (Hugging Face's Trainer): each weight's share is compared with the products of the module that
  it belongs to.
* a number that the user's module states (Lightning's `flops_per_batch`): it is compared with torch's FlopCounterMode,
  which `lightning.fabric.utilities.throughput.measure_flops` is, on the first batch of the run.

Not claimed: why a framework chose its formula.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

ModuleFlop = Mapping[tuple[str, str, str], float]
"""(phase, module, kind) → model FLOP."""

NO_WEIGHTS = "products without weights, as in attention, left out"
NOT_COUNTED = "output layers that share an embedding's weights left out"
NO_PRODUCT = "parameters that no product uses (biases, norms) counted"
OTHER_TOKENS = "weights that are used for fewer or more positions than tokens"
NOT_RUN = "gradients of inputs that nobody asks for counted"
FROZEN = "gradients of frozen weights counted"
NO_BACKWARD = "the backward pass left out"


@dataclass(frozen=True)
class FrameworkFlop:
    """FLOP of a mean step. how: what the framework computed. flop_per_step: what it said; None with a reason.

    exact_flop_per_step: the meter's, over the same steps. causes: cause → FLOP that the framework's number has more
    (below 0: fewer). unexplained_flop: what is left.
    """

    framework: str
    how: str
    flop_per_step: float | None = None
    exact_flop_per_step: float | None = None
    causes: Mapping[str, float] | None = None
    unexplained_flop: float | None = None
    reason: str = ""

    @property
    def ratio(self) -> float | None:
        """What the framework said ÷ the exact count."""
        if self.flop_per_step is None or not self.exact_flop_per_step:
            return None
        return self.flop_per_step / self.exact_flop_per_step


def framework_row(
    framework: str, how: str, stated: float, exact: ModuleFlop, causes: Mapping[str, float]
) -> FrameworkFlop:
    """The row of a number, with what its causes leave."""
    total = sum(exact.values())
    kept = {cause: flop for cause, flop in causes.items() if flop}
    return FrameworkFlop(framework, how, stated, total, kept, stated - total - sum(kept.values()))


def six_nd_causes(model: torch.nn.Module, tokens: float, exact: ModuleFlop) -> dict[str, float]:
    """Causes of 6 × parameters without embeddings × tokens against the exact count of the same steps, FLOP.

    model: without wrappers. tokens: a step.
    """
    products: dict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    causes: defaultdict[str, float] = defaultdict(float)
    for (phase, module, kind), flop in exact.items():
        products[module]["weightless" if kind == "attention" else phase] += flop
    weights = _weights_of(model, set(products))
    for module, found in products.items():
        causes[NO_WEIGHTS] -= found["weightless"]
        forward, backward = found["forward"], found["backward"]
        held = weights.pop(module, None)
        if held is None:
            own = model.get_submodule(module).parameters(recurse=False)
            causes[NOT_COUNTED if any(each.ndim > 1 for each in own) else NO_WEIGHTS] -= forward + backward
            continue
        causes[OTHER_TOKENS] += 6 * tokens * held.numel - 3 * forward
        causes[FROZEN if held.frozen else NOT_RUN] += 2 * forward - backward
    causes[NO_PRODUCT] += 6 * tokens * sum(held.numel for held in weights.values())
    return dict(causes)


@dataclass
class _Held:
    numel: int = 0
    frozen: bool = False


def _weights_of(model: torch.nn.Module, with_products: set[str]) -> dict[str, _Held]:
    """Module → the parameters that its products use, but for embeddings'; "." + name → one that no product uses."""
    embeddings = {f"{path}.weight" for path, each in model.named_modules() if isinstance(each, torch.nn.Embedding)}
    held: dict[str, _Held] = defaultdict(_Held)
    for name, parameter in model.named_parameters():
        if name in embeddings:
            continue
        owner = name.rpartition(".")[0]
        while parameter.ndim > 1 and owner and owner not in with_products:
            owner = owner.rpartition(".")[0]
        used = parameter.ndim > 1 and owner in with_products
        mine = held[owner if used else f".{name}"]
        mine.numel += parameter.numel()
        mine.frozen |= not parameter.requires_grad
    return dict(held)


def stated_causes(
    stated: float, exact: ModuleFlop, counter_by_kind: Mapping[tuple[str, str], float] | None
) -> dict[str, float]:
    """Causes of a number that is FlopCounterMode's, of a whole step or of its forward pass alone; none where it is
    neither. counter_by_kind: (phase, kind) → what that says of the same step."""
    ours: defaultdict[tuple[str, str], float] = defaultdict(float)
    for (phase, _module, kind), flop in exact.items():
        ours[phase, kind] += flop
    theirs = dict(counter_by_kind or {})
    forward = {key: flop for key, flop in theirs.items() if key[0] == "forward"}
    for counted, phases in ((theirs, ("forward", "backward")), (forward, ("forward",))):
        if counted and sum(counted.values()) == stated:
            left_out = sum(flop for (phase, _kind), flop in ours.items() if phase not in phases)
            places = {*counted, *(place for place in ours if place[0] in phases)}
            return {NO_BACKWARD: -left_out} | {
                f"{kind}, {phase}: the formula of torch.utils.flop_counter": counted.get((phase, kind), 0)
                - ours[phase, kind]
                for phase, kind in sorted(places)
            }
    return {}


def flop_counter_by_kind(model: torch.nn.Module, args: Any, kwargs: Any) -> dict[tuple[str, str], float]:
    """(phase, kind) → FLOP by torch's FlopCounterMode, of a model and inputs on meta, and a sum as its loss."""
    from torch.utils._pytree import tree_leaves
    from torch.utils.flop_counter import FlopCounterMode

    found: dict[tuple[str, str], float] = {}
    forward, backward = FlopCounterMode(display=False), FlopCounterMode(display=False)
    with forward:
        output = model(*args, **kwargs)
    leaves = [each for each in tree_leaves(output) if isinstance(each, torch.Tensor) and each.requires_grad]
    with backward:
        torch.autograd.backward([each.sum() for each in leaves[:1]])
    for phase, counter in (("forward", forward), ("backward", backward)):
        for operator, flop in counter.get_flop_counts().get("Global", {}).items():
            key = phase, next((kind for kind in ("convolution", "attention") if kind in str(operator)), "matmul")
            found[key] = found.get(key, 0) + float(flop)
    return found
