"""Definition, injected fault: how inputs reach a model, in which batch and for which loss; its faults are one line."""

from typing import NamedTuple

import pytest
import torch
from torch import nn

from results.errors import Unavailable
from workloads.any_model import building, forward_parameters, positional, resized, split
from workloads.catalogue.base import mean_loss, tensors


class Needs(nn.Module):
    def forward(self, ids, mask, scale=2.0):
        return ids, mask, scale


@pytest.mark.parametrize(
    ("fault", "becomes", "said"),
    [
        (KeyError("a\nb"), ValueError, r"^net\.py raised KeyError: 'a\\nb'$"),
        (ValueError("two\n  lines"), ValueError, r"^net\.py raised ValueError: two lines$"),
        (ImportError("no such package"), Unavailable, r"^net\.py raised ImportError: no such package$"),
        (SystemExit(3), ValueError, r"^net\.py called sys\.exit\(3\): expected it to return a model"),
        (Unavailable("it is"), Unavailable, "^it is$"),
        (MemoryError("full"), MemoryError, "^full$"),
        (RuntimeError("x" * 1000), ValueError, rf"^net\.py raised RuntimeError: {'x' * 300}$"),
    ],
)
def test_what_others_raise_is_one_line(fault: BaseException, becomes: type[Exception], said: str) -> None:
    with pytest.raises(becomes, match=said), building("net.py"):
        raise fault


CPU = torch.device("cpu")


class Named(nn.Module):
    def forward(self, ids, mask=None, scale=2.0, *more, late=None, **rest):
        return ids, mask, scale, more, late


def bound(model, inputs, **named):
    return positional(forward_parameters(model), inputs, named)


def test_a_model_whose_forward_was_replaced_takes_what_the_new_one_takes():
    model = Named()
    model.forward = lambda tokens, width=4: (tokens, width)
    assert bound(model, (), width=1, tokens=2) == (2, 1)


def test_what_a_function_gives_as_inputs():
    x = torch.ones(1)
    assert split(x) == ((x,), {})
    assert split([x, 2]) == ((x, 2), {})
    assert split({"a": x}) == ((), {"a": x})
    assert split((x, {"a": 1})) == ((x,), {"a": 1})
    assert split(({"a": 1}, {})) == (({"a": 1},), {}), "an empty dict at the end: the one before is an input itself"
    for wrong in (3, "text", {1: x}, None):
        with pytest.raises(ValueError, match="expected inputs: a tensor, a dict of names, or a tuple"):
            split(wrong)


def test_an_example_is_brought_to_a_batch_size():
    example = {"ids": torch.tensor([[1, 2], [3, 4], [5, 6]]), "scale": torch.tensor(2.0), "mode": "mean"}
    larger = resized(example, 4, CPU)
    assert larger["ids"].tolist() == [[1, 2], [3, 4], [5, 6], [1, 2]]
    assert (larger["scale"], larger["mode"]) == (2.0, "mean")
    assert resized(example, 1, CPU)["ids"].tolist() == [[1, 2]]
    more = resized((torch.ones(2, 3, requires_grad=True),), 5, CPU)[0]
    assert (more.shape, more.requires_grad) == ((5, 3), True)
    with pytest.raises(ValueError, match="dimension 0 is the batch, all the same; got 1 and 3"):
        resized((torch.ones(1, 4), torch.ones(3)), 2, CPU)
    with pytest.raises(ValueError, match="one sample or more"):
        resized(torch.ones(0, 4), 2, CPU)


def test_an_example_is_used_as_it_was_given():
    """Whether it needs a gradient, how it lies in memory, and which tensor comes twice."""
    leaf = torch.ones(2, 3, requires_grad=True)
    image = torch.ones(2, 3, 4, 4).to(memory_format=torch.channels_last)
    for size in (2, 5):
        one, again, seen = resized((leaf, leaf, image), size, CPU)
        assert one is again
        assert one.requires_grad
        assert seen.is_contiguous(memory_format=torch.channels_last)
        assert seen.shape[0] == one.shape[0] == size


def test_what_has_no_rectangular_form_is_refused_with_what_to_give():
    rows = [torch.ones(3, 8), torch.ones(5, 8)]
    with pytest.raises(ValueError, match=r"a nested tensor is not counted.*give them padded"):
        resized((torch.nested.nested_tensor(rows, layout=torch.jagged),), 2, CPU)
    with pytest.raises(ValueError, match=r"layout torch\.sparse_coo is not counted: give a dense one"):
        resized((torch.eye(4).to_sparse(),), 4, CPU)


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Cache:
    """An object that is no mapping, as a cache of keys and values is."""


def test_the_loss_is_the_mean_of_each_output_that_has_a_gradient():
    """Means 2 and 5 of the two that have one: 7. The gradient of a mean of n elements is 1/n."""
    first = torch.tensor([1.0, 3.0], requires_grad=True)
    second = torch.tensor([5.0], dtype=torch.float64, requires_grad=True)
    output = {"pair": Pair(first, second), "cache": Cache(), "counted": [torch.tensor(3), torch.ones(2)], "none": None}
    assert len(list(tensors(output))) == 4
    loss = mean_loss(output)
    loss.backward()
    assert loss.item() == 7
    assert first.grad.tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="expected an output that depends on a parameter; got list"):
        mean_loss([torch.ones(2)])


def test_what_has_no_position_is_refused():
    with pytest.raises(Unavailable, match="forward takes 'late' by name only"):
        bound(Named(), (), ids=1, late=3)
    with pytest.raises(Unavailable, match=r"forward takes 'msk' by name only.*nearest: mask"):
        bound(Named(), (), ids=1, msk=3)
    with pytest.raises(Unavailable, match="forward needs 'ids', which is not among the inputs: mask"):
        bound(Named(), (), mask=1)
    with pytest.raises(ValueError, match="forward takes no 'msk'; it takes ids, mask, scale; nearest: mask"):
        bound(Needs(), (), ids=1, msk=3)
    with pytest.raises(ValueError, match="input 'ids' is given twice: by its name and as input 1"):
        bound(Needs(), (1,), ids=1)
