"""A model as one stage of a pipeline, for real: torch.distributed.pipelining over torch.export, schedule 1F1B.

Stages begin with a layer, as in `analysis.parallel`. The model is exported with one micro-batch, so that one whose
control flow follows values is refused. Not claimed: a model whose samples are not all alike (a normalisation over the
batch sees a micro-batch alone), and gradients of weights that two stages hold, which are refused.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from results import one_line

if TYPE_CHECKING:
    from analysis.parallel import RankGrid

Loss = Callable[[Any, Any], torch.Tensor]


class PipelineStage:
    """This rank's stage of the default group, whose ranks are the stages. model: what it holds and trains."""

    def __init__(
        self, stage: Any, microbatches: int, loss: Loss, device: torch.device, autocast: torch.dtype | None = None
    ) -> None:
        """stage: of torch.distributed.pipelining; loss: of outputs and target; autocast: of forward pass and loss."""
        from torch.distributed.pipelining import Schedule1F1B

        self.model: torch.nn.Module = stage.submod
        self._stage = stage
        self._loss = loss
        self._has_target = True
        self._precision = contextlib.nullcontext if autocast is None else lambda: torch.autocast(device.type, autocast)
        if autocast is not None:
            stage.submod.forward = torch.autocast(device.type, autocast)(stage.submod.forward)
        self._schedule = Schedule1F1B(stage, n_microbatches=microbatches, loss_fn=self._loss_of)
        known = inspect.signature(self._schedule.step).parameters
        self._options: dict[str, Any] = {"return_outputs": False} if "return_outputs" in known else {}

    def run(self, inputs: Sequence[Any], target: Any) -> torch.Tensor | None:
        """Forward, loss and backward of a whole batch, all stages at once. Gives the mean loss of the micro-batches on
        the last stage, elsewhere None. Gradients are those of the mean."""
        if not self._stage.is_last:
            self._schedule.step(*(inputs if self._stage.is_first else ()), **self._options)
            return None
        self._has_target = target is not None
        if target is None:
            target = torch.zeros(next(each for each in inputs if isinstance(each, torch.Tensor)).shape[0])
        losses: list[torch.Tensor] = []
        self._schedule.step(target=target, losses=losses, **self._options)
        return torch.stack([each.detach() for each in losses]).mean()

    def _loss_of(self, output: Any, target: Any) -> torch.Tensor:
        output = output[0] if isinstance(output, tuple) and len(output) == 1 else output
        with self._precision():
            return self._loss(output, target if self._has_target else None)


def first_microbatch(inputs: Sequence[Any], count: int) -> tuple[Any, ...]:
    """The first of so many parts of a batch; what is no tensor as it is."""
    return tuple(each.chunk(count)[0] if isinstance(each, torch.Tensor) else each for each in inputs)


def pipeline_stage(
    model: torch.nn.Module,
    inputs: Sequence[Any],
    starts: Sequence[str],
    grid: RankGrid,
    loss: Loss,
    device: torch.device,
    autocast: torch.dtype | None = None,
) -> PipelineStage:
    """The stage of this rank.

    inputs: of a whole batch, tensors with the batch first; starts: the modules with which all stages but the first
    begin. Raises ValueError for a model that cannot be exported or split.
    """
    from torch.distributed.pipelining import SplitPoint, pipeline

    part = first_microbatch(inputs, grid.microbatches)
    try:
        pipe = pipeline(model, part, split_spec=dict.fromkeys(starts, SplitPoint.BEGINNING))
        if pipe.num_stages != grid.pp:
            raise ValueError(f"it has {pipe.num_stages} stages")
        stage = pipe.build_stage(torch.distributed.get_rank(), device)
    except Exception as fault:  # torch.export raises what it likes
        reason = one_line(" ".join(str(fault.__cause__ or fault).split()), 200)
        raise ValueError(f"pp={grid.pp}: torch.distributed.pipelining cannot split the model: {reason}") from fault
    return PipelineStage(stage, grid.microbatches, loss, device, autocast)
