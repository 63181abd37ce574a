"""Published transformers: their parameters and products by formulas, the loss of each, what a classifier refuses."""

from __future__ import annotations

import pytest
import torch

from runners.footprint.step import StepOptions
from runners.reach.step import operations_at
from runners.workers import get

pytest.importorskip("transformers", reason="transformers is not installed")

MODULE = "workloads.text.published_transformers:"

BATCH, SEQ = 2, 32

TOKENS = BATCH * SEQ


def layers(width, count):
    """Forward FLOP of blocks with 4 d² weights in attention and 8 d² behind it, and of the products of its tokens."""
    return count * (2 * TOKENS * 12 * width**2 + 4 * BATCH * SEQ**2 * width)


@pytest.mark.parametrize(
    ("name", "parameters", "forward"),
    [
        # GPT-2: L(12d² + 13d) + Sd + vd + 2d, the head being the embedding
        ("gpt2_large", 36 * (12 * 1280**2 + 13 * 1280) + (1024 + 50257 + 2) * 1280,
         layers(1280, 36) + 2 * TOKENS * 1280 * 50257),
        ("gpt3_xl", 24 * (12 * 3072**2 + 13 * 3072) + (2048 + 50257 + 2) * 3072,
         layers(3072, 24) + 2 * TOKENS * 3072 * 50257),
        ("gpt3_27", 32 * (12 * 2560**2 + 13 * 2560) + (2048 + 50257 + 2) * 2560,
         layers(2560, 32) + 2 * TOKENS * 2560 * 50257),
        # OPT: as GPT-2, with two more positions
        ("opt_13", 24 * (12 * 2048**2 + 13 * 2048) + (2050 + 50272 + 2) * 2048,
         layers(2048, 24) + 2 * TOKENS * 2048 * 50272),
        # BERT: embeddings of words, positions and two types, their norm; a pooler and two classes
        ("bert_large_classification",
         24 * (12 * 1024**2 + 13 * 1024) + (30522 + 512 + 2 + 2) * 1024 + 1024**2 + 1024 + 2 * 1024 + 2,
         layers(1024, 24) + 2 * BATCH * (1024**2 + 1024 * 2)),
    ],
)  # fmt: skip
def test_parameters_and_products_of_inference(name, parameters, forward):
    workload = get(MODULE + name, seq=SEQ)
    with torch.device("meta"):
        model = workload.build(**workload.hyper)
    assert sum(each.numel() for each in model.parameters()) == parameters
    found = operations_at(StepOptions(MODULE + name, "fp32", hyper={"seq": SEQ}), BATCH, "infer")
    assert sum(each.model_flop for each in found) == forward
    assert "aten._softmax" in {each.name for each in found}, "attention is in parts"


def test_pre_training_goes_back_through_the_tokens_alone():
    """The pooler and the head of pairs of sentences run forward, and have no part in the loss."""
    asked = StepOptions(MODULE + "bert_large_pretraining", "fp32", "none", hyper={"seq": SEQ})
    found = operations_at(asked, BATCH)
    by_phase = {phase: sum(each.model_flop for each in found if each.phase == phase) for phase in
                ("forward", "loss", "backward")}  # fmt: skip
    trained = layers(1024, 24) + 2 * TOKENS * (1024**2 + 1024 * 30522)
    assert by_phase == {
        "forward": trained + 2 * BATCH * (1024**2 + 1024 * 2), "loss": 0, "backward": 2 * trained,
    }  # fmt: skip


def test_a_classifier_is_not_trained():
    workload = get(MODULE + "bert_large_classification", seq=4)
    with pytest.raises(ValueError, match="for inference"):
        workload.loss({"logits": torch.zeros(2, 2)}, torch.zeros(2, 4, dtype=torch.int64))
