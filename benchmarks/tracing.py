"""What the tracer costs: a traced training step against the same step run bare on the same fake tensors.

    python -m benchmarks.tracing --models resnet152,vit_b_16
    python -m benchmarks.tracing --models all --repeats 5

Bare is the step under PyTorch's own FakeTensorMode; traced is `trace_step`, records included, from an empty cache of
signatures (as the first trace in a process). Each model is warmed up by one step of each; then bare and traced take
turns, and medians are compared. Garbage collection is off in both. The default clock counts this thread's processor
time, because the step runs in one thread and other processes may use the machine; `--clock wall` is the wall's.
It does not measure building the model, and not memory beyond the peak of the whole process.

Seen with `--models all --repeats 3` (two cores of an AMD EPYC, Python 3.11.7, torch 2.15.0, other work beside it):
226,903 operations, bare 17.1 s, traced 16.2 s, ratio 0.94 (0.83 to 1.18 by model); under 50 ms at most 15 µs an
operation. It is below 1 because the tracer's mode answers views and repeated in-place operations by itself.
"""

import argparse
import gc
import platform
import resource
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torchvision
from torch._subclasses.fake_tensor import FakeTensorMode

from measure.fake.building import built_on_meta, modules_on_meta
from measure.operations.tracer import StepParts, clear_cache, fake_mode, to_fake, trace_step
from measure.step.count import count_of
from measure.step.step_trace import step_trace
from workloads.sources import any_model
from workloads.training.step import OPTIMIZERS, TrainingStep
from workloads.vision import models as vision_models

CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.thread_time, "wall": time.perf_counter}
SHORT_STEP_S = 0.05
"""Below this a fixed cost outweighs a ratio; the cost for each operation is judged instead."""


@dataclass(frozen=True)
class Timing:
    """One model: operations in its step, and seconds of a bare and of a traced step."""

    model: str
    operations: int
    bare_s: float
    traced_s: float

    @property
    def per_operation_s(self) -> float:
        """What tracing adds to one operation."""
        return (self.traced_s - self.bare_s) / self.operations


def build(name: str, batch_size: int, mode: FakeTensorMode) -> StepParts:
    """A training step of a model at its own input size, on fake tensors of this mode (SGD with momentum)."""
    workload = vision_models.get(name)
    with torch.device("meta"):
        model = workload.build(**workload.hyper)
    to_fake(model, mode)
    with mode:
        batch = workload.batch(workload.hyper, batch_size, torch.device("cpu"), None)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    step = TrainingStep(model, workload.loss, optimizer, [batch], "cpu")
    return StepParts(step, model, optimizer, (batch.inputs, batch.target))


def measure(name: str, batch_size: int, repeats: int, clock: Callable[[], float]) -> Timing:
    """Bare and traced steps of one model, in turns."""
    bare_mode, traced_mode = FakeTensorMode(), fake_mode()
    bare, traced = build(name, batch_size, bare_mode), build(name, batch_size, traced_mode)
    counts: list[int] = []

    def run_bare() -> None:
        with bare_mode:
            bare.step(lambda _phase: None)

    def run_traced() -> None:
        recorded = trace_step(
            traced.step,
            model=traced.model,
            optimizer=traced.optimizer,
            inputs=traced.inputs,
            mode=traced_mode,
            steps_before=0,
        )
        counts.append(len(recorded.operations))

    run_bare()
    run_traced()
    times: dict[Callable[[], None], list[float]] = {run_bare: [], run_traced: []}
    for turn in range(repeats):
        for run in (run_bare, run_traced) if turn % 2 == 0 else (run_traced, run_bare):
            times[run].append(timed(run, clock))
    return Timing(name, counts[-1], statistics.median(times[run_bare]), statistics.median(times[run_traced]))


def timed(run: Callable[[], None], clock: Callable[[], float]) -> float:
    """Seconds of one run from an empty cache, without garbage collection."""
    clear_cache()
    gc.collect()
    gc.disable()
    try:
        start = clock()
        run()
        return clock() - start
    finally:
        gc.enable()


def line(timing: Timing) -> str:
    """One row of the table."""
    return (
        f"{timing.model:22} {timing.operations:10d} {timing.bare_s:8.3f} {timing.traced_s:8.3f}"
        f" {timing.traced_s / timing.bare_s:6.3f} {timing.per_operation_s * 1e6:8.1f}"
    )


def summary(timings: list[Timing]) -> str:
    """The sums that the tracer is judged by, and where they were taken."""
    bare, traced = sum(t.bare_s for t in timings), sum(t.traced_s for t in timings)
    short = [t for t in timings if t.bare_s < SHORT_STEP_S]
    worst = max(short, key=lambda t: t.per_operation_s, default=None)
    rows = [
        line(Timing(f"sum of {len(timings)}", sum(t.operations for t in timings), bare, traced)),
        f"peak resident memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB",
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, torch {torch.__version__},"
        f" torchvision {torchvision.__version__}",
    ]
    if worst is not None:
        rows.insert(1, f"steps under 50 ms: at most {worst.per_operation_s * 1e6:.1f} µs an operation ({worst.model})")
    return "\n".join(rows)


def counted(spec: str) -> str:
    """What the exact count of a step of one sample costs where no weight is allocated, from the name to the number."""
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    with modules_on_meta():
        workload = any_model.get(spec)
    model = built_on_meta(partial(workload.build, **workload.hyper)).train()
    inputs = workload.batch(workload.hyper, 1, torch.device("cpu"), None).inputs
    found = count_of(step_trace(model, inputs, None, None, None), model)
    cpu_s, wall_s = time.process_time() - began_cpu_s, time.perf_counter() - began_s
    billions = sum(parameter.numel() for parameter in model.parameters()) / 1e9
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return (
        f"{spec}: {billions:.1f} G parameters, {found.forward_flop} FLOP forward, {found.backward_flop} backward: "
        f"{cpu_s:.1f} s of processor time, {wall_s:.1f} s, peak resident memory {peak:.2f} GiB"
    )


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet152,vgg11,mobilenet_v2,vit_b_16,swin_t", help="names, or all")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--count", action="store_true", help="the exact count without weights; models of any form")
    options = parser.parse_args()
    names = options.models.split(",")
    if options.count:
        print(*map(counted, names), sep="\n")
        return
    if names == ["all"]:
        names = torchvision.models.list_models(module=torchvision.models)
    warnings.simplefilter("ignore")  # what torchvision says while it builds
    print(f"{'model':22} {'operations':>10} {'bare s':>8} {'traced s':>8} {'ratio':>6} {'µs / op':>8}", flush=True)
    timings = []
    for name in names:
        timings.append(measure(name, options.batch_size, options.repeats, CLOCKS[options.clock]))
        print(line(timings[-1]), flush=True)
    print(summary(timings))


if __name__ == "__main__":
    main()
