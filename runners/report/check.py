"""`python -m runners.report DIR --check`: a run's rows through every gate. Reads, and writes nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from cleaning.facts.self_test import SELF_TEST_FILE, SelfTest, parsed
from cleaning.facts.values import faults
from cleaning.gates.evidence import Evidence, TraceFacts, all_facts, facts_or_fault
from cleaning.gates.gates import judge
from cleaning.reconcile.run import build
from cleaning.reconcile.view import Built
from reports.shared.numbers import run_name
from reports.sweep import checks
from results.errors import Inconsistent
from results.records.answers import Utilization
from results.records.comparisons import Verdict, stands
from results.records.operations import Operation, Storage
from results.store.reading import RunData, read_run
from results.store.store import read_operations, read_profile
from results.store.tables import read_records
from results.text_files import json_value, read_text
from runners.cli.exits import FAILED, as_mistake
from runners.report.derived import UTILIZATION, recording, show_rows

ReadTable = Callable[[str], "tuple[Sequence[Operation], Sequence[Storage]]"]


def render(path: Path, form: str) -> int:
    """Prints the verdicts on the run `path`. 0: no gate fails, and none that a published run needs is open; else 1.

    Raises Mistake.
    """
    with as_mistake(ValueError, Inconsistent, OSError):
        evidence = evidence_of(path)
    verdicts = judge(evidence)
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
