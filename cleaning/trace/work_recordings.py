"""A work's recording, kept by a sweep, as rows of its profile: what kernels were given, once, and with gaps filled.

The counting is that of any recorded profile (`clean.py`): by kernels, where there is a device. Here its products get
the names of a cell, so that they are added up, divided and shown as torch.profiler's own numbers are, beside them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.operators.registry import PRODUCTS
from analysis.ranks.timelines import length, spans
from analysis.trace.operations import floating_dtype, is_product
from cleaning.profile import CleanedProfile, mark_outside_step
from cleaning.trace.clean import CleanedTrace, clean
from results.records.cell import Run
from results.records.counts import CleanedOperation, CleaningLog, OperationInstance
from results.store.layout import recording_file


def clean_recording(run: Run, work: str, calls: pd.DataFrame, kernels: pd.DataFrame, source: str) -> CleanedProfile:
    """One row a product of one work's recording, attributed and cut to one step. Raises Inconsistent.

    A call of an operator that is not known, whose kernels make products, is a row without a count.
    """
    trace = clean(calls, kernels)
    dtypes = _dtypes(calls, trace)
    rows = [_row(run, work, source, found, dtypes) for found in trace.instances if found.kind in PRODUCTS]
    rows += [
        CleanedOperation(
            cell_id=run.cell_id,
            attempt=run.attempt,
            source=source,
            work=work,
            index=index,
            name=call.name,
            kind="",
            phase=call.phase,
            module=call.module,
            verdict="unknown",
            reason=call.reason,
            time_s=call.time_ns * 1e-9,
        )
        for index, call in enumerate(trace.unknown_calls, len(trace.instances))
    ]
    log = tuple(_log(run, work, source, trace))
    ran = kernels[kernels["what"] != "call"]
    busy_ns = length(spans(ran.assign(end_ns=ran["start_ns"] + ran["time_ns"])))
    busy_s = None if ran.empty or ran["untimed"].any() else busy_ns * 1e-9
    return CleanedProfile(tuple(map(mark_outside_step, rows)), log, trace.outside_time_ratio, len(ran) or None, busy_s)


def _row(run: Run, work: str, source: str, instance: OperationInstance, dtypes: Mapping[int, str]) -> CleanedOperation:
    return CleanedOperation(
        cell_id=run.cell_id,
        attempt=run.attempt,
        source=source,
        work=work,
        index=instance.index,
        name=instance.name,
        kind=instance.kind,
        phase=instance.phase,
        module=instance.module,
        forward_index=instance.forward_index,
        dtype=dtypes.get(instance.index) or floating_dtype(instance.input_shapes or (), instance.input_dtypes or ()),
        found_flop=instance.raw_flop,
        deduplicated_flop=instance.deduplicated_flop,
        cleaned_flop=instance.repaired_flop,
        verdict=instance.verdict,
        reason=instance.reason,
        time_s=instance.host_time_s if instance.kernel_time_s is None else instance.kernel_time_s,
    )


def _log(run: Run, work: str, source: str, trace: CleanedTrace) -> Iterator[CleaningLog]:
    file = recording_file(run.cell_id, run.attempt, work, source)
    for row in trace.log:
        yield replace(row, file=file, cell_id=run.cell_id, attempt=run.attempt, subject=f"{work} {row.subject}")


def _dtypes(calls: pd.DataFrame, trace: CleanedTrace) -> dict[int, str]:
    """Instance → the dtype it computes in: of the innermost product that launched a kernel: autocast casts inside."""
    parents = calls["parent"].to_numpy(np.int64).tolist()
    names, shapes, dtypes = (calls[name].tolist() for name in ("name", "input_shapes", "input_dtypes"))
    row_of = {index: row for row, index in enumerate(calls["index"].tolist())}
    found: dict[int, tuple[int, str]] = {}
    for instance, call in zip(trace.kernels["instance"].tolist(), trace.kernels["call"].tolist(), strict=True):
        above = [row_of[call]] if call in row_of else []
        while above and parents[above[-1]] in row_of:
            above.append(row_of[parents[above[-1]]])
        for depth, row in zip(range(len(above), 0, -1), above, strict=True):
            dtype = floating_dtype(shapes[row] or (), dtypes[row] or ()) if is_product(names[row]) else ""
            if dtype:
                found[instance] = max(found.get(instance, (0, "")), (depth, dtype))
                break
    return {instance: dtype for instance, (_, dtype) in found.items()}
