"""Models that no library names, for the table of accounts: a recurrent one, a transformer's encoder, a language model.

    python -m runners.count benchmarks/zoo_models.py:lstm --batch-size 2

Each function gives (module, inputs of one sample); sizes are small enough for every counter on real tensors.
"""

import torch
from torch import nn

STEPS, WIDTH, WORDS = 32, 128, 1000


class Recurrent(nn.Module):
    """A two-layer LSTM over a sequence, and a linear layer on its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, 256, num_layers=2, batch_first=True)
        self.head = nn.Linear(256, 10)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(sequence)
        return self.head(states[:, -1])


class Encoder(nn.Module):
    """torch.nn's own transformer encoder, and a linear layer on the mean of its states."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(256, 10)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(sequence).mean(1))


class Block(nn.Module):
    """Attention with a causal mask by the functional form, and two linear layers, each on a residual path."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.in_projection, self.out_projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        batch, length, width = states.shape
        parts = self.in_projection(self.norms[0](states)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.out_projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return states + self.contract(nn.functional.gelu(self.expand(self.norms[1](states))))


class Gpt(nn.Module):
    """A GPT of four blocks whose output shares its weight with the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, 4) for _ in range(4))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states = self.words(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            states = block(states)
        return self.head(self.norm(states))


def lstm() -> tuple[nn.Module, torch.Tensor]:
    """A batch of sequences of vectors."""
    return Recurrent(), torch.randn(1, STEPS, WIDTH)


def encoder() -> tuple[nn.Module, torch.Tensor]:
    """A batch of sequences of vectors."""
    return Encoder(), torch.randn(1, 64, 256)


def gpt() -> tuple[nn.Module, torch.Tensor]:
    """A batch of token ids."""
    return Gpt(), torch.randint(0, WORDS, (1, 64))
