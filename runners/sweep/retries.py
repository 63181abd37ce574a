"""Which cells of a run that goes on need no more measuring, by the `--retry-` options."""

from __future__ import annotations

import argparse

from analysis.utilization import beside_other_work
from results.store import Store, read_run


def done(store: Store, options: argparse.Namespace) -> dict[str, str]:
    """cell_id → status. As `Store.done`, less, with `--retry-ceilings`, those of `beside_other_work`."""
    statuses = store.done(options.retry_failed, options.retry_unconverged)
    if not options.retry_ceilings:
        return statuses
    run = read_run(store.path)
    again = beside_other_work(run.runs, run.ceilings)
    return {cell_id: status for cell_id, status in statuses.items() if cell_id not in again}
