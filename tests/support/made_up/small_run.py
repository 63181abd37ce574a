"""A small run written by today's store: cells of a published run with all of their rows, tables and profiles."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from cleaning.reconcile.derived import Built
from cleaning.reconcile.run import build
from results.records.cell import Sample
from results.store.layout import CELL_FILES, key_of
from results.store.reading import read_operation_table, read_run
from results.store.store import Store, read_operations, read_profile
from tests.support.made_up.made_up_runs import Unsynced

PUBLISHED = Path(__file__).parents[3] / "results/published/amd-epyc-2-cores-2026-11-29"


def small_run(target: Path, cells: int = 2) -> Path:
    """Writes the cells with the fewest samples as a run without recordings."""
    data = read_run(PUBLISHED)
    counts = {run.cell_id: sum(row.cell_id == run.cell_id for row in data.records(Sample)) for run in data.runs}
    with Store.create(target, data.manifest, Unsynced()) as store:
        for session in data.sessions:
            store.append_session(session)
        store.append_ceilings(data.ceilings)
        for run in sorted(data.runs, key=lambda run: counts[run.cell_id])[:cells]:
            store.write_operations(run.trace_id, *read_operations(PUBLISHED, run.trace_id))
            entries = store.write_profile(run.cell_id, 1, read_profile(PUBLISHED, run.cell_id, run.attempt))
            kept = {
                file: [replace(row, attempt=1) for row in data.rows[file] if key_of(row) == key_of(run)]
                for file in CELL_FILES
            }
            store.commit(replace(run, attempt=1, profile="", committed=entries), kept)
    return target


def rebuilt(path: Path) -> Built:
    """Everything that a report derives from a run. Raises ValueError or Inconsistent for one that cannot be read."""
    return build(read_run(path), partial(read_operation_table, path), partial(read_profile, path))
