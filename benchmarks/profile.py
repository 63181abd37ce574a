"""What a profile costs: ours, DeepSpeed's profiler and torch's RuntimeEstimator, beside the steps that they measure.

    python -m benchmarks.profile --models resnet152,vit_b_16 --batch-size 32
    python -m benchmarks.profile --models resnet18 --batch-size 2 --image-size 64 --repeats 5

One process, one model at a time, everything in turns; the median of the repeats. Each profile is whole: from the call
to the finished numbers, one step to warm up and `--steps` measured (DeepSpeed: always one). It is divided by as many of
the same steps without a profiler, timed beside it: forward passes without gradients (ours) and with them (DeepSpeed,
which leaves them on), and training steps (forward, loss, backward). The estimator runs nothing: it guesses from a
datasheet ("operator-level-cost-model"; its other mode needs a GPU), so that our table without times stands beside it.
Without a GPU it ends its process; so it gets a process of its own, in which torch is told that there is one.

Whether glibc hands a step's memory back to the kernel between two steps, and has it zeroed again page by page, hangs on
what lies behind it in the heap: a third of ResNet-152's step, or nothing, by accident. So this runs with a malloc that
keeps its memory (`retain_freed_memory`), after a training step that has grown the heap, for every way alike; `--as-is`
leaves it out.

It does not measure building the model, and no import. A busy machine makes single runs worthless: see `spread`.
"""

import argparse
import gc
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torchvision

from analysis.devices.precisions import PRECISIONS
from measure.device.malloc import retain_freed_memory
from measure.operations.fake_mode import fake_copy, fake_mode
from measure.profile.model_step import ModelStep, traced
from measure.profile.step_profile import module_rows, operation_rows, profile_step

BESIDE = {
    "ours, forward": "forward, no gradients",
    "ours, training": "training",
    "deepspeed, forward": "forward, gradients",
}
"""Profile → the steps it measures, unprofiled."""

LIMIT_RATIO = 1.1
"""A whole profile ÷ the steps it measures, at most."""


class Subject:
    """A model with an input, and the ways to run and to profile it. steps: measured; one more warms up."""

    def __init__(self, name: str, batch_size: int, image_size: int, steps: int) -> None:
        torch.manual_seed(0)
        self.model = getattr(torchvision.models, name)(num_classes=10).eval()
        self.inputs = torch.randn(batch_size, 3, image_size, image_size)
        self.steps = steps
        self._sizes = (name, str(batch_size), str(image_size))

    def ways(self) -> dict[str, Callable[[], float | None]]:
        """All of them, by name; one that gives seconds has timed itself."""
        return {
            "forward, no gradients": lambda: self._forwards(1 + self.steps, False),
            "ours, forward": lambda: self._ours("forward"),
            "forward, gradients": lambda: self._forwards(2, True),
            "deepspeed, forward": self._deepspeed,
            "training": lambda: self._trainings(1 + self.steps),
            "ours, training": lambda: self._ours("train"),
            "ours, table alone": self._table,
            "runtime estimator": self._estimator,
        }

    def _forwards(self, count: int, gradients: bool) -> None:
        with torch.set_grad_enabled(gradients):
            for _ in range(count):
                self.model(self.inputs)

    def _trainings(self, count: int) -> None:
        for _ in range(count):
            for parameter in self.model.parameters():
                parameter.grad = None
            self.model(self.inputs).sum().backward()

    def _ours(self, mode: str) -> None:
        profile_step(self.model, self.inputs, mode=mode, warm_up=1, steps=self.steps)

    def _deepspeed(self) -> None:
        from deepspeed.profiling.flops_profiler import get_model_profile

        get_model_profile(self.model, args=[self.inputs], print_profile=False, warm_up=1, as_string=False)

    def _table(self) -> None:
        step = ModelStep(self.model, (self.inputs,), {}, None, None, None, "train", PRECISIONS["fp32"], "cpu")
        operation_rows(traced(step).operations, (), "fp32", "cpu")
        tuple(module_rows(self.model, frozenset()))

    def _estimator(self) -> float:
        command = [sys.executable, "-m", "benchmarks.profile", "--estimate", *self._sizes]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise RuntimeError(
                ended.stderr.strip().splitlines()[-1] if ended.stderr else f"ended with {ended.returncode}"
            )
        return float(ended.stdout.split()[-1])

    def estimated(self) -> float:
        """Seconds of the estimator, in this process. torch is not told the truth about the machine afterwards."""
        from torch.distributed._tools.runtime_estimator import RuntimeEstimator

        torch.cuda.is_available = lambda: True
        mode = fake_mode()
        start_s = time.perf_counter()
        copied, inputs = fake_copy(self.model, self.inputs, mode)
        with mode, RuntimeEstimator("NVIDIA H100")(estimate_mode_type="operator-level-cost-model"):
            copied(inputs).sum().backward()
        return time.perf_counter() - start_s


def measure(subject: Subject, repeats: int) -> dict[str, list[float] | str]:
    """Seconds of each way, in turns; of one that cannot run, why."""
    found: dict[str, list[float] | str] = {}
    ways = subject.ways()
    for turn in range(repeats):
        for name in list(ways) if turn % 2 == 0 else list(ways)[::-1]:
            seconds = found.setdefault(name, [])
            if isinstance(seconds, str):
                continue
            try:
                with _collected():
                    start_s = time.perf_counter()
                    own_s = ways[name]()
                    seconds.append(time.perf_counter() - start_s if own_s is None else own_s)
            except Exception as fault:  # noqa: BLE001  a peer's own failure is a line of the table
                found[name] = f"{type(fault).__name__}: {' '.join(str(fault).split())[:70]}"
    return found


@contextmanager
def _collected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def lines(model: str, found: dict[str, list[float] | str]) -> Iterator[str]:
    """A row a way: median, spread, and its ratio to the steps that it measures."""
    for name, seconds in found.items():
        if isinstance(seconds, str):
            yield f"{model:14} {name:24} {'–':>9}  {seconds}"
            continue
        median = statistics.median(seconds)
        spread = (max(seconds) - min(seconds)) / median
        beside = found.get(BESIDE.get(name, ""))
        ratio = f"{median / statistics.median(beside):8.3f}" if isinstance(beside, list) else f"{'':8}"
        yield f"{model:14} {name:24} {median:9.3f} {ratio} {spread:8.0%}"


def verdicts(found: dict[str, list[float] | str]) -> Iterator[str]:
    """What is to be shown, as sentences."""
    middle = {name: statistics.median(seconds) for name, seconds in found.items() if isinstance(seconds, list)}
    for name in ("ours, forward", "ours, training"):
        ratio = middle[name] / middle[BESIDE[name]]
        said = "within" if ratio <= LIMIT_RATIO else "above"
        yield f"{name}: {ratio:.3f} × the steps it measures, {said} {LIMIT_RATIO}"
    for name, ours in (("deepspeed, forward", "ours, forward"), ("runtime estimator", "ours, table alone")):
        if name in middle:
            yield f"{ours}: {middle[ours] / middle[name]:.3f} × {name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="resnet152,vit_b_16")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=1, help="measured by ours; DeepSpeed measures one")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--as-is", action="store_true", help="malloc as it is, which may hand memory back between steps"
    )
    parser.add_argument("--estimate", nargs=3, metavar=("MODEL", "BATCH", "SIZE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.estimate:
        name, batch_size, image_size = given.estimate
        print(Subject(name, int(batch_size), int(image_size), 1).estimated())
        return 0
    if not given.as_is:
        retain_freed_memory()
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    )
    threads, size = torch.get_num_threads(), f"batch {given.batch_size}, images {given.image_size}"
    print(f"{threads} threads, {size}, {given.repeats} repeats of 1 + {given.steps} steps\n")
    print(f"{'model':14} {'way':24} {'median s':>9} {'÷ steps':>8} {'spread':>8}")
    for model in given.models.split(","):
        subject = Subject(model, given.batch_size, given.image_size, given.steps)
        subject.ways()["training"]()  # the heap has its size
        found = measure(subject, given.repeats)
        print("\n".join((*lines(model, found), "", *verdicts(found), "")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
