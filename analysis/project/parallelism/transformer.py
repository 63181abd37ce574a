"""A transformer's parameters, FLOP and activations from its sizes, as papers on training them in parallel write them.

A block of width h has 12 h² weights in products, and l blocks over a vocabulary of v with tied embeddings have
12 l h² (1 + 13/(12 h) + (v + s)/(12 l h)) parameters (Narayanan et al., arXiv 2104.04473, equation 2). A step over B
sequences of length s costs 72 B s l h² (1 + s/(6 h) + v/(12 l h)) model FLOP, attention dense (their equation 3 without
its recomputation). Activations kept for the backward pass, 2 bytes an element and 1 a dropout mask, are Korthikanti et
al.'s (arXiv 2205.05198), section 4. Not claimed: other blocks (gated, grouped attention, experts), fp8, fragmentation.
"""

from __future__ import annotations

from dataclasses import dataclass

RECOMPUTE = ("none", "selective", "full")
"""Nothing; the scores of attention; all of a block but its input."""


@dataclass(frozen=True)
class Transformer:
    """layers l, width h, heads a, sequence s, vocabulary v."""

    layers: int
    width: int
    heads: int
    sequence: int
    vocabulary: int

    @property
    def parameters(self) -> float:
        """Weights, biases, normalisations and embeddings of tokens and positions."""
        l, h = self.layers, self.width  # noqa: E741  as in the paper
        return 12 * l * h**2 * (1 + 13 / (12 * h) + (self.vocabulary + self.sequence) / (12 * l * h))

    def forward_flop(self, sequences: float) -> tuple[float, float, float]:
        """Model FLOP of a forward pass: (products of blocks, scores of attention, logits)."""
        tokens = sequences * self.sequence
        blocks = 24 * tokens * self.layers * self.width**2
        scores = 4 * tokens * self.sequence * self.layers * self.width
        return blocks, scores, 2 * tokens * self.width * self.vocabulary

    def step_flop(self, sequences: float) -> float:
        """Model FLOP of forward and backward."""
        return 3 * sum(self.forward_flop(sequences))

    def recomputed_flop(self, sequences: float, recompute: str) -> float:
        """What is computed a second time: nothing, the scores (4 B s² h a block), or all blocks.

        Korthikanti et al.'s equation 8 has three times these 4 B s² h, as if the backward pass of the scores were
        repeated as well; their printed hardware utilizations are of that.
        """
        blocks, scores, _ = self.forward_flop(sequences)
        return {"none": 0.0, "selective": scores, "full": blocks + scores}[recompute]

    def activation_bytes(self, sequences: float, tensor: int, recompute: str, sequence_parallel: bool = True) -> float:
        """Bytes that one block keeps for its backward pass on one device, for so many sequences at once.

        s b h (10 + 24/t + 5 a s/(h t)); with the sequence split s b h/t (34 + 5 a s/h); without the scores, which
        fused attention does not keep either, the last term is 0; of a block that is recomputed only its input is kept.
        """
        base = self.sequence * sequences * self.width
        if recompute == "full":
            return 2 * base / (tensor if sequence_parallel else 1)
        scores = 0.0 if recompute == "selective" else 5 * self.heads * self.sequence / self.width / tensor
        rest = 34 / tensor if sequence_parallel else 10 + 24 / tensor
        return base * (rest + scores)

    def logit_bytes(self, sequences: float, tensor: int) -> float:
        """Logits in fp32, for the loss."""
        return 4 * self.sequence * sequences * self.vocabulary / tensor
