"""What the profilers that wrap torch's functions count otherwise than the exact count: DeepSpeed's and calflops.

Both count a forward pass by the functions of torch that the model's module calls, and take three times that for a
training step. Products by the wrapped functions are exact; beside them an operation is counted for each element of some
activations and normalisations. Derived from the profilers' functions and from the calls of transformers' modules,
which call some activations by a name that was taken before the profile, where neither sees them. Raises KeyError for a
type of model that is not listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from analysis.audit.architecture import Architecture
from analysis.audit.encoder_decoder import target
from analysis.audit.forms import products
from analysis.audit.network import Model, NetworkSizes
from analysis.audit.parts import EXPERTS, SCORES, forward
from analysis.audit.products import TIME_STEP, Products, ProductTerm
from analysis.audit.state_space import channels, pattern_of, periodic, scan_products
from analysis.audit.vision import VISION_SCORES

Elements = Mapping[str, int]
"""Cause → FLOP of the forward pass, of which each element of a tensor has the same number."""

STEP = 3
"""Forward passes that a training step is taken for."""

ACTIVATIONS, NORMALISATIONS, SOFTMAX, BIASES, EINSUM = (
    "activations_counted",
    "normalisations_counted",
    "softmax_counted",
    "biases_counted",
    "einsum_rounded",
)

AFFINE, PLAIN = 5, 4
"""FLOP for each element of a normalisation with weights, and without."""


def deepspeed(model: Model, tokens: int) -> Mapping[str, int]:
    """DeepSpeed's flops profiler: grouped products are not seen."""
    return _profiled(model, tokens, {EXPERTS: "experts_not_seen"})


def calflops(model: Model, tokens: int) -> Mapping[str, int]:
    """calflops: fused attention and the operator `@` are not seen, either. gpt-oss' attention is not fused."""
    unseen = {EXPERTS: "experts_not_seen", TIME_STEP: "operator_not_seen"}
    fused = {} if model.model_type == "gpt_oss" else dict.fromkeys((SCORES, VISION_SCORES), "attention_left_out")
    return _profiled(model, tokens, unseen | fused)


def _profiled(model: Model, tokens: int, unseen: Mapping[str, str]) -> Mapping[str, int]:
    """unseen: part of the model that is not counted → cause."""
    causes: Counter[str] = Counter()
    for product in _products(model, tokens):
        if product.part in unseen:
            causes[unseen[product.part]] -= product.training_flop
            continue
        spare = (2 - product.gradients) * product.forward_flop
        trained = product.forward_flop if product.frozen else 0
        causes["frozen_as_trained"] += trained
        causes["gradient_of_input"] += spare - trained
    for cause, flop in elements(model, tokens).items():
        causes[cause] += STEP * flop
    return causes


def _products(model: Model, tokens: int) -> Products:
    if isinstance(model, NetworkSizes):
        return products(model, tokens)
    return [ProductTerm(part, flop // 2) for part, flop in forward(model, tokens).items()]


def elements(model: Model, tokens: int) -> Elements:
    """What is counted beside products."""
    if isinstance(model, NetworkSizes):
        return NETWORKS[model.model_type](model, tokens)
    return DECODERS[model.model_type](model, tokens)


def _gated(model: Architecture, tokens: int) -> dict[str, int]:
    """SiLU, or nanochat's squared ReLU, inside each MLP that a token goes through."""
    experts = (model.num_experts_per_tok + model.shared_experts) * model.moe_intermediate_size * model.moe_layers
    return {ACTIVATIONS: tokens * (model.intermediate_size * model.dense_layers + experts)}


def _routed(model: Architecture, tokens: int) -> Elements:
    """A softmax of all experts."""
    return _gated(model, tokens) | {SOFTMAX: tokens * model.num_experts * model.moe_layers}


def _open_weights(model: Architecture, tokens: int) -> Elements:
    """gpt-oss: a softmax of the experts that are chosen, and one of the scores and a sink for each head; its gate is
    of functions that are not wrapped."""
    scores = (tokens + 1) * tokens * model.num_attention_heads * model.num_hidden_layers
    return {SOFTMAX: tokens * model.num_experts_per_tok * model.num_hidden_layers + scores}


def _normalised(model: Architecture, tokens: int, times: int) -> dict[str, int]:
    return {NORMALISATIONS: AFFINE * times * tokens * model.hidden_size}


def _gpt2(model: Architecture, tokens: int) -> Elements:
    """Two normalisations a layer and one at the end. A linear layer is an addmm there, the elements of whose bias are
    counted, for one position."""
    biases = model.num_hidden_layers * (5 * model.hidden_size + model.intermediate_size)
    return _normalised(model, tokens, 2 * model.num_hidden_layers + 1) | {BIASES: biases}


def _bert(model: Architecture, tokens: int) -> Elements:
    """Of the embeddings, two a layer, and of the head."""
    return _normalised(model, tokens, 2 * model.num_hidden_layers + 2)


def _modernbert(model: Architecture, tokens: int) -> Elements:
    """Of the embeddings, two a layer but one in the first, at the end, and of the head."""
    return _normalised(model, tokens, 2 * model.num_hidden_layers + 2)


DECODERS: Mapping[str, Callable[[Architecture, int], Elements]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "nanochat", "deepseek_v3"), _gated),
    **dict.fromkeys(("mixtral", "qwen3_moe"), _routed),
    "gemma3_text": lambda model, tokens: {},
    "gpt_oss": _open_weights,
    "gpt2": _gpt2,
    "bert": _bert,
    "modernbert": _modernbert,
}
"""Type → what is counted beside products."""


def _mixers(network: NetworkSizes, tokens: int, layers: int) -> Elements:
    """So many layers of Mamba-2: SiLU behind the convolution and of the gate, the convolution's bias, einsums."""
    wide, inner = channels(network)
    products_of_scan = scan_products(network, tokens)
    return {
        ACTIVATIONS: layers * tokens * (wide + inner),
        BIASES: layers * wide * (tokens + network["conv_kernel"] - 1),
        EINSUM: layers * sum(rounded(2 * multiply_adds) - 2 * multiply_adds for multiply_adds in products_of_scan),
    }


def rounded(flop: int) -> int:
    """What both profilers read of numpy's report of an einsum: one more, with four digits."""
    return int(float(f"{flop + 1:.3e}"))


def added_causes(one: Elements, other: Elements) -> Elements:
    """Both, added up cause by cause."""
    return {cause: one.get(cause, 0) + other.get(cause, 0) for cause in (*one, *other)}


def _mamba2(network: NetworkSizes, tokens: int) -> Elements:
    return _mixers(network, tokens, network["num_hidden_layers"])


def _hybrid(network: NetworkSizes, tokens: int) -> Elements:
    """Nemotron-H's squared ReLU, Bamba's SiLU: one an element inside each MLP and expert."""
    pattern = pattern_of(network)
    experts = network.get("num_experts_per_tok") * network.get("moe_intermediate_size")
    experts += network.get("moe_shared_expert_intermediate_size")
    inside = pattern.count("-") * network["intermediate_size"] + pattern.count("E") * experts
    return added_causes(_mixers(network, tokens, pattern.count("M")), {ACTIVATIONS: tokens * inside})


def _zamba2(network: NetworkSizes, tokens: int) -> Elements:
    """Its blocks' GELU is called by a name that was taken before."""
    return _mixers(network, tokens, network["num_hidden_layers"])


def _selective(network: NetworkSizes, tokens: int, layers: int) -> Elements:
    """So many layers of Mamba: SiLU behind the convolution and of the gate, the convolution's bias."""
    inner = network["expand"] * network["hidden_size"]
    reach = tokens + network["conv_kernel"] - 1
    return {ACTIVATIONS: layers * 2 * inner * tokens, BIASES: layers * inner * reach}


def _mamba(network: NetworkSizes, tokens: int) -> Elements:
    return _selective(network, tokens, network["num_hidden_layers"])


def _jamba(network: NetworkSizes, tokens: int) -> Elements:
    """SiLU in MLPs and experts, and a softmax of all experts."""
    layers, of_experts = network["num_hidden_layers"], periodic(network, "expert_layer")
    mlps = layers - of_experts + of_experts * network["num_experts_per_tok"]
    beside = {
        ACTIVATIONS: tokens * network["intermediate_size"] * mlps,
        SOFTMAX: tokens * network["n_routed_experts"] * of_experts,
    }
    return added_causes(_selective(network, tokens, layers - periodic(network, "attn_layer")), beside)


def _t5(network: NetworkSizes, tokens: int) -> Elements:
    """ReLU; the gated versions' GELU is of functions that are not wrapped."""
    is_gated = "gated" in network.words["feed_forward_proj"]
    inside = network["d_ff"] * network["num_layers"] * (tokens + target(tokens))
    return {} if is_gated else {ACTIVATIONS: inside}


def _bart(network: NetworkSizes, tokens: int) -> Elements:
    """Two normalisations a layer of the encoder, three of the decoder, and one of each one's embeddings."""
    before, after = 2 * network["encoder_layers"] + 1, 3 * network["decoder_layers"] + 1
    return {NORMALISATIONS: AFFINE * network["d_model"] * (before * tokens + after * target(tokens))}


def _vit(network: NetworkSizes, tokens: int) -> Elements:
    positions, hidden = network["positions"], network["hidden_size"]
    return {
        NORMALISATIONS: AFFINE * positions * hidden * (2 * network["num_hidden_layers"] + 1),
        BIASES: (positions - 1) * hidden,
    }


def _dit(network: NetworkSizes, tokens: int) -> Elements:
    """SiLU of the condition in each layer, at the end, and in the time step's embedding; GELU in each MLP."""
    positions, hidden, depth = network["positions"], network["hidden_size"], network["depth"]
    return {
        ACTIVATIONS: hidden * (depth + 2) + positions * network["mlp_ratio"] * hidden * depth,
        NORMALISATIONS: PLAIN * positions * hidden * (2 * depth + 1),
        BIASES: positions * hidden,
    }


def _qwen2_vl(network: NetworkSizes, tokens: int) -> Elements:
    """Two normalisations a layer of the tower, and one and a GELU of what merges patches."""
    wide = network["patches"] * network["embed_dim"]
    of_tower = {ACTIVATIONS: wide, NORMALISATIONS: AFFINE * wide * (2 * network["depth"] + 1)}
    return added_causes(elements(network.decoder, tokens), of_tower)


def _llava(network: NetworkSizes, tokens: int) -> Elements:
    """Two normalisations a layer of the tower, one before, and one of the class token after. Its GELU are of functions
    that are not wrapped, or of a name that was taken before."""
    normalised = (network["patches"] + 1) * (2 * network["num_hidden_layers"] + 1) + 1
    return added_causes(
        elements(network.decoder, tokens), {NORMALISATIONS: AFFINE * normalised * network["hidden_size"]}
    )


NETWORKS: Mapping[str, Callable[[NetworkSizes, int], Elements]] = {
    "mamba": _mamba,
    "mamba2": _mamba2,
    "nemotron_h": _hybrid,
    "bamba": _hybrid,
    "jamba": _jamba,
    "zamba2": _zamba2,
    "t5": _t5,
    "bart": _bart,
    "vit": _vit,
    "dit": _dit,
    "qwen2_vl": _qwen2_vl,
    "llava": _llava,
    "lora": lambda network, tokens: elements(network.decoder, tokens),
}
"""Type of a network → what is counted beside products."""
