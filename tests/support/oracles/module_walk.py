"""An independent walk over a model's modules: what each kind multiplies and touches, from hooks on real tensors.

Knows no counter. Used to hold counters to the linear rule of their own conventions, to the last unit.
"""

from __future__ import annotations

import math
from collections import Counter

import torch
from torch import nn
from torchvision.models.mobilenetv2 import InvertedResidual
from torchvision.models.resnet import BasicBlock, Bottleneck

from workloads.vision import models as vision_models


def build(name: str, batch_size: int, image_size: int):
    """A vision workload's model in eval mode, without its real weights' time, and images."""
    workload = vision_models.get(name, num_classes=10, image_size=image_size)
    model = workload.build(**workload.hyper).eval()
    generator = torch.Generator().manual_seed(0)
    return model, workload.batch(workload.hyper, batch_size, torch.device("cpu"), generator).inputs[0]


def statistics(model: nn.Module, images: torch.Tensor) -> Counter[str]:
    """Sums over all calls of all modules, forward, eval mode."""
    found: Counter[str] = Counter()
    handles = [
        module.register_forward_hook(lambda m, i, o: found.update(_of(m, i[0], o))) for module in model.modules()
    ]
    with torch.no_grad():
        model.eval()(images)
    for handle in handles:
        handle.remove()
    return found


def _of(module: nn.Module, given: torch.Tensor, made: torch.Tensor) -> dict[str, int]:
    if isinstance(module, nn.Conv2d):
        taps = module.in_channels // module.groups * math.prod(module.kernel_size)
        return {"conv_mac": made.numel() * taps, "conv_bias": made.numel() if module.bias is not None else 0}
    if isinstance(module, nn.Linear):
        biased = module.bias is not None
        return {
            "linear_mac": given.numel() * module.out_features,
            "linear_bias": made.numel() if biased else 0,
            "linear_features": module.out_features if biased else 0,
        }
    if isinstance(module, nn.BatchNorm2d):
        return {"norm": made.numel()}
    if type(module) is nn.ReLU:
        return {"relu": made.numel()}
    if isinstance(module, nn.MaxPool2d):
        return {"max_window": (_side(module.kernel_size) ** 2 - 1) * made.numel()}
    if isinstance(module, nn.AvgPool2d):
        return {"average_window": _side(module.kernel_size) ** 2 * made.numel()}
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return {"adaptive_window": math.prod(given.shape[2:]) * made.numel()}
    if isinstance(module, BasicBlock | Bottleneck) or (isinstance(module, InvertedResidual) and module.use_res_connect):
        return {"residual": made.numel()}  # the sum has the shape of what the block gives
    return {}


def _side(kernel: int | tuple[int, ...]) -> int:
    assert isinstance(kernel, int)
    return kernel
