"""The profiler in the shape that users of DeepSpeed's know: `profile_model` in one call, `Profiler` inside of a loop.

Both are views of one measured table (`measure.step_profile`, `measure.step_watch`); DeepSpeed's names and arguments,
its older ones too. Forward passes only: the measured backward pass is in `profile_step`. MACs are the multiply-adds of
convolutions and matrix products; FLOP are twice those and the arithmetic of everything else.

Not claimed: DeepSpeed's numbers, where they are wrong. Nothing of torch is replaced, and the model is left as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch

from measure.counters.running import evaluating
from measure.step_profile import profile_step
from measure.step_watch import Watch
from reports.profile_tree import aggregated_text, tree_text
from reports.words import si
from results.step_profile import StepProfile

Number = int | float | str


def profile_model(
    model: torch.nn.Module,
    input_shape: tuple[int, ...] | None = None,
    args: Collection[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    print_profile: bool = True,
    detailed: bool = True,
    module_depth: int = -1,
    top_modules: int = 1,
    warm_up: int = 1,
    as_strings: bool = True,
    output_file: str | Path | None = None,
    ignore_modules: Collection[type | str] | None = None,
    mode: str = "forward",
    input_constructor: Callable[[tuple[int, ...] | None], Any] | None = None,
) -> tuple[Number, Number, Number]:
    """(FLOP, MACs, parameters) of one forward pass in eval mode. input_shape: of a tensor of ones, before args.

    input_constructor: called with input_shape, makes the inputs instead. mode: "forward" or "generate". Where
    print_profile, the report goes to output_file, or to standard output.
    """
    if input_constructor is not None:
        inputs: Any = input_constructor(input_shape)
    else:
        held = next(model.parameters(), torch.empty(0))
        shaped = () if input_shape is None else (torch.ones(input_shape, dtype=held.dtype, device=held.device),)
        inputs = (*shaped, *args)
    with evaluating(model):
        profile = profile_step(
            model, inputs, kwargs=kwargs, mode=mode, warm_up=warm_up, steps=1, ignore_modules=ignore_modules or ()
        )
    if print_profile:
        _print(tree_text(profile, depth=module_depth, top=top_modules, detailed=detailed), output_file)
    macs, flops = _macs(profile), _flops(profile)
    return (
        _said(flops, "FLOP", as_strings), _said(macs, "MAC", as_strings), _said(profile.parameters, "", as_strings)
    )  # fmt: skip


class Profiler:
    """Profiles the forwards between start_profile and stop_profile; of several, each number is of one, their mean.

    recompute_fwd_factor: how much of the forward pass activation checkpointing runs again, for the report's summary.
    """

    def __init__(self, model: torch.nn.Module, recompute_fwd_factor: float = 0.0) -> None:
        self._watch = Watch(model)
        self._ignored: Collection[type | str] = ()
        self._profile: StepProfile | None = None
        self.recompute_fwd_factor = recompute_fwd_factor

    def start_profile(self, ignore_list: Collection[type | str] | None = None) -> None:
        """Begin. ignore_list: modules to leave out. Raises ValueError if it has begun already."""
        self._watch.start()
        self._ignored, self._profile = ignore_list or (), None

    def stop_profile(self) -> None:
        """End, and make the numbers. Raises ValueError if nothing was begun, or no forward ran since."""
        self._profile = self._watch.stop(self._ignored)

    def end_profile(self) -> None:
        """Forget everything; nothing is left on the model."""
        self._watch.drop()
        self._profile = None

    def get_total_flops(self, as_string: bool = False) -> Number:
        return _said(_flops(self._found()), "FLOP", as_string)

    def get_total_macs(self, as_string: bool = False) -> Number:
        return _said(_macs(self._found()), "MAC", as_string)

    def get_total_duration(self, as_string: bool = False) -> Number:
        """Seconds."""
        times = self._found().step_times_s
        return _said(sum(times) / len(times), "s", as_string)

    def get_total_params(self, as_string: bool = False) -> Number:
        return _said(self._found().parameters, "", as_string)

    def print_model_profile(
        self,
        profile_step: int = 1,
        module_depth: int = -1,
        top_modules: int = 1,
        detailed: bool = True,
        output_file: str | Path | None = None,
    ) -> None:
        """The whole report. profile_step: which step of the loop this is, said above it."""
        factor = self.recompute_fwd_factor
        text = tree_text(
            self._found(), depth=module_depth, top=top_modules, detailed=detailed, recompute_fwd_factor=factor
        )
        _print(f"Profile at step {profile_step}\n\n{text}", output_file)

    def print_model_aggregated_profile(self, module_depth: int = -1, top_modules: int = 1) -> None:
        _print(aggregated_text(self._found(), module_depth, top_modules), None)

    def _found(self) -> StepProfile:
        if self._profile is None:
            raise ValueError("expected a finished profile: start_profile, a forward, stop_profile")
        return self._profile


def _flops(profile: StepProfile) -> int:
    return sum(row.model_flop + row.other_flop for row in profile.operations)


def _macs(profile: StepProfile) -> int:
    return sum(row.model_flop for row in profile.operations) // 2


def _said(value: float, unit: str, as_string: bool) -> Number:
    return si(value, unit) if as_string else value


def _print(text: str, file: str | Path | None) -> None:
    if file is None:
        sys.stdout.write(text)
    else:
        Path(file).write_text(text, encoding="utf-8")
