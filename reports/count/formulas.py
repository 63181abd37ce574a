"""What formulas of people say of a step (6N, PaLM's, Megatron's, 3 × forward, or one of one's own), part by part.

N: parameters; L, H, Q: layers of attention, their heads and the width of one; T: tokens of a sample; V: words that are
embedded; B: samples. An expression is of a whole step, forward and backward. Each of its terms is set against the
operations that it stands for: N by what parameters do, a square of T by attention, all else by products with weights.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from analysis.operators.operands import shape
from analysis.operators.registry import PRODUCTS, model_flop
from results.records.calls import CallRecording

NAMED = {
    "6n": "6*N*T*B",
    "6n_nonembedding": "6*(N - E)*T*B",
    "palm": "(6*N + 12*L*H*Q*T)*T*B",
    "megatron": "72*B*T*L*(H*Q)**2 + 12*B*T**2*L*H*Q + 6*B*T*H*Q*V",
    "3x_forward": "3*F",
}
"""Kaplan et al. 2020, Chowdhery et al. 2022 (appendix B), Narayanan et al. 2021 without recomputation."""

WEIGHTS, ATTENTION, EMBEDDED, OTHERS = (
    "products with weights",
    "attention's scores and their use, and other products without weights",
    "weights of embeddings, which are looked up",
    "biases, normalisations and other parameters that make no product",
)

_EXPRESSION = re.compile(r"(?=.*[NLHQTVB])[NLHQTVB\d.+\-*/() ]{1,120}")
_POWER = re.compile(r"\*\*(?!\d(?!\d|\.|\*\*))")
"""A power that is no single digit, or is raised again."""


def formula_of(text: str) -> str:
    """The expression that a formula's name or letters stand for; "" for what is none."""
    named = NAMED.get(text.strip().lower().replace("-", "_").replace(" ", ""))
    if named or not _EXPRESSION.fullmatch(text):
        return named or ""
    written = re.sub(r"(?<=[\w)])\s*(?=[A-Z(])", "*", text.strip())
    try:
        ast.parse(written, mode="eval")
    except SyntaxError:
        return ""
    return "" if _POWER.search(written.replace(" ", "")) else written


@dataclass(frozen=True)
class StepTerms:
    """Of a step: what letters stand for; by group its parameters, its forward FLOP and its FLOP."""

    symbols: Mapping[str, int]
    parameters: Mapping[str, int]
    forward: Mapping[str, int]
    exact: Mapping[str, int]

    def terms(self, formula: str) -> dict[str, Fraction]:
        """Group → FLOP that a formula has for it. Raises ValueError for a letter that the model has not."""
        import sympy

        tables = {"N": self.parameters, "F": self.forward}
        letters = {name: sympy.Symbol(name) for name in "NLHQTVBEF"}
        expression = sympy.expand(sympy.sympify(formula, locals=letters, rational=True))
        if absent := sorted({each.name for each in expression.free_symbols} - {*self.symbols, *tables}):
            raise ValueError(f"the model has no {', '.join(absent)}")
        sums: dict[str, Fraction] = Counter()  # type: ignore[assignment]
        for term in sympy.Add.make_args(expression):
            names = {each.name for each in term.free_symbols}
            split = tables.get(next(iter(names & set(tables)), ""))
            group = EMBEDDED if "E" in names else ATTENTION if term.as_powers_dict()[letters["T"]] > 1 else WEIGHTS
            for where, value in (split or {group: 1}).items():
                each = term.subs({letters[name]: value for name in tables}).subs(dict(self.symbols))
                sums[where] += Fraction(int(each.p), int(each.q))
        return sums


def step_terms(recording: CallRecording, batch: int) -> StepTerms:
    """Of a recording."""
    table = recording.training or recording.operations
    own = {each.path: each for each in recording.modules}
    embedded = {p: s for p, m in own.items() if m.class_name.endswith("Embedding") for s in m.parameters.values()}
    every = [(path, size) for path, each in own.items() for size in each.parameters.values()]
    sizes = [prod(size) for _, size in every]
    tied = sum(sizes) - recording.parameters
    looked_up = max(0, sum(map(prod, embedded.values())) - tied)
    others = sum(prod(size) for path, size in every if len(size) < 2 and path not in embedded)
    parameters = {EMBEDDED: looked_up, OTHERS: others, WEIGHTS: recording.parameters - looked_up - others}
    weighted = {path for path, size in every if len(size) > 1}
    forward, exact = Counter[str](), Counter[str]()
    for each in table:
        if each.kind in PRODUCTS and each.phase in ("forward", "loss", "backward"):
            batched = each.name in ("aten.bmm", "aten.baddbmm") and each.module not in weighted
            group = ATTENTION if batched or each.kind == "attention" else WEIGHTS
            exact[group] += (flop := model_flop(each))
            forward[group] += flop * (each.phase != "backward")
    symbols = {"B": batch, "E": sum(map(prod, embedded.values()))}
    if embedded:
        symbols |= {"V": max(size[0] for size in embedded.values())}
    calls = [shape(each, "query") for each in table if each.kind == "attention" and each.phase == "forward"]
    if calls:
        symbols |= {"L": len(calls), "H": calls[0][-3], "Q": calls[0][-1], "T": calls[0][-2]}
    return StepTerms(symbols, parameters, forward, exact)
