"""A profiled step says of attention by convention what the count of the same step says."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flopledger
from measure.profile.step_profile import profile_step
from reports.profile.data import document
from reports.profile.terminal import terminal_text
from tests.measure.model.test_batch_masks import BATCH, BATCHES
from tests.measure.model.test_module_masks import LENGTH, model_of


@pytest.mark.parametrize(("name", "how"), [("mistral", "no mask"), ("bert", "padding")])
def test_its_conventions_are_those_of_the_count(name: str, how: str) -> None:
    model, inputs = model_of(name, attn_implementation="sdpa"), torch.randint(0, 50, (BATCH, LENGTH))
    kwargs: dict[str, Any] = BATCHES[how]
    counted = flopledger.count(model, inputs, kwargs=kwargs)
    profile = profile_step(model, inputs, kwargs=kwargs, steps=1, warm_up=0)
    found = document(profile)["attention"]
    assert found["convention"] == "dense"
    for convention in ("causal", "mask_exact", "hardware"):
        assert found[convention] == sum(flop or 0 for flop in counted.by_convention(convention))
    assert "attention is counted dense" in terminal_text(profile)


def test_a_net_without_attention_has_no_line_of_it() -> None:
    profile = profile_step(torch.nn.Linear(8, 4), torch.randn(2, 8), steps=1, warm_up=0)
    assert document(profile)["attention"]["causal"] == 2 * 2 * 2 * 8 * 4  # forward, and the weight's gradient
    assert "attention is counted" not in terminal_text(profile)
