"""Gates of the model: its number of parameters by every source, and by its name. Another name shows only there."""

from __future__ import annotations

from collections.abc import Iterator

from cleaning.facts import known_parameters
from cleaning.gates.evidence import Evidence
from cleaning.gates.finding import Finding
from results.records import LOOP
from results.store import key_of

FLOAT_BYTES = 4
"""Of one parameter: weights stay float32 under every precision."""


def parameters(evidence: Evidence) -> Iterator[Finding]:
    """A cell's parameters against the weights of its operation table, and against what counters saw."""
    for run in evidence.data.runs:
        facts = evidence.facts.get(run.trace_id)
        sources = (
            {("its table", facts.weight_bytes // FLOAT_BYTES)} if facts is not None and facts.weight_bytes else set()
        )
        counted = evidence.counts.get(key_of(run), ())
        sources |= {(row.counter, row.parameters) for row in counted if row.parameters is not None}
        if run.status not in ("ok", "not_converged") or not sources:
            continue
        words = ", ".join(f"{value} by {name}" for name, value in sorted(sources) if value != run.parameters)
        yield Finding(run.cell_id, not words, f"{run.parameters} parameters, {words}" if words else "")


def model(evidence: Evidence) -> Iterator[Finding]:
    """Each cell's parameters against those that torchvision's model of its name has at its number of classes."""
    for run in evidence.data.runs:
        row = known_parameters(run)
        if row is None or run.parameters is None or run.data == LOOP:
            continue
        expected = row.parameters(run.num_classes)
        classes = row.num_classes if run.num_classes is None else run.num_classes
        words = f"{run.parameters} parameters, {run.model} of {classes} classes has {expected}"
        yield Finding(run.cell_id, run.parameters == expected, "" if run.parameters == expected else words)
