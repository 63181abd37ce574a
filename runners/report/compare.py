"""`python -m runners.report A B`: are these two runs different? Reads both; what it tells is a page only with --out.

`python -m runners.report A B --fail-if slower:2%,flop:0`: may run B replace run A? Exit code 5 where it may not.

Reads both runs and writes nothing but its answer. What each condition means: `reports/compare/gate.py`.

`python -m runners.report DIR --check` puts a run's rows through every gate; it reads, and writes nothing.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from cleaning.facts.self_test import SELF_TEST_FILE, SelfTest, parsed
from cleaning.facts.values import faults
from cleaning.gates import gates
from cleaning.gates.evidence import Evidence, TraceFacts, all_facts, facts_or_fault
from cleaning.reconcile.run import build
from cleaning.reconcile.variants import Built
from reports.compare import cells, page
from reports.compare.gate import Condition, fails, gate_markdown, gate_summary, gate_text, judge
from reports.compare.page import Side
from reports.shared import figure_style
from reports.shared.numbers import run_name
from reports.sweep import checks
from reports.sweep.table import documents, to_csv
from results.errors import Inconsistent
from results.records.answers import Comparison, GateCheck, Utilization, Verdict, stands
from results.records.counts import Operation, Storage
from results.store.manifest import MANIFEST
from results.store.reading import RunData, read_run
from results.store.store import read_operations, read_profile
from results.store.tables import read_records
from results.text_files import json_value, read_text
from runners.cli.exits import FAILED, GATE, UNWRITABLE, Mistake, as_mistake
from runners.cli.output import attempt, put, put_figures, say, show_answer
from runners.report.derived import UTILIZATION, recording, show_rows

TABLE = "comparison.csv"
PAGE = "report.html"
FIGURES = "figures"


def render(
    a: Path,
    b: Path,
    form: str,
    across: Collection[str] = (),
    margin_ratio: float | None = None,
    out: Path | None = None,
    fail_if: Sequence[tuple[str, float]] = (),
    undecided: str = "pass",
) -> int:
    """Prints a row for each cell of either run, and writes them with their page into `out`; 0, or 3 for a lost figure.

    fail_if: conditions of a gate with their limits: prints its answer in place of the rows, and returns 5 if it fails.

    Raises Mistake for runs that cannot be compared and for an `out` that is a run, StoreFault.
    """
    if out is not None and (out / MANIFEST).is_file():  # the files would stand among those of a run
        raise Mistake(f"--out: expected a directory of its own for the comparison, got {out}, which is a run")
    with as_mistake(ValueError, OSError):
        sides = Side("A", str(a), _read(a)), Side("B", str(b), _read(b))
        rows = cells.compare_runs(sides[0].data, sides[1].data, across, margin_ratio)
        asked = tuple(Condition(name, limit) for name, limit in fail_if)
        checks = judge(sides[0].data, sides[1].data, rows, asked, across) if asked else []
    faults = [] if out is None else _write(rows, sides, sorted(across), out)
    if asked:
        code = show_gate(checks, asked, sides, form, undecided)
    else:
        code = 0
        _print(rows, sides, form, sorted(across))
    if out is not None:
        say(f"written: {out / TABLE}, {out / FIGURES}, {out / PAGE}")
    for line in faults:
        say(f"error: {line}")
    return UNWRITABLE if faults else code


def _print(rows: Sequence[Comparison], sides: tuple[Side, Side], form: str, across: Sequence[str]) -> None:

    first, second = (side.path for side in sides)
    show_rows(
        form,
        lambda width, colour: cells.to_text(rows, first, second, across, width, colour),
        rows,
        Comparison,
    )


def _write(rows: Sequence[Comparison], sides: tuple[Side, Side], across: Sequence[str], out: Path) -> list[str]:
    """The table, then what is drawn of it, then the page; a line for each that could not be made. Raises StoreFault."""
    put(out / TABLE, to_csv(rows, Comparison))
    faults: list[str] = []
    pictures = put_figures(out / FIGURES, lambda: figure_style.render_all(lambda: page.ratios(rows)), faults)
    text = attempt(PAGE, lambda: page.page(rows, sides, pictures, across), faults)
    if text is not None:
        put(out / PAGE, text)
    return faults


def _read(path: Path) -> RunData:

    data = read_run(path)
    if not data.runs:
        raise ValueError(f"expected a run with measured cells, got {path}, which has no committed cell")
    return data


def show_gate(
    checks: Sequence[GateCheck], asked: Sequence[Condition], sides: tuple[Side, Side], form: str, undecided: str
) -> int:
    """Prints the answer; 5 if the gate fails, else 0."""
    strict = undecided == "fail"
    if form == "markdown":
        print(gate_markdown(checks, asked, sides, strict), end="")
    else:
        show_answer(
            form,
            lambda width, colour: gate_text(checks, asked, sides, strict, width, colour),
            lambda: {**gate_summary(checks, asked, strict), "checks": documents(checks)},
            lambda: to_csv(checks, GateCheck),
        )
    return GATE if fails(checks, strict) else 0


ReadTable = Callable[[str], "tuple[Sequence[Operation], Sequence[Storage]]"]


def render_check(path: Path, form: str) -> int:
    """Prints the verdicts on the run `path`. 0: no gate fails, and none that a published run needs is open; else 1.

    Raises Mistake.
    """
    with as_mistake(ValueError, Inconsistent, OSError):
        evidence = evidence_of(path)
    verdicts = gates.judge(evidence)
    cells = {run.cell_id: run_name(run) for run in evidence.data.runs}
    show_rows(form, lambda width, colour: checks.to_text(verdicts, cells, width, colour), verdicts, Verdict)
    return 0 if all(map(stands, verdicts)) else FAILED


def evidence_of(path: Path) -> Evidence:
    """Everything that the gates ask of the run directory `path`. A cell whose own row holds what it cannot, or of which
    nothing can be derived, is left out and named.

    Raises ValueError if it holds no run, or none with a committed cell.
    """
    data = read_run(path)
    if not data.all_runs:
        raise ValueError(f"expected a run with measured cells, got {path}, which has no committed cell")
    malformed = {run.cell_id: "; ".join(words) for run in data.runs if (words := faults(run))}
    data = replace(data, runs=[run for run in data.runs if run.cell_id not in malformed])
    tables = _Tables(partial(read_operations, path))
    data, built = _built(data, path, tables.operations, malformed)
    return Evidence(
        data=data,
        facts=all_facts(data.runs, partial(read_operations, path), tables.facts),
        rebuilt=built.utilization,
        published=[row for row in read_records(path / UTILIZATION, Utilization) if row.cell_id not in malformed],
        keeps_utilization=(path / UTILIZATION).is_file(),
        profile_counts=built.profile_counts,
        agreement=built.agreement,
        batch_laws=built.batch_laws,
        malformed=malformed,
        self_test=self_test_of(path),
    )


def self_test_of(path: Path) -> SelfTest | str | None:
    """The self-test that lies in a run's directory; in words, why it cannot be read; None: there is none."""
    if not (path / SELF_TEST_FILE).is_file():
        return None
    try:
        return parsed(json_value(read_text(path / SELF_TEST_FILE)))
    except (ValueError, OSError) as fault:
        return f"cannot be read: {fault}"


class _Tables:
    """Operation tables as `build` asks for them, and the facts of each on the way: it need not be read again."""

    def __init__(self, read: ReadTable) -> None:
        self._read = read
        self.facts: dict[str, TraceFacts] = {}

    def operations(self, trace_id: str) -> Sequence[Operation]:
        """Raises what reading it raises."""
        table = self._read(trace_id)
        self.facts[trace_id] = facts_or_fault(lambda: table)
        return table[0]


def _built(
    data: RunData, path: Path, read_table: Callable[[str], Sequence[Operation]], malformed: dict[str, str]
) -> tuple[RunData, Built]:
    """What is derived from all cells; from those alone of which something can be, the others go to `malformed`."""

    def derived(some: RunData) -> Built:
        return build(some, read_table, partial(read_profile, path), partial(recording, path))

    try:
        return data, derived(data)
    except Exception:  # noqa: BLE001 - rows of others: a fault in them is reported of their cell
        for run in data.runs:
            try:
                derived(replace(data, runs=[run]))
            except Exception as fault:  # noqa: BLE001
                malformed[run.cell_id] = f"nothing can be derived: {type(fault).__name__}: {fault}"
    data = replace(data, runs=[run for run in data.runs if run.cell_id not in malformed])
    return data, derived(data)
