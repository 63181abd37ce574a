"""The profiler in the shape that DeepSpeed's users know: `profile_model` in one call, `Profiler` inside of a loop.

Forward passes only. MACs are the multiply-adds of convolutions and matrix products; FLOP are twice those, and all other
arithmetic. Both are None ("at least" in words) if an operation has no rule. DeepSpeed's errors are not reproduced.
"""

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from analysis.profile.module_tree import tree
from measure.model.state_snapshot import evaluating
from measure.profile.step_profile import expect_module, profile_step
from measure.profile.watch import ForwardWatch
from reports.profile.tree import aggregated_text, tree_text
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
    """(FLOP, MACs, parameters) of one forward pass in eval mode; mode "generate": of model.generate. None: not known.

    input_shape: of a tensor of ones, before args; input_constructor makes the inputs of it. as_string: as_strings."""
    words = as_strings if as_string is None else as_string
    held = next(expect_module(model).parameters(), torch.empty(0))
    shaped = [] if input_constructor or input_shape is None else [held.new_ones(input_shape)]
    inputs = input_constructor(input_shape) if input_constructor is not None else (*shaped, *(args or ()))
    given: dict[str, Any] = {"kwargs": kwargs, "mode": mode, "ignore_modules": ignore_modules or ()}
    with evaluating(model):
        profile = profile_step(model, inputs, warm_up=warm_up, steps=1, **given)
    if print_profile:
        _print(tree_text(profile, depth=module_depth, top=top_modules, detailed=detailed), output_file)
    flops, macs = _count_in(profile, "FLOP", words), _count_in(profile, "MAC", words)
    return flops, macs, _with_unit(profile.parameters, "", words)


class Profiler:
    """Profiles the forwards between start_profile and stop_profile; of several, each number is their mean.
    ds_engine: DeepSpeed's, or what else has world_size and mp_world_size; None: torch's world."""

    def __init__(self, model: torch.nn.Module, ds_engine: Any = None, recompute_fwd_factor: float = 0.0) -> None:
        self._watch = ForwardWatch(model)
        self._ignored: Ignored = None
        self._profile: StepProfile | None = None
        sizes = {"world_size": ds_engine.world_size, "model_parallel": ds_engine.mp_world_size} if ds_engine else {}
        self._given: dict[str, Any] = {"recompute_fwd_factor": recompute_fwd_factor, **sizes}

    def start_profile(self, ignore_list: Ignored = None) -> None:
        """Begin; raises ValueError if it has begun. ignore_list: modules to leave out."""
        self._watch.start()
        self._ignored, self._profile = ignore_list, None

    def stop_profile(self) -> None:
        """End, and make the numbers. Raises ValueError if nothing was begun, or no forward ran since."""
        self._profile = replace(self._watch.stop(self._ignored or ()), **self._given)

    def end_profile(self) -> None:
        """Forget everything; nothing is left on the model."""
        self._watch.drop()
        self._profile = None

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
        """The whole report. profile_step: which step of the loop this is."""
        text = tree_text(self._finished_profile(), depth=module_depth, top=top_modules, detailed=detailed)
        _print(f"Profile at step {profile_step}\n\n{text}", output_file)

    def print_model_aggregated_profile(self, module_depth: int = -1, top_modules: int = 1) -> None:
        _print(aggregated_text(self._finished_profile(), module_depth, top_modules), None)

    def _finished_profile(self) -> StepProfile:
        if self._profile is None:
            raise ValueError("expected a finished profile: start_profile, a forward, stop_profile")
        return self._profile


def _count_in(profile: StepProfile, unit: str, as_string: bool) -> Number:
    """FLOP or MACs of all of it; of a part None, in words "at least"."""
    root = tree(profile)[""]
    mac = root.forward_mac, not root.unknowns("forward")
    flop = root.model_flop + root.other_flop, root.knows_all
    value, complete = mac if unit == "MAC" else flop
    words = f"{'' if complete else 'at least '}{si(value, unit)}"
    return words if as_string else value if complete else None


def _with_unit(value: float, unit: str, as_string: bool) -> Number:
    return si(value, unit) if as_string else value


def _print(text: str, file: str | Path | None) -> None:
    if file is None:
        sys.stdout.write(text)
    else:
        Path(file).write_bytes(text.encode())
