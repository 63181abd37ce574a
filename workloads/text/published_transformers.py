"""Transformers that others measured and published, as workloads: transformers' classes with the sizes of the source.

    python -m runners.count workloads.text.published_transformers:gpt2_large --seq 1024

The sizes are those of the configurations of NeuSight (sitar-lab/NeuSight at 6945927d9afc,
`scripts/asplos/data/DLmodel_configs`), and so are the classes (`neusight/Tracing/trace.py`): BERT classifies in
inference and is pre-trained in training. Attention is in parts ("eager"), as it was measured. The loss is the cross
entropy of all tokens; the second output of a BERT in training has no part in it, as there. Weights are random.
transformers is optional (requirements-models.txt).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from workloads.catalogue import Batch, Workload, require
from workloads.text.tokens import draw, token_loss, tokens_of

BERT_LARGE = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
    "vocab_size": 30522, "max_position_embeddings": 512, "type_vocab_size": 2,
}  # fmt: skip
OPT_13 = {
    "hidden_size": 2048, "ffn_dim": 8192, "num_attention_heads": 32, "num_hidden_layers": 24, "vocab_size": 50272,
    "max_position_embeddings": 2048, "word_embed_proj_dim": 2048, "activation_function": "relu",
}  # fmt: skip


def bert_large_classification(seq: int = 512) -> Workload:
    """BERT-Large that classifies texts."""
    return _workload("bert", "BertForSequenceClassification", BERT_LARGE, seq)


def bert_large_pretraining(seq: int = 512) -> Workload:
    """BERT-Large with both of its heads."""
    return _workload("bert", "BertForPreTraining", BERT_LARGE, seq)


def gpt2_large(seq: int = 1024) -> Workload:
    """GPT-2 of 36 layers."""
    return _gpt(1280, 20, 36, 1024, seq)


def gpt3_xl(seq: int = 2048) -> Workload:
    """A GPT-2 with sizes that the source calls GPT-3 XL: width 3072, 24 layers."""
    return _gpt(3072, 24, 24, 2048, seq)


def gpt3_27(seq: int = 2048) -> Workload:
    """A GPT-2 with the sizes of GPT-3 2.7B: width 2560, 32 layers."""
    return _gpt(2560, 32, 32, 2048, seq)


def opt_13(seq: int = 2048) -> Workload:
    """OPT of 1.3 billion parameters."""
    return _workload("opt", "OPTForCausalLM", OPT_13, seq)


def _gpt(width: int, heads: int, layers: int, positions: int, seq: int) -> Workload:
    sizes = {"n_embd": width, "n_head": heads, "n_layer": layers, "n_positions": positions, "vocab_size": 50257}
    return _workload("gpt2", "GPT2LMHeadModel", sizes, seq)


def _workload(kind: str, model_class: str, sizes: Mapping[str, Any], seq: int) -> Workload:
    require("transformers")
    return Workload(
        name=model_class,
        task="general",
        hyper={"seq": seq},
        build=partial(_build, kind, model_class, sizes),
        batch=partial(_batch, sizes["vocab_size"]),
        loss=_loss,
        items=tokens_of,
        item="token",
        source=f"transformers; {model_class}; sizes of sitar-lab/NeuSight at 6945927d9afc",
    )


def _build(kind: str, model_class: str, sizes: Mapping[str, Any], seq: int) -> torch.nn.Module:
    """In training mode, on the current default device. seq: no weight depends on it."""
    import transformers

    from workloads.training import without_values
    from workloads.training.building import building

    with building(model_class), warnings.catch_warnings(), without_values():
        warnings.simplefilter("ignore")
        config = transformers.AutoConfig.for_model(kind, **sizes, attn_implementation="eager", use_cache=False)
        made: torch.nn.Module = getattr(transformers, model_class)(config).train().to(torch.get_default_device())
    return made


def _batch(
    vocab: int, hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None
) -> Batch:
    """size × seq tokens, which are the target, too."""
    tokens = draw((size, hyper["seq"]), vocab, device, generator)
    return Batch((tokens,), tokens.clone())


def _loss(output: Any, target: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy of the tokens' logits. Raises ValueError for a model that has none (a classifier)."""
    logits: torch.Tensor = output["prediction_logits" if "prediction_logits" in output else "logits"]
    if logits.shape[:-1] != target.shape:
        raise ValueError("expected logits of each token; a classifier has none: it is for inference")
    return token_loss(logits, target)
