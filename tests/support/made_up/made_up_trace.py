"""A cleaned recording made up: two steps of a convolution net whose first convolution FFT tiles, and its kernels.

Counts are chosen so that every sum can be worked out in the head: a product of layer i has 10^9 · (i + 1) FLOP.
"""

from types import SimpleNamespace
from typing import Any

import pandas as pd

from cleaning.trace.totals import PhaseTotal, Unnamed
from reports.trace.document import STATES
from reports.trace.lines import TOTALS
from reports.trace.timeline import TraceView
from results.records.counts import CleaningLog, OperationInstance

G = 10**9
MS = 10**6


def instance(index: int, phase: str, unit: int | None, found: int, units: int = 1, **more: Any) -> OperationInstance:
    """A convolution whose recording counts `found` products of `unit` FLOP."""
    expected = None if unit is None else units * unit
    raw = None if unit is None else found * unit
    verdict = "unknown" if unit is None else {0: "right", -1: "under", 1: "over"}[(found > units) - (found < units)]
    fields: dict[str, Any] = {
        "name": "aten::conv2d" if phase != "backward" else "aten::convolution_backward",
        "kind": "convolution",
        "input_shapes": ((2, 3, 224, 224), (64, 3, 7, 7), ()),
        "input_dtypes": ("float", "float", ""),
        "concrete_inputs": (None, None, None),
        "kernels": max(found, 1),
        "kernel_time_s": 1e-3 * max(found, 1),
        "units": units,
        "unit_flop": unit,
        "expected_flop": expected,
        "raw_flop": raw,
        "deduplicated_flop": raw if raw is None else min(raw, expected or 0),
        "repaired_flop": expected,
        "verdict": verdict,
    }
    return OperationInstance(index=index, phase=phase, **{**fields, **more})


def instances(layers: int = 3, steps: int = 2, first: int = 16) -> tuple[OperationInstance, ...]:
    """Forward and backward of each layer; first layer of the first step counted `first` times, last never."""
    made: list[OperationInstance] = []
    for step in range(steps):
        forward: list[int] = []
        for layer in range(layers):
            found = first if not step and not layer else 0 if layer == layers - 1 else 1
            why = {1: "", 0: "renamed_kernel"}.get(found, "fft_tiling")
            forward.append(len(made))
            more = {"module": f"layer{layer}", "step": step, "reason": why}
            made.append(instance(len(made), "forward", (layer + 1) * G, found, **more))
        for layer in reversed(range(layers)):
            units = 1 if not layer else 2
            more = {"module": f"layer{layer}", "step": step, "forward_index": forward[layer]}
            made.append(instance(len(made), "backward", (layer + 1) * G, units, units, **more))
    return tuple(made)


def kernels(made: tuple[OperationInstance, ...]) -> pd.DataFrame:
    """One kernel of 1 ms for each time an operation was counted (one at least), 0.5 ms between two; and a copy."""
    rows: list[dict[str, Any]] = []
    now = 5 * MS
    for each in made:
        for number in range(each.kernels):
            counted = each.raw_flop is not None and number * (each.unit_flop or 0) < each.raw_flop
            rows.append(
                {
                    "name": "void implicit_convolve_sgemm<float>",
                    "what": "kernel",
                    "start_ns": now,
                    "time_ns": MS,
                    "untimed": 0,
                    "device": 0,
                    "stream": 7,
                    "call": each.index,
                    "link": "containment",
                    "instance": each.index,
                    "phase": each.phase,
                    "module": each.module,
                    "found_flop": each.unit_flop if counted else 0,
                    "deduplicated_flop": (each.unit_flop if number < (each.units or 0) else 0) if counted else 0,
                    "repaired_flop": each.unit_flop if number < (each.units or 0) else 0,
                    "fault": each.reason,
                }
            )
            now += MS + MS // 2
    lost = {"call": -1, "instance": -1, "link": "none", "phase": "", "module": "", "fault": ""}
    flop = {"found_flop": None, "deduplicated_flop": None, "repaired_flop": None}
    rows.append({**rows[0], **lost, **flop, "name": "Memcpy HtoD", "what": "memcpy", "start_ns": now})
    rows.append({**rows[0], **lost, **flop, "name": "lonely", "stream": -1, "start_ns": now + 2 * MS})
    frame = pd.DataFrame(rows)
    frame["index"] = range(len(frame))
    for name in flop:  # pandas makes floats of whole numbers with a gap
        frame[name] = pd.Series([row[name] for row in rows], dtype=object)
    return frame


def trace(made: tuple[OperationInstance, ...] | None = None, **more: Any) -> TraceView:
    """A whole recording of these operations."""
    made = instances() if made is None else made
    totals = {
        state: {
            f"{phase}_flop": sum(getattr(i, f"{state}_flop") or 0 for i in made if i.phase == phase) for phase in TOTALS
        }
        for state in STATES
    }
    phase_totals = {
        state: {name: PhaseTotal(flop, flop, 0, 0.0) for name, flop in of.items()} for state, of in totals.items()
    }
    log = CleaningLog(
        step="deduplicated",
        file="kernels.csv.gz",
        cell_id="",
        attempt=0,
        subject="operation 0",
        field="deduplicated_flop",
        before="16000000000",
        after="1000000000",
        reason="fft_tiling: 15 of 16 kernels",
    )
    cleaned = SimpleNamespace(
        instances=made,
        kernels=kernels(made),
        faults=(("fft_tiling", 1, -15 * G), ("renamed_kernel", 2, 6 * G)),
        log=(log,),
        totals=totals,
        unexplained_time_ratio=0.015,
        phase_totals=phase_totals,
        unknown_calls=(),
        outside_phases={},
        assumed_gradients=0,
        missing=(),
        outside_time_ratio=0.0,
        unnamed=Unnamed(),
        product_time_s=0.05,
    )
    fields: dict[str, Any] = {
        "path": "trace.json.gz",
        "source": "kineto",
        "device_name": "Tesla V100-SXM2-16GB",
        "steps": 2,
        "begin_ns": 0,
        "problems": ("no concrete inputs",),
        "cleaned": cleaned,
        "pyprof_rule": True,
        "numbered": True,
        "after_last_s": 5e-5,
    }
    return TraceView(**{**fields, **more})
