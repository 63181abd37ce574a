"""Formulas of frameworks that are no package, re-derived from their source in our own words: read, not run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from analysis.audit.architecture import Architecture
from analysis.audit.parts import projection_weights

if TYPE_CHECKING:
    from analysis.audit.answers import Framework


def reading(framework: Framework, model: Architecture, tokens: int) -> Mapping[str, object]:
    """What the formula gives, as `account` takes it; a reason where it has none for such a model."""
    found = READINGS.get(framework.framework)
    if found is None:
        return {"reason": framework.place}
    if model.model_type != "gpt2":
        return {"reason": f"{framework.framework} trains models of GPT-2's form alone"}
    return {"flop": str(found(model, tokens))}


def nanogpt(model: Architecture, tokens: int) -> int:
    """6 × weights, biases and the tied table, without positions; and 12 × layers × hidden × tokens of attention."""
    hidden, layers = model.hidden_size, model.num_hidden_layers
    block = projection_weights(model) + 4 * hidden  # with the biases of queries, keys, values and output
    block += 2 * hidden * model.intermediate_size + model.intermediate_size + hidden
    block += 4 * hidden  # two normalisations
    parameters = block * layers + 2 * hidden + model.vocab_size * hidden
    return tokens * (6 * parameters + 12 * layers * hidden * tokens)


READINGS = {"nanogpt": nanogpt}
"""Framework → its formula."""
