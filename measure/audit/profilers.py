"""The two profilers that wrap torch's functions, DeepSpeed's and calflops, on a module on meta tensors, as their own
packages run them; and Composer's monitor, which asks a model. Runs in the process of `child.py` only.

Both count a forward pass, and take a training step for three of it.
"""

from __future__ import annotations

import functools
import math
import os
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from analysis.audit import Architecture, Model, NetworkSizes, target
from measure.audit.modules import hub_model, sample

Formula = Callable[[Model, int], Any]
"""(model, tokens) → FLOP of a training step of one sequence, as the framework says."""

META = (
    "transformers' module on meta tensors, with a mask of ones and the picture's grid, where it asks for their values"
)

UNWRAPPED = "torch's own decompositions for meta tensors call torch's functions as they were before the profile"


UNRECORDED = "the forward pass runs without recording gradients, which changes no count"


SCALED = "of Mamba and Jamba, whose scan runs position by position, one and two periods of layers, scaled to all"


def by_periods(formula: Formula) -> Formula:
    """A formula that runs a module, of which a Mamba's or a Jamba's layers repeat: two short ones say what a period
    costs, and what there is beside."""

    def scaled(model: Model, tokens: int) -> Any:
        if not isinstance(model, NetworkSizes) or model.model_type not in ("mamba", "jamba"):
            return formula(model, tokens)
        period = math.lcm(model.get("attn_layer_period") or 1, model.get("expert_layer_period") or 1)
        periods, rest = divmod(model["num_hidden_layers"], period)
        if rest:
            raise ValueError(f"expected whole periods of {period} layers, got {model['num_hidden_layers']}")
        short = (replace(model, sizes={**model.sizes, "num_hidden_layers": times * period}) for times in (1, 2))
        one, two = (formula(each, tokens) for each in short)
        return one + (periods - 1) * (two - one)

    return scaled


def module_and_arguments(model: Model, tokens: int) -> tuple[Any, dict[str, torch.Tensor]]:
    """A module, and what it is called with. Values on meta tensors cannot be asked for: a decoder has a mask, and a
    picture's positions and grid are given."""
    module, given = hub_model(model), sample(model, tokens)
    module.train(model.model_type != "bart")  # which draws a number to skip layers when it trains
    if isinstance(model, Architecture) or model.base is not None:
        given["attention_mask"] = torch.ones(1, 1, tokens, tokens, dtype=torch.bool, device="meta")
    if model.model_type == "bart":
        short = target(tokens)
        given["decoder_attention_mask"] = torch.ones(1, 1, short, short, dtype=torch.bool, device="meta")
    os.environ["TRANSFORMERS_DISABLE_TORCH_CHECK"] = "1"  # that the picture has as many words as patches
    if model.model_type == "qwen2_vl":
        given["position_ids"] = torch.zeros(3, 1, tokens, dtype=torch.long, device="meta")
        given["image_position_ids"] = torch.zeros(given["pixel_values"].shape[0], 2, dtype=torch.long, device="meta")
        del given["image_grid_thw"]
        grid = sample(model, tokens, "cpu")["image_grid_thw"]
        module.forward = functools.partial(module.forward, image_grid_thw=grid)
    return module, given


def unwrap_decompositions() -> None:
    """On meta tensors torch runs some operations as Python that calls torch.mm, which a profiler has wrapped: it would
    count them twice, and does not on a device. They are given a copy of torch's names as they are now."""
    from torch._decomp import decompositions

    before = ModuleType("torch")
    vars(before).update(vars(torch))
    vars(decompositions)["torch"] = before


def deepspeed(folder: Path) -> tuple[Formula, list[str]]:
    """As its engine does: a profile around the forward pass of a module that trains."""
    os.environ["DS_ACCELERATOR"] = "cpu"  # read when imported
    from deepspeed.profiling.flops_profiler.profiler import FlopsProfiler

    unwrap_decompositions()

    def formula(model: Model, tokens: int) -> Any:
        module, given = module_and_arguments(model, tokens)
        profile = FlopsProfiler(module)
        profile.start_profile()
        try:
            with torch.no_grad():
                module(**given)
            return 3 * profile.get_total_flops()
        finally:
            profile.end_profile()

    return by_periods(formula), [META, SCALED, UNWRAPPED, UNRECORDED]


def calflops(folder: Path) -> tuple[Formula, list[str]]:
    """Its factor of the backward pass is 2.0; as a whole number, so that nothing is rounded."""
    from calflops import calculate_flops, calculate_pipline

    unwrap_decompositions()

    def formula(model: Model, tokens: int) -> Any:
        module, given = module_and_arguments(model, tokens)
        wanted = {"include_backPropagation": True, "compute_bp_factor": 2}
        try:
            with torch.no_grad():
                return calculate_flops(module, kwargs=given, print_results=False, output_as_string=False, **wanted)[0]
        except Exception:  # after which it leaves torch's functions wrapped
            calculate_pipline._reload_functionals(calculate_pipline.old_functions)
            calculate_pipline._reload_tensor_methods(calculate_pipline.old_functions)
            calculate_pipline.module_flop_count.clear()
            calculate_pipline.module_mac_count.clear()
            raise

    return by_periods(formula), [META, SCALED, UNWRAPPED, UNRECORDED, "compute_bp_factor is the whole number 2"]


class _Log:
    """What is logged, by name."""

    def __init__(self) -> None:
        self.metrics: dict[str, Any] = {}

    def log_metrics(self, metrics: dict[str, Any]) -> None:
        self.metrics.update(metrics)


class BatchModel:
    """A model of Composer, which says the FLOP of a batch."""

    def __init__(self, said: Any) -> None:
        self.flops_per_batch = lambda batch: said


def speed_monitor(batch_end: Callable[..., None], said: Any) -> Any:
    """FLOP/s that the monitor logs of two batches that end a second apart, on one device."""
    log = _Log()
    histories: dict[str, deque[Any]] = {
        name: deque(maxlen=2) for name in ("history_samples", "history_tokens", "history_wct", "history_flops")
    }
    monitor = SimpleNamespace(**histories, gpu_flops_available=0, divider=1, total_eval_wct=0.0)
    for second in range(2):
        clock = SimpleNamespace(total_seconds=lambda second=second: float(second))
        counted = SimpleNamespace(value=second)
        stamp = SimpleNamespace(sample=counted, token=counted, total_wct=clock)
        device = SimpleNamespace(tensor_to_device=lambda tensor: tensor)
        batch_end(monitor, SimpleNamespace(timestamp=stamp, model=BatchModel(said), device=device, batch=None), log)
    return int(log.metrics["throughput/flops_per_sec"])
