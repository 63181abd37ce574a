"""The closed form of each type of model, and what a training step of one sequence costs by it.

Not claimed: communication, the optimizer, recomputation; a trace counts those.
"""

from __future__ import annotations

from collections.abc import Mapping

from analysis.audit.architecture import Architecture
from analysis.audit.encoder_decoder import bart, t5
from analysis.audit.network import Model, NetworkSizes
from analysis.audit.parts import DENSE, HEAD, MLP, PROJECTIONS, SCORES, forward
from analysis.audit.products import ADAPTERS, Form, Products, ProductTerm, by_part
from analysis.audit.state_space import hybrid, jamba, mamba, mamba2, zamba2
from analysis.audit.vision import dit, tower, vit


def vision_language(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """A tower, and a decoder whose tokens are the picture's and the text's."""
    return [*tower(network), *_decoder(network.decoder, tokens, attention)]


def _decoder(model: Architecture, tokens: int, attention: str) -> Products:
    return [ProductTerm(part, flop // 2) for part, flop in forward(model, tokens, attention).items()]


def lora(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """Hu et al., arXiv:2106.09685: a frozen decoder, and two thin matrices beside each of its targets.

    A frozen matrix hands the gradient of its input on, and has none of its own. Embeddings are frozen too, so that in
    the first layer nothing before the queries, keys and values asks for a gradient. targets: "all" matrices of a
    layer, or those of "attention".
    """
    model = network.decoder
    found: list[ProductTerm] = []
    for name, (taken, given) in matrices(model).items():
        part = PROJECTIONS if name in FIRST else MLP
        first = name in BEFORE_SCORES
        found += [
            _frozen(part, taken * given * tokens, gradients=0 if first else 1),
            _frozen(part, taken * given * tokens * (model.num_hidden_layers - 1), gradients=1),
        ]
        if name in FIRST or network.words["targets"] == "all":
            found += _adapter(network["rank"], taken, given, tokens, model.num_hidden_layers, first)
    head = model.hidden_size * model.vocab_size * tokens
    pairs = forward(model, tokens, attention)[SCORES] // 2
    return [*found, ProductTerm(SCORES, pairs), _frozen(HEAD, head, gradients=1)]


FIRST = ("q_proj", "k_proj", "v_proj", "o_proj")
"""The matrices of an attention."""

BEFORE_SCORES = FIRST[:3]


def matrices(model: Architecture) -> Mapping[str, tuple[int, int]]:
    """Name of a layer's matrix → sizes of what it takes and gives. Of decoders whose MLP has a gate."""
    hidden, wide = model.hidden_size, model.intermediate_size
    queries, kept = model.num_attention_heads * model.head_dim, model.num_key_value_heads * model.head_dim
    return {
        "q_proj": (hidden, queries),
        "k_proj": (hidden, kept),
        "v_proj": (hidden, kept),
        "o_proj": (queries, hidden),
        "gate_proj": (hidden, wide),
        "up_proj": (hidden, wide),
        "down_proj": (wide, hidden),
    }


def _frozen(part: str, multiply_adds: int, gradients: int) -> ProductTerm:
    return ProductTerm(part, multiply_adds, gradients=gradients, frozen=True)


def _adapter(rank: int, taken: int, given: int, tokens: int, layers: int, first: bool) -> list[ProductTerm]:
    """In all layers. first: what it takes asks for no gradient in the first of them."""
    down, up = taken * rank, rank * given
    return [
        ProductTerm(ADAPTERS, down * tokens, down, gradients=1 if first else 2),
        ProductTerm(ADAPTERS, down * tokens * (layers - 1), down * (layers - 1)),
        ProductTerm(ADAPTERS, up * tokens * layers, up * layers),
    ]


FORMS: Mapping[str, Form] = {
    "mamba": mamba,
    "mamba2": mamba2,
    "nemotron_h": hybrid,
    "bamba": hybrid,
    "jamba": jamba,
    "zamba2": zamba2,
    "t5": t5,
    "bart": bart,
    "vit": vit,
    "dit": dit,
    "qwen2_vl": vision_language,
    "llava": vision_language,
    "lora": lora,
}
"""Type of a network → its closed form."""


def products(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """All of a network's. Raises ValueError for a type without a form."""
    if network.model_type not in FORMS:
        raise ValueError(f"expected a type with a closed form ({', '.join(FORMS)}), got {network.model_type!r}")
    return FORMS[network.model_type](network, tokens, attention)


def forward_parts(model: Model, tokens: int, attention: str = DENSE) -> Mapping[str, int]:
    """Part → FLOP of the forward pass of one sequence."""
    if isinstance(model, Architecture):
        return forward(model, tokens, attention)
    return by_part(products(model, tokens, attention))


def backward_flop(model: Model, tokens: int, attention: str = DENSE) -> int:
    """Of one sequence. All weights of a plain decoder are trained, and its embeddings ask for their gradient."""
    if isinstance(model, Architecture):
        return 2 * sum(forward(model, tokens, attention).values())
    return sum(product.backward_flop for product in products(model, tokens, attention))


def training_flop(model: Model, tokens: int, attention: str = DENSE) -> int:
    """Forward and backward."""
    return sum(forward_parts(model, tokens, attention).values()) + backward_flop(model, tokens, attention)
