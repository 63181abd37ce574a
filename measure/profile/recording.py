"""Records one training step with torch.profiler or under NVTX ranges; also times steps, and single operations.

`profile_step` takes a step and returns a `Profile`. A `Profile` has every operator call with sizes, arguments, autograd
number and the profiler's own count, right or wrong (`cleaning/` cleans it). `record_step` runs a step under NVTX ranges
for a profiler around this process (Nsight Systems). `record` returns `RecordedSteps`: times of steps without a
profiler, and a recording of others. `time_operations` runs each distinct call of a step again a few times on copies of
its tensors, and returns `AloneTime` rows; the CPU's random numbers are restored. Only one profiler can be active at a
time. Not claimed: that a step takes as long under a profiler; that caches are as in the step; times of calls that only
return views.
"""

import contextlib
import gzip
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from analysis.operators.registry import kind_of
from measure.model.module_paths import ModuleRanges
from measure.profile.events import to_operations
from measure.timing.blocks import block_of
from measure.timing.clocks import Clock, clock_for
from measure.timing.profiler_ranges import Mark, Ranges, noop
from results.errors import Unavailable
from results.process import collector_off
from results.records.cell import Sample
from results.records.characterization import AloneTime
from results.records.counts import ProfiledOperation

Step = Callable[[Mark], Any]


@dataclass(frozen=True)
class Profile:
    """The calls of one recorded step, and the profiled steps' times. notes: data that the recording lacks, as text.
    recording: everything that the profiler recorded, as a Kineto trace, gzipped, if it was requested and available."""

    operations: tuple[ProfiledOperation, ...]
    blocks: tuple[Sample, ...]
    notes: tuple[str, ...]
    recording: bytes = b""


def profile_step(
    step: Step,
    model: torch.nn.Module,
    clock: Clock,
    *,
    pass_name: str,
    cuda: bool,
    most_steps: int = 3,
    most_s: float = 2.0,
    export: bool = False,
) -> Profile:
    """Run `step` under torch's profiler: once untimed, then up to `most_steps` times, each timed separately.

    step: takes a `mark` and announces its phases to it, as `workloads.step.TrainingStep` does. model: the model that
    the step trains (the compiled one, if it is compiled); it gets hooks, which are removed afterwards. pass_name: one
    of `PASSES`, for the records (the blocks of "batch" leave it empty). most_s: after the first timed step, no step
    begins that would make the timed steps longer than this. The operations are those of the last step. Starting,
    stopping and reading the profiler lie outside of the blocks. export: whether the recording of all these steps is
    kept, too (`Profile.recording`). Raises Unavailable if nothing can be recorded.
    """
    check_available(cuda)
    ranges = Ranges(True)
    ranged = ranges.step(step)

    def run() -> None:
        with ranges.around(pass_name):
            ranged()

    profiler = torch.autograd.profiler.profile(
        use_kineto=True, use_device=kernel_device(cuda), record_shapes=True, with_flops=True
    )  # torch.profiler.profile, without its schedule: on 2.11 that warns, or builds its own table of all steps (5 s)
    with ModuleRanges(model) as modules, profiler, collector_off():
        run()
        blocks = tuple(_timed_steps(run, clock, "" if pass_name == "batch" else pass_name, most_steps, most_s))
    operations, notes = to_operations(profiler.kineto_results, pass_name, cuda=cuda)
    if modules.compiled:
        notes = (*notes, "the model is compiled: its calls have no module")
    recording, why = _exported(profiler.kineto_results) if export else (b"", "")
    return Profile(operations, blocks, (*notes, why) if why else notes, recording)


def _exported(results: Any) -> tuple[bytes, str]:
    """Return Kineto's trace, gzipped; or nothing, with the reason."""
    try:
        with tempfile.TemporaryDirectory(prefix="kineto-") as folder:
            file = Path(folder) / "trace.json"
            results.save(str(file))
            return gzip.compress(file.read_bytes(), 6, mtime=0), ""  # 9: four times as long, a hundredth less
    except (OSError, RuntimeError) as fault:
        return b"", f"its Kineto trace could not be written: {' '.join(str(fault).split())}"


def check_available(cuda: bool) -> None:
    """Raise Unavailable if nothing can be recorded here and now."""
    if not torch.profiler.kineto_available():
        raise Unavailable("this build of torch has no Kineto, with which torch.profiler records")
    if torch._C._autograd._profiler_enabled():
        raise Unavailable("another profiler is active in this process, and torch allows only one")
    if cuda and not torch.cuda.is_available():
        raise Unavailable("expected a CUDA device to profile, torch sees none")


def kernel_device(cuda: bool) -> str | None:
    """Return the device whose kernels the profiler records; None on a CPU, and without CUPTI, where the profiler would
    put a pair of events around each call."""
    kernels = torch.profiler.ProfilerActivity.CUDA in torch.profiler.supported_activities()
    return "cuda" if cuda and kernels else None


def _timed_steps(
    run: Callable[[], None], clock: Clock, pass_name: str, most_steps: int, most_s: float
) -> Iterator[Sample]:
    clock.synchronize()
    spent_s = 0.0
    for done in range(1, most_steps + 1):
        block = replace(block_of(run, clock, 1, "profiled"), work=pass_name)
        yield block
        spent_s += block.wall_s
        if spent_s + spent_s / done > most_s:
            return


WARM_STEPS = 3
"""Steps before the recorded one: the first loads libraries and tries algorithms, the next ones bring the allocator into
its steady state."""


def record_step(step: Step, model: torch.nn.Module, clock: Clock, *, pass_name: str, cuda: bool) -> None:
    """Run `step` untimed: `WARM_STEPS` times, then once to be recorded.

    step: announces its phases, as for `profile_step`. model: gets hooks, which are removed afterwards.
    """
    for _ in range(WARM_STEPS):
        step(noop)
    clock.synchronize()
    captured = contextlib.ExitStack()
    if cuda:  # the profiler around this process records, and torch writes its ranges
        captured.enter_context(torch.cuda.profiler.profile())
        captured.enter_context(torch.autograd.profiler.emit_nvtx(record_shapes=True))
    with captured, ModuleRanges(model), collector_off():
        ranges = Ranges(True, listening=lambda: True)  # not before: a range's name is registered at its first use
        with ranges.around(pass_name):
            ranges.step(step)()
        clock.synchronize()


@dataclass(frozen=True)
class RecordedSteps:
    """Times in s of steps without the profiler (warm-up, others), and torch's `_ProfilerResult` of further steps."""

    warm_up: tuple[float, ...]
    plain: tuple[float, ...]
    profile: Any


def record(
    step: Step,
    device: str,
    *,
    warm_up: int,
    plain: int,
    profiled: int,
    after: int = 0,
    before: Callable[[], None] = lambda: None,
) -> RecordedSteps:
    """Run the step: warm_up, then plain steps, then profiled ones, then `after` more plain ones.

    before: called before each step, untimed. Raises Unavailable where nothing can be profiled.
    """
    cuda = device.startswith("cuda")
    check_available(cuda)
    clock = clock_for(device)
    profiler = torch.autograd.profiler.profile(use_kineto=True, use_device=kernel_device(cuda))
    ranged = Ranges(True).step(step)

    def timed(count: int) -> Iterator[float]:
        for _ in range(count):
            before()
            clock.synchronize()
            start_s = clock.wall_s()
            step(noop)
            clock.synchronize()
            yield clock.wall_s() - start_s

    with collector_off():
        warming, times = tuple(timed(warm_up)), tuple(timed(plain))
        with profiler:
            for _ in range(profiled):
                before()
                clock.synchronize()
                ranged()
                clock.synchronize()
        times += tuple(timed(after))
    return RecordedSteps(warming, times, profiler.kineto_results)


def time_operations(step: Step, device: str, recording: int = 0, repeats: int = 5) -> list[AloneTime]:
    """Run the step once, and time each distinct call in it: the median of `repeats` calls on copies of its tensors.

    recording: its number, for the rows. Raises what the step raises.
    """
    mode = _Mode(clock_for(device), repeats)
    with mode:
        step(mode.enter)
    return [
        AloneTime(recording=recording, name=name, phase=phase, sizes=sizes, calls=calls, time_s=mode.times[key])
        for key, calls in mode.calls.items()
        for name, phase, sizes, _ in [key]
    ]


class _Mode(TorchDispatchMode):
    def __init__(self, clock: Clock, repeats: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._clock = clock
        self._repeats = repeats
        self._phase = "optimizer"
        self.calls: dict[tuple[str, str, str, str], int] = {}
        self.times: dict[tuple[str, str, str, str], float | None] = {}

    def enter(self, phase: str) -> None:
        self._phase = phase
        noop(phase)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.replace("::", ".")
        if kind_of(name) != "view":
            sizes, others = _described((args, kwargs))
            key = (name, self._phase, sizes, others)
            if key not in self.calls:
                self.times[key] = self._call_time_s(func, args, kwargs)
            self.calls[key] = self.calls.get(key, 0) + 1
        return func(*args, **kwargs)

    def _call_time_s(self, func: Any, args: Any, kwargs: Any) -> float | None:
        state = torch.get_rng_state()
        times = []
        try:
            for _ in range(self._repeats + 1):
                copied_args, copied_kwargs = tree_map_only(
                    torch.Tensor, lambda tensor: tensor.detach().clone(), (args, kwargs)
                )
                self._clock.synchronize()
                start_s = self._clock.wall_s()
                func(*copied_args, **copied_kwargs)
                self._clock.synchronize()
                times.append(self._clock.wall_s() - start_s)
        except RuntimeError:  # an operator that refuses copies of its tensors
            return None
        finally:
            torch.set_rng_state(state)
        return statistics.median(times[1:])


def _described(arguments: Any) -> tuple[str, str]:
    """Return sizes and dtypes of the tensors, and the other arguments, as text."""
    leaves = tree_leaves(arguments)
    tensors = (leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    sizes = " ".join(f"{'x'.join(map(str, t.shape)) or '1'}:{str(t.dtype)[6:]}" for t in tensors)
    return sizes, repr([leaf for leaf in leaves if isinstance(leaf, int | bool | str)])
