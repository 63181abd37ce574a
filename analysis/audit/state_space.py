"""Products of Mamba, Mamba-2 and of hybrids with attention (Jamba; Nemotron-H, Bamba, Zamba2), as transformers'
modules run them.

Mamba's scan (Gu and Dao, arXiv:2312.00752) has one product: what each position reads from its states. Mamba-2's is the
chunked one of the state space duality (Dao and Gu, arXiv:2405.21060, section 6): products inside each
chunk of positions, and a small one over the chunks. Positions are padded to whole chunks, and so is their count here.
Each head has its own scores, although heads of a group share keys: a kernel that shares them computes less.
"""

from __future__ import annotations

from analysis.audit.network import NetworkSizes
from analysis.audit.parts import DENSE, EXPERTS, HEAD, MLP, PROJECTIONS, ROUTER, SHARED
from analysis.audit.products import (
    ADAPTERS,
    CONVOLUTION,
    SCAN,
    TIME_STEP,
    Products,
    ProductTerm,
    linear,
    scalars,
    scores,
    table,
    with_table,
)


def mamba(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """Layers of Mamba alone. attention: no mask is in it."""
    hidden, layers = network["hidden_size"], network["num_hidden_layers"]
    words = network["vocab_size"] * hidden
    return [
        *selective(network, tokens, layers),
        with_table(linear(HEAD, words, tokens)),
        scalars(hidden * (layers + 1)),
        table(words),
    ]


def selective(network: NetworkSizes, tokens: int, layers: int) -> Products:
    """So many layers of Mamba. Scalars: biases of the convolution and of the time step, A and D."""
    hidden, state, rank = network["hidden_size"], network["state_size"], network["time_step_rank"]
    inner, kernel = network["expand"] * hidden, network["conv_kernel"]
    reach = tokens + kernel - 1  # the convolution is padded on both sides, and its end is cut off
    return [
        linear(PROJECTIONS, 3 * hidden * inner + inner * (rank + 2 * state), tokens, layers),
        linear(TIME_STEP, rank * inner, tokens, layers),
        ProductTerm(CONVOLUTION, layers * inner * kernel * reach, layers * inner * kernel),
        ProductTerm(SCAN, layers * inner * state * tokens),
        scalars(layers * inner * (state + 3)),
    ]


def jamba(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """Mamba or, once in a period, attention; after each an MLP or, once in a period, experts. Its layers of Mamba
    normalise the time step and what reads and writes the states."""
    hidden, layers = network["hidden_size"], network["num_hidden_layers"]
    words = network["vocab_size"] * hidden
    mlp = 3 * hidden * network["intermediate_size"]
    attentions, of_experts = periodic(network, "attn_layer"), periodic(network, "expert_layer")
    return [
        *selective(network, tokens, layers - attentions),
        scalars((layers - attentions) * (network["time_step_rank"] + 2 * network["state_size"])),
        *_attention(network, tokens, attentions, attention),
        linear(MLP, mlp, tokens, layers - of_experts),
        *routed(network, tokens, of_experts, mlp),
        linear(HEAD, words, tokens),
        scalars(hidden * (2 * layers + 1)),
        table(words),
    ]


def periodic(network: NetworkSizes, name: str) -> int:
    """How many layers are of a kind of which each period has one."""
    return len(range(network[f"{name}_offset"], network["num_hidden_layers"], network[f"{name}_period"]))


def zamba2(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """Mamba-2 in all layers; before some of them one of a few shared blocks, whose attention sees the layer's input
    and the embedding, and whose matrices have thin ones of each layer's own beside them (arXiv:2411.15242)."""
    hidden, layers = network["hidden_size"], network["num_hidden_layers"]
    words = network["vocab_size"] * hidden
    uses, blocks, rank = len(network.indices("hybrid_layer_ids")), network["num_mem_blocks"], network["adapter_rank"]
    wide, inside = 2 * hidden, network["intermediate_size"]
    attended, mlp = 3 * wide * wide + wide * hidden, 3 * hidden * inside
    adapters = rank * (hidden + 2 * inside) + 6 * rank * wide * network["use_shared_attention_adapter"]
    return [
        *mixer(network, tokens, layers, attention),
        ProductTerm(PROJECTIONS, uses * attended * tokens, blocks * attended),
        scores(tokens, tokens, 2 * wide, uses, attention),
        ProductTerm(MLP, uses * mlp * tokens, blocks * mlp),
        linear(ADAPTERS, adapters, tokens, uses),
        linear(PROJECTIONS, hidden * hidden, tokens, uses),
        with_table(linear(HEAD, words, tokens)),
        scalars(hidden * (layers + 1) + blocks * (wide + hidden)),
        table(words),
    ]


def mamba2(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """Layers of Mamba-2 alone."""
    hidden, words = network["hidden_size"], network["vocab_size"] * network["hidden_size"]
    head = linear(HEAD, words, tokens)
    return [
        *mixer(network, tokens, network["num_hidden_layers"], attention),
        with_table(head) if network.get("tie_word_embeddings") else head,
        scalars(hidden * (network["num_hidden_layers"] + 1)),
        table(words),
    ]


def pattern_of(network: NetworkSizes) -> str:
    """A letter for each mixer, one after the other: M Mamba-2, * attention, - MLP, E experts. A layer of Bamba is two
    of them: Mamba-2 or, where `attn_layer_indices` says so, attention; and an MLP."""
    if network.model_type == "bamba":
        attentions = network.indices("attn_layer_indices")
        return "".join("*-" if index in attentions else "M-" for index in range(network["num_hidden_layers"]))
    return network.words.get("hybrid_override_pattern") or "M" * network["num_hidden_layers"]


def hybrid(network: NetworkSizes, tokens: int, attention: str = DENSE) -> Products:
    """By the letters of its pattern, a normalisation before each."""
    pattern, hidden = pattern_of(network), network["hidden_size"]
    words, matrices = network["vocab_size"] * hidden, 3 if network.get("gated") else 2
    return [
        *mixer(network, tokens, pattern.count("M"), attention),
        *_attention(network, tokens, pattern.count("*"), attention),
        linear(MLP, matrices * hidden * network["intermediate_size"], tokens, pattern.count("-")),
        *_experts(network, tokens, pattern.count("E")),
        linear(HEAD, words, tokens),
        scalars(hidden * (len(pattern) + 1)),
        table(words),
    ]


def mixer(network: NetworkSizes, tokens: int, layers: int, attention: str) -> Products:
    """So many layers of Mamba-2. Scalars: biases of the convolution and of the time step, A, D and a normalisation."""
    hidden, kernel = network["hidden_size"], network["conv_kernel"]
    heads, head_dim, state = heads_of(network)
    wide, inner = channels(network)
    reach = tokens + kernel - 1  # the convolution is padded on both sides, and its end is cut off
    return [
        linear(PROJECTIONS, hidden * (inner + wide + heads) + inner * hidden, tokens, layers),
        ProductTerm(CONVOLUTION, layers * wide * kernel * reach, layers * wide * kernel),
        scan(tokens, network["chunk_size"], layers, attention, state=state, heads=heads, head_dim=head_dim),
        scalars(layers * (wide + 3 * heads + inner)),
    ]


def scan(tokens: int, chunk: int, layers: int, attention: str, *, state: int, heads: int, head_dim: int) -> ProductTerm:
    """Its five products: scores and values in a chunk, the chunks' states, those states summed over the chunks before,
    and what they give to each position. Conventions other than dense keep the pairs of a chunk up to the diagonal."""
    inside = chunk * chunk if attention == DENSE else chunk * (chunk + 1) // 2
    of_head = scan_of_head(tokens, chunk, inside, state, head_dim)
    return ProductTerm(SCAN, layers * heads * sum(of_head))


def scan_of_head(tokens: int, chunk: int, inside: int, state: int, head_dim: int) -> tuple[int, ...]:
    """Multiply-adds of the five products of a scan, in their order. inside: pairs of positions of a chunk."""
    chunks = -(-tokens // chunk)
    by_states = chunks * chunk * head_dim * state
    over_chunks = (chunks + 1) ** 2 * head_dim * state
    return chunks * inside * state, chunks * inside * head_dim, by_states, over_chunks, by_states


def scan_products(network: NetworkSizes, tokens: int) -> list[int]:
    """Multiply-adds of the five products of one layer's scan."""
    heads, head_dim, state = heads_of(network)
    chunk = network["chunk_size"]
    return [heads * one for one in scan_of_head(tokens, chunk, chunk * chunk, state, head_dim)]


def heads_of(network: NetworkSizes) -> tuple[int, int, int]:
    """Of a layer of Mamba-2: heads, their width, and states of a channel."""
    if network.model_type == "mamba2":
        return network["num_heads"], network["head_dim"], network["state_size"]
    return network["mamba_num_heads"], network["mamba_head_dim"], network["ssm_state_size"]


def channels(network: NetworkSizes) -> tuple[int, int]:
    """Of a layer of Mamba-2: channels of its convolution, and its inner width."""
    heads, head_dim, state = heads_of(network)
    return heads * head_dim + 2 * network["n_groups"] * state, heads * head_dim


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
    hidden = network["hidden_size"]
    return [
        *routed(network, tokens, layers, 2 * hidden * network["moe_intermediate_size"]),
        linear(SHARED, 2 * hidden * network["moe_shared_expert_intermediate_size"], tokens, layers),
    ]


def routed(network: NetworkSizes, tokens: int, layers: int, one: int) -> Products:
    """A router and its experts. one: weights of an expert."""
    experts, active = network["n_routed_experts"], network["num_experts_per_tok"]
    all_layers = one * layers
    return [
        linear(ROUTER, network["hidden_size"] * experts, tokens, layers),
        ProductTerm(EXPERTS, all_layers * active * tokens, all_layers * experts, spare=all_layers * (experts - active)),
    ]
