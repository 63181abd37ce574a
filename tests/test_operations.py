"""The tracer on small nets: tables and lifetimes derived by hand, conservation, sharing, checkpointing, faults."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint

from analysis.kinds import total
from measure.fake import FakeMode, fake_mode, to_fake
from measure.operations import StepParts, Trace, clear_cache, trace, trace_step
from measure.places import Links
from measure.sizes import plain, symbol
from results.errors import Unavailable
from results.records import Operation, Storage
from workloads.base import Batch
from workloads.training import OPTIMIZERS, TrainingStep

Build = Callable[[FakeMode | None], StepParts]


class Small(nn.Module):
    """Convolution, normalisation, activation in place, linear layer: (2, 3, 8, 8) → (2, 4, 6, 6) → (2, 2)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.act = nn.ReLU(inplace=True)
        self.fc = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.act(self.bn(self.conv(x))).mean((2, 3)))


class Calls(nn.Module):
    """A module around a function of itself and its input."""

    def __init__(self, forward: Callable[[Any, torch.Tensor], torch.Tensor], **children: nn.Module) -> None:
        super().__init__()
        self.function = forward
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def parts(
    make: Callable[[], nn.Module],
    shape: tuple[int, ...] = (2, 3, 8, 8),
    optimizer: str = "sgd",
    autocast: torch.dtype | None = None,
) -> Build:
    """How to build a training step of a small net with two classes, on fake or real tensors."""

    def build(mode: FakeMode | None) -> StepParts:
        torch.manual_seed(0)
        model, inputs, target = make(), torch.randn(shape), torch.zeros(shape[0], dtype=torch.long)
        if mode is not None:
            to_fake(model, mode)
            inputs, target = to_fake((inputs, target), mode)
        chosen = OPTIMIZERS[optimizer](model.parameters())
        scaler = torch.amp.GradScaler("cpu") if autocast is torch.float16 else None
        step = TrainingStep(model, F.cross_entropy, chosen, [Batch((inputs,), target)], "cpu", autocast, scaler)
        return StepParts(step, model, chosen, (inputs, target))

    return build


def run(built: StepParts, mode: FakeMode | None, steps_before: int = 1) -> Trace:
    return trace_step(
        built.step,
        model=built.model,
        optimizer=built.optimizer,
        inputs=built.inputs,
        mode=mode,
        steps_before=steps_before,
    )


def fake_trace(build: Build) -> Trace:
    mode = fake_mode()
    return run(build(mode), mode)


def real_trace(build: Build) -> Trace:
    return run(build(None), None)


def named(recorded: Trace, name: str, phase: str | None = None) -> list[Operation]:
    return [o for o in recorded.operations if o.name == name and phase in (None, o.phase)]


def one(recorded: Trace, name: str, phase: str | None = None) -> Operation:
    (found,) = named(recorded, name, phase)
    return found


def at_work(recorded: Trace) -> list[Operation]:
    """The operations that are not views: how many views autograd takes differs between versions of torch."""
    return [o for o in recorded.operations if o.kind != "view"]


def live_bytes(storages: Iterable[Storage], index: int) -> int:
    """Bytes that exist while operation `index` runs."""
    return sum(s.nbytes for s in storages if s.born_index <= index and (s.died_index is None or s.died_index >= index))


def check_laws(recorded: Trace) -> None:
    """What holds of every trace."""
    storages = {s.id: s for s in recorded.storages}
    assert sorted(storages) == list(range(len(storages)))
    assert [o.index for o in recorded.operations] == list(range(len(recorded.operations)))
    for o in recorded.operations:
        assert len(o.reads) == len(o.input_names) == len(o.input_shapes) == len(o.input_dtypes)
        assert len(o.output_shapes) == len(o.output_dtypes)
        assert len(set(o.writes)) == len(o.writes)
        for read in o.reads:
            assert storages[read].born_index < o.index
        for used in (*o.reads, *o.writes):
            died = storages[used].died_index
            assert storages[used].born_index <= o.index
            assert died is None or died >= o.index
        if o.forward_index is not None:
            assert o.forward_index < o.index
            origin = recorded.operations[o.forward_index]
            assert origin.forward_index is None
            assert origin.module == o.module
            assert o.sequence_nr is not None
            # More where one operation made two nodes (CopySlices); none where autograd did not see the operation.
            assert origin.sequence_nr is None or origin.sequence_nr <= o.sequence_nr


def without_workspace(o: Operation) -> tuple[Any, ...]:
    """Shapes of inputs and outputs. A fake recurrent layer's workspace is empty: its size is the kernel's secret."""
    inputs = [s for s, name in zip(o.input_shapes, o.input_names, strict=True) if name != "workspace"]
    return inputs, [s for s, dtype in zip(o.output_shapes, o.output_dtypes, strict=True) if dtype != "uint8"]


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


def test_shapes_dtypes_names_and_attributes() -> None:
    recorded = fake_trace(parts(Small))
    conv = one(recorded, "aten.convolution")
    assert dict(zip(conv.input_names, conv.input_shapes, strict=True)) == {
        "input": (2, 3, 8, 8),
        "weight": (4, 3, 3, 3),
    }
    assert (conv.output_shapes, conv.output_dtypes) == (((2, 4, 6, 6),), ("float32",))
    assert conv.kind == "convolution"
    assert conv.attributes == {
        "stride": [1, 1],
        "padding": [0, 0],
        "dilation": [1, 1],
        "transposed": False,
        "output_padding": [0, 0],
        "groups": 1,
    }
    back = one(recorded, "aten.convolution_backward")
    assert back.attributes["output_mask"] == [False, True, False]  # the images need no gradient, there is no bias
    assert back.output_shapes == ((4, 3, 3, 3),)
    nll = one(recorded, "aten.nll_loss_forward")
    assert nll.input_names == ("self", "target")  # the weight of the classes is None, and so absent
    assert nll.input_dtypes == ("float32", "int64")
    assert nll.attributes == {"reduction": 1, "ignore_index": -100}
    mean = one(recorded, "aten.mean")
    assert mean.attributes == {"dim": [2, 3], "keepdim": False, "overload": "dim"}  # dtype is left out
    assert one(recorded, "aten.addmm").attributes == {"beta": 1, "alpha": 1}  # defaults, which a formula may need
    decay = named(recorded, "aten.mul_", "optimizer")[0]
    assert decay.attributes == {"other": 0.9}  # a number where the schema takes a tensor


def test_tensors_in_lists_are_numbered() -> None:
    def forward(_self: Any, x: torch.Tensor) -> torch.Tensor:
        rows = torch.tensor([0, 1])
        return torch.cat([x, x * 2], dim=1)[:, rows]

    recorded = fake_trace(parts(lambda: Calls(lambda s, x: forward(s, s.fc(x)), fc=nn.Linear(3, 2)), (2, 3)))
    cat, index = one(recorded, "aten.cat"), one(recorded, "aten.index")
    assert cat.input_names == ("tensors[0]", "tensors[1]")
    assert cat.attributes == {"dim": 1}
    assert index.input_names == ("self", "indices[1]")  # indices[0] is None
    assert index.input_shapes == ((2, 4), (2,))
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


def product(rate: float = 0.1) -> tuple[FakeMode, StepParts]:
    """relu(x · W), summed: x (2, 4), W (4, 3), plain SGD."""
    mode = fake_mode()

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x @ self.weight)

    model = to_fake(Product(), mode)
    x = to_fake(torch.randn(2, 4), mode)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)

    def step(mark: Callable[[str], None]) -> None:
        optimizer.zero_grad()
        mark("forward")
        loss = model(x).sum()
        mark("backward")
        loss.backward()
        mark("optimizer")
        optimizer.step()
        mark("end")

    return mode, StepParts(step, model, optimizer, x)


def test_liveness_by_hand() -> None:
    """W 48 and x 32 bytes always; loss L 4, its gradient G 4 until backward ends; products of 2 · 3 elements 24."""
    mode, built = product()
    recorded = run(built, mode)
    work = {o.name: live_bytes(recorded.storages, o.index) for o in at_work(recorded)}
    assert work == {
        "aten.mm": 80 + 4 + 4 + 24 + 48,  # backward (the later of two): L, G, gradient of the product, gradient of W
        "aten.relu": 80 + 24 + 24,
        "aten.sum": 80 + 24 + 4,  # the product is gone: relu keeps its result
        "aten.ones_like": 80 + 24 + 4 + 4,
        "aten.threshold_backward": 80 + 24 + 4 + 4 + 24,
        "aten.add_": 80 + 4 + 48,  # L, and the gradient of W
    }
    assert live_bytes(recorded.storages, named(recorded, "aten.mm")[0].index) == 80 + 24
    assert max(live_bytes(recorded.storages, o.index) for o in recorded.operations) == 160


def test_first_step_makes_its_optimizer_state() -> None:
    mode = fake_mode()
    recorded = run(parts(Small)(mode), mode, steps_before=0)
    state = [s for s in recorded.storages if s.role == "optimizer_state"]
    assert [s.nbytes for s in state] == [432, 16, 16, 32, 8]
    assert all(s.born_index >= 0 and s.died_index is None for s in state)
    assert not [s for s in recorded.storages if s.role == "gradient" and s.born_index < 0]


NETS: dict[str, Build] = {
    "small": parts(Small),
    "small, adamw": parts(Small, optimizer="adamw"),
    "small, bf16": parts(Small, autocast=torch.bfloat16),
    "transformer": parts(
        lambda: nn.Sequential(
            nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True), nn.Flatten(), nn.Linear(32, 2)
        ),
        (2, 4, 8),
    ),
    "lstm": parts(
        lambda: Calls(lambda s, x: s.fc(s.rnn(x)[0][:, -1]), rnn=nn.LSTM(8, 4), fc=nn.Linear(4, 2)), (2, 4, 8)
    ),
    "grouped": parts(
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, groups=2, stride=2),
            nn.GroupNorm(2, 8),
            nn.GELU(),
            nn.ConvTranspose2d(8, 4, 3),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16, 2),
        ),
        (2, 4, 8, 8),
    ),
}


@pytest.mark.parametrize("net", NETS)
def test_laws_and_repetition(net: str) -> None:
    first = fake_trace(NETS[net])
    check_laws(first)
    assert first.notes == ()
    clear_cache()
    assert fake_trace(NETS[net]) == first


@pytest.mark.parametrize("net", NETS)
def test_shortcuts_change_nothing(net: str) -> None:
    mode = fake_mode()
    mode.shortcuts = False
    clear_cache()
    assert run(NETS[net](mode), mode) == fake_trace(NETS[net])


@pytest.mark.parametrize("net", NETS)
def test_fake_and_real_tensors_agree(net: str) -> None:
    fake, real = fake_trace(NETS[net]), real_trace(NETS[net])
    check_laws(real)
    assert real.notes == ("real tensors (cpu)",)

    def facts(recorded: Trace) -> list[tuple[Any, ...]]:
        return [(o.name, o.kind, o.phase, o.module, *without_workspace(o), o.attributes) for o in at_work(recorded)]

    def units(recorded: Trace) -> list[tuple[str, ...]]:
        # Not normalisation: under autocast torch's rule for fake tensors gives saved statistics the dtype of the data.
        counted = ("convolution", "matmul", "attention", "recurrent")
        return [(*o.input_dtypes, *o.output_dtypes) for o in recorded.operations if o.kind in counted]

    assert facts(fake) == facts(real)
    assert units(fake) == units(real)
    assert total(fake.operations).model_flop == total(real.operations).model_flop > 0


def test_autocast_casts_fake_tensors() -> None:
    recorded = fake_trace(parts(Small, autocast=torch.bfloat16))
    conv = one(recorded, "aten.convolution")
    assert conv.input_dtypes == ("bfloat16", "bfloat16")
    assert one(recorded, "aten.convolution_backward").input_dtypes == ("bfloat16",) * 3
    assert {o.input_dtypes[0] for o in named(recorded, "aten.add_", "optimizer")} == {"float32"}


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_gradient_scaling_takes_a_good_step(optimizer: str) -> None:
    recorded = fake_trace(parts(Small, optimizer=optimizer, autocast=torch.float16))
    check_laws(recorded)
    assert recorded.notes == ("scalars read in the optimizer were taken to be 0",)
    assert one(recorded, "aten.convolution").input_dtypes == ("float16", "float16")
    unscale = one(recorded, "aten._amp_foreach_non_finite_check_and_unscale_")
    assert unscale.input_names[:5] == tuple(f"self[{i}]" for i in range(5))
    assert set(unscale.reads[:5]) == {s.id for s in recorded.storages if s.role == "gradient" and s.born_index >= 0}
    assert set(unscale.reads[:6]) == set(unscale.writes)  # the gradients and found_inf, not the scale
    updates = "aten.addcdiv_" if optimizer == "adam" else "aten.mul_"
    assert len(named(recorded, updates, "optimizer")) >= 5  # the parameters were updated
    one(recorded, "aten._amp_update_scale_")


def test_notes_are_those_of_one_trace() -> None:
    mode = fake_mode()
    assert run(parts(Small, autocast=torch.float16)(mode), mode).notes
    assert run(parts(Small)(mode), mode).notes == ()


def test_shared_modules_have_the_path_of_their_call() -> None:
    act, fc = nn.ReLU(), nn.Linear(3, 3)

    def make() -> nn.Module:
        first = Calls(lambda s, x: s.act(s.fc(x)), fc=fc, act=act)
        second = Calls(lambda s, x: s.act(s.fc(x)), fc=fc, act=act)
        return Calls(lambda s, x: s.b(s.a(x)), a=first, b=second)

    recorded = fake_trace(parts(make, (2, 3)))
    assert [o.module for o in named(recorded, "aten.relu")] == ["a.act", "b.act"]
    assert [o.module for o in named(recorded, "aten.threshold_backward")] == ["b.act", "a.act"]
    assert [o.module for o in named(recorded, "aten.addmm")] == ["a.fc", "b.fc"]
    assert len([s for s in recorded.storages if s.role == "weight"]) == 2  # one weight, one bias
    assert len([o for o in at_work(recorded) if o.name in ("aten.add", "aten.add_") and o.phase == "backward"]) == 2


def test_module_outside_the_model_belongs_to_its_caller() -> None:
    stranger = nn.Linear(3, 2)

    def make() -> nn.Module:
        inner = Calls(lambda s, x: hidden[0](s.fc(x)), fc=nn.Linear(3, 3))
        return Calls(lambda s, x: s.inner(x), inner=inner)

    hidden: list[nn.Module] = []
    mode = fake_mode()
    hidden.append(to_fake(stranger, mode))
    recorded = run(parts(make, (2, 3))(mode), mode)
    assert [o.module for o in named(recorded, "aten.addmm")] == ["inner.fc", "inner"]


@pytest.mark.parametrize("fake", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("functional", [True, False])
def test_recomputation_has_a_phase_of_its_own(fake: bool, reentrant: bool, functional: bool) -> None:
    def block(self: Any, x: torch.Tensor) -> torch.Tensor:
        if functional:
            return F.linear(F.relu(F.linear(x, self.block[0].weight)), self.block[2].weight)
        return self.block(x)

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(lambda y: block(self, y), self.first(x), use_reentrant=reentrant))

    def make() -> nn.Module:
        layers = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 4, bias=False))
        return Calls(forward, first=nn.Linear(4, 4), block=layers, last=nn.Linear(4, 2))

    recorded = (fake_trace if fake else real_trace)(parts(make, (2, 4)))
    check_laws(recorded)
    again = [(o.name, o.module) for o in at_work(recorded) if o.phase == "recompute"]
    inside = ["", "", ""] if functional else ["block.0", "block.1", "block.2"]
    expected = list(zip(["aten.mm", "aten.relu", "aten.mm"], inside, strict=True))
    if not reentrant:  # stops as soon as it has what was not kept: the last product's result is not needed
        expected = expected[:2]
    assert again == expected
    products = [o for o in recorded.operations if o.kind == "matmul" and o.phase == "backward"]
    assert len(products) == 2 * 4 - 1  # two for each of four layers; the images need no gradient
    assert all(o.forward_index is not None for o in products)
    relu = one(recorded, "aten.threshold_backward")
    assert recorded.operations[relu.forward_index or 0].name == "aten.relu"
    # What is recomputed is no activation: its memory is taken in the backward pass.
    kept = {s.id for s in recorded.storages if s.role == "activation"}
    assert kept.isdisjoint(w for o in named(recorded, "aten.relu") for w in o.writes)


def test_custom_functions_and_writes_to_views_are_linked() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(2, 2).add(x, alpha=2)  # the first operation is not the one that autograd sees

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        x = Double.apply(self.fc(x))
        x[:, 0].mul_(3)  # CopySlices: a node that is made after the operation returned
        x.detach()
        return x.exp()

    recorded = fake_trace(parts(lambda: Calls(forward, fc=nn.Linear(3, 2)), (2, 3)))
    check_laws(recorded)

    def origin(o: Operation) -> str:
        assert o.forward_index is not None
        return recorded.operations[o.forward_index].name

    doubled, tripled = (o for o in named(recorded, "aten.mul", "backward") if o.attributes.get("other") in (2, 3))
    if doubled.attributes["other"] == 3:
        doubled, tripled = tripled, doubled
    assert origin(doubled) == "aten.add"
    assert origin(tripled) == "aten.mul_"
    exponent = next(o for o in named(recorded, "aten.mul", "backward") if len(o.reads) == 2)
    assert origin(exponent) == "aten.exp"


def test_functions_that_begin_with_a_detached_tensor_are_linked() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.detach() * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * 2

    def make() -> nn.Module:
        double = Calls(lambda _self, x: Double.apply(x))
        return Calls(
            lambda s, x: s.last(s.doubling(s.first(x))), first=nn.Linear(3, 3), doubling=double, last=nn.Linear(3, 2)
        )

    recorded = fake_trace(parts(make, (2, 3)))
    check_laws(recorded)
    doubled = next(o for o in named(recorded, "aten.mul", "backward") if o.attributes.get("other") == 2)
    assert doubled.module == "doubling"
    assert [o.module for o in named(recorded, "aten.mm", "backward")] == ["last"] * 2 + ["first"]


def test_what_saves_a_tensor_does_not_take_its_node() -> None:
    """A hook for saved tensors runs when the node is there and its operation has not run yet."""

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach(), lambda t: t):
            return self.fc(self.first(x))

    recorded = fake_trace(parts(lambda: Calls(forward, first=nn.Linear(3, 3), fc=nn.Linear(3, 2)), (2, 3)))
    check_laws(recorded)
    for product in named(recorded, "aten.mm", "backward"):
        assert recorded.operations[product.forward_index or 0].name == "aten.addmm"


def test_gradients_are_attributed_to_the_module_of_their_parameter() -> None:
    recorded = fake_trace(parts(Small))
    accumulated = [o for o in recorded.operations if o.phase == "backward" and o.sequence_nr is None][1:]
    assert [o.module for o in accumulated] == ["fc", "fc", "bn", "bn", "conv"]
    assert all(o.forward_index is None for o in accumulated)


def test_nodes_of_another_thread_are_kept_apart() -> None:
    """On CUDA a reentrant recomputation makes its nodes on autograd's thread, whose numbers start again."""

    class Node:
        def __init__(self, number: int) -> None:
            self.number = number

        def _sequence_nr(self) -> int:
            return self.number

    links = Links()
    x = torch.ones(1, requires_grad=True)
    y = x * 2
    assert links.made(5, True) == 0
    assert links.made(6, True) is None
    (here,) = (y.grad_fn,)
    assert links.follow(here) == (0, 5)
    found: list[Any] = []

    def elsewhere() -> None:
        node = (x * 3).grad_fn
        found.append(links.made(9, True))
        found.append(links.follow(Node(node._sequence_nr())))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found[0] == 0
    assert links.follow(here) == (0, 5)


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 2)
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls == 2:
            raise ArithmeticError("inside the model")
        return self.fc(x)


@pytest.mark.parametrize("fake", [True, False])
def test_an_exception_leaves_nothing_behind(fake: bool) -> None:
    mode = fake_mode() if fake else None
    built = parts(lambda: nn.Sequential(Failing()), (2, 3))(mode)
    with pytest.raises(ArithmeticError, match="inside the model"):
        run(built, mode)
    assert not module_hooks._global_forward_hooks
    assert not module_hooks._global_forward_pre_hooks
    assert not module_hooks._global_forward_hooks_always_called
    assert not _get_current_dispatch_mode_stack()
    assert gc.isenabled()
    assert mode is None or mode._watcher is None
    recorded = run(built, mode, steps_before=0)  # the same objects again, the third call
    assert one(recorded, "aten.addmm").module == "0.fc"
    check_laws(recorded)


def test_data_dependent_operations_fall_back_to_real_tensors() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        chosen = x[torch.nonzero(x.sum(1) > -1e9).flatten()]
        return self.fc(chosen)

    build = parts(lambda: Calls(forward, fc=nn.Linear(3, 2)), (2, 3))
    with pytest.raises(Unavailable, match=r"fake tensors cannot run aten\.nonzero"):
        fake_trace(build)
    recorded = trace(build)
    check_laws(recorded)
    assert recorded.notes == ("fake tensors cannot run aten.nonzero.default", "real tensors (cpu)")
    assert one(recorded, "aten.nonzero").output_shapes == ((2, 1),)


def test_outputs_that_depend_on_data_are_described_each_time() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        few, many = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1])
        return self.fc(x) + torch.nonzero(few).sum() + torch.nonzero(many).sum()

    recorded = real_trace(parts(lambda: Calls(forward, fc=nn.Linear(3, 2)), (2, 3)))
    assert [o.output_shapes for o in named(recorded, "aten.nonzero")] == [((1, 1),), ((2, 1),)]


def test_scalars_are_data_outside_of_the_optimizer() -> None:
    build = parts(lambda: Calls(lambda s, x: s.fc(x) * x.sum().item(), fc=nn.Linear(3, 2)), (2, 3))
    with pytest.raises(Unavailable, match="_local_scalar_dense"):
        fake_trace(build)


def test_a_number_and_its_type_are_kept() -> None:
    recorded = fake_trace(parts(lambda: Calls(lambda s, x: (s.fc(x) + 1) + 1.0, fc=nn.Linear(3, 2)), (2, 3)))
    values = [o.attributes["other"] for o in named(recorded, "aten.add", "forward")]
    assert [(v, type(v)) for v in values] == [(1, int), (1.0, float)]


def test_mistakes_in_place_are_found() -> None:
    build = parts(lambda: Calls(lambda s, x: s.fc(x).add_(torch.ones(7)), fc=nn.Linear(3, 2)), (2, 3))
    with pytest.raises(RuntimeError, match=r"shape|size"):
        run(build(mode := fake_mode()), mode, steps_before=0)


def test_a_role_once_given_stays() -> None:
    """A weight among the inputs is a weight; an input that is not used is there all the same."""
    mode, built = product()
    unused = to_fake(torch.ones(5), mode)
    given = [built.model.weight, {"x": built.inputs, "unused": unused}]
    recorded = run(StepParts(built.step, built.model, built.optimizer, given), mode)
    roles = [(s.role, s.nbytes) for s in recorded.storages if s.born_index < 0 and s.died_index is None]
    assert roles == [("weight", 48), ("input", 32), ("input", 20)]


def test_what_was_made_before_the_forward_pass_is_no_activation() -> None:
    mode, built = product()
    kept: list[torch.Tensor] = []

    def step(mark: Callable[[str], None]) -> None:
        kept[:] = [torch.ones(11)]
        built.step(mark)

    recorded = trace_step(step, model=built.model, optimizer=built.optimizer, inputs=built.inputs, mode=mode)
    (storage,) = (s for s in recorded.storages if s.nbytes == 44 and s.born_index >= 0)
    assert (storage.role, storage.died_index) == ("temporary", None)


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


def test_modules_that_a_backward_pass_calls_are_recomputation() -> None:
    """Checkpointing of one's own: the block runs without graph, and again, with one, when its gradient is due."""

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, block: nn.Module) -> torch.Tensor:
            ctx.save_for_backward(x)
            ctx.block = block
            return block(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, None]:
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                out = ctx.block(x)
            torch.autograd.backward(out, gradient)
            return x.grad, None

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return Again.apply(self.first(x), self.block)

    recorded = fake_trace(parts(lambda: Calls(forward, first=nn.Linear(3, 3), block=nn.Linear(3, 2)), (2, 3)))
    check_laws(recorded)
    assert [(o.phase, o.module) for o in named(recorded, "aten.addmm")] == [
        ("forward", "first"),
        ("forward", "block"),
        ("recompute", "block"),
    ]
    assert [o.module for o in named(recorded, "aten.mm", "backward")] == ["block"] * 2 + ["first"]


def test_a_step_may_run_inside_a_module() -> None:
    mode, built = product()
    outer = Calls(lambda _self, mark: built.step(mark))
    recorded = trace_step(outer, model=built.model, optimizer=built.optimizer, inputs=built.inputs, mode=mode)
    assert recorded == run(built, mode)
    assert "recompute" not in {o.phase for o in recorded.operations}


def test_sizes_are_sympys_own() -> None:
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    size = symbol(ShapeEnv(), "n", 37)
    n = sympy.Symbol("n", integer=True, positive=True)
    for theirs, ours in (
        (size, n),
        (size * 3 + 1, 3 * n + 1),
        (size // 4, sympy.floor(n / 4)),
        (size % 5, sympy.Mod(n, 5)),
        (torch.sym_max(size, 8), sympy.Max(n, 8)),
    ):
        assert plain(theirs) == ours
    assert plain((size, 2)) == (n, 2)
    assert type(plain(size - size)) is int


def test_real_constants_may_meet_fake_tensors() -> None:
    constant = torch.ones(2)  # outside of the model, as a table that a function closes over
    recorded = fake_trace(parts(lambda: Calls(lambda s, x: s.fc(x) + constant, fc=nn.Linear(3, 2)), (2, 3)))
    check_laws(recorded)
    added = one(recorded, "aten.add", "forward")
    assert added.input_shapes == ((2, 2), (2,))
    storage = recorded.storages[added.reads[1]]
    assert (storage.nbytes, storage.role, storage.born_index, storage.died_index) == (8, "input", -1, None)


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


def test_ctc_loss_is_not_computed_on_fake_tensors() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        logits = self.fc(x).log_softmax(2)
        lengths = torch.full((2,), 4), torch.full((2,), 2)
        return F.ctc_loss(logits, torch.ones(2, 2, dtype=torch.long), *lengths).expand(2, 2)

    with pytest.raises(Unavailable):
        fake_trace(parts(lambda: Calls(forward, fc=nn.Linear(3, 5)), (4, 2, 3)))


def test_a_step_must_announce_known_phases() -> None:
    mode, built = product()

    def silent(_mark: Callable[[str], None]) -> None:
        built.model(built.inputs)

    def mistaken(mark: Callable[[str], None]) -> None:
        mark("foward")

    with pytest.raises(ValueError, match="announced no phase"):
        trace_step(silent, model=built.model, mode=mode)
    with pytest.raises(ValueError, match=r"expected a phase .* got 'foward'"):
        trace_step(mistaken, model=built.model, mode=mode, steps_before=0)


def test_nothing_is_recorded_after_the_end() -> None:
    mode, built = product()

    def step(mark: Callable[[str], None]) -> None:
        built.step(mark)
        built.inputs.exp()

    recorded = trace_step(step, model=built.model, optimizer=built.optimizer, inputs=built.inputs, mode=mode)
    assert not named(recorded, "aten.exp")
    assert recorded == run(built, mode)


def test_default_dtype_is_part_of_what_is_remembered() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) + (torch.ones(2, dtype=torch.long) * 0.5).sum()

    build = parts(lambda: Calls(forward, fc=nn.Linear(3, 2)), (2, 3))
    assert one(fake_trace(build), "aten.mul", "forward").output_dtypes == ("float32",)
    torch.set_default_dtype(torch.float64)
    try:
        assert one(fake_trace(build), "aten.mul", "forward").output_dtypes == ("float64",)
    finally:
        torch.set_default_dtype(torch.float32)


def test_symbolic_batch() -> None:
    """The count at a symbol, with a number in its place, is the count at that number."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    env = ShapeEnv()
    mode = fake_mode(env)
    batch = symbol(env, "batch", 37)
    built = parts(Small)(mode)
    with mode:
        inputs, target = torch.randn(batch, 3, 8, 8), torch.zeros(batch, dtype=torch.long)
    built.step.batches = iter([Batch((inputs,), target)] * 2)
    recorded = run(StepParts(built.step, built.model, built.optimizer, (inputs, target)), mode)
    assert recorded.notes == ()
    conv = one(recorded, "aten.convolution")
    assert str(conv.output_shapes) == "((batch, 4, 6, 6),)"
    (symbol_used,) = conv.output_shapes[0][0].free_symbols
    convolved = next(s for s in recorded.storages if s.id == conv.writes[0])
    assert convolved.nbytes == symbol_used * 4 * 6 * 6 * 4
    counted = total(recorded.operations)
    for size in (2, 5):
        numeric = total(fake_trace(parts(Small, (size, 3, 8, 8))).operations)
        assert counted.model_flop.subs(symbol_used, size) == numeric.model_flop
        assert counted.read_bytes.subs(symbol_used, size) == numeric.read_bytes


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


def test_to_fake_keeps_what_a_module_is() -> None:
    mode = fake_mode()
    with torch.device("meta"):
        shared = nn.Linear(4, 4, dtype=torch.float64)
        model = nn.Sequential(shared, nn.BatchNorm1d(4), shared, nn.Conv2d(3, 2, 3), nn.Linear(4, 4))
    model[4].weight = shared.weight
    model[3].weight.requires_grad_(False)
    model[3].to(memory_format=torch.channels_last)
    model[1].extra = [torch.ones(2), 7]
    weight = model[0].weight
    faked = to_fake(model, mode)
    assert faked is model
    assert model[0].weight is model[2].weight is model[4].weight is not weight
    assert isinstance(model[0].weight, nn.Parameter)
    assert (model[0].weight.dtype, model[0].weight.device.type) == (torch.float64, "cpu")
    assert model[1].running_mean in set(model.buffers())
    assert not model[3].weight.requires_grad
    assert model[3].weight.is_contiguous(memory_format=torch.channels_last)
    assert model[1].extra[1] == 7
    every = [*model.parameters(), *model.buffers(), model[1].extra[0]]
    assert all(type(t).__name__ == "FakeTensor" and t.fake_mode is mode for t in every)
    rnn = to_fake(nn.LSTM(2, 3), mode)
    assert all(a is b for a, b in zip(rnn._flat_weights, rnn.parameters(), strict=True))


@pytest.mark.gpu
def test_a_cuda_step_agrees_in_kind_dtype_and_flop() -> None:
    """What is counted on fake CPU tensors is what the device runs, and its backward, on another thread, is linked."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")

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
