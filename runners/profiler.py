"""Offers the profiler under DeepSpeed's names: `profile_model` takes a model for one call, `Profiler` wraps a loop.

`profile_model` runs a model on given inputs. `Profiler` takes a model and watches the forward passes that its caller
runs. Both return the FLOP, MACs and parameters of forward passes, and print the tree of modules. MACs are the
multiply-adds of convolutions and matrix products. FLOP are twice the MACs plus all other arithmetic. If an operation
has no rule, FLOP and MACs are None, or as text "at least …". DeepSpeed's bugs are not reproduced.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from analysis.devices.precisions import PRECISIONS
from analysis.module_tree import tree
from measure.model.module_paths import is_compiled
from measure.model.state_snapshot import evaluating, tensors
from measure.profile.model_step import ModelStep, naming_faults, paths_below, preserve_state, traced
from measure.profile.recording import check_available, kernel_device
from measure.profile.step_profile import blank_profile, expect_module, profile_step, table_of
from measure.timing.clocks import clock_for
from measure.timing.profiler_ranges import DOMAIN
from reports.profile_tree import aggregated_text, tree_text
from reports.shared.numbers import si
from results.records.answers import StepProfile

Number = int | float | str | None
Ignored = Collection[type | str] | None


def profile_model(
    model: torch.nn.Module, input_shape: tuple[int, ...] | None = None, args: Collection[Any] | None = (),
    kwargs: Mapping[str, Any] | None = None, print_profile: bool = True, detailed: bool = True, module_depth: int = -1,
    top_modules: int = 1, warm_up: int = 1, as_strings: bool = True, output_file: str | Path | None = None,
    ignore_modules: Ignored = None, mode: str = "forward", input_constructor: Callable[[Any], Any] | None = None,
    as_string: bool | None = None,
) -> tuple[Number, Number, Number]:  # fmt: skip
    """Return (FLOP, MACs, parameters) of one forward pass in eval mode. None means that a number is unknown.

    mode: "forward", or "generate" to call model.generate instead. input_shape: the shape of a tensor of ones that comes
    before args. input_constructor: takes input_shape, and returns all inputs, which replace that tensor and args.
    as_string: another name of as_strings."""
    as_text = as_strings if as_string is None else as_string
    held = next(expect_module(model).parameters(), torch.empty(0))
    shaped = [] if input_constructor or input_shape is None else [held.new_ones(input_shape)]
    inputs = input_constructor(input_shape) if input_constructor is not None else (*shaped, *(args or ()))
    settings: dict[str, Any] = {"kwargs": kwargs, "mode": mode, "ignore_modules": ignore_modules or ()}
    with evaluating(model):
        profile = profile_step(model, inputs, warm_up=warm_up, steps=1, **settings)
    if print_profile:
        _print(tree_text(profile, depth=module_depth, top=top_modules, detailed=detailed), output_file)
    flops, macs = _count_in(profile, "FLOP", as_text), _count_in(profile, "MAC", as_text)
    return flops, macs, _with_unit(profile.parameters, "", as_text)


class Profiler:
    """Profiles the forwards between start_profile and stop_profile; of several, each number is their mean.
    ds_engine: DeepSpeed's, or another object with world_size and mp_world_size; None: torch's world.

    Two hooks on the model itself open and close a range around each of its forwards, while torch's profiler records.
    At the end a forward with the recorded inputs is traced for its operations. Forwards whose inputs have other sizes
    than most, and those that raised, are left out and reported. The first inputs are kept until the end; if the model
    changes them in place, the changed values are traced. Methods that are called out of order raise ValueError."""

    def __init__(self, model: torch.nn.Module, ds_engine: Any = None, recompute_fwd_factor: float = 0.0) -> None:
        if is_compiled(expect_module(model)):
            raise ValueError("expected a model that is not compiled: its modules and operations are not called")
        self._model = model
        self._ignored: Ignored = None
        self._profile: StepProfile | None = None
        sizes = {"world_size": ds_engine.world_size, "model_parallel": ds_engine.mp_world_size} if ds_engine else {}
        self._given: dict[str, Any] = {"recompute_fwd_factor": recompute_fwd_factor, **sizes}
        self._profiler: Any = None
        self._handles: list[Any] = []
        self._forget()

    def start_profile(self, ignore_list: Ignored = None) -> None:
        """Begin to record. ignore_list: modules to leave out. Raises ValueError if it has begun."""
        if self._profiler is not None:
            raise ValueError("the profile is started already: stop it first")
        tensors_held = (*self._model.parameters(), *self._model.buffers())
        self._device = next((tensor.device for tensor in tensors_held), torch.device("cpu"))
        cuda = self._device.type == "cuda"
        check_available(cuda)
        self._forget()
        self._clock = clock_for(self._device)
        self._profiler = torch.autograd.profiler.profile(use_kineto=True, use_device=kernel_device(cuda))
        self._profiler.__enter__()
        self._handles = [
            self._model.register_forward_pre_hook(self._begins, prepend=True, with_kwargs=True),
            self._model.register_forward_hook(self._ends, always_call=True),
        ]
        self._ignored, self._profile = ignore_list, None

    def stop_profile(self) -> None:
        """End the recording and compute the numbers. Raises ValueError if none was begun, or no forward ran since."""
        recording = self._stopped()
        forms = Counter(form for form in self._forms if form is not None)
        if not forms:
            raise ValueError("expected at least one whole forward of the model between start and stop, none ran")
        form = forms.most_common(1)[0][0]
        same = [index for index, other in enumerate(self._forms) if other == form]
        step, left_out = self._steps[form], len(self._forms) - len(same)
        ignored = paths_below(self._model, self._ignored or ())
        with naming_faults(self._model), preserve_state(self._model, trains=False):
            trace = traced(step)
        if left_out:
            text = f"{left_out} of {len(self._forms)} forwards are left out: of other sizes, or they raised"
            trace = replace(trace, notes=(*trace.notes, text))
        described = blank_profile(self._model, (step.args, step.kwargs), self._device, "fp32", "forward")
        profile = table_of(recording, trace, self._model, described, ignored=ignored, only=same)
        self._profile = replace(profile, **self._given)
        self._forget()

    def end_profile(self) -> None:
        """Remove the hooks and forget the numbers."""
        if self._profiler is not None:
            self._stopped()
        self._forget()
        self._profile = None

    def _forget(self) -> None:
        self._steps: dict[tuple[Any, ...], ModelStep] = {}  # form → its first forward
        self._forms: list[tuple[Any, ...] | None] = []  # of each forward, equal where operations are; None: it raised
        self._depth = 0
        self._ranges = contextlib.ExitStack()

    def _stopped(self) -> Any:
        """Remove hooks and ranges. Returns torch's recording. Raises ValueError if none was begun."""
        if self._profiler is None:
            raise ValueError("expected start_profile before stop_profile: no profile was started")
        for handle in self._handles:
            handle.remove()
        self._ranges.close()
        profiler, self._profiler = self._profiler, None
        profiler.__exit__(None, None, None)
        return profiler.kineto_results

    def _begins(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._depth += 1
        if self._depth > 1:  # the model calls itself
            return
        kind = self._device.type
        cast = str(torch.get_autocast_dtype(kind))[6:] if torch.is_autocast_enabled(kind) else None
        policy = next(policy for policy in PRECISIONS.values() if policy.autocast == cast)
        grad = torch.is_grad_enabled()
        self._running = ModelStep(model, args, kwargs, None, None, None, "forward", policy, kind, grad)
        self._handled = sys.exception()  # which the caller is handling
        self._clock.synchronize()
        for name in ("step", "forward"):
            self._ranges.enter_context(torch.profiler.record_function(f"{DOMAIN}.{name}"))

    def _ends(self, _model: torch.nn.Module, _args: Any, _output: Any) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._ranges.close()
        self._clock.synchronize()
        if sys.exception() is not self._handled:  # it is called where the forward raised, too
            self._forms.append(None)
            return
        step = self._running
        sizes = ((tuple(tensor.shape), tensor.dtype) for tensor in tensors((step.args, step.kwargs)))
        form = (step.grad, step.policy.autocast, *sizes)
        self._forms.append(form)
        self._steps.setdefault(form, step)

    def get_total_flops(self, as_string: bool = False) -> Number:
        return _count_in(self._finished_profile(), "FLOP", as_string)

    def get_total_macs(self, as_string: bool = False) -> Number:
        return _count_in(self._finished_profile(), "MAC", as_string)

    def get_total_duration(self, as_string: bool = False) -> Number:
        return _with_unit(sum(times_s := self._finished_profile().step_times_s) / len(times_s), "s", as_string)

    def get_total_params(self, as_string: bool = False) -> Number:
        return _with_unit(self._finished_profile().parameters, "", as_string)

    def print_model_profile(
        self, profile_step: int = 1, module_depth: int = -1, top_modules: int = 1, detailed: bool = True,
        output_file: str | Path | None = None,
    ) -> None:  # fmt: skip
        """Print the whole report. profile_step: which step of the loop this is."""
        text = tree_text(self._finished_profile(), depth=module_depth, top=top_modules, detailed=detailed)
        _print(f"Profile at step {profile_step}\n\n{text}", output_file)

    def print_model_aggregated_profile(self, module_depth: int = -1, top_modules: int = 1) -> None:
        _print(aggregated_text(self._finished_profile(), module_depth, top_modules), None)

    def _finished_profile(self) -> StepProfile:
        if self._profile is None:
            raise ValueError("expected a finished profile: start_profile, a forward, stop_profile")
        return self._profile


def _count_in(profile: StepProfile, unit: str, as_string: bool) -> Number:
    """Return FLOP or MACs of the whole model; where only a part is known None, or a text "at least …"."""
    root = tree(profile)[""]
    mac = root.forward_mac, not root.unknowns("forward")
    flop = root.model_flop + root.other_flop, root.knows_all
    value, complete = mac if unit == "MAC" else flop
    text = f"{'' if complete else 'at least '}{si(value, unit)}"
    return text if as_string else value if complete else None


def _with_unit(value: float, unit: str, as_string: bool) -> Number:
    return si(value, unit) if as_string else value


def _print(text: str, file: str | Path | None) -> None:
    if file is None:
        sys.stdout.write(text)
    else:
        Path(file).write_bytes(text.encode())
