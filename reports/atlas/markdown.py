"""docs/atlas.md: what others measured on real GPUs, beside our counts, peaks and bounds. Generated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis.atlas import COMMIT, DEEPBENCH_COMMIT, DEEPBENCH_REASONS, REASONS, faster, summary
from reports.shared import markdown, markdown_table, percent, si, si_time

FEWEST = 12
"""Rows of a family that has a line of its own."""

SHOWN = 12
"""The best and the worst."""

EXPLAINED = """Each has a rule with a reason from the data (`analysis/atlas/beyond_bound.py`), held by a test. *cache*:
a step that memory alone bounds, compiled, on a card whose L2 cache (72 MB on an RTX 4090 by its
whitepaper) can hold what passes from one group to the next; that this is the reason has not been
measured. *clock*: a step that arithmetic bounds, on a GeForce card; its boost clock is nominal, and the
card may run faster; not measured either."""

REPOSITORIES: Mapping[str, tuple[str, str]] = {
    "timm": ("huggingface/pytorch-image-models", "results/"),
    "Lambda": ("lambdal/deeplearning-benchmark", ""),
    "NVIDIA examples": ("NVIDIA/DeepLearningExamples", ""),
    "NeuSight": ("sitar-lab/NeuSight", ""),
    "Zeus": ("SymbioticLab/Zeus", ""),
    "MLPerf": ("mlcommons/training_results_v3.1", ""),
}
"""Source → its repository, and the folder of its files."""

IN_PARTS = "no bound: attention in parts"
"""How the reason of a row begins whose bound was left out for that."""


def page(table: pd.DataFrame, kernels: pd.DataFrame, deepbench: pd.DataFrame) -> str:
    """The page over every imported row, and over single kernels of two sources with their bounds (`against_roofline`,
    `deepbench_bounds`)."""
    parts = [
        *_rows(table),
        *_bound(table),
        *_kernels(kernels),
        *_deepbench(deepbench),
        *_devices(table),
        *_energy(table),
        *_cpus(table),
        *_families(table),
        *_settings(table),
        *_extremes(table),
    ]
    return markdown("atlas", sections="\n".join(parts).rstrip())


def _rows(table: pd.DataFrame) -> list[str]:
    found = summary.by_status(table)
    failed = table[table["status"] != "ok"]
    reasons = failed.groupby(["source", "processor", "status"])["reason"].agg(lambda each: each.iloc[0])
    words = {
        "ok": "counted",
        "no_model": "no model that can be built",
        "other_model": "what is built under that name is another model",
        "not_counted": "could not be counted",
        "invalid": "a number that cannot be",
    }
    rows = [
        (
            _repository(table, row["source"]),
            row["processor"],
            row["mode"],
            words.get(row["status"], row["status"]),
            f"{row['rows']:,}",
            _cell(reasons.get((row["source"], row["processor"], row["status"]), "")),
        )
        for row in found.to_dict("records")
    ]
    return [
        "## The rows",
        "",
        markdown_table(("source", "on a", "mode", "what became of them", "rows", "an example of why"), rows),
        "",
    ]


def _bound(table: pd.DataFrame) -> list[str]:
    bounded = table[table[summary.BOUNDED].notna()]
    beyond = summary.beyond_bound(table)
    lines = [
        "## The bound beside the measurements",
        "",
        f"Of {len(bounded):,} rows with a bound {len(beyond) or 'none'} {'was' if len(beyond) == 1 else 'were'} faster "
        f"than it. {(table['reason'].str.startswith(IN_PARTS)).sum():,} more rows have no bound: a trace on a CPU has "
        "their attention in parts, which CUDA may run as one kernel. How near rows come to the bound (bound ÷ time):",
        "",
    ]
    rows = []
    for (mode, compiled), group in bounded.groupby(["mode", "compiled"]):
        quarter = group[summary.BOUNDED].quantile([0.25, 0.5, 0.75])
        best = group.sort_values(summary.BOUNDED).iloc[-1]
        rows.append(
            (
                f"{mode}{', compiled' if compiled else ''}",
                f"{len(group):,}",
                *(percent(each) for each in quarter),
                f"{percent(best[summary.BOUNDED])} ({best['model']}, {best['device'].removeprefix('NVIDIA ')})",
            )
        )
    lines += [markdown_table(("step", "rows", "lower quartile", "median", "upper quartile", "nearest"), rows), ""]
    if len(beyond):
        lines += ["Faster than the bound:", "", _row_table(beyond), "", EXPLAINED, ""]
    return lines


def _kernels(kernels: pd.DataFrame) -> list[str]:
    beyond = faster(kernels)
    rows = []
    for op, group in kernels.groupby("op"):
        inside = group[~group.index.isin(beyond.index)]
        quarter = inside["over_ratio"].quantile([0.25, 0.5, 0.75])
        best = inside.sort_values("over_ratio").iloc[-1]
        nearest = f"{percent(best['over_ratio'])} ({best['device'].removeprefix('NVIDIA ')})"
        rows.append((str(op), f"{len(group):,}", *(percent(each) for each in quarter), nearest))
    reasons = [
        (
            str(rule),
            f"{len(group):,}",
            f"{group['over_ratio'].max():.3f}",
            ", ".join(sorted(set(group["device"]))),
            REASONS[str(rule)],
        )
        for rule, group in beyond.groupby("rule")
    ]
    return [
        "## Single kernels beside the roofline",
        "",
        f"{len(kernels):,} kernels in float32 that NeuSight's authors timed (sitar-lab/NeuSight at {COMMIT[:12]}, "
        "`scripts/asplos/data/dataset`; torch 2.1, cuDNN 8.9.2; times in ms there). A kernel takes at least max(FLOP ÷ "
        "peak, each operand once ÷ bandwidth). How near they come to it (bound ÷ time), without "
        "those that a rule explains:",
        "",
        markdown_table(("operation", "rows", "lower quartile", "median", "upper quartile", "nearest"), rows),
        "",
        f"{len(beyond):,} were faster than that. A test holds that each has a rule:",
        "",
        markdown_table(("rule", "rows", "farthest", "devices", "reason"), reasons),
        "",
    ]


def _deepbench(kernels: pd.DataFrame) -> list[str]:
    """Products and convolutions of older cards, in 16 bit on two of them."""
    rows = []
    for (device, unit), group in kernels.groupby(["device", "unit"]):
        inside = group[group["rule"] == ""]["over_ratio"]
        quarter = inside.quantile([0.25, 0.5, 0.75, 1])
        rows.append((str(device).removeprefix("NVIDIA "), str(unit), f"{len(group):,}", *map(percent, quarter)))
    beyond = kernels[kernels["over_ratio"] > 1]
    reasons = [
        (str(rule), f"{len(group):,}", f"{group['over_ratio'].max():.3f}", DEEPBENCH_REASONS.get(str(rule), "none"))
        for rule, group in beyond.groupby("rule")
    ]
    return [
        f"{len(kernels):,} products, convolutions and their gradients that DeepBench published "
        f"(baidu-research/DeepBench at {DEEPBENCH_COMMIT[:12]}, `results/train`), each repeated on the same tensors; "
        "fp16 is on tensor cores. Bound ÷ time, without the rows that a rule explains:",
        "",
        markdown_table(("device", "unit", "rows", "lower quartile", "median", "upper quartile", "nearest"), rows),
        "",
        f"{len(beyond):,} were faster than their bound:",
        "",
        markdown_table(("rule", "rows", "farthest", "reason"), reasons),
        "",
    ]


def _devices(table: pd.DataFrame) -> list[str]:
    return _grouped(table, "By device", ("source", "mode", "device", "devices", "precision", "compiled"))


def _energy(table: pd.DataFrame) -> list[str]:
    """Joules an image in training, of the source that has powers."""
    rows = [
        (
            row["model"],
            row["device"].removeprefix("NVIDIA "),
            f"{row['rows']:,}",
            *(
                f"{row[prefix + 'energy_per_item_j']:.3g} J, {row[prefix + 'items_per_s']:.0f} images/s "
                f"(limit {row[prefix + 'power_limit_w']:.0f} W, batch {row[prefix + 'batch_size']:.0f})"
                for prefix in ("", "least_")
            ),
        )
        for row in summary.energy(table).to_dict("records")
    ]
    return [
        "## Energy of training",
        "",
        "Joules an image: mean power of the device × seconds of an epoch ÷ images of the data set, from Zeus' epochs "
        "(ImageNet for resnet50, CIFAR-100 for shufflenetv2), each measured once, with the loading of data in it. The "
        "precision is not said, so that these rows have no utilization. Of each model and device the row with the "
        "fewest joules:",
        "",
        markdown_table(("model", "device", "rows", "at the highest power limit", "at any"), rows),
        "",
    ]


def _cpus(table: pd.DataFrame) -> list[str]:
    """CPUs apart: what they reached, of no peak."""
    found = summary.rates(table[table["processor"] == summary.CPU], ("device", "framework", "precision", "compiled"))
    rows = [
        (
            row["device"],
            row["framework"],
            row["precision"],
            _value("compiled", row["compiled"]),
            f"{row['rows']:,}",
            f"{row['models']:,}",
            *(si(row[name], "FLOP/s") for name in ("low", "median", "high", "best")),
        )
        for row in found.to_dict("records")
    ]
    heads = ("device", "framework", "precision", "compiled", "rows", "models", "lower quartile", "median",
             "upper quartile", "best")  # fmt: skip
    return [
        "## CPUs",
        "",
        "Inference by timm, at a batch of 1. FLOP of the model a second: the clock at which they ran was "
        "not published, so that they have no peak, no utilization and no bound, and are in no table above.",
        "",
        markdown_table(heads, rows),
        "",
    ]


def _families(table: pd.DataFrame) -> list[str]:
    training = table[table["mode"] == "train"]
    return _grouped(training, "Training by family", ("family",), FEWEST, by_median=True)


def _settings(table: pd.DataFrame) -> list[str]:
    training = table[table["mode"] == "train"]
    return _grouped(training, "Training by PyTorch and layout", ("framework", "layout"))


def _grouped(
    table: pd.DataFrame, title: str, names: Sequence[str], fewest: int = 1, by_median: bool = False
) -> list[str]:
    found = summary.by(table, names)
    found = found[found["rows"] >= fewest]
    if by_median:
        found = found.sort_values("median", ascending=False, kind="stable")
    rows = [
        (
            *(_value(name, row[name]) for name in names),
            f"{row['rows']:,}",
            f"{row['models']:,}",
            *(percent(row[name]) for name in ("low", "median", "high", "best")),
            "–" if pd.isna(row["bound_median"]) else percent(row["bound_median"]),
        )
        for row in found.to_dict("records")
    ]
    head = (*names, "rows", "models", "lower quartile", "median", "upper quartile", "best", "median of the bound")
    return [f"## {title}", "", "Utilization of the datasheet's dense peak.", "", markdown_table(head, rows), ""]


def _extremes(table: pd.DataFrame) -> list[str]:
    training = table[table["mode"] == "train"]
    best, worst = summary.extremes(training, SHOWN)
    return [
        "## The best and the worst in training",
        "",
        "Of each model its best row.",
        "",
        _row_table(best),
        "",
        _row_table(worst),
        "",
    ]


def _row_table(rows: pd.DataFrame) -> str:
    head = ("model", "device", "batch", "layout", "a step", "FLOP/s", "utilization", "of the bound", "source")
    return markdown_table(
        head,
        [
            (
                row["model"],
                row["device"].removeprefix("NVIDIA "),
                "–" if pd.isna(row["batch_size"]) else f"{row['batch_size']:.0f}",
                row["layout"],
                "–" if pd.isna(row["step_time_s"]) else si_time(row["step_time_s"]),
                si(row["utilization_ratio"] * row["peak_flop_per_s"], "FLOP/s"),
                percent(row["utilization_ratio"]),
                "–" if pd.isna(row[summary.BOUNDED]) else percent(row[summary.BOUNDED]),
                source_link(row),
            )
            for row in rows.to_dict("records")
        ],
    )


def _repository(table: pd.DataFrame, source: str) -> str:
    """A source, linked to its repository at the commit of most of its rows."""
    commits = table[(table["source"] == source) & (table["commit"] != "")]["commit"]
    if source not in REPOSITORIES or commits.empty:
        return source
    repository, folder = REPOSITORIES[source]
    return f"[{source}](https://github.com/{repository}/tree/{commits.mode()[0]}/{folder})"


def source_link(row: Mapping[Any, Any]) -> str:
    """The file of a row, linked to the commit at which it was read, with the line where a file has one a row."""
    words = f"{row['file'].rpartition('/')[2]}, row {row['row']}"
    if row["source"] not in REPOSITORIES or not row["commit"]:
        return words
    repository, folder = REPOSITORIES[row["source"]]
    file = row["file"].replace("pytorch_", "pytorch/", 1) if row["source"] == "Lambda" else f"{folder}{row['file']}"
    line = f"#L{row['row'] + 1}" if row["source"] == "timm" else ""
    return f"[{words}](https://github.com/{repository}/blob/{row['commit']}/{file}{line})"


def _value(name: str, value: object) -> str:
    if name == "compiled":
        return "compiled" if value else "eager"
    return str(value).removeprefix("NVIDIA ") or "not said"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
