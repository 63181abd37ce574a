"""A model built on meta without initialisation is the model that is built with it: nothing but time is saved."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torchvision.models import get_model
from torchvision.models.regnet import BlockParams

from tests.workloads.vision.test_vision import FAST, NAMES, marked
from workloads.catalogue.catalogue import ENTRIES
from workloads.training.building import INITIALISERS, without_values
from workloads.vision import models as vision_models

META = torch.device("meta")


def described(model):
    """Modules, in order, with their types and plain settings, and all that a tensor is but its values."""
    modules = [(name, type(m), m.training, _settings(m)) for name, m in model.named_modules(remove_duplicate=False)]
    tensors = [
        (name, type(t), t.shape, t.stride(), t.dtype, t.device, t.requires_grad, t.is_leaf)
        for named in (model.named_parameters, model.named_buffers)
        for name, t in named(remove_duplicate=False)
    ]
    return modules, tensors, list(model.state_dict())


def _settings(module):
    return {name: value for name, value in vars(module).items() if type(value) in (int, float, str, tuple)}


@pytest.mark.parametrize("name", marked(NAMES, fast=FAST | {"regnet_y_400mf"}))
def test_the_model_is_the_one_that_is_built_with_initialisation(name):
    options = vision_models._options(name, ENTRIES[name].hyper)
    with torch.device("cpu" if name.startswith("regnet") else "meta"):
        expected = get_model(name, **options).train().to(META)
    states = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].tolist()
    with META:
        built = vision_models.build(name, **ENTRIES[name].hyper)
    assert described(built) == described(expected)
    assert random.getstate() == states[0]
    assert torch.equal(torch.get_rng_state(), states[1])
    assert np.random.get_state()[1].tolist() == states[2]


def test_no_function_of_initialisation_is_missing():
    """All that torch.nn.init names with a final underscore, of this torch."""
    found = {n for n, f in vars(nn.init).items() if n.endswith("_") and not n.startswith("_") and callable(f)}
    assert found == set(INITIALISERS)


def _functions():
    return [vars(nn.init)[name] for name in INITIALISERS] + [vars(BlockParams)["from_init_params"]]


def test_functions_are_as_before_also_after_a_failure():
    before, inside = _functions(), []

    def fail():
        with META, without_values(reading=vision_models._READING):
            inside.extend(_functions())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert all(now is not then for now, then in zip(inside, before, strict=True))
    assert all(now is then for now, then in zip(_functions(), before, strict=True))


def test_nested_and_in_two_threads_they_are_as_before():
    before, begun, done = _functions(), threading.Event(), []

    def second():
        begun.set()
        with META, without_values():
            done.append(nn.init.ones_ is not before[INITIALISERS.index("ones_")])

    other = threading.Thread(target=second)
    with META, without_values(), without_values():
        other.start()
        begun.wait()
        assert not done  # it waits
    other.join()
    assert done == [True]
    assert all(now is then for now, then in zip(_functions(), before, strict=True))


def test_real_tensors_are_initialised_as_ever():
    torch.manual_seed(0)
    expected = nn.Linear(3, 2)
    torch.manual_seed(0)
    with META, without_values():
        real = nn.Linear(3, 2, device="cpu")
        assert nn.init.constant_(tensor=real.bias, val=7.0) is real.bias
    assert torch.equal(real.weight, expected.weight)
    assert real.bias.tolist() == [7.0, 7.0]
