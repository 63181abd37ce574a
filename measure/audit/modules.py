"""The modules of the audit's configurations, on meta tensors: transformers' own, and two that it does not have.

Those two are a diffusion transformer and the thin matrices of LoRA, written here by their papers in plain torch: their
sizes are the models', their weights are none. Not claimed: that they train well.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from analysis.audit import ENCODERS, Architecture, Model, NetworkSizes, configuration, network_configuration, target

ADAPTED = {"attention": ("q_proj", "k_proj", "v_proj", "o_proj")}
"""targets → names of matrices; "all" has those of the MLP, too."""

GATED = ("gate_proj", "up_proj", "down_proj")


def hub_config(model: Model) -> Any:
    """transformers' configuration of the model; of an adapted one, its decoder's. Raises ValueError for a type that
    transformers does not have."""
    from transformers import AutoConfig

    if isinstance(model, Architecture):
        return AutoConfig.for_model(model.model_type, **configuration(model))
    if model.model_type == "lora":
        return hub_config(model.decoder)
    if model.model_type == "dit":
        raise ValueError("transformers has no diffusion transformer, and so no configuration of one")
    return AutoConfig.for_model(model.model_type, **network_configuration(model))


def hub_model(model: Model) -> Any:
    """The module with its head, on meta tensors."""
    if isinstance(model, NetworkSizes) and model.model_type == "dit":
        with torch.device("meta"):
            return DiffusionTransformer(model)
    with torch.device("meta"):
        made = _maker(model).from_config(hub_config(model))
    return with_adapters(made, model) if isinstance(model, NetworkSizes) and model.model_type == "lora" else made


def _maker(model: Model) -> Any:
    import transformers

    if model.model_type in ENCODERS:
        return transformers.AutoModelForMaskedLM
    kinds: dict[str, Any] = {
        "t5": transformers.AutoModelForSeq2SeqLM,
        "bart": transformers.AutoModelForSeq2SeqLM,
        "vit": transformers.AutoModelForImageClassification,
        "qwen2_vl": transformers.AutoModelForImageTextToText,
        "llava": transformers.AutoModelForImageTextToText,
    }
    return kinds.get(model.model_type, transformers.AutoModelForCausalLM)


def sample(model: Model, tokens: int, device: str = "meta") -> dict[str, torch.Tensor]:
    """What the module is called with, for one sequence: arguments by name."""
    if isinstance(model, Architecture):
        return {"input_ids": _words(tokens, device)}
    made = SAMPLES.get(model.model_type)
    return made(model, tokens, device) if made is not None else {"input_ids": _words(tokens, device)}


def _words(tokens: int, device: str) -> torch.Tensor:
    return torch.zeros(1, tokens, dtype=torch.long, device=device)


def _pair(model: NetworkSizes, tokens: int, device: str) -> dict[str, torch.Tensor]:
    return {"input_ids": _words(tokens, device), "decoder_input_ids": _words(target(tokens), device)}


def _picture(model: NetworkSizes, tokens: int, device: str) -> dict[str, torch.Tensor]:
    side = model["image_size"]
    return {"pixel_values": torch.zeros(1, model["num_channels"], side, side, device=device)}


def _latent(model: NetworkSizes, tokens: int, device: str) -> dict[str, torch.Tensor]:
    side = model["input_size"]
    return {
        "latent": torch.zeros(1, model["in_channels"], side, side, device=device),
        "time": torch.zeros(1, device=device),
        "label": torch.zeros(1, dtype=torch.long, device=device),
    }


def _picture_and_words(model: NetworkSizes, tokens: int, device: str) -> dict[str, torch.Tensor]:
    """The picture's tokens first, then words."""
    patches, merge = model["patches"], model["spatial_merge_size"] ** 2
    side = math.isqrt(patches)
    pixels = model["in_channels"] * model["temporal_patch_size"] * model["patch_size"] ** 2
    words = _words(tokens, device)
    words[:, : patches // merge] = model.decoder.vocab_size - 1
    return {
        "input_ids": words,
        "pixel_values": torch.zeros(patches, pixels, device=device),
        "image_grid_thw": torch.tensor([[1, side, side]], device=device),
        "mm_token_type_ids": (words == model.decoder.vocab_size - 1).int(),
    }


def _words_after_picture(model: NetworkSizes, tokens: int, device: str) -> dict[str, torch.Tensor]:
    """A word for each patch of the picture first, then others."""
    side, words = model["image_size"], _words(tokens, device)
    words[:, : model["patches"]] = model.decoder.vocab_size - 1
    return {"input_ids": words, "pixel_values": torch.zeros(1, 3, side, side, device=device)}


SAMPLES = {
    "t5": _pair,
    "bart": _pair,
    "vit": _picture,
    "dit": _latent,
    "qwen2_vl": _picture_and_words,
    "llava": _words_after_picture,
}
"""Type → what it is called with, where it is not words alone."""


def outputs(made: Any) -> torch.Tensor:
    """The tensor whose sum is taken for the loss."""
    found: torch.Tensor = made if isinstance(made, torch.Tensor) else made.logits
    return found


class Adapter(nn.Module):
    """A frozen matrix, and two thin ones beside it."""

    def __init__(self, frozen: nn.Linear, rank: int) -> None:
        super().__init__()
        place = frozen.weight.device
        self.frozen = frozen
        self.down = nn.Linear(frozen.in_features, rank, bias=False, device=place)
        self.up = nn.Linear(rank, frozen.out_features, bias=False, device=place)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        wide: torch.Tensor = self.frozen(values) + self.up(self.down(values))
        return wide


def with_adapters(module: nn.Module, network: NetworkSizes) -> nn.Module:
    """The module with all its weights frozen and adapters in the place of its targets."""
    module.requires_grad_(False)
    wanted = ADAPTED.get(network.words["targets"], (*ADAPTED["attention"], *GATED))
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if name in wanted and isinstance(child, nn.Linear):
                setattr(parent, name, Adapter(child, network["rank"]))
    return module


class DiffusionLayer(nn.Module):
    """A layer whose shifts, scales and gates follow from the condition."""

    def __init__(self, hidden: int, heads: int, ratio: int) -> None:
        super().__init__()
        self.heads = heads
        self.modulation = nn.Linear(hidden, 6 * hidden)
        self.joint, self.merge = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.widen, self.narrow = nn.Linear(hidden, ratio * hidden), nn.Linear(ratio * hidden, hidden)
        self.norm = nn.LayerNorm(hidden, elementwise_affine=False)

    def forward(self, values: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = self.modulation(functional.silu(condition)).chunk(6, -1)
        values = values + gate[:, None] * self._attend(modulate(self.norm(values), shift, scale))
        inside = functional.gelu(self.widen(modulate(self.norm(values), shift_mlp, scale_mlp)))
        changed: torch.Tensor = values + gate_mlp[:, None] * self.narrow(inside)
        return changed

    def _attend(self, values: torch.Tensor) -> torch.Tensor:
        batch, positions, hidden = values.shape
        shape = (batch, positions, 3, self.heads, hidden // self.heads)
        queries, keys, held = self.joint(values).view(shape).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(queries, keys, held)
        merged: torch.Tensor = self.merge(seen.transpose(1, 2).reshape(values.shape))
        return merged


def modulate(values: torch.Tensor, shift: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """A normalised tensor, modulated."""
    return values * (1 + scale[:, None]) + shift[:, None]


class DiffusionTransformer(nn.Module):
    """Patches of a latent picture, through layers that the time step and the class modulate, back to noise and its
    variance (Peebles and Xie, arXiv:2212.09748)."""

    def __init__(self, network: NetworkSizes) -> None:
        super().__init__()
        hidden, patch, channels = network["hidden_size"], network["patch_size"], network["in_channels"]
        self.frequencies = network["frequency_size"] // 2
        self.patches = nn.Conv2d(channels, hidden, patch, stride=patch)
        self.time = nn.Sequential(nn.Linear(2 * self.frequencies, hidden), nn.SiLU(), nn.Linear(hidden, hidden))
        self.labels = nn.Embedding(network["num_classes"] + 1, hidden)
        sizes = (hidden, network["num_heads"], network["mlp_ratio"])
        self.layers = nn.ModuleList([DiffusionLayer(*sizes) for _ in range(network["depth"])])
        self.modulation = nn.Linear(hidden, 2 * hidden)
        self.norm = nn.LayerNorm(hidden, elementwise_affine=False)
        self.head = nn.Linear(hidden, patch * patch * 2 * channels)

    def forward(self, latent: torch.Tensor, time: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(-math.log(10_000) * torch.arange(self.frequencies, device=time.device) / self.frequencies)
        angles = time[:, None] * rates
        condition = self.time(torch.cat([angles.cos(), angles.sin()], -1)) + self.labels(label)
        values = self.patches(latent).flatten(2).transpose(1, 2)
        for layer in self.layers:
            values = layer(values, condition)
        shift, scale = self.modulation(functional.silu(condition)).chunk(2, -1)
        noise: torch.Tensor = self.head(modulate(self.norm(values), shift, scale))
        return noise
