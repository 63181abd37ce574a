"""A mixture of experts by its parts, and the products of an optimizer, against closed forms."""

import pytest
import torch
import transformers
from torch import nn

import flopledger

WIDTH, INNER, LAYERS, EXPERTS, CHOSEN, TOKENS = 32, 24, 2, 8, 2, 2 * 12
SIZES = {
    "hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 50,
}  # fmt: skip


def test_router_and_experts_apart() -> None:
    """A router is WIDTH × EXPERTS, an expert three products of WIDTH × INNER; a token meets CHOSEN of them."""
    config = transformers.Qwen3MoeConfig(
        **SIZES, num_experts=EXPERTS, num_experts_per_tok=CHOSEN, moe_intermediate_size=INNER
    )
    model: nn.Module = transformers.Qwen3MoeForCausalLM(config)
    found = flopledger.count(model, torch.randint(0, 50, (2, 12)), loss_of=lambda output: output.logits).mixture
    expert = 3 * WIDTH * INNER
    assert found.router_flop == LAYERS * 2 * TOKENS * WIDTH * EXPERTS
    assert found.experts_flop == found.chosen_flop == LAYERS * 2 * TOKENS * CHOSEN * expert
    assert (found.shared_flop, found.padding_flop) == (0, 0)
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.active_parameters == found.parameters - LAYERS * (EXPERTS - CHOSEN) * expert
    assert (found.experts, found.experts_per_token) == (EXPERTS, CHOSEN)


class Config:
    """Of a model of one's own."""

    num_experts, num_experts_per_tok = 4, 1


class Padded(nn.Module):
    """Four experts with room for `capacity` tokens each, and a shared one."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.config, self.capacity = Config(), capacity
        self.router, self.shared_expert = nn.Linear(8, 4, bias=False), nn.Linear(8, 8, bias=False)
        self.experts = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = x.new_zeros(self.capacity, 8) + x[:1]
        ran = sum(expert(place).sum() for expert in self.experts)
        return self.router(x).sum() + self.shared_expert(x).sum() + ran


@pytest.mark.parametrize("capacity", [3, 2, 1])
def test_padding_and_dropped_tokens(capacity: int) -> None:
    """Eight tokens of which each has one expert: room for twelve is padding of four, for four drops four."""
    found = flopledger.count(Padded(capacity), torch.randn(8, 8)).mixture
    assert found.shared_flop == 2 * 8 * 64
    assert found.chosen_flop == 2 * 8 * 64
    assert found.padding_flop == 2 * (4 * capacity - 8) * 64
    assert found.active_parameters == 32 + 64 + 64


def test_a_model_without_experts_has_no_mixture_and_muon_has_products() -> None:
    """Muon's five Newton-Schulz steps on 16 × 32: X Xᵀ, its square, and that by X; SGD has none."""
    model = nn.Linear(32, 16, bias=False)
    plain, muon = (
        flopledger.count(model, torch.randn(4, 32), optimizer=each) for each in (torch.optim.SGD, torch.optim.Muon)
    )
    assert plain.mixture is None
    assert plain.optimizer_model_flop == 0
    assert muon.optimizer_model_flop == 5 * 2 * (16 * 16 * 32 + 16**3 + 16 * 16 * 32)
    assert muon.model_flop == plain.model_flop
    assert flopledger.count(model, torch.randn(4, 32)).optimizer_model_flop is None
