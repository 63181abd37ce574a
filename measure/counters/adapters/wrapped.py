"""Counts a model with DeepSpeed's flops profiler and its copy calflops, which wrap torch's functions.

`deepspeed` and `calflops` take a model and its inputs and return `FlopCount` rows. Both libraries replace F.linear,
torch.matmul, … by functions that call a rule first. The rule returns FLOP and multiply-adds, and the adapter assigns
them to the module that made the call. The row "F.conv2d" has 2 FLOP per multiply-add, "F.conv2d elementwise" the rest.
A rule without multiply-adds, such as einsum's, gives one row; a recurrent layer's multiply-adds come from its weights.
A product (convolution or matrix product) in no wrapped function is listed as `not_understood`. Other arithmetic is
`ignored`, and so are calls whose rule returns 0. torch's functions are restored afterwards: calflops leaves
torch.baddbmm wrapped, and all of them after an exception.
"""

import contextlib
import dataclasses
import inspect
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F

from analysis.counters import ELEMENTS
from measure.counters.rows import UncountedCalls, recurrent_multiply_adds, rows, sum_counts, uncounted, walk_modules
from measure.model.module_paths import ModulePaths
from measure.model.state_snapshot import evaluating
from results.errors import Inconsistent
from results.records.counts import FlopCount

Owners = Mapping[str, Any]
"""Prefix of a function's name ("F", "torch") → the module or class that has it."""

BACKWARD_PER_FORWARD = 2
"""Factor by which calflops multiplies the forward pass to get the backward pass, by default."""

TORCH: Owners = {"F": F, "torch": torch, "Tensor": torch.Tensor}


def deepspeed(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Count the forward pass of model(*inputs): a total and a row for each function.

    DeepSpeed counts 2 FLOP per multiply-add of convolutions, matrix products and attention (dense, even if causal). A
    convolution's bias counts 1 per output, a linear layer's nothing. Batch norm in eval mode counts 2 per element,
    other normalisations 5. Pooling, ReLU, GELU and SiLU count 1 per input, torch.add and torch.mul 1 per output,
    `a + b` nothing. DeepSpeed does not see functions that were imported by name (`from torch.nn.functional import
    linear`). Left out are its multiply-adds, its warm-up pass, which changes no count, and its backward pass. The
    backward pass is (2 + recompute factor) times the forward pass by definition. DeepSpeed is made to use the CPU,
    since it would otherwise hold a GPU that this process does not need.

    Raises Inconsistent if its rules do not add up to its total, and whatever its rules or the model raise.
    """
    os.environ.setdefault("DS_ACCELERATOR", "cpu")  # read when imported
    import einops
    from deepspeed.profiling.flops_profiler import profiler

    with _listening(profiler, model, {**TORCH, "einops": einops}, profiler) as counts:
        profile = profiler.FlopsProfiler(model)
        profile.start_profile()
        model(*inputs)
        flop, parameters = profile.get_total_flops(), profile.get_total_params()
        profile.end_profile()
    counted = sum_counts(counts.own.values())
    if (total := sum(counted.values())) != flop:
        raise Inconsistent(f"DeepSpeed gave {flop} FLOP, its rules {total}")
    return rows(
        FlopCount(
            counter="deepspeed",
            workload=workload,
            batch_size=batch_size,
            phase="forward",
            native_unit="flop",
            **counts.uncounted(),
            parameters=parameters,
        ),
        counted,
    )


def calflops(model: torch.nn.Module, inputs: tuple[Any, ...], *, workload: str, batch_size: int) -> list[FlopCount]:
    """Count forward and backward of model(*inputs): a total and a row for each function.

    calflops counts by DeepSpeed's rules, but sees no `@`, mm, bmm, attention or einops, divides a transposed
    convolution by its groups twice, counts resizing to a given size without the batch and channels, and counts a module
    once for each parent that has it. Its backward pass is not counted: the rows of phase backward are the forward pass
    times a factor, 2 by default. Its parameters are those that need a gradient. It takes only tensors as inputs, and a
    model with parameters. Its multiply-adds are left out.

    Raises Inconsistent if its rules do not add up to its total, and whatever its rules or the model raise.
    """
    from calflops import calculate_flops, calculate_pipline, pytorch_ops

    with _listening(pytorch_ops, model, TORCH, calculate_pipline) as counts:
        flop, _, parameters = calculate_flops(
            model,
            args=[*inputs],
            include_backPropagation=True,
            print_results=False,
            output_as_string=False,
        )
    modules = dict(model.named_modules(remove_duplicate=False))
    own: defaultdict[int, Counter[tuple[str, str]]] = defaultdict(Counter)
    for path, counted in counts.own.items():
        own[id(modules[path])].update(counted)
    forward = sum_counts(
        own[id(module)] for module in walk_modules(model) if id(module) in own
    )  # as often as it adds them up
    total = sum(forward.values())
    if (1 + BACKWARD_PER_FORWARD) * total != flop:
        raise Inconsistent(f"calflops gave {flop} FLOP, its rules {1 + BACKWARD_PER_FORWARD} × {total}")
    blank = FlopCount(counter="calflops", workload=workload, batch_size=batch_size, phase="forward", native_unit="flop")
    note = f"note: {BACKWARD_PER_FORWARD} × its forward pass, not counted"
    return [
        *rows(dataclasses.replace(blank, **counts.uncounted(), parameters=parameters), forward),
        *rows(
            dataclasses.replace(blank, phase="backward", reason=note),
            {key: BACKWARD_PER_FORWARD * native for key, native in forward.items()},
        ),
    ]


@dataclass
class RuleCounts:
    """What a library's rules count. own: counts by path of the module; unseen: operators that no rule counted; zero:
    calls for which the rule returned 0; running: number of wrapped functions that run now."""

    own: defaultdict[str, Counter[tuple[str, str]]] = field(default_factory=lambda: defaultdict(Counter))
    unseen: Counter[str] = field(default_factory=Counter)
    zero: Counter[str] = field(default_factory=Counter)
    running: int = 0

    def uncounted(self) -> dict[str, Any]:
        """Return fields of FlopCount, `ignored` and `not_understood`: operator or function → calls."""
        ignored, unsupported = uncounted(self.unseen)
        return {"ignored": {**self.zero, **ignored}, "not_understood": unsupported}

    def add(self, path: str, name: str, flop: int, mac: int) -> None:
        """Add one call."""
        if not flop:
            self.zero[name] += 1
            return
        own = self.own[path]
        if mac:
            own[name, "flop"] += 2 * mac
        if flop != 2 * mac:
            product = mac or name.startswith("F.conv")  # calflops finds no multiply-add in a depthwise transposed one
            own[f"{name}{ELEMENTS}" if product else name, "flop"] += flop - 2 * mac


@contextlib.contextmanager
def _listening(library: ModuleType, model: torch.nn.Module, owners: Owners, stacks: Any) -> Iterator[RuleCounts]:
    """Observe the library's rules while it wraps torch; afterwards the library, torch and the model are as they were.

    library: the module with `wrapFunc` and MODULE_HOOK_MAPPING; stacks: the one with the lists of what runs, which an
    exception leaves behind.
    """
    counts, wrap, hooks = RuleCounts(), library.wrapFunc, library.MODULE_HOOK_MAPPING
    first_path = {id(module): path for path, module in model.named_modules()}
    recurrent = {path for path, module in model.named_modules(remove_duplicate=False) if type(module) in hooks}
    names: dict[int, str] = {}  # id of a function → its name in the first owner that has it
    for label, owner in owners.items():
        for name in dir(owner):
            names.setdefault(id(inspect.getattr_static(owner, name, None)), f"{label}.{name}")

    def wrapped(function: Any, rule: Callable[..., Any], *more: Any) -> Any:
        def listen(*args: Any, **kwargs: Any) -> tuple[int, int]:
            flop, mac = rule(*args, **kwargs)
            counts.add(paths.current, names[id(function)], flop, mac)
            return flop, mac

        def run(*args: Any, **kwargs: Any) -> Any:
            counts.running += 1
            try:
                return function(*args, **kwargs)
            finally:
                counts.running -= 1

        run.__str__ = function.__str__  # type: ignore[method-assign]  # the libraries' key of a function
        return wrap(run, listen, *more)

    def hooked(rule: Callable[..., None]) -> Callable[..., None]:
        def listen(module: Any, inputs: tuple[Any, ...], output: Any) -> None:
            before = module.__flops__
            rule(module, inputs, output)
            mac = recurrent_multiply_adds(module, inputs[0])
            counts.add(first_path[id(module)], type(module).__name__, module.__flops__ - before, mac)

        return listen

    with (
        evaluating(model),
        ModulePaths(model) as paths,
        put_back(owners),
        patch.object(library, "wrapFunc", wrapped),
        patch.dict(hooks, {kind: hooked(rule) for kind, rule in hooks.items()}),
        UncountedCalls(lambda: counts.running > 0 or paths.current in recurrent) as unseen,
    ):
        counts.unseen = unseen.calls
        try:
            yield counts
        finally:
            stacks.module_flop_count.clear()
            stacks.module_mac_count.clear()


@contextlib.contextmanager
def put_back(owners: Owners) -> Iterator[None]:
    """Restore the functions of modules and classes; a function that a class only inherits is deleted from it."""
    before = [(owner, dict(vars(owner))) for owner in owners.values()]
    try:
        yield
    finally:
        for owner, held in before:
            now = dict(vars(owner))
            for name, value in held.items():
                if callable(value) and now.get(name) is not value:
                    setattr(owner, name, value)
            for name in now.keys() - held.keys() if isinstance(owner, type) else ():
                delattr(owner, name)
