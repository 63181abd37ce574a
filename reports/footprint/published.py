"""The section of docs/footprint.md that holds our prediction against what others measured on GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from analysis.footprint.step import (
    ALLOCATED,
    PASSES,
    PROCESS,
    REQUESTED,
    RESERVED,
    RISEN,
    TENSORS,
    Published,
    WorkspaceObservation,
    allowance_bytes,
    as_allowed,
    observations,
)
from analysis.formula.algebra import amount
from reports.footprint.published_trainings import trainings
from results.records import FootprintPrediction

TITLE = "## Against what others measured on GPUs"

WORDS: Mapping[str, str] = {
    TENSORS: "tensors (all that was asked for but libraries' workspaces)",
    REQUESTED: "requested (all that was asked for)",
    ALLOCATED: "allocated (`max_memory_allocated`)",
    RISEN: "risen (allocated, above what was there as the step began)",
    RESERVED: "reserved (`max_memory_reserved`)",
    PROCESS: "the process, as the driver says",
}

WORDS_OF_PASSES: Mapping[str, str] = {
    "forward": "forward",
    "input": "gradient of the input",
    "weight": "gradient of the weights",
}

INTRODUCTION = """**None of these measurements is ours, and no GPU was asked by us.** `analysis/footprint/step/published_memory.csv`
has what others published with conditions enough to predict the same number, each row read at its source, with what is
assumed. It is what was found, no sample. `python -m benchmarks.pages.footprint --published DIR` makes the predictions, with
today's torch and on no device: with an allowance for cuDNN's workspaces where they are in the count, of a process
without the device's context. Errors are predicted ÷ measured − 1; *without* is the same without the allowance: the two
are the ends of what is predicted."""  # noqa: E501

LESSONS = """What they show, as far as they go:

* **Tensors** agree to the byte where a whole history was published: ResNet-18 at batch 8 has 256,684,584 bytes in both
  before the first sum of two gradients, which that build of torch made beside them and today's makes in place. Of
  ResNet-50 at batch 32 on a V100 each of the tensors at the peak is one of the predicted: what differs is what blocks
  have beyond what was asked for (each up to 1 MiB).
* **With workspaces**, too: the largest sum of ResNet-18's step, two of cuBLAS's workspaces and one of cuDNN's in it, is
  303,624,744 bytes in both; how far ResNet-50's rises on the V100 is predicted 0.04 % too high, what is allocated on an
  A100 in TF32 0.02 and 0.01 %, which is less than the source prints. Counted between operators there are none, and
  MobileNet, VGG and GoogLeNet agree within 0.2 %. VGG-16 as a process had 41 and 43 % more than was predicted without
  them; with them it is 5 % more and 1 % less. Not explained is ResNet-50 at batch 1, from a picture without the
  device's name: spikes of 129 MiB where the largest allowance is 37.
* **Autocast and dropout** keep on CUDA what they do not on a CPU. With a CPU's rules DeiT base came out 35 % too low,
  with CUDA's (`measure/operations/cuda_dispatch.py`) 19 %: torch 1.7.1 kept more of attention than today's.
* **Reserved** bytes with the allowance are above what was reserved where nothing ran but the step: by 6 % on the A100,
  whose convolutions of 1 × 1 take less than is allowed for; by 1 % on an AMD device without one; by 23 % after a
  forward pass at batch 1, where a fused kernel ran with less than Winograd's transforms. They are 5 to 7 % below where
  an evaluation and a smaller last batch ran, too: segments stay that the step cannot use. Adam before July 2023 made
  more lists of intermediates (21 % more; torch issue 97712).
* **A process** has the device's context (but for the item below), other work and segments that the step cannot use
  beside it. It is not what the step needs: out of memory, cached segments are freed and cuDNN does with less.
  `--margin` is for what remains."""

OF_CUDNN = """### Workspaces of cuDNN

`analysis/footprint/step/recorded_workspaces.csv` has what cuDNN took in histories that tell it for each convolution, all of them
channels_first and published by others, and `analysis/footprint/step/cudnn_workspaces.py` the allowance that follows. The two of the
V100 are two recordings of the same step, in which cuDNN seems to have tried its algorithms (`cudnn.benchmark`). *As the
allowance* is how many calls took all of its bytes; where the history has bytes of blocks, up to 1 MiB beyond them. None
took more."""  # noqa: E501


def section(rows: Sequence[Published], predicted: Mapping[str, FootprintPrediction]) -> list[str]:
    """The whole section. Raises KeyError for a row without a prediction."""
    lessons = (LESSONS, *trainings(rows, predicted))
    return [TITLE, "", INTRODUCTION, "", *_summary(rows, predicted), "", *_table(rows, predicted), "", *lessons, "",
            *_assumptions(rows), "", OF_CUDNN, "", *workspaces(observations())]  # fmt: skip


def error(row: Published, predicted: FootprintPrediction) -> float:
    """Predicted ÷ measured − 1."""
    return predicted.predicted_bytes / row.measured_bytes - 1


def without(row: Published, predicted: FootprintPrediction) -> float:
    """The same without the allowance for cuDNN."""
    return predicted.without_bytes / row.measured_bytes - 1


def _summary(rows: Sequence[Published], predicted: Mapping[str, FootprintPrediction]) -> list[str]:
    lines = [
        "| of | rows | error: least, median, most | within 5 % | without the allowance | within 5 % |",
        "| --- | ---: | --- | ---: | --- | ---: |",
    ]
    for quantity, words in WORDS.items():
        mine = [row for row in rows if row.quantity == quantity]
        if mine:
            cells = (*_spread([error(row, predicted[row.name]) for row in mine]),
                     *_spread([without(row, predicted[row.name]) for row in mine]))  # fmt: skip
            lines.append(f"| {words} | {len(mine)} | {' | '.join(cells)} |")
    return lines


def _spread(errors: Sequence[float]) -> tuple[str, str]:
    """Least, median, most; and how many are within 5 %."""
    spread = (min(errors), median(errors), max(errors))
    return ", ".join(map(_signed, spread)), str(sum(abs(value) <= 0.05 for value in errors))


def _table(rows: Sequence[Published], predicted: Mapping[str, FootprintPrediction]) -> list[str]:
    marks = _marks(rows)
    lines = [
        "| step | precision | optimizer | torch | of | measured | predicted | error | without | source |",
        "| --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
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
            _signed(without(row, found)) if row.cudnn else "",
            marks[row.source, row.assumed],
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def workspaces(rows: Sequence[WorkspaceObservation]) -> list[str]:
    """A line for each history, kind of window and pass."""
    lines = [
        "| history | windows | pass | calls | as the allowance | workspace, of the largest | allowance |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: |",
    ]
    groups: dict[tuple[str, str, str], list[WorkspaceObservation]] = {}
    for row in rows:
        groups.setdefault((_history(row), _window(row), row.which), []).append(row)
    for (history, window, which), found in sorted(groups.items(), key=_order):
        largest = max(found, key=lambda row: row.workspace_bytes)
        cells = (history, window, WORDS_OF_PASSES[which], sum(row.calls for row in found),
                 sum(row.calls for row in found if as_allowed(row)), amount(largest.workspace_bytes, "B"),
                 amount(allowance_bytes(largest.sizes, which), "B"))  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _history(row: WorkspaceObservation) -> str:
    return f"{row.precision}, {row.gpu or 'a GPU without a name'}"


def _window(row: WorkspaceObservation) -> str:
    return f"{row.kernel_height} × {row.kernel_width}{f', stride {row.stride}' if row.stride > 1 else ''}"


def _order(group: tuple[tuple[str, str, str], list[WorkspaceObservation]]) -> tuple[str, bool, str, int]:
    (history, window, which), rows = group
    return history, not rows[0].sizes.winograd, window, PASSES.index(which)


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
    return f"{sign if round(ratio, 4) else ''}{abs(100 * ratio):.2f} %"
