"""One training step of a transformer over many devices: what each holds, sends and waits for.

A plan splits B sequences a step over `data` replicas, each matrix over `tensor` devices, the blocks over `pipeline`
stages, and what training keeps over the replicas (ZeRO's stages 1 to 3; 3 is what FSDP does). Devices are numbered with
tensor innermost, then data, then pipeline, as Megatron-LM does, and fill nodes in that order.

* Memory: 2 bytes of weight, 2 of gradient and 12 of Adam a parameter (Rajbhandari et al., arXiv 1910.02054, section 3),
  each divided by `data` from stage 3, 2 and 1 on; activations of min(p, m) micro-batches on the first stage.
* Pipeline: m micro-batches through p stages take m + (p − 1)/v times one, v chunks a device (Narayanan et al.).
* Tensor: four all-reduces a block of 2 b s h bytes, six where blocks are recomputed: as many bytes with the sequence
  split, where each is a reduce-scatter and an all-gather (Korthikanti et al.). Not hidden unless `tensor_hidden` says.
* Data: gradients are reduced once a step, hidden behind the backward pass of the last micro-batch; in stage 2 after
  each micro-batch, behind its own; in stage 3 weights are gathered twice for each, too, behind all of its kernels.
* Kernels of a micro-batch take the longer of FLOP ÷ reachable FLOP/s and bytes ÷ bandwidth, bytes being ideal fusion's.

All this is a floor: no launch, no straggler, no input, no memory lost between tensors. What others reached beside it is
in docs/compute.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analysis.devices import ACHIEVED, NODE_DEVICES, Link
from analysis.project.parallelism.collectives import Group, all_reduce_s, half_s, send_s
from analysis.project.parallelism.transformer import RECOMPUTE, Transformer

WEIGHT_BYTES, GRADIENT_BYTES, ADAM_BYTES = 2, 2, 12
UPDATE_BYTES = 28
"""Moved a parameter by Adam: 2 of gradient read, 12 of state read and written, 2 of weight written."""

GATHERED_BLOCKS = 2
"""Blocks whose weights are whole at a time in stage 3: the one in work and the next."""


class Unfit(ValueError):
    """A plan that does not divide its model, batch or devices."""


@dataclass(frozen=True)
class Cluster:
    """Devices. peak_flop_per_s: dense; reachable: of it in products; achieved: of links' rates in collectives."""

    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    memory_bytes: float
    within: Link
    between: Link
    node: int = NODE_DEVICES
    reachable: float = 0.8
    achieved: float = ACHIEVED


@dataclass(frozen=True)
class Plan:
    """How a step is split. micro: sequences of one replica at once; chunks: of blocks a device (interleaving)."""

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    micro: int = 1
    zero: int = 1
    recompute: str = "selective"
    chunks: int = 1
    tensor_hidden: float = 0.0

    @property
    def devices(self) -> int:
        """All of them."""
        return self.data * self.tensor * self.pipeline


@dataclass(frozen=True)
class DeviceBytes:
    """Bytes on the fullest device."""

    weights: float
    gradients: float
    optimizer: float
    activations: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class ParallelStep:
    """A step in seconds: kernels, then what is added. pipeline_s holds kernels_s, tensor_s and send_s and the bubble.

    compute_s and moved_s: FLOP ÷ reachable FLOP/s and bytes ÷ bandwidth, of all micro-batches on the slowest stage.
    model_ratio, hardware_ratio: of the peak; the second with what is recomputed.
    """

    compute_s: float
    moved_s: float
    kernels_s: float
    tensor_s: float
    send_s: float
    bubble_s: float
    data_s: float
    data_exposed_s: float
    update_s: float
    step_s: float
    model_ratio: float
    hardware_ratio: float
    held: DeviceBytes


def micro_batches(plan: Plan, batch: int) -> int:
    """How many a replica's share of the batch is. Raises Unfit."""
    count, rest = divmod(batch, plan.data * plan.micro)
    if rest or not count:
        raise Unfit(f"a batch of {batch} sequences is no multiple of {plan.data} replicas × {plan.micro} at once")
    return count


def check(model: Transformer, plan: Plan, batch: int) -> None:
    """Raises Unfit for a plan that cannot be."""
    sizes = (plan.data, plan.tensor, plan.pipeline, plan.micro, plan.chunks)
    if min(sizes) < 1 or plan.zero not in range(4) or plan.recompute not in RECOMPUTE:
        raise Unfit(f"expected sizes of at least 1, a ZeRO stage from 0 to 3 and a recomputation, got {plan}")
    if model.layers % (plan.pipeline * plan.chunks):
        raise Unfit(f"{model.layers} layers are no multiple of {plan.pipeline} stages × {plan.chunks} chunks")
    if model.heads % plan.tensor:
        raise Unfit(f"{model.heads} heads are no multiple of tensor parallelism {plan.tensor}")
    if plan.zero > 1 and plan.pipeline > 1:
        raise Unfit(f"ZeRO stage {plan.zero} with a pipeline reduces at every micro-batch: expected stage 0 or 1")
    micro = micro_batches(plan, batch)
    if plan.chunks > 1 and micro % plan.pipeline:
        raise Unfit(f"interleaving needs micro-batches in multiples of {plan.pipeline} stages, got {micro}")


def stage_parameters(model: Transformer, plan: Plan) -> float:
    """Parameters that the fullest stage's device works with: its blocks and one embedding, over tensor."""
    blocks = (12 * model.width**2 + 13 * model.width) * model.layers / plan.pipeline
    return (blocks + (model.vocabulary + model.sequence) * model.width) / plan.tensor


def zero_bytes(parameters: float, stage: int, data: int) -> tuple[float, float, float]:
    """(weights, gradients, optimizer) bytes a device of so many parameters under a stage of ZeRO."""
    shard = [data if stage >= needed else 1 for needed in (3, 2, 1)]
    each = (WEIGHT_BYTES, GRADIENT_BYTES, ADAM_BYTES)
    weights, gradients, optimizer = (parameters * size / parts for size, parts in zip(each, shard, strict=True))
    return weights, gradients, optimizer


def held(model: Transformer, plan: Plan, batch: int) -> DeviceBytes:
    """What the fullest device keeps. Raises Unfit."""
    check(model, plan, batch)
    weights, gradients, optimizer = zero_bytes(stage_parameters(model, plan), plan.zero, plan.data)
    if plan.zero == 3 and plan.data > 1:
        weights += GATHERED_BLOCKS * WEIGHT_BYTES * 12 * model.width**2 / plan.tensor
    block = model.activation_bytes(plan.micro, plan.tensor, plan.recompute)
    flying = min(plan.pipeline, micro_batches(plan, batch))
    extra = 1 + (plan.pipeline - 1) / (plan.pipeline * plan.chunks) if plan.chunks > 1 else 1.0
    kept = block * model.layers / plan.pipeline * flying * extra
    if plan.recompute == "full":
        kept += model.activation_bytes(plan.micro, plan.tensor, "selective")
    logits = model.logit_bytes(plan.micro, plan.tensor)
    if plan.pipeline == 1:
        return DeviceBytes(weights, gradients, optimizer, kept + logits)
    last = block * model.layers / plan.pipeline + logits  # the last stage has one micro-batch, and the logits
    return DeviceBytes(weights, gradients, optimizer, max(kept, last))


def step(model: Transformer, plan: Plan, batch: int, cluster: Cluster) -> ParallelStep:
    """A step's time and memory. Raises Unfit."""
    kept, micro = held(model, plan, batch), micro_batches(plan, batch)
    compute = _stage_flop(model, plan) / (cluster.peak_flop_per_s * cluster.reachable)
    moved = _moved_bytes(model, plan) / cluster.bandwidth_bytes_per_s
    kernels = max(compute, moved)
    tensor = _tensor_s(model, plan, cluster) * (1 - plan.tensor_hidden)
    send = _send_s(model, plan, cluster)
    one = kernels + tensor + send
    bubble = (plan.pipeline - 1) / plan.chunks * one
    data, exposed = _data_s(model, plan, cluster, micro, kernels)
    shard = plan.data if plan.zero else 1
    update = UPDATE_BYTES * stage_parameters(model, plan) / shard / cluster.bandwidth_bytes_per_s
    total = micro * one + bubble + exposed + update
    whole = plan.devices * cluster.peak_flop_per_s * total
    flop = model.step_flop(batch)
    return ParallelStep(
        compute_s=micro * compute,
        moved_s=micro * moved,
        kernels_s=micro * kernels,
        tensor_s=micro * tensor,
        send_s=micro * send,
        bubble_s=bubble,
        data_s=data,
        data_exposed_s=exposed,
        update_s=update,
        step_s=total,
        model_ratio=flop / whole,
        hardware_ratio=(flop + model.recomputed_flop(batch, plan.recompute)) / whole,
        held=kept,
    )


def groups(plan: Plan, cluster: Cluster) -> tuple[Group, Group]:
    """(tensor, data): who communicates, and how many of them share a node."""
    return _group(plan.tensor, 1, cluster), _group(plan.data, plan.tensor, cluster)


def _group(size: int, stride: int, cluster: Cluster) -> Group:
    """Members of a group with this stride that share a node: as many as fit and divide it."""
    sharing = math.gcd(size, max(1, cluster.node // stride))
    return Group(size, sharing, cluster.within, cluster.between, cluster.achieved)


def _stage_flop(model: Transformer, plan: Plan) -> float:
    """FLOP of one micro-batch on a device of the last stage, which has the logits as well."""
    blocks, scores, logits = model.forward_flop(plan.micro)
    again = model.recomputed_flop(plan.micro, plan.recompute)
    return ((3 * (blocks + scores) + again) / plan.pipeline + 3 * logits) / plan.tensor


def _moved_bytes(model: Transformer, plan: Plan) -> float:
    """Bytes of one micro-batch on a stage: weights read in both passes, gradients added to, activations both ways."""
    weights = stage_parameters(model, plan) * (2 * WEIGHT_BYTES + 2 * GRADIENT_BYTES)
    block = model.activation_bytes(plan.micro, plan.tensor, "selective")
    passes = 3 if plan.recompute == "full" else 2
    return weights + passes * block * model.layers / plan.pipeline


def _reduces(plan: Plan) -> int:
    """All-reduces a block and micro-batch."""
    return 6 if plan.recompute == "full" else 4


def _tensor_s(model: Transformer, plan: Plan, cluster: Cluster) -> float:
    if plan.tensor == 1:
        return 0.0
    message = 2 * plan.micro * model.sequence * model.width
    return _reduces(plan) * model.layers / plan.pipeline * all_reduce_s(message, groups(plan, cluster)[0])


def _send_s(model: Transformer, plan: Plan, cluster: Cluster) -> float:
    """Activations forward and gradients backward to the neighbour, each device its share of them."""
    if plan.pipeline == 1:
        return 0.0
    link = cluster.within if plan.devices <= cluster.node else cluster.between
    message = 2 * plan.micro * model.sequence * model.width / plan.tensor
    return 2 * plan.chunks * send_s(message, link, cluster.achieved)


def _data_s(model: Transformer, plan: Plan, cluster: Cluster, micro: int, kernels: float) -> tuple[float, float]:
    """(seconds of communication between replicas, those that nothing hides) of a step."""
    if plan.data == 1:
        return 0.0, 0.0
    group = groups(plan, cluster)[1]
    parameters = stage_parameters(model, plan)
    gathered = half_s(WEIGHT_BYTES * parameters, group)
    reduced = half_s(GRADIENT_BYTES * parameters, group)
    if plan.zero == 3:
        return micro * (2 * gathered + reduced), micro * max(0.0, 2 * gathered + reduced - kernels)
    backward = kernels * 2 / 3
    each = max(0.0, reduced - backward) * (micro - 1) if plan.zero == 2 else 0.0
    once = reduced + gathered if plan.zero else all_reduce_s(GRADIENT_BYTES * parameters, group)
    return once + reduced * (micro - 1 if plan.zero == 2 else 0), max(0.0, once - backward) + each
