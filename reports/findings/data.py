"""Published runs as the findings read them: what lies in a run's directory, raw rows and derived tables, once each.

A table that a run does not have is empty. Nothing is rebuilt here: `python -m runners.report RUN --check` holds derived
tables to the raw rows (`rebuilt`).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from reports.sweep.figures import AGREEMENT, POST2021, PROFILED, RATIOS, UTILIZATION, WORK_TIMES
from results.records import (
    MEASURED,
    Agreement,
    Ceiling,
    CleanedOperation,
    Ratio,
    Record,
    Run,
    Utilization,
    WorkTime,
)
from results.store import CEILINGS, RunData, read_records

R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Published:
    """One published run. data: its raw rows; path: its directory."""

    path: Path
    data: RunData

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def measured_cells(self) -> list[Run]:
        """The cells that have a time."""
        return [run for run in self.data.runs if run.status in MEASURED]

    @property
    def device_name(self) -> str:
        """What its devices call themselves."""
        return ", ".join(dict.fromkeys(sitting.device_name or sitting.device for sitting in self.data.sittings))

    @property
    def on_gpu(self) -> bool:
        """Whether any cell was measured on one."""
        return any(run.device.startswith("cuda") for run in self.measured_cells)

    @functools.cached_property
    def utilization(self) -> list[Utilization]:
        """Its utilization.csv."""
        return self._rows(UTILIZATION, Utilization)

    @functools.cached_property
    def post2021(self) -> list[Utilization]:
        """The same in the arithmetic of the 2021 post."""
        return self._rows(POST2021, Utilization)

    @functools.cached_property
    def agreement(self) -> list[Agreement]:
        """Each counter beside our own count."""
        return self._rows(AGREEMENT, Agreement)

    @functools.cached_property
    def work_times(self) -> list[WorkTime]:
        """How long one sample, a batch and an epoch take."""
        return self._rows(WORK_TIMES, WorkTime)

    @functools.cached_property
    def model_ratios(self) -> list[Ratio]:
        """Backward ÷ forward of whole models."""
        return [row for row in self._rows(RATIOS, Ratio) if row.level == "model"]

    @functools.cached_property
    def profiled(self) -> list[CleanedOperation]:
        """The products of its profiles."""
        return self._rows(PROFILED, CleanedOperation)

    def products(self, cell_id: str, work: str) -> list[CleanedOperation]:
        """The products of one work of one cell."""
        return [row for row in self.profiled if (row.cell_id, row.work) == (cell_id, work)]

    def has_figure(self, name: str) -> bool:
        """Whether this figure was drawn from its tables."""
        return (self.path / "figures" / f"{name}.png").is_file()

    def headline(self, run: Run, method: str = "exact") -> Utilization | None:
        """A cell's fraction by one method over the first denominator that is known: datasheet, user, ceiling."""
        rows = [r for r in self.utilization if (r.cell_id, r.method) == (run.cell_id, method)]
        known = {row.denominator: row for row in rows if row.utilization_ratio is not None}
        return next((known[name] for name in ("datasheet", "user", "ceiling") if name in known), None)

    def _rows(self, file: str, record: type[R]) -> list[R]:
        return list(read_records(self.path / file, record))


def bandwidth(folder: Path, device_name: str) -> tuple[float, str] | None:
    """The fastest copy or triad that was published for a device of this name, bytes/s, and where; None: none was.

    folder: where runs are published. A ceilings.csv there may stand alone, as `runners.ceiling --out` leaves it.
    """
    found: list[tuple[float, str]] = []
    for path in sorted(folder.glob(f"*/{CEILINGS}")):
        for row in read_records(path, Ceiling):
            memory = row.operation in ("copy", "triad") and row.family != "cache"
            if memory and row.device_name == device_name and row.bytes_per_s is not None:
                found.append((row.bytes_per_s, path.parent.name))
    return max(found, default=None)


def widest(runs: Iterable[Published]) -> list[Published]:
    """GPUs first, then those of the most models, then the latest."""

    def rank(run: Published) -> tuple[bool, int, str]:
        return run.on_gpu, len({cell.model for cell in run.measured_cells}), run.data.manifest.created_at

    return sorted(runs, key=rank, reverse=True)


def common_settings(cells: Iterable[Run]) -> list[Run]:
    """The cells of the precision, layout, compiler and allocator that the most have, one of each repeated cell."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for cell in cells:
        if cell.repeat == 0:
            groups.setdefault((cell.precision, cell.layout, cell.compile, cell.malloc), []).append(cell)
    return max(groups.values(), key=len, default=[])


def largest_batch(runs: Sequence[Run]) -> int:
    """The batch that the most models have; of several the largest."""
    models: dict[int, set[str]] = {}
    for run in runs:
        models.setdefault(run.batch_size, set()).add(run.model)
    return max(models, key=lambda size: (len(models[size]), size))
