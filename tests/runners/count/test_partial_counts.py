"""Definition, injected fault: a count of a model with calls that no rule counts has a lower bound and no total."""

import pytest
import torch
from torch import nn

import flopledger
from runners import count as command
from tests.support.fakes.commands import refused, running, telling

NETS = """
import threading

import torch
from torch import nn
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import _disable_current_modes


@torch.library.custom_op("partial::multiplied", mutates_args=())
def multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


multiplied.register_fake(lambda a, b: a.new_empty(a.shape[0], b.shape[1]))
multiplied.register_autograd(
    lambda ctx, g: (g @ ctx.saved_tensors[1].t(), ctx.saved_tensors[0].t() @ g),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class Hiding(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.weight = nn.Linear(8, 8), nn.Parameter(torch.ones(8, 8))

    def forward(self, x):
        return multiplied(self.seen(x), self.weight)


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        h = self.a(x)
        if h.requires_grad:
            h.register_hook(lambda g: g @ torch.ones(8, 8))
        return self.b(h)


def hiding():
    return Hiding(), torch.ones(4, 8)


def hooked():
    return Hooked(), torch.ones(4, 8)


class ModuleHooked(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(8, 8), nn.Linear(8, 8))
        self[1].register_full_backward_hook(lambda module, asked, given: (asked[0] @ torch.ones(8, 8),))


def module_hooked():
    return ModuleHooked(), torch.ones(4, 8)


def weight_hooked():
    layer = nn.Linear(8, 8, bias=False)
    layer.weight.register_hook(lambda g: g @ torch.ones(8, 8))
    return layer, torch.ones(4, 8)


class SavedHooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8, bias=False)

    def forward(self, x):
        unpack = lambda saved: saved @ torch.ones(8, 8) if saved.shape == (4, 8) else saved
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved, unpack):
            return self.a(x)


def saved_hooked():
    return SavedHooked(), torch.ones(4, 8)


class Threaded(nn.Sequential):
    def forward(self, x):
        made = []
        thread = threading.Thread(target=lambda: made.append(self[0](x)))
        thread.start()
        thread.join()
        return self[1](made[0])


def threaded():
    return Threaded(nn.Linear(8, 8), nn.Linear(8, 8)), torch.ones(4, 8)


class Array(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return torch.from_numpy(x.detach().numpy() @ w.detach().numpy())

    @staticmethod
    def backward(ctx, g):
        x, w = (saved.detach().numpy() for saved in ctx.saved_tensors)
        return torch.from_numpy(g.numpy() @ w.T), torch.from_numpy(x.T @ g.numpy())


class Arrays(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.weight = nn.Linear(8, 8), nn.Parameter(torch.ones(8, 8))

    def forward(self, x):
        return Array.apply(self.a(x), self.weight)


def arrays():
    return Arrays(), torch.ones(4, 8)


class Few(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)
        self.few = torch.eye(4).to_sparse()

    def forward(self, x):
        return torch.sparse.mm(self.few, self.a(x))


def few():
    return Few(), torch.ones(4, 8)


class Switching(nn.Module):
    def __init__(self, context):
        super().__init__()
        self.a, self.b, self.context = nn.Linear(8, 8), nn.Linear(8, 8), context

    def forward(self, x):
        h = self.a(x)
        with self.context():
            return self.b(h)


def without_modes():
    return Switching(_disable_current_modes), torch.ones(4, 8)


def without_dispatch():
    return Switching(no_dispatch), torch.ones(4, 8)


def _without(key):
    return lambda: torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key))


def without_key():
    return Switching(_without(torch._C.DispatchKey.Python)), torch.ones(4, 8)


def without_autocast():
    return Switching(_without(torch._C.DispatchKey.AutocastCPU)), torch.ones(4, 8)


class Unwatched(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        with _disable_current_modes():
            return g @ w.t(), x.t() @ g


class Behind(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.weight = nn.Linear(8, 8), nn.Parameter(torch.ones(8, 8))

    def forward(self, x):
        return Unwatched.apply(self.a(x), self.weight)


def without_modes_backward():
    return Behind(), torch.ones(4, 8)


class Pointing(nn.Sequential):
    def forward(self, x):
        self[0].weight.data_ptr()  # as a kernel of its own would be given
        return self[1](self[0](x))


def pointing():
    return Pointing(nn.Linear(8, 8), nn.Linear(8, 8)), torch.ones(4, 8)


class Deciding(nn.Sequential):
    def forward(self, x):
        h = self[0](x)
        return h if h.sum() > 1e9 else self[1](h)


def deciding():
    return Deciding(nn.Linear(8, 8), nn.Linear(8, 8)), torch.ones(4, 8)


def wanting():
    return nn.Linear(8, 8), torch.ones(4, 8, requires_grad=True)


def jagged():
    return nn.Linear(8, 8), torch.nested.nested_tensor([torch.ones(3, 8), torch.ones(5, 8)], layout=torch.jagged)


def transposing():
    return Transposing(), torch.ones(4, 8)


class Transposing(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x):
        return torch.einsum("ij->ji", self.a(x))


def normalised():
    return nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)), torch.ones(4, 8)
"""

LAYER = 2 * 4 * 8 * 8


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    path = tmp_path_factory.mktemp("partial") / "nets.py"
    path.write_text(NETS)
    return path


def counted(capsys, *arguments):
    assert command.main([*arguments, "--batch-size", "4"]) == 0
    return capsys.readouterr().out


def exact_of(capsys, model, counters="exact", *more):
    return telling(command.main, capsys)(model, "--counters", counters, "--batch-size", 4, *more)


@pytest.mark.parametrize("counters", ["exact", "exact,flop_counter_mode"])
def test_an_input_that_needs_a_gradient_gets_one(capsys, nets, counters):
    found = exact_of(capsys, f"{nets}:wanting", counters)
    assert found["exact"]["backward_flop"] == 2 * LAYER  # of weight and input
    assert all(each["backward_flop"] in (None, 2 * LAYER) for each in found["counters"])


@pytest.mark.parametrize("counters", ["exact", "exact,fvcore"])
def test_products_in_a_hook_on_a_gradient_are_counted(capsys, nets, counters):
    found = exact_of(capsys, f"{nets}:hooked", counters)
    assert found["exact"]["backward_flop"] == 4 * LAYER  # three gradients, and the hook's product


def test_a_nested_input_is_refused_in_one_line(capsys, nets):
    words = "a nested tensor is not counted, because its rows differ in length: give them padded"
    refused(running(command.main, capsys)(f"{nets}:jagged"), words)


@pytest.mark.parametrize("counters", ["exact", "exact,fvcore"])
def test_a_pass_with_an_unknown_call_has_no_total(capsys, nets, counters):
    """One layer is known, 8 × 8; of the unknown product the two gradients are products that are known."""
    exact = exact_of(capsys, f"{nets}:hiding", counters)["exact"]
    assert (exact["forward_flop"], exact["backward_flop"], exact["unknown_time_ratio"]) == (None, 3 * LAYER, None)
    assert exact["at_least_flop"]["forward"] == LAYER
    assert (exact["unknown_calls"]["forward"], exact["unknown_calls"]["backward"]) == (1, 0)


@pytest.mark.parametrize(
    ("model", "forward", "backward", "unknown"),
    [
        ("threaded", None, 3 * LAYER, "threading.Thread"),  # autograd runs on the thread that is watched
        ("arrays", None, None, "torch.Tensor.numpy"),
        # weights' gradients, and one of an input
        ("without_modes", None, 3 * LAYER, "torch.utils._python_dispatch._disable_current_modes"),
        ("without_dispatch", None, 3 * LAYER, "torch._C._DisableTorchDispatch"),
        ("without_key", None, 3 * LAYER, "torch._C._ExcludeDispatchKeyGuard"),
        ("without_modes_backward", 2 * LAYER, None, "torch.utils._python_dispatch._disable_current_modes"),
        ("pointing", None, 3 * LAYER, "torch.Tensor.data_ptr"),
    ],
)
def test_work_that_is_not_shown_leaves_no_total(capsys, nets, model, forward, backward, unknown):
    found = exact_of(capsys, f"{nets}:{model}")
    exact = found["exact"]
    assert (exact["forward_flop"], exact["backward_flop"]) == (forward, backward)
    assert exact["at_least_flop"]["forward"] >= LAYER
    assert exact["at_least_flop"]["backward"] >= LAYER
    assert unknown in found["exact"]["not_understood"]
    for phase, total in (("forward", forward), ("backward", backward)):
        other = exact["other_flop"][phase]
        assert (other is None) == (total is None)  # nor is the arithmetic of what is not shown known


def test_an_evaluation_has_no_optimizers_step(capsys, nets):
    """Its course depends on values, so that no training step is traced: the optimizer's arithmetic is not known."""
    exact = exact_of(capsys, f"{nets}:deciding", "exact,fvcore")["exact"]
    assert (exact["optimizer_flop"], exact["other_flop"]["optimizer"]) == (None, None)
    trained = exact_of(capsys, f"{nets}:hiding")["exact"]
    assert (trained["optimizer_flop"], trained["other_flop"]["optimizer"] > 0) == (0, True)


def test_a_triton_kernel_is_noticed(monkeypatch):
    """No device here runs one: the launch is answered by a stand-in."""
    jit = pytest.importorskip("triton.runtime.jit")
    monkeypatch.setattr(jit.JITFunction, "run", lambda self, *args, **kwargs: None)
    kernel = object.__new__(jit.JITFunction)

    class Launching(nn.Linear):
        def forward(self, x):
            kernel.run(x, grid=(1,), warmup=False)
            return super().forward(x)

    found = flopledger.count(Launching(8, 8), torch.ones(4, 8))
    assert (found.forward_flop, found.at_least_flop["forward"]) == (None, LAYER)
    assert dict(found.not_understood) == {"triton.JITFunction": 1}


def test_what_is_derived_of_a_partial_count_is_unknown(capsys, nets):
    forward = counted(capsys, f"{nets}:hiding", "--counters", "exact,fvcore", "--format", "csv").splitlines()
    header = forward[0].split(",")
    ours = dict(zip(header, forward[1].split(","), strict=False))
    assert (ours["flop"], ours["exact_flop"], ours["flop_ratio"], ours["unexplained_flop"]) == ("", "", "", "")


@pytest.mark.parametrize("model", ["transposing", "normalised"])
def test_every_flop_of_fvcore_and_pthflops_is_explained(capsys, nets, model):
    found = exact_of(capsys, f"{nets}:{model}", "fvcore,pthflops,ptflops,thop")
    assert {each["counter"]: each["unexplained_flop"] for each in found["counters"] if each["status"] == "ok"} == {
        "fvcore": 0, "ptflops": 0, "pthflops": 0, "thop": 0
    }  # fmt: skip
