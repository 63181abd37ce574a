"""Faults of DeepSpeed's flops profiler, which patches functions of torch and gives FLOP and multiply-adds."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.faults.catalogue import Fault, put_to
from measure.counters.faults.reproductions import profilers
from measure.counters.faults.reproductions.nets import Does, weight


def _count(model: nn.Module, *shape: int, **options: Any) -> list[int]:
    """[FLOP, multiply-adds]."""
    from deepspeed.profiling.flops_profiler import get_model_profile

    found = get_model_profile(
        model, args=[torch.ones(shape)], print_profile=False, as_string=False, warm_up=0, **options
    )
    return [int(found[0]), int(found[1])]


def _flop(model: nn.Module, *shape: int) -> int:
    return _count(model, *shape)[0]


def _profiler(model: nn.Module) -> Any:
    from deepspeed.profiling.flops_profiler import FlopsProfiler

    return FlopsProfiler(model)


def attention_by_keywords() -> Any:
    """scaled_dot_product_attention called with keywords raises.

    Q Kᵀ and P V: 2 · 4 · 16 · 16 · 32 multiply-adds."""
    return _count(
        Does(lambda m, x: F.scaled_dot_product_attention(query=x, key=x, value=x), w=weight(1)),
        1,
        4,
        16,
        32,
    )


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


def ignored_modules_stay() -> list[int]:
    """ignore_modules takes nothing from the total: what an ignored module does goes to its parent.

    A ReLU of 10 elements is left of a linear layer and a ReLU."""
    return _count(nn.Sequential(nn.Linear(10, 10), nn.ReLU()), 1, 10, ignore_modules=[nn.Linear])


def root_functions_are_lost() -> int:
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
    return bool(profiler.get_total_duration() > 1e9)


def aggregated_profile_lacks_a_depth() -> list[str]:
    """The aggregated profile does not show the innermost modules, at no depth that is asked for.

    Depths 0, 1 and 2: model, block, layer."""
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 4)))
    profiler = _profiler(model)
    profiler.start_profile()
    model(torch.ones(1, 4))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        profiler.print_model_aggregated_profile(module_depth=-1, top_modules=1)
    return [line.strip(": ") for line in printed.getvalue().splitlines() if line.startswith("depth")]


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
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        profiler.print_model_profile(detailed=False)
    (line,) = [line for line in printed.getvalue().splitlines() if line.startswith("params of model")]
    return line.split()[-1]


def linear_on_meta() -> list[int]:
    """On meta tensors a linear layer with a bias counts twice: there it is made of an addmm, which is patched too.

    2 · 3 rows · 8 · 8 multiply-adds."""
    found = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            found.append(_flop(nn.Linear(8, 8), 2, 3, 8))
    return found


FAULTS = (
    *profilers.faults(_count),
    Fault(put_to(profilers.interpolation_to_a_size, _count), "wrong count", "formula", [1_536, 256], [1_536, 1_536]),
    Fault(put_to(profilers.upsample_twice, _count), "wrong count", "counted twice", 2 * 128, 128),
    Fault(linear_on_meta, "inconsistency", "counted twice", [768, 2 * 768], [768, 768]),
    Fault(ignored_modules_stay, "wrong count", "attribution", [210, 100], [10, 0]),
    Fault(checkpoint_grows, "wrong count", "counted twice", [4_096, 6_144], [4_096, 4_096]),
    Fault(attention_by_keywords, "crash", "calling form", "raises TypeError", [2 * 65_536, 65_536]),
    Fault(put_to(profilers.stride_as_a_list, _count), "crash", "calling form", "raises TypeError", [2 * 972, 972]),
    Fault(print_before_a_forward_pass, "crash", "report", "raises ZeroDivisionError", 0),
    Fault(two_profilers, "side effect", "left behind", [400, False], [200, True]),
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
