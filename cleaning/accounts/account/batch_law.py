"""The law of the batch, a·b + c, of the exact count by module and of each counter by operator, as its user sees it.

c is what a batch of any size costs: of the exact count parts that see no sample (swin_v2's position networks), of a
counter also what it charges once (pthflops' bias of a linear layer) or divides by the batch (ptflops' modules). Exact:
whole numbers, nothing fitted. Of parts only those are listed that have a constant or break the law.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from analysis.operators.registry import not_understood
from cleaning.accounts.account.reconcile import OWN, PHASES
from cleaning.accounts.vocabulary.items import exact_flop
from cleaning.reconcile.batch_law import Law, Series, culprits, law_of, listed
from results.records.accounts import AccountLaw
from results.records.calls import CallRecording
from results.records.counts import FlopCount
from results.records.vocabulary import WHOLE

EXACT = "exact"


def exact_laws(model: str, recordings: Mapping[int, CallRecording], asked: Sequence[int]) -> list[AccountLaw]:
    """The law of each pass of a training step, and of its modules. asked: the batches that were to be traced."""
    reasons = [f"batch {size}: {_why(recordings.get(size))}" for size in asked if _why(recordings.get(size))]
    traced = {size: recording for size, recording in recordings.items() if recording.training}
    if not traced:
        reason = "; ".join(reasons)
        return [AccountLaw(model=model, counter=EXACT, phase="forward", status="unavailable", reason=reason)]
    laws = []
    for phase, members in PHASES.items():
        if unknown := not_understood(o for each in traced.values() for o in each.training if o.phase in members):
            why = f"no rule counts {', '.join(unknown)}"
            blank = AccountLaw(model=model, counter=EXACT, phase=phase, status="unavailable", reason=why)
            laws.append(blank)
            continue
        series: dict[str, Series] = {"": {}}
        for size, recording in traced.items():
            series[""][size] = 0
            for operation in recording.training:
                flop = exact_flop(operation) if operation.phase in members else 0
                if flop:
                    mine = series.setdefault(operation.module or "the model itself", {})
                    mine[size] = mine.get(size, 0) + flop
                    series[""][size] += flop
        blank = AccountLaw(model=model, counter=EXACT, phase=phase, native_unit="flop", batches=tuple(sorted(traced)))
        laws += _rows(blank, series, reasons)
    return laws


def _why(recording: CallRecording | None) -> str:
    if recording is None:
        return "not traced"
    return recording.untrained


def counter_laws(model: str, rows: Iterable[FlopCount]) -> list[AccountLaw]:
    """The laws of one counter, of what it prints and of its operators. rows: its own at every batch it was run at."""
    rows = [row for row in rows if row.scope == WHOLE]
    counted = [row for row in rows if row.status == "ok" and row.native_value is not None]
    failed = [row for row in rows if row.status != "ok"]
    if not counted:
        return [_blank(model, row, status=row.status, reason=row.reason) for row in failed[:1]]
    reasons = [f"batch {row.batch_size}: {row.reason or row.status}" for row in failed]
    laws = []
    for phase in dict.fromkeys(row.phase for row in counted):
        mine = [row for row in counted if row.phase == phase]
        unknown = {name for row in mine if row.counter == OWN for name in row.not_understood}
        if unknown:
            laws.append(_blank(model, mine[0], status="unavailable", reason=f"no rule counts {', '.join(unknown)}"))
            continue
        batches = tuple(sorted({row.batch_size for row in mine}))
        laws += _counter_phase(_blank(model, mine[0], batches=batches), mine, reasons)
    return laws


def _counter_phase(blank: AccountLaw, rows: Sequence[FlopCount], reasons: Sequence[str]) -> list[AccountLaw]:
    series: dict[str, Series] = {"": {}}
    native: Series = {}
    for row in rows:
        printed: Any = row.native_value if row.printed is None else row.printed  # not whole, it breaks the law as it is
        series.setdefault(row.operator, {})[row.batch_size] = printed
        if not row.operator:
            native[row.batch_size] = row.native_value  # type: ignore[assignment]
    laws = _rows(blank, series, reasons)
    if native == series[""] or not laws:
        return laws
    total, *parts = laws
    law = _divided(total, law_of(native, blank.batches), _by_size(rows))
    return [replace(total, reason="; ".join([law, *reasons])), *parts]


def _by_size(rows: Sequence[FlopCount]) -> list[str]:
    """Operators, the largest first."""
    sizes: dict[str, float] = {}
    for row in rows:
        if row.operator:
            sizes[row.operator] = max(sizes.get(row.operator, 0), row.native_value or 0)
    return sorted(sizes, key=lambda name: -sizes[name])


def _divided(total: AccountLaw, counted: Law, operators: Sequence[str]) -> str:
    """Why what is printed follows another law than what was counted. Operators that are functions have a dot."""
    modules = [name for name in operators if "." not in name]
    named = f"what modules counted ({listed(modules)}) is divided by the batch"
    if counted.slope_flop is None:
        return f"{named}, and is on no line before that"
    if total.holds is False:
        return f"on no line: {named}, its constant of {counted.constant_flop:,} too"
    return f"note: {named} and does not grow with it; undivided, all of it is {counted.slope_flop:,} a sample"


def _blank(model: str, row: FlopCount, **more: object) -> AccountLaw:
    values = {"model": model, "counter": row.counter, "phase": row.phase, "native_unit": row.native_unit}
    return AccountLaw(**{**values, **more})  # type: ignore[arg-type]


def _rows(blank: AccountLaw, series: Mapping[str, Series], reasons: Sequence[str]) -> list[AccountLaw]:
    """The total, then its parts that have a constant or break the law, the largest constant first."""
    laws = {part: law_of(points, blank.batches) for part, points in series.items()}
    whole = laws[""]
    total = _law_row(blank, "", whole, [*filter(None, (whole.reason, culprits(whole, laws))), *reasons])
    odd = [(part, law) for part, law in laws.items() if part and (law.constant_flop or law.holds is False)]
    odd.sort(key=lambda item: (item[1].constant_flop is not None, -abs(item[1].constant_flop or 0), item[0]))
    return [total, *(_law_row(blank, part, law, [law.reason] if law.reason else []) for part, law in odd)]


def _law_row(blank: AccountLaw, part: str, law: Law, reasons: Sequence[str]) -> AccountLaw:
    return replace(
        blank,
        part=part,
        slope=law.slope_flop,
        constant=law.constant_flop,
        holds=law.holds,
        reason="; ".join(reasons),
    )
