"""The tables and factors of `runners.reach`, made again.

    python -m benchmarks.reach import --from DIR [--processes N]    published steps, counted: an hour or two
    python -m benchmarks.reach fit                                  factors, intervals, held-out rows: a minute

`import` reads the sources' files (`benchmarks/reach/sources.py`), needs timm, and keeps the rows of sources that it
does not read (NeuSight's, whose models it does not build).
"""

import argparse
import csv
import gzip
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.reach.published import TABLE, published_rows
from analysis.reach.step_time import FACTORS
from benchmarks.reach import counting, evaluation, sources

FOLDER = Path(__file__).parent
AMOUNTS, FAMILIES = FOLDER / "step_amounts.csv.gz", FOLDER / "families.csv"
HELD_OUT = FOLDER.parents[1] / "tests" / "data" / "reach_held_out.csv"

COLUMNS = (
    "source", "commit", "file", "row", "model", "counted_model", "family", "mode", "precision", "layout", "framework",
    "compiled", "device", "devices", "batch_size", "image_size", "step_time_s", "model_flop", "peak_flop_per_s",
    "utilization_ratio", "bound_time_s",
)  # fmt: skip

EVERY = 100
"""Of the rows with a prediction by families left out, one of so many is kept for the tests."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("import", "fit"))
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help="folder of the sources' files")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="that count models (2)")
    options = parser.parse_args(arguments)
    if options.what == "fit":
        fit()
    else:
        import_steps(options.source, options.processes)


def import_steps(folder: Path, processes: int) -> None:
    read = sources.read_sources(folder)
    rows, steps, reasons = counting.with_costs(read, processes)
    names = {row["source"] for row in read}
    others = pd.read_csv(TABLE, dtype=str, keep_default_na=False).to_dict("records")
    rows += [row for row in others if row["source"] not in names]
    TABLE.write_bytes(packed(COLUMNS, ([row[name] for name in COLUMNS] for row in rows)))
    AMOUNTS.write_bytes(packed(counting.STEP_COLUMNS, counting.packed(steps)))
    print(f"\n{len(rows):,} rows → {TABLE}; left out:")
    for reason, count in reasons.most_common():
        print(f"{count:6} {reason}")


def packed(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> bytes:
    """A gzipped CSV: the same bytes for the same rows."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([head, *rows])
    return gzip.compress(file.getvalue().encode(), 9, mtime=0)


def step_amounts() -> dict[counting.StepKey, Any]:
    with gzip.open(AMOUNTS, "rt", encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return counting.unpacked(rows)


def fit() -> None:
    rows = published_rows()
    parts = dict(pd.read_csv(FAMILIES).itertuples(index=False))
    answer, scored = evaluation.evaluate(rows, step_amounts(), parts)
    FACTORS.write_text(json.dumps(answer, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    kept = scored[scored["score"].notna()].iloc[::EVERY]
    kept = kept.assign(ground=kept["group"].str.rpartition(" | ")[2])
    columns = ["mode", "layout", "compiled", "device", "family", "ground", "step_time_s", "predicted_s"]
    kept[columns].to_csv(HELD_OUT, index=False, float_format="%.6g", lineterminator="\n")
    print(evaluation.errors(scored).to_string())
    print(json.dumps({name: answer[name] for name in ("intervals", "coverage", "small")}, indent=1))


if __name__ == "__main__":
    main()
