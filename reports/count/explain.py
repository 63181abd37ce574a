"""Explains a pasted number or formula (`--explain`): what it counts, and how it differs from our count.

`parse` turns text into `PastedNumber`s. `explain` takes one of them and a `ModelCounts`, and returns an `Explanation`.
A number is compared with its counter's forward, backward or whole count, of the batch or one sample. It may also count
a multiply-add as 2 instead of 1, or as 1 instead of 2. The first that agrees to the number's last digit explains it,
else the rest is unexplained. A formula (6N, PaLM's, Megatron's, 3 × forward) counts a whole step. Each term is compared
with operations: N with those on parameters, T² with attention, others with products with weights. No model runs here.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import prod
from typing import Any

from analysis.operators.cost import shape
from analysis.operators.registry import PRODUCTS, model_flop
from analysis.utilization.numerators import OWN
from cleaning.accounts.items import CAUSES, CONVENTION
from reports.count.answer import ModelCounts, cause_sums
from reports.count.text import native_number
from reports.shared.layout import HangingIndent, Part
from results.printable import shortened
from results.records.answers import Attribution
from results.records.calls import CallRecording

NAMED = {
    "6n": "6*N*T*B",
    "6n_nonembedding": "6*(N - E)*T*B",
    "palm": "(6*N + 12*L*H*Q*T)*T*B",
    "megatron": "72*B*T*L*(H*Q)**2 + 12*B*T**2*L*H*Q + 6*B*T*H*Q*V",
    "3x_forward": "3*F",
}
"""Name → formula, by Kaplan et al. 2020, Chowdhery et al. 2022 (appendix B), and Narayanan et al. 2021 without
recomputation. B: samples; T: tokens per sample; V: vocabulary; N: parameters; E: parameters of embeddings; L: attention
layers; H: heads of a layer; Q: width of a head; F: FLOP of the forward pass."""

WEIGHTS, ATTENTION, EMBEDDED, OTHERS = (
    "products with weights",
    "attention's scores and their use, and other products without weights",
    "weights of embeddings, which are looked up",
    "biases, normalisations and other parameters that make no product",
)


@dataclass(frozen=True)
class StepTerms:
    """The terms of a step with which a formula is compared.

    symbols: letter → value. parameters, forward, exact: group of operations → number of parameters, FLOP of the forward
    pass, FLOP of the step.
    """

    symbols: Mapping[str, int]
    parameters: Mapping[str, int]
    forward: Mapping[str, int]
    exact: Mapping[str, int]


def formula_parts(name: str, step: StepTerms) -> dict[str, int]:
    """Return group → FLOP that a formula of `NAMED` has for it. Raises ValueError for a letter that the model lacks."""
    if name == "3x_forward":
        return {group: 3 * flop for group, flop in step.forward.items()}
    if absent := sorted({*"HLQTV"} & {*NAMED[name]} - {*step.symbols}):
        raise ValueError(f"the model has no {', '.join(absent)}")
    layers, heads, head_width, length = (step.symbols.get(letter, 0) for letter in "LHQT")
    width, tokens = heads * head_width, length * step.symbols["B"]
    if name == "megatron":
        by_weights = 72 * layers * width**2 + 6 * width * step.symbols["V"]
        return {WEIGHTS: tokens * by_weights, ATTENTION: tokens * 12 * length * layers * width}
    parts = {group: 6 * count * tokens for group, count in step.parameters.items()}
    if name == "6n_nonembedding":
        parts[EMBEDDED] -= 6 * step.symbols["E"] * tokens
    if name == "palm":
        parts[ATTENTION] = 12 * layers * width * length * tokens
    return parts


def step_terms(recording: CallRecording, batch: int) -> StepTerms:
    """Sort the parameters and products of a recorded step into terms."""
    modules = {module.path: module for module in recording.modules}
    every = [(path, size) for path, module in modules.items() for size in module.parameters.values()]
    embedded = [(path, size) for path, size in every if modules[path].class_name.endswith("Embedding")]
    tied = sum(prod(size) for _, size in every) - recording.parameters
    looked_up = max(0, sum(prod(size) for _, size in embedded) - tied)
    others = sum(prod(size) for path, size in every if len(size) < 2 and (path, size) not in embedded)
    parameters = {EMBEDDED: looked_up, OTHERS: others, WEIGHTS: recording.parameters - looked_up - others}
    weighted = {path for path, size in every if len(size) > 1}
    forward, exact, queries = Counter[str](), Counter[str](), []
    for operation in recording.training or recording.operations:
        if operation.kind not in PRODUCTS or operation.phase not in ("forward", "loss", "backward"):
            continue
        batched = operation.name in ("aten.bmm", "aten.baddbmm") and operation.module not in weighted
        group = ATTENTION if batched or operation.kind == "attention" else WEIGHTS
        exact[group] += (flop := model_flop(operation))
        forward[group] += flop * (operation.phase != "backward")
        if operation.kind == "attention" and operation.phase == "forward":
            queries.append(shape(operation, "query"))
    symbols = {"B": batch, "E": sum(prod(size) for _, size in embedded)}
    if embedded:
        symbols["V"] = max(size[0] for _, size in embedded)
    if queries:
        symbols |= {"L": len(queries), "H": queries[0][-3], "Q": queries[0][-1], "T": queries[0][-2]}
    return StepTerms(symbols, parameters, forward, exact)


PASTED = re.compile(
    r"(?:(?P<counter>[^=]*[^=\s])\s*=)?\s*(?P<digits>\d[\d,_]*(?:\.\d*)?(?:e[+-]?\d+)?)"
    r"\s*(?P<scale>[kmgtp]?)(?P<unit>macs?|mul-?adds?|flops?|ops?)?\s*",
    re.IGNORECASE,
)
BETWEEN = re.compile(r"[,;](?!(?<=\d,)\d{3}(?!\d))")
"""Separator of two numbers; not the comma of 314,193,216."""

MOST_DIGITS = 60
"""Maximum number of digits before and after the point of a pasted number: each makes exact arithmetic slower, and no
count has so many."""

EXAMPLE = "fvcore=314M,ptflops=320.2 MMac"

PARTIAL = "the exact count is partial, so that no {} is explained by it"


@dataclass(frozen=True)
class PastedNumber:
    """A number to explain. text: as it was typed. counter: "" if none was named. value: in units of 1. unit: mac, flop
    or "". step: value of one in its last digit. formula: of NAMED, in place of a value."""

    text: str
    counter: str
    value: Fraction
    unit: str
    step: Fraction
    formula: str = ""


@dataclass(frozen=True)
class Explanation:
    """The explanation of one pasted number. passes: which it counts. causes: (text, contribution), the conversion
    first; exact_flop + all causes + unexplained = the number as it was pasted. None: this counter has no number to
    compare with."""

    pasted: PastedNumber
    counter: str
    unit: str
    passes: tuple[str, ...] = ()
    matched: bool = False
    exact_flop: int | None = None
    causes: tuple[tuple[str, Fraction], ...] = ()
    unexplained: Fraction | None = None
    reason: str = ""


def parse(text: str) -> list[PastedNumber]:
    """Return the numbers of `--explain`. Raises ValueError, one line, for a text that is not a number."""
    numbers = [_number(part.strip()) for part in BETWEEN.split(text) if part.strip()]
    if not numbers:
        raise ValueError(f"expected COUNTER=NUMBER, as in {EXAMPLE}; got {text!r}")
    return numbers


def _number(text: str) -> PastedNumber:
    match = PASTED.fullmatch(text)
    if (formula := text.lower().replace("-", "_")) in NAMED:
        return PastedNumber(text, "exact", Fraction(0), "flop", Fraction(0), formula)
    if match is None:
        raise ValueError(f"expected COUNTER=NUMBER, as in {EXAMPLE}, or one of {', '.join(NAMED)}; got {text!r}")
    try:
        digits = Decimal(match["digits"].replace(",", "").replace("_", ""))
    except InvalidOperation:  # more digits than Python reads
        digits = Decimal("NaN")
    exponent = digits.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -MOST_DIGITS or digits.adjusted() > MOST_DIGITS:
        raise ValueError(f"expected a number of at most {MOST_DIGITS} digits, got {shortened(text, 60)!r}")
    power = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12, "p": 15}[match["scale"].lower()]
    word = (match["unit"] or "").lower()
    unit = "" if not word or word.startswith("op") else "flop" if word.startswith("flop") else "mac"
    name = (match["counter"] or "").strip().lower().replace("-", "_")
    name = OWN if name == "exact" else name
    return PastedNumber(text, name, Fraction(digits) * 10**power, unit, Fraction(10) ** (exponent + power))


def explain(answer: ModelCounts, pasted: PastedNumber) -> Explanation:
    """Explain a pasted number by the number of its counter that fits; without a counter, by the first counter with
    one."""
    if not pasted.formula:
        names = [pasted.counter] if pasted.counter else answer.counters
        tried = [_of_counter(answer, name, pasted) for name in names]
        return next((explanation for explanation in tried if explanation.matched), tried[0])
    if answer.recording is None or None in (answer.exact.get("forward"), answer.exact.get("backward")):
        return Explanation(pasted, "exact", "flop", reason=PARTIAL.format("formula"))
    step = step_terms(answer.recording, answer.batch_size)
    try:
        parts = formula_parts(pasted.formula, step)
    except ValueError as fault:
        return Explanation(pasted, "exact", "flop", reason=str(fault))
    changes = {group: Fraction(parts.get(group, 0) - step.exact.get(group, 0)) for group in {**step.exact, **parts}}
    return Explanation(
        replace(pasted, value=Fraction(sum(parts.values()))),
        "exact",
        "flop",
        ("forward", "backward"),
        True,
        sum(step.exact.values()),
        tuple((group, change) for group, change in sorted(changes.items()) if change),
        Fraction(0),
    )


def _of_counter(answer: ModelCounts, counter: str, pasted: PastedNumber) -> Explanation:
    own = [attribution for attribution in answer.attributions if attribution.counter == counter]
    known = [
        attribution
        for attribution in own
        if attribution.status == "ok"
        and None not in (attribution.native_value, attribution.exact_flop, attribution.unexplained_flop)
    ]
    if not known:
        reason = next((attribution.reason for attribution in own), "") or "it has no number"
        if any(attribution.status == "ok" and attribution.exact_flop is None for attribution in own):
            reason = PARTIAL.format("number")
        return Explanation(pasted, counter, pasted.unit, reason=f"{counter}: {reason}")
    for attributions, written, number in _candidates(known, answer.batch_size):
        if pasted.value - pasted.step / 2 <= number < pasted.value + pasted.step:  # rounded or cut off
            return _explained(answer, pasted, attributions, written, number)
    return _explained(answer, pasted, known[:1], "", None)


def _candidates(known: Sequence[Attribution], batch_size: int) -> Iterator[tuple[list[Attribution], str, Fraction]]:
    """Yield (attributions, unit text, number) for each form in which a counter's number may be given, the likeliest
    first."""
    unit = known[0].native_unit
    factor, conversion = {
        "mac": (Fraction(2), "given with a multiply-add as 2"),
        "flop": (Fraction(1, 2), "given with a multiply-add as 1"),
    }.get(unit, (Fraction(1), ""))
    chosen = [[attribution] for attribution in known] + ([list(known)] if len(known) > 1 else [])
    chosen.sort(key=lambda attributions: len(attributions) == 1 and attributions[0].phase == "backward")
    for divisor, share in ((1, ""), (batch_size, "given for one sample")):
        for times, converted in ((Fraction(1), ""), (factor, conversion)):
            for attributions in chosen:
                yield attributions, ", ".join(filter(None, (converted, share))), _native(attributions) * times / divisor


def _native(attributions: Sequence[Attribution]) -> Fraction:
    return sum((Fraction(attribution.native_value or 0) for attribution in attributions), Fraction(0))


def _explained(
    answer: ModelCounts,
    pasted: PastedNumber,
    attributions: Sequence[Attribution],
    written: str,
    number: Fraction | None,
) -> Explanation:
    """Explain a number. number: the one that fits; None: none does, and the distance to the counter's own number is
    unexplained."""
    counter, phases = attributions[0].counter, tuple(attribution.phase for attribution in attributions)
    sums = cause_sums(answer.causes, counter, phases)
    ordered = sorted(sums.items(), key=lambda item: (item[0] != CONVENTION, -abs(item[1])))
    causes = [(CAUSES.get(name, name), change) for name, change in ordered if change]
    left = sum((Fraction(attribution.unexplained_flop or 0) for attribution in attributions), Fraction(0))
    if number is None:
        left += pasted.value - _native(attributions)
    else:
        causes += [(written, number - _native(attributions))] if written else []
        causes += [("rounded", pasted.value - number)] if pasted.value != number else []
    exact = sum(attribution.exact_flop or 0 for attribution in attributions)
    return Explanation(
        pasted, counter, attributions[0].native_unit, phases, number is not None, exact, tuple(causes), left
    )


def to_lines(answer: ModelCounts, explanation: Explanation) -> list[Part]:
    """Write the explanation of one number: what it is, and every step from it to the exact count."""
    pasted = explanation.pasted
    if explanation.exact_flop is None or explanation.unexplained is None:
        return [f"{pasted.text}: {explanation.reason}"]
    passes = " and ".join(explanation.passes)
    attributions = [answer.attribution(explanation.counter, phase) for phase in explanation.passes]
    own = native_number(
        _native([attribution for attribution in attributions if attribution is not None]), explanation.unit
    )
    if pasted.formula:
        ratio = float(pasted.value / explanation.exact_flop) if explanation.exact_flop else float("inf")
        head = f"{NAMED[pasted.formula]}, {ratio:.4g} × the exact step"
    elif explanation.matched:
        head = f"{explanation.counter}'s {passes}, {own}"
    else:
        head = f"no number of {explanation.counter} at batch {answer.batch_size}; its {passes} is {own}"
    rows = [(native_number(pasted.value, ""), "by the formula" if pasted.formula else "as pasted")]
    for cause, change in explanation.causes:
        rows.append((_signed(-change), f"{cause}: × 2" if cause == CAUSES[CONVENTION] else cause))
    if explanation.unexplained:
        rows.append((_signed(-explanation.unexplained), "unexplained: another input size, batch or version?"))
    rows.append((f"{explanation.exact_flop:,}", f"FLOP, the exact {passes}"))
    width = max(len(number) for number, _ in rows)
    return [f"{pasted.text}: {head}", *(HangingIndent(f"  {number:>{width}}", cause) for number, cause in rows)]


def _signed(change: Fraction) -> str:
    return f"{'+' if change >= 0 else '-'}{native_number(abs(change), '')}"


def document(explanation: Explanation) -> dict[str, Any]:
    """Return JSON: exact_flop + all causes + unexplained_flop = given, exactly where these are whole numbers."""
    return {
        "counter": explanation.counter or None,
        "text": explanation.pasted.text,
        "given": _plain(explanation.pasted.value),
        "unit": explanation.unit or None,
        "passes": list(explanation.passes),
        "matched": explanation.matched,
        "exact_flop": explanation.exact_flop,
        "causes": [{"cause": cause, "flop": _plain(change)} for cause, change in explanation.causes],
        "unexplained_flop": None if explanation.unexplained is None else _plain(explanation.unexplained),
        "reason": explanation.reason or None,
    }


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)
