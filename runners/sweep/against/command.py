"""`python -m runners.sweep … --against DIR`: is this slower than what lies there, or than with these options?

A is the old side (DIR, or the options of --against-options), B what the command line says, here. Both are run
directories of their own, `old` and `new`, which `runners.report old new` reads as a pair. Exit codes: the sweep's.
"""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.stats import ALARM_RATIO, OF_A_STEP
from results.records import MEASURED, Cell, to_text
from results.store import Manifest, Pairing, Store, check_vacant, harness_version, pairing_of, read_manifest, utc_now
from runners.cli import FAILED, Progress, answering
from runners.sweep import models as sweep_models
from runners.sweep.against.options import SIDES, check_root
from runners.sweep.against.pairs import CAP_S, QUICK_CAP_S, Rules, inside
from runners.sweep.against.session import Comparison, SharedWatch, SideSession
from runners.sweep.options import RUNS, cells_done, grid_of, parser
from runners.sweep.plan import Grid, cell_of, cells
from runners.sweep.session import Limits
from workloads.catalogue import CODE, GRAPHS, check

if TYPE_CHECKING:
    from runners.workers import ProbeResult, TelemetryWatch

LIMIT_RATIO = 0.02

SHARED = (
    "models",
    "batch_sizes",
    "device",
    "methods",
    "counters",
    "quick",
    "repeat",
    "seed",
    "target_ci_ratio",
    "auto",
)
"""Fields of a grid that both sides must have alike."""


@dataclasses.dataclass(frozen=True)
class SweepParts:
    """What the sweep does for any run, and does for each side here."""

    begin_session: Callable[[Store, ProbeResult], TelemetryWatch]
    check_models: Callable[[Grid], None]
    notes: Callable[[ProbeResult], tuple[str, ...]]
    peak_row: Callable[[ProbeResult], dict[str, Any] | None]
    cautions: Callable[[ProbeResult, TelemetryWatch], Sequence[str]]


@dataclasses.dataclass(frozen=True)
class ComparisonPlan:
    """Both sides of a comparison: grids, where the files of each are, cells in pairs, and its mark in the manifests."""

    grids: tuple[Grid, Grid]
    roots: tuple[Path, Path]
    pairs: tuple[tuple[Cell, Cell], ...]
    pairing: Pairing


def run(
    grid: Grid, options: argparse.Namespace, resumed: Path | None, probed: ProbeResult, command: str, parts: SweepParts
) -> int:
    """Measures every cell on both sides, derives both runs, and prints the comparison. The exit code.

    grid: of the new side. resumed: its run, to go on with. Raises ValueError, StoreFault.
    """
    here = Path.cwd()
    plan = _plan(grid, options, probed, here) if resumed is None else _plan_of(grid, resumed, here)
    with inside(plan.roots[0]):
        try:
            parts.check_models(plan.grids[0])
        except ValueError as fault:
            raise ValueError(f"--against, the old side: {fault}") from fault
    folder = resumed.parent if resumed is not None else _folder(options, probed)
    stores = _stores(folder.resolve(), plan, resumed is not None, command, probed, parts)
    options.begun = True
    try:
        failed = _collect(stores, plan, probed, options, parts)
    finally:
        for store in stores:
            store.close()
    return FAILED if _show(folder, options, plan.pairing.limit_ratio) or failed else 0


def _plan(grid: Grid, options: argparse.Namespace, probed: ProbeResult, here: Path) -> ComparisonPlan:
    root = (options.against or here).resolve()
    if options.against is not None and not any(map(_lies_in_checkout, grid.models)):
        raise ValueError(
            f"--against {options.against}: expected a model of a file below this folder, as in file.py:build, got "
            f"{', '.join(grid.models)}, which is the same in both"
        )
    with inside(root):
        old = _old_grid(grid, options, probed)
    pairs = _pairs(old, grid)
    pairing = Pairing(
        identity=uuid.uuid4().hex,
        side="B",
        across=_across(pairs),
        alarm_ratio=ALARM_RATIO if options.alarm is None else options.alarm,
        limit_ratio=LIMIT_RATIO if options.slower is None else options.slower,
        cells=len(pairs),
        root=str(here),
    )
    return ComparisonPlan((old, grid), (root, here), pairs, pairing)


def _plan_of(grid: Grid, resumed: Path, here: Path) -> ComparisonPlan:
    """The plan of a comparison that goes on. Raises ValueError for one that was asked for otherwise."""
    kept = [read_manifest(resumed.parent / side) for side in SIDES]
    old, new = (Grid.from_json(manifest.options) for manifest in kept)
    marks = [pairing_of(manifest.options) for manifest in kept]
    if marks[0] is None or marks[1] is None or marks[0].identity != marks[1].identity:
        raise ValueError(f"--resume: expected {' and '.join(SIDES)} of one comparison in {resumed.parent}")
    if new != grid:
        raise ValueError("--resume: a comparison goes on as it was asked for; start a new one for other options")
    root = Path(marks[0].root)
    check_root(root)
    with inside(root):
        unchanged = sweep_models.digests(old.models) == dict(old.digests)
    if not unchanged or here != Path(marks[1].root):
        raise ValueError(
            f"--resume: expected the files as they were in {root} and {marks[1].root}: start a new comparison"
        )
    return ComparisonPlan((old, grid), (root, here), _pairs(old, grid), marks[1])


def _lies_in_checkout(model: str) -> bool:
    """Whether the model's file is found from the folder that one stands in."""
    spec = check(model)
    return (spec.form in CODE or spec.form in (*GRAPHS.values(), "hf")) and not Path(spec.target).is_absolute()


def _old_grid(grid: Grid, options: argparse.Namespace, probed: ProbeResult) -> Grid:
    """What the old side is asked for: the same, but for the options of --against-options."""
    given = argparse.Namespace(**vars(options))
    if options.against_options:
        made = parser()
        try:
            given = made.parse_args(shlex.split(options.against_options), namespace=given)
        except SystemExit as fault:
            raise ValueError(f"--against-options: {options.against_options!r} is refused as said above") from fault
    try:
        old = grid_of(given, {}, probed)
    except OSError as fault:
        raise ValueError(f"--against: {fault}") from fault
    for name in SHARED:
        if getattr(old, name) != getattr(grid, name):
            option = f"--{name.removesuffix('_ratio').replace('_', '-')}"
            raise ValueError(f"--against-options: {option} has to be the same on both sides")
    if old.precisions != grid.precisions and len(old.precisions) + len(grid.precisions) > 2:
        raise ValueError("--against-options: expected one precision on each side where they differ")
    return old


def _pairs(old: Grid, new: Grid) -> tuple[tuple[Cell, Cell], ...]:
    """Each cell of the new side with that of the old one, in the new side's order."""
    same = old.precisions == new.precisions
    return tuple(
        (cell_of(old, cell.model, cell.batch_size, cell.precision if same else old.precisions[0]), cell)
        for cell in cells(new)
    )


def _across(pairs: Sequence[tuple[Cell, Cell]]) -> tuple[str, ...]:
    """The fields of a step in which the sides differ by choice."""
    return tuple(
        name for name in OF_A_STEP if any(to_text(getattr(a, name)) != to_text(getattr(b, name)) for a, b in pairs)
    )


def _folder(options: argparse.Namespace, probed: ProbeResult) -> Path:
    """Where the two runs go. Raises ValueError for a place that is taken."""
    stamp = utc_now().replace("-", "").replace(":", "").replace("T", "-").removesuffix("Z").partition(".")[0]
    folder: Path = options.out or RUNS / f"{stamp}-{probed.device.replace(':', '')}-against"
    check_vacant(folder)
    return folder


def _stores(
    folder: Path, plan: ComparisonPlan, resumed: bool, command: str, probed: ProbeResult, parts: SweepParts
) -> tuple[Store, Store]:
    """Both run directories, new or gone on with; A's first."""
    made = []
    for name, side, grid, root in zip(SIDES, "AB", plan.grids, plan.roots, strict=True):
        if resumed:
            store = Store.resume(folder / name)
            store.replace_manifest(store.manifest.with_command(command))
        else:
            mark = dataclasses.replace(plan.pairing, side=side, root=str(root))
            manifest = Manifest(
                name=f"{folder.name}-{name}",
                created_at=utc_now(),
                commands=(command,),
                harness_version=harness_version(),
                options={**grid.as_json(), **mark.as_option()},
                peak_row=parts.peak_row(probed),
                notes=parts.notes(probed),
            )
            store = Store.create(folder / name, manifest)
        made.append(store)
    return made[0], made[1]


def _collect(
    stores: tuple[Store, Store],
    plan: ComparisonPlan,
    probed: ProbeResult,
    options: argparse.Namespace,
    parts: SweepParts,
) -> bool:
    """Measures what either side lacks, on both; whether a cell failed."""
    done = [cells_done(store, options) for store in stores]
    todo = [pair for pair in plan.pairs if any(cell.cell_id not in each for cell, each in zip(pair, done, strict=True))]
    if len(todo) < len(plan.pairs):
        print(f"{len(plan.pairs) - len(todo)} of {len(plan.pairs)} pairs of cells are there already", file=sys.stderr)
    if todo:
        watches = [parts.begin_session(store, probed) for store in stores]
        with Progress(2 * len(todo)) as progress:
            for line in parts.cautions(probed, watches[0]):
                progress.say(line)
            watches[0].start()
            try:
                _comparison(stores, plan, probed, options, parts, watches[0], progress).collect(todo)
            finally:
                for watch in watches:
                    watch.close()
    statuses = [store.done() for store in stores]
    return any(
        each.get(cell.cell_id, "ok") not in MEASURED
        for pair in plan.pairs
        for cell, each in zip(pair, statuses, strict=True)
    )


def _comparison(
    stores: tuple[Store, Store],
    plan: ComparisonPlan,
    probed: ProbeResult,
    options: argparse.Namespace,
    parts: SweepParts,
    watch: TelemetryWatch,
    progress: Progress,
) -> Comparison:
    limits = Limits(options.time_budget, options.cell_timeout)
    shared, version, notes = SharedWatch(watch), str(probed.environment.torch.torch), parts.notes(probed)
    old, new = (
        SideSession(store, store.sittings[-1].sitting, version, shared, limits, progress, options.debug, notes)  # type: ignore[arg-type]
        for store in stores
    )
    rules = Rules(
        limit_ratio=plan.pairing.limit_ratio,
        alarm_ratio=plan.pairing.alarm_of_cell,
        cap_s=QUICK_CAP_S if plan.grids[1].quick else CAP_S,
        timeout_s=options.cell_timeout,
    )
    return Comparison(old, new, plan.roots, rules, options.debug)


def _show(folder: Path, options: argparse.Namespace, limit_ratio: float) -> bool:
    """Derives both runs and prints the comparison; whether a cell was left without a row for both."""
    from runners.report.command import rebuild
    from runners.report.compare import render

    old, new = (folder / name for name in SIDES)
    lacking = False
    for side in (old, new):
        try:
            rebuild(side)
        except ValueError as fault:
            print(f"note: {fault}", file=sys.stderr)
            lacking = True
    if not lacking:
        with answering(f"both runs are whole, and python -m runners.report {old} {new} compares them"):
            render(old, new, options.format)
        print(f"python -m runners.report {old} {new} --fail-if slower:{100 * limit_ratio:g}%,flop:0", file=sys.stderr)
    return lacking
