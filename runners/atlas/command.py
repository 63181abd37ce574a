"""`python -m runners.atlas`: what did others measure on real GPUs, and how does mine compare?

    python -m runners.atlas MODEL [--device NAME]      published steps of a model, or of models like it
    python -m runners.atlas import --from DIR          the table of all rows, from the sources' files
    python -m runners.atlas page [--out FILE]          docs/atlas.md and its figures, from the table

Nothing is measured. `import` builds each model on fake tensors to count it (timm is needed); the others need no torch.
Exit codes: 0 answered; 1 nothing was published of the model; 2 the caller's mistake; 3 a file could not be written; 130
Ctrl-C, after which `import` goes on where it stopped.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.atlas import TABLE
from runners.cli import FAILED, Mistake, Parser, add_format, guarded, number, passing, put, say, show_page

if TYPE_CHECKING:
    import pandas as pd

    from analysis.atlas import PublishedStep
    from analysis.devices import Device

IMPORT, PAGE = "import", "page"

PAGE_FILE = Path("docs/atlas.md")
FIGURE, INTENSITY = Path("images/atlas.png"), Path("images/atlas_intensity.png")
"""Beside the page."""

SHOWN_DEVICE = "NVIDIA GeForce RTX 3090"
"""Of the figures: the one with rows of training."""

MOST = 40
"""Rows that the table shows."""

COSTS = Path.home() / ".cache" / "flopledger" / "atlas"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    options = parser().parse_args(arguments)
    run = {IMPORT: _import, PAGE: _write_page}.get(options.model, _show)
    return guarded(lambda: run(options), options.debug)


def parser() -> Parser:
    """The parser of `runners.atlas`."""
    made = Parser(
        prog="python -m runners.atlas",
        description="What did others measure on real GPUs, and how does mine compare? MODEL, import or page.",
        epilog="Where the rows are from, and what is not claimed: docs/atlas.md.",
    )
    made.add_argument("model", metavar="MODEL", help="resnet50, timm:NAME; or import, or page")
    made.add_argument("--device", default="", metavar="NAME", help="rows of this device only")
    made.add_argument("--mode", choices=("train", "infer"), help="rows of this kind only")
    add_format(made, "table, csv or json (table)")
    made.add_argument("--out", type=Path, metavar="FILE", help="write the table or page to this file")
    group = made.add_argument_group("import")
    group.add_argument("--from", dest="source", type=Path, metavar="DIR", help="folder of the sources' files")
    group.add_argument(
        "--costs", type=Path, default=COSTS, metavar="DIR", help=f"folder where counts of models are kept ({COSTS})"
    )
    group.add_argument(
        "--processes",
        type=number(int, 0),
        default=2,
        metavar="N",
        help="processes that count models; 0: count in this one (2)",
    )
    made.add_argument("--debug", action="store_true", help="tracebacks")
    return made


def _show(options: Namespace) -> int:
    """The rows of one model. Raises Mistake for an unknown device."""
    from analysis.atlas import on_device, published_steps, relatives, same_model
    from reports.atlas import document, to_csv, to_text
    from runners.reach.command import known_device

    _check_table()
    rows: Sequence[PublishedStep] = [row for row in published_steps() if options.mode in (None, row.mode)]
    if options.device:
        rows = on_device(rows, known_device(options.device).name)
    found = relatives(rows, options.model)
    if not found:
        return _nothing(rows, options)
    found = sorted(found, key=lambda row: -(row.utilization_ratio or 0.0))
    if options.format == "json":
        print(json.dumps(document(found), indent=1, ensure_ascii=False, allow_nan=False))
    elif options.format == "csv":
        print(to_csv(found), end="")
    else:
        found = [row for row in found if row.items_per_s is not None]
        notes = [] if same_model(rows, options.model) else [f"Nothing of {options.model}: these are its relatives."]
        notes += [f"{MOST} of {len(found)} rows; --format csv has all."] if len(found) > MOST else []
        show_page(lambda width, colour: to_text(found[:MOST], "\n".join(notes), width, colour))
    return 0


def _check_table() -> None:
    """Raises Mistake where the table is not there: a wheel leaves it out."""
    if not TABLE.is_file():
        raise Mistake(f"expected the table of published steps, which a checkout has, got no {TABLE.name}")


def _nothing(rows: Sequence[PublishedStep], options: Namespace) -> int:
    from results import nearest

    names = sorted({row.model for row in rows})
    near = nearest(options.model.removeprefix("timm:"), names)
    like = f", nearest {' or '.join(near)}" if near else ""
    where = f" on {options.device}" if options.device else ""
    say(f"error: nothing was published of {options.model!r}{where}{like}")
    return FAILED


def _import(options: Namespace) -> int:
    """The table from the sources. Raises Mistake without files, StoreFault."""
    from analysis.atlas import (
        DEEPBENCH_KERNELS,
        KERNELS,
        is_deepbench,
        is_neusight,
        packed_deepbench,
        packed_kernels,
        read_deepbench,
        read_kernels,
    )
    from analysis.predict import AMOUNTS, packed
    from runners.atlas.costs import count_all
    from runners.atlas.importing import (
        BuiltModel,
        built_models,
        key_of,
        model_of,
        name_of,
        read_sources,
        with_amounts,
        with_costs,
    )
    from runners.atlas.kept_amounts import keep_all

    if options.source is None or not options.source.is_dir():
        raise Mistake(f"import: expected --from with the folder of the sources' files, got {options.source}")
    try:
        rows = read_sources(options.source)
    except ValueError as fault:
        raise Mistake(str(fault)) from fault
    built = built_models({name_of(row) for row in rows})
    keys = [key for row in rows if (key := key_of(row, model_of(row, built))) is not None]
    for done, count in count_all(keys, options.costs, options.processes):
        passing(f"{done} of {count} models counted")
    for done, count in keep_all(keys, options.costs, options.processes):
        passing(f"{done} of {count} steps by class")
    passing("")
    found = list(with_costs(rows, built, options.costs))
    out = options.out or TABLE
    put(out, _packed(found))
    images = (row for row in found if row.status == "ok" and row.sequence_length is None)
    steps = ((row, BuiltModel(row.counted_model)) for row in images)
    used = {key for row, model in steps if (key := key_of(row, model)) is not None}
    put(out.with_name(AMOUNTS.name) if options.out else AMOUNTS, packed(with_amounts(used, options.costs)))
    if kernels := [path for path in options.source.rglob("*") if is_neusight(path)]:
        _put_kernels(kernels, read_kernels, packed_kernels, out.with_name(KERNELS.name) if options.out else KERNELS)
    if sheets := [path for path in options.source.rglob("*") if is_deepbench(path)]:
        beside = out.with_name(DEEPBENCH_KERNELS.name) if options.out else DEEPBENCH_KERNELS
        without = len(sheets) - _put_kernels(sheets, read_deepbench, packed_deepbench, beside)["sheet"].nunique()
        print(f"{without} of {len(sheets)} sheets of DeepBench are of devices without peaks")
    counts = {status: sum(row.status == status for row in found) for status in sorted({row.status for row in found})}
    print(f"{len(found):,} rows: {', '.join(f'{count:,} {status}' for status, count in counts.items())} → {out}")
    return 0


def _put_kernels(
    files: Sequence[Path],
    read: Callable[[Sequence[Path]], pd.DataFrame],
    packed: Callable[[pd.DataFrame], bytes],
    out: Path,
) -> pd.DataFrame:
    """The table of a source's kernels. Raises Mistake for a file that is not of the source, StoreFault."""
    try:
        rows = read(files)
    except ValueError as fault:
        raise Mistake(str(fault)) from fault
    put(out, packed(rows))
    print(f"{len(rows):,} kernels → {out}")
    return rows


def _packed(rows: Sequence[PublishedStep]) -> bytes:
    """The rows as a gzipped CSV; the same bytes for the same rows."""
    from analysis.atlas import PublishedStep
    from results.records import header, to_values

    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(header(PublishedStep))
    writer.writerows(to_values(row) for row in rows)
    return gzip.compress(file.getvalue().encode(), 9, mtime=0)


def _write_page(options: Namespace) -> int:
    """The page and its figures. Raises StoreFault."""
    from analysis.atlas import (
        against_roofline,
        deepbench_bounds,
        kept_deepbench,
        kept_kernels,
        published_steps,
        summary,
    )
    from reports.atlas import page, utilization_and_bound, utilization_by_intensity
    from reports.shared import figure_style

    _check_table()
    table = _with_intensity(published_steps())
    out = options.out or PAGE_FILE
    put(out, page(table, against_roofline(kept_kernels()), deepbench_bounds(kept_deepbench())))
    shown = table[table["device"] == SHOWN_DEVICE]
    bounded, known = shown[shown[summary.BOUNDED].notna()], shown[shown["flop_per_byte"].notna()]
    device = _shown_device()
    bend = device.peaks["fp16"] / (device.bandwidth_bytes_per_s or 1.0)
    with figure_style.theme():
        figures = {
            FIGURE: utilization_and_bound(bounded, f"{SHOWN_DEVICE}, {len(bounded):,} steps that timm published"),
            INTENSITY: utilization_by_intensity(
                known, bend, f"{SHOWN_DEVICE}, {len(known):,} eager steps that timm published"
            ),
        }
        for path, figure in figures.items():
            put(out.parent / path, figure_style.render(figure)["png"])
    print(", ".join(str(path) for path in (out, *(out.parent / path for path in figures))))
    return 0


def _with_intensity(rows: Sequence[PublishedStep]) -> pd.DataFrame:
    """The table of all rows, with the FLOP per byte of their unfused steps (NaN where the amounts are not kept)."""
    from analysis.atlas import summary
    from analysis.predict import kept_amounts, unfused_bytes

    steps = kept_amounts()
    nbytes = [unfused_bytes(row, steps) or math.nan for row in rows]
    table = summary.frame(rows)
    return table.assign(flop_per_byte=table["model_flop"] / nbytes)


def _shown_device() -> Device:
    from analysis.devices import lookup

    device = lookup(SHOWN_DEVICE)
    assert device is not None
    return device
