"""Products of Mamba-2 and of hybrids with attention (Nemotron-H, Bamba), as transformers' modules run them.

The scan is the chunked one of the state space duality (Dao and Gu, arXiv:2405.21060, section 6): products inside each
chunk of positions, and a small one over the chunks. Positions are padded to whole chunks, and so is their count here.
Each head has its own scores, although heads of a group share keys: a kernel that shares them computes less.
"""

from __future__ import annotations

from analysis.audit.network import NetworkSizes
from analysis.audit.parts import DENSE, EXPERTS, HEAD, MLP, PROJECTIONS, ROUTER, SHARED
from analysis.audit.products import CONVOLUTION, SCAN, Products, ProductTerm, linear, scalars, scores, table, with_table


def mamba2(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """Layers of Mamba-2 alone."""
    hidden, words = network["hidden_size"], network["vocab_size"] * network["hidden_size"]
    sizes = {"state": network["state_size"], "heads": network["num_heads"], "head_dim": network["head_dim"]}
    head = linear(HEAD, words, tokens)
    return [
        *mixer(network, tokens, network["num_hidden_layers"], attention, **sizes),
        with_table(head) if network.get("tie_word_embeddings") else head,
        scalars(hidden * (network["num_hidden_layers"] + 1)),
        table(words),
    ]


def pattern_of(network: NetworkSizes) -> str:
    """A letter for each mixer, one after the other: M Mamba-2, * attention, - MLP, E experts. A layer of Bamba is two
    of them: Mamba-2 or, where `attn_layer_indices` says so, attention; and an MLP."""
    if network.model_type == "bamba":
        attentions = [int(index) for index in network.words["attn_layer_indices"].split("+")]
        return "".join("*-" if index in attentions else "M-" for index in range(network["num_hidden_layers"]))
    return network.words.get("hybrid_override_pattern") or "M" * network["num_hidden_layers"]


def hybrid(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """By the letters of its pattern, a normalisation before each."""
    pattern, hidden = pattern_of(network), network["hidden_size"]
    words, matrices = network["vocab_size"] * hidden, 3 if network.get("gated") else 2
    sizes = {
        "state": network["ssm_state_size"],
        "heads": network["mamba_num_heads"],
        "head_dim": network["mamba_head_dim"],
    }
    return [
        *mixer(network, tokens, pattern.count("M"), attention, **sizes),
        *_attention(network, tokens, pattern.count("*"), attention),
        linear(MLP, matrices * hidden * network["intermediate_size"], tokens, pattern.count("-")),
        *_experts(network, tokens, pattern.count("E")),
        linear(HEAD, words, tokens),
        scalars(hidden * (len(pattern) + 1)),
        table(words),
    ]


def mixer(
    network: NetworkSizes, tokens: int, layers: int, attention: str, *, state: int, heads: int, head_dim: int
) -> Products:
    """So many layers of Mamba-2. Scalars: biases of the convolution and of the time step, A, D and a normalisation."""
    hidden, inner = network["hidden_size"], heads * head_dim
    kernel, channels = network["conv_kernel"], inner + 2 * network["n_groups"] * state
    reach = tokens + kernel - 1  # the convolution is padded on both sides, and its end is cut off
    return [
        linear(PROJECTIONS, hidden * (inner + channels + heads) + inner * hidden, tokens, layers),
        ProductTerm(CONVOLUTION, layers * channels * kernel * reach, layers * channels * kernel),
        scan(tokens, network["chunk_size"], layers, attention, state=state, heads=heads, head_dim=head_dim),
        scalars(layers * (channels + 3 * heads + inner)),
    ]


def scan(tokens: int, chunk: int, layers: int, attention: str, *, state: int, heads: int, head_dim: int) -> ProductTerm:
    """Its five products: scores and values in a chunk, the chunks' states, those states summed over the chunks before,
    and what they give to each position. Conventions other than dense keep the pairs of a chunk up to the diagonal."""
    chunks = -(-tokens // chunk)
    inside = chunk * chunk if attention == DENSE else chunk * (chunk + 1) // 2
    in_chunks = chunks * (inside * (state + head_dim) + 2 * chunk * head_dim * state)
    over_chunks = (chunks + 1) ** 2 * head_dim * state
    return ProductTerm(SCAN, layers * heads * (in_chunks + over_chunks))


def _attention(network: NetworkSizes, tokens: int, layers: int, attention: str) -> Products:
    queries = network["num_attention_heads"] * network["head_dim"]
    kept = network["num_key_value_heads"] * network["head_dim"]
    return [
        linear(PROJECTIONS, network["hidden_size"] * 2 * (queries + kept), tokens, layers),
        scores(tokens, tokens, 2 * queries, layers, attention),
    ]


def _experts(network: NetworkSizes, tokens: int, layers: int) -> Products:
    """Experts without a gate, and one that every token uses."""
    if not layers:
        return []
    hidden, experts, active = network["hidden_size"], network["n_routed_experts"], network["num_experts_per_tok"]
    one = 2 * hidden * network["moe_intermediate_size"] * layers
    return [
        linear(ROUTER, hidden * experts, tokens, layers),
        ProductTerm(EXPERTS, one * active * tokens, one * experts, spare=one * (experts - active)),
        linear(SHARED, 2 * hidden * network["moe_shared_expert_intermediate_size"], tokens, layers),
    ]
