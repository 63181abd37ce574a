"""One step of a model at one point of its sizes, on fake tensors: its operations, storages and parameters.

Many small tables are made one after the other, and all of them are kept: Python's collector of cycles would look
through all of them, and all of torch and sympy, again and again, for a fifth of the time. So the command works without
it (`measure/collector.py`), and `tidied` collects now and then.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from results.errors import Unavailable

if TYPE_CHECKING:
    from runners.formula_points import Subject

MOST_WORDS = 200
"""Letters of what a model's own code says."""

COLLECTED = 32
"""Points after which garbage is collected, where it is not by itself."""


def tidied(points: int) -> None:
    """Collect what garbage that many points have left, if it is time to."""
    if points % COLLECTED == 0 and not gc.isenabled():
        gc.collect()


def why(fault: Exception) -> str:
    """What kept a step from being had, with the line of the model's own code."""
    from runners.formula_lines import raised_at

    plain = isinstance(fault, (Unavailable, ValueError))
    said = " ".join(str(fault).split())[:MOST_WORDS]
    where = raised_at(fault)
    return ("" if plain and said else f"{type(fault).__name__}: ") + said + (f" ({where})" if where else "")


def traced(subject: Subject, sizes: Mapping[str, int], batch_size: int) -> tuple[Any, Any, Any]:
    """The operations, storages and parameters of a step with these sizes. Raises what the model does."""
    import torch

    from measure.fake import fake_mode, quiet, to_fake
    from measure.operations import trace_step
    from runners.counted import get
    from workloads.training import TrainingStep, have_state, optimizer_of

    with quiet():
        workload = get(subject.model, **subject.fixed, **sizes)
        with torch.device("meta"):
            model = workload.build(**workload.hyper).train()
        parameters = tuple((name, tuple(parameter.shape)) for name, parameter in model.named_parameters())
        mode = fake_mode()
        to_fake(model, mode)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        with mode:
            batch = workload.batch(workload.hyper, batch_size, torch.device("cpu"), None)
            optimizer = optimizer_of(subject.optimizer, workload, trained)
            autocast = getattr(torch, subject.autocast) if subject.autocast else None
            step = TrainingStep(model, workload.loss, optimizer, [batch], "cpu", autocast)
            have_state(optimizer, trained)
        inputs = (batch.inputs, batch.target)
        found = trace_step(step, model=model, optimizer=optimizer, inputs=inputs, mode=mode, steps_before=0)
    return found.operations, found.storages, parameters
