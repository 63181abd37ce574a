"""A small made-up run, written through the store, whose every number can be worked out by hand.

Two models × two batch sizes × two precisions on a device that calls itself an H100, one cell more that ran out of
memory, one that did not converge. Nothing here was measured: the step times are chosen so that the utilization of the
datasheet peak is the number in RATIO. Used by tests only.

resnet18 is two convolutions and a product on a 224 × 224 image (PIXELS = 50176 outputs a channel), mobilenet_v2 one
depthwise convolution and a product. Multiply-adds of one item:

    first convolution   3 → 16 channels, 3 × 3:     16 · PIXELS · 27     (backward: weight gradient only)
    second convolution  16 → 32 channels, 3 × 3:    32 · PIXELS · 144    (backward: both gradients)
    depthwise           32 channels, 3 × 3:         32 · PIXELS · 9      (backward: both gradients)
    product             32 → 10:                    320                  (backward: both gradients)

`write_profiled_run` is a second run, of resnet18 alone, with the works of the methods one, batch and epoch: their times
and a profile in the form in which torch 2.15 records one (convolution_backward without FLOP).
"""

import dataclasses
from pathlib import Path
from typing import Any

from results.records.cell import Ceiling, Cell, Run, Sample, SessionRow, Telemetry
from results.records.counts import FlopCount, Operation, ProfiledOperation, Storage
from results.store.manifest import Manifest
from results.store.store import Store
from tests.support.made_up.made_up_runs import Unsynced

PIXELS = 224 * 224
FIRST_MAC = 16 * PIXELS * 27
SECOND_MAC = 32 * PIXELS * 144
DEPTHWISE_MAC = 32 * PIXELS * 9
PRODUCT_MAC = 32 * 10

FORWARD_MAC = {"resnet18": FIRST_MAC + SECOND_MAC + PRODUCT_MAC, "mobilenet_v2": DEPTHWISE_MAC + PRODUCT_MAC}
"""Of one item: convolutions and matrix products."""

EXACT_FLOP = {
    "resnet18": 2 * (2 * FIRST_MAC + 3 * SECOND_MAC + 3 * PRODUCT_MAC),  # the first layer has no input gradient
    "mobilenet_v2": 2 * (3 * DEPTHWISE_MAC + 3 * PRODUCT_MAC),
}
"""Of one item and one training step."""

NORMALIZATION_MAC = 2 * 32 * PIXELS  # fvcore's own: two for each element

H100 = "NVIDIA H100 80GB HBM3"
PEAK = {"fp32": 66.9e12, "amp-bf16": 989.4e12}  # H100 whitepaper V1.04, dense
CLOCK_HZ = 1_500_000_000
RATIO = {
    ("resnet18", 8, "fp32"): 0.40,
    ("resnet18", 64, "fp32"): 0.60,
    ("resnet18", 8, "amp-bf16"): 0.05,
    ("resnet18", 64, "amp-bf16"): 0.20,
    ("mobilenet_v2", 8, "fp32"): 0.02,
    ("mobilenet_v2", 64, "fp32"): 0.06,
    ("mobilenet_v2", 8, "amp-bf16"): 0.001,
    ("mobilenet_v2", 64, "amp-bf16"): 0.004,
}
"""Utilization of the datasheet peak, by construction."""

NOT_CONVERGED = ("resnet18", 64, "fp32")
HOST_BOUND = ("mobilenet_v2", 8, "amp-bf16")
BLOCKS, STEPS = 10, 20
POWER_W = 350.0

CEILINGS = (
    ("s1", "fp32", "fp32", "matmul", 52e12),
    ("s1", "fp32", "fp32", "convolution", 48e12),
    ("s1", "amp-bf16", "bf16", "matmul", 600e12),
    ("s1", "amp-bf16", "bf16", "convolution", 650e12),
    ("s0", "fp32", "fp32", "matmul", 900e12),  # another session's: never to be used
)


EPOCH_IMAGES, FULL, LAST = 84, 10, 4
"""An epoch of the profiled run, whose batches are of 8: ten of them and one of 4."""

WORK_RATIO = {"one": 0.05, "batch": 0.40, "last": 0.30}
"""Utilization of the datasheet peak by the works of the profiled run, by construction."""

PROFILER_COSTS = 1.25
"""A profiled step of that run ÷ one without the profiler."""

REAL_S_PER_S = 1.001
"""Its real epoch ÷ the sum of its batches' means."""

ONE_CLOCK_HZ = 1_800_000_000
"""SM clock while its one sample was timed."""

NO_PROFILE = "the profiler of this made-up card refused"
METHODS = ("theory", "one", "batch", "epoch", "exact")


def step_s(model: str, batch_size: int, precision: str) -> float:
    """The step time that makes the utilization RATIO."""
    return EXACT_FLOP[model] * batch_size / (RATIO[model, batch_size, precision] * PEAK[precision])


def write_run(path: Path, device_name: str = H100, peak_tflops: float | None = None) -> Path:
    """The run directory, as a sweep would leave it."""
    options = {} if peak_tflops is None else {"peak_tflops": peak_tflops}
    manifest = Manifest(name="made-up", created_at="2026-01-02T03:04:05Z", options=options)
    with Store.create(path, manifest, Unsynced()) as store:
        for name in ("s0", "s1"):
            store.append_session(_session(name, device_name))
        store.append_ceilings([_ceiling(*row) for row in CEILINGS])
        for cell in (*map(_cell, RATIO), _cell(("mobilenet_v2", 512, "fp32"))):
            _commit(store, cell)
    return path


def write_profiled_run(path: Path, peak_tflops: float | None = None) -> Path:
    """resnet18 at batch 8: in fp32 with every profile, in amp-bf16 with none of one sample."""
    options = {} if peak_tflops is None else {"peak_tflops": peak_tflops}
    manifest = Manifest(name="made-up-profiled", created_at="2026-01-02T03:04:05Z", options=options)
    with Store.create(path, manifest, Unsynced()) as store:
        store.append_session(_session("s1", H100))
        store.append_ceilings([_ceiling(*row) for row in CEILINGS if row[0] == "s1"])
        for precision in PEAK:
            _commit_profiled(
                store,
                dataclasses.replace(_cell(("resnet18", 8, precision)), methods=METHODS, epoch_images=EPOCH_IMAGES),
            )
    return path


def work_s(work: str, precision: str) -> float:
    """How long a work takes: its FLOP at WORK_RATIO of the peak. An epoch is ten batches and the last one."""
    if work == "epoch":
        return FULL * work_s("batch", precision) + work_s("last", precision)
    items = {"one": 1, "batch": 8, "last": LAST}[work]
    return EXACT_FLOP["resnet18"] * items / (WORK_RATIO[work] * PEAK[precision])


def _commit_profiled(store: Store, cell: Cell) -> None:
    works = ("one", "batch", "last") if cell.precision == "fp32" else ("batch", "last")
    trace_id = f"traced-{cell.precision}"
    store.write_operations(trace_id, operations("resnet18", 8, cell.precision), [Storage(0, 4, "input", -1, None)])
    calls = [call for work in works for call in profiled_operations(work, cell.precision)]
    entry = store.write_profile(cell.cell_id, 1, calls)
    run = dataclasses.replace(
        _run(cell, "ok", trace_id),
        profiled=works,
        unprofiled={} if "one" in works else {"one": NO_PROFILE},
        committed=entry,
    )
    window_s = BLOCKS * STEPS * work_s("batch", cell.precision)
    run = dataclasses.replace(run, window_start_s=100.0, window_end_s=100.0 + window_s, energy_j=POWER_W * window_s)
    # polls around the blocks of one sample, at a clock of their own
    length_s = 1.1 * BLOCKS * STEPS * work_s("one", cell.precision)
    rows = {
        "samples.csv": work_samples(cell, works),
        "telemetry.csv": [
            *telemetry(cell),
            *[
                Telemetry(
                    cell_id=cell.cell_id, attempt=1, time_s=499.9 + i * (length_s + 0.2) / 3, sm_clock_hz=ONE_CLOCK_HZ
                )
                for i in range(4)
            ],
        ],
        "flop_counts.csv": flop_counts(cell),
    }
    store.commit(run, rows)


def work_samples(cell: Cell, works: tuple[str, ...]) -> list[Sample]:
    """Blocks of every work, ± 0.4 %, three profiled steps of each, and a real epoch in segments with the last batch."""
    found = []
    for work in works:
        name, mean_s = ("" if work == "batch" else work), work_s(work, cell.precision)
        start_s = 500.0 if work == "one" else 100.0
        for index in range(BLOCKS):
            spread = 1 + (0.004 if index % 2 else -0.004)
            found.append(_work_sample(cell, "measure", index, STEPS, mean_s * spread, name, start_s))
        found += [_work_sample(cell, "profiled", i, 1, PROFILER_COSTS * mean_s, name, 900.0) for i in range(3)]
    steps = [2] * 4 + [3]
    full_s, last_s = work_s("batch", cell.precision), work_s("last", cell.precision)
    for index, count in enumerate(steps):
        total_s = count * full_s if index < 4 else 2 * full_s + last_s
        spread = REAL_S_PER_S + (0.0 if index == 4 else 0.002 * (-1) ** index)
        found.append(_work_sample(cell, "measure", index, count, total_s * spread / count, "epoch", 1000.0))
    return [dataclasses.replace(sample, index=index) for index, sample in enumerate(found)]


def _work_sample(cell: Cell, part: str, index: int, steps: int, step: float, work: str, start_s: float) -> Sample:
    device_s = steps * step
    return Sample(
        cell_id=cell.cell_id,
        attempt=1,
        index=index,
        part=part,
        steps=steps,
        start_s=start_s + index * device_s,
        wall_s=device_s,
        device_s=device_s,
        work=work,
    )


def _commit(store: Store, cell: Cell) -> None:
    trace_id = f"{cell.model}-b{cell.batch_size}-{cell.precision}"
    store.write_operations(
        trace_id, operations(cell.model, cell.batch_size, cell.precision), [Storage(0, 4, "input", -1, None)]
    )
    if (cell.model, cell.batch_size, cell.precision) not in RATIO:
        store.commit(_run(cell, "out_of_memory", trace_id, reason="tried to allocate 61.2 GiB, 3.1 GiB were free"), {})
        return
    key = (cell.model, cell.batch_size, cell.precision)
    run = _run(cell, "not_converged" if key == NOT_CONVERGED else "ok", trace_id)
    rows = {
        "samples.csv": samples(cell),
        "telemetry.csv": telemetry(cell),
        "flop_counts.csv": flop_counts(cell),
    }
    store.commit(run, rows)


def _cell(key: tuple[str, int, str]) -> Cell:
    model, batch_size, precision = key
    return Cell(model=model, batch_size=batch_size, device="cuda", precision=precision)


def _run(cell: Cell, status: str, trace_id: str, reason: str = "") -> Run:
    unit = {"fp32": "fp32", "amp-bf16": "bf16"}[cell.precision]
    key = (cell.model, cell.batch_size, cell.precision)
    measured: dict[str, Any] = {}
    if key in RATIO:
        length = BLOCKS * STEPS * step_s(*key)
        measured = {"window_start_s": 100.0, "window_end_s": 100.0 + length, "host_bound": key == HOST_BOUND}
        measured |= {"energy_j": POWER_W * length, "energy_method": "counter"}
    return Run(
        **vars(cell),
        cell_id=cell.cell_id,
        attempt=1,
        session="s1",
        status=status,
        reason=reason,
        trace_id=trace_id,
        items_per_step=cell.batch_size,
        convolution_unit=unit,
        matmul_unit=unit,
        **measured,
    )


def samples(cell: Cell) -> list[Sample]:
    """Blocks that differ by a hair about the mean (by a lot where the cell did not converge), and two decoys."""
    key = (cell.model, cell.batch_size, cell.precision)
    spread = 0.08 if key == NOT_CONVERGED else 0.004
    blocks = [
        _sample(cell, "measure", index, step_s(*key) * (1 + (spread if index % 2 else -spread)))
        for index in range(BLOCKS)
    ]
    return [_sample(cell, "warmup", 0, 9 * step_s(*key)), *blocks, _sample(cell, "phase", 0, 5.0, phase="forward")]


def _sample(cell: Cell, part: str, index: int, step: float, phase: str = "") -> Sample:
    device_s = STEPS * step
    return Sample(
        cell_id=cell.cell_id,
        attempt=1,
        index=index,
        part=part,
        phase=phase,
        steps=STEPS,
        start_s=100.0 + index * device_s,
        wall_s=device_s * 1.5,  # a decoy: event time is what counts on a GPU
        device_s=device_s,
    )


def telemetry(cell: Cell) -> list[Telemetry]:
    """Four polls over the window at CLOCK_HZ, and one long before it at an idle clock."""
    length = BLOCKS * STEPS * step_s(cell.model, cell.batch_size, cell.precision)
    reasons = ("sw_power_cap",) if cell.precision == "amp-bf16" else ()
    polls = [(100.0 + length * i / 3, CLOCK_HZ, reasons) for i in range(4)]
    return [
        Telemetry(
            cell_id=cell.cell_id, attempt=1, time_s=time_s, sm_clock_hz=clock, power_w=POWER_W, event_reasons=events
        )
        for time_s, clock, events in [(50.0, 345_000_000, ("gpu_idle",)), *polls]
    ]


def flop_counts(cell: Cell) -> list[FlopCount]:
    """fvcore and ptflops by operator: multiply-adds, 2 FLOP each, and ptflops' elements in a unit of their own."""
    items = cell.batch_size
    convolutions = FORWARD_MAC[cell.model] - PRODUCT_MAC
    operators = {"conv": convolutions, "addmm": PRODUCT_MAC, "batch_norm": NORMALIZATION_MAC}
    rows = [_count(cell, "fvcore", operator, mac * items) for operator, mac in operators.items()]
    rows.append(_count(cell, "fvcore", "", sum(operators.values()) * items))
    modules = {"Conv2d": convolutions, "Linear": PRODUCT_MAC}
    rows += [_count(cell, "ptflops", module, mac * items) for module, mac in modules.items()]
    rows.append(_count(cell, "ptflops", "ReLU", 1000 * items, "flop"))
    total = _count(cell, "ptflops", "", (FORWARD_MAC[cell.model] + 1000) * items)
    return [*rows, dataclasses.replace(total, flop=(2 * FORWARD_MAC[cell.model] + 1000) * items)]


def _count(cell: Cell, counter: str, operator: str, mac: int, unit: str = "mac") -> FlopCount:
    return FlopCount(
        cell_id=cell.cell_id,
        attempt=1,
        counter=counter,
        workload=cell.model,
        batch_size=cell.batch_size,
        phase="forward",
        operator=operator,
        native_value=mac,
        native_unit=unit,
        flop=mac * (2 if unit == "mac" else 1),
    )


def _session(name: str, device_name: str) -> SessionRow:
    return SessionRow(
        session=name,
        started_at="2026-01-02T03:04:05Z",
        host="host",
        device="cuda",
        device_name=device_name,
        driver="550.54.15",
        torch_version="2.15.0",
    )


def _ceiling(session: str, precision: str, unit: str, operation: str, flop_per_s: float) -> Ceiling:
    return Ceiling(
        session=session,
        device="cuda",
        precision=precision,
        unit=unit,
        operation=operation,
        shape="4096x4096x4096",
        median_s=1e-3,
        flop=int(flop_per_s * 1e-3),
        flop_per_s=flop_per_s,
    )


def operations(model: str, n: int, precision: str) -> list[Operation]:
    """The operation table of one step; the recomputed convolution at its end is no model FLOP."""
    dtype = {"fp32": "float32", "amp-bf16": "bfloat16"}[precision]
    x, h, y = (n, 3, 224, 224), (n, 16, 224, 224), (n, 32, 224, 224)
    first, second, depthwise = (16, 3, 3, 3), (32, 16, 3, 3), (32, 1, 3, 3)
    if model == "resnet18":
        steps = [_conv(x, first, h), _conv(h, second, y), _relu(y)]
        back = [_conv_back(y, h, second, [True, True, False]), _conv_back(h, x, first, [False, True, False])]
        again = [("recompute", _conv(h, second, y))]
    else:
        steps = [_conv(y, depthwise, y, groups=32), _relu(y)]
        back = [_conv_back(y, y, depthwise, [True, True, False], groups=32)]
        again = []
    table = [("forward", step) for step in (*steps, _addmm(n))]
    table += [("backward", step) for step in (_mm((n, 10), (10, 32)), _mm((10, n), (n, 32)), *back)]
    return [_operation(i, phase, call, dtype) for i, (phase, call) in enumerate(table + again)]


Call = dict[str, Any]


def _operation(index: int, phase: str, call: Call, dtype: str) -> Operation:
    names, shapes = tuple(call["inputs"]), tuple(call["inputs"].values())
    return Operation(
        index=index,
        name=call["name"],
        kind=call["kind"],
        phase=phase,
        module="",
        sequence_nr=None,
        forward_index=None,
        input_names=names,
        input_shapes=shapes,
        input_dtypes=(dtype,) * len(names),
        output_shapes=tuple(call["outputs"]),
        output_dtypes=(dtype,) * len(call["outputs"]),
        attributes=call["attributes"],
        reads=tuple(range(len(names))),
        writes=(9,),
    )


def _call(name: str, kind: str, inputs: Call, outputs: list[tuple[int, ...]], **attributes: Any) -> Call:
    return {"name": name, "kind": kind, "inputs": inputs, "outputs": outputs, "attributes": attributes}


def _geometry(groups: int) -> Call:
    return {
        "stride": [1, 1],
        "padding": [1, 1],
        "dilation": [1, 1],
        "transposed": False,
        "output_padding": [0, 0],
        "groups": groups,
    }


def _conv(x: tuple[int, ...], weight: tuple[int, ...], out: tuple[int, ...], groups: int = 1) -> Call:
    return _call("aten.convolution", "convolution", {"input": x, "weight": weight}, [out], **_geometry(groups))


def _conv_back(
    grad: tuple[int, ...], x: tuple[int, ...], weight: tuple[int, ...], mask: list[bool], groups: int = 1
) -> Call:
    inputs = {"grad_output": grad, "input": x, "weight": weight}
    outputs = [shape for wanted, shape in zip(mask, (x, weight, weight[:1]), strict=True) if wanted]
    geometry = _geometry(groups) | {"bias_sizes": None, "output_mask": mask}
    return _call("aten.convolution_backward", "convolution", inputs, outputs, **geometry)


def _relu(shape: tuple[int, ...]) -> Call:
    return _call("aten.relu", "activation", {"self": shape}, [shape])


def _addmm(n: int) -> Call:
    inputs = {"self": (10,), "mat1": (n, 32), "mat2": (32, 10)}
    return _call("aten.addmm", "matmul", inputs, [(n, 10)], beta=1, alpha=1)


def _mm(a: tuple[int, int], b: tuple[int, int]) -> Call:
    return _call("aten.mm", "matmul", {"self": a, "mat2": b}, [(a[0], b[1])])


# --- a profile, in the form in which torch 2.15 records one ---------------------------------------------------------

CPP_DTYPE = {"fp32": "float", "amp-bf16": "c10::BFloat16"}


def profiled_operations(work: str, precision: str) -> list[ProfiledOperation]:
    """What the profiler writes of one step of a work: calls in order, each with its parent, backward without FLOP."""
    n = {"one": 1, "batch": 8, "last": LAST}[work]
    x, h, y = (n, 3, 224, 224), (n, 16, 224, 224), (n, 32, 224, 224)
    first, second = (16, 3, 3, 3), (32, 16, 3, 3)
    geometry = [(1, 1), (1, 1), (1, 1)]
    rest, back = [False, (0, 0), 1], [(0,), *geometry, False, (0, 0), 1]
    addmm_flop = 2 * PRODUCT_MAC * n
    calls = [
        ("aten::conv2d", "forward", "first", None, None, [x, first, (), *geometry, 1], 2 * FIRST_MAC * n),
        ("aten::convolution", "forward", "first", 0, None, [x, first, (), *geometry, *rest], None),
        ("aten::conv2d", "forward", "second", None, None, [h, second, (), *geometry, 1], 2 * SECOND_MAC * n),
        ("aten::convolution", "forward", "second", 2, None, [h, second, (), *geometry, *rest], None),
        ("aten::relu", "forward", "relu", None, None, [y], None),
        ("aten::linear", "forward", "classifier", None, None, [(n, 32), (10, 32), (10,)], None),
        ("aten::addmm", "forward", "classifier", 5, None, [(10,), (n, 32), (32, 10), 1, 1], addmm_flop),
        ("aten::mul", "loss", "", None, None, [(n, 10), (n, 10)], 10 * n),
        ("aten::mm", "backward", "classifier", None, 6, [(n, 10), (10, 32)], addmm_flop),
        ("aten::mm", "backward", "classifier", None, 6, [(10, n), (n, 32)], addmm_flop),
        ("aten::convolution_backward", "backward", "second", None, 2, [y, h, second, *back, (True, True, False)], None),
        ("aten::convolution_backward", "backward", "first", None, 0, [h, x, first, *back, (False, True, False)], None),
        ("aten::add_", "optimizer", "", None, None, [second, second], None),
    ]
    return [_call_of(work, precision, index, *call) for index, call in enumerate(calls)]


def _call_of(
    work: str,
    precision: str,
    index: int,
    name: str,
    phase: str,
    module: str,
    parent: int | None,
    forward_index: int | None,
    arguments: list[Any],
    flop: int | None,
) -> ProfiledOperation:
    """One call. Arguments of two sizes or more, or of a bias, are tensors; the others are values."""
    tensors = {"aten::conv2d": 2, "aten::convolution": 2, "aten::convolution_backward": 3, "aten::addmm": 3}
    count = tensors.get(name, len(arguments))
    shapes = tuple(value if i < count else () for i, value in enumerate(arguments))
    values = tuple(None if i < count or value == () else value for i, value in enumerate(arguments))
    dtypes = tuple(CPP_DTYPE[precision] if i < count else "" for i in range(len(arguments)))
    return ProfiledOperation(
        work=work,
        index=index,
        parent=parent,
        name=name,
        phase=phase,
        module=module,
        sequence_nr=index if forward_index is None else forward_index,
        forward_index=forward_index,
        thread=1 if phase != "backward" else 2,
        input_shapes=shapes,
        input_dtypes=dtypes,
        concrete_inputs=values,
        found_flop=flop,
        start_s=0.001 * index,
        time_s=0.001 if parent is None else 0.0005,
    )
