"""A model as one stage of a pipeline, for real: torch.distributed.pipelining over torch.export, schedule 1F1B.

Stages begin with a layer, as in `analysis.parallel`. The model is exported with one micro-batch, so that one whose
control flow follows values is refused. A stage may be split over the tensor axis and repeated over the data axis: the
model is exported with its linear layers as wide as a rank's part, because an export writes sizes down; then the whole
ones are put in, and divided by the plan. Not claimed: a model whose samples are not all alike (a normalisation over the
batch sees a micro-batch alone), and gradients of weights that two stages hold, which are refused.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from analysis.parallel.rank_grid import RankGrid, nearest_divisor
from measure.parallel.model_split import split_model
from measure.parallel.styles import check_heads, matches, own_plan
from results.errors import one_line

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


Loss = Callable[[Any, Any], torch.Tensor]


class PipelineStage:
    """This rank's stage, of the ranks of the pipeline axis. model: what it holds and trains."""

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
    mesh: DeviceMesh | None = None,
    styles: Mapping[str, str] | None = None,
) -> PipelineStage:
    """The stage of this rank.

    inputs: of a replica's whole batch, tensors with the batch first; starts: the modules with which all stages but the
    first begin; mesh: of `rank_mesh`, None where all ranks are stages; styles: as in `split_model`. Raises ValueError
    for a model that cannot be exported or split.
    """
    from torch.distributed.pipelining import SplitPoint, pipeline

    part = first_microbatch(inputs, grid.microbatches)
    plan = own_plan(model) if styles is None else styles
    if grid.tp > 1:
        check_heads(model, plan, grid.tp)
    with _local_widths(model, plan, grid.tp):
        try:
            pipe = pipeline(model, part, split_spec=dict.fromkeys(starts, SplitPoint.BEGINNING))
            if pipe.num_stages != grid.pp:
                raise ValueError(f"it has {pipe.num_stages} stages")
            ranks = None if mesh is None else mesh["pp"].get_group()
            stage = pipe.build_stage(torch.distributed.get_rank(ranks), device, ranks)
        except Exception as fault:  # torch.export raises what it likes
            reason = one_line(" ".join(str(fault.__cause__ or fault).split()), 200)
            raise ValueError(f"pp={grid.pp}: torch.distributed.pipelining cannot split the model: {reason}") from fault
    if mesh is not None:
        if grid.tp > 1:
            _restore(stage.submod, model)
        graph = stage.submod.graph
        stage.submod = split_model(stage.submod, grid, mesh, plan, strict=False)
        if not hasattr(stage.submod, "graph"):  # DistributedDataParallel's: torch reads there what the stage receives
            stage.submod.graph = graph
    return PipelineStage(stage, grid.microbatches, loss, device, autocast)


@contextlib.contextmanager
def _local_widths(model: torch.nn.Module, plan: Mapping[str, str], ranks: int) -> Iterator[None]:
    """Inside, linear layers that the plan divides have the first rank's part of their weights. Raises ValueError for a
    width that the ranks do not divide."""
    kept: list[tuple[torch.nn.Linear, Any, Any]] = []
    dims = {"colwise": 0, "rowwise": 1}
    try:
        for pattern, style in plan.items() if ranks > 1 else ():
            for path in matches(model, pattern) if style in dims else ():
                layer, dim = model.get_submodule(path), dims[style]
                if isinstance(layer, torch.nn.Linear):
                    kept.append((layer, layer.weight, layer.bias))
                    _narrow(layer, path, dim, ranks)
        yield
    finally:
        for layer, weight, bias in kept:
            layer.weight, layer.bias = weight, bias


def _narrow(layer: torch.nn.Linear, path: str, dim: int, ranks: int) -> None:
    """The first of so many parts of a layer's weights. dim: 0 of what comes out, 1 of what goes in."""
    width = layer.weight.shape[dim]
    if width % ranks:
        near = nearest_divisor(width, ranks)
        raise ValueError(f"expected tp to divide the {width} features of {path}, got tp={ranks}; nearest {near}")
    layer.weight = torch.nn.Parameter(layer.weight.detach().chunk(ranks, dim)[0])
    if layer.bias is not None and dim == 0:
        layer.bias = torch.nn.Parameter(layer.bias.detach().chunk(ranks)[0])


def _restore(stage: torch.nn.Module, model: torch.nn.Module) -> None:
    """Put the model's own linear layers and embeddings in place of what the export made of them."""
    whole = dict(model.named_modules())
    for path, _ in list(stage.named_modules()):
        if isinstance(whole.get(path), (torch.nn.Linear, torch.nn.Embedding)):
            stage.set_submodule(path, whole[path])
