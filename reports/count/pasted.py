"""Numbers from anywhere, as `--explain` takes them: which number of a counter each is, and the way from it to ours.

A pasted number is rounded or cut off at its last digit, so it is compared with a counter's own number within that. It
may be of the forward pass, the backward pass or both; of the batch or one sample; as the counter gives it, or with a
multiply-add counted as the other of 1 and 2. The first of these that fits is taken. One that fits none is explained as
far as the counter goes, and the rest is said to be unexplained. Nothing is counted here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from cleaning.accounts.vocabulary.items import CONVENTION
from reports.count.references import NAMED, StepTerms, formula_of
from reports.count.text import ModelCounts, cause_sums, native_number
from reports.shared.layout import Hanging, Part
from results.printable import shortened
from results.records.answers import Account

SCALES = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12, "p": 15}
"""Letter → power of ten; capital or small."""

PASTED = re.compile(
    r"(?:(?P<counter>[^=]*[^=\s])\s*=)?\s*(?P<digits>\d[\d,_]*(?:\.\d*)?(?:e[+-]?\d+)?)"
    r"\s*(?P<scale>[kmgtp]?)(?P<unit>macs?|mul-?adds?|flops?|ops?)?\s*",
    re.IGNORECASE,
)
BETWEEN = re.compile(r"[,;](?!(?<=\d,)\d{3}(?!\d))")
"""Between two numbers; not the comma of 314,193,216."""

MOST_DIGITS = 60
"""Before and after the point, of a pasted number: each more makes exact arithmetic slower, and no count has so many."""

SHOWN = 60
"""Letters of a text in a message."""

EXAMPLE = "fvcore=314M,ptflops=320.2 MMac"

CONVERTED = {"mac": "given with a multiply-add as 2", "flop": "given with a multiply-add as 1"}
OF_ONE = "given for one sample"
ROUNDED = "rounded"


@dataclass(frozen=True)
class PastedNumber:
    """text: as it was typed. counter: "" where none was named. value: in units of 1. unit: mac, flop or "". step: what
    its last digit stands for. formula: the expression in place of a value."""

    text: str
    counter: str
    value: Fraction
    unit: str
    step: Fraction
    formula: str = ""

    def fits(self, number: Fraction) -> bool:
        """Whether a number, rounded or cut off as this one is, gives it."""
        return self.value - self.step / 2 <= number < self.value + self.step


@dataclass(frozen=True)
class Explanation:
    """One pasted number. passes: of which it is. causes: (words, what it adds), the conversion first; exact_flop + all
    causes + unexplained = the number as it was pasted. None: there is no number of this counter to explain it by."""

    pasted: PastedNumber
    counter: str
    unit: str
    passes: tuple[str, ...]
    matched: bool
    exact_flop: int | None
    causes: tuple[tuple[str, Fraction], ...]
    unexplained: Fraction | None
    reason: str = ""


def parse(text: str) -> list[PastedNumber]:
    """The numbers of `--explain`. Raises ValueError, one line, for what is none."""
    found = [_number(part.strip()) for part in BETWEEN.split(text) if part.strip()]
    if not found:
        raise ValueError(f"expected COUNTER=NUMBER, as in {EXAMPLE}; got {text!r}")
    return found


def _number(text: str) -> PastedNumber:
    match = PASTED.fullmatch(text)
    if match is None and (formula := formula_of(text)):
        return PastedNumber(text, "exact", Fraction(0), "flop", Fraction(0), formula)
    if match is None:
        others = f"{', '.join(NAMED)} or an expression in N, L, H, Q, T, V, B"
        raise ValueError(f"expected COUNTER=NUMBER, as in {EXAMPLE}, or {others}; got {text!r}")
    digits = _digits(match["digits"].replace(",", "").replace("_", ""), text)
    power = SCALES[match["scale"].lower()]
    exponent = digits.as_tuple().exponent
    word = (match["unit"] or "").lower()
    unit = "" if not word or word.startswith("op") else "flop" if word.startswith("flop") else "mac"
    step = Fraction(10) ** (int(exponent) + power)
    name = (match["counter"] or "").strip().lower().replace("-", "_")
    return PastedNumber(text, name, Fraction(digits) * 10**power, unit, step)


def _digits(number: str, text: str) -> Decimal:
    """The number. Raises ValueError for one whose whole digits are more than a count can have."""
    try:
        found = Decimal(number)
    except InvalidOperation:
        found = Decimal("NaN")
    least = found.as_tuple().exponent if found.is_finite() else -MOST_DIGITS - 1
    if not isinstance(least, int) or least < -MOST_DIGITS or found.adjusted() > MOST_DIGITS:
        raise ValueError(f"expected a number of at most {MOST_DIGITS} digits, got {shortened(text, SHOWN)!r}")
    return found


def explain(counted: ModelCounts, pasted: PastedNumber) -> Explanation:
    """Which number of its counter it is; of a number without a counter, the first counter's that it fits."""
    if pasted.formula:
        return _of_formula(counted.terms, pasted)
    names = [pasted.counter] if pasted.counter else counted.counters
    tried = [_of_counter(counted, name, pasted) for name in names]
    return next((each for each in tried if each.matched), tried[0])


def _of_formula(terms: StepTerms | None, pasted: PastedNumber) -> Explanation:
    """What a formula has for each group of operations beside what they are."""
    try:
        if terms is None:
            raise ValueError("the exact count is partial, so that no formula is explained by it")
        parts = terms.terms(pasted.formula)
    except ValueError as fault:
        return Explanation(pasted, "exact", "flop", (), False, None, (), None, str(fault))
    changes = {group: parts.get(group, 0) - terms.exact.get(group, 0) for group in {**terms.exact, **parts}}
    causes = tuple((group, Fraction(change)) for group, change in sorted(changes.items()) if change)
    value = replace(pasted, value=sum(parts.values(), Fraction(0)))
    return Explanation(
        value, "exact", "flop", ("forward", "backward"), True, sum(terms.exact.values()), causes, Fraction(0)
    )


def _of_counter(counted: ModelCounts, counter: str, pasted: PastedNumber) -> Explanation:
    accounts = [a for a in counted.accounts if a.counter == counter and a.native_value is not None]
    known = [a for a in accounts if a.status == "ok" and a.exact_flop is not None and a.unexplained_flop is not None]
    if not known:
        reason = next((a.reason for a in counted.accounts if a.counter == counter), "") or "it has no number"
        if any(a.status == "ok" and a.exact_flop is None for a in counted.accounts if a.counter == counter):
            reason = "the exact count is partial, so that no number is explained by it"
        return Explanation(pasted, counter, pasted.unit, (), False, None, (), None, f"{counter}: {reason}")
    for chosen, words, number in _candidates(known, counted.batch_size):
        if pasted.fits(number):
            return _explained(counted, counter, pasted, chosen, words, number)
    return _explained(counted, counter, pasted, [known[0]], "", None)


def _candidates(known: Sequence[Account], batch_size: int) -> Iterator[tuple[list[Account], str, Fraction]]:
    """(accounts, how it is written, number) of all that a counter's number can be given as, the likeliest first."""
    chosen = [[account] for account in known] + ([list(known)] if len(known) > 1 else [])
    chosen.sort(key=lambda each: len(each) == 1 and each[0].phase == "backward")
    for divisor, one in ((1, ""), (batch_size, OF_ONE)):
        for factor, converts in ((Fraction(1), False), (None, True)):
            for accounts in chosen:
                unit = accounts[0].native_unit
                other = Fraction(2) if unit == "mac" else Fraction(1, 2)
                words = ", ".join(filter(None, (CONVERTED.get(unit, "") if converts else "", one)))
                whole = sum((Fraction(account.native_value or 0) for account in accounts), Fraction(0))
                yield accounts, words, whole * (other if factor is None else factor) / divisor


def _explained(
    counted: ModelCounts,
    counter: str,
    pasted: PastedNumber,
    accounts: Sequence[Account],
    words: str,
    number: Fraction | None,
) -> Explanation:
    """number: what fits; None: nothing does, and what is between it and the counter's own number is unexplained."""
    phases = tuple(account.phase for account in accounts)
    native = sum((Fraction(account.native_value or 0) for account in accounts), Fraction(0))
    sums = cause_sums(counted.causes, counter, phases)
    ordered = sorted(sums.items(), key=lambda item: (item[0] != CONVENTION, -abs(item[1])))
    causes = [(counted.words.get(name, name), change) for name, change in ordered if change]
    left = sum((Fraction(account.unexplained_flop or 0) for account in accounts), Fraction(0))
    if number is None:
        left += pasted.value - native
    else:
        causes += [(words, number - native)] if words else []
        causes += [(ROUNDED, pasted.value - number)] if pasted.value != number else []
    exact = sum(account.exact_flop or 0 for account in accounts)
    unit = accounts[0].native_unit
    return Explanation(pasted, counter, unit, phases, number is not None, exact, tuple(causes), left)


def to_lines(counted: ModelCounts, explanation: Explanation) -> list[Part]:
    """What a person reads of one number: what it is, and every step from it to the exact count."""
    if explanation.exact_flop is None or explanation.unexplained is None:
        return [f"{explanation.pasted.text}: {explanation.reason}"]
    passes = " and ".join(explanation.passes)
    accounts = [counted.account(explanation.counter, phase) for phase in explanation.passes]
    native = sum(Fraction(account.native_value or 0) for account in accounts if account is not None)
    own = native_number(native, explanation.unit)
    if formula := explanation.pasted.formula:
        ratio = float(explanation.pasted.value / explanation.exact_flop) if explanation.exact_flop else float("inf")
        head = f"{explanation.pasted.text}: {formula}, {ratio:.4g} × the exact step"
    elif explanation.matched:
        head = f"{explanation.pasted.text}: {explanation.counter}'s {passes}, {own}"
    else:
        absent = f"no number of {explanation.counter} at batch {counted.batch_size}"
        head = f"{explanation.pasted.text}: {absent}; its {passes} is {own}"
    rows = []
    for index, (words, change) in enumerate(explanation.causes):
        is_convention = index == 0 and words == counted.words.get(CONVENTION, CONVENTION)
        rows.append((_signed(-change), f"{words}: × 2" if is_convention else words))
    if explanation.unexplained:
        rows.append((_signed(-explanation.unexplained), "unexplained: another input size, batch or version?"))
    rows.append((f"{explanation.exact_flop:,}", f"FLOP, the exact {passes}"))
    first = native_number(explanation.pasted.value, "").strip()
    width = max(len(first), *(len(number) for number, _ in rows))
    every = [(first, "as the formula has it" if formula else "as pasted"), *rows]
    return [head, *(Hanging(f"  {number:>{width}}", words) for number, words in every)]


def _signed(change: Fraction) -> str:
    return f"{'+' if change >= 0 else '-'}{native_number(abs(change), '').strip()}"


def document(explanation: Explanation) -> dict[str, Any]:
    """As JSON: exact_flop + all causes + unexplained_flop = given, exactly where these are whole numbers."""
    return {
        "counter": explanation.counter or None,
        "text": explanation.pasted.text,
        "given": _plain(explanation.pasted.value),
        "unit": explanation.unit or None,
        "passes": list(explanation.passes),
        "matched": explanation.matched,
        "exact_flop": explanation.exact_flop,
        "causes": [{"cause": words, "flop": _plain(change)} for words, change in explanation.causes],
        "unexplained_flop": None if explanation.unexplained is None else _plain(explanation.unexplained),
        "reason": explanation.reason or None,
    }


def _plain(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)
