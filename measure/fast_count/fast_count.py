"""The fast count: model FLOP of a training step, forward and backward, predicted from one forward pass on meta tensors.

The backward pass of a product follows from its forward pass and from which operands need a gradient, and it happens if
a gradient of the loss reaches it: autograd's own graph says both, and no gradient is computed. Normalisations and
activations are not computed either, and a block that is built like an earlier one, and gets an input like it, is not
run again (`measure/fast_count/`). The formulas are those of the executed trace (`measure.operations.tracer`), which is
the oracle: tests hold both equal to the last FLOP. No memory for activations, no weight is read, and the model is left
as it was.

A model that cannot run so (its course depends on values, say) is counted by the executed trace on fake tensors, and
the notes begin with the reason; if that cannot either, Unavailable. It counts no scalar work, no bytes, no optimizer,
and takes no time of anything. What runs differently on a GPU is counted as a CPU runs it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from analysis.operators import registry
from analysis.operators.attention_conventions import (
    BY_RULE,
    MASK_RULE,
    AttentionFlop,
    AttentionSum,
    KeptPairs,
    attention_flop,
    kept_pairs,
)
from measure.fast_count import dispatch_mode, whole_operators
from measure.fast_count.autograd_reach import NotPredicted, Walk, edges_of
from measure.fast_count.block_likeness import Likeness, prepared
from measure.fast_count.block_replay import Blocks, Replay
from measure.fast_count.checkpoints import add_recomputation, check_predicted, check_shown, check_unhooked, hooks_set
from measure.fast_count.dispatch_mode import EngineRan, PredictMode, Tape
from measure.fast_count.intercepted_calls import watched
from measure.fast_count.product_cost import ProductForm, Share
from measure.fast_count.reference import trace_model
from measure.model.batch_masks import NOTHING, BatchMask, batch_mask, with_mask
from measure.model.mixture import MixtureFlop, has_experts, pass_mixture, step_mixture
from measure.model.module_masks import makes_masks, mask_rules
from measure.model.module_paths import ModulePaths
from measure.model.random_state import kept_random
from measure.model.run import check_outputs, tensors
from measure.model.state_snapshot import Parts, modules, on_meta, preserved_state
from measure.model.work_outside import noticed
from results.errors import Unavailable, one_line
from results.garbage_collector import collector_off
from results.records.operations import Operation

__all__ = ["FastCount", "CountRow", "MaskedFlop", "clear_cache", "fast_count"]

Loss = Callable[[Any], Any]
PHASES = ("forward", "backward", "recompute")

DREW = "the model drew random numbers while it ran"
"""How the note of a count begins that may be another one the next time."""


class MaskedFlop(NamedTuple):
    """FLOP of attention calls, counted dense, whose pairs only the values of a mask of the batch say.

    operation: a call like them. rule: of its module's masks (`measure.model.batch_masks.with_mask`).
    """

    operation: Operation
    rule: str
    flop: int


@dataclass(frozen=True)
class CountRow:
    """The model FLOP of one kind of operation in one module itself (not its children), in one phase."""

    phase: str  # forward, backward or recompute
    module: str
    kind: str
    flop: int  # attention dense
    causal_flop: int | None = None  # the same with attention up to the diagonal where it is causal; None: not known
    mask_exact_flop: int | None = None  # with the pairs that its masks keep; the calls of `masked` dense
    masked: tuple[MaskedFlop, ...] = ()


@dataclass(frozen=True)
class FastCount:
    """Model FLOP of one step. recompute_flop: what activation checkpointing computes again, in neither of the others.

    The total of a phase with a call that no rule counts is None: at_least_flop has the sum of the others, phase →
    FLOP, and unknown_calls how many there are, phase → calls. not_understood: operator → such calls of all phases.
    rows: by module, if asked for. replayed: blocks that were not run. executed: whether the executed trace counted
    instead; the notes then begin with the reason. attention: what other conventions than the dense one count less.
    mixture: the forward pass of a mixture of experts by part; None for a model without.
    """

    forward_flop: int | None
    backward_flop: int | None
    recompute_flop: int | None = 0
    not_understood: Mapping[str, int] = field(default_factory=dict)
    rows: tuple[CountRow, ...] = ()
    notes: tuple[str, ...] = ()
    replayed: int = 0
    executed: bool = False
    at_least_flop: Mapping[str, int] = field(default_factory=dict)
    unknown_calls: Mapping[str, int] = field(default_factory=dict)
    attention: AttentionFlop = field(default_factory=lambda: AttentionSum().total())
    mixture: MixtureFlop | None = None

    def by_convention(self, attention: str) -> tuple[int | None, int | None]:
        """(forward, backward) FLOP by a convention of attention, as `StepCount.by_convention`."""
        forward, backward = self.forward_flop, self.backward_flop
        return self.attention.flop(attention, "forward", forward), self.attention.flop(attention, "backward", backward)


def fast_count(
    model: torch.nn.Module,
    inputs: tuple[Any, ...],
    *,
    kwargs: Mapping[str, Any] | None = None,
    train: bool | None = None,
    grad_inputs: bool | None = None,
    loss_of: Loss | None = None,
    rows: bool = False,
    reuse: bool = True,
) -> FastCount:
    """Count a step of model(*inputs, **kwargs), all of them real or on meta.

    train: the mode it runs in; None: as each module is. grad_inputs: whether inputs of floating-point numbers need a
    gradient; None: those that do. loss_of: the outputs → the tensors that the loss is made of; None: all of them.
    rows: also by module and kind. reuse: whether blocks of one structure are run once.
    Raises Unavailable where neither a prediction nor a trace on fake tensors can be had.
    """
    task = _Task(model, inputs, dict(kwargs or {}), train, grad_inputs, loss_of, rows)
    try:
        return _run_forward(task, reuse)
    except NotPredicted as fault:
        return _executed(task, str(fault))
    except Exception as fault:  # noqa: BLE001  a model's own code may raise anything; it is told, and the trace asked
        return _executed(task, f"{type(fault).__name__}: {one_line(str(fault), 200)}")


def clear_cache() -> None:
    """Forget operators and signatures, as in a new process. Only benchmarks and tests need it."""
    dispatch_mode.clear_cache()
    whole_operators.clear_cache()


@dataclass(frozen=True)
class _Task:
    """What was asked for."""

    model: torch.nn.Module
    inputs: tuple[Any, ...]
    kwargs: dict[str, Any]
    train: bool | None
    grad_inputs: bool | None
    loss_of: Loss | None
    rows: bool


def _run_forward(task: _Task, reuse: bool) -> FastCount:
    """One forward pass; again without replays where those cannot be trusted."""
    known_code = reuse and task.loss_of is None and not _global_hooks()
    parts, alike = prepared(task.model, task.train, known_code)
    check_unhooked(task.model, tree_leaves((task.inputs, task.kwargs)), modules_too=not parts.settled)
    try:
        found, replayed, drawn = _kept_pass(parts, task, reuse, alike)
    except EngineRan:
        found, replayed, drawn = _kept_pass(parts, task, False)
    if not drawn:
        return found
    if replayed:
        found, _, _ = _kept_pass(parts, task, False)
    note = f"{DREW}: one of its courses is counted"
    return replace(found, notes=(*found.notes, note))


def _kept_pass(parts: Parts, task: _Task, reuse: bool, alike: Likeness | None = None) -> tuple[FastCount, bool, bool]:
    """One pass, whatever becomes of it undone; whether blocks were replayed, and whether random numbers were drawn."""
    with preserved_state(parts, task.train), kept_random(torch_alone=parts.settled) as drawn, collector_off():
        found, blocks = _pass(parts.every[0], task, reuse, alike)
        return found, blocks is not None and bool(blocks.replays), drawn()


def _pass(
    model: torch.nn.Module, task: _Task, reuse: bool, alike: Likeness | None = None
) -> tuple[FastCount, Blocks | None]:
    tape = Tape()
    rules = mask_rules(model) if makes_masks(modules(model)) else {}
    routes = has_experts(model)
    by_module = task.rows or bool(rules) or routes
    mode = PredictMode(tape, by_module)
    blocks = Blocks(mode, alike or Likeness(model)) if reuse and not _global_hooks() else None
    paths = ModulePaths(model) if by_module else None
    inputs, kwargs = on_meta((task.inputs, task.kwargs), task.grad_inputs)
    with watched(mode, blocks, paths):
        before = hooks_set()
        with noticed(mode.outside):
            with mode, torch.enable_grad():
                outputs = model(*inputs, **kwargs)
                loss = outputs if task.loss_of is None else task.loss_of(outputs)
            check_outputs(model, loss)
            check_predicted(mode, before)
            walk = Walk(mode) if blocks is None else Walk(mode, beyond=blocks.passed_edges)
            walk.go(edges_of(tensors(loss)))
            add_recomputation(walk, mode)
        check_shown(mode)
    batch = batch_mask(model, task.inputs, task.kwargs) if rules else NOTHING
    ran = _Ran(tape, walk, [] if blocks is None else blocks.replays, rules, batch)
    return replace(_summed(ran, task.rows), mixture=_mixture(model, ran) if routes else None), blocks


def _mixture(model: torch.nn.Module, ran: _Ran) -> MixtureFlop | None:
    """The parts of what ran forward, replays included."""
    forward = (each for each in _shares(ran) if each[0] == "forward")
    return pass_mixture(model, ((module, flop) for _, module, _, (_, flop) in forward))


@dataclass(frozen=True)
class _Ran:
    """What a pass left. rules: path of a module → the rule of its attention masks; batch: what the inputs add."""

    tape: Tape
    walk: Walk
    replays: Sequence[Replay]
    rules: Mapping[str, str]
    batch: BatchMask
    known: dict[tuple[int, str], KeptPairs | None] = field(default_factory=dict)

    def rule(self, module: str) -> str:
        """Of the masks that a module makes; "": none is known."""
        return self.rules.get(module, "")

    def pairs(self, form: ProductForm, module: str) -> KeptPairs | None:
        """What conventions count of a call's attention; None for a product that is none of attention."""
        if not form.may_have_mask:
            return None
        rule = self.rule(module)
        key = id(form), rule
        if key not in self.known:
            self.known[key] = kept_pairs(with_mask(form.operation, rule, self.batch))
        return self.known[key]


def _summed(ran: _Ran, by_module: bool) -> FastCount:
    """Add up what ran and what was predicted."""
    tape, replays = ran.tape, ran.replays
    totals: Counter[str] = Counter()
    totals["forward"] += sum([form.forward[1] for form, _ in tape.products])
    totals["forward"] += sum([replay.template.forward_flop for replay in replays])
    totals["backward"] += sum([tape.products[place][0].backward_flop(mask) for place, mask in ran.walk.found.products])
    totals["backward"] += sum([replay.backward_flop() for replay in replays])
    for name, _, form in tape.executed:
        totals[name] += form.forward[1]
    found = _with_totals(totals, tape.not_understood)
    rows = _rows(ran) if by_module else ()
    return replace(found, rows=rows, replayed=len(replays), attention=_attention(ran))


def _with_totals(totals: Mapping[str, int], unknown: Mapping[tuple[str, str], int]) -> FastCount:
    """The totals of the phases, None where a call of the phase is unknown. unknown: (phase, operator) → calls."""
    calls: Counter[str] = Counter()
    names: Counter[str] = Counter()
    for (phase, name), count in unknown.items():
        calls[phase] += count
        names[name] += count
    forward, backward, recompute = (None if calls[phase] else totals[phase] for phase in PHASES)
    return FastCount(
        forward,
        backward,
        recompute,
        dict(names.most_common()),
        at_least_flop={phase: totals[phase] for phase in PHASES},
        unknown_calls={phase: calls[phase] for phase in PHASES},
    )


def _attention(ran: _Ran) -> AttentionFlop:
    """What conventions of attention leave out."""
    found = AttentionSum()
    if any(form.may_have_mask for form, _ in ran.tape.products):
        for phase, module, form, (_, flop) in _shares(ran, attention_alone=True):
            pairs = ran.pairs(form, module)
            if pairs is not None:
                found.add(phase, pairs, flop)
    return found.total()


def _rows(ran: _Ran) -> tuple[CountRow, ...]:
    """The same by module and kind."""
    table: dict[tuple[str, str, str], _Flop] = defaultdict(_Flop)
    for phase, module, form, (kind, flop) in _shares(ran):
        if flop:
            table[phase, module, kind].add(flop, ran.pairs(form, module), form.operation, ran.rule(module))
    return tuple(each.row(*key) for key, each in table.items())


@dataclass(slots=True)
class _Flop:
    """A sum of FLOP by convention of attention; None: not known."""

    flop: int = 0
    causal: int | None = 0
    mask_exact: int | None = 0
    masked: dict[Hashable, MaskedFlop] = field(default_factory=dict)

    def add(self, flop: int, pairs: KeptPairs | None, operation: Operation, rule: str) -> None:
        """pairs: of an attention. operation, rule: of the call."""
        causal, mask_exact = (0, 0) if pairs is None else (pairs.less(name, flop) for name in BY_RULE)
        if pairs is not None and pairs.by_batch:
            like = operation.name, operation.input_shapes, rule
            before = self.masked[like].flop if like in self.masked else 0
            self.masked[like], mask_exact = MaskedFlop(operation, rule, before + flop), 0
        self.flop += flop
        self.causal = None if self.causal is None or causal is None else self.causal + flop - causal
        self.mask_exact = None if self.mask_exact is None or mask_exact is None else self.mask_exact + flop - mask_exact

    def row(self, phase: str, module: str, kind: str) -> CountRow:
        return CountRow(phase, module, kind, self.flop, self.causal, self.mask_exact, tuple(self.masked.values()))


def _shares(ran: _Ran, attention_alone: bool = False) -> Iterator[tuple[str, str, ProductForm, Share]]:
    """(phase, module, form of the product or of the one whose gradient it is, share) of everything, or of what may
    have a mask."""
    tape = ran.tape

    def wanted(form: ProductForm) -> bool:
        return not attention_alone or form.may_have_mask

    yield from (("forward", module, form, form.forward) for form, module in tape.products if wanted(form))
    yield from ((phase, module, form, form.forward) for phase, module, form in tape.executed if wanted(form))
    for place, mask in ran.walk.found.products:
        form, module = tape.products[place]
        if wanted(form):
            yield from (("backward", module, form, share) for share in form.backward(mask))
    for replay in ran.replays:
        products, path = replay.template.products, replay.path
        yield from (("forward", _below(path, where), form, form.forward) for form, where in products if wanted(form))
        for place, mask in replay.products():
            form, where = products[place]
            if wanted(form):
                yield from (("backward", _below(path, where), form, share) for share in form.backward(mask))


def _below(path: str, where: str) -> str:
    return f"{path}.{where}" if path and where else path or where


def _global_hooks() -> bool:
    """Whether hooks on all modules are there, which replays would not call."""
    module = torch.nn.modules.module
    forward = module._global_forward_hooks or module._global_forward_pre_hooks
    return bool(forward or module._global_backward_hooks or module._global_backward_pre_hooks)


def _executed(task: _Task, reason: str) -> FastCount:
    """The executed trace's count. Raises Unavailable with both reasons where that cannot run either."""
    try:
        with kept_random():
            trace = trace_model(
                task.model,
                task.inputs,
                task.kwargs,
                train=task.train,
                grad_inputs=task.grad_inputs,
                loss_of=task.loss_of,
            )
    except Exception as fault:
        again = one_line(str(fault), 200)
        raise Unavailable(f"neither predicted ({reason}) nor traced on fake tensors ({again})") from fault
    table: dict[tuple[str, str, str], _Flop] = defaultdict(_Flop)
    totals: Counter[str] = Counter()
    unknown: Counter[tuple[str, str]] = Counter()
    for operation in trace.operations:
        flop = registry.model_flop(operation)
        name = "forward" if operation.phase == "loss" else operation.phase
        totals[name] += flop
        if registry.bucket_of(operation.name) == "not_understood":
            unknown[name, operation.name] += 1
        if flop and task.rows:
            rule = operation.attributes.get(MASK_RULE, "")
            table[name, operation.module, operation.kind].add(flop, kept_pairs(operation), operation, rule)
    return replace(
        _with_totals(totals, unknown),
        rows=tuple(each.row(*key) for key, each in table.items()),
        attention=attention_flop(trace.operations),
        mixture=step_mixture(task.model, trace.operations),
        notes=(f"counted by the executed trace: {reason}",),
        executed=True,
    )
