"""The whole symbolic analysis of a model, against the time that Catamount took for its own.

    python -m benchmarks.formula
    python -m benchmarks.formula --models resnet50,wordlm --repeats 5 --clock wall

Each model is analysed in a new process after its imports: the operation tables at all points, the formulas of every
count by place, and the totals as expressions. The symbols are those below, which are Catamount's for its models and
more. The least of the repeats counts; the default clock is the process's processor time, because other processes may
use the machine. Then the totals are evaluated at 1,000 points. Memory is the peak of the process, torch included.
Exits 1 if a goal is missed that was measured.

`CATAMOUNT` is wall time, imports of about 3 s included, and peak memory, which we measured with Catamount (4591f79,
TensorFlow 2.21, four lines patched) on a machine of the same kind; ResNet-101 was stopped after 300 s. Its work was
parameters, FLOP, bytes and footprint of one graph. Not claimed: that both do the same; only their cost is compared.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from benchmarks.overhead import machine

CLOCKS: dict[str, Callable[[], float]] = {"cpu": time.process_time, "wall": time.perf_counter}
CNN_RATIO, RECURRENT_RATIO, LONGEST_S, MOST_BYTES, EVALUATION_S, POINTS = 10, 1, 15.0, 1e9, 1.0, 1000

IMAGES = ("batch", "image", "classes", "width")
SYMBOLS: dict[str, tuple[str, ...]] = {
    "wordlm": ("batch", "hidden", "vocab", "seq", "layers"),
    "charlm": ("batch", "hidden", "vocab", "seq", "depth"),
    "nmt": ("batch", "hidden", "vocab", "seq"),
    "speech": ("batch", "hidden", "attention_hidden", "decoder_hidden", "keys", "frames", "vocab"),
    "resnet18": IMAGES,
    "resnet34": IMAGES,
    "resnet50": IMAGES,
    "resnet101": IMAGES,
    "resnet152": IMAGES,
    "gpt": ("batch", "seq", "d_model", "layers", "vocab"),
    "bert": ("batch", "seq", "hidden", "layers", "vocab"),
}
"""Model → its symbols."""

CATAMOUNT: dict[str, tuple[float, float | None]] = {
    "wordlm": (11.7, 1119e6),
    "charlm": (11.1, 1317e6),
    "nmt": (11.9, 892e6),
    "speech": (31.6, 1254e6),
    "resnet18": (49.6, 723e6),
    "resnet34": (94.9, 813e6),
    "resnet50": (120.0, 855e6),
    "resnet101": (300.0, None),
    "bert": (19.9, 650e6),
}
"""Model → seconds and peak bytes of Catamount's test of it. bert: 12 layers, inference alone."""


@dataclass(frozen=True)
class Timing:
    """One analysis. evaluation_s: of all totals at 1,000 points."""

    model: str
    seconds: float
    points: int
    peak_bytes: int
    evaluation_s: float


def analysed(model: str, clock: Callable[[], float]) -> Timing:
    """One analysis in this process, which should be a new one."""
    from analysis.formula import derive
    from analysis.formula.expressions import rows
    from runners.formula_points import SizedModel, axes, sampler
    from runners.workers.any_model import get

    _warm()
    subject = SizedModel(model, get(model).hyper, 32)
    begun = clock()
    looked_at = sampler(subject)
    where = axes(subject, SYMBOLS[model], looked_at)
    derived = derive.formulas(looked_at, where)
    whole = derive.totals(derived)
    seconds = clock() - begun
    asked = [{axis.symbol: axis.value(step + place) for place, axis in enumerate(where)} for step in range(POINTS)]
    begun = clock()
    rows({name: formula for name, formula in whole.items() if formula is not None}, asked)
    evaluation_s = clock() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Timing(model, seconds, derived.samples, peak, evaluation_s)


def _warm() -> None:
    """Imports that torch and sympy put off until something is used: none of a model's own work."""
    import sympy

    from measure.operations.tracer import fake_mode, trace_step  # noqa: F401
    from workloads.step import OPTIMIZERS, TrainingStep  # noqa: F401

    sympy.Add(*sympy.symbols("x y z"))  # imports tensors and permutations
    with fake_mode():
        import torch

        torch.optim.SGD([torch.empty(1, requires_grad=True)], lr=1.0).step()


def least(model: str, repeats: int, clock: str) -> Timing:
    """The fastest of some analyses, each in a new process."""
    command = [sys.executable, "-m", "benchmarks.formula", "--one", model, "--clock", clock]
    found = []
    for _ in range(repeats):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(Timing(**json.loads(done.stdout.splitlines()[-1])))
    return min(found, key=lambda timing: timing.seconds)


def ratio(timing: Timing) -> float | None:
    """How many times Catamount's time is this one; None where Catamount was not measured."""
    known = CATAMOUNT.get(timing.model)
    return known[0] / timing.seconds if known else None


def line(timing: Timing) -> str:
    """One row of the table."""
    theirs = f"{CATAMOUNT[timing.model][0]:9.1f}" if timing.model in CATAMOUNT else f"{'':>9}"
    times = ratio(timing)
    return (
        f"{timing.model:10} {timing.seconds:8.2f} {timing.points:7d} {timing.peak_bytes / 1e6:8.0f}"
        f" {timing.evaluation_s:9.3f} {theirs} {'' if times is None else f'{times:6.1f}':>6}"
    )


def verdicts(timing: Timing) -> list[tuple[str, bool]]:
    """What was reached of the goals, and whether each was met."""
    found = [
        (f"{timing.seconds:.2f} s, goal {LONGEST_S:.0f} s", timing.seconds <= LONGEST_S),
        (f"{timing.peak_bytes / 1e6:.0f} MB, goal {MOST_BYTES / 1e6:.0f} MB", timing.peak_bytes <= MOST_BYTES),
        (f"{POINTS} points in {timing.evaluation_s:.2f} s, goal {EVALUATION_S:.0f} s",
         timing.evaluation_s <= EVALUATION_S),
    ]  # fmt: skip
    times = ratio(timing)
    if times is not None:
        goal = CNN_RATIO if timing.model.startswith("resnet") else RECURRENT_RATIO
        found.append((f"{times:.1f} × faster than Catamount, goal {goal} ×", times >= goal))
    return [(f"{timing.model}: {said}", met) for said, met in found]


def main(arguments: list[str]) -> int:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formula", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default=",".join(SYMBOLS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clock", choices=CLOCKS, default="cpu")
    parser.add_argument("--one", choices=SYMBOLS, help="one analysis in this process, told as JSON")
    options = parser.parse_args(arguments)
    if options.one:
        warnings.simplefilter("ignore")  # what torch says while models are built
        print(json.dumps(asdict(analysed(options.one, CLOCKS[options.clock]))))
        return 0
    print(f"{'model':10} {'seconds':>8} {'points':>7} {'MB':>8} {'1000 pts':>9} {'Catamount':>9} {'×':>6}", flush=True)
    timings = []
    for model in options.models.split(","):
        timings.append(least(model, options.repeats, options.clock))
        print(line(timings[-1]), flush=True)
    return _told(timings, arguments)


def _told(timings: Sequence[Timing], arguments: Sequence[str]) -> int:
    found = [verdict for timing in timings for verdict in verdicts(timing)]
    for said, met in found:
        print(f"{said}: {'met' if met else 'missed'}")
    print(f"command: python -m benchmarks.formula {' '.join(arguments)}".rstrip())
    print(f"machine: {machine('cpu')}")
    return 0 if all(met for _, met in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
