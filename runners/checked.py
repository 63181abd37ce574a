"""`python -m runners.report DIR --check`: a run's rows through every gate. Reads, and writes nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runners.exits import FAILED, Mistake

if TYPE_CHECKING:
    from cleaning.evidence import Evidence


def told(path: Path, form: str) -> int:
    """Prints the verdicts on the run `path`. 0: all gates pass or are open; 1: one fails. Raises Mistake."""
    from cleaning.gates import judge
    from reports import gates
    from reports.tables import to_csv, to_json
    from results.errors import Inconsistent
    from results.verdicts import FAIL, Verdict

    try:
        evidence = evidence_of(path)
    except (ValueError, Inconsistent, OSError) as fault:
        raise Mistake(str(fault)) from fault
    verdicts = judge(evidence)
    if form == "csv":
        print(to_csv(verdicts, Verdict), end="")
    elif form == "json":
        print(to_json(verdicts), end="")
    else:
        print(gates.to_text(verdicts, {run.cell_id: gates.name_of(run) for run in evidence.data.runs}), end="")
    return FAILED if any(verdict.verdict == FAIL for verdict in verdicts) else 0


def evidence_of(path: Path) -> Evidence:
    """Everything that the gates ask of the run directory `path`.

    Raises ValueError if it holds no run, or none with a committed cell.
    """
    from cleaning.evidence import Evidence, all_facts, samples_and_telemetry
    from cleaning.raw import records
    from reports.build import build
    from reports.gallery import UTILIZATION, read
    from results.records import Utilization
    from results.store import read_operations, read_profile, read_run
    from runners.report_recordings import recording

    data = read_run(path)
    if not data.all_runs:
        raise ValueError(f"expected a run with measured cells, got {path}, which has no committed cell")
    built = build(
        data,
        lambda trace_id: read_operations(path, trace_id)[0],
        partial(read_profile, path),
        partial(recording, path),
    )
    samples, telemetry = samples_and_telemetry(data)
    return Evidence(
        data=data,
        facts=all_facts(data.runs, partial(read_operations, path)),
        rebuilt=built.utilization,
        published=records(read(path / UTILIZATION, Utilization), Utilization),
        keeps_utilization=(path / UTILIZATION).is_file(),
        profile_counts=built.profile_counts,
        agreement=built.agreement,
        batch_laws=built.batch_laws,
        samples=samples,
        telemetry=telemetry,
    )
