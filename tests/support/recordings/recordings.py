"""Recorded calls for tests: made up ones, which need no torch, and real ones from torch.profiler."""

from collections.abc import Sequence
from typing import Any

from results.records.cell import Run
from results.records.counts import Operation, ProfiledOperation


class Tensor:
    """A tensor argument of a made up call; a list of tensors if its sizes are of several."""

    def __init__(self, *sizes: Any, dtype: str = "float") -> None:
        self.sizes, self.dtype = sizes, dtype


def call(name: str, *arguments: Any, index: int = 0, parent: int | None = None, **more: Any) -> ProfiledOperation:
    """A recorded call made up: an argument in a `Tensor` is one, everything else is a value."""
    fields: dict[str, Any] = {
        "work": "batch",
        "phase": "forward",
        "module": "",
        "sequence_nr": None,
        "forward_index": None,
        "thread": 1,
        "input_shapes": tuple(a.sizes if isinstance(a, Tensor) else () for a in arguments),
        "input_dtypes": tuple(a.dtype if isinstance(a, Tensor) else "" for a in arguments),
        "concrete_inputs": tuple(None if isinstance(a, Tensor) else a for a in arguments),
        "found_flop": None,
        "start_s": float(index),
        "time_s": 1.0,
    }
    return ProfiledOperation(index=index, parent=parent, name=name, **{**fields, **more})


def mm(m: int, k: int, n: int, index: int = 0, **more: Any) -> ProfiledOperation:
    """A matrix product, counted by its recorder unless `more` says otherwise."""
    return call("aten::mm", Tensor(m, k), Tensor(k, n), index=index, **{"found_flop": 2 * m * k * n, **more})


def a_run(**more: Any) -> Run:
    """A run whose batch of 2 was profiled."""
    fields = {"model": "net", "batch_size": 2, "device": "cpu", "session": "s", "status": "ok", "profiled": ("batch",)}
    return Run(**{"cell_id": "c", "attempt": 1, "methods": ("batch",), **fields, **more})


def recorded(build: Any, work: str = "batch") -> tuple[ProfiledOperation, ...]:
    """The calls of one real training step under torch.profiler; build: of `small_steps.parts`."""
    from measure.profile.recording import profile_step
    from measure.timing.clocks import Clock

    made = build(None)
    made.step(lambda phase: None)
    return profile_step(made.step, made.model, Clock(), pass_name=work, cuda=False, most_steps=1).operations


def table_flop(table: Sequence[Operation], *phases: str) -> int:
    """Model FLOP of some phases of a trace."""
    from analysis.operators.registry import total

    return int(total(o for o in table if o.phase in phases).model_flop)
