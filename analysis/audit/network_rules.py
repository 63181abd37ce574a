"""What each framework's formula counts otherwise than the exact count of a network that is no plain decoder.

As in `rules.py`: derived from the formula's source and from sizes of the model, never from its numbers. Raises KeyError
for what no rule knows; the difference is then shown as unexplained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from analysis.audit.architecture import Architecture
from analysis.audit.forms import products, training_flop
from analysis.audit.network import Model, NetworkSizes
from analysis.audit.parts import EXPERTS, MLP, ROUTER, SCORES
from analysis.audit.products import ADAPTERS, CONVOLUTION, MERGER, PATCHES, SCALARS, SCAN, TABLES, Products, ProductTerm
from analysis.audit.profiler_rules import NETWORKS, calflops, deepspeed
from analysis.audit.rules import RULES
from analysis.audit.state_space import channels, heads_of, pattern_of
from analysis.audit.vision import VISION_SCORES, tower

Causes = Mapping[str, int]
NetworkRule = Callable[[NetworkSizes, int], Causes]


def causes_of(model: Model, tokens: int, framework: str) -> Causes:
    """Cause → FLOP. Raises KeyError where there is no rule."""
    if isinstance(model, Architecture):
        return RULES[framework](model, tokens)
    return NETWORK_RULES[framework][model.model_type](model, tokens)


def _of(found: Products, *parts: str) -> int:
    """FLOP of a training step in these parts."""
    return sum(product.training_flop for product in found if product.part in parts)


def everything(network: NetworkSizes, tokens: int) -> Causes:
    """The framework gives 0."""
    return {"not_supported": -training_flop(network, tokens)}


def by_parameters(found: Products, elements: int) -> Causes:
    """6 × parameters but those of tables × the elements of the input: of a picture, its pixels."""
    causes: Counter[str] = Counter()
    for product in found:
        for cause, flop in _parameters_of(product, elements).items():
            causes[cause] += flop
    return causes


def _parameters_of(product: ProductTerm, elements: int) -> Causes:
    if product.part == TABLES:
        return {}
    if product.part == SCALARS:
        return {"parameters_without_product": 6 * elements * product.weights}
    if product.part in LEFT_OUT:
        return {LEFT_OUT[product.part]: -product.training_flop}
    if product.tied:
        return {"head_left_out": -product.training_flop}
    return {
        "all_experts": 6 * elements * product.spare,
        "other_positions": 6 * (elements * (product.weights - product.spare) - product.multiply_adds),
        "gradient_of_input": needless_gradients([product]),
    }


LEFT_OUT = {SCORES: "attention_left_out", VISION_SCORES: "attention_left_out", SCAN: "scan_left_out"}
"""Products without weights."""


def needless_gradients(found: Products) -> int:
    """FLOP of gradients that a formula counts for each product, and that none asks for: two of a trained weight, one
    of a frozen one."""
    return sum(((1 if each.frozen else 2) - each.gradients) * each.forward_flop for each in found)


def transformers(network: NetworkSizes, tokens: int) -> Causes:
    """Trainer's total_flos: the main input is a picture's pixels where there is one alone."""
    elements = network["num_channels"] * network["image_size"] ** 2 if network.model_type == "vit" else tokens
    return by_parameters(products(network, tokens), elements)


def transformers_tower(network: NetworkSizes, tokens: int) -> Causes:
    """Weights of the tower are counted for the decoder's tokens."""
    causes = Counter(RULES["transformers"](network.decoder, tokens))
    causes.update(by_parameters(tower(network), tokens))
    return causes


def lightning(network: NetworkSizes, tokens: int) -> Causes:
    """PyTorch's counter: the gradient of a grouped convolution's weights as one of all channels with all."""
    found = products(network, tokens)
    wide = _convolved(network)
    convolutions = sum(each.forward_flop for each in found if each.part == CONVOLUTION)
    return {"grouped_convolution": convolutions * (wide - 1), "experts_not_seen": -_of(found, EXPERTS)}


def _convolved(network: NetworkSizes) -> int:
    """Channels of the convolution of a state space layer."""
    if network.model_type in ("mamba", "jamba"):
        return network["expand"] * network["hidden_size"]
    return channels(network)[0]


def nothing(network: NetworkSizes, tokens: int) -> Causes:
    """The exact count."""
    return {}


def bridge(network: NetworkSizes, tokens: int) -> Causes:
    """Megatron's hybrids: 7 operations for each state of each position, an inner width of twice the hidden size."""
    found = products(network, tokens)
    layers, inner, state = _mixers(network)
    hidden = network["hidden_size"]
    return {
        "attention_halved": -_of(found, SCORES) // 2,
        "router_left_out": -_of(found, ROUTER),
        "convolution_left_out": -_of(found, CONVOLUTION),
        "state_width": 18 * tokens * hidden * (2 * hidden - inner) * layers,
        "scan_width": 21 * tokens * 2 * hidden * state * layers - _of(found, SCAN),
    }


def _mixers(network: NetworkSizes) -> tuple[int, int, int]:
    """Layers of Mamba-2, their inner width and the states of a channel."""
    heads, head_dim, state = heads_of(network)
    return pattern_of(network).count("M"), heads * head_dim, state


def automodel(network: NetworkSizes, tokens: int) -> Causes:
    """NeMo Automodel's hybrids: all MLPs have a gate, an attention is as wide as the hidden size."""
    found = products(network, tokens)
    layers, inner, state = _mixers(network)
    hidden, attentions = network["hidden_size"], pattern_of(network).count("*")
    heads, kept, head_dim = (network[name] for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    narrow = 2 * hidden * (hidden + hidden * kept // heads) - 2 * hidden * head_dim * (heads + kept)
    widths = narrow + 2 * tokens * (hidden - heads * head_dim)
    return {
        "attention_width": 6 * tokens * attentions * widths,
        "attention_halved": -6 * tokens * tokens * hidden * attentions,
        "gate_added": _of(found, MLP) // 2,
        "convolution_left_out": -_of(found, CONVOLUTION),
        "scan_width": 21 * tokens * inner * state * layers - _of(found, SCAN),
    }


def as_decoder(framework: str) -> NetworkRule:
    """A formula that takes a hybrid for a transformer: attention and an MLP, or experts, in all layers."""

    def rule(network: NetworkSizes, tokens: int) -> Causes:
        taken = _as_transformer(network)
        adapters = _of(products(network, tokens), ADAPTERS)
        difference = training_flop(taken, tokens) - training_flop(network, tokens)
        found = {"adapters_left_out": -adapters, "state_space_as_attention": difference + adapters}
        return {**RULES[framework](taken, tokens), **found}

    return rule


def _as_transformer(network: NetworkSizes) -> Architecture:
    """Of the sizes that a hybrid's configuration has under a transformer's names. All these hybrids' MLPs have a gate;
    experts are in half of the layers, as Jamba's are."""
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")
    sizes = {name: network[name] for name in names}
    heads, experts = network["num_attention_heads"], network.get("n_routed_experts")
    sizes["num_key_value_heads"] = network.get("num_key_value_heads") or heads
    sizes["head_dim"] = network.get("head_dim") or 2 * network["hidden_size"] // heads
    if experts:
        sizes |= {"num_experts": experts, "num_experts_per_tok": network["num_experts_per_tok"]}
        sizes["moe_intermediate_size"] = network["intermediate_size"]
        sizes["first_k_dense_replace"] = network["num_hidden_layers"] - network["num_hidden_layers"] // 2
    return Architecture(network.name, network.family, "mistral", network.source, gated=1, **sizes)


def by_decoder(framework: str) -> NetworkRule:
    """A formula that reads the decoder's sizes alone: full training of it for LoRA."""

    def rule(network: NetworkSizes, tokens: int) -> Causes:
        adapters = _of(products(network, tokens), ADAPTERS)
        frozen = training_flop(network, tokens) - adapters
        return {
            **RULES[framework](network.decoder, tokens),
            "frozen_as_trained": training_flop(network.decoder, tokens) - frozen,
            "adapters_left_out": -adapters,
        }

    return rule


def by_all_parameters(framework: str) -> NetworkRule:
    """A formula that goes by the parameters of the module with its adapters, frozen or not."""

    def rule(network: NetworkSizes, tokens: int) -> Causes:
        adapters = [product for product in products(network, tokens) if product.part == ADAPTERS]
        frozen = training_flop(network, tokens) - _of(adapters, ADAPTERS)
        return {
            **RULES[framework](network.decoder, tokens),
            "frozen_as_trained": training_flop(network.decoder, tokens) - frozen,
            "gradient_of_input": needless_gradients(adapters),
        }

    return rule


def text_alone(framework: str) -> NetworkRule:
    """A formula that reads the decoder's sizes alone, of a model with a tower."""

    def rule(network: NetworkSizes, tokens: int) -> Causes:
        seen = sum(product.training_flop for product in tower(network))
        return {**RULES[framework](network.decoder, tokens), "vision_left_out": -seen}

    return rule


def litgpt(network: NetworkSizes, tokens: int) -> Causes:
    """litgpt: 4 × frozen and 6 × trained parameters; attention for both."""
    causes = dict(RULES["litgpt"](network.decoder, tokens))
    for cause in ("parameters_without_product", "embedding_as_product"):
        causes[cause] = causes[cause] * 2 // 3
    return {**causes, "gradient_of_input": needless_gradients(products(network, tokens))}


def veomni_tower(network: NetworkSizes, tokens: int) -> Causes:
    """VeOmni: the tower's last matrices are counted for each patch, not for each four; its first is left out."""
    found = tower(network)
    merger = sum(product.multiply_adds for product in found if product.part == MERGER)
    return {
        **RULES["veomni"](network.decoder, tokens),
        "patches_left_out": -_of(found, PATCHES),
        "other_positions": 6 * merger * (network["spatial_merge_size"] ** 2 - 1),
    }


def veomni_lora(network: NetworkSizes, tokens: int) -> Causes:
    """VeOmni: LoRA of Qwen's models alone."""
    if network.decoder.model_type != "qwen2":
        return everything(network, tokens)
    return {"gradient_of_input": needless_gradients(products(network, tokens))}


CHUNKED = ("mamba2", "nemotron_h", "bamba")
"""State spaces for which Megatron has a formula."""

STATE_SPACES = (*CHUNKED, "mamba", "jamba", "zamba2")

HUB_TYPES = (*STATE_SPACES, "t5", "bart", "vit")
"""Types of transformers, but those that are built on a decoder of the table."""

EXACT = ("t5", "bart", "vit", "dit", "qwen2_vl", "llava", "lora")
"""Types whose module PyTorch's counter counts exactly."""

NETWORK_RULES: Mapping[str, Mapping[str, NetworkRule]] = {
    "verl": {"lora": by_decoder("verl")} | dict.fromkeys((*HUB_TYPES, "llava"), everything),
    "veomni": {"lora": veomni_lora, "qwen2_vl": veomni_tower} | dict.fromkeys((*HUB_TYPES, "llava"), everything),
    "nemo_automodel": {
        "lora": by_decoder("nemo_automodel"),
        "nemotron_h": automodel,
        **dict.fromkeys(("bamba", "jamba", "zamba2"), as_decoder("nemo_automodel")),
    },
    "megatron_bridge": {
        "lora": by_decoder("megatron_bridge"),
        "qwen2_vl": text_alone("megatron_bridge"),
        "mamba2": bridge,
        "nemotron_h": bridge,
        "bamba": bridge,
    },
    "trl": {"lora": by_decoder("trl"), **dict.fromkeys(("bamba", "zamba2"), as_decoder("trl"))},
    "litgpt": {"lora": litgpt},
    "torchtitan": {"lora": by_all_parameters("torchtitan")},
    "transformers": {
        "lora": by_all_parameters("transformers"),
        "qwen2_vl": transformers_tower,
        "llava": transformers_tower,
        "dit": everything,
    }
    | dict.fromkeys(HUB_TYPES, transformers),
    "lightning": dict.fromkeys(STATE_SPACES, lightning) | dict.fromkeys(EXACT, nothing),
    "deepspeed": dict.fromkeys(NETWORKS, deepspeed),
    "calflops": dict.fromkeys(NETWORKS, calflops),
    "megatron_lm": dict.fromkeys(CHUNKED, bridge),
}
"""Framework → type → rule."""
