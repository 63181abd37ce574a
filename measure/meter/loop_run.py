"""The run directory of a loop: one cell, measured in somebody's own training, as a sweep writes its cells.

`runners.report`, comparisons and gates read it. The rows are committed when the meter is closed; until then the
directory is held, and a loop that died leaves a run without cells. A directory that a meter wrote before is gone on
with: another session, another attempt at the same cell.

Not claimed: an operation table, telemetry, flags, and a warm-up by the sweep's rules; gates that need them stay open.
"""

import dataclasses
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.devices.peaks import kept_row
from analysis.stats.summary import summarise
from measure.device import cpu_contention
from measure.device.environment import device_facts, environment, host_state
from measure.meter.call_costs import StepFlop
from measure.meter.step_times import StepBlock, all_of
from measure.timing.blocks import agree
from measure.timing.protocols import Protocol
from measure.timing.stopping import shortfall
from results.errors import Unavailable
from results.records.cell import Cell, Run, Sitting
from results.records.samples import Ceiling, Sample
from results.records.vocabulary import LOOP
from results.store.manifest import MANIFEST, Manifest, harness_version, utc_now
from results.store.store import Store

_DTYPES = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_PRECISIONS = {"bf16": "amp-bf16", "fp16": "amp-fp16", "tf32": "tf32", "fp32": "fp32"}
"""Unit that most products run on → the policy of a sweep that is nearest."""


@dataclass(frozen=True, kw_only=True)
class MeasuredLoop:
    """What a meter knows of a loop when it ends.

    warm_up, blocks: the steps before and in the window. flop: of all steps in it. began_s: host's clock at its begin.
    power_w: mean power of the device in it. warnings: of the cell.
    """

    model: str
    device: str
    compiled: bool
    optimizer: str
    parameters: int
    warm_up: Sequence[StepBlock]
    blocks: Sequence[StepBlock]
    flop: StepFlop
    began_s: float
    power_w: float | None
    warnings: tuple[str, ...]


class LoopRun:
    """A run directory that is held until `close`.

    Raises ValueError for a directory that holds anything but a run that a meter wrote on such a machine, StoreFault
    where the system refuses.
    """

    def __init__(self, path: Path, device: str, ceilings: Sequence[Ceiling], peak_flop_per_s: float | None) -> None:
        self._options: dict[str, Any] = {"data": LOOP, "device": device, "methods": ["exact"], "counters": []}
        self._options["peak_tflops"] = None if peak_flop_per_s is None else peak_flop_per_s / 1e12
        self._began = utc_now()
        self._others = cpu_contention.Neighbours()
        facts = device_facts(device)
        row = kept_row(str(facts.name), facts.multiprocessors)
        self._store = _opened(path, self._options, row)
        found, name = environment(), f"s{len(self._store.sittings)}"
        self._sitting = Sitting(
            sitting=name,
            started_at=self._began,
            host=socket.gethostname(),
            device=device,
            device_name=facts.name or "",
            device_uuid=facts.uuid_hash or "",
            driver=found.host.driver or "",
            torch_version=found.torch.torch or "",
            peak_row="" if row is None else str(row["row_id"]),
            preflight=host_state(),
            environment={**found.as_json(), **vars(facts), "harness_version": harness_version()},
        )
        try:
            self._store.append_sitting(self._sitting)
            self._store.append_ceilings([dataclasses.replace(each, sitting=name) for each in ceilings])
        except BaseException:
            self._store.close()
            raise

    def begin_window(self) -> None:
        """The warm-up has ended."""
        self._others = cpu_contention.Neighbours()

    def close(self, loop: MeasuredLoop | None) -> None:
        """Commit the loop, where it has steps, and let go of the directory."""
        try:
            if loop is not None:
                self._commit(loop)
        finally:
            self._store.close()

    def _commit(self, loop: MeasuredLoop) -> None:
        steps = sum(block.steps for block in loop.blocks)
        cell = _cell(loop, steps)
        shape = {"models": [cell.model], "batch_sizes": [cell.batch_size], "precisions": [cell.precision]}
        shape |= {"compile": cell.compile, "optimizer": cell.optimizer}
        manifest = dataclasses.replace(self._store.manifest, options={**self._options, **shape})
        self._store.replace_manifest(manifest)
        attempt = self._store.next_attempt(cell.cell_id)
        samples = _samples(loop, cell, attempt)
        protocol = Protocol.for_device(loop.device)
        timed = [each for each in samples if each.part == "measure"]
        times = summarise([each.wall_s / each.steps for each in timed], [each.steps for each in timed])
        lacking = shortfall(timed, times, protocol)
        whole = all_of(loop.blocks)
        executed, notes = _executed(loop.flop, whole)
        warm = [each for each in samples if each.part == "warmup"][1:]
        if warm and not agree(warm, protocol.warm_tolerance_ratio):
            notes += (f"not_steady: the warm-up was {len(warm) + 1} blocks, whose times still changed",)
        others = self._others.used_ratio()
        notes += tuple(filter(None, [cpu_contention.warning(others)]))
        end_s = samples[-1].start_s + samples[-1].wall_s
        energy_j = None if loop.power_w is None else loop.power_w * (end_s - loop.began_s)
        run = Run(
            **vars(cell),
            convolution_unit=_unit(loop.flop, convolution=True),
            matmul_unit=_unit(loop.flop, convolution=False),
            cell_id=cell.cell_id,
            attempt=attempt,
            sitting=self._sitting.sitting,
            status="not_converged" if lacking else "ok",
            reason=f"the loop ended with {lacking}" if lacking else "",
            warnings=(*loop.warnings, *notes),
            started_at=self._began,
            duration_s=end_s - samples[0].start_s,
            items_per_step=None if whole.known_items is None else round(whole.known_items / steps),
            parameters=loop.parameters,
            executed=executed,
            warmup_steps=sum(block.steps for block in loop.warm_up),
            warmup_s=sum(block.time_s for block in loop.warm_up),
            window_start_s=timed[0].start_s,
            window_end_s=end_s,
            others_cpu_ratio=others,
            energy_j=energy_j,
            energy_method="" if energy_j is None else "counter",
            at_least_flop=None if executed else sum(loop.flop.products.values()) // steps or None,
            unknown_calls=None if executed else -(-(loop.flop.unknown_calls + whole.unseen) // steps),
            attention=_attention(loop.flop, steps) if executed else {},
        )
        self._store.commit(run, {"samples.csv": samples})


def _opened(path: Path, options: Mapping[str, Any], row: dict[str, Any] | None) -> Store:
    """The directory, new or gone on with."""
    if not (path / MANIFEST).exists():
        manifest = Manifest(
            name=path.name,
            created_at=utc_now(),
            commands=(" ".join(sys.argv) or "python",),
            harness_version=harness_version(),
            options=options,
            peak_row=row,
            notes=("measured by flopledger.UtilizationMeter in a training loop",),
        )
        return Store.create(path, manifest)
    store = Store.resume(path)
    if store.manifest.options.get("data") != LOOP:
        store.close()
        raise ValueError(f"expected a new directory as out, or a run that a meter wrote, got the sweep in {path}")
    return store


def _cell(loop: MeasuredLoop, steps: int) -> Cell:
    """The loop as a point of a grid. Raises Unavailable for products on units that no precision of a sweep names."""
    by_unit = loop.flop.by_unit
    most = max(by_unit, key=lambda unit: by_unit[unit], default="fp32")
    if most not in _PRECISIONS:
        raise Unavailable(f"most products run on {most}, which is no precision of a sweep")
    return Cell(
        model=loop.model,
        batch_size=max(1, round(sum(block.samples for block in loop.blocks) / steps)),
        device=loop.device,
        precision=_PRECISIONS[most],
        compile=loop.compiled,
        optimizer=loop.optimizer,
        methods=("exact",),
        counters=(),
        data=LOOP,
    )


def _samples(loop: MeasuredLoop, cell: Cell, attempt: int) -> list[Sample]:
    """Each block of steps as a timed block. Where it begins follows from the times of the others."""
    samples, start_s = [], loop.began_s - sum(block.time_s + block.outside_s for block in loop.warm_up)
    for index, block in enumerate((*loop.warm_up, *loop.blocks)):
        start_s += block.outside_s
        samples.append(
            Sample(
                cell_id=cell.cell_id,
                attempt=attempt,
                index=index,
                part="warmup" if index < len(loop.warm_up) else "measure",
                steps=block.steps,
                start_s=start_s,
                wall_s=block.time_s,
                device_s=None if cell.device.startswith("cpu") else block.time_s,
            )
        )
        start_s += block.time_s
    return samples


def _executed(flop: StepFlop, whole: StepBlock) -> tuple[dict[str, int], tuple[str, ...]]:
    """Model FLOP of the mean step by kind and dtype, and what to say of it; nothing where a call has no count, or a
    step was not seen. whole: all steps."""
    if flop.unknown_calls or not flop.products:
        return {}, flop.reasons
    steps = whole.steps
    if whole.unseen:
        return {}, (f"executed: no forward pass of the model was seen in {whole.unseen} of {steps} steps",)
    found: dict[str, int] = {}
    for (kind, unit), each in sorted(flop.products.items()):
        name = f"{kind}/{_DTYPES.get(unit, unit)}"
        found[name] = found.get(name, 0) + each
    differing = any(each % steps for each in found.values())
    notes = ("steps: their inputs differ in size, FLOP and time are means over them",) if differing else ()
    return {name: round(each / steps) for name, each in found.items()}, notes


def _attention(flop: StepFlop, steps: int) -> dict[str, int]:
    """ "convention/dtype" → FLOP of the mean step that it counts less than the dense one, where it is known."""
    found: dict[str, int] = {}
    for convention, less in flop.less.items():
        for unit in flop.by_unit:
            name = f"{convention}/{_DTYPES.get(unit, unit)}"
            found[name] = found.get(name, 0) + less.get(unit, 0)
    return {name: round(each / steps) for name, each in found.items()}


def _unit(flop: StepFlop, convolution: bool) -> str:
    """The unit that convolutions, or all other products, run on; "" where there is not one for all of them."""
    units = {unit for kind, unit in flop.products if (kind == "convolution") == convolution}
    return units.pop() if len(units) == 1 else ""
