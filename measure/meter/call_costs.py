"""Model FLOP of the calls that a loop makes, counted once for each distinct shape of their inputs.

The count is the trace of a copy of the model on fake tensors (`measure.operations.model_trace`): exact, and as
`python -m runners.count` gives it. A count takes a tenth of a second on the host; `count_waiting` keeps to a share of
the time that the loop has run, so that many shapes wait rather than slow the training down.

Products are split by the unit that runs them: the dtype that autocast, the parameters and what modules gave say, and
the flags that allow TF32. Not claimed: the dtype of products inside of a module that runs several.
"""

import collections
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from analysis.operators import registry
from analysis.operators.attention_conventions import BY_RULE, attention_flop, kept_pairs, may_have_mask
from measure.fake.mode import copy_with, meta_like
from measure.meter.calls import CallKey, Passes
from measure.meter.forward_calls import TRANSFORMED
from measure.meter.model_state import MustRun, check_whole_layers, is_sharded, unsharded
from measure.meter.product_dtypes import dtype_at
from measure.model.state_snapshot import kept_random
from measure.operations.model_trace import DREW, trace_model
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

_UNITS = {torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int8: "int8"}


@dataclass(frozen=True)
class CallCost:
    """FLOP of one forward pass and of its backward pass. Of a phase with an unknown call only a part is known.

    products: (phase, kind, unit) → FLOP; phases are forward, backward, recompute, and again, where a forward pass that
    a checkpoint makes again is not the whole one. unknown_calls: phase → calls without a rule. reason: why something is
    unknown, or what else must be said; empty where nothing is. must_run: whether only a step that runs shows what it
    costs. less: convention of attention → (phase, unit) → FLOP that it counts less than the dense one; one that is not
    known is absent, and attention_reasons says why. has_attention: whether there is any attention.
    """

    products: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    unknown_calls: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    must_run: bool = False
    less: Mapping[str, Mapping[tuple[str, str], int]] = field(default_factory=dict)
    attention_reasons: Mapping[str, str] = field(default_factory=dict)
    has_attention: bool = False


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
        self,
        model: torch.nn.Module,
        device_type: str,
        unit: str | None,
        budget_ratio: float,
        loss_of: Any = None,
    ) -> None:
        self._model = model
        self._device_type = device_type
        self._unit = unit
        self._budget_ratio = budget_ratio
        self._loss_of = loss_of
        self._versions: set[int] = set()
        self.waiting: collections.OrderedDict[CallKey, tuple[torch.nn.Module, Any, Any]] = collections.OrderedDict()
        self._copies: dict[tuple[str, int], torch.nn.Module] = {}
        self._costs: dict[CallKey, CallCost] = {}
        self.output_dtypes: dict[str, torch.dtype] = {}
        self.refused = ""  # why no call has a count
        self.observed: set[CallKey] = set()
        self.only_observed = False  # whether calls cost something else than their count, which observed steps show
        self.counting_s = 0.0
        self.began_s = time.perf_counter()
        self._at_once = True

    def expect(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call that is not counted yet; its inputs are kept without their values."""
        if key in self._costs or key in self.waiting:
            return
        if key.inputs == TRANSFORMED:
            self._costs[key] = CallCost(unknown_calls={"forward": 1}, reason=IN_A_TRANSFORM)
            return
        if len(self.waiting) >= MAX_WAITING or len(self._costs) >= MAX_COUNTED:
            reason = f"more than {MAX_WAITING} shapes of inputs wait to be counted, or {MAX_COUNTED} were: use buckets"
            self._costs.setdefault(key, CallCost(unknown_calls={"forward": 1}, reason=reason))
            return
        self._at_once = self._at_once or key.version not in self._versions
        self._versions.add(key.version)
        try:
            with torch.inference_mode(False):
                self.waiting[key] = self._copy(key), *copy_with(meta_like, (args, kwargs))
        except MustRun as reason:
            self._costs[key] = CallCost(unknown_calls={"forward": 1}, reason=str(reason), must_run=True)

    def _copy(self, key: CallKey) -> torch.nn.Module:
        """The module of a call as it is now, without values; the module itself where it cannot be copied."""
        place = key.module, key.version
        if place not in self._copies:
            check_whole_layers(self._model)
            module = self._model.get_submodule(key.module)
            whole = unsharded(module) if is_sharded(module) else module
            with contextlib.suppress(Exception), kept_random():  # a copy may draw its weights anew
                whole = copy_with(meta_like, whole)
            self._copies[place] = whole
        return self._copies[place]

    def count_waiting(self, all_of_them: bool = False, keys: Iterable[CallKey] = ()) -> float:
        """Count calls that wait: those of a new state of the model and of these keys in any case, others as long as the
        budget lasts.

        Returns the seconds that it took.
        """
        for key in keys:
            if key in self.waiting:
                self.waiting.move_to_end(key, last=False)
        wanted = {key for key in keys if key in self.waiting}
        began_s = time.perf_counter()
        while self.waiting:
            now_s = time.perf_counter()
            spent_s = self.counting_s + now_s - began_s
            at_once = self._at_once or all_of_them or next(iter(self.waiting)) in wanted
            if not at_once and spent_s > self._budget_ratio * (now_s - self.began_s):
                break
            key, call = self.waiting.popitem(last=False)
            self._costs[key] = self._count(key, *call)
        if not self.waiting:
            self._copies.clear()
        self._at_once = False
        taken_s = time.perf_counter() - began_s
        self.counting_s += taken_s
        return taken_s

    @property
    def cost_by_key(self) -> Mapping[CallKey, CallCost]:
        """What is counted."""
        return self._costs

    def replace(self, costs: Mapping[CallKey, CallCost]) -> None:
        """Calls that cost something else than what was counted of them."""
        self._costs.update(costs)

    @property
    def wants_observation(self) -> bool:
        """Whether a call that was seen has no count until a step with it is observed."""
        return any(self.must_be_observed(key, cost) for key, cost in self._costs.items())

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
        attention = _AttentionOfCalls()
        for key, each in passes.items():
            cost = self._costs.get(key) or CallCost(unknown_calls={"forward": 1}, reason="not counted yet")
            if self.must_be_observed(key, cost):
                cost = CallCost(unknown_calls={"forward": 1}, reason=cost.reason or NOT_OBSERVED)
            times = {"forward": each.forward, "backward": each.backward}
            again = "again" if any(place[0] == "again" for place in cost.products) else "forward"
            for (phase, kind, unit), flop in cost.products.items():
                if phase == "recompute":
                    recompute_flop += each.backward * flop
                if phase == again:
                    recompute_flop += each.recomputed * flop
                if phase in times:
                    products[kind, unit] += times[phase] * flop
            attention.add(cost, times)
            unknown += sum(times.get(phase, each.backward) * calls for phase, calls in cost.unknown_calls.items())
            unknown += each.hidden + each.late
            if each.hidden:
                reasons["a call of the model failed, or gave no tensor: its backward pass is not seen"] = None
            if each.late:
                reasons[LATE] = None
            if cost.reason:
                reasons[cost.reason] = None
        conventions = attention.less(), attention.reasons, attention.is_there
        return StepFlop(dict(products), recompute_flop, unknown, tuple(reasons), *conventions)

    def _count(self, key: CallKey, module: torch.nn.Module, args: Any, kwargs: Any) -> CallCost:
        def traced() -> Trace:
            return trace_model(module, args, kwargs, train=None, loss_of=self._loss_of)

        try:
            trace = traced()
            cost = self._cost(trace, key, module)
            if DREW in trace.notes and any(self._cost(each, key, module) != cost for each in _by_chance(traced)):
                return CallCost(unknown_calls={"forward": 1}, reason=CHANCE)
            return cost
        except Exception as fault:  # noqa: BLE001  a model's code may raise anything: this call has no count, with why
            return CallCost(unknown_calls={"forward": 1}, reason=f"not counted: {one_line(str(fault), 200)}")

    def _cost(self, trace: Trace, key: CallKey, module: torch.nn.Module) -> CallCost:
        products: Counter[tuple[str, str, str]] = Counter()
        less: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in BY_RULE}
        unknown: Counter[str] = Counter()
        for operation in trace.operations:
            phase = "forward" if operation.phase == "loss" else operation.phase
            unknown[phase] += registry.bucket_of(operation.name) == "not_understood"
            flop = registry.model_flop(operation)
            if not flop:
                continue
            path = ".".join(filter(None, (key.module, operation.module)))
            dtype = self._dtype_of(path, key.autocast, module, operation.module)
            unit = self.unit_of(operation.kind, dtype)
            products[phase, operation.kind, unit] += flop
            pairs = kept_pairs(operation) if may_have_mask(operation) else None
            for name in BY_RULE:
                left_out = 0 if pairs is None else pairs.less(name, flop)
                if left_out is None:
                    less.pop(name, None)
                elif name in less:
                    less[name][phase, unit] += left_out
        names = sorted(registry.not_understood(trace.operations))
        lines = "; ".join(map(registry.registration, names))
        reason = f"no rule for {', '.join(names)}; one is given by {lines}" if names else ""
        attention = attention_flop(trace.operations)
        return CallCost(
            dict(products), {phase: calls for phase, calls in unknown.items() if calls},
            reason or (DREW if DREW in trace.notes else ""), less=less, attention_reasons=attention.reasons,
            has_attention=bool(attention.calls),
        )  # fmt: skip

    def unit_of(self, kind: str, dtype: torch.dtype) -> str:
        """The unit that runs a product: fp32 with TF32 allowed is tf32 on a GPU."""
        if self._unit is not None:
            return self._unit
        if dtype != torch.float32:
            return _UNITS.get(dtype, str(dtype).removeprefix("torch."))
        if self._device_type != "cuda":
            return "fp32"
        cudnn = kind in ("convolution", "recurrent")
        allowed = torch.backends.cudnn.allow_tf32 if cudnn else torch.backends.cuda.matmul.allow_tf32
        return "tf32" if allowed else "fp32"

    def _dtype_of(self, path: str, autocast: torch.dtype | None, called: torch.nn.Module, inside: str) -> torch.dtype:
        """Autocast's dtype where it was on around the model; else what the module gave when the loop ran it; else that
        of its own weights, or the model's."""
        seen = self.output_dtypes.get(path) if autocast else dtype_at(path, self.output_dtypes)
        if seen is not None or autocast is not None:
            return seen or autocast or torch.float32
        for holder in (called.get_submodule(inside), called):
            for parameter in holder.parameters():
                if parameter.is_floating_point() and parameter.ndim > 1:
                    return parameter.dtype
        return torch.float32


def _by_chance(traced: Callable[[], Trace], times: int = 7) -> Iterator[Trace]:
    """The same trace with other random numbers. The loop's own go on where they were."""
    numpy = sys.modules.get("numpy.random")
    with kept_random():
        for seed in range(times):
            random.seed(seed)
            torch.default_generator.manual_seed(seed)  # not those of devices
            if numpy is not None:
                numpy.seed(seed)
            yield traced()


class _AttentionOfCalls:
    """Adds up what conventions of attention count less. is_there: whether there is any attention."""

    def __init__(self) -> None:
        self._less: dict[str, Counter[str]] = {name: Counter() for name in BY_RULE}
        self.reasons: dict[str, str] = {}
        self.is_there = False

    def add(self, cost: CallCost, times: Mapping[str, int]) -> None:
        """times: phase → how often a call of this cost ran it."""
        self.is_there = self.is_there or cost.has_attention
        for name, found in self._less.items():
            if name not in cost.less:
                self.reasons.setdefault(name, cost.attention_reasons.get(name, cost.reason or WATCHED))
                continue
            for (phase, unit), flop in cost.less[name].items():
                found[unit] += times.get(phase, 0) * flop

    def less(self) -> dict[str, dict[str, int]]:
        """Convention → unit → FLOP, of those that every call has."""
        return {name: dict(found) for name, found in self._less.items() if name not in self.reasons}
