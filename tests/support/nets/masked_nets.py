"""A module with attention under a mask that is learnt; and one around such a model."""

import torch


class Biased(torch.nn.Module):
    """Attention over 8 tokens of 16 numbers, with 2 heads. PyTorch runs it in parts on a CPU, CUDA may have one
    kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.bias = torch.nn.Linear(16, 48), torch.nn.Parameter(torch.zeros(8, 8))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        queries, keys, values = self.inputs(tokens).view(-1, 8, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=self.bias)


def build() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    """The first model and a batch of 2."""
    return Biased(), (torch.randn(2, 8, 16),)
