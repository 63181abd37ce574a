"""Definition: formulas of model FLOP by convention of attention, against closed forms of the pairs that masks keep."""

import json
from pathlib import Path
from typing import Any

import pytest
import sympy

import flopledger

WIDTH, LAYERS = 16, 2
OF_PAIR = 3 * 2 * 2 * WIDTH * LAYERS
"""A score and its use, 2 FLOP a multiply-add, forward and twice that backward."""

SIZES = {
    "hidden_size": WIDTH, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
    "num_hidden_layers": LAYERS,    "intermediate_size": 16, "vocab_size": 16, "max_position_embeddings": 64,
}  # fmt: skip
batch, seq = (sympy.Symbol(name, positive=True, integer=True) for name in ("batch", "seq"))


def formulas(path: Path, symbols: list[str], **config: Any) -> dict[str, Any]:
    path.write_text(json.dumps(SIZES | config))
    found = flopledger.formula(f"hf:{path}", symbols, **({} if "seq" in symbols else {"seq": 12}))
    plain = {str(each): each for each in (batch, seq)}
    return {name: sympy.sympify(str(form), plain) for name, form in found.formulas.items()}


def test_a_causal_model_leaves_half_of_the_pairs(tmp_path: Path) -> None:
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    found = formulas(tmp_path / "config.json", ["batch", "seq"], **config)
    left_out = OF_PAIR * batch * (seq**2 - seq * (seq + 1) / 2)
    for convention in ("causal", "mask_exact"):
        assert sympy.expand(found["model_flop"] - found[f"{convention}_flop"] - left_out) == 0


@pytest.mark.parametrize("symbols", [["batch"], ["batch", "seq"]])
def test_a_window_has_a_formula_in_the_batch_and_none_in_the_length(tmp_path: Path, symbols: list[str]) -> None:
    """Of 12 keys a window of 5 keeps 1 + 2 + 3 + 4 + 8 · 5 = 50."""
    config = {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 5}
    found = formulas(tmp_path / "config.json", symbols, **config)
    length = seq if "seq" in symbols else 12
    less = found["model_flop"] - found["causal_flop"]
    assert sympy.expand(less - OF_PAIR * batch * (length**2 - length * (length + 1) / sympy.Integer(2))) == 0
    if "seq" in symbols:
        assert "mask_exact_flop" not in found
    else:
        assert sympy.expand(found["model_flop"] - found["mask_exact_flop"] - OF_PAIR * batch * (144 - 50)) == 0
