"""Gates of what counters said: each row in its own unit, each total its parts, each counter its own law over a run."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from analysis.operators import PRODUCTS
from analysis.stats import line
from analysis.stats.affine import affine
from analysis.utilization import FLOP_PER_NATIVE, OPERATORS, OWN, kind_of_operator
from cleaning.gates.counts import sizes_of
from cleaning.gates.evidence import Evidence
from cleaning.gates.finding import Finding
from cleaning.reconcile import ENOUGH
from results.records import WHOLE, FlopCount, Run
from results.store import key_of

SHOWN = 3

Series = tuple[str, str, str, str, str]
"""Sizes of the model, counter, phase, scope, operator."""


def counters(evidence: Evidence) -> Iterator[Finding]:
    """Each counter's rows: of the cell's model, in FLOP by their unit, totals as their operators, none twice."""
    for run in evidence.data.runs:
        rows = evidence.counts.get(key_of(run), ())
        if not rows and not run.counters:
            continue
        words = list(dict.fromkeys(_rows(run, rows)))
        if evidence.data.manifest.schema_version >= SAYS_MORE:
            words += dict.fromkeys(_beside_the_count(rows))
        more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
        yield Finding(run.cell_id, not words, "; ".join(words[:SHOWN]) + more)


def _rows(run: Run, rows: Sequence[FlopCount]) -> Iterator[str]:
    missing = set(run.counters) - {row.counter for row in rows}
    if missing:
        yield f"nothing of {', '.join(sorted(missing))}"
    places = Counter((row.counter, row.phase, row.batch_size, row.scope, row.operator) for row in rows)
    for (counter, phase, size, scope, operator), times in places.items():
        if times > 1:
            yield f"{counter} {phase} batch {size} {operator or scope} is there {times} times"
    for row in rows:
        name = f"{row.counter} {row.phase} batch {row.batch_size} {row.operator or row.scope}"
        yield from (f"{name}: {words}" for words in (*_row(run, row), *_cost(row)))
    yield from _pooled_counts(rows)
    yield from _totals(rows)
    yield from _here(run, rows)


def _row(run: Run, row: FlopCount) -> Iterator[str]:
    if row.workload != run.model:
        yield f"of {row.workload}, the cell trains {run.model}"
    if run.counters and row.counter not in run.counters:
        yield "a counter that was not asked"
    if row.status != "ok":
        if row.native_value is not None or not row.reason:
            yield f"{row.status} with {row.native_value} and the reason {row.reason!r}"
        return
    factor = FLOP_PER_NATIVE.get(row.native_unit)
    if row.native_value is None or (row.reason and not row.reason.startswith("note:")):
        yield f"ok with {row.native_value} and the reason {row.reason!r}"
    elif factor is None:
        yield f"unit {row.native_unit!r}"
    elif row.operator and row.flop is not None and row.flop != round(factor * row.native_value):
        yield f"{row.native_value} {row.native_unit} are not {row.flop} FLOP"
    elif row.counter == OWN and row.native_unit != "flop":
        yield f"our own count in {row.native_unit}"
    if row.flop is None:
        yield "no FLOP"


PRINTED = re.compile(r"^note: \w+ printed (\d+);")
"""The note of a total that its counter prints otherwise."""

SAY_PARAMETERS = (OWN, "fvcore", "ptflops", "ptflops_aten", "deepspeed", "calflops", "thop", "torchinfo")
"""Counters whose forward total comes with the model's number of parameters."""

SAYS_MORE = 3
"""The schema from which on rows have both."""


def _beside_the_count(rows: Sequence[FlopCount]) -> Iterator[str]:
    """What a total says beside its count: the number that is printed in its place, as its note has it, and how many
    parameters the model has, where its counter says that."""
    for row in (row for row in rows if row.status == "ok"):
        name = f"{row.counter} {row.phase} batch {row.batch_size}"
        noted = PRINTED.match(row.reason)
        if (noted and int(noted[1])) != row.printed:
            yield f"{name}: {row.printed} were printed, by its note {noted[1] if noted else 'nothing'}"
        total = row.phase == "forward" and row.scope == WHOLE and not row.operator and not row.extrapolated
        if total and row.counter in SAY_PARAMETERS and row.parameters is None:
            yield f"{name}: a total without the number of parameters, which this counter says"


def _cost(row: FlopCount) -> Iterator[str]:
    """A forward total that was counted says what counting took; one from smaller batches took nothing."""
    if row.status == "ok" and row.phase == "forward" and row.scope == WHOLE and not row.operator:
        known = row.duration_s is not None, row.peak_memory_bytes is not None
        if row.extrapolated and any(known):
            yield "extrapolated, with a time or memory of counting"
        if not row.extrapolated and not all(known):
            yield "counted, without the time and memory that it took"


def _pooled_counts(rows: Sequence[FlopCount]) -> Iterator[str]:
    """All rows of one counter at one batch are counted, or none is."""
    marks: dict[tuple[str, int], set[bool]] = {}
    for row in (row for row in rows if row.status == "ok"):
        marks.setdefault((row.counter, row.batch_size), set()).add(row.extrapolated)
    for (counter, size), each in marks.items():
        if len(each) > 1:
            yield f"{counter} batch {size}: some rows are extrapolated, others counted"


def _totals(rows: Sequence[FlopCount]) -> Iterator[str]:
    """A total is the sum of its operators, in FLOP and, where all are of one unit, in that."""
    groups: dict[tuple[str, str, int], list[FlopCount]] = {}
    for row in rows:
        if row.status == "ok" and row.scope == WHOLE:
            groups.setdefault((row.counter, row.phase, row.batch_size), []).append(row)
    for (counter, phase, size), group in groups.items():
        parts = [row for row in group if row.operator]
        for total in (row for row in group if not row.operator):
            flop = sum(row.flop or 0 for row in parts)
            if parts and total.flop is not None and total.flop != flop:
                yield f"{counter} {phase} batch {size}: {total.flop} FLOP, its operators have {flop}"
            if not parts and counter in OPERATORS and total.flop:
                yield f"{counter} {phase} batch {size}: a total without operators"
            named = [kind_of_operator(counter, row.operator, row.native_unit) in PRODUCTS for row in parts]
            if counter in OPERATORS and parts and not any(named) and total.flop:
                yield f"{counter} {phase} batch {size}: no convolution or matrix product among its operators"
            own = {row.native_unit for row in parts}
            if len(own) == 1 and total.native_unit not in own:
                yield f"{counter} {phase} batch {size}: in {total.native_unit}, its operators in {', '.join(own)}"
            units = {row.native_unit for row in (*parts, total)}
            native = sum(row.native_value or 0 for row in parts)
            if parts and len(units) == 1 and not math.isclose(total.native_value or 0, native, rel_tol=1e-9):
                own_value = f"{total.native_value} {total.native_unit}"
                yield f"{counter} {phase} batch {size}: {own_value}, its operators {native}"
        if parts and len(parts) == len(group):
            yield f"{counter} {phase} batch {size}: operators without a total"


def _here(run: Run, rows: Sequence[FlopCount]) -> Iterator[str]:
    """Each counter that counted has a number at the cell's batch; an extrapolated one is on the line of the others."""
    for counter in dict.fromkeys(row.counter for row in rows if row.status == "ok"):
        mine = [row for row in rows if row.counter == counter and row.status == "ok" and row.scope == WHOLE]
        if not any(row.batch_size == run.batch_size and not row.operator for row in mine):
            yield f"{counter}: no total at a batch of {run.batch_size}"
        for row in (row for row in mine if row.extrapolated):
            alike = [other for other in mine if (other.phase, other.operator) == (row.phase, row.operator)]
            points = {(o.batch_size, o.flop) for o in alike if not o.extrapolated and o.flop is not None}
            if len(points) < 2:
                yield f"{counter} {row.phase}: extrapolated from {len(points)} counted batches"
            elif affine(points, row.batch_size) != row.flop:
                name = f"{counter} {row.phase} {row.operator or WHOLE}"
                yield f"{name}: {row.flop} at {row.batch_size}, counted are {points}"


REMARKS = ("ignored", "not_understood", "parameters")
"""What a counter says of a model, whatever the batch."""


def counter_law(evidence: Evidence) -> Iterator[Finding]:
    """What one counter says of one model: the same in all cells, and on one line in the batch."""
    pooled: dict[Series, dict[int, Counter[int]]] = {}
    cells: dict[Series, dict[tuple[int, int], str]] = {}
    for run in evidence.data.runs:
        for row in evidence.counts.get(key_of(run), ()):
            if row.status == "ok" and row.flop is not None:
                series = (sizes_of(run), row.counter, row.phase, row.scope, row.operator)
                pooled.setdefault(series, {}).setdefault(row.batch_size, Counter())[row.flop] += 1
                cells.setdefault(series, {}).setdefault((row.batch_size, row.flop), run.cell_id)
    yield from _operators(evidence)
    yield from _remarks(evidence)
    for series, points in pooled.items():
        yield from _law(series, points, cells[series])


def _operators(evidence: Evidence) -> Iterator[Finding]:
    """One counter names the same operators of one model in every cell."""
    first: dict[tuple[str, str], tuple[str, frozenset[tuple[str, str]]]] = {}
    for run in evidence.data.runs:
        named: dict[str, set[tuple[str, str]]] = {}
        for row in evidence.counts.get(key_of(run), ()):
            if row.status == "ok" and row.scope == WHOLE:
                named.setdefault(row.counter, set()).add((row.phase, row.operator))
        for counter, names in named.items():
            where, usual = first.setdefault((sizes_of(run), counter), (run.cell_id, frozenset(names)))
            other = sorted({name for _, name in names ^ usual})
            words = f"{counter}: operators other than in cell {where}: {', '.join(other)}" if other else ""
            yield Finding(run.cell_id, not other, words)


def _remarks(evidence: Evidence) -> Iterator[Finding]:
    """What one counter says beside the FLOP of one model's pass is the same in every cell, at every batch.

    printed: at each batch, where it was counted.
    """
    first: dict[tuple[str, ...], tuple[str, object]] = {}
    for run in evidence.data.runs:
        for row in evidence.counts.get(key_of(run), ()):
            if row.status != "ok" or row.operator or row.scope != WHOLE:
                continue
            remarks: dict[str, object] = {name: getattr(row, name) for name in REMARKS}
            if not row.extrapolated:
                remarks[f"printed at {row.batch_size}"] = row.printed
            for name, value in remarks.items():
                key = (sizes_of(run), row.counter, row.phase, name)
                where, usual = first.setdefault(key, (run.cell_id, value))
                same = value == usual
                words = f"{row.counter} {row.phase}: {name} {value}, in cell {where} {usual}"
                yield Finding(run.cell_id, same, "" if same else words)


def _law(series: Series, points: dict[int, Counter[int]], cells: dict[tuple[int, int], str]) -> Iterator[Finding]:
    _, counter, phase, scope, operator = series
    name = f"{counter} {phase} {operator or scope}"
    usual = {size: values.most_common(1)[0][0] for size, values in points.items()}
    for size, values in points.items():
        for value in values:
            if value != usual[size]:
                words = f"{name}: {value} FLOP at a batch of {size}, in other cells {usual[size]}"
                yield Finding(cells[size, value], False, words)
    if len(usual) < ENOUGH:
        return
    holds = line(usual.items()) is not None
    numbers = ", ".join(f"{size}: {usual[size]}" for size in sorted(usual))
    for size, value in usual.items():
        yield Finding(cells[size, value], holds, "" if holds else f"{name} is on no line: {numbers}")
