"""analysis/project/frontier_formulas.csv: the formulas of the five domains' models, so that projecting them
needs no torch.

    python -m benchmarks.pages.frontier --write analysis/project/frontier_formulas.csv

makes all of them again (eight minutes); --models wordlm only these. Every formula is `runners.formula`'s, with the
optimizer of Catamount's graph, once by Catamount's rules and once by our own, and was checked there at points that it
was not made from; nothing is fitted or typed here.
"""

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from analysis.catamount.rules import optimizer_of
from analysis.formula.expressions import plain
from analysis.project.domain import AT_LEAST, RULES
from runners import formula as formula_options
from runners.formula_questions import answer

MODELS = ("wordlm", "charlm", "nmt", "speech", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152")

QUANTITIES = ("parameters", "model_flop", "all_flop", "bytes_accessed", "total_footprint_bytes", "kept_bytes")

COLUMNS = ("model", "rules", "optimizer", "sizes", "quantity", "formula")


def rows(model: str, rules: str) -> Iterator[tuple[str, ...]]:
    """One row a quantity, in the order of `COLUMNS`. sizes: the model's own, as JSON."""
    words = [model, "--rules", rules, "--optimizer", optimizer_of(model)]
    found = answer(formula_options.parser().parse_args(words))
    sizes = json.dumps({name: size for name, size in found.point.items() if name != "batch"}, separators=(",", ":"))
    for quantity in QUANTITIES:
        whole = found.totals[quantity]
        name, formula = (f"{AT_LEAST}{quantity}", found.at_least[quantity]) if whole is None else (quantity, whole)
        yield model, found.rules, found.optimizer, sizes, name, plain(formula)


def table(models: Iterable[str]) -> str:
    """The whole file."""
    return table_of(row for model in models for rules in RULES for row in rows(model, rules))


def table_of(found: Iterable[tuple[str, ...]]) -> str:
    """The file of these rows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(found)
    return text.getvalue()


def main() -> int:
    """Write the file, or print it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, metavar="NAME")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write it there")
    options = parser.parse_args()
    text = table(options.models)
    if options.write is None:
        print(text, end="")
    else:
        options.write.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
