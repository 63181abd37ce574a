"""The account of every counter over a zoo of models: the rows behind docs/counters.md.

    python -m benchmarks.zoo --out DIR [--models NAMES] [--batches 1,2]

It counts every model of the zoo (torchvision's classification, segmentation, video and detection models, some of
timm, transformers from the configurations beside this file, a recurrent net, an encoder, a GPT) at each batch by all
counters, each in a process of its own, and appends to accounts.csv and causes.csv (by cause and kind). It goes on where
it stopped: models that are there are left out.

Not measured here: time. The duration of a count is in the rows, and other work on the machine is in the duration.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import json
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING

from results.records.answers import Attribution, AttributionCause
from results.store.layout import encode, head

if TYPE_CHECKING:
    from reports.count.answer import ModelCounts

HERE = Path(__file__).parent

TASKS = ("classification", "segmentation", "video", "detection")

TIMM = (
    "vit_small_patch16_224", "deit_tiny_patch16_224", "mixer_s32_224", "resmlp_12_224", "convmixer_768_32",
    "efficientnetv2_rw_t", "regnetx_004", "mobilevit_xxs", "poolformer_s12", "edgenext_xx_small", "levit_128s",
    "xcit_nano_12_p16_224", "gmlp_s16_224",
)  # fmt: skip

FUNCTIONS = ("lstm", "encoder", "gpt")

PRELOADED = (
    "torch",
    "torchvision",
    "fvcore.nn",
    "ptflops",
    "deepspeed",
    "calflops",
    "torchinfo",
    "timm",
    "transformers",
)
"""What the server of processes imports once; every count is a fork of it."""

TIMEOUT_S = 900.0

VERSIONS = "versions.json"
PACKAGES = (
    "torch", "torchvision", "fvcore", "ptflops", "pthflops", "deepspeed", "calflops", "thop", "torchinfo", "timm",
    "transformers",
)  # fmt: skip
"""Whose versions are kept with the rows."""


def zoo() -> list[str]:
    """The names of all models, the cheap ones first, so that a run that is stopped has seen most families."""
    from workloads.catalogue.catalogue import ENTRIES

    tasks = {task: [name for name, entry in ENTRIES.items() if entry.task == task] for task in TASKS}
    configs = [f"hf:{path}" for path in sorted((HERE / "configs").relative_to(Path.cwd()).glob("*.json"))]
    functions = [f"{(HERE / 'zoo_models.py').relative_to(Path.cwd())}:{name}" for name in FUNCTIONS]
    return [
        *functions,
        *sorted(tasks["classification"], key=_weight),
        *configs,
        *(f"timm:{name}" for name in TIMM),
        *(name for task in TASKS[1:] for name in sorted(tasks[task], key=_weight)),
    ]


def _weight(name: str) -> float:
    """GFLOP of a forward pass, by torchvision's own table of its weights."""
    from torchvision.models import get_model_weights

    return min((float(weights.meta["_ops"]) for weights in get_model_weights(name)), default=0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description="The account of every counter over a zoo of models.")
    parser.add_argument("--out", type=Path, required=True, help="where accounts.csv and causes.csv are, or will be")
    parser.add_argument("--models", help="names with commas; all if left out")
    parser.add_argument("--batches", default="1,2")
    options = parser.parse_args()
    models = options.models.split(",") if options.models else zoo()
    _count(models, [int(size) for size in options.batches.split(",")], options)
    return 0


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)


def _count(models: Sequence[str], batches: Sequence[int], options: Namespace) -> None:
    from analysis.counters import COUNTERS
    from measure.device import processes
    from results.errors import Unavailable
    from runners.cli.exits import Mistake
    from runners.count import count, parser

    processes.context(PRELOADED)
    forkserver.ensure_running()
    options.out.mkdir(parents=True, exist_ok=True)
    installed = {dist.metadata["Name"].lower(): dist.version for dist in importlib.metadata.distributions()}
    versions = {name: installed[name] for name in PACKAGES if name in installed}
    (options.out / VERSIONS).write_text(json.dumps(versions, indent=1) + "\n", encoding="utf-8")
    done = {(row["model"], int(row["batch_size"])) for row in _rows(options.out / "accounts.csv")}
    for model in models:
        asked = parser().parse_args([model, "--timeout", f"{TIMEOUT_S:g}"])
        sizes = [size for size in batches if (model, size) not in done]
        if not sizes:
            continue
        start_s = time.monotonic()
        try:
            answers = count(model, asked, tuple(COUNTERS), sizes)
        except (Mistake, Unavailable) as fault:
            print(fault, flush=True)
            continue
        left = [account for answer in answers for account in answer.attributions if account.unexplained_flop]
        for answer in answers:
            _append(options.out, answer, model)
        partial = any(account.unknown_calls for answer in answers for account in answer.attributions)
        whole = "a part has no count" if partial else "all explained"
        bad = ", ".join(f"{a.counter} {a.phase} {a.batch_size}: {a.unexplained_flop}" for a in left) or whole
        print(f"{model}: {time.monotonic() - start_s:.0f} s, {bad}", flush=True)


def _append(out: Path, answer: ModelCounts, name: str) -> None:
    """One model's rows at the end of both files, under this name; accounts last, because they say what is done."""
    sums: dict[tuple[str, str, str, str], AttributionCause] = {}
    for cause in answer.causes:
        key = (cause.counter, cause.phase, cause.cause, cause.kind)
        before = sums[key].flop if key in sums else 0
        sums[key] = replace(cause, model=name, module="", flop=before + cause.flop)
    _write(out / "causes.csv", AttributionCause, list(sums.values()))
    _write(out / "accounts.csv", Attribution, [replace(attribution, model=name) for attribution in answer.attributions])


def _write(
    path: Path, record: type[Attribution] | type[AttributionCause], rows: Sequence[Attribution | AttributionCause]
) -> None:
    fresh = not path.exists()
    with path.open("ab") as file:
        file.write((head(record) if fresh else b"") + encode(rows))


if __name__ == "__main__":
    sys.exit(main())
