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

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from analysis.operators import registry
from measure.fast_count import dispatch_mode, whole_operators
from measure.fast_count.autograd_reach import NotPredicted, Walk, edges_of
from measure.fast_count.block_likeness import Likeness, prepared
from measure.fast_count.block_replay import Blocks, Replay
from measure.fast_count.checkpoints import add_recomputation, check_predicted, check_shown, check_unhooked, hooks_set
from measure.fast_count.dispatch_mode import EngineRan, PredictMode, Tape
from measure.fast_count.intercepted_calls import watched
from measure.fast_count.reference import trace_model
from measure.model import (
    ModulePaths,
    Parts,
    check_outputs,
    kept_random,
    noticed,
    on_meta,
    preserved_state,
    tensors,
)
from results import Unavailable, collector_off, one_line

__all__ = ["FastCount", "CountRow", "clear_cache", "fast_count"]

Loss = Callable[[Any], Any]
PHASES = ("forward", "backward", "recompute")

DREW = "the model drew random numbers while it ran"
"""How the note of a count begins that may be another one the next time."""


@dataclass(frozen=True)
class CountRow:
    """The model FLOP of one kind of operation in one module itself (not its children), in one phase."""

    phase: str  # forward, backward or recompute
    module: str
    kind: str
    flop: int


@dataclass(frozen=True)
class FastCount:
    """Model FLOP of one step. recompute_flop: what activation checkpointing computes again, in neither of the others.

    The total of a phase with a call that no rule counts is None: at_least_flop has the sum of the others, phase →
    FLOP, and unknown_calls how many there are, phase → calls. not_understood: operator → such calls of all phases.
    rows: by module, if asked for. replayed: blocks that were not run. executed: whether the executed trace counted
    instead; the notes then begin with the reason.
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
    mode = PredictMode(tape, task.rows)
    blocks = Blocks(mode, alike or Likeness(model)) if reuse and not _global_hooks() else None
    paths = ModulePaths(model) if task.rows else None
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
    return _summed(tape, walk, blocks, task.rows), blocks


def _summed(tape: Tape, walk: Walk, blocks: Blocks | None, by_module: bool) -> FastCount:
    """Add up what ran and what was predicted."""
    replays = [] if blocks is None else blocks.replays
    totals: Counter[str] = Counter()
    totals["forward"] += sum([form.forward[1] for form, _ in tape.products])
    totals["forward"] += sum([replay.template.forward_flop for replay in replays])
    totals["backward"] += sum([tape.products[place][0].backward_flop(mask) for place, mask in walk.found.products])
    totals["backward"] += sum([replay.backward_flop() for replay in replays])
    for name, _, _, flop in tape.executed:
        totals[name] += flop
    found = _with_totals(totals, tape.not_understood)
    return replace(found, rows=_rows(tape, walk, replays) if by_module else (), replayed=len(replays))


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


def _rows(tape: Tape, walk: Walk, replays: Sequence[Replay]) -> tuple[CountRow, ...]:
    """The same by module and kind."""
    table: Counter[tuple[str, str, str]] = Counter()
    for name, module, kind, flop in _shares(tape, walk, replays):
        if flop:
            table[name, module, kind] += flop
    return tuple(CountRow(*key, flop) for key, flop in table.items())


def _shares(tape: Tape, walk: Walk, replays: Sequence[Replay]) -> Iterator[tuple[str, str, str, int]]:
    """(phase, module, kind, model FLOP) of everything."""
    yield from (("forward", module, *form.forward) for form, module in tape.products)
    yield from tape.executed
    for place, mask in walk.found.products:
        form, module = tape.products[place]
        yield from (("backward", module, *share) for share in form.backward(mask))
    for replay in replays:
        products = replay.template.products
        yield from (("forward", _below(replay.path, where), *form.forward) for form, where in products)
        for place, mask in replay.products():
            form, where = products[place]
            yield from (("backward", _below(replay.path, where), *share) for share in form.backward(mask))


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
    table: Counter[tuple[str, str, str]] = Counter()
    totals: Counter[str] = Counter()
    unknown: Counter[tuple[str, str]] = Counter()
    for operation in trace.operations:
        flop = int(registry.cost(operation).model_flop)
        name = "forward" if operation.phase == "loss" else operation.phase
        totals[name] += flop
        if registry.bucket_of(operation.name) == "not_understood":
            unknown[name, operation.name] += 1
        if flop and task.rows:
            table[name, operation.module, operation.kind] += flop
    return replace(
        _with_totals(totals, unknown),
        rows=tuple(CountRow(*key, flop) for key, flop in table.items()),
        notes=(f"counted by the executed trace: {reason}",),
        executed=True,
    )
