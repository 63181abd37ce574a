"""docs/footprint.md: how a footprint is counted, and how far it is from real allocators, by rows of a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median

from analysis.formula.algebra import amount
from reports.shared import digits
from results.records import FootprintCheck

HEAD = """# Footprint

    python -m runners.footprint resnet50 --batch-size 64 --precision amp-bf16 --optimizer adamw --out DIR
    python -m runners.footprint gpt --fit "NVIDIA H100 80GB HBM3"
    python -m runners.footprint my_model.py:build --memory-bytes 24GiB --accumulate 4 --checkpoint 'blocks.*'
    python -m runners.footprint gpt --batch-size 32 --checkpoints
    python -m runners.sweep --models resnet50 --batch-sizes auto

How much memory a training step needs, what fills it, and which batch still fits, before it is run: the step runs once
on fake tensors, which have sizes and no memory. `--format table|csv|json`; `--out DIR` writes `footprint.json`,
`timeline.csv` (live bytes by category while each operation runs) and `timeline.png`.

## What is counted

* A **storage** is a block of memory; views and writes in place share one. It is there from the operation that makes
  it to the last one before its last reference goes. A moment is an operation *while it runs*: what it reads and what
  it makes are both there. The **eager peak** is the highest moment.
* **Categories**: weights, buffers, gradients, optimizer state, inputs and targets; *activations*, made in the forward
  pass and there when the backward pass begins; *casts*, of activations and temporaries those that are copies in
  another dtype (autocast's, mostly); *temporaries*, all else.
* Gradients that meet are added in place, as autograd does where nobody watches. The output lives to the end of the
  step, the loss of the step before is not counted.
* `--accumulate N`: N batches before the optimizer's step. Two are traced, as later ones are like the second; an
  output lives until the next one is there, as in a loop. `--checkpoint`, `--frozen`: as in [models](models.md).
* `--device cuda` (the default): optimizers work on all parameters at once (PyTorch's `foreach`), which takes up to
  one more copy of the parameters, autocast takes softmax, normalisation, losses and powers to float32, and dropout
  keeps a mask of a byte an element (`measure/operations/cuda_dispatch.py`); `--device cpu`: one parameter after the other, and a
  CPU's autocast and dropout.
* **Allocated** and **reserved**: the storages taken through the published rules of PyTorch's caching allocator
  (blocks of 512 bytes, segments of 2 and 20 MiB; `analysis/footprint/step/caching_allocator.py`): bounds above the live bytes.
* **Workspaces**: cuBLAS has one for each thread that calls it, 8,519,680 bytes, or 32 MiB from compute capability 9.0
  on (torch's default of `CUBLAS_WORKSPACE_CONFIG`; "CUDA semantics" in its documentation). **cuDNN's** come and go with
  each convolution, and are taken where there is room: with an allowance for them, learnt from published histories
  ([below](#workspaces-of-cudnn)), the row says how far they lift the peak. VGG's first layers can take as much again as
  a third of the step.

## The largest batch that fits

`--fit NAME` takes the device's memory from `analysis/devices/memories.csv`, each row with its source: datasheets' gigabytes,
read as 10⁹ bytes, and how it was verified. `--memory-bytes 80e9` or `24GiB` says it otherwise. What has to fit is the
eager peak with cuBLAS's workspaces; `--margin` of the memory (0.1) stays free for the device's context, the rounding of
blocks and what the allocator cannot use. *With room for cuDNN's workspaces* is the largest batch at which it need not
take an algorithm for its small workspace. At one order of operations each moment is a line in the batch: batches of 2
and 4 predict the largest, and **both that batch and the next are traced**: the one fits, the other does not. A batch
that the model refuses (an exported graph has a largest one, or one alone) ends the search. Exit code 1 where not even
one sample fits.

`runners.sweep --batch-sizes auto` measures powers of two up to that batch, and that one, of each model and precision;
on a CPU the memory is what the host has free (the process's own 0.5 to 1 GB is the margin's). The batches go to the
manifest, so that `--resume` has the same cells. A cell that runs out of memory in spite of it is a row; the margin
then rises to what that showed and 0.05 more, and what is still to be measured is planned anew. A model that fake
tensors cannot run (detection) has to be given sizes.

## What checkpointing would bring

`--checkpoints` looks for modules to checkpoint, in a step without any: each line of its table needs less memory and
more FLOP done again (as a share of the forward pass's) than the one before, and names from which module to which each
checkpoint is. With `--fit` or `--memory-bytes` each line has the largest batch that would fit, predicted by the lines
of batches 2 and 4 and not traced. `--out` writes `checkpoints.csv` and `checkpoints.png`; `--format csv` has a row a
choice. How the choices are found, and that others may be better: [minimal footprint](minimal-footprint.md).

## Against real allocators
"""  # noqa: E501

TAIL = """## Not claimed

* **No GPU has been asked by us yet.** `python -m benchmarks.pages.footprint --device cuda` does:
  `max_memory_allocated`, the history of the allocator split into tensors, libraries' workspaces and the rounding of
  blocks, and MemTracker, in one run.
* cuDNN's workspaces for gradients in half precision, of which no history was found, follow TF32's; of channels_last
  they are too high (no copies are needed); of recurrent layers, and of convolutions of sound and volumes, 0.
* On a GPU other kernels run than on a CPU, and some keep other things: cuDNN's RNNs, fused attention.
  Autocast and dropout follow CUDA's rules (above), but for dropout in place.
* An LSTM on a CPU: oneDNN keeps a workspace for its backward pass whose size fake tensors do not know. The peak, the
  blocks and the largest batch are then null: `at_least` and `at_most_batch` have what is known.
* Memory past PyTorch's allocators (malloc inside of a library, a device's context, NCCL).
* One device: no data, tensor or pipeline parallelism.
* `minimal_bytes` is the peak in a better order of the operations, not in a program that there is, and
  `lower_bound_bytes` what no order is below ([minimal footprint](minimal-footprint.md)).
"""


def page(
    rows: Sequence[FootprintCheck],
    machine: Mapping[str, str],
    source: str,
    published: Sequence[str] = (),
    others: tuple[str, Sequence[FootprintCheck]] = ("", ()),
) -> str:
    """The whole document. published: the lines of the section on others' measurements. others: where from, and rows of
    models beside the thirteen."""
    said = ", ".join(f"{name} {value}" for name, value in machine.items() if value)
    further = [*other_models(*others), ""] if others[1] else []
    more = [*published, ""] if published else []
    parts = [HEAD, generated(source, said), "", *summary(rows), "", *table(rows), "", *further, *more, TAIL]
    return "\n".join(parts).rstrip("\n") + "\n"


def other_models(source: str, rows: Sequence[FootprintCheck]) -> list[str]:
    """The section of models beside the thirteen."""
    sizes = ", ".join(map(str, sorted({row.batch_size for row in rows})))
    optimizers = ", ".join(sorted({row.optimizer for row in rows}))
    beyond = [row for row in rows if abs(error(row) or 0.0) > GOAL_ALL]
    said = ", ".join(f"{row.model} in {row.precision} ({signed(error(row))})" for row in beyond)
    own = ", what kernels took for themselves on this CPU" if all(_by_kernels(row) for row in beyond) else ""
    unknown = [f"{row.model} in {row.precision} has {row.unknown}" for row in rows if row.unknown]
    return [
        "### Other models",
        "",
        f"The same for other models of the catalogue, from {source}, on the same machine, batch {sizes}, {optimizers}.",
        "",
        *summary(rows),
        "",
        *([f"Beyond {100 * GOAL_ALL:g} %{own}: {said}.", ""] if beyond else []),
        *([f"Storages without a known size, which count as 0: {', '.join(unknown)}.", ""] if unknown else []),
        *table(rows),
    ]


def _by_kernels(row: FootprintCheck) -> bool:
    """Whether tensors are within their goal, so that what is missing is kernels' own."""
    return abs(tensors_error(row) or 0.0) <= GOAL_TENSORS


def generated(source: str, machine: str) -> str:
    """What the numbers are, and where they come from."""
    command = "python -m benchmarks.pages.footprint --write docs/footprint.md DIR…"
    return f"""Generated by `{command}` from {source}; do not edit.
Machine: {machine}. The models are the thirteen of the 2021 post, with SGD and momentum. *Measured* is the highest that
PyTorch's allocator had handed out in the second step, by the memory events of torch.profiler; *tensors* is the highest
of what outlives the operation that made it; *kernels' own* is what the operation at the peak took for itself, which no
tensor shows: repacked operands, sums a thread, and in bfloat16 oneDNN's copies in float32. Errors are predicted ÷
measured − 1, the last column MemTracker's (`torch.distributed._tools`) against the same measurement. Of tensors,
0 means the 4 bytes of the loss of the step before, which the prediction leaves out. The rows were measured while the
code grew; `python -m benchmarks.pages.footprint --again DIR` makes all predictions again with the code as it is."""


def summary(rows: Sequence[FootprintCheck]) -> list[str]:
    """Errors by precision: least, median, most."""
    lines = [
        "| precision | steps | of tensors: least, median, most | of all: least, median, most | MemTracker, of all |",
        "| --- | ---: | --- | --- | --- |",
    ]
    for precision in dict.fromkeys(row.precision for row in rows):
        mine = [row for row in rows if row.precision == precision]
        cells = (
            precision,
            str(len(mine)),
            _spread(mine, tensors_error),
            _spread(mine, error),
            _spread(mine, peer_error),
        )
        lines.append("| " + " | ".join(cells) + " |")
    within = [row for row in rows if abs(tensors_error(row) or 0.0) <= GOAL_TENSORS]
    total = [row for row in rows if abs(error(row) or 0.0) <= GOAL_ALL]
    tensors = f"Tensors within {100 * GOAL_TENSORS:g} %: {len(within)} of {len(rows)} steps."
    everything = f"All within {100 * GOAL_ALL:g} %, with no allowance for kernels: {len(total)} of {len(rows)}."
    lines += ["", f"{tensors} {everything}{unmeasured(rows)}"]
    return lines


def unmeasured(rows: Sequence[FootprintCheck]) -> str:
    """Which models have no row in one of the precisions, batch by batch, as a sentence; empty where each has them."""
    there = {(row.batch_size, row.model, row.precision) for row in rows}
    models, precisions = {model for _, model, _ in there}, {precision for *_, precision in there}
    said = []
    for batch in sorted({batch for batch, *_ in there}):
        gaps = [model for model in sorted(models) if any((batch, model, each) not in there for each in precisions)]
        said += [f"batch {batch} of {', '.join(gaps)}"] if gaps else []
    return f" Not measured in every precision: {'; '.join(said)}." if said else ""


GOAL_TENSORS, GOAL_ALL = 0.01, 0.05


def table(rows: Sequence[FootprintCheck]) -> list[str]:
    """A row a step."""
    lines = [
        "| model | batch | precision | predicted | measured | error | of tensors | kernels' own | peak measured in "
        "| MemTracker |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- | ---: |",
    ]
    for row in sorted(rows, key=lambda row: (row.precision, row.batch_size, row.model)):
        cells = (
            row.model,
            str(row.batch_size),
            row.precision,
            amount(row.predicted_bytes, "B"),
            _amount(row.measured_bytes),
            signed(error(row)),
            signed(tensors_error(row)),
            _amount(row.own_bytes),
            f"`{row.measured_at.removeprefix('aten.') or '–'}`",
            signed(peer_error(row)) if row.tracked_bytes is not None else "fails",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def error(row: FootprintCheck) -> float | None:
    """Of the prediction against all that was allocated."""
    return row.predicted_bytes / row.measured_bytes - 1 if row.measured_bytes else None


def tensors_error(row: FootprintCheck) -> float | None:
    """Of the prediction against tensors alone."""
    return row.predicted_bytes / row.tensors_bytes - 1 if row.tensors_bytes else None


def peer_error(row: FootprintCheck) -> float | None:
    """Of MemTracker against all that was allocated."""
    return row.tracked_bytes / row.measured_bytes - 1 if row.tracked_bytes and row.measured_bytes else None


def signed(ratio: float | None) -> str:
    """A ratio in percent with its sign; what is less than a thousandth of a percent is 0."""
    if ratio is None:
        return "–"
    if abs(ratio) < 5e-6:
        return "0"
    return f"{'+' if ratio > 0 else '−'}{digits(100 * abs(ratio), 2)} %"


def _spread(rows: Iterable[FootprintCheck], of: Callable[[FootprintCheck], float | None]) -> str:
    found = sorted(value for row in rows if (value := of(row)) is not None)
    if not found:
        return "–"
    return ", ".join(signed(value) for value in (found[0], median(found), found[-1]))


def _amount(nbytes: int | None) -> str:
    return "–" if nbytes is None else amount(nbytes, "B")
