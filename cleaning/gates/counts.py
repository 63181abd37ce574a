"""Checks counts: each operation is counted once, batch and precision match the cell, both passes follow one convention.

These gates (checks before a run is published) find counts that are wrong. A cell is one combination of workload, batch
size and precision. Each gate takes the run's `Evidence` and yields `Finding`s by cell; `GATES` lists the gates.
"""

from collections.abc import Iterator

from analysis.devices.precisions import PRECISIONS, disagreements, unit_of
from analysis.utilization.numerators import OWN, differing_kinds
from cleaning.counts import line
from cleaning.gates.evidence import Evidence, Finding, Gate, TraceFacts, faultless, finding
from cleaning.reconcile.agreement import ENOUGH
from results.records.cell import MEASURED, Run
from results.records.rows import to_text
from results.store.layout import Key, key_of

FACTOR = 2.0
"""FLOP of a multiply-add: a counter whose unit is mistaken is off by this factor."""

PASSES = 2
"""Passes in a profile: forward and backward."""

NEAR_RATIO = 1e-3
"""Tolerance around a ratio of 2 or 1/2, for a counter that reports its products, which is either exact or far off."""

NEAR_TOTAL = 0.1
"""Tolerance for a counter that reports only a total, which includes other operations, such as normalisation."""


def _traced_runs(evidence: Evidence) -> Iterator[tuple[Run, TraceFacts]]:
    for run in evidence.data.runs:
        facts = evidence.facts.get(run.trace_id)
        if facts is not None and not facts.fault:
            yield run, facts


def operations_once(evidence: Evidence) -> Iterator[Finding]:
    """Find rows of the operation table whose index is not their position, and products that the table has twice."""
    for run, facts in _traced_runs(evidence):
        gaps = [f"{facts.gaps} rows are not where their number says"] if facts.gaps else []
        again = [f"{', '.join(facts.repeated[:3])} again"] if facts.repeated else []
        yield faultless(run.cell_id, (*gaps, *again))


def batch(evidence: Evidence) -> Iterator[Finding]:
    """Check that the first product reads a batch of the cell's size, and that all cells have as many items per
    sample."""
    for run, facts in _traced_runs(evidence):
        if facts.images:
            text = f"the table begins with a batch of {facts.leading}, the cell says {run.batch_size}"
            yield finding(run.cell_id, facts.leading == run.batch_size, text)
            if run.status in MEASURED and run.items_per_step != run.batch_size:
                yield Finding(run.cell_id, False, f"{run.items_per_step} images a step at a batch of {run.batch_size}")
    first: dict[str, tuple[int, int]] = {}
    for run in evidence.measured_cells:
        if run.items_per_step is None:
            yield Finding(run.cell_id, False, "its row lacks the items of a step")
            continue
        items, size = first.setdefault(sizes_of(run), (run.items_per_step, run.batch_size))
        text = f"{run.items_per_step} items at a batch of {run.batch_size}, elsewhere {items} at {size}"
        yield finding(run.cell_id, run.items_per_step * size == items * run.batch_size, text)


def executed(evidence: Evidence) -> Iterator[Finding]:
    """Check the real step's FLOP, by kind where the device chooses the dtypes, and in total."""
    for run, facts in _traced_runs(evidence):
        if not run.executed:
            if run.status in MEASURED:
                yield Finding(run.cell_id, False, "executed is empty: no real step was counted")
            continue
        differing = differing_kinds(facts.executed, run)
        text = ", ".join(f"{name}: {real} executed, {counted} counted" for name, counted, real in differing)
        yield Finding(run.cell_id, not differing, text)


def backward_forward(evidence: Evidence) -> Iterator[Finding]:
    """Check the table's backward FLOP against one product for each factor that needs a gradient."""
    for run, facts in _traced_runs(evidence):
        expected, forward = facts.expected_backward_flop, facts.forward_flop
        if expected is None or not forward:
            continue
        text, exactly = f"backward ÷ forward is {facts.backward_flop / forward:.6g}", f"{expected / forward:.6g}"
        holds = facts.backward_flop == expected
        yield Finding(run.cell_id, holds, text if holds else f"{text}, expected exactly {exactly}")


def affine(evidence: Evidence) -> Iterator[Finding]:
    """Check exact counts over the batches of one model: of its operation tables, and of the profiles of other
    passes."""
    series: dict[str, dict[int, int]] = {}
    cells: dict[str, list[str]] = {}
    profiled = _profiled(evidence)
    for run, facts in _traced_runs(evidence):
        points = series.setdefault(sizes_of(run), {})
        points |= {size: flop for size, flop in profiled.get(key_of(run), {}).items() if size not in points}
        points[run.batch_size] = facts.model_flop
        cells.setdefault(sizes_of(run), []).append(run.cell_id)
    for sizes, points in series.items():
        if len(points) < ENOUGH:
            continue
        law = line(points.items())
        whole = law is not None and all(part.denominator == 1 for part in law)
        counted = ", ".join(f"{size}: {points[size]}" for size in sorted(points))
        text = f"{law[0]} × batch + {law[1]}" if law is not None and whole else f"on no line: {counted}"
        yield from (Finding(cell_id, whole, text) for cell_id in cells[sizes])
    for row in evidence.batch_laws:
        if row.counter == OWN and not row.operator and row.holds is not None:
            yield finding(row.cell_id, row.holds, f"our own {row.phase} counts: {row.reason}")


def _profiled(evidence: Evidence) -> dict[Key, dict[int, int]]:
    """Return attempt → batch → model FLOP of one sample and of the last batch, by their cleaned profiles."""
    passes_of: dict[Key, dict[str, list[tuple[int, int]]]] = {}
    for row in evidence.profile_counts:
        if row.work in ("one", "last") and row.cleaned_flop is not None:
            passes_of.setdefault(key_of(row), {}).setdefault(row.work, []).append((row.items, row.cleaned_flop))
    both = {
        key: [passes for passes in profiles_of_pass.values() if len(passes) == PASSES]
        for key, profiles_of_pass in passes_of.items()
    }
    return {
        key: {passes[0][0]: sum(flop for _, flop in passes) for passes in profiles_of_pass}
        for key, profiles_of_pass in both.items()
    }


def conventions(evidence: Evidence) -> Iterator[Finding]:
    """Find a counter that counts all products and is off by the factor of a multiply-add, in the forward pass."""
    for row in evidence.agreement:
        if row.phase != "forward" or row.exact_flop is None or row.status != "ok":
            continue
        ratio, near = (row.ratio, NEAR_RATIO) if row.ratio is not None else (row.total_ratio, NEAR_TOTAL)
        if ratio:
            counts = f"{ratio:.4g} × the exact forward pass ({row.native_value} {row.native_unit})"
            off = any(abs(ratio / factor - 1) < near for factor in (FACTOR, 1 / FACTOR))
            yield finding(row.cell_id, not off, f"{row.counter} counts {counts}: a unit is mistaken")


def profiles(evidence: Evidence) -> Iterator[Finding]:
    """Compare the cleaned sums of a profile's phases with our own count of the same pass."""
    for row in evidence.profile_counts:
        if row.cleaned_flop is not None and row.exact_flop is not None:
            text = f"{row.work} {row.phase}: {row.cleaned_flop} cleaned by {row.source}, {row.exact_flop} exact"
            yield finding(row.cell_id, row.cleaned_flop == row.exact_flop, text)


def sizes_of(run: Run) -> str:
    """Return the key that decides a model's counts besides the batch."""
    settings = [run.inputs, run.batch_maker, run.model_digest, *run.frozen, *run.checkpoint]
    return to_text([run.model, run.image_size, run.num_classes, dict(run.hyper), *settings])


_DTYPES = {"fp32": "float32", "tf32": "float32", "amp-bf16": "bfloat16", "amp-fp16": "float16"}


def precision(evidence: Evidence) -> Iterator[Finding]:
    """Check flags and units of each cell, and the dtypes of its real step, against its precision's policy."""
    for run in evidence.measured_cells:
        yield from _flags(run)
        yield from _dtypes(run)


def _flags(run: Run) -> Iterator[Finding]:
    """Check flags before and after a cell, and the row's units, against its precision's policy."""
    policy = PRECISIONS.get(run.precision)
    if policy is None or not (run.flags_before or run.flags_after):
        return
    wrong = [
        f"{when} it {disagreement}"
        for when, flags in (("before", run.flags_before), ("after", run.flags_after))
        for disagreement in disagreements(flags, policy, run.device, run.cudnn_benchmark, run.deterministic)
    ]
    named = unit_of(policy.autocast or "float32", policy, run.device)
    wrong += [
        f"{what} unit {unit}, expected {named} for {run.precision}"
        for what, unit in (("convolution", run.convolution_unit), ("matmul", run.matmul_unit))
        if unit != named
    ]
    if not (run.flags_before and run.flags_after):
        wrong.append("flags were read only before or only after it")
    elif run.flags_before != run.flags_after:
        flags = {**run.flags_before, **run.flags_after}
        pairs = [(name, run.flags_before.get(name), run.flags_after.get(name)) for name in flags]
        wrong += [f"{name} was {a} before and {b} after" for name, a, b in pairs if a != b]
    yield faultless(run.cell_id, wrong)


def _dtypes(run: Run) -> Iterator[Finding]:
    """Check the share of the real step's model FLOP in the expected dtype: all under float32, most under autocast."""
    wanted, total = _DTYPES.get(run.precision), sum(run.executed.values())
    if wanted is None or not total:
        return
    share = sum(flop for name, flop in run.executed.items() if name.partition("/")[2] == wanted) / total
    least = 1.0 if wanted == "float32" else 0.5
    yield finding(run.cell_id, share >= least, f"{100 * share:.3g} % of model FLOP in {wanted}")


_TABLE = ("committed", "operations_once")
COUNTED = (*_TABLE, "batch", "executed", "backward_forward")

GATES: tuple[Gate, ...] = (
    Gate(
        "operations_once",
        "the operation table has each call once: no gap in its numbers, no product twice",
        operations_once,
        "an operation table",
        ("committed",),
    ),
    Gate(
        "batch",
        "the batch in the operation table's shapes, and the items a step, are those of the cell",
        batch,
        "an operation table that begins with a batch",
        _TABLE,
    ),
    Gate(
        "executed",
        "one real step on the device ran the model FLOP of the table, by kind and dtype",
        executed,
        "a real step that was counted on the device",
        (*_TABLE, "batch"),
    ),
    Gate(
        "flags",
        "flags before and after each cell, its units, and the dtypes of its products are those of its precision",
        precision,
        "flags that were read back, or a real step that was counted on the device",
        ("committed", "executed"),
    ),
    Gate(
        "backward_forward",
        "backward FLOP is exactly what the forward pass of this model implies",
        backward_forward,
        "an operation table with weights, of convolutions and matrix products alone",
        _TABLE,
    ),
    Gate(
        "affine",
        "exact counts are slope × batch + constant in integers, over at least three batch sizes",
        affine,
        "three batches of one model",
        COUNTED,
    ),
    Gate(
        "conventions",
        "no counter's forward products are twice or half the exact count: a multiply-add is 2 FLOP",
        conventions,
        "a counter beside an exact count",
        COUNTED,
    ),
    Gate(
        "profiles",
        "cleaned profiles have the exact count, forward and backward",
        profiles,
        "a profile beside an exact count",
        COUNTED,
        on=(),
    ),
)
