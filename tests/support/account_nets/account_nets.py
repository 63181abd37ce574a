"""The small networks of accounts by name, as workloads: `get(name)`. Each shows a reason why counters differ.

Sizes are chosen so that no two parts of a network have the same count by chance.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from tests.support.account_nets import (
    account_nets_layers,
    account_nets_odd,
    account_nets_products,
    account_nets_structure,
)
from tests.support.nets.counted_nets import Small
from workloads.catalogue.base import Batch, Workload, mean_loss

IMAGE, TOKENS = (3, 8, 8), (5, 12)


@dataclass(frozen=True)
class Net:
    """build() → module; inputs: sizes of a sample of each input; below: of whole numbers, the smallest not there."""

    build: Callable[[], nn.Module]
    inputs: tuple[tuple[int, ...], ...]
    below: int = 0
    dtype: torch.dtype = torch.float32


def _nets(room: Any, names: str, *inputs: tuple[int, ...], **more: Any) -> dict[str, Net]:
    return {name: Net(getattr(room, name), inputs, **more) for name in names.split()}


NETS: Mapping[str, Net] = {
    **_nets(
        account_nets_layers,
        "norms poolings resizings resizing_by_each_side upsampling odd_resizing sampling functions",
        IMAGE,
    ),
    **_nets(
        account_nets_layers,
        "subclasses padded_by_word dimensions grouped deformable modulated norms_by_dimension torch_functions",
        IMAGE,
    ),
    **_nets(account_nets_layers, "activations activation_functions softmaxes additions multiplications", TOKENS),
    **_nets(
        account_nets_products,
        "recurrent projected packed attention attention_with_weights attention_steps_first",
        TOKENS,
    ),
    **_nets(
        account_nets_products, "cross_attention encoder transformer fused_attention products broadcast vectors", TOKENS
    ),
    **_nets(account_nets_products, "contractions einops_contraction other_products in_place bilinear", TOKENS),
    **_nets(account_nets_structure, "shared_norm frozen checkpointed nothing", IMAGE),
    **_nets(
        account_nets_structure,
        "tokens_linear named_convolution shared called_twice two_names shared_block past_hooks",
        TOKENS,
    ),
    **_nets(account_nets_structure, "complex_numbers checkpointed_linear checkpointed_attention data_decides", TOKENS),
    **_nets(
        account_nets_structure, "checkpointed_with_reentry timm_attention vision_block in_autocast keywords", TOKENS
    ),
    **_nets(
        account_nets_structure, "module_keywords weight_normed wrapped residual Auxiliary EvaluatedOnly outside", TOKENS
    ),
    **_nets(
        account_nets_odd, "constants unused applied calculated_weight checkpointed_twice line_without_batch", TOKENS
    ),
    **_nets(account_nets_odd, "without_batch warped", IMAGE),
    **_nets(account_nets_structure, "embeddings tied", (5,), below=11),
    **_nets(account_nets_structure, "several_inputs", TOKENS, TOKENS),
    **_nets(account_nets_structure, "half_precision", TOKENS, dtype=torch.bfloat16),
    "small": Net(Small, ((3, 10, 10),)),
}


def get(name: str) -> Workload:
    """A net as a workload, as `measure.counters.isolation` and `runners.workers.any_model` take them."""
    net = NETS[name]
    return Workload(
        name=name,
        task="general",
        hyper={},
        build=lambda: net.build().train(),
        batch=partial(_batch, net),
        loss=mean_loss,
        items=lambda _hyper, size: size,
        item="sample",
        source=__name__,
    )


def _batch(net: Net, _hyper: Any, size: int, _device: Any, generator: torch.Generator | None) -> Batch:
    if net.below:
        made = tuple(torch.randint(net.below, (size, *shape), generator=generator) for shape in net.inputs)
    else:
        made = tuple(torch.randn(size, *shape, generator=generator, dtype=net.dtype) for shape in net.inputs)
    return Batch(made, None)


def inputs_of(name: str, size: int) -> tuple[Any, ...]:
    """The inputs of a net: the same whoever asks."""
    return get(name).batch({}, size, torch.device("cpu"), torch.Generator().manual_seed(0)).inputs
