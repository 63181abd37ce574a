"""Faults of DeepSpeed's flops profiler, which patches functions of torch and gives FLOP and multiply-adds."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.fault import Fault
from measure.counters.faults.nets import TOKENS, Does, Failing, frozen_attention, weight


def _profile(model: nn.Module, x: Any, **options: Any) -> list[int]:
    """[FLOP, multiply-adds]."""
    from deepspeed.profiling.flops_profiler import get_model_profile

    given = options.pop("kwargs", None)
    arguments = {"args": [x]} if given is None else {"kwargs": given}
    found = get_model_profile(model, **arguments, print_profile=False, as_string=False, warm_up=0, **options)
    return [int(found[0]), int(found[1])]


def _flop(model: nn.Module, x: Any) -> int:
    return _profile(model, x)[0]


def _profiler(model: nn.Module) -> Any:
    from deepspeed.profiling.flops_profiler import FlopsProfiler

    return FlopsProfiler(model)


def addition_operator() -> list[int]:
    """a + b, a - b and a * b count nothing, torch.add and torch.mul do.

    32 of each."""
    functions = (
        lambda m, x: x + m.w,
        lambda m, x: x - m.w,
        lambda m, x: x * m.w,
        lambda m, x: torch.add(x, m.w),
        lambda m, x: torch.mul(x, m.w),
    )
    return [_flop(Does(function, w=weight(4, 8)), torch.ones(4, 8)) for function in functions]


def recurrent_layers() -> list[int]:
    """LSTM, GRU and LSTMCell have FLOP but no multiply-adds.

    10 tokens of (16 + 8) · 8 weights for each of 4 or 3 gates; 2 of them for the cell."""
    sequence, single = torch.ones(5, 2, 16), torch.ones(2, 16)
    layers = ((nn.LSTM(16, 8), sequence), (nn.GRU(16, 8), sequence), (nn.LSTMCell(16, 8), single))
    return [_profile(layer, x)[1] for layer, x in layers]


def einsum() -> list[int]:
    """einsum has FLOP but no multiply-adds, and one too many.

    2 · 16 · 16 multiply-adds."""
    return _profile(Does(lambda m, x: torch.einsum("bi,ij->bj", x, m.w), w=weight(16, 16)), torch.ones(2, 16))


def attention_by_keywords() -> Any:
    """scaled_dot_product_attention called with keywords raises.

    Q Kᵀ and P V: 2 · 4 · 16 · 16 · 32 multiply-adds."""
    return _profile(
        Does(lambda m, x: F.scaled_dot_product_attention(query=x, key=x, value=x), w=weight(1)),
        torch.ones(1, 4, 16, 32),
    )


def pooling_by_keywords() -> Any:
    """adaptive_avg_pool2d called with keywords raises.

    2 · 64 elements, as DeepSpeed counts a pooling."""
    return _flop(Does(lambda m, x: F.adaptive_avg_pool2d(x, output_size=1), w=weight(1)), torch.ones(1, 2, 8, 8))


def stride_as_a_list() -> Any:
    """F.conv2d with its stride as a list raises.

    4 · 9 outputs of 27 taps."""
    return _profile(Does(lambda m, x: F.conv2d(x, m.w, stride=[2, 2]), w=weight(4, 3, 3, 3)), torch.ones(1, 3, 8, 8))


def unbatched_convolution() -> Any:
    """A convolution of one sample without a batch raises.

    8 · 36 outputs of 27 taps."""
    return _profile(nn.Conv2d(3, 8, 3, bias=False), torch.ones(3, 8, 8))


def padding_same_of_an_even_kernel() -> list[int]:
    """padding="same" with an even kernel counts too few outputs.

    3 · 64 outputs of 4 · 16 taps."""
    return _profile(nn.Conv2d(4, 3, 4, padding="same", bias=False), torch.ones(1, 4, 8, 8))


def fused_attention() -> list[int]:
    """nn.MultiheadAttention frozen in evaluation counts its projections and nothing of its attention.

    278,528 multiply-adds (see nets.TOKENS)."""
    return _profile(frozen_attention(), torch.ones(TOKENS))


def exception_leaves_torch_patched() -> list[Any]:
    """A model that raises leaves torch's functions patched, and doubles every later count of the process.

    2 rows · 10 · 5 multiply-adds without a bias, and F.linear as it was."""
    before = F.linear
    with contextlib.suppress(RuntimeError):
        _profile(Failing(), torch.ones(1, 4))
    patched = F.linear is not before
    return [patched, _flop(nn.Linear(5, 10, bias=False), torch.ones(2, 5))]


def two_profilers() -> list[int]:
    """Two profilers at a time, and the inner one's count is doubled.

    2 rows · 10 · 5 multiply-adds."""
    model = nn.Linear(5, 10, bias=False)
    outer, inner = _profiler(nn.Sequential(model)), _profiler(model)
    outer.start_profile()
    inner.start_profile()
    model(torch.ones(2, 5))
    return [int(inner.get_total_flops()), F.linear.__name__ == "linear"]


def checkpoint_grows() -> list[int]:
    """Where the profile spans the backward pass, what a checkpoint recomputes is added to the forward pass.

    Two linear layers of 4 rows · 16 · 16 multiply-adds."""
    from torch.utils.checkpoint import checkpoint

    inside = nn.Sequential(nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False))
    model = Does(lambda m, x: checkpoint(m.inside, x, use_reentrant=False), inside=inside)
    profiler = _profiler(model)
    profiler.start_profile()
    out = model(torch.ones(4, 16, requires_grad=True)).sum()
    forward = int(profiler.get_total_flops())
    out.backward()
    return [forward, int(profiler.get_total_flops())]


def interpolation_to_a_size() -> list[int]:
    """F.interpolate to a size counts one channel of one sample, by a scale all of them.

    2 · 3 · 16 · 16 elements either way."""
    x = torch.ones(2, 3, 8, 8)
    by_scale = Does(lambda m, x: F.interpolate(x, scale_factor=2), w=weight(1))
    by_size = Does(lambda m, x: F.interpolate(x, size=(16, 16)), w=weight(1))
    return [_flop(by_scale, x), _flop(by_size, x)]


def upsample_twice() -> int:
    """F.upsample counts twice: it calls F.interpolate, which is patched too.

    1 · 2 · 8 · 8 elements."""
    return _flop(Does(lambda m, x: F.upsample(x, scale_factor=2), w=weight(1)), torch.ones(1, 2, 4, 4))


def matmul_vector() -> list[int]:
    """matmul by a vector counts as by a square matrix.

    64 · 32 multiply-adds."""
    return _profile(Does(lambda m, x: torch.matmul(x, m.right), right=weight(32)), torch.ones(64, 32))


def matmul_broadcast() -> list[int]:
    """matmul of a matrix by a batch of matrices counts one of them.

    (5, 7) @ (4, 7, 3): 4 · 5 · 7 · 3 multiply-adds."""
    return _profile(Does(lambda m, x: torch.matmul(m.left, x), left=weight(5, 7)), torch.ones(4, 7, 3))


def function_imported_before() -> list[int]:
    """A function that was imported by name before the profile counts nothing.

    10 · 10 multiply-adds."""
    from torch.nn.functional import linear

    return _profile(Does(lambda m, x: linear(x, m.w), w=weight(10, 10)), torch.ones(1, 10))


def ignored_modules_stay() -> list[int]:
    """ignore_modules takes nothing from the total: what an ignored module does goes to its parent.

    A ReLU of 10 elements is left of a linear layer and a ReLU."""
    return _profile(nn.Sequential(nn.Linear(10, 10), nn.ReLU()), torch.ones(1, 10), ignore_modules=[nn.Linear])


def left_in_evaluation() -> bool:
    """The model is in evaluation mode afterwards.

    It was in training mode."""
    model = nn.Sequential(nn.Linear(4, 4)).train()
    _profile(model, torch.ones(1, 4))
    return not model.training


def root_functions_are_lost() -> list[int]:
    """Profiling that begins in the root's own pre-hook, as deepspeed.initialize has it, loses the root's functions.

    A linear layer of 4 rows · 16 · 16 and, in the root's forward, F.linear of as many."""
    model = Does(lambda m, x: F.linear(m.layer(x), m.w), layer=nn.Linear(16, 16, bias=False), w=weight(16, 16))
    profiler = _profiler(model)
    model.register_forward_pre_hook(lambda *_: profiler.start_profile())
    model(torch.ones(4, 16))
    return int(profiler.get_total_flops())


def root_latency_is_the_clock() -> bool:
    """Profiling that begins in the root's own pre-hook gives the root the time since 1970 as its latency.

    Less than a minute."""
    model = nn.Sequential(nn.Linear(16, 16))
    profiler = _profiler(model)
    model.register_forward_pre_hook(lambda *_: profiler.start_profile())
    model(torch.ones(4, 16))
    profiler.stop_profile()
    return profiler.get_total_duration() > 1e9


def aggregated_profile_lacks_a_depth() -> list[str]:
    """The aggregated profile does not show the innermost modules, at no depth that is asked for.

    Depths 0, 1 and 2: model, block, layer."""
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4)))
    profiler = _profiler(model)
    profiler.start_profile()
    model(torch.ones(1, 4))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        profiler.print_model_aggregated_profile(module_depth=-1, top_modules=1)
    return [line.strip(": ") for line in said.getvalue().splitlines() if line.startswith("depth")]


def print_before_a_forward_pass() -> Any:
    """A report before any forward pass raises.

    Zeros."""
    profiler = _profiler(nn.Linear(4, 4))
    profiler.start_profile()
    with contextlib.redirect_stdout(io.StringIO()):
        profiler.print_model_profile()
    return int(profiler.get_total_flops())


def parameters_of_the_model() -> str:
    """The printed report of a model outside of an engine says that it has 0 parameters.

    10 · 10 + 10."""
    model = nn.Linear(10, 10)
    profiler = _profiler(model)
    profiler.start_profile()
    model(torch.ones(1, 10))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        profiler.print_model_profile(detailed=False)
    (line,) = [line for line in said.getvalue().splitlines() if line.startswith("params of model")]
    return line.split()[-1]


def activations() -> list[int]:
    """ReLU counts, ReLU6, sigmoid, tanh, Hardswish and Hardtanh do not.

    10 elements each."""
    kinds = (nn.ReLU, nn.ReLU6, nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Hardtanh)
    return [_flop(nn.Sequential(nn.Linear(10, 10), kind()), torch.ones(1, 10)) - 200 for kind in kinds]


def bias_of_a_linear_layer() -> list[int]:
    """The bias of a linear layer is not counted, that of a convolution is.

    Beside their products 10 additions, and 4 · 4 additions."""
    linear = _flop(nn.Linear(10, 10), torch.ones(1, 10)) - 2 * 100
    return [linear, _flop(nn.Conv2d(3, 4, 1), torch.ones(1, 3, 2, 2)) - 2 * 48]


def matrix_vector() -> list[int]:
    """torch.mv and torch.dot count nothing.

    2 · 16 multiply-adds, and 16."""
    functions = (lambda m, x: torch.mv(x, m.w), lambda m, x: torch.dot(x[0], m.w))
    return [_profile(Does(function, w=weight(16)), torch.ones(2, 16))[1] for function in functions]


def bilinear() -> list[int]:
    """nn.Bilinear counts nothing.

    24 · 24 · 10 multiply-adds."""
    return _profile(Does(lambda m, x: m.layer(x, x), layer=nn.Bilinear(24, 24, 10, bias=False)), torch.ones(1, 24))


def distances() -> list[int]:
    """torch.cdist counts nothing.

    50 · 50 · 32 multiply-adds of the product x · y."""
    return _profile(Does(lambda m, x: torch.cdist(x, x), w=weight(1)), torch.ones(50, 32))


def linear_on_meta() -> list[int]:
    """On meta tensors a linear layer with a bias counts twice: there it is made of an addmm, which is patched too.

    2 · 3 rows · 8 · 8 multiply-adds."""
    found = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            found.append(_flop(nn.Linear(8, 8), torch.ones(2, 3, 8)))
    return found


MISSING, PATCH = ("missing operation", "not seen"), ("side effect", "left behind")

FAULTS = (
    Fault(addition_operator, "inconsistency", "not seen", [0, 0, 0, 32, 32], [32] * 5),
    Fault(activations, "inconsistency", "no formula", [10, 0, 0, 0, 0, 0], [10] * 6),
    Fault(bias_of_a_linear_layer, "inconsistency", "formula", [0, 16], [10, 16]),
    Fault(recurrent_layers, "inconsistency", "formula", [0, 0, 0], [7_680, 5_760, 1_536]),
    Fault(einsum, "inconsistency", "formula", [1_025, 0], [1_024, 512]),
    Fault(matrix_vector, *MISSING, [0, 0], [32, 16]),
    Fault(bilinear, *MISSING, [0, 0], [2 * 5_760, 5_760]),
    Fault(distances, *MISSING, [0, 0], [2 * 80_000, 80_000]),
    Fault(function_imported_before, *MISSING, [0, 0], [200, 100]),
    Fault(fused_attention, "missing operation", "fused path", [0, 0], [2 * 278_528, 278_528], ("1467", "4723")),
    Fault(matmul_vector, "wrong count", "formula", [2 * 32 * 2_048, 32 * 2_048], [2 * 2_048, 2_048]),
    Fault(matmul_broadcast, "wrong count", "formula", [210, 105], [840, 420]),
    Fault(padding_same_of_an_even_kernel, "wrong count", "formula", [18_816, 9_408], [2 * 12_288, 12_288]),
    Fault(interpolation_to_a_size, "wrong count", "formula", [1_536, 256], [1_536, 1_536]),
    Fault(upsample_twice, "wrong count", "counted twice", 2 * 128, 128),
    Fault(linear_on_meta, "inconsistency", "counted twice", [768, 2 * 768], [768, 768]),
    Fault(ignored_modules_stay, "wrong count", "attribution", [210, 100], [10, 0]),
    Fault(checkpoint_grows, "wrong count", "counted twice", [4_096, 6_144], [4_096, 4_096]),
    Fault(attention_by_keywords, "crash", "calling form", "raises TypeError", [2 * 65_536, 65_536]),
    Fault(pooling_by_keywords, "crash", "calling form", "raises TypeError", 128),
    Fault(stride_as_a_list, "crash", "calling form", "raises TypeError", [2 * 972, 972]),
    Fault(unbatched_convolution, "crash", "calling form", "raises AssertionError", [2 * 7_776, 7_776]),
    Fault(print_before_a_forward_pass, "crash", "report", "raises ZeroDivisionError", 0),
    Fault(exception_leaves_torch_patched, *PATCH, [True, 400], [False, 200], ("2292", "4976", "7413")),
    Fault(two_profilers, *PATCH, [400, False], [200, True]),
    Fault(left_in_evaluation, *PATCH, True, False),
    Fault(root_functions_are_lost, "missing operation", "not seen", 2_048, 4_096),
    Fault(root_latency_is_the_clock, "wrong count", "report", True, False),
    Fault(
        aggregated_profile_lacks_a_depth,
        "wrong count",
        "report",
        ["depth 0", "depth 1"],
        ["depth 0", "depth 1", "depth 2"],
    ),
    Fault(parameters_of_the_model, "wrong count", "report", "0", "110", ("2036",)),
)
