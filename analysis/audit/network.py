"""Configurations of the audit that are no plain decoder: their sizes by name, and the decoder they are built on.

`sizes` has the names of transformers' configurations and, where there is none, of the model's own paper; layers in a
pattern are a word of letters, as the makers of such models write them. Not claimed: a form for every type.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from analysis.audit.architecture import Architecture, architectures, configuration

TABLE = Path(__file__).with_name("networks.csv")

FIXED = ("vit", "dit")
"""Types whose number of positions is that of one image, whatever is asked for."""


@dataclass(frozen=True)
class NetworkSizes:
    """name: of the configuration; base: the decoder inside, None where there is none. Raises KeyError for a size that
    the configuration does not have."""

    name: str
    family: str
    model_type: str
    source: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    base: Architecture | None = None

    def __getitem__(self, name: str) -> int:
        return self.sizes[name]

    def get(self, name: str) -> int:
        """A size that is 0 where it is not named."""
        return self.sizes.get(name, 0)

    def indices(self, name: str) -> list[int]:
        """Those of the layers that a word names."""
        return [int(index) for index in self.words[name].split("+")]

    @property
    def positions(self) -> int:
        """The longest sequence; 0: any length."""
        return self.get("positions") or (self.base.positions if self.base else 0)

    @property
    def is_fixed(self) -> bool:
        """One image has `positions` positions, and no other number of them can be asked for."""
        return self.model_type in FIXED

    @property
    def decoder(self) -> Architecture:
        """The decoder inside. Raises ValueError where there is none."""
        if self.base is None:
            raise ValueError(f"{self.name}: expected a model that is built on a decoder, got {self.model_type}")
        return self.base


Model = Architecture | NetworkSizes


@cache
def networks() -> dict[str, NetworkSizes]:
    """Name → configuration, in the order of the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["name"]: _read(row) for row in rows}


def _read(row: Mapping[str, str]) -> NetworkSizes:
    pairs = [each.split("=", 1) for each in row["sizes"].split()]
    return NetworkSizes(
        name=row["name"],
        family=row["family"],
        model_type=row["model_type"],
        source=row["source"],
        sizes={name: int(value) for name, value in pairs if value.isdigit()},
        words={name: value for name, value in pairs if not value.isdigit()},
        base=architectures()[row["base"]] if row["base"] else None,
    )


def configurations() -> dict[str, Model]:
    """Name → configuration: decoders and encoders, then all others."""
    return {**architectures(), **networks()}


def encode(model: Model) -> dict[str, Any]:
    """What `decode` reads."""
    return asdict(model)


def decode(document: Mapping[str, Any]) -> Model:
    """The configuration of a document."""
    if "sizes" not in document:
        return Architecture(**document)
    base = document["base"]
    return NetworkSizes(**{**document, "base": Architecture(**base) if base else None})


def network_configuration(network: NetworkSizes) -> dict[str, Any]:
    """What transformers' configuration of this type is built from."""
    given: dict[str, Any] = {name: value for name, value in network.sizes.items() if name != "positions"}
    given |= network.words
    for name in TRUTHS & given.keys():
        given[name] = bool(given[name])
    if network.model_type == "bart":
        given["max_position_embeddings"] = network["positions"]
    given = {OWN_NAMES.get(network.model_type, {}).get(name, name): value for name, value in given.items()}
    if network.model_type == "bamba":
        given["attn_layer_indices"] = network.indices("attn_layer_indices")
    if network.model_type == "zamba2":
        hybrid = network.indices("hybrid_layer_ids")
        layers = range(network["num_hidden_layers"])
        given["layers_block_type"] = ["hybrid" if index in hybrid else "linear_attention" for index in layers]
        del given["hybrid_layer_ids"]
    return NESTED[network.model_type](network, given) if network.model_type in NESTED else given


TRUTHS = {"tie_word_embeddings", "use_mem_rope", "use_shared_attention_adapter"}
"""Sizes that are truth values in transformers."""

OWN_NAMES = {
    "bamba": {
        "ssm_state_size": "mamba_d_state",
        "mamba_num_heads": "mamba_n_heads",
        "mamba_head_dim": "mamba_d_head",
        "n_groups": "mamba_n_groups",
        "conv_kernel": "mamba_d_conv",
        "chunk_size": "mamba_chunk_size",
    },
    "jamba": {
        "state_size": "mamba_d_state",
        "conv_kernel": "mamba_d_conv",
        "expand": "mamba_expand",
        "time_step_rank": "mamba_dt_rank",
        "n_routed_experts": "num_experts",
    },
    "zamba2": {
        "ssm_state_size": "mamba_d_state",
        "mamba_num_heads": "n_mamba_heads",
        "mamba_head_dim": "mamba_headdim",
        "n_groups": "mamba_ngroups",
        "conv_kernel": "mamba_d_conv",
    },
}
"""Type → a size's name in the table, which is Mamba's or Nemotron-H's → the type's own."""


def _qwen2_vl(network: NetworkSizes, given: dict[str, Any]) -> dict[str, Any]:
    """Of a tower and a decoder. A word that is the picture's is the last of the vocabulary; axes of positions share
    a head as 2 : 3 : 3."""
    text, half = configuration(network.decoder), network.decoder.head_dim // 2
    sections = [half // 4, 3 * half // 8, half - half // 4 - 3 * half // 8]
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": sections}
    tower = {name: value for name, value in given.items() if name != "patches"}
    return {
        "text_config": text,
        "vision_config": tower | {"hidden_size": network.decoder.hidden_size},
        "tie_word_embeddings": bool(network.decoder.tied),
        "image_token_id": network.decoder.vocab_size - 1,
    }


def _llava(network: NetworkSizes, given: dict[str, Any]) -> dict[str, Any]:
    """Of CLIP's tower and a decoder; the word that is the picture's is the last of the vocabulary."""
    return {
        "text_config": configuration(network.decoder) | {"model_type": network.decoder.model_type},
        "vision_config": {name: given[name] for name in CLIP} | {"model_type": "clip_vision_model"},
        "image_token_index": network.decoder.vocab_size - 1,
    }


CLIP = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "image_size", "patch_size")

NESTED = {"qwen2_vl": _qwen2_vl, "llava": _llava}
"""Type of a tower and a decoder → its configuration."""
