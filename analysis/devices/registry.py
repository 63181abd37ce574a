"""The table of peaks as one JSON document that any program can read: `peaks.json`, with `peaks.schema.json`.

It is made from `peaks.csv` and `peak_refusals.csv`, and holds nothing else. Not claimed: more than those tables claim.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from analysis.devices.device_peak import refusals
from analysis.devices.peaks import EXTRA_UNITS, Device, all_devices, table_digest
from analysis.devices.precisions import UNITS

SCHEMA_VERSION = 1
"""Of the document's shape: it grows by one when a key changes its meaning or goes."""

DOCUMENT = Path(__file__).with_name("peaks.json")
SCHEMA = Path(__file__).with_name("peaks.schema.json")

WORDS = {
    "fp64": "vector units",
    "fp32": "vector units (matrix units where the maker has such: note)",
    "tf32": "tensor units, fp32 accumulation",
    "fp16": "tensor units, fp32 accumulation",
    "bf16": "tensor units, fp32 accumulation",
    "fp8": "tensor units, fp32 accumulation",
    "int8": "tensor units, int32 accumulation; operations/s",
    "mxfp8": "8 bits with block scales (OCP MX)",
    "fp6": "6 bits with block scales (OCP MX)",
    "fp4": "4 bits with block scales: NVFP4 and MXFP4 on NVIDIA, MXFP4 on AMD",
    "fp64_tensor": "fp64 on tensor units",
    "fp16_fp16acc": "tensor units, fp16 accumulation: no default denominator",
    "fp16_cuda_core": "fp16 without tensor units",
}


def peak_registry() -> dict[str, Any]:
    """The document: every device with its peaks by format (dense and, where stated, sparse, FLOP/s), source and
    verification, and the names that have no peak, with the reason."""
    return {
        "$schema": SCHEMA.name,
        "schema_version": SCHEMA_VERSION,
        "table_digest": table_digest(),
        "formats": {unit: WORDS[unit] for unit in (*UNITS, *EXTRA_UNITS)},
        "devices": [_entry(device) for device in all_devices()],
        "refused_names": [{"pattern": name, "reason": reason} for name, reason in refusals().items()],
    }


def registry_text() -> str:
    """The document as `peaks.json` has it."""
    return json.dumps(peak_registry(), ensure_ascii=False, indent=1) + "\n"


def _entry(device: Device) -> dict[str, Any]:
    plain = ("name", "maker", "compute_capability", "multiprocessors", "boost_hz", "bandwidth_bytes_per_s")
    words = ("source", "verification", "evidence", "note", "row_id")
    return {
        **{key: getattr(device, key) for key in plain},
        "names": list(device.names),
        "peaks": {unit: _figure(device, unit) for unit in (*UNITS, *EXTRA_UNITS) if unit in device.peaks},
        "refused": dict(device.refused),
        **{key: getattr(device, key) for key in words},
    }


def _figure(device: Device, unit: str) -> dict[str, Any]:
    return {
        "dense_flop_per_s": device.peaks[unit],
        "sparse_flop_per_s": device.sparse.get(unit),
        "verification": device.verified[unit],
    }
