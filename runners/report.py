"""`python -m runners.report DIR`: rebuilds every table and figure of a run from its raw rows.

Needs neither a GPU nor torch. Raw files are read and never changed; what is written is derived and may be written
again: utilization.csv, step_times.csv, cleaned/, figures/. `rebuild` is the same as a function.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from runners.arguments import Parser, exit_code

if TYPE_CHECKING:
    from reports.build import Built

FORMATS = ("table", "csv", "json")

UTILIZATION = "utilization.csv"
STEP_TIMES = "step_times.csv"

UNWRITABLE = 3
"""Exit code where a derived file could not be written."""

SHOWN = 3
"""How many problems of a run without cells its one line names."""

DESCRIPTION = "Rebuild every table and figure of a run from its raw rows. Needs no GPU and no torch."


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. 0: everything is rebuilt; 2: the caller's mistake, as one line; 3: a file could not be written."""
    parser = _parser()
    options = parser.parse_args(arguments)
    from results.errors import Inconsistent, StoreFault

    try:
        built = rebuild(options.directory, options.out)
    except (ValueError, Inconsistent, OSError) as fault:
        parser.fail(str(fault))
    except StoreFault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return UNWRITABLE
    show(built, options.format, options.out or options.directory)
    return 0


def rebuild(path: Path, out: Path | None = None) -> Built:
    """Derives everything from the raw rows of the run directory `path` and writes it there, or into `out`.

    Raises ValueError if `path` holds no run or no committed cell, StoreFault if a file could not be written.
    """
    from reports.build import build
    from results.store import read_operations, read_profile, read_run

    data = read_run(path)
    if not data.runs:
        problems = f" ({'; '.join(data.problems[:SHOWN])})" if data.problems else ""
        raise ValueError(f"expected a run with measured cells, got {path}, which has no committed cell{problems}")
    built = build(data, lambda trace_id: read_operations(path, trace_id)[0], partial(read_profile, path))
    write(built, out or path)
    return built


def write(built: Built, out: Path) -> None:
    """Puts utilization.csv, step_times.csv, cleaned/ and figures/ into `out`, each file whole. Raises StoreFault."""
    from reports import figures, style
    from reports.tables import to_csv
    from results.records import CleaningLog, FlopCount, StepTime, Utilization

    _put(out / STEP_TIMES, to_csv(built.step_times, StepTime).encode())
    _put(out / UTILIZATION, to_csv(built.utilization, Utilization).encode())
    _put(out / "cleaned" / "flop_counts.csv", to_csv(built.cleaned.flop_counts, FlopCount).encode())
    _put(out / "cleaned" / "cleaning_log.csv", to_csv(built.cleaned.log, CleaningLog).encode())
    with style.theme():
        for name, figure in figures.figures(figures.read(out / UTILIZATION)).items():
            for ending, content in style.render(figure).items():
                _put(out / "figures" / f"{name}.{ending}", content)


def _put(path: Path, content: bytes) -> None:
    """Replaces one derived file at once; an equal one is left alone."""
    from results import disk
    from results.errors import StoreFault

    try:
        disk.make_directory(disk.DISK, path.parent)
        if disk.read(path) != content:
            disk.replace(disk.DISK, path, content)
    except OSError as fault:
        raise StoreFault(f"{path} could not be written: {fault.strerror or fault}; raw rows are untouched") from fault


def show(built: Built, form: str, out: Path) -> None:
    """Data on stdout; where the files are on stderr."""
    from reports.tables import to_csv, to_json, to_text
    from results.records import Utilization

    if form == "csv":
        print(to_csv(built.utilization, Utilization), end="")
    elif form == "json":
        print(to_json(built.utilization), end="")
    else:
        print(to_text(built, colour=sys.stdout.isatty()), end="")
    print(f"written: {out / UTILIZATION}, {out / 'cleaned'}, {out / 'figures'}", file=sys.stderr)


def _parser() -> Parser:
    parser = Parser(prog="python -m runners.report", description=DESCRIPTION)
    parser.add_argument("directory", type=Path, metavar="DIR", help="the run, as runners.sweep left it")
    parser.add_argument("--format", choices=FORMATS, default="table", help="how to print utilization (default: table)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to write what is derived (default: into the run)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(exit_code(main))
