"""Definition, law: tables, shapes and lifetimes of small nets by hand, and the laws of every trace."""

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from analysis.operators.registry import total
from measure.operations.tracer import StepParts, Trace, trace_step
from results.records.counts import Storage
from tests.support.nets.small_steps import (
    Calls,
    Small,
    at_work,
    check_laws,
    fake_trace,
    named,
    one,
    parts,
    real_trace,
    run,
)
from workloads.catalogue.base import Batch
from workloads.step import OPTIMIZERS, TrainingStep

FORWARD = [
    # name, phase, module
    ("aten.convolution", "forward", "conv"),
    ("aten.add_", "forward", "bn"),  # num_batches_tracked
    ("aten.native_batch_norm", "forward", "bn"),
    ("aten.relu_", "forward", "act"),
    ("aten.mean", "forward", ""),
    ("aten.addmm", "forward", "fc"),
    ("aten._log_softmax", "loss", ""),
    ("aten.nll_loss_forward", "loss", ""),
]

BACKWARD = [
    # name, module, the forward operation it belongs to; the gradients in reverse order of the forward operations
    ("aten.ones_like", "", None),  # the gradient of the loss with respect to itself
    ("aten.nll_loss_backward", "", "aten.nll_loss_forward"),
    ("aten._log_softmax_backward_data", "", "aten._log_softmax"),
    ("aten.mm", "fc", "aten.addmm"),  # with respect to the input
    ("aten.mm", "fc", "aten.addmm"),  # with respect to the weight
    ("aten.sum", "fc", "aten.addmm"),  # with respect to the bias
    ("aten.div", "", "aten.mean"),
    ("aten.threshold_backward", "act", "aten.relu_"),
    ("aten.native_batch_norm_backward", "bn", "aten.native_batch_norm"),
    ("aten.convolution_backward", "conv", "aten.convolution"),
]

OPTIMIZER = ["aten.add", "aten.mul_", "aten.add_", "aten.add_"]
"""SGD of one parameter: gradient + decay · weight; momentum · buffer; buffer + gradient; weight − rate · buffer."""


def test_table_of_a_small_net() -> None:
    recorded = fake_trace(parts(Small))
    work = at_work(recorded)
    ahead = [o for o in work if o.phase in ("forward", "loss")]
    assert [(o.name, o.phase, o.module) for o in ahead] == FORWARD
    assert all(o.forward_index is None for o in ahead)
    back = [o for o in work if o.phase == "backward"]
    origins = [None if o.forward_index is None else recorded.operations[o.forward_index].name for o in back]
    assert [(o.name, o.module, origin) for o, origin in zip(back, origins, strict=True)] == BACKWARD
    rest = work[len(ahead) + len(back) :]
    assert [o.name for o in rest] == OPTIMIZER * 5  # conv.weight, bn.weight, bn.bias, fc.weight, fc.bias
    assert {(o.phase, o.module) for o in rest} == {("optimizer", "")}
    check_laws(recorded)


def test_storages_of_a_small_net() -> None:
    """Sizes by hand: 4 bytes an element, 8 for labels and BatchNorm's counter."""
    recorded = fake_trace(parts(Small))
    by_role: dict[str, list[Storage]] = {}
    for storage in recorded.storages:
        by_role.setdefault(storage.role, []).append(storage)
    sizes = [4 * 3 * 3 * 3 * 4, 4 * 4, 4 * 4, 2 * 4 * 4, 2 * 4]  # conv, bn weight and bias, fc weight and bias
    assert [s.nbytes for s in by_role["weight"]] == sizes
    assert sorted(s.nbytes for s in by_role["buffer"]) == [8, 16, 16]  # counter, running mean and variance
    assert [s.nbytes for s in by_role["input"]] == [2 * 3 * 8 * 8 * 4, 2 * 8]
    assert [s.nbytes for s in by_role["optimizer_state"]] == sizes  # momentum
    old = [s for s in by_role["gradient"] if s.born_index < 0]
    assert [s.nbytes for s in old] == sizes
    assert {s.died_index for s in old} == {-1}  # zero_grad comes first
    new = [s for s in by_role["gradient"] if s.born_index >= 0]
    assert sorted(s.nbytes for s in new) == sorted(sizes)
    assert {s.died_index for s in new} == {None}
    for role in ("weight", "buffer", "input", "optimizer_state"):
        assert {(s.born_index, s.died_index) for s in by_role[role]} == {(-1, None)}


def test_activations_live_until_their_gradient_is_computed() -> None:
    recorded = fake_trace(parts(Small))
    storages = {s.id: s for s in recorded.storages}
    conv, norm = one(recorded, "aten.convolution"), one(recorded, "aten.native_batch_norm")
    (convolved,) = conv.writes
    assert storages[convolved] == Storage(
        convolved, 2 * 4 * 6 * 6 * 4, "activation", conv.index, one(recorded, "aten.native_batch_norm_backward").index
    )
    normed = norm.writes[0]
    assert storages[normed].role == "activation"
    assert storages[normed].died_index == one(recorded, "aten.threshold_backward").index
    gradient = one(recorded, "aten.native_batch_norm_backward").writes[0]
    assert storages[gradient].role == "temporary"
    assert storages[gradient].died_index == one(recorded, "aten.convolution_backward").index


def test_views_and_writes_in_place_keep_the_storage() -> None:
    recorded = fake_trace(parts(Small))
    norm, relu = one(recorded, "aten.native_batch_norm"), one(recorded, "aten.relu_")
    assert relu.reads == relu.writes == norm.writes[:1]
    transposed = [o for o in named(recorded, "aten.t") if o.phase == "forward"]
    assert [o.reads for o in transposed] == [o.writes for o in transposed]
    assert transposed[0].reads[0] == one(recorded, "aten.addmm").reads[2]
    buffers = {s.id for s in recorded.storages if s.role == "buffer"}
    assert set(norm.writes[3:]) <= buffers  # running mean and variance, which the schema does not mention
    assert len(norm.writes) == 5


def test_running_statistics_are_not_written_in_evaluation() -> None:
    def make() -> nn.Module:
        model = Small()
        model.bn.eval()
        return model

    assert len(one(fake_trace(parts(make)), "aten.native_batch_norm").writes) == 3


def test_only_references_end_a_storage() -> None:
    """What hangs in a cycle lives on, however often the collector would have run."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        made = torch.ones(11)
        cycle: list[Any] = [made]
        cycle.append(cycle)
        del cycle, made
        if gc.isenabled():  # it might run now
            gc.collect()
        return self.fc(x)

    thresholds = gc.get_threshold()
    gc.set_threshold(1, 1, 1)  # it runs as soon as it may
    try:
        recorded = fake_trace(parts(lambda: Calls(forward, fc=nn.Linear(3, 2)), (2, 3)))
    finally:
        gc.set_threshold(*thresholds)
    (storage,) = (s for s in recorded.storages if s.nbytes == 44)
    assert storage.died_index is None


def test_storages_that_grow_are_counted_at_their_largest() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        grown = torch.empty(0)
        torch.exp(x, out=grown.resize_(2, 5))
        return self.fc(x) + grown.sum()

    build = parts(lambda: Calls(lambda s, x: forward(s, x.detach()), fc=nn.Linear(5, 2)), (2, 5))
    for recorded in (fake_trace(build), real_trace(build)):
        resized = one(recorded, "aten.resize_")
        assert resized.input_shapes == ((0,),)
        assert resized.output_shapes == ((2, 5),)
        (number,) = resized.writes
        assert recorded.storages[number].nbytes == 40
        assert one(recorded, "aten.exp").writes == (number,)
        assert one(recorded, "aten.exp").attributes == {"overload": "out"}


def test_subclasses_show_what_they_hold() -> None:
    """As a DTensor does: the operation is recorded on the tensors inside, twice here, and not on the wrapper."""
    from torch.testing._internal.two_tensor import TwoTensor

    model = nn.Linear(3, 2, bias=False)

    def step(mark: Callable[[str], None]) -> None:
        mark("forward")
        model(TwoTensor(torch.randn(2, 3), torch.randn(2, 3)))
        mark("end")

    recorded = trace_step(step, model=model, steps_before=0)
    assert [o.input_shapes for o in named(recorded, "aten.mm")] == [((2, 3), (3, 2))] * 2


def test_sparse_gradients_have_storages_of_unknown_size() -> None:
    def make() -> nn.Module:
        return Calls(
            lambda s, x: s.fc(s.table(x.long().abs() % 4).mean(1)),
            table=nn.Embedding(4, 3, sparse=True),
            fc=nn.Linear(3, 2),
        )

    built = parts(make, (2, 3), optimizer="sgd-plain")
    recorded = real_trace(built)
    check_laws(recorded)
    assert None in {s.nbytes for s in recorded.storages if s.role == "gradient"}


@pytest.mark.gpu
def test_a_cuda_step_agrees_in_kind_dtype_and_flop() -> None:
    """What is counted on fake CPU tensors is what the device runs, and its backward, on another thread, is linked."""

    def build() -> StepParts:
        model, inputs = Small().cuda(), torch.randn(2, 3, 8, 8, device="cuda")
        target = torch.zeros(2, dtype=torch.long, device="cuda")
        optimizer = OPTIMIZERS["sgd"](model.parameters())
        batches = [Batch((inputs,), target)]
        step = TrainingStep(model, F.cross_entropy, optimizer, batches, "cuda", torch.bfloat16)
        return StepParts(step, model, optimizer, (inputs, target))

    def facts(recorded: Trace) -> list[tuple[Any, ...]]:
        counted = [o for o in recorded.operations if o.kind in ("convolution", "matmul")]
        assert all(o.forward_index is not None for o in counted if o.phase == "backward")
        return sorted((o.kind, o.phase, o.module, o.input_dtypes, total([o]).model_flop) for o in counted)

    fake, real = fake_trace(parts(Small, autocast=torch.bfloat16)), run(build(), None)
    check_laws(real)
    assert real.notes == ("real tensors (cuda:0)",)
    assert facts(fake) == facts(real)
