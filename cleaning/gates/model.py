"""Gate of the model's name: its parameters are those of the model that is called so. Another name shows only there."""

from __future__ import annotations

from collections.abc import Iterator

from cleaning.facts import known_parameters
from cleaning.gates.evidence import Evidence
from cleaning.gates.finding import Finding
from results.records import LOOP


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
