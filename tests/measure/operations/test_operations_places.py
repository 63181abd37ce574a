"""Definition, injected fault: module, forward call and phase of each operation; a fault leaves nothing behind."""

import gc
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules import module as module_hooks
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint

from measure.model.module_paths import Links
from measure.operations.fake_mode import fake_mode
from results.records.counts import Operation
from tests.support.nets.small_steps import (
    Calls,
    at_work,
    check_laws,
    fake_trace,
    named,
    one,
    parts,
    real_trace,
    run,
)


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
        return recorded.operations[o.forward_index].name

    doubled, tripled = (o for o in named(recorded, "aten.mul", "backward") if o.attributes.get("other") in (2, 3))
    if doubled.attributes["other"] == 3:
        doubled, tripled = tripled, doubled
    assert origin(doubled) == "aten.add"
    assert origin(tripled) == "aten.mul_"
    exponent = next(o for o in named(recorded, "aten.mul", "backward") if len(o.reads) == 2)
    assert origin(exponent) == "aten.exp"


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


def test_nodes_of_another_thread_are_kept_apart() -> None:
    """On CUDA a reentrant recomputation makes its nodes on autograd's thread, whose numbers start again."""
    links = Links()
    x = torch.ones(1, requires_grad=True)
    y = x * 2
    assert links.node_number(5, True) == 0
    assert links.node_number(6, True) is None
    (here,) = (y.grad_fn,)
    assert links.follow(here) == (0, 5)
    found: list[Any] = []

    def elsewhere() -> None:
        node = (x * 3).grad_fn
        found.append(links.node_number(9, True))
        found.append(links.follow(SimpleNamespace(_sequence_nr=node._sequence_nr)))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found[0] == 0
    assert links.follow(here) == (0, 5)
