"""Counts the model FLOP of the calls that a training loop makes, once per kind of call (`CallKey`).

`CallCosts.expect` takes a call's inputs, `count_waiting` counts the kinds of calls that wait, and `flop` returns the
`PassFlop` of any number of passes. The count is exact: it is the trace of a copy of the model on fake tensors
(`measure.operations.model_trace`), as in `python -m runners.count`. Counting a call takes a tenth of a second on the
host. So `count_waiting` keeps to a share of the loop's time, and many kinds wait rather than slow the training down. A
product (convolution or matrix product) is assigned to a unit by its dtype and by the flags that allow TF32. The dtype
is that of an observed step, else of autocast around the call, else of the trace.
"""

import collections
import contextlib
import functools
import random
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from analysis.operators import registry
from analysis.operators.attention_conventions import BY_RULE, AttentionFlop, attention_flop
from measure.meter.calls import TRANSFORMED, CallKey, Passes
from measure.model.state_snapshot import preserved_random
from measure.operations.fake_mode import copy_with, meta_like
from measure.operations.model_trace import DREW, trace_model
from measure.operations.schemas import dtype_name
from measure.operations.tracer import Trace
from results.errors import one_line

MAX_WAITING = 1_024

BUDGET_RATIO = 0.01
"""Share of the loop's time for counting."""

IN_A_TRANSFORM = "the model was called inside of a transform of torch.func: sizes and gradients there are not seen"

LATE = (
    "a backward pass ran after the end of its step, where no time is measured: put loss.backward() into the "
    "`with meter.step()` block, or before meter.update()"
)

WATCHED = "a call's count is that of an observed step, which does not show masks"

NOT_OBSERVED = "the loop's products differ from its calls' counts, and no step with calls of these sizes was observed"

DENSE = "dense"

CHANCE = "the model drew random numbers while it ran, and what it runs depends on them"

_UNITS = {"float64": "fp64", "complex128": "fp64", "float16": "fp16", "bfloat16": "bf16"}


Products = Mapping[tuple[str, str], int]
"""(kind, unit) → FLOP."""


@dataclass(frozen=True)
class CallCost:
    """FLOP of one forward pass and of its backward pass. For a phase with an unknown call only a part is known.

    products: phase → products. The phases are forward; backward; recompute: what checkpoints inside the model compute
    again, for each backward pass; again: the part of the call that a checkpoint around the model repeats, if that is
    not the whole call. unknown_calls: phase → calls without a rule. reason: why something is unknown, or another note;
    "" where there is none. must_run: whether only a real step shows the cost. attention: how much less other
    conventions of attention count than the dense one; None where unknown.
    """

    products: Mapping[str, Products] = field(default_factory=dict)
    unknown_calls: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    must_run: bool = False
    attention: AttentionFlop | None = None

    def of(self, phase: str) -> Products:
        """Return the products of one pass in a phase; those of "again" are by default those of "forward"."""
        return self.products.get(phase) or (self.of("forward") if phase == "again" else {})

    def flop(self, phase: str) -> int:
        """Return the FLOP of all products."""
        return sum(self.of(phase).values())


@dataclass(frozen=True)
class PassFlop:
    """FLOP of any number of passes.

    by_unit: convention of attention → unit → known model FLOP; attention_reasons: why a convention is unknown.
    recompute_flop: what checkpoints compute again. unknown_calls: calls of operators, or of the model itself, without a
    count; reasons: why.
    """

    by_unit: Mapping[str, Mapping[str, int]]
    recompute_flop: int
    unknown_calls: int
    reasons: tuple[str, ...] = ()
    attention_reasons: Mapping[str, str] = field(default_factory=dict)
    has_attention: bool = False

    @property
    def dense(self) -> int:
        """Model FLOP with all pairs of attention."""
        return sum(self.by_unit[DENSE].values())


class CallCosts:
    """The counted calls of one model.

    unit: the unit that runs the products, if the caller knows it. waiting: calls to be counted, with their inputs.
    """

    def __init__(
        self, model: torch.nn.Module, device_type: str, unit: str | None, loss_of: Callable[[Any], Any] | None
    ) -> None:
        self._model = model
        self._device_type = device_type
        self._unit = unit
        self._loss_of = loss_of
        self.waiting: dict[CallKey, tuple[torch.nn.Module, Any, Any]] = {}
        self._copies: dict[tuple[str, int], torch.nn.Module] = {}
        self.cost_by_key: dict[CallKey, CallCost] = {}
        self.refused = ""  # why no call has a count
        self.observed: set[CallKey] = set()
        self.only_observed = False  # whether an observed step ran other products than its calls' counts
        self.counting_s = 0.0
        self._began_s = time.perf_counter()
        self._at_once = False

    def expect(self, key: CallKey, args: tuple[Any, ...], kwargs: dict[str, Any], is_new_state: bool) -> None:
        """Keep the inputs of a call of a new kind, and the module as it is now, without values, to be counted.
        is_new_state: whether the model's state is new."""
        self._at_once |= is_new_state
        if key.inputs == TRANSFORMED:
            self.cost_by_key[key] = _unknown(IN_A_TRANSFORM)
        elif len(self.waiting) >= MAX_WAITING:
            self.cost_by_key[key] = _unknown(
                f"more than {MAX_WAITING} shapes of inputs wait to be counted: use buckets"
            )
        elif name := split_parameter(self._model):
            reason = f"tensor parallelism splits {name}: a rank's part is counted in a step that is observed"
            self.cost_by_key[key] = _unknown(reason, must_run=True)
        else:
            module_state = key.module, key.version
            with torch.inference_mode(False):
                if module_state not in self._copies:
                    copied = unsharded(self._model.get_submodule(key.module))
                    # copying may draw random weights; a module that cannot be copied is counted itself
                    with contextlib.suppress(Exception), preserved_random():
                        copied = copy_with(meta_like, copied)
                    self._copies[module_state] = copied
                self.waiting[key] = self._copies[module_state], *copy_with(meta_like, (args, kwargs))

    def count_waiting(self, wanted: Collection[CallKey] = (), all_of_them: bool = False) -> float:
        """Count waiting calls, and return the seconds that it took.

        Those in `wanted` come first and are always counted. With all_of_them, or after a new state of the model, all
        others are counted, too, otherwise as many as the budget allows.
        """
        began_s = time.perf_counter()
        for key in sorted(self.waiting, key=lambda key: key not in wanted):
            now_s = time.perf_counter()
            exceeds_budget = self.counting_s + now_s - began_s > BUDGET_RATIO * (now_s - self._began_s)
            if exceeds_budget and not (self._at_once or all_of_them or key in wanted):
                break
            self.cost_by_key[key] = self._count(key, *self.waiting.pop(key))
        if not self.waiting:
            self._copies.clear()
        self._at_once = False
        taken_s = time.perf_counter() - began_s
        self.counting_s += taken_s
        return taken_s

    def by_unit(self, amounts: Products) -> Products:
        """Return (kind, unit) → FLOP. amounts: (kind, dtype) → FLOP."""
        products: Counter[tuple[str, str]] = Counter()
        for (kind, dtype), flop in amounts.items():
            products[kind, self.unit_of(kind, dtype)] += flop
        return products

    def use_units(self, key: CallKey, phase: str, ran: Products) -> None:
        """Note that the products of a phase ran in these dtypes. ran: (kind, dtype) → FLOP."""
        cost, products = self.cost_by_key[key], Counter[tuple[str, str]]()
        for (kind, unit), flop in cost.products.get(phase, {}).items():
            units = {self.unit_of(kind, dtype) for ran_kind, dtype in ran if ran_kind == kind}
            products[kind, units.pop() if len(units) == 1 else unit] += flop
        self.cost_by_key[key] = replace(cost, products={**cost.products, phase: products})

    def must_be_observed(self, key: CallKey, cost: CallCost) -> bool:
        """Return whether a kind of call has no count until it is observed."""
        return cost.must_run or (self.only_observed and key not in self.observed and not cost.unknown_calls)

    def flop(self, passes: Passes) -> PassFlop:
        """Return the total FLOP of these passes."""
        if self.refused and passes:
            calls = sum(times for (_, what), times in passes.items() if what in ("forward", "again"))
            return PassFlop({DENSE: {}}, 0, calls, (self.refused,))
        by_unit: dict[str, Counter[str]] = {name: Counter() for name in (DENSE, *BY_RULE)}
        recompute_flop = unknown = 0
        reasons: dict[str, None] = {}
        attention_reasons: dict[str, str] = {}
        has_attention = False
        for key in dict.fromkeys(key for key, _ in passes):
            cost = self.cost_by_key.get(key) or _unknown("not counted yet")
            if self.must_be_observed(key, cost):
                cost = _unknown(cost.reason or NOT_OBSERVED)
            times = {what: passes.get((key, what), 0) for what in ("forward", "backward", "again", "hidden", "late")}
            times["recompute"] = times["backward"]
            recompute_flop += sum(times[phase] * cost.flop(phase) for phase in ("again", "recompute"))
            attention = cost.attention or AttentionFlop(None, None, 0)
            has_attention = has_attention or attention.calls > 0
            for phase in ("forward", "backward"):
                units: Counter[str] = Counter()
                for (_kind, unit), flop in cost.of(phase).items():
                    units[unit] += times[phase] * flop
                for name, total in by_unit.items():
                    less = {} if name == DENSE else getattr(attention, name)
                    if less is None:
                        attention_reasons.setdefault(name, attention.reasons.get(name, cost.reason or WATCHED))
                    else:
                        total.update(units)
                        if less.get(phase):  # taken from the unit of attention, else from the one with most FLOP
                            ran = {(kind == "attention", flop): unit for (kind, unit), flop in cost.of(phase).items()}
                            total[ran[max(ran)]] -= times[phase] * less[phase]
            unknown += sum(times[phase] * calls for phase, calls in cost.unknown_calls.items())
            unknown += times["hidden"] + times["late"]
            if times["hidden"]:
                reasons["a call of the model failed, or returned no tensor: its backward pass is not seen"] = None
            if times["late"]:
                reasons[LATE] = None
            if cost.reason:
                reasons[cost.reason] = None
        known = {name: dict(total) for name, total in by_unit.items() if name not in attention_reasons}
        return PassFlop(known, recompute_flop, unknown, tuple(reasons), attention_reasons, has_attention)

    def _count(self, key: CallKey, module: torch.nn.Module, args: Any, kwargs: Any) -> CallCost:
        def traced() -> Trace:
            return trace_model(module, args, kwargs, train=None, loss_of=self._loss_of)

        try:
            trace = traced()
            cost = self._cost(trace, key)
            if DREW in trace.notes and any(self._cost(repeat, key) != cost for repeat in _with_other_seeds(traced)):
                return _unknown(CHANCE)
            return cost
        except Exception as fault:  # noqa: BLE001  a model's code may raise anything: this call has no count, with why
            return _unknown(f"not counted: {one_line(str(fault), 200)}")

    def _cost(self, trace: Trace, key: CallKey) -> CallCost:
        amounts: collections.defaultdict[str, Counter[tuple[str, str]]] = collections.defaultdict(Counter)
        unknown: Counter[str] = Counter()
        for operation in trace.operations:
            phase = "forward" if operation.phase == "loss" else operation.phase
            unknown[phase] += registry.bucket_of(operation.name) == "not_understood"
            if flop := registry.model_flop(operation):
                dtype = dtype_name(key.autocast) if key.autocast else operation.input_dtypes[0]
                amounts[phase][operation.kind, dtype] += flop
        names = sorted(registry.unsupported(trace.operations))
        lines = "; ".join(map(registry.registration, names))
        reason = f"no rule for {', '.join(names)}; one is given by {lines}" if names else ""
        return CallCost(
            {phase: self.by_unit(products) for phase, products in amounts.items()},
            +unknown,
            reason or (DREW if DREW in trace.notes else ""),
            attention=attention_flop(trace.operations),
        )

    def unit_of(self, kind: str, dtype: str) -> str:
        """Return the unit that runs a product: fp32 with TF32 allowed is tf32 on a GPU."""
        if self._unit is not None:
            return self._unit
        if dtype not in ("float32", "complex64"):
            return _UNITS.get(dtype, dtype)
        if self._device_type != "cuda":
            return "fp32"
        cudnn = kind in ("convolution", "recurrent")
        allowed = torch.backends.cudnn.allow_tf32 if cudnn else torch.backends.cuda.matmul.allow_tf32
        return "tf32" if allowed else "fp32"


def _unknown(reason: str, must_run: bool = False) -> CallCost:
    """Return a call without a count."""
    return CallCost(unknown_calls={"forward": 1}, reason=reason, must_run=must_run)


def _with_other_seeds(traced: Callable[[], Trace]) -> Iterator[Trace]:
    """Trace again with other random numbers. The loop's own random numbers stay as they were."""
    numpy = sys.modules.get("numpy.random")
    with preserved_random():
        for seed in range(7):
            random.seed(seed)
            torch.default_generator.manual_seed(seed)  # not those of devices
            if numpy is not None:
                numpy.seed(seed)
            yield traced()


_STATE = "__composable_api_state_key"
"""Beginnings of names of attributes in which torch's parallel wrappers keep their state of a module."""


def split_parameter(model: torch.nn.Module) -> str:
    """Return the name of a parameter that tensor parallelism splits, so that a rank runs a part of each layer; "" if
    none."""
    is_sharded = any(_kind(module) is not type(module) for module in model.modules())
    for name, parameter in model.named_parameters():
        splits = sum(placement.is_shard() for placement in getattr(parameter, "placements", ()))
        if splits > is_sharded:
            return name
    return ""


def unsharded(model: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of the modules of a model sharded by FSDP2, as each rank runs them on its batch: with whole
    parameters and buffers on meta, without FSDP's hooks. Other attributes are shared with the model. A model that is
    not sharded is returned itself."""
    if all(_kind(module) is type(module) for module in model.modules()):
        return model
    copies: dict[int, Any] = {}

    def whole(tensor: torch.Tensor | None) -> Any:
        if tensor is not None and id(tensor) not in copies:
            size = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            copies[id(tensor)] = torch.nn.Parameter(size, tensor.requires_grad) if is_parameter else size
        return copies.get(id(tensor))

    def copied(module: torch.nn.Module | None) -> Any:
        if module is None or id(module) in copies:
            return copies.get(id(module))
        copy = copies[id(module)] = object.__new__(_kind(module))
        held = vars(copy)
        held.update({key: value for key, value in vars(module).items() if not key.startswith(_STATE)})
        for name, value in vars(module).items():
            if name in ("_parameters", "_buffers"):
                held[name] = {key: whole(tensor) for key, tensor in value.items()}
            elif name == "_modules":
                held[name] = {key: copied(child) for key, child in value.items()}
            elif name.endswith("_hooks"):
                held[name] = OrderedDict((key, hook) for key, hook in value.items() if not _is_torchs_own(hook))
        return copy

    return copied(model)  # type: ignore[no-any-return]


def _kind(module: torch.nn.Module) -> type[torch.nn.Module]:
    """Return a module's class, without the subclass that FSDP2 made of it."""
    sharded = getattr(sys.modules.get("torch.distributed.fsdp"), "FSDPModule", ())
    if not isinstance(module, sharded):
        return type(module)
    plain = (base for base in type(module).__mro__ if issubclass(base, torch.nn.Module))
    return next(base for base in plain if not issubclass(base, sharded))


def _is_torchs_own(hook: Any) -> bool:
    """Return whether distributed PyTorch registered this hook."""
    while isinstance(hook, functools.partial):
        hook = hook.func
    return str(getattr(hook, "__module__", "")).startswith("torch.distributed")
