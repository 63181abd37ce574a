"""One frozen dataclass for each kind of observation.

The header of every CSV file is the field names of its record, in order; no header is typed anywhere else.
Column names carry the SI unit. `None` is unknown and is written as an empty field; it is never zero. How values become
text is in `rows.py`. This module knows no files: `store.py` writes and `reading.py` reads them.
"""

from __future__ import annotations

from results.records.answers import StepTime, Utilization, WorkTime
from results.records.cell import Cell, Parameters, Run, Sitting, identity
from results.records.counts import Agreement, BatchLaw, CleanedOperation, CleaningLog, FlopCount, ProfileCount, Ratio
from results.records.operations import Kernel, Operation, OperationInstance, ProfiledOperation, Storage
from results.records.rows import Record, from_text, header, to_text, to_values
from results.records.samples import Ceiling, Sample, Telemetry
from results.records.vocabulary import (
    IDENTITY,
    MEASURED,
    PHASES,
    RECORDERS,
    SCHEMA_VERSION,
    STATUSES,
    WHOLE,
    WORKS,
    Json,
    digest,
    non_default,
)

__all__ = [
    "Agreement",
    "BatchLaw",
    "Ceiling",
    "Cell",
    "CleanedOperation",
    "CleaningLog",
    "FlopCount",
    "IDENTITY",
    "Json",
    "Kernel",
    "MEASURED",
    "Operation",
    "OperationInstance",
    "PHASES",
    "Parameters",
    "ProfileCount",
    "ProfiledOperation",
    "RECORDERS",
    "Ratio",
    "Record",
    "Run",
    "SCHEMA_VERSION",
    "STATUSES",
    "Sample",
    "Sitting",
    "StepTime",
    "Storage",
    "Telemetry",
    "Utilization",
    "WHOLE",
    "WORKS",
    "WorkTime",
    "digest",
    "from_text",
    "header",
    "identity",
    "non_default",
    "to_text",
    "to_values",
]
