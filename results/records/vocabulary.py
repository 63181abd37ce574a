"""Words and values that records share, and their digest."""

import hashlib
import json
from typing import Any

from results.records.rows import Record, columns_of, json_default

SCHEMA_VERSION = 8

STATUSES = (
    "ok",
    "not_converged",
    "unavailable",
    "out_of_memory",
    "timeout",
    "device_error",
    "crashed",
    "interrupted",
    "invalid",
)
"""What can become of a cell. The first two are results; the others are rows with a reason."""

MEASURED = ("ok", "not_converged")

LOOP = "loop"
"""The value of `Parameters.data` for a cell that a meter measured in somebody's own training loop."""

RECORDERS = ("kineto", "nsys")
"""What a sweep can keep recordings of: the values of `Parameters.profile` beside none."""

RETAIN = "retain"
MALLOC_SETTINGS = ("default", RETAIN)
"""Values of `Parameters.malloc`: the C library's allocator as the process has it; it keeps what is freed."""

PHASES = ("forward", "loss", "backward", "optimizer", "recompute")

WORKS = ("one", "batch", "last", "epoch")
"""What is profiled: forward and backward of one sample; a training step of the cell's batch; one of the epoch's last,
smaller batch; a whole epoch."""

IDENTITY = ("cell_id", "attempt", "model", "batch_size", "precision", "device", "repeat", "threads", "wait_policy")
"""Fields of a run that derived rows repeat, those of them that the record has."""

WHOLE = "total"
"""The scope of counts of the whole model; every other scope is the path of a module."""


def non_default(record: Record, kind: type[Record] | None = None) -> dict[str, Any]:
    """The fields of a record whose value is not the field's default. kind: of these fields alone, those of its base."""
    columns = columns_of(kind or type(record))
    return {name: getattr(record, name) for name in columns if getattr(record, name) != columns[name].default}


def digest(value: Any) -> str:
    """16 hex digits of SHA-256 over the sorted compact JSON of a value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=json_default)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
