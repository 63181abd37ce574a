"""Model FLOP of the calls that a loop makes, counted once for each distinct shape of their inputs.

The count is the trace of a copy of the model on fake tensors (`measure.operations.model_trace`): exact, and as
`python -m runners.count` gives it. A count takes a tenth of a second on the host; `count_waiting` keeps to a share of
the time that the loop has run, so that many shapes wait rather than slow the training down.

Products are split by the unit that runs them: of the dtype that an observed step saw, else of autocast's around the
call, else of the trace's, and by the flags that allow TF32.
"""

import collections
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from analysis.operators import registry
from analysis.operators.attention_conventions import BY_RULE, AttentionFlop, attention_flop
from measure.meter.calls import TRANSFORMED, CallKey, Passes
from measure.meter.model_state import MustRun, check_whole_layers, is_sharded, unsharded
from measure.model.state_snapshot import kept_random
from measure.operations.fake_mode import copy_with, meta_like
from measure.operations.model_trace import DREW, trace_model
from measure.operations.schemas import dtype_name
from measure.operations.tracer import Trace
from results.errors import one_line

MAX_COUNTED = 16_384
MAX_WAITING = 1_024

IN_A_TRANSFORM = "the model was called inside of a transform of torch.func: sizes and gradients there are not seen"

LATE = (
    "a backward pass ran after the end of its step, where no time is measured: put loss.backward() into the "
    "`with meter.step()` block, or before meter.update()"
)

WATCHED = "a call was counted as an observed step ran it, where masks are not seen"

NOT_OBSERVED = "the loop runs other products than its calls' counts, and no step with calls of these sizes was observed"

CHANCE = "the model drew random numbers while it ran, and what it runs depends on them"

_UNITS = {"float64": "fp64", "complex128": "fp64", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class CallCost:
    """FLOP of one forward pass and of its backward pass. Of a phase with an unknown call only a part is known.

    products: (phase, kind, unit) → FLOP; phases are forward, backward, recompute, and again, where a forward pass that
    a checkpoint makes again is not the whole one. unknown_calls: phase → calls without a rule. reason: why something is
    unknown, or what else must be said; empty where nothing is. must_run: whether only a step that runs shows what it
    costs. attention: what conventions of attention count less than the dense one; None where that is not known.
    """

    products: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    unknown_calls: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    must_run: bool = False
    attention: AttentionFlop | None = None


@dataclass(frozen=True)
class StepFlop:
    """FLOP of any number of passes.

    products: (kind, unit) → model FLOP. recompute_flop: what checkpoints compute again. unknown_calls: calls of
    operators, or of the model itself, that have no count; reasons: why. less: convention of attention → unit → FLOP
    that it counts less than the dense one, where it is known; attention_reasons: why one is not.
    """

    products: Mapping[tuple[str, str], int]
    recompute_flop: int
    unknown_calls: int
    reasons: tuple[str, ...] = ()
    less: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    attention_reasons: Mapping[str, str] = field(default_factory=dict)
    has_attention: bool = False

    @property
    def by_unit(self) -> dict[str, int]:
        """Unit → model FLOP."""
        units: Counter[str] = Counter()
        for (_kind, unit), flop in self.products.items():
            units[unit] += flop
        return dict(units)

    def by_convention(self, attention: str) -> dict[str, int] | None:
        """Unit → model FLOP with attention counted "causal" or "mask_exact"; None where that is not known."""
        less = self.less.get(attention)
        return None if less is None else {unit: flop - less.get(unit, 0) for unit, flop in self.by_unit.items()}


class CallCosts:
    """The counted calls of one model.

    unit: where the caller knows which unit runs the products. budget_ratio: share of the loop's time for counting.
    waiting: calls to be counted, with their inputs.
    """

    def __init__(
        self, model: torch.nn.Module, device_type: str, unit: str | None, budget_ratio: float, loss_of: Any = None
    ) -> None:
        self._model = model
        self._device_type = device_type
        self._unit = unit
        self._budget_ratio = budget_ratio
        self._loss_of = loss_of
        self._versions: set[int] = set()
        self.waiting: collections.OrderedDict[CallKey, tuple[torch.nn.Module, Any, Any]] = collections.OrderedDict()
        self._copies: dict[tuple[str, int], torch.nn.Module] = {}
        self.cost_by_key: dict[CallKey, CallCost] = {}
        self.refused = ""  # why no call has a count
        self.observed: set[CallKey] = set()
        self.only_observed = False  # whether calls cost something else than their count, which observed steps show
        self.counting_s = 0.0
        self._began_s = time.perf_counter()
        self._at_once = True

    def expect(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call of a new kind: its inputs, and the module as it is now, are kept without their values."""
        if key.inputs == TRANSFORMED:
            self.cost_by_key[key] = _unknown(IN_A_TRANSFORM)
            return
        if len(self.waiting) >= MAX_WAITING or len(self.cost_by_key) >= MAX_COUNTED:
            reason = f"more than {MAX_WAITING} shapes of inputs wait to be counted, or {MAX_COUNTED} were: use buckets"
            self.cost_by_key[key] = _unknown(reason)
            return
        self._at_once = self._at_once or key.version not in self._versions
        self._versions.add(key.version)
        place = key.module, key.version
        try:
            with torch.inference_mode(False):
                if place not in self._copies:
                    check_whole_layers(self._model)
                    module = self._model.get_submodule(key.module)
                    copied = unsharded(module) if is_sharded(module) else module
                    # a copy may draw its weights anew; what cannot be copied is counted itself
                    with contextlib.suppress(Exception), kept_random():
                        copied = copy_with(meta_like, copied)
                    self._copies[place] = copied
                self.waiting[key] = self._copies[place], *copy_with(meta_like, (args, kwargs))
        except MustRun as reason:
            self.cost_by_key[key] = _unknown(str(reason), must_run=True)

    def count_waiting(self, all_of_them: bool = False, keys: Iterable[CallKey] = ()) -> float:
        """Count calls that wait: those of a new state of the model and of these keys in any case, others as long as the
        budget lasts.

        Returns the seconds that it took.
        """
        wanted = {key for key in keys if key in self.waiting}
        for key in wanted:
            self.waiting.move_to_end(key, last=False)
        began_s = time.perf_counter()
        while self.waiting:
            now_s = time.perf_counter()
            spent_s = self.counting_s + now_s - began_s
            at_once = self._at_once or all_of_them or next(iter(self.waiting)) in wanted
            if not at_once and spent_s > self._budget_ratio * (now_s - self._began_s):
                break
            key, call = self.waiting.popitem(last=False)
            self.cost_by_key[key] = self._count(key, *call)
        if not self.waiting:
            self._copies.clear()
        self._at_once = False
        taken_s = time.perf_counter() - began_s
        self.counting_s += taken_s
        return taken_s

    def use_units(self, key: CallKey, ran: Mapping[str, Mapping[tuple[str, str], int]]) -> None:
        """The products of a call ran in these dtypes. ran: phase → (kind, dtype) → FLOP."""
        units: dict[tuple[str, str], set[str]] = {}
        for phase, amounts in ran.items():
            for kind, dtype in amounts:
                units.setdefault((phase, kind), set()).add(self.unit_of(kind, dtype))

        products: Counter[tuple[str, str, str]] = Counter()
        for (phase, kind, unit), flop in self.cost_by_key[key].products.items():
            seen = units.get((phase, kind), {unit})
            products[phase, kind, next(iter(seen)) if len(seen) == 1 else unit] += flop
        self.cost_by_key[key] = replace(self.cost_by_key[key], products=dict(products))

    @property
    def wants_observation(self) -> bool:
        """Whether a call that was seen has no count until a step with it is observed."""
        return any(self.must_be_observed(key, cost) for key, cost in self.cost_by_key.items())

    def must_be_observed(self, key: CallKey, cost: CallCost) -> bool:
        """Whether a kind of call has no count until it is observed."""
        return cost.must_run or (self.only_observed and key not in self.observed and not cost.unknown_calls)

    def flop(self, passes: Mapping[CallKey, Passes]) -> StepFlop:
        """What these passes cost together."""
        if self.refused and passes:
            return StepFlop({}, 0, sum(each.forward + each.recomputed for each in passes.values()), (self.refused,))
        products: Counter[tuple[str, str]] = Counter()
        recompute_flop = unknown = 0
        reasons: dict[str, None] = {}
        less: dict[str, Counter[str]] = {name: Counter() for name in BY_RULE}
        attention_reasons: dict[str, str] = {}
        has_attention = False
        for key, each in passes.items():
            cost = self.cost_by_key.get(key) or _unknown("not counted yet")
            if self.must_be_observed(key, cost):
                cost = _unknown(cost.reason or NOT_OBSERVED)
            times = {"forward": each.forward, "backward": each.backward}
            again = "again" if any(place[0] == "again" for place in cost.products) else "forward"
            for (phase, kind, unit), flop in cost.products.items():
                if phase == "recompute":
                    recompute_flop += each.backward * flop
                if phase == again:
                    recompute_flop += each.recomputed * flop
                if phase in times:
                    products[kind, unit] += times[phase] * flop
            attention = cost.attention or AttentionFlop(None, None, 0)
            has_attention = has_attention or attention.calls > 0
            for name, by_unit in less.items():
                by_phase = getattr(attention, name)
                if by_phase is None:
                    attention_reasons.setdefault(name, attention.reasons.get(name, cost.reason or WATCHED))
                for phase, flop in (by_phase or {}).items():
                    by_unit[_attention_unit(cost, phase)] += times.get(phase, 0) * flop
            unknown += sum(times.get(phase, each.backward) * calls for phase, calls in cost.unknown_calls.items())
            unknown += each.hidden + each.late
            if each.hidden:
                reasons["a call of the model failed, or gave no tensor: its backward pass is not seen"] = None
            if each.late:
                reasons[LATE] = None
            if cost.reason:
                reasons[cost.reason] = None
        known = {name: dict(by_unit) for name, by_unit in less.items() if name not in attention_reasons}
        return StepFlop(
            dict(products), recompute_flop, unknown, tuple(reasons), known, attention_reasons, has_attention
        )

    def _count(self, key: CallKey, module: torch.nn.Module, args: Any, kwargs: Any) -> CallCost:
        def traced() -> Trace:
            return trace_model(module, args, kwargs, train=None, loss_of=self._loss_of)

        try:
            trace = traced()
            cost = self._cost(trace, key)
            if DREW in trace.notes and any(self._cost(each, key) != cost for each in _by_chance(traced)):
                return _unknown(CHANCE)
            return cost
        except Exception as fault:  # noqa: BLE001  a model's code may raise anything: this call has no count, with why
            return _unknown(f"not counted: {one_line(str(fault), 200)}")

    def _cost(self, trace: Trace, key: CallKey) -> CallCost:
        products: Counter[tuple[str, str, str]] = Counter()
        unknown: Counter[str] = Counter()
        for operation in trace.operations:
            phase = "forward" if operation.phase == "loss" else operation.phase
            unknown[phase] += registry.bucket_of(operation.name) == "not_understood"
            flop = registry.model_flop(operation)
            if not flop:
                continue
            dtype = dtype_name(key.autocast) if key.autocast else operation.input_dtypes[0]
            products[phase, operation.kind, self.unit_of(operation.kind, dtype)] += flop
        names = sorted(registry.not_understood(trace.operations))
        lines = "; ".join(map(registry.registration, names))
        reason = f"no rule for {', '.join(names)}; one is given by {lines}" if names else ""
        return CallCost(
            dict(products),
            {phase: calls for phase, calls in unknown.items() if calls},
            reason or (DREW if DREW in trace.notes else ""),
            attention=attention_flop(trace.operations),
        )

    def unit_of(self, kind: str, dtype: str) -> str:
        """The unit that runs a product: fp32 with TF32 allowed is tf32 on a GPU."""
        if self._unit is not None:
            return self._unit
        if dtype not in ("float32", "complex64"):
            return _UNITS.get(dtype, dtype)
        if self._device_type != "cuda":
            return "fp32"
        cudnn = kind in ("convolution", "recurrent")
        allowed = torch.backends.cudnn.allow_tf32 if cudnn else torch.backends.cuda.matmul.allow_tf32
        return "tf32" if allowed else "fp32"


def _attention_unit(cost: CallCost, phase: str) -> str:
    """The unit that runs the attention of a phase; where it runs as plain products, that of most of those."""
    units = {(kind == "attention", flop): unit for (each, kind, unit), flop in cost.products.items() if each == phase}
    return units[max(units)] if units else ""


def _unknown(reason: str, must_run: bool = False) -> CallCost:
    """A call without a count."""
    return CallCost(unknown_calls={"forward": 1}, reason=reason, must_run=must_run)


def _by_chance(traced: Callable[[], Trace], times: int = 7) -> Iterator[Trace]:
    """Traces again with other random numbers. The loop's own go on where they were."""
    numpy = sys.modules.get("numpy.random")
    with kept_random():
        for seed in range(times):
            random.seed(seed)
            torch.default_generator.manual_seed(seed)  # not those of devices
            if numpy is not None:
                numpy.seed(seed)
            yield traced()
