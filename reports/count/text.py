"""The answer of `runners.count` as a person reads it in ten seconds, and as JSON. Nothing is said by colour alone.

A row a counter and pass: its number as its users know it, in its own unit; that in FLOP beside the exact one; why they
differ, the conversion first; and what no cause explains. `detail` lists every cause with its kind and module.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from analysis.operators.attention_conventions import BY_RULE, CONVENTIONS, AttentionFlop
from analysis.operators.registry import registration
from cleaning.accounts.vocabulary.items import CONVENTION
from reports.count import references
from reports.count.references import StepPeak, StepTerms
from reports.shared.layout import WIDTH, Cell, Column, Part, Styled, TextTable, page, strong
from reports.shared.numbers import STATUS_WORDS, digits, fitting, si
from results.records.answers import Account, AccountCause

SHOWN_CAUSES = 12
"""Lines of causes by kind for one pass of one counter."""

PHASES = ("forward", "backward")

NOT_LISTED = "no count of this model says it"
"""Why there is no other convention of attention where no count has one."""

KERNELS = "hardware (torch's kernels for CPUs)"
"""What the convention of a count is of: it runs on fake tensors of a CPU."""

SHOWN_IN_ROW = 2
"""Causes beside the conversion that a row of the table names."""

_CONVERSION = "a multiply-add is 1: × 2"


@dataclass(frozen=True)
class ModelCounts:
    """One model at one batch size: exact FLOP of a training step by pass, and every counter's account.

    exact: None where a call of the pass has no rule; at_least_flop has the sum of the others, and unknown_calls how
    many there are, both by pass.

    optimizer_flop: model FLOP of the optimizer. other_flop: pass → arithmetic that is no product. not_understood:
    operator → calls that the exact count has no rule for. notes: what must be said beside it.
    mixture: of the forward pass the parts of a mixture of experts, field → FLOP or parameters; empty for a model
    without. peak: of its products on the device that was asked for; None: none was. terms: what formulas are set
    against; None where the step has operations without a rule.
    """

    model: str
    batch_size: int
    parameters: int | None
    exact: dict[str, int | None]
    other_flop: dict[str, int | None]
    not_understood: dict[str, int]
    accounts: Sequence[Account]
    causes: Sequence[AccountCause]
    words: dict[str, str]
    notes: tuple[str, ...] = ()
    at_least_flop: dict[str, int] = field(default_factory=dict)
    unknown_calls: dict[str, int] = field(default_factory=dict)
    attention: AttentionFlop | None = None
    mixture: Mapping[str, int | None] = field(default_factory=dict)
    peak: StepPeak | None = None
    terms: StepTerms | None = None

    @property
    def counters(self) -> list[str]:
        """Their names in order."""
        return list(dict.fromkeys(account.counter for account in self.accounts))

    def account(self, counter: str, phase: str) -> Account | None:
        """One counter's account of one pass; None if it has none."""
        return next((a for a in self.accounts if (a.counter, a.phase) == (counter, phase)), None)


def to_text(counted: ModelCounts, width: int = WIDTH, colour: bool = False, detail: bool = False) -> str:
    """The table of one model; with `detail` every counter's causes."""
    parts: list[Part] = [*map(strong, heading(counted))]
    if counted.accounts:
        parts.append(_table(counted))
    parts += [*closing(counted), *counted.notes]
    if detail:
        for counter in counted.counters:
            for phase in PHASES:
                parts += _detail(counted, counter, phase)
    return page(parts, width, colour)


def heading(counted: ModelCounts) -> list[str]:
    """The model and its exact count."""
    size = "" if counted.parameters is None else f", {si(counted.parameters, '').strip()} parameters"
    lines = [f"{counted.model}, batch {counted.batch_size}{size}", f"exact: {_totals(counted)}"]
    lines += [f"attention: {words}"] if (words := attention_words(counted)) else []
    lines += [f"mixture: {words}"] if (words := mixture_words(counted)) else []
    return lines if counted.peak is None else [*lines, references.to_line(counted.peak)]


def attention_words(counted: ModelCounts) -> str:
    """The step by the other conventions of attention; "" where there is none, or all count the same. What a kernel
    computes by its tiles (`hardware`) is said where it is known."""
    found = counted.attention
    if found is None or not found.calls:
        return ""
    flop = {convention: attention_steps(counted, convention) for convention in CONVENTIONS}
    dense = flop.pop("dense")
    if dense and all(flop[convention] == dense for convention in BY_RULE):
        return "no mask leaves anything out"
    parts = []
    for convention, each in flop.items():
        name = KERNELS if convention == "hardware" else convention.replace("_", "-")
        if each is not None and dense:
            parts.append(f"{name} {si(each, 'FLOP')} a step ({100 * each / dense:.1f} % of dense)")
        elif convention in BY_RULE:
            parts.append(f"{name} not known ({found.reasons.get(convention, 'a pass has no count')})")
    return f"counted dense; {', '.join(parts)}"


def mixture_words(counted: ModelCounts) -> str:
    """The parts of a mixture of experts in the forward pass, and the parameters that one token meets; "" without."""
    found = counted.mixture
    if not found:
        return ""
    shown = [f"{part} {si(found[f'{part}_flop'] or 0, 'FLOP')}" for part in ("router", "experts", "shared")]
    padding = _padding(found)
    if padding:
        words = "{} of them padding" if padding > 0 else "dropped tokens lack {}"
        shown[1] += f" ({words.format(si(abs(padding), 'FLOP'))})"
    parts = f"forward: {', '.join(shown)}"
    if found["active_parameters"] is None:
        return f"{parts}; the configuration does not say how many experts a token has"
    active, every = (si(found[name] or 0, "").strip() for name in ("active_parameters", "parameters"))
    chosen = f"{found['experts_per_token']} of {found['experts']} experts"
    return f"{parts}; a token meets {active} of {every} parameters ({chosen})"


def _padding(mixture: Mapping[str, int | None]) -> int | None:
    """FLOP of experts beyond those of the tokens that they were chosen for; below zero: what dropped tokens lack."""
    ran, chosen = mixture["experts_flop"], mixture["chosen_flop"]
    return None if ran is None or chosen is None else ran - chosen


def attention_steps(counted: ModelCounts, convention: str) -> int | None:
    """FLOP of a step (forward and backward) by a convention of attention; None where it is not known."""
    passes = [attention_pass(counted, convention, phase) for phase in PHASES]
    known = [flop for flop in passes if flop is not None]
    return sum(known) if len(known) == len(passes) else None


def attention_pass(counted: ModelCounts, convention: str, phase: str) -> int | None:
    dense = counted.exact.get(phase)
    return None if counted.attention is None else counted.attention.flop(convention, phase, dense)


def _totals(counted: ModelCounts) -> str:
    """Both passes in words: "at least" where a call of the pass has no rule, and nothing derived from it."""
    forward, backward = (counted.exact.get(phase, 0) for phase in PHASES)
    words = ", ".join(f"{_total(counted, phase)} {phase}" for phase in PHASES)
    if forward is None or backward is None:
        return words
    ratio = f", {digits(backward / forward, 4)} × forward" if forward else ""
    return f"{words}{ratio}; 3 × forward is {_deviation(3 * forward, forward + backward)}"


def _total(counted: ModelCounts, phase: str) -> str:
    flop = counted.exact.get(phase, 0)
    return si(flop, "FLOP") if flop is not None else f"at least {si(counted.at_least_flop[phase], 'FLOP')}"


def _deviation(estimate: int, truth: int) -> str:
    if not truth:
        return "as far off as can be: there is no product"
    off = estimate / truth - 1
    return "exact" if not off else f"{digits(abs(off) * 100, 2)} % {'above' if off > 0 else 'below'} the step"


def native_number(value: Fraction | int | float, unit: str) -> str:
    """A counter's number as it gives it: every digit, and its unit."""
    number = Fraction(value)
    digits_of = f"{int(number):,}" if number.denominator == 1 else f"{float(number):,.1f}"
    return f"{digits_of} {unit.upper()}".rstrip()


def _table(counted: ModelCounts) -> TextTable:
    numbers = (Column("its own number", right=True), Column("× exact", right=True))
    why = Column("why", right=False, wraps=True, least=20)
    columns = (Column("counter", right=False), Column("pass"), *numbers, why, Column("unexplained", right=True, rank=1))
    return TextTable(columns, [row for counter in counted.counters for row in _rows_of(counted, counter)], rule=False)


def _rows_of(counted: ModelCounts, counter: str) -> list[list[Cell]]:
    """A row for each pass that a counter counted; of one that failed a row with the reason."""
    found = [account for phase in PHASES if (account := counted.account(counter, phase)) is not None]
    first = next(iter(found), None)
    if first is None or first.status != "ok":
        status = "" if first is None else f"{STATUS_WORDS.get(first.status, first.status)}: {first.reason}"
        return [[counter, "", "", "", status, ""]]
    shown = [account for account in found if _has_count(account)] or found[:1]
    return [_cells(counted, account, counter if account is shown[0] else "") for account in shown]


def _cells(counted: ModelCounts, account: Account, name: str) -> list[Cell]:
    number, ratio = _numbers(account)
    left = _unexplained([account])
    unexplained = "unknown" if left is None else si(left, "").strip() if left else "0"
    style = "bold red" if left else ""
    return [name, account.phase, number, ratio, _cause_words(counted, account), Styled(unexplained, style)]


def _unexplained(accounts: Iterable[Account | None]) -> int | float | None:
    """What no cause explains in all the passes that a counter counted; None where one of them is not known."""
    left = [account.unexplained_flop for account in accounts if account is not None and _has_count(account)]
    known = [value for value in left if value is not None]
    return sum(known) if known and len(known) == len(left) else None


def _has_count(account: Account) -> bool:
    """Whether a counter counted this pass, be it in part."""
    return account.status == "ok" and (account.native_value is not None or account.at_least_flop is not None)


def _numbers(account: Account) -> tuple[str, str]:
    """Its own number with its unit, and the same in FLOP as a part of the exact count."""
    if account.native_value is None:
        at_least = account.at_least_flop
        return ("–" if at_least is None else f"≥ {native_number(at_least, 'flop')}"), ""
    ratio = "" if account.flop_ratio is None else digits(account.flop_ratio, 4)
    return native_number(account.native_value, account.native_unit), ratio


def _cause_words(counted: ModelCounts, account: Account) -> str:
    """The conversion to FLOP first, then what else it adds or lacks, the largest first."""
    sums = cause_sums(counted.causes, account.counter, (account.phase,))
    converts = [_CONVERSION] if sums.pop(CONVENTION, 0) or account.native_unit == "mac" else []
    named = sorted((item for item in sums.items() if item[1]), key=lambda item: -abs(item[1]))
    words = [
        f"{name.replace('_', ' ')} {'+' if change > 0 else '-'}{si(float(abs(change)), '').replace(' ', '')}"
        for name, change in named[:SHOWN_IN_ROW]
    ]
    more = [f"{len(named) - SHOWN_IN_ROW} smaller"] if len(named) > SHOWN_IN_ROW else []
    if not named and account.exact_flop is None and _has_count(account):
        return "; ".join([*converts, "unknown: the exact count is partial"])
    return "; ".join([*converts, *words, *more]) or "none: it is exact"


def cause_sums(causes: Iterable[AccountCause], counter: str, phases: Sequence[str]) -> dict[str, Fraction]:
    """Cause → what it adds to a counter's number of these passes, exactly."""
    sums: dict[str, Fraction] = {}
    for cause in causes:
        if cause.counter == counter and cause.phase in phases:
            sums[cause.cause] = sums.get(cause.cause, Fraction(0)) + Fraction(cause.flop)
    return sums


def closing(counted: ModelCounts) -> list[str]:
    """What the table means, in a line or two."""
    ok = [account for account in counted.accounts if account.status == "ok" and account.flop_ratio is not None]
    lines = []
    if counted.not_understood:
        names = ", ".join(f"{name} ({calls})" for name, calls in counted.not_understood.items())
        lines.append(f"The exact count does not understand {names}: what products these hold is in no total.")
        lines.append("A rule for each, to be written in the model's file with the FLOP of one call:")
        lines.extend(f"    {registration(name)}" for name in counted.not_understood)
    left = [account for account in ok if account.unexplained_flop]
    if left:
        names = ", ".join(dict.fromkeys(account.counter for account in left))
        lines.append(f"Not every FLOP is explained: {names}.")
    elif ok:
        worst = max(ok, key=lambda account: abs((account.flop_ratio or 0) - 1))
        if worst.flop_ratio == 1:
            partial = any(account.exact_flop is None for account in counted.accounts if _has_count(account))
            return [*lines, f"All of them are exact{' in the pass that has a total' if partial else ''}."]
        lines.append(
            f"Every FLOP of difference has a cause. Furthest off: {worst.counter}, {worst.phase}, "
            f"{digits(worst.flop_ratio or 0, 4)} × exact."
        )
    return lines


def _detail(counted: ModelCounts, counter: str, phase: str) -> list[Part]:
    """Every cause of one counter's number of a pass, the largest first."""
    account = counted.account(counter, phase)
    if account is None or account.status != "ok" or account.native_value is None or account.exact_flop is None:
        return []
    rows: list[list[Cell]] = []
    mine = _by_kind(cause for cause in counted.causes if (cause.counter, cause.phase) == (counter, phase))
    for (cause, kind), found in mine[:SHOWN_CAUSES]:
        most, others = fitting(found[0].module, 26), len(found) - 1
        where = f"{most} and {others} more" if others else most
        rows.append([f"{_sum(found):+,}", counted.words.get(cause, cause), kind, where])
    if rest := mine[SHOWN_CAUSES:]:
        total = _sum(each for _, found in rest for each in found)
        rows.append([f"{total:+,}", f"{len(rest)} smaller causes", "", ""])
    left = account.unexplained_flop or 0
    rows.append([f"{left:+,}", Styled("unexplained", "bold red" if left else ""), "", ""])
    cause_column = Column("cause", right=False, wraps=True, least=24)
    columns = (Column("FLOP", right=True), cause_column, Column("kind", rank=2), Column("most in", wraps=True, rank=1))
    title = f"{counter}, {phase}: {account.exact_flop:,} exact → {account.native_value:,} as it says"
    return ["", title, TextTable(columns, rows, rule=False)]


def _by_kind(causes: Iterable[AccountCause]) -> list[tuple[tuple[str, str], list[AccountCause]]]:
    """(cause, kind) → its parts by module; the largest first, and of each the largest part."""
    found: dict[tuple[str, str], list[AccountCause]] = {}
    for cause in causes:
        found.setdefault((cause.cause, cause.kind), []).append(cause)
    return sorted(found.items(), key=lambda item: -abs(_sum(item[1])))


def _sum(causes: Iterable[AccountCause]) -> int | float:
    """Their exact sum, whole where it is."""
    exact = sum((Fraction(cause.flop) for cause in causes), Fraction(0))
    return int(exact) if exact.denominator == 1 else float(exact)


def document(counted: ModelCounts) -> dict[str, Any]:
    """The answer as JSON: every documented key is there, unknown is null."""
    return {
        "model": counted.model,
        "batch_size": counted.batch_size,
        "parameters": counted.parameters,
        "exact": {
            "forward_flop": counted.exact.get("forward"),
            "backward_flop": counted.exact.get("backward"),
            "optimizer_flop": counted.exact.get("optimizer"),
            "recompute_flop": counted.exact.get("recompute"),
            "at_least_flop": {
                phase: counted.at_least_flop.get(phase) if counted.exact[phase] is None else counted.exact[phase]
                for phase in counted.exact
            },
            "unknown_calls": {phase: counted.unknown_calls.get(phase, 0) for phase in counted.exact},
            "unknown_time_ratio": None,  # nothing is timed
            "other_flop": {
                phase: None if counted.unknown_calls.get(phase) else flop for phase, flop in counted.other_flop.items()
            },
            "not_understood": sorted(counted.not_understood),
        },
        "attention": _attention(counted),
        "mixture": {**counted.mixture, "padding_flop": _padding(counted.mixture)} if counted.mixture else None,
        "peak": None if counted.peak is None else references.document(counted.peak),
        "counters": [_counter(counted, counter) for counter in counted.counters],
        "notes": list(counted.notes),
    }


def _attention(counted: ModelCounts) -> dict[str, Any]:
    """Convention → FLOP of both passes, None where a convention is not known; and why not."""
    found: dict[str, Any] = {}
    for convention in CONVENTIONS:
        passes = {f"{phase}_flop": attention_pass(counted, convention, phase) for phase in PHASES}
        if convention == "dense":
            passes = {f"{phase}_flop": counted.exact.get(phase) for phase in PHASES}
        found[convention] = None if all(flop is None for flop in passes.values()) else passes
    reasons = dict(counted.attention.reasons) if counted.attention else dict.fromkeys(CONVENTIONS[1:], NOT_LISTED)
    return {**found, "reasons": reasons}


def _counter(counted: ModelCounts, counter: str) -> dict[str, Any]:
    found = {phase: counted.account(counter, phase) for phase in PHASES}
    first = found["forward"] or found["backward"]
    return {
        "counter": counter,
        "status": None if first is None else first.status,
        "reason": None if first is None else first.reason or None,
        "convention": None if first is None else first.native_unit or None,
        **{f"{phase}_native": account.native_value if account else None for phase, account in found.items()},
        **{f"{phase}_flop": account.flop if account else None for phase, account in found.items()},
        "parameters": None if first is None else first.parameters,
        "duration_s": None if first is None else first.duration_s,
        "peak_memory_bytes": None if first is None else first.peak_memory_bytes,
        "ignored": {} if first is None else dict(first.ignored),
        "not_understood": {} if first is None else dict(first.not_understood),
        "unexplained_flop": _unexplained(found.values()),
        "causes": [
            {"phase": each.phase, "cause": each.cause, "kind": each.kind, "module": each.module, "flop": each.flop}
            for each in counted.causes
            if each.counter == counter
        ],
    }
