"""Faults of PyTorch's FlopCounterMode. A correct drop-in is
`measure.counters.harness.corrected.flop_counter_mode()`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.catalogue import Fault, put_to
from measure.counters.faults.reproductions import calls
from measure.counters.faults.reproductions.nets import TOKENS, Parent, frozen_attention


def _flop(call: Callable[[], Any]) -> int:
    """What the mode counts while `call` runs."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    total: int = counter.get_total_flops()
    return total


def _step(model: nn.Module, *shape: int) -> int:
    """Forward and backward on an input that needs a gradient."""
    x = torch.ones(*shape, requires_grad=True)
    return _flop(lambda: model(x).sum().backward())


def _gradient_of_weight(convolution: nn.Module, *shape: int) -> int:
    """The backward pass alone, for the weights alone."""
    out = convolution(torch.ones(*shape)).sum()
    return _flop(out.backward)


def depthwise_backward() -> int:
    """The gradient of a depthwise convolution's weight is multiplied by the number of groups.

    64 → 64, 3 × 3, 64 groups on 16 × 16: 64 · 256 · 9 = 147,456 multiply-adds in each of three passes."""
    return _step(nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False), 1, 64, 16, 16)


def grouped_backward() -> int:
    """The gradient of a grouped convolution's weight is multiplied by the number of groups.

    8 → 8, 3 × 3, 4 groups on 6 × 6: 8 · 36 · 2 · 9 = 5,184 multiply-adds in each of three passes."""
    return _step(nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False), 1, 8, 6, 6)


def grouped_1d_backward() -> int:
    """The gradient of a grouped convolution's weight is multiplied by the groups in one dimension, too.

    8 → 8, 3 taps, 4 groups, 6 positions: 8 · 6 · 2 · 3 = 288 multiply-adds in each of three passes."""
    return _step(nn.Conv1d(8, 8, 3, padding=1, groups=4, bias=False), 1, 8, 6)


def grouped_weight_alone() -> int:
    """The gradient of a grouped convolution's weight alone, nothing else asked for, is multiplied by the groups.

    8 · 36 · 2 · 9 = 5,184 multiply-adds."""
    return _gradient_of_weight(nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False), 1, 8, 6, 6)


def grouped_transposed_backward() -> int:
    """The gradient of a grouped transposed convolution's weight is multiplied by the groups.

    8 → 8, 3 × 3, 4 groups from 6 × 6: 8 · 36 · 2 · 9 = 5,184 multiply-adds in each of three passes."""
    return _step(nn.ConvTranspose2d(8, 8, 3, groups=4, bias=False), 1, 8, 6, 6)


def mobilenet_v2_training() -> list[int]:
    """A training step of mobilenet_v2 is counted 6.9 times over, by its depthwise layers.

    Forward and step on 3 × 64 × 64: the step takes three times the forward pass but for the gradient of the first
    convolution's input, 32 · 32 · 32 outputs of 27 taps, which nobody needs."""
    return _forward_and_step("mobilenet_v2")


def efficientnet_b0_training() -> list[int]:
    """A training step of efficientnet_b0 is counted 13.8 times over, by its depthwise layers.

    Forward and step as for mobilenet_v2; its first convolution has the same size."""
    return _forward_and_step("efficientnet_b0")


def _forward_and_step(name: str) -> list[int]:
    from torchvision.models import get_model

    with torch.device("meta"):
        model, x = get_model(name, num_classes=10), torch.ones(1, 3, 64, 64)
    return [_flop(lambda: model(x)), _flop(lambda: model(x).sum().backward())]


def lstm_depends_on_the_backend() -> list[int]:
    """The same LSTM counts nothing with oneDNN and everything without.

    10 · 768 multiply-adds either way."""
    network = nn.LSTM(16, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of another flag, which is set with this one
        with torch.backends.mkldnn.flags(enabled=False):
            without = _flop(lambda: network(torch.ones(5, 2, 16)))
    return [_flop(lambda: network(torch.ones(5, 2, 16))), without]


def fused_attention() -> int:
    """nn.MultiheadAttention in evaluation counts nothing: aten._native_multi_head_attention has no formula.

    2 · 278,528 (see nets.TOKENS)."""
    return _flop(lambda: frozen_attention()(torch.ones(TOKENS)))


def fused_encoder_layer() -> int:
    """A transformer layer in evaluation counts nothing: aten._transformer_encoder_layer_fwd has no formula.

    Attention of nets.TOKENS, and 2 · 16 rows · 64 · 128 multiply-adds of the two linear layers."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    with torch.no_grad():
        return _flop(lambda: layer(torch.ones(TOKENS)))


def attention_backward_depends_on_the_kernel() -> list[int]:
    """Backward of attention is 2.5 × forward by the fused kernel and 2 × by the plain path, for the same gradients.

    4 products of 8 · 16 · 16 · 32 multiply-adds; the fifth is the scores computed again, which is how, not what."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    found = []
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        q = torch.ones(2, 4, 16, 32, requires_grad=True)
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(q, q, q).sum()
            found.append(_flop(out.backward))
    return found


def sparse() -> list[int]:
    """A sparse matrix by a dense one counts as if it were dense, in COO and in CSR layout.

    10 values · 8 columns: 80 multiply-adds."""
    diagonal = torch.eye(64).mul(torch.arange(64) < 10)
    return [
        _flop(partial(torch.matmul, m, torch.ones(64, 8))) for m in (diagonal.to_sparse(), diagonal.to_sparse_csr())
    ]


def work_of_another_thread() -> int:
    """Work in another thread counts nothing: a dispatch mode belongs to its thread.

    16³ multiply-adds."""

    def work() -> None:
        thread = threading.Thread(target=lambda: torch.ones(16, 16) @ torch.ones(16, 16))
        thread.start()
        thread.join()

    return _flop(work)


def custom_operator() -> int:
    """An operator of one's own counts nothing, and nothing says so: get_unsupported_ops is for higher-order ones.

    32³ multiply-adds."""

    @torch.library.custom_op("flopledger_faults::product", mutates_args=())
    def product(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    return _flop(lambda: product(torch.ones(32, 32)))


def gradient_of_an_input() -> Any:
    """torch.autograd.grad with respect to the input of a module raises inside the mode.

    4 rows · 8 · 8 multiply-adds, and as many for the input's gradient."""
    layer, x = nn.Linear(8, 8), torch.ones(4, 8, requires_grad=True)
    return _flop(lambda: torch.autograd.grad(layer(x).sum(), x))


def module_called_twice() -> list[int]:
    """A module that is called twice before the backward pass is given more than its work.

    Global and two layers of 4 rows · 16 · 16 multiply-adds, each called twice, in 3 passes."""
    from torch.utils.flop_counter import FlopCounterMode

    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    x = torch.ones(4, 16, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        (model(x) + model(x)).sum().backward()
    counts = counter.get_flop_counts()
    return [sum(counts[name].values()) for name in ("Global", "Sequential.0", "Sequential.1")]


def module_of_two_names() -> dict[str, int]:
    """A module that two others share is shown under one name, with the work of both.

    Each parent calls the layer once: 2 rows · 16 · 16 multiply-adds."""
    from torch.utils.flop_counter import FlopCounterMode

    layer = nn.Linear(16, 16, bias=False)
    model = nn.Sequential(Parent(layer), Parent(layer))
    with FlopCounterMode(display=False, depth=9) as counter:
        model(torch.ones(2, 16))
    return {k: sum(v.values()) for k, v in counter.get_flop_counts().items() if k.endswith("child")}


def hooks_are_never_freed() -> bool:
    """A counter that stays on keeps more hooks with every step.

    Three steps of one model need no more than one."""
    from torch.utils.flop_counter import FlopCounterMode

    model, x = nn.Linear(4, 4), torch.ones(2, 4, requires_grad=True)
    held = []
    with FlopCounterMode(display=False) as counter:
        for _ in range(3):
            model(x).sum().backward()
            held.append(len(counter.mod_tracker._hooks))
    return held[0] < held[1] < held[2]


def raw_formulas() -> Any:
    """custom_mapping cannot take a formula that needs tensors: nothing sets the attribute that it looks for.

    register_flop_formula has get_raw=True; a formula for complex numbers needs the dtype."""
    from torch.utils.flop_counter import FlopCounterMode

    def formula(left: Any, right: Any, **_: Any) -> int:
        return 1 if left.dtype == right.dtype else 0

    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mm: formula}) as counter:
        torch.ones(2, 2) @ torch.ones(2, 2)
    return counter.get_total_flops()


def compiled_graph_is_not_run() -> int:
    """A compiled model runs eagerly inside the mode, so that nothing timed there is its time.

    The graph, compiled before, should run once."""
    calls = []

    def backend(graph: Any, _inputs: Any) -> Any:
        def run(*arguments: Any) -> Any:
            calls.append(1)
            return graph(*arguments)

        return run

    model = torch.compile(nn.Linear(4, 4), backend=backend)
    model(torch.ones(2, 4))
    calls.clear()
    _flop(lambda: model(torch.ones(2, 4)))
    return len(calls)


def nested_tensor() -> Any:
    """A linear layer on a jagged nested tensor raises inside the mode.

    8 rows · 16 · 16 multiply-adds."""
    layer = nn.Linear(16, 16, bias=False)
    x = torch.nested.nested_tensor([torch.ones(3, 16), torch.ones(5, 16)], layout=torch.jagged)
    return _flop(lambda: layer(x))


def flex_attention() -> Any:
    """flex_attention, which runs without it, raises inside the mode.

    2 heads, Q Kᵀ and P V: 2 · 2 · 16 · 16 · 16 multiply-adds."""
    from torch.nn.attention.flex_attention import flex_attention as attention

    q = torch.ones(1, 2, 16, 16)
    attention(q, q, q)
    return _flop(lambda: attention(q, q, q))


def gradient_penalty() -> Any:
    """A gradient of a gradient, with respect to a module's input, raises inside the mode.

    4 rows · 8 · 8 multiply-adds: forward and the input's gradient, then two gradients of each."""
    layer, x = nn.Linear(8, 8, bias=False), torch.ones(4, 8, requires_grad=True)

    def penalised() -> None:
        (gradient,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        gradient.square().sum().backward()

    return _flop(penalised)


def module_that_returns_its_input() -> int:
    """A module that returns its input, such as Dropout in evaluation, is given the backward work of others.

    It multiplies nothing."""
    from torch.utils.flop_counter import FlopCounterMode

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 4)).eval()
    with FlopCounterMode(display=False) as counter:
        model(torch.ones(2, 4)).sum().backward()
    return sum(counter.get_flop_counts().get("Sequential.2", {}).values())


MISSING, WRONG = ("missing operation", "no formula"), ("wrong count", "formula")

FAULTS = (
    Fault(depthwise_backward, *WRONG, 2 * 147_456 * 66, 2 * 147_456 * 3, ("183405", "166510", "105613")),
    Fault(grouped_backward, *WRONG, 2 * 5_184 * 6, 2 * 5_184 * 3, ("183405",)),
    Fault(grouped_1d_backward, *WRONG, 2 * 288 * 6, 2 * 288 * 3, ("183405",)),
    Fault(grouped_weight_alone, *WRONG, 2 * 5_184 * 4, 2 * 5_184, ("183405",)),
    Fault(grouped_transposed_backward, *WRONG, 2 * 5_184 * 6, 2 * 5_184 * 3, ("183405", "119806")),
    Fault(mobilenet_v2_training, *WRONG, [48_922_624, 1_001_874_432], [48_922_624, 3 * 48_922_624 - 2 * 32**3 * 27]),
    Fault(efficientnet_b0_training, *WRONG, [63_958_784, 2_630_321_664], [63_958_784, 3 * 63_958_784 - 2 * 32**3 * 27]),
    Fault(put_to(calls.lstm, _flop), *MISSING, 0, 2 * 7_680),
    Fault(put_to(calls.lstm_backward, _flop), *MISSING, 0, 2 * 3 * 7_680),
    Fault(lstm_depends_on_the_backend, "inconsistency", "no formula", [0, 2 * 7_680], [2 * 7_680, 2 * 7_680]),
    Fault(fused_attention, "missing operation", "fused path", 0, 2 * 278_528),
    Fault(fused_encoder_layer, "missing operation", "fused path", 0, 2 * (278_528 + 2 * 16 * 64 * 128)),
    Fault(put_to(calls.cpu_attention, _flop), *MISSING, 0, 2 * 2 * 65_536, ("195460",), "<2.15"),
    Fault(put_to(calls.cpu_attention_backward, _flop), *MISSING, 0, 2 * 6 * 65_536, ("195460",), "<2.15"),
    Fault(
        attention_backward_depends_on_the_kernel,
        "inconsistency",
        "formula",
        [2 * 5 * 65_536, 2 * 4 * 65_536],
        [2 * 4 * 65_536, 2 * 4 * 65_536],
        versions=">=2.15",
    ),
    Fault(put_to(calls.matrix_vector, _flop), *MISSING, 0, 2 * 64 * 32),
    Fault(put_to(calls.dot, _flop), *MISSING, 0, 2 * 1_000),
    Fault(put_to(calls.addmv, _flop), *MISSING, 0, 2 * 3 * 6),
    Fault(put_to(calls.addbmm, _flop), *MISSING, 0, 2 * 4 * 3 * 6 * 5),
    Fault(put_to(calls.addmm_in_place, _flop), *MISSING, 0, 2 * 3 * 6 * 5),
    Fault(put_to(calls.baddbmm_in_place, _flop), *MISSING, 0, 2 * 4 * 3 * 6 * 5),
    Fault(put_to(calls.outer_product, _flop), *MISSING, 0, 2 * 3 * 5),
    Fault(put_to(calls.bilinear, _flop), *MISSING, 0, 2 * 2 * 24 * 24 * 10),
    Fault(put_to(calls.distances, _flop), *MISSING, 0, 2 * 50 * 50 * 32),
    Fault(put_to(calls.deformable_convolution, _flop), *MISSING, 0, 2 * 4 * 36 * 27),
    Fault(put_to(calls.quantised_linear, _flop), *MISSING, 0, 2 * 8 * 64 * 64),
    Fault(put_to(calls.integer_product, _flop), *MISSING, 0, 2 * 64**3),
    Fault(put_to(calls.grouped_product, _flop), *MISSING, 0, 2 * 32 * 16 * 64),
    Fault(sparse, *WRONG, [2 * 64 * 64 * 8] * 2, [2 * 80] * 2),
    Fault(put_to(calls.complex_product, _flop), *WRONG, 2 * 16**3, 8 * 16**3),
    Fault(put_to(calls.mkldnn_layout, _flop), *MISSING, 0, 2 * 4 * 64 * 27),
    Fault(work_of_another_thread, "missing operation", "not seen", 0, 2 * 16**3),
    Fault(custom_operator, *MISSING, 0, 2 * 32**3, ("131041", "134385")),
    Fault(gradient_of_an_input, "crash", "interference", "raises RuntimeError", 2 * 2 * 256, ("131753",)),
    Fault(nested_tensor, "crash", "interference", "raises TypeError", 2 * 8 * 16 * 16),
    Fault(flex_attention, "crash", "interference", "raises RuntimeError", 2 * 2 * 2 * 16**3, ("167224",), ">=2.15"),
    Fault(compiled_graph_is_not_run, "side effect", "interference", 0, 1, ("140909", "123800")),
    Fault(
        module_called_twice,
        "inconsistency",
        "attribution",
        [12 * 2_048, 8 * 2_048, 6 * 2_048],
        [12 * 2_048, 6 * 2_048, 6 * 2_048],
    ),
    Fault(
        module_of_two_names,
        "wrong count",
        "attribution",
        {"Sequential.1.child": 2_048},
        {"Sequential.0.child": 1_024, "Sequential.1.child": 1_024},
    ),
    Fault(hooks_are_never_freed, "side effect", "left behind", True, False),
    Fault(raw_formulas, "crash", "calling form", "raises AttributeError", 1),
    Fault(gradient_penalty, "crash", "interference", "raises RuntimeError", 2 * 6 * 256, ("131753",)),
    Fault(module_that_returns_its_input, "wrong count", "attribution", 192, 0),
)
