"""What the meter costs a training loop: interleaved pairs of steps with and without it.

    python -m benchmarks.meter
    python -m benchmarks.meter --pairs 2000
    python -m benchmarks.meter --parts 300
    python -m benchmarks.meter --flat 100000
    python -m benchmarks.meter --agreement resnet18,mobilenet_v2

A small model on one thread, so that a step takes about 10 ms on a CPU. Steps with and without the meter take turns,
which of them comes first being drawn; the overhead is the median of the differences within pairs, with the interval of
the median. Pairs of two steps without the meter say what such a difference is where there is none; pairs with a forward
hook, a hook on the gradient and a `with` block that do nothing say what is left of any such meter. The clock is this
thread's processor time, because other processes may use the machine. Exits 1 if a goal is missed: 30 µs and 0.5 % of a
step.

A step of 10 ms varies by far more than the meter costs. `--parts` times steps of a model of two small layers instead,
in so many rounds: without anything; with a forward hook that does nothing; with that, a hook on the gradient and a
`with` block that do nothing, of which any such meter is made; with the parts of a step without gradient hooks, which
compare nothing; and with the meter. First each step runs after 96 MB were
written, so that no code of it is in a cache, as after a step of a large model; then with warm caches.

`--flat` takes that many metered steps of a model of one small layer, with batches of eight sizes, and looks at the
resident set every tenth of them. Exits 1 if the last nine tenths add a megabyte.

`--agreement` trains each model in a plain loop under the meter, has `runners.sweep` measure the same cell (batch 4,
fp32, SGD), and runs the loop again. Exits 1 if a step's FLOP differ, or the interval of the sweep's mean meets neither
that of the loop before nor that of the loop after it: between processes a machine differs by more than either interval.

Not claimed: the cost on a GPU, where events are recorded instead of times.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from analysis.stats.summary import median_interval
from measure.meter.meter import MeterSummary, UtilizationMeter
from measure.meter.metered_step import MeteredStep
from measure.meter.step_times import CpuMarks, StepTimes
from workloads.sources.any_model import get

GOAL_S, GOAL_RATIO, FLAT_BYTES = 30e-6, 0.005, 1_000_000
WIDTH, BATCH, LAYERS = 512, 64, 12
CELL_BATCH, LOOP_S, LOOP_STEPS = 4, 15.0, 30
WARM = 10
"""Pairs that are not kept."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--parts", type=int, metavar="ROUNDS", help="the meter beside an empty hook, caches flushed")
    parser.add_argument("--agreement", metavar="MODELS", help="hold the meter against the sweep on these models")
    parser.add_argument("--flat", type=int, metavar="STEPS", help="look at memory over so many steps instead")
    options = parser.parse_args(arguments)
    if not options.agreement:
        torch.set_num_threads(1)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if options.flat:
        return flat(options.flat)
    if options.agreement:
        agreed = [agreement(model) for model in options.agreement.split(",")]  # all of them, also after one that is not
        return int(not all(agreed))
    if options.parts:
        return parts(options.parts)
    for name, (plain, other) in measure(options.pairs).items():
        interval = median_interval([after - before for before, after in zip(plain, other, strict=True)])
        assert interval is not None
        low_s, cost_s, high_s = interval
        step_s = sorted(plain)[len(plain) // 2]
        cost = f"{1e6 * cost_s:+.1f} us ({1e6 * low_s:+.1f} to {1e6 * high_s:+.1f})"
        print(f"a step of {1e3 * step_s:.2f} ms, {name}: {cost}")
    print(f"a step of 10 ms: {100 * cost_s / 10e-3:.2f} % (goal {100 * GOAL_RATIO} %)")
    return int(cost_s > GOAL_S or cost_s > GOAL_RATIO * 10e-3)


def parts(rounds: int) -> int:
    """Print what a hook that does nothing and the meter add to a small step; 1 if the meter misses its goal."""
    steps = {
        "plain": _training_step(),
        "an empty hook": _hooked_step(),
        "empty parts": _parts_step(),
        "a hook on a parameter": _design_step("parameter"),
        "the block of a step, with marks": _design_step("block"),
        "these two and an empty hook": _design_step("parameter", "block", "hook"),
        "the meter": _metered_step(),
    }
    written = torch.randn(24_000_000)
    cost_s = 0.0
    for caches, runs in (("flushed", rounds), ("warm", 20 * rounds)):
        times: dict[str, list[float]] = {name: [] for name in steps}
        draws = random.Random(0)
        for _ in range(runs):
            for name in draws.sample(sorted(steps), len(steps)):
                if caches == "flushed":
                    written.add_(1.0)
                began_s = time.thread_time()
                steps[name]()
                times[name].append(time.thread_time() - began_s)
        plain_s = statistics.median(times.pop("plain"))
        print(f"caches {caches}: a step {1e6 * plain_s:.0f} us (median of {runs})")
        for name, seconds in times.items():
            cost_s = statistics.median(seconds) - plain_s
            print(f"  {name}: {1e6 * cost_s:+.1f} us")
    return int(cost_s > GOAL_S)


def agreement(name: str) -> bool:
    """Print what the meter and the sweep say of one cell; whether they agree."""
    before = _loop_summary(name)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "runners.sweep", "--models", name, "--batch-sizes", str(CELL_BATCH)]
        subprocess.run([*command, "--device", "cpu", "--out", f"{folder}/run"], check=True, stdout=subprocess.DEVNULL)
        (row,) = csv.DictReader(Path(folder, "run", "headline.csv").read_text(encoding="utf-8").splitlines())
    after = _loop_summary(name)
    swept = tuple(float(row[f"step_time{end}_s"]) for end in ("", "_low", "_high"))
    loops = [(each.step_time_s, each.step_time_low_s, each.step_time_high_s) for each in (before, after)]
    flop = {float(row["model_flop"]), before.model_flop_per_step, after.model_flop_per_step}
    for what, (mean_s, low_s, high_s) in (("loop", loops[0]), ("sweep", swept), ("loop again", loops[1])):
        print(f"{name}, {what}: {1e3 * (mean_s or 0):.2f} ms ({1e3 * (low_s or 0):.2f} to {1e3 * (high_s or 0):.2f})")
    print(f"  FLOP of a step: {', '.join(f'{each:,.0f}' for each in flop if each)}")
    meets = [low_s and high_s and low_s <= swept[2] and swept[1] <= high_s for _, low_s, high_s in loops]
    return len(flop) == 1 and any(meets)


def _loop_summary(name: str) -> MeterSummary:
    """Of a plain training loop of at least LOOP_S seconds and LOOP_STEPS steps."""
    workload = get(name)
    model = workload.build(**workload.hyper)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=1e-4)
    batch = workload.batch(workload.hyper, CELL_BATCH, torch.device("cpu"), None)
    meter = UtilizationMeter(model, energy=False)
    began_s = time.perf_counter()
    steps = 0
    while time.perf_counter() - began_s < LOOP_S or steps < LOOP_STEPS:
        steps += 1
        with meter.step():
            optimizer.zero_grad()
            workload.loss(model(*batch.inputs), batch.target).backward()
            optimizer.step()
    return meter.summary()


def _small_model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))


def _training_step(model: torch.nn.Module | None = None) -> Callable[[], None]:
    trained, inputs = model or _small_model(), torch.randn(4, 8)

    def step() -> None:
        trained(inputs).sum().backward()

    return step


def _hooked_step() -> Callable[[], None]:
    model = _small_model()
    model.register_forward_hook(lambda _module, _args, _kwargs, _output: None, with_kwargs=True, always_call=True)
    return _training_step(model)


def _parts_step() -> Callable[[], None]:
    """A forward hook, a hook on the gradient, set as the meter sets it, and a `with` block, all of which do nothing."""
    model = _small_model()
    step = _training_step(model)

    model.register_forward_hook(_empty_hook, with_kwargs=True, always_call=True)
    block = _Block()

    def with_parts() -> None:
        with block:
            step()

    return with_parts


def _empty_hook(_module: Any, _args: Any, _kwargs: Any, output: torch.Tensor) -> None:
    output._backward_hooks = OrderedDict(((-1, _on_gradient),))
    output.grad_fn._register_hook_dict(output)  # type: ignore[union-attr]


def _on_gradient(_gradient: torch.Tensor) -> None:
    pass


class _Idle:
    """The owner of a `MeteredStep` that has nothing to do before or after a step."""

    def prepare_step(self) -> bool:
        return True

    def end_step(self, _start: Any, _end: Any) -> None: ...

    def leave_step(self) -> None: ...

    def drop_step(self) -> None: ...

    def fail(self, fault: BaseException) -> None:
        raise fault


def _design_step(*parts: str) -> Callable[[], None]:
    """What a step without gradient hooks is made of: a hook on a parameter, the block with two marks, a forward hook.

    Nothing is compared or added up.
    """
    model, times = _small_model(), StepTimes(CpuMarks())
    step, block = _training_step(model), MeteredStep(_Idle(), times)
    block.left, block.compared = sys.maxsize, True

    def on_gradient(_gradient: torch.Tensor) -> None:
        block.gradients = 0

    if "parameter" in parts:
        next(model.parameters()).register_hook(on_gradient)
    if "hook" in parts:
        model.register_forward_hook(lambda _module, _args, _kwargs, _output: None, with_kwargs=True, always_call=True)
    if "block" not in parts:
        return step

    def with_block() -> None:
        with block:
            step()

    return with_block


class _Block:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_fault: object) -> None:
        pass


def _metered_step() -> Callable[[], None]:
    model = _small_model()
    meter, step = UtilizationMeter(model, energy=False), _training_step(model)

    def metered() -> None:
        with meter.step():
            step()

    return metered


def flat(steps: int) -> int:
    """Print memory over the steps; 1 if it grows."""
    model = torch.nn.Linear(8, 8)
    meter = UtilizationMeter(model, energy=False)
    batches = [torch.randn(size, 8) for size in range(1, 9)]
    resident = []
    began_s = time.thread_time()
    for number in range(steps):
        with meter.step():
            model(batches[number % 8]).sum().backward()
        if number % (steps // 10) == steps // 10 - 1:
            meter.window()
            resident.append(resident_bytes())
    print(f"a step, with the model of one layer: {1e6 * (time.thread_time() - began_s) / steps:.0f} us")
    grown = resident[-1] - resident[0]
    print(f"resident, MB, every {steps // 10} steps: {' '.join(f'{each / 1e6:.2f}' for each in resident)}")
    print(f"over the last nine tenths: {grown / 1e3:+.0f} kB")
    return int(grown > FLAT_BYTES)


def measure(pairs: int) -> dict[str, _Seconds]:
    """Seconds of steps of one model, without anything and with something more, each pair in random order.

    One model, whose hooks are taken off for the steps without them: two models lie at different places in memory, which
    alone is a difference of up to 20 us.
    """
    model = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)])
    images = torch.randn(BATCH, WIDTH)

    def plain() -> None:
        model(images).sum().backward()

    alone: _Timed = plain, _nothing, _nothing
    steps = {
        "without, again": alone,
        "with an empty hook, gradient hook and block": _with_empty_parts(model, plain),
        "with the meter, hook_every=1": _with_meter(model, images, hook_every=1),
        "with the meter": _with_meter(model, images),
    }
    return _paired({name: (alone, other) for name, other in steps.items()}, pairs, WARM)


_Timed = tuple[Callable[[], None], Callable[[], None], Callable[[], None]]
"""A step, and what is to be done before and after it and is not timed."""

_Seconds = tuple[list[float], list[float]]
"""Of the first and of the second steps of each pair."""


def _nothing() -> None:
    pass


def _paired(timed: Mapping[str, tuple[_Timed, _Timed]], pairs: int, warm: int) -> dict[str, _Seconds]:
    """Seconds of each two, which take turns, the first being drawn. warm: pairs that are not kept."""
    found: dict[str, _Seconds] = {name: ([], []) for name in timed}
    draws = random.Random(0)
    for number in range(pairs + warm):
        for name, two in timed.items():
            for place in draws.sample((0, 1), 2):
                step, before, after = two[place]
                before()
                began_s = time.thread_time()
                step()
                taken_s = time.thread_time() - began_s
                after()
                if number >= warm:
                    found[name][place].append(taken_s)
    return found


def _with_meter(model: torch.nn.Module, images: torch.Tensor, **options: Any) -> _Timed:
    meter = UtilizationMeter(model, energy=False, **options)

    def metered() -> None:
        with meter.step():
            model(images).sum().backward()

    for _ in range(WARM):
        metered()
    attach, detach = _switch(meter)
    detach()
    return metered, attach, detach


def _switch(meter: UtilizationMeter) -> tuple[Callable[[], None], Callable[[], None]]:
    """What sets the hooks of a meter, and what takes them off."""

    def attach() -> None:
        meter._calls.attach()
        meter._hooked_steps.attach()

    def detach() -> None:
        meter._calls.detach()
        meter._hooked_steps.detach()

    return attach, detach


def _with_empty_parts(model: torch.nn.Module, step: Callable[[], None]) -> _Timed:
    handles: list[Any] = []
    block = _Block()

    def with_block() -> None:
        with block:
            step()

    def before() -> None:
        handles.append(model.register_forward_hook(_empty_hook, with_kwargs=True, always_call=True))

    return with_block, before, lambda: handles.pop().remove()


def resident_bytes() -> int:
    """Of this process, from /proc."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    sys.exit(main())
