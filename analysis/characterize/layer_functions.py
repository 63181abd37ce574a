"""What part of a model the time of an operation type goes to: convolution, fully connected, attention, loss, …

Fathom's Figure 6 labels its bars by hand with the model's function. Here a call's function follows from its phase and
from the classes of the modules around it, the outermost first: a convolution inside of an attention is attention. What
no rule knows is named by the class of its module. A type's label is the function that most of its time is spent for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from analysis.characterize.fathom_groups import STEP, type_of
from results.records.characterization import OperationCost

PHASES: Mapping[str, str] = {"optimizer": "optimizer", "loss": "loss"}

CLASSES: tuple[tuple[str, str], ...] = (
    (r"attention|attend", "attention"),
    (r"lstm|gru|rnn|recurrent|cell$", "recurrent"),
    (r"embedding", "embedding"),
    (r"conv", "convolution"),
    (r"linear", "fully connected"),
    (r"norm", "normalization"),
    (r"pool", "pooling"),
    (r"dropout", "dropout"),
    (r"relu|gelu|silu|tanh|sigmoid|softmax", "activation"),
)
"""Searched in the name of a class, whatever its case; the first rule that any class fits, the outermost class first."""


def function_of(phase: str, classes: str) -> str:
    """classes: of the modules around a call, from the model's own down, with slashes between. "": outside of all."""
    if phase in PHASES:
        return PHASES[phase]
    chain = [name for name in classes.split("/") if name]
    for name in chain:
        for pattern, function in CLASSES:
            if re.search(pattern, name, re.IGNORECASE):
                return function
    return chain[-1] if chain else ""


def labels_of_types(costs: Iterable[OperationCost]) -> dict[str, tuple[str, float]]:
    """Operation type → the function that it serves most, and its share of the type's time. Without times: of calls."""
    spent: dict[str, dict[str, float]] = {}
    rows = list(costs)
    timed = any(row.time_s for row in rows)
    for row in rows:
        name = type_of(row.name, STEP if row.phase == "optimizer" else "")
        mine = spent.setdefault(name, {})
        function = function_of(row.phase, row.classes)
        mine[function] = mine.get(function, 0.0) + ((row.time_s or 0.0) if timed else row.calls)
    found = {}
    for name, mine in spent.items():
        total = sum(mine.values())
        function = max(mine, key=lambda one: mine[one])
        if total > 0 and function:
            found[name] = (function, mine[function] / total)
    return found
