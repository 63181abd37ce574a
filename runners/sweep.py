"""`python -m runners.sweep`: what utilization does training reach here, over models × batch sizes × precisions?

Parses, asks a worker what the device is, plans the grid, and collects it into a run directory that a later sitting can
go on with. The parent process imports no torch. Exit codes: 0 all cells measured, 1 some cells failed, 2 the caller's
mistake, 3 the store could not be written, 130 Ctrl-C, 143 SIGTERM.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import shlex
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.precisions import PRECISIONS
from measure.counters.registry import COUNTERS
from results.records import RECORDERS
from runners.arguments import Parser, add_format, choice_error, names, number
from runners.exits import FAILED, INTERRUPTED, TERMINATED, UNWRITABLE, exit_code
from runners.plan import DEFAULT_METHODS, METHODS, Grid, cells, check, check_images, check_profile, remaining
from runners.report import CONVENTIONS
from workloads.catalogue import ENTRIES, OPTIMIZERS, SUITES, hyper_of

if TYPE_CHECKING:
    from results.records import Cell
    from results.store import Store
    from runners.cell import Probed
    from runners.watch import Watch

RUNS = Path("results/runs")
PROBE_TIMEOUT_S = 180.0
DEFAULT_MODELS = ("resnet18", "mobilenet_v2")
DEFAULT_BATCHES = {"cpu": (8,), "cuda": (64,)}
DEFAULT_PRECISIONS = {"cpu": ("fp32",), "cuda": ("fp32", "tf32", "amp-bf16")}
SMALLEST_TIMEOUT_S = 1.0

LACKING = "its rows say why, --resume --retry-failed measures those cells again"
"""Such a cell is no failed one: its own step was measured, and the exit code is 0."""

ALL = "all"
EARLIER = "earlier"
"""Among a manifest's options: the other grids that the run was resumed from."""

DESCRIPTION = """Measure the training of models on this device and report what fraction of its peak it uses.
Without arguments: resnet18 and mobilenet_v2, on a CUDA device if there is one, else on the CPU (two minutes)."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came: what was measured is kept, as after Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    command = shlex.join(["python", "-m", "runners.sweep", *(sys.argv[1:] if arguments is None else arguments)])
    from results.errors import StoreFault

    signal.signal(signal.SIGTERM, _terminated)
    try:
        return _sweep(options, command)
    except ValueError as fault:
        parser.fail(str(fault))
    except StoreFault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return UNWRITABLE
    except BrokenPipeError:
        raise
    except OSError as fault:  # no room for a temporary file, a pipe, a process or the answer
        print(f"error: {fault}; what was measured is kept, --resume goes on", file=sys.stderr)
        return UNWRITABLE
    except Terminated:
        return _stopped(TERMINATED)
    except KeyboardInterrupt:
        return _stopped(INTERRUPTED)


def _terminated(_signal: int, _frame: object) -> None:
    raise Terminated


def _stopped(code: int) -> int:
    print("stopped; what was measured is kept, --resume goes on", file=sys.stderr)
    return code


def _sweep(options: argparse.Namespace, command: str) -> int:
    """Everything after parsing. Raises ValueError for a mistake, StoreFault, OSError, KeyboardInterrupt."""
    from results.store import check_vacant
    from runners.launch import prepare

    resumed = _resumed(options)
    stored = _stored_options(resumed)
    _check_options(options, stored)
    if resumed is None and options.out is not None:
        check_vacant(options.out)
    prepare()  # starts importing torch while the rest is checked
    probed = _probe(str(_chosen(options, stored, "device", "auto")))
    grid = _grid(options, stored, probed)
    check(grid)
    _check_data(grid)
    earlier = [Grid.from_json(options) for options in stored.get(EARLIER, [])]
    if stored and Grid.from_json(stored) != grid:
        earlier.append(Grid.from_json(stored))
    planned = _union(grid, earlier)
    _check_budget(options.time_budget, planned[0])
    from runners import nsight  # which needs numpy: after the names are checked

    recorder = nsight.check(planned) if resumed is None else ""  # before a directory is made
    with _store(options, resumed, grid, probed, command) as store:
        todo = remaining(planned, store.done(options.retry_failed))
        if len(todo) < len(planned):
            print(f"{len(planned) - len(todo)} of {len(planned)} cells are there already", file=sys.stderr)
        if recorder := recorder or nsight.check(todo):
            print(recorder, file=sys.stderr)
        watch = _sit_down(store, probed) if todo else None
        if resumed is not None:  # not before the machine was found to be one that may go on
            store.replace_manifest(
                dataclasses.replace(store.manifest.with_command(command), options=_as_options(grid, earlier))
            )
        failed = _collect(store, probed, watch, todo, options) if watch else 0
        path, statuses, lacking = store.path, store.done(), store.lacking
    if count := sum(cell.cell_id in lacking for cell in planned):
        print(f"{count} of {len(planned)} cells lack a work that was asked for: {LACKING}", file=sys.stderr)
    _report(path, options.format, options.convention)
    return FAILED if failed or _any_failed(planned, statuses) else 0


def _union(grid: Grid, earlier: Sequence[Grid]) -> list[Cell]:
    """The cells of this grid, then what earlier sittings of the run were asked for beside it: none is forgotten."""
    return list({cell.cell_id: cell for each in (grid, *earlier) for cell in cells(each)}.values())


def _as_options(grid: Grid, earlier: Sequence[Grid]) -> dict[str, Any]:
    """What the manifest keeps of a run's options."""
    return {**grid.as_json(), **({EARLIER: [each.as_json() for each in earlier]} if earlier else {})}


def _sit_down(store: Store, probed: Probed) -> Watch:
    """Begins a sitting. Raises ValueError if this machine may not go on with the run."""
    from results.manifest import harness_version
    from results.records import Sitting as SittingRow
    from runners.collect import utc_now
    from runners.watch import Watch

    watch = Watch(probed.device)
    facts = probed.environment
    version = harness_version()
    for other in {str(sitting.environment.get("harness_version")) for sitting in store.sittings} - {version}:
        print(
            f"note: earlier sittings of this run were collected by version {other}, this is {version}", file=sys.stderr
        )
    store.append_sitting(
        SittingRow(
            sitting=f"s{len(store.sittings)}",
            started_at=utc_now(),
            host=socket.gethostname(),
            device=probed.device,
            device_name=str(facts.get("name") or ""),
            device_uuid=str(facts.get("uuid_hash") or ""),
            driver=str(facts.get("driver") or ""),
            torch_version=str(facts.get("torch") or ""),
            peak_row=_peak_row_id(facts),
            environment={**facts, "harness_version": version},
            preflight=watch.preflight(),
        )
    )
    return watch


def _collect(store: Store, probed: Probed, watch: Watch, todo: list[Cell], options: argparse.Namespace) -> int:
    """Measure what is to do, in the sitting begun last; how many cells failed."""
    from runners.collect import Limits, Sitting, failed
    from runners.progress import Progress

    name, facts = store.sittings[-1].sitting, probed.environment
    limits = Limits(options.time_budget, options.cell_timeout)
    with Progress(len(todo)) as progress:
        for line in _cautions(facts, watch):
            progress.say(line)
        watch.start()
        try:
            return len(failed(Sitting(store, name, facts, watch, limits, progress, options.debug).collect(todo)))
        finally:
            watch.close()


def _cautions(facts: dict[str, Any], watch: Any) -> list[str]:
    """What a person should know before the numbers come."""
    lines = []
    if facts.get("device") == "cpu":
        lines.append("measuring on the CPU: there is no datasheet peak, the ceiling found here is the denominator")
    if watch.reason:
        lines.append(watch.reason)
    return lines


def _probe(device: str) -> Probed:
    """What the device is, asked in a process that ends again. Raises ValueError for one that is not there."""
    found: Probed = _asked("runners.cell:probe", device)
    return found


def _check_data(grid: Grid) -> None:
    """Raises ValueError for images that cannot be read, or fewer than are asked for."""
    if grid.data != "synthetic":
        check_images(grid, _asked("runners.batches:images", grid.data))


def _asked(task: str, *arguments: Any) -> Any:
    """The answer of a process that ends again. Raises ValueError if it has none."""
    from runners.launch import Fault, Worker

    worker = Worker("probe")
    try:
        answer = worker.call(task, *arguments, timeout_s=PROBE_TIMEOUT_S)
    finally:
        worker.stop()
    if isinstance(answer, Fault):
        raise ValueError(answer.reason)
    return answer


def _check_options(options: argparse.Namespace, stored: dict[str, Any]) -> None:
    """What can be checked without a device. Raises ValueError."""
    from workloads.cifar_files import directory_of

    for model in _models(options, stored):
        if model not in ENTRIES:
            raise ValueError(f"--models: {choice_error('model', model, ENTRIES)}")
        for size in ("image_size", "num_classes"):
            try:
                hyper_of(model, **{size: _chosen(options, stored, size, None)})
            except ValueError as fault:
                raise ValueError(f"--{size.replace('_', '-')}: {fault}") from fault
    directory = directory_of(str(_chosen(options, stored, "data", "synthetic")))
    if directory is None and _chosen(options, stored, "input_pipeline", None):
        raise ValueError("--input-pipeline: expected --data cifar10:DIR beside it, got synthetic data, which has none")
    methods = _chosen(options, stored, "methods", DEFAULT_METHODS)
    check_profile(str(_chosen(options, stored, "profile", "")), tuple(methods))
    if options.epoch_images is not None and "epoch" not in methods:
        raise ValueError(f"--epoch-images: expected --methods with epoch beside it, got {','.join(methods)}")
    device = str(_chosen(options, stored, "device", "auto"))
    kind, _, index = device.partition(":")
    if (
        kind not in ("auto", "cpu", "cuda")
        or (index and not (kind == "cuda" and index.isdecimal()))
        or device[-1:] == ":"
    ):
        raise ValueError(f"--device: expected auto, cpu, cuda or cuda:N, got {device!r}")


def _check_budget(budget_s: float | None, first: Cell) -> None:
    """Raises ValueError for a time budget in which not even one cell would finish."""
    from runners.collect import least_s

    if budget_s is not None and budget_s < least_s(first):
        raise ValueError(f"--time-budget: expected at least {least_s(first):.3g} s, one cell's least, got {budget_s:g}")


def _grid(options: argparse.Namespace, stored: dict[str, Any], probed: Probed) -> Grid:
    """The grid asked for: what was given here, else what the run had, else the defaults of suite and device.

    Raises ValueError for a precision that this device does not have.
    """
    kind = probed.device.partition(":")[0]
    asked = _chosen(options, stored, "precisions", None)
    precisions = asked or tuple(name for name in DEFAULT_PRECISIONS[kind] if name not in probed.refused)
    for name in precisions:
        if name in probed.refused:
            usable = ", ".join(p for p in PRECISIONS if p not in probed.refused)
            raise ValueError(f"--precisions: {probed.refused[name]}; expected of {usable}, got {name}")
    suite = SUITES.get(options.suite or "")
    given = {
        f.name: value for f in dataclasses.fields(Grid) if (value := _chosen(options, stored, f.name, None)) is not None
    }
    defaults: dict[str, Any] = {"batch_sizes": DEFAULT_BATCHES[kind]}
    if suite is not None:
        defaults |= {"num_classes": suite.num_classes, "image_size": suite.image_size}
        defaults |= {"counters": tuple(COUNTERS)} if suite.every_counter else {}
    own = {"models": _models(options, stored), "precisions": tuple(precisions), "device": probed.device}
    return Grid.from_json({**defaults, **given, **own})


def _models(options: argparse.Namespace, stored: dict[str, Any]) -> tuple[str, ...]:
    if options.models is None and options.suite is not None:
        return SUITES[options.suite].models
    models = tuple(_chosen(options, stored, "models", DEFAULT_MODELS))
    return (*SUITES[options.suite].models, *models) if options.suite else models


def _chosen(options: argparse.Namespace, stored: dict[str, Any], name: str, default: Any) -> Any:
    """An option as given on the command line, else as the resumed run had it, else the default."""
    value = getattr(options, name, None)
    return value if value is not None else stored.get(name, default)


def _resumed(options: argparse.Namespace) -> Path | None:
    """The run to go on with; None for a new one. Raises ValueError if there is none to be found."""
    if options.resume is None:
        return None
    if options.resume:
        if options.out is not None and options.out != Path(options.resume):
            raise ValueError(f"--resume {options.resume} and --out {options.out} name two directories")
        return Path(options.resume)
    if options.out is not None:
        return Path(options.out)
    runs = sorted(RUNS.glob("*/manifest.json"), key=lambda file: file.stat().st_mtime)
    if not runs:
        raise ValueError(f"--resume: expected a run in {RUNS}, found none; name its directory")
    return runs[-1].parent


def _stored_options(resumed: Path | None) -> dict[str, Any]:
    if resumed is None:
        return {}
    from results.manifest import read_manifest

    return dict(read_manifest(resumed).options)


def _store(options: argparse.Namespace, resumed: Path | None, grid: Grid, probed: Probed, command: str) -> Store:
    """The run directory, new or gone on with. Raises ValueError if it cannot be had."""
    from results.manifest import Manifest, harness_version
    from results.store import Store
    from runners.collect import utc_now

    if resumed is not None:
        return Store.resume(resumed)
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    path = options.out or RUNS / f"{stamp}-{probed.device.replace(':', '')}"
    manifest = Manifest(
        name=path.name,
        created_at=utc_now(),
        commands=(command,),
        harness_version=harness_version(),
        options=grid.as_json(),
        peak_row=_peak_row(probed.environment),
    )
    return Store.create(path, manifest)


def _peak_row(facts: dict[str, Any]) -> dict[str, Any] | None:
    """A copy of the device's row of analysis/peaks.csv; None where it has none."""
    from analysis.peaks import lookup

    device = lookup(str(facts.get("name") or ""), facts.get("multiprocessors"))
    if device is None:
        return None
    told = ("name", "row_id", "source", "verification", "bandwidth_bytes_per_s")
    return {**{name: getattr(device, name) for name in told}, "peaks": dict(device.peaks)}


def _peak_row_id(facts: dict[str, Any]) -> str:
    row = _peak_row(facts)
    return "" if row is None else str(row["row_id"])


def _report(path: Path, form: str, convention: str | None) -> None:
    """Derive everything from what is committed, and print it. convention: None is the table's own."""
    from runners.report import rebuild, show

    built = rebuild(path)
    try:
        show(built, form, path, **({} if convention is None else {"convention": convention}))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader had enough, as `head` does; what it did not want goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _any_failed(planned: Sequence[Cell], statuses: dict[str, str]) -> bool:
    from results.records import MEASURED

    return any(statuses.get(cell.cell_id, "ok") not in MEASURED for cell in planned)


def _parser() -> Parser:
    parser = Parser(prog="python -m runners.sweep", description=DESCRIPTION)
    grid = parser.add_argument_group("what is measured")
    grid.add_argument("--models", type=names("model"), help="comma-separated torchvision models, or synthetic_*")
    grid.add_argument("--suite", choices=list(SUITES), help="a named list of models with its sizes")
    grid.add_argument("--batch-sizes", type=_batches, metavar="N,N", help="default: 8 on a CPU, 64 on CUDA")
    grid.add_argument("--precisions", type=names("precision", list(PRECISIONS)), help=", ".join(PRECISIONS))
    grid.add_argument("--device", help="auto (default), cuda, cuda:1 or cpu")
    grid.add_argument("--layout", choices=("channels_first", "channels_last"))
    grid.add_argument("--compile", action="store_true", default=None, help="train torch.compile's model")
    grid.add_argument("--optimizer", choices=OPTIMIZERS)
    grid.add_argument("--image-size", type=number(int, 1), metavar="PIXELS")
    grid.add_argument("--num-classes", type=number(int, 1), metavar="N")
    grid.add_argument("--data", help="synthetic (default) or cifar10:DIR")
    grid.add_argument(
        "--input-pipeline",
        action="store_true",
        default=None,
        help="each step takes its batch from a DataLoader, within its time (needs --data cifar10:DIR)",
    )
    how = parser.add_argument_group("how it is counted and timed")
    how.add_argument(
        "--methods", type=names("method", METHODS), help=f"of {','.join(METHODS)} (default: {','.join(Grid.methods)})"
    )
    how.add_argument(
        "--profile",
        choices=RECORDERS,
        help="keep each work's recording, and count by its kernels, too (docs/traces.md)",
    )
    how.add_argument("--epoch-images", type=number(int, 1), metavar="N", help="of the method epoch (default: 10000)")
    how.add_argument(
        "--counters",
        type=_counters,
        help=f"of {', '.join(COUNTERS)}, or all (default: {','.join(Grid.counters)}; of a suite of counters: all)",
    )
    how.add_argument("--peak-tflops", type=number(float, 1e-6), help="a denominator of your own, in 1e12 FLOP/s")
    how.add_argument("--target-ci", dest="target_ci_ratio", type=number(float, 1e-6, 0.999999), metavar="RATIO")
    how.add_argument("--cudnn-benchmark", type=_on_off, metavar="on|off", help="default: on")
    how.add_argument("--deterministic", action="store_true", default=None)
    how.add_argument("--quick", action="store_true", default=None, help="all times divided by 5; rows are marked")
    how.add_argument("--repeat", type=number(int, 1), metavar="N", help="measure each cell in N fresh workers")
    how.add_argument("--seed", type=number(int, 0, 2**31 - 1), help="of the order of cells, the weights and the data")
    run = parser.add_argument_group("the run")
    run.add_argument("--out", type=Path, metavar="DIR", help=f"new run directory (default: {RUNS}/DATE-DEVICE)")
    run.add_argument("--resume", nargs="?", const="", metavar="DIR", help="go on with a run (default: --out, or last)")
    run.add_argument(
        "--retry-failed",
        action="store_true",
        help="with --resume: measure failed cells again, and cells with a failed work",
    )
    run.add_argument("--time-budget", type=number(float, 0), metavar="S", help="start no cell that would not finish")
    run.add_argument("--cell-timeout", type=number(float, SMALLEST_TIMEOUT_S), default=900.0, metavar="S")
    add_format(run)
    run.add_argument("--convention", choices=CONVENTIONS, help="of the numbers shown (default: flop)")
    run.add_argument("--debug", action="store_true", help="show tracebacks and what workers print")
    return parser


def _batches(text: str) -> tuple[int, ...]:
    convert = number(int, 1)
    return tuple(dict.fromkeys(convert(part.strip()) for part in text.split(",")))


def _counters(text: str) -> tuple[str, ...]:
    chosen = names("counter", [*COUNTERS, ALL])(text)
    return tuple(COUNTERS) if ALL in chosen else chosen


def _on_off(text: str) -> bool:
    if text not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"expected on or off, got {text!r}")
    return text == "on"


if __name__ == "__main__":
    sys.exit(exit_code(main))
