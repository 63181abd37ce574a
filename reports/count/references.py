"""What the products of a step are divided by on a device: the peak of their formats together, and that of one format.

Σ FLOP ÷ Σ (FLOP ÷ peak of the format) is what they reach where each runs at its own peak; a table with one format for a
device divides by the peak of the format with most FLOP instead. Not claimed: which unit of the device runs a product of
float32 (here: float32, not TF32).

What formulas of people say of a step (6N, PaLM's, Megatron's, 3 × forward, or one of one's own), part by part.

N: parameters; L, H, Q: layers of attention, their heads and the width of one; T: tokens of a sample; V: words that are
embedded; B: samples. An expression is of a whole step, forward and backward. Each of its terms is set against the
operations that it stands for: N by what parameters do, a square of T by attention, all else by products with weights.
"""

import ast
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from analysis.devices.device_peak import MixedPeak, mixed_peak, peak_refusal
from analysis.operators.cost import shape
from analysis.operators.registry import PRODUCTS, model_flop
from reports.shared.numbers import digits, si
from results.records.counts import CallRecording


@dataclass(frozen=True)
class StepPeak:
    """device: its name, as it was asked for. flop_by_dtype: of the forward and backward pass's products. peak: None
    where a format has none on the device, or there is no product; reason: why."""

    device: str
    flop_by_dtype: Mapping[str, int]
    peak: MixedPeak | None = None
    reason: str = ""


def peak_of_step(device: str, flop_by_dtype: Mapping[str, int], is_whole: bool = True) -> StepPeak:
    """flop_by_dtype: torch's name → FLOP. is_whole: whether each call has a count."""
    work = {dtype: flop for dtype, flop in sorted(flop_by_dtype.items(), key=lambda item: -item[1]) if flop}
    if not work or not is_whole:
        return StepPeak(device, work, reason="a call has no count" if not is_whole else "the step has no product")
    whys = [why for dtype in work if (why := _refusal(device, dtype))]
    return StepPeak(device, work, None if whys else mixed_peak(device, work), whys[0] if whys else "")


def _refusal(device: str, dtype: str) -> str | None:
    try:
        return peak_refusal(device, dtype)
    except ValueError as fault:
        return str(fault)


def to_line(found: StepPeak) -> str:
    """Both peaks in one line."""
    if found.peak is None:
        return f"peak: none of {found.device} for this step: {found.reason}"
    whole, units = sum(found.flop_by_dtype.values()), found.peak.by_unit
    single = found.peak.single
    of_one = f"{si(single.flop_per_s, 'FLOP/s')} of {single.unit}"
    if len(units) == 1:
        return f"peak: {of_one} on {found.peak.device_name}"
    shares = ", ".join(f"{digits(100 * flop / whole)} % {dtype}" for dtype, flop in found.flop_by_dtype.items())
    together = f"{si(found.peak.flop_per_s, 'FLOP/s')} of its formats together ({shares})"
    return f"peak: {together}, {of_one} alone, on {found.peak.device_name}"


def document(found: StepPeak) -> dict[str, Any]:
    """As JSON: both peaks by name, null where there is none."""
    peak = found.peak
    units = {} if peak is None else peak.by_unit
    return {
        "device": found.device,
        "flop_by_dtype": dict(found.flop_by_dtype),
        "operation_weighted_flop_per_s": None if peak is None else peak.flop_per_s,
        "single_format": None if peak is None else peak.single.unit,
        "single_format_flop_per_s": None if peak is None else peak.single.flop_per_s,
        "by_format": {
            unit: {"flop_per_s": each.flop_per_s, "source": each.source, "verification": each.verification}
            for unit, each in units.items()
        },
        "reason": found.reason or None,
    }


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
