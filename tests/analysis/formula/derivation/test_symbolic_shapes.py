"""Formulas against PyTorch's own symbolic shapes: another route to the same counts, where it has one."""

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from analysis.formula.derivation.derive import formulas
from analysis.formula.derivation.sampling import Axis
from analysis.formula.derivation.totals import totals
from analysis.operators import registry
from measure.dispatch.sizes import symbol
from measure.fake.mode import fake_mode, to_fake
from measure.operations.tracer import trace_step
from runners.formula.points import Subject, names_of, sampler
from runners.workers.any_model import get
from workloads.catalogue.base import Batch
from workloads.training.step import OPTIMIZERS, TrainingStep


def by_shape_env(model, hints, shape):
    """The cost of a step with plain SGD whose input's sizes are torch's symbols. hints: a size that no other has."""
    workload = get(model, num_classes=10)
    with torch.device("meta"):
        module = workload.build(**workload.hyper).train()
    env = ShapeEnv()
    mode = fake_mode(env)
    sizes = {name: symbol(env, name, hint) for name, hint in hints.items()}
    to_fake(module, mode)
    with mode:
        inputs = torch.randn(shape(**sizes))
        batch = Batch((inputs,), torch.zeros(inputs.shape[0], dtype=torch.long))
        optimizer = OPTIMIZERS["sgd-plain"](module.parameters())
    step = TrainingStep(module, workload.loss, optimizer, [batch], "cpu")
    found = trace_step(step, model=module, optimizer=optimizer, inputs=(inputs, batch.target), mode=mode)
    return registry.total(found.operations), found.notes


def ours(model, axes):
    sizes = get(model, num_classes=10).hyper
    subject = Subject(model, sizes, {}, names_of(sizes), 2, "sgd-plain")
    return totals(formulas(sampler(subject), axes))


def test_a_batch():
    cost, notes = by_shape_env("resnet18", {"batch": 41}, lambda batch: (batch, 3, 224, 224))
    assert notes == ()
    mine = ours("resnet18", [Axis("batch", 3)])
    theirs = {"model_flop": cost.model_flop, "all_flop": cost.all_flop, "bytes_accessed": cost.moved_bytes}
    for name, counted in theirs.items():
        assert sympy.expand(mine[name] - counted) == 0, name


def test_an_image_that_is_strided_and_padded():
    """Their floors of floors and our ceilings are equal at every size, whatever they look like."""
    cost, _ = by_shape_env("squeezenet1_1", {"batch": 37, "image": 203}, lambda batch, image: (batch, 3, image, image))
    mine = ours("squeezenet1_1", [Axis("batch", 3), Axis("image", 64)])
    batch, image = (sympy.Symbol(name, integer=True, positive=True) for name in ("batch", "image"))
    for size in range(64, 64 + 2 * 16 + 1):  # it halves four times: two periods
        at = {batch: 5, image: size}
        assert mine["model_flop"].subs(at) == cost.model_flop.subs(at), size
