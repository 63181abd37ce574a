"""Writes the answer of `runners.count` as a table: what each counter counts, and why it is not the exact count.

`to_text` takes a `ModelCounts` and returns a row for each counter and pass. The row has the number that the counter
reports, in the counter's own unit, and its ratio to the exact count. Then come the causes, unit conversion first, and
the FLOP that no cause explains. With `detail`, every cause is listed with its kind and module. Nothing is shown by
colour only.
"""

from fractions import Fraction

from analysis.operators.attention_conventions import BY_RULE, CONVENTIONS
from analysis.operators.registry import registration
from cleaning.accounts.explain import PHASES
from cleaning.accounts.items import CAUSES, CONVENTION
from reports.count.answer import ModelCounts, StepPeak, cause_sums, has_count, unexplained
from reports.shared.layout import WIDTH, Cell, Part, StyledText, TableColumn, TextTable, page, strong
from reports.shared.numbers import STATUS_TEXTS, digits, shortened_name, si
from results.records.answers import Attribution, AttributionCause

SHOWN_CAUSES = 12
"""Maximum number of lines of causes by kind for one pass of one counter."""

KERNELS = "hardware (torch's kernels for CPUs)"
"""Name of the convention of attention that counts what kernels execute. Counts run on fake CPU tensors, so these are
kernels for CPUs."""

SHOWN_IN_ROW = 2
"""Maximum number of causes in a row of the table, besides the conversion."""


def to_text(answer: ModelCounts, width: int = WIDTH, colour: bool = False, detail: bool = False) -> str:
    """Return the table of one model. detail: whether every cause of each counter follows."""
    parts: list[Part] = [*map(strong, heading(answer))]
    if answer.attributions:
        numbers = (TableColumn("its own number", right=True), TableColumn("× exact", right=True))
        why = TableColumn("why", right=False, wraps=True, least=20)
        left = TableColumn("unexplained", right=True, rank=1)
        columns = (TableColumn("counter", right=False), TableColumn("pass"), *numbers, why, left)
        rows = [row for counter in answer.counters for row in _rows_of(answer, counter)]
        parts.append(TextTable(columns, rows, rule=False))
    parts += [*closing(answer), *answer.notes]
    if detail:
        for attribution in answer.attributions:
            parts += _detail(answer, attribution)
    return page(parts, width, colour)


def heading(answer: ModelCounts) -> list[str]:
    """Return the model and its exact count."""
    size = "" if answer.parameters is None else f", {si(answer.parameters, '').strip()} parameters"
    lines = [f"{answer.model}, batch {answer.batch_size}{size}", f"exact: {_totals(answer)}"]
    lines += [f"attention: {texts}"] if (texts := attention_text(answer)) else []
    return lines if answer.peak is None else [*lines, _peak_line(answer.peak)]


def attention_text(answer: ModelCounts) -> str:
    """Return the step by the other conventions of attention; "" without any, or if all count the same. A kernel's own
    count by tiles (`hardware`) is included where known."""
    if answer.attention is None or not answer.attention.calls:
        return ""
    steps: dict[str, int | None] = {}
    for convention in CONVENTIONS:
        passes = [answer.attention_pass(convention, phase) for phase in PHASES]
        steps[convention] = None if None in passes else sum(flop or 0 for flop in passes)
    dense = steps.pop("dense")
    if dense and all(steps[convention] == dense for convention in BY_RULE):
        return "no mask leaves anything out"
    parts = []
    for convention, flop in steps.items():
        name = KERNELS if convention == "hardware" else convention.replace("_", "-")
        if flop is not None and dense:
            parts.append(f"{name} {si(flop, 'FLOP')} a step ({100 * flop / dense:.1f} % of dense)")
        elif convention in BY_RULE:
            parts.append(f"{name} not known ({answer.attention.reasons.get(convention, 'a pass has no count')})")
    return f"counted dense; {', '.join(parts)}"


def _peak_line(step: StepPeak) -> str:
    if step.peak is None:
        return f"peak: none of {step.device} for this step: {step.reason}"
    single, where = step.peak.single, f"on {step.peak.device_name}"
    of_one = f"{si(single.flop_per_s, 'FLOP/s')} of {single.unit}"
    if len(step.peak.by_unit) == 1:
        return f"peak: {of_one} {where}"
    whole = sum(step.flop_by_dtype.values())
    shares = ", ".join(f"{digits(100 * flop / whole)} % {dtype}" for dtype, flop in step.flop_by_dtype.items())
    return f"peak: {si(step.peak.flop_per_s, 'FLOP/s')} of its formats together ({shares}), {of_one} alone, {where}"


def _totals(answer: ModelCounts) -> str:
    """Return both passes in words: "at least" where a call of the pass has no rule, and then no number derived
    from it."""
    forward, backward = flops = [answer.exact.get(phase, 0) for phase in PHASES]
    totals = ", ".join(
        f"{'at least ' * (flop is None)}{si(answer.at_least_flop.get(phase) or 0, 'FLOP')} {phase}"
        for phase, flop in zip(PHASES, flops, strict=True)
    )
    if forward is None or backward is None:
        return totals
    if not forward + backward:
        return f"{totals}; 3 × forward does not apply: there is no product"
    ratio = f", {digits(backward / forward, 4)} × forward" if forward else ""
    off = 3 * forward / (forward + backward) - 1
    deviation = f"{digits(abs(off) * 100, 2)} % {'above' if off > 0 else 'below'} the step" if off else "exact"
    return f"{totals}{ratio}; 3 × forward is {deviation}"


def native_number(value: Fraction | int | float, unit: str) -> str:
    """Return a counter's own number: every digit, and its unit."""
    number = Fraction(value)
    digits_of = f"{int(number):,}" if number.denominator == 1 else f"{float(number):,.1f}"
    return f"{digits_of} {unit.upper()}".rstrip()


def _rows_of(answer: ModelCounts, counter: str) -> list[list[Cell]]:
    """Return a row for each pass that a counter counted; for a failed pass a row with the reason."""
    passes = [attribution for phase in PHASES if (attribution := answer.attribution(counter, phase)) is not None]
    if passes[0].status != "ok":
        status = STATUS_TEXTS.get(passes[0].status, passes[0].status)
        return [[counter, "", "", "", f"{status}: {passes[0].reason}", ""]]
    rows: list[list[Cell]] = []
    for attribution in [attribution for attribution in passes if has_count(attribution)] or passes[:1]:
        number = "–"
        if attribution.native_value is not None:
            number = native_number(attribution.native_value, attribution.native_unit)
        elif attribution.at_least_flop is not None:
            number = f"≥ {native_number(attribution.at_least_flop, 'flop')}"
        is_known = attribution.native_value is not None and attribution.flop_ratio is not None
        ratio = digits(attribution.flop_ratio or 0, 4) if is_known else ""
        left = unexplained([attribution])
        rest = "unknown" if left is None else si(left, "").strip() if left else "0"
        style = "bold red" if left else ""
        why = _cause_text(answer, attribution)
        rows.append(["" if rows else counter, attribution.phase, number, ratio, why, StyledText(rest, style)])
    return rows


def _cause_text(answer: ModelCounts, attribution: Attribution) -> str:
    """Return the conversion to FLOP first, then the other contributions, the largest first."""
    sums = cause_sums(answer.causes, attribution.counter, (attribution.phase,))
    texts = ["a multiply-add is 1: × 2"] if sums.pop(CONVENTION, 0) or attribution.native_unit == "mac" else []
    named = sorted((item for item in sums.items() if item[1]), key=lambda item: -abs(item[1]))
    if not named and attribution.exact_flop is None and has_count(attribution):
        return "; ".join([*texts, "unknown: the exact count is partial"])
    texts += [
        f"{name.replace('_', ' ')} {'+' if change > 0 else '-'}{si(float(abs(change)), '').replace(' ', '')}"
        for name, change in named[:SHOWN_IN_ROW]
    ]
    texts += [f"{len(named) - SHOWN_IN_ROW} smaller"] if len(named) > SHOWN_IN_ROW else []
    return "; ".join(texts) or "none: it is exact"


def closing(answer: ModelCounts) -> list[str]:
    """Return a summary of the table in a line or two."""
    ok = [
        attribution
        for attribution in answer.attributions
        if attribution.status == "ok" and attribution.flop_ratio is not None
    ]
    lines = []
    if answer.not_understood:
        names = ", ".join(f"{name} ({calls})" for name, calls in answer.not_understood.items())
        lines.append(f"The exact count has no rule for {names}: products in them are in no total.")
        lines.append("A rule for each, to be written in the model's file with the FLOP of one call:")
        lines.extend(f"    {registration(name)}" for name in answer.not_understood)
    left = dict.fromkeys(attribution.counter for attribution in ok if attribution.unexplained_flop)
    if left:
        lines.append(f"Not every FLOP is explained: {', '.join(left)}.")
    elif ok:
        worst = max(ok, key=lambda attribution: abs((attribution.flop_ratio or 0) - 1))
        if worst.flop_ratio == 1:
            partial = any(
                attribution.exact_flop is None for attribution in answer.attributions if has_count(attribution)
            )
            return [*lines, f"All of them are exact{' in the pass that has a total' if partial else ''}."]
        lines.append(
            f"Every FLOP of difference has a cause. Furthest off: {worst.counter}, {worst.phase}, "
            f"{digits(worst.flop_ratio or 0, 4)} × exact."
        )
    return lines


def _detail(answer: ModelCounts, attribution: Attribution) -> list[Part]:
    """Return every cause of one counter's number of a pass by kind of operation, the largest first."""
    if attribution.status != "ok" or attribution.native_value is None or attribution.exact_flop is None:
        return []
    by_kind: dict[tuple[str, str], list[AttributionCause]] = {}  # of each the largest part first
    for cause in answer.causes:
        if (cause.counter, cause.phase) == (attribution.counter, attribution.phase):
            by_kind.setdefault((cause.cause, cause.kind), []).append(cause)
    sums = {key: sum((Fraction(cause.flop) for cause in causes), Fraction(0)) for key, causes in by_kind.items()}
    ordered = sorted(sums, key=lambda key: -abs(sums[key]))
    rows: list[list[Cell]] = []
    for name, kind in ordered[:SHOWN_CAUSES]:
        most, others = shortened_name(by_kind[name, kind][0].module, 26), len(by_kind[name, kind]) - 1
        where = f"{most} and {others} more" if others else most
        rows.append([_signed(sums[name, kind]), CAUSES.get(name, name), kind, where])
    if rest := ordered[SHOWN_CAUSES:]:
        rows.append([_signed(sum((sums[key] for key in rest), Fraction(0))), f"{len(rest)} smaller causes", "", ""])
    left = attribution.unexplained_flop or 0
    rows.append([_signed(left), StyledText("unexplained", "bold red" if left else ""), "", ""])
    cause_column = TableColumn("cause", right=False, wraps=True, least=24)
    columns = (
        TableColumn("FLOP", right=True),
        cause_column,
        TableColumn("kind", rank=2),
        TableColumn("most in", wraps=True, rank=1),
    )
    title = (
        f"{attribution.counter}, {attribution.phase}: "
        f"{attribution.exact_flop:,} exact → {attribution.native_value:,} as reported"
    )
    return ["", title, TextTable(columns, rows, rule=False)]


def _signed(flop: Fraction | float) -> str:
    return f"{int(flop):+,}" if Fraction(flop).denominator == 1 else f"{float(flop):+,}"
