"""The section of docs/footprint.md that holds our prediction against what others measured on GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from analysis.published_memory import ALLOCATED, PROCESS, RESERVED, TENSORS, Published
from analysis.requests import amount
from results.footprint import Predicted

TITLE = "## Against what others measured on GPUs"

WORDS: Mapping[str, str] = {
    TENSORS: "tensors (all blocks but libraries' workspaces)",
    ALLOCATED: "allocated (`max_memory_allocated`)",
    RESERVED: "reserved (`max_memory_reserved`)",
    PROCESS: "the process, as the driver says",
}

INTRODUCTION = """**None of these measurements is ours, and no GPU was asked by us.** `analysis/published_memory.csv`
has what others published with conditions enough to predict the same number, each row read at its source, with what is
assumed. It is what was found, no sample. `python -m benchmarks.footprint --published DIR` makes the predictions, with
today's torch and on no device: of tensors, allocated and reserved bytes without an allowance for workspaces, of a
process without one for the device's context. Errors are predicted ÷ measured − 1."""

LESSONS = """What they show, as far as they go:

* **Tensors** agree to the byte where a whole history was published: ResNet-18 at batch 8 has 256,684,584 bytes in both
  before the first sum of two gradients, which that build of torch made beside them and today's makes in place.
* **cuDNN's workspaces** are what is missing of convolutional models where they are in the count: 42 MB of 304 in that
  step, a quarter of ResNet-50's at batch 1, 4 % of it at batch 32. Counted between operators they are not there, and
  MobileNet, VGG and GoogLeNet agree within 0.2 %.
* **Autocast and dropout** keep on CUDA what they do not on a CPU. With a CPU's rules DeiT base came out 35 % too low,
  with CUDA's (`measure/cuda_rules.py`) 19 %: torch 1.7.1 kept more of attention than today's.
* **Reserved** bytes were 1 % below the prediction where nothing ran but the step, and 3 to 8 % above it where an
  evaluation and a smaller last batch ran, too: segments stay that the step cannot use. Adam before July 2023 made
  more lists of intermediates (20 % more; torch issue 97712).
* **A process** had 15 to 65 % more than the prediction reserves: context, other work, and workspaces that cuDNN takes
  while there is room. It is not what the step needs: out of memory, cached segments are freed and cuDNN does with
  less. `--margin` is for what remains."""


def section(rows: Sequence[Published], predicted: Mapping[str, Predicted]) -> list[str]:
    """The whole section. Raises KeyError for a row without a prediction."""
    return [TITLE, "", INTRODUCTION, "", *_summary(rows, predicted), "", *_table(rows, predicted), "", LESSONS, "",
            *_assumptions(rows)]  # fmt: skip


def error(row: Published, predicted: Predicted) -> float:
    """Predicted ÷ measured − 1."""
    return predicted.predicted_bytes / row.measured_bytes - 1


def _summary(rows: Sequence[Published], predicted: Mapping[str, Predicted]) -> list[str]:
    lines = ["| of | rows | least, median, most | within 5 % |", "| --- | ---: | --- | ---: |"]
    for quantity, words in WORDS.items():
        found = sorted(error(row, predicted[row.name]) for row in rows if row.quantity == quantity)
        if found:
            spread = ", ".join(_signed(value) for value in (found[0], median(found), found[-1]))
            within = sum(abs(value) <= 0.05 for value in found)
            lines.append(f"| {words} | {len(found)} | {spread} | {within} |")
    return lines


def _table(rows: Sequence[Published], predicted: Mapping[str, Predicted]) -> list[str]:
    marks = _marks(rows)
    lines = [
        "| step | precision | optimizer | torch | of | measured | predicted | error | source |",
        "| --- | --- | --- | --- | --- | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        found = predicted[row.name]
        cells = (
            row.name.partition(",")[0],
            row.precision + (" (bfloat16 model)" if row.model.endswith("_bf16") else ""),
            row.optimizer,
            row.torch or "–",
            row.quantity + (", after forward" if row.moment != "step" else ""),
            amount(row.measured_bytes, "B"),
            amount(found.predicted_bytes, "B"),
            _signed(error(row, found)),
            marks[row.source, row.assumed],
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _assumptions(rows: Sequence[Published]) -> list[str]:
    lines = ["Sources, and what is assumed:", ""]
    for (source, assumed), mark in _marks(rows).items():
        gpus = dict.fromkeys(row.gpu for row in rows if (row.source, row.assumed) == (source, assumed) and row.gpu)
        device = f" ({', '.join(gpus)})" if gpus else ""
        lines.append(f"* {mark}: <{source}>{device}: {assumed}.")
    return lines


def _marks(rows: Sequence[Published]) -> dict[tuple[str, str], str]:
    """(source, what is assumed) → its letter."""
    letters = dict.fromkeys((row.source, row.assumed) for row in rows)
    return {each: chr(ord("a") + place) for place, each in enumerate(letters)}


def _signed(ratio: float) -> str:
    sign = "+" if ratio > 0 else "−"
    return f"{sign}{abs(100 * ratio):.2f} %"
