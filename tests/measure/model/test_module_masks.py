"""Definition, law: FLOP by the mask rules of transformers' attention modules, by hand, in counts and profiles."""

import pytest
import torch

import flopledger
from analysis.operators.attention_conventions import pairs_of
from measure.profile.step_profile import profile_step
from reports.profile import document
from reports.profile_tree import tree_text
from tests.measure.model.masked_models import BATCH, BATCHES, LENGTH, MODELS, model_of


@pytest.mark.parametrize("name", MODELS)
def test_conventions_count_the_pairs_that_they_name(name: str) -> None:
    """Scores and their use: 2 FLOP × 2 products × heads × width of a head for each pair, twice that backward."""
    model = model_of(name, attn_implementation="sdpa")
    found = flopledger.count(model, torch.randint(0, 50, (3, LENGTH)))
    of_pair = 2 * 2 * 32 * 3
    full, half = LENGTH**2, LENGTH * (LENGTH + 1) // 2
    left_out = {
        "causal": sum(full - half for rule in MODELS[name][2] if rule != "all"),
        "mask_exact": sum(full - pairs_of(rule, LENGTH, LENGTH) for rule in MODELS[name][2]),
    }
    forward, backward = found.forward_flop, found.backward_flop
    assert found.by_convention("dense") == (forward, backward)
    for convention, pairs in left_out.items():
        assert found.by_convention(convention) == (forward - of_pair * pairs, backward - 2 * of_pair * pairs)
    assert found.by_convention("hardware") == (forward, backward), "a tile of the CPU's kernel has 512 keys"


def test_plain_products_of_a_causal_module_count_as_the_whole_operator_does() -> None:
    """With dropout a CPU takes attention apart."""
    inputs = torch.randint(0, 50, (2, LENGTH))
    counts = [
        flopledger.count(model_of("llama", attn_implementation=how, attention_dropout=dropout).train(), inputs)
        for how, dropout in (("sdpa", 0.0), ("sdpa", 0.1), ("eager", 0.0))
    ]
    for convention in ("dense", "causal", "mask_exact"):
        assert len({count.by_convention(convention) for count in counts}) == 1, convention


@pytest.mark.parametrize(("name", "how"), [("mistral", "no mask"), ("bert", "no padding")])
def test_the_conventions_of_a_profiled_step_are_those_of_the_count(name: str, how: str) -> None:
    model, inputs = model_of(name, attn_implementation="sdpa"), torch.randint(0, 50, (BATCH, LENGTH))
    kwargs = BATCHES[how]
    counted = flopledger.count(model, inputs, kwargs=kwargs)
    profile = profile_step(model, inputs, kwargs=kwargs, steps=1, warm_up=0)
    found = document(profile)["attention"]
    assert found["convention"] == "dense"
    for convention in ("causal", "mask_exact", "hardware"):
        assert found[convention] == sum(flop or 0 for flop in counted.by_convention(convention))
    assert "attention is counted dense" in tree_text(profile)
