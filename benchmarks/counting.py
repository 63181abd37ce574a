"""What a count costs: ours against every other counter's on the same model and batch, in time and in memory.

    python -m benchmarks.counting --models resnet18,mobilenet_v2,vit_b_16 [--batch-size 1] [--repeats 3]
    python -m benchmarks.counting --models all --counters both --repeats 1

Each count runs in a process of its own, forked from one that has all counters imported, ours too: the least wall time
of the repeats, without the process's start and the building of the model, and the growth of its peak memory. Ours is
`measure.fast_count.fast_count`, forward and backward of the training model; the others count what they can (`passes`),
as their users run them: on real tensors, and on meta tensors where they run there. Ratios are to ours in the same run.
Goal: above 1 in both, for every counter that gives both passes too; exits 1 where it is missed. Counters of the forward
pass alone are listed with the same ratio, and compared with nothing: they leave half of the question out. `--counters
both` leaves them out, and prints a line a model; `all` are torchvision's classification models.

Not claimed: that they count right, or as much; and the times of a busy machine are only comparable with one another.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import forkserver
from typing import Any

from benchmarks.overhead import machine
from benchmarks.zoo import PRELOADED
from measure.counters.harness.isolation import count_isolated
from measure.counters.harness.registry import COUNTERS
from measure.device import processes
from measure.fast_count.fast_count import fast_count
from results.records.counts import FlopCount
from results.records.vocabulary import WHOLE

OURS = "fast_count"
REGISTRY = {
    OURS: ("benchmarks.counting:ours", ""),
    **{name: COUNTERS[name] for name in COUNTERS if name != "flopledger"},
}
BOTH = "forward+backward"
OF_BOTH = (OURS, "flop_counter_mode", "torch_profiler")
"""Those that count the backward pass on their own."""

FACTORIES = {"real": "workloads.vision.models:get", "meta": "benchmarks.counting:on_meta"}
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Cost:
    """What one counter took for one model. passes: what it counted; "" with the reason where it gave no number."""

    counter: str
    tensors: str
    passes: str
    seconds: float = 0.0
    peak_bytes: int = 0
    reason: str = ""


def ours(model: Any, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """The fast count as an adapter: two rows."""
    found = fast_count(model, inputs, train=True)
    blank = FlopCount(counter=OURS, workload=workload, batch_size=batch_size, phase="forward", native_unit="flop")
    flops = {"forward": found.forward_flop, "backward": found.backward_flop}
    return [replace(blank, phase=phase, native_value=flop, flop=flop) for phase, flop in flops.items()]


def on_meta(name: str, **hyper: int) -> Any:
    """A workload whose model and batches have sizes and no values."""
    from workloads.vision import models as vision_models

    workload = vision_models.get(name, **hyper)
    return replace(workload, build=partial(_built_on_meta, name), batch=partial(_batch_on_meta, workload))


def _built_on_meta(name: str, **hyper: int) -> Any:
    import torch

    from workloads.vision import models as vision_models

    with torch.device("meta"):
        return vision_models.build(name, **hyper)


def _batch_on_meta(workload: Any, hyper: Any, size: int, device: Any, generator: Any) -> Any:
    batch = workload.batch(hyper, size, device, generator)
    return replace(batch, inputs=tuple(tensor.to("meta") for tensor in batch.inputs))


def costs(model: str, batch_size: int, repeats: int, counters: Sequence[str]) -> Iterator[Cost]:
    """Each counter on real and on meta tensors."""
    for counter in counters:
        for tensors, factory in FACTORIES.items():
            yield _least(counter, tensors, factory, model, batch_size, repeats)


def _least(counter: str, tensors: str, factory: str, model: str, batch_size: int, repeats: int) -> Cost:
    found: list[Cost] = []
    for _ in range(repeats):
        rows = count_isolated(counter, model, {}, (batch_size,), TIMEOUT_S, factory=factory, registry=REGISTRY)
        totals = [row for row in rows if row.scope == WHOLE and not row.operator]
        first = totals[0]
        if first.status != "ok" or first.duration_s is None:
            return Cost(counter, tensors, "", reason=f"{first.status}: {first.reason}"[:70])
        passes = "+".join(row.phase for row in totals if "× its forward" not in row.reason)
        found.append(Cost(counter, tensors, passes, first.duration_s, first.peak_memory_bytes or 0))
    return Cost(counter, tensors, found[0].passes, min(c.seconds for c in found), min(c.peak_bytes for c in found))


def show(model: str, table: Sequence[Cost]) -> bool:
    """A row a counter, and who is first among those that count both passes; whether ours is, in both."""
    best = next(cost for cost in table if cost.counter == OURS and cost.tensors == "meta")
    print(f"\n{model}: ours (meta) {best.seconds * 1e3:.1f} ms, +{best.peak_bytes / 1e6:.1f} MB")
    for cost in table:
        if cost.reason:
            print(f"  {cost.counter:18} {cost.tensors:5} {cost.reason}")
            continue
        memory = f"{cost.peak_bytes / best.peak_bytes:8.2f} ×" if best.peak_bytes else ""
        print(
            f"  {cost.counter:18} {cost.tensors:5} {cost.passes:17} {cost.seconds * 1e3:9.1f} ms"
            f" {cost.seconds / best.seconds:8.2f} × {cost.peak_bytes / 1e6:8.1f} MB {memory}"
        )
    verdicts = [_first(what, of, best, table) for what, of in MEASURES.items()]
    return all(verdicts)


def line(model: str, table: Sequence[Cost]) -> bool:
    """One line: ours, and each other counter of both passes as a multiple of it; whether ours is first in both."""
    best = next(cost for cost in table if cost.counter == OURS and cost.tensors == "meta")
    others = [cost for cost in table if cost.counter != OURS and cost.passes == BOTH]
    told = "  ".join(
        f"{cost.counter} ({cost.tensors}) {cost.seconds / best.seconds:.1f} × time, "
        f"{cost.peak_bytes / max(best.peak_bytes, 1):.2f} × memory"
        for cost in others
    )
    print(f"{model:22} {best.seconds * 1e3:7.1f} ms {best.peak_bytes / 1e6:6.1f} MB  {told}", flush=True)
    return all(cost.seconds >= best.seconds and cost.peak_bytes >= best.peak_bytes for cost in others)


MEASURES = {"time": lambda cost: cost.seconds, "memory": lambda cost: cost.peak_bytes}


def _first(what: str, of: Callable[[Cost], float], best: Cost, table: Sequence[Cost]) -> bool:
    """Whether ours needs least among the counters of both passes; says so, and which of the forward pass need less."""
    others = [cost for cost in table if cost.counter != OURS and not cost.reason]
    both = sorted((cost for cost in others if cost.passes == BOTH), key=of)
    less = [f"{cost.counter} ({cost.tensors})" for cost in others if cost.passes != BOTH and of(cost) < of(best)]
    first = not both or of(best) <= of(both[0])
    next_one = f"{both[0].counter} ({both[0].tensors}), {of(both[0]) / max(of(best), 1e-9):.2f} ×" if both else "none"
    print(f"  {what}, both passes: {'ours is first' if first else 'ours is not first'}; best other: {next_one};"
          f" less for the forward pass alone: {', '.join(less) or 'none'}")  # fmt: skip
    return first


def _names(models: str) -> list[str]:
    from workloads.catalogue.catalogue import ENTRIES

    if models != "all":
        return models.split(",")
    return [name for name, entry in ENTRIES.items() if entry.task == "classification"]


def main() -> int:
    parser = argparse.ArgumentParser(description="What a count costs: ours against every other counter's.")
    parser.add_argument("--models", default="resnet18,mobilenet_v2,vit_b_16,resnet152,vgg19")
    parser.add_argument("--counters", choices=("all", "both"), default="all", help="both: those of both passes")
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    processes.context((*PRELOADED, *(target.partition(":")[0] for target, _ in REGISTRY.values())))
    forkserver.ensure_running()
    print(machine("cpu"))
    all_first = True
    counters, tell = (OF_BOTH, line) if options.counters == "both" else (tuple(REGISTRY), show)
    for model in _names(options.models):
        table = list(costs(model, options.batch_size, options.repeats, counters))
        if reason := next(cost.reason for cost in table if cost.counter == OURS and cost.tensors == "meta"):
            print(f"{model:22} {reason}", flush=True)
        else:
            all_first &= tell(model, table)
    print(
        "\nours is first in both on every model, for forward and backward"
        if all_first
        else "\nours is not first everywhere"
    )
    return 0 if all_first else 1


if __name__ == "__main__":
    sys.exit(main())
