"""The rows of a profiled step: each operation's exact cost with its measured times, and the modules of the model.

Times of the steps are given; nothing is measured here.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

import torch

from analysis.devices.precisions import PRECISIONS, unit_of
from analysis.operators import registry
from analysis.operators.cost import Cost
from analysis.operators.traffic import bytes_moved
from analysis.stats.summary import summarise
from analysis.utilization.numerators import input_dtype
from results.records.answers import StepModule, StepOperation
from results.records.counts import Operation


@dataclass(frozen=True)
class StepTimes:
    """One recorded step, in s and by index of the operation. The same operations are in those of every step.

    step_s: what own_s, waited_s and end_s add up to, without the own time of ignored operations (left_out_s).
    """

    step_s: float
    own_s: Mapping[int, float]
    host_s: Mapping[int, float]
    waited_s: Mapping[int, float]
    kernels: Mapping[int, int] = field(default_factory=dict)
    end_s: float = 0.0  # after the last operation
    left_out_s: float = 0.0  # of ignored operations: no part of step_s


def operation_rows(
    operations: Sequence[Operation], steps: Sequence[StepTimes], precision: str, device: str
) -> tuple[tuple[StepOperation, ...], Counter[str]]:
    """A row for each operation, numbered anew; and those that no rule understands, with how often they are called."""
    places = {operation.index: place for place, operation in enumerate(operations)}
    unknown: Counter[str] = Counter()
    times = _times(operations, steps)
    rows = []
    for place, operation in enumerate(operations):
        understood = registry.bucket_of(operation.name) != "not_understood"
        try:
            cost = registry.cost(operation)
        except ValueError:
            cost, understood = Cost(0, 0, *bytes_moved(operation)), False
        unknown[operation.name] += not understood
        dtype = input_dtype(operation)
        rows.append(
            StepOperation(
                index=place,
                name=operation.name,
                kind=operation.kind,
                phase=operation.phase,
                module=operation.module,
                forward_index=None if operation.forward_index is None else places.get(operation.forward_index),
                unit=_unit(dtype, precision, device) if cost.model_flop else "",
                dtype="" if dtype == "none" else dtype,
                input_shapes=operation.input_shapes,
                output_shapes=operation.output_shapes,
                model_flop=int(cost.model_flop) if understood else None,
                other_flop=int(cost.other_flop) if understood else None,
                read_bytes=int(cost.read_bytes),
                written_bytes=int(cost.written_bytes),
                **times.get(operation.index, {}),
            )
        )
    return tuple(rows), +unknown


def _unit(dtype: str, precision: str, device: str) -> str:
    try:
        return unit_of(dtype, PRECISIONS[precision], device)
    except ValueError:  # complex numbers, say: unknown is empty
        return ""


def _times(operations: Sequence[Operation], steps: Sequence[StepTimes]) -> dict[int, dict[str, Any]]:
    """Index → the fields of times, of the operations that have a call."""
    timed = [operation.index for operation in operations if steps and operation.index in steps[0].own_s]
    if not timed:
        return {}
    spread = {index: summarise([step.own_s[index] for step in steps]) for index in timed}
    return {
        index: {
            "kernels": fmean(step.kernels[index] for step in steps),
            "time_s": fmean(step.own_s[index] for step in steps),
            "median_time_s": spread[index].median,
            "low_time_s": spread[index].low,
            "high_time_s": spread[index].high,
            "host_time_s": fmean(step.host_s[index] for step in steps),
            "waited_s": fmean(step.waited_s[index] for step in steps),
        }
        for index in timed
    }


def between(operations: Sequence[Operation], steps: Sequence[StepTimes]) -> dict[str, float]:
    """Phase → mean time in which none of its operations ran: what was waited before each; the last has the end, too."""
    found: dict[str, float] = {}
    for operation in operations:
        waited = fmean(step.waited_s.get(operation.index, 0.0) for step in steps)
        found[operation.phase] = found.get(operation.phase, 0.0) + waited
    last = operations[-1].phase if operations else ""
    found[last] = found.get(last, 0.0) + fmean(step.end_s for step in steps)
    return found


def in_groups(rows: Sequence[StepOperation], groups: Sequence[tuple[int | None, int]]) -> tuple[StepOperation, ...]:
    """The rows with what ideal fusion makes of them (`analysis.profile.fusion.fused`), one pair a row."""
    return tuple(
        replace(row, group=group, fused_bytes=nbytes) for row, (group, nbytes) in zip(rows, groups, strict=True)
    )


def module_rows(model: torch.nn.Module, ignored: frozenset[str]) -> Iterator[StepModule]:
    """A row for each name of a module, but for those ignored. Parameters by number of elements."""
    named = [(path, module) for path, module in model.named_modules(remove_duplicate=False) if path not in ignored]
    kept = {id(p) for _, module in named for p in module.parameters(recurse=False)}
    seen: set[int] = set()
    for path, module in named:
        own = {id(p): p.numel() for p in module.parameters(recurse=False)}
        below = {id(p): p.numel() for p in module.parameters()}
        yield StepModule(
            module=path,
            type=type(module).__name__,
            settings=module.extra_repr(),
            own_parameters=sum(count for name, count in own.items() if name not in seen),
            parameters=sum(count for name, count in below.items() if name in kept),
        )
        seen |= own.keys()
