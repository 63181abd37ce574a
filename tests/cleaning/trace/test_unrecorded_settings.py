"""Law, definition: calls without recorded settings are counted by other sizes that agree, or not at all.

Recordings are made here by torch.profiler and stripped to what older versions kept
(`tests/support/recordings/stripped_recordings.py`). What is right is what the same recording says with its settings,
which other tests hold against our exact count, or is worked out beside the test.
"""

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cleaning.trace.clean import clean
from tests.support.made_up_operations.made_up_kernels import MadeUp
from tests.support.recordings.recordings import Tensor
from tests.support.recordings.stripped_recordings import (
    Event,
    both,
    counts,
    products,
    read_back,
    recorded,
    stripped,
    train,
)

Sizes = tuple[int, ...]


def nested(*inner: tuple[Sizes, Sizes]) -> Any:
    """The gradients of a convolution, whose output has the sizes HALF, without settings around matrix products."""
    made = MadeUp()
    operands = (Tensor(*X), Tensor(*HALF), Tensor(*W))
    at = made.call("aten::cudnn_convolution_backward", *operands, phase="backward", settings=False)
    for left, right in inner:
        made.call("aten::mm", Tensor(*left), Tensor(*right), parent=at, settings=False)
    return clean(*made.tables()).instances[0]


Sizes = tuple[int, ...]

X, W = (2, 4, 16, 16), (4, 4, 3, 3)
HALF = (2, 4, 8, 8)
WHOLE_FLOP = 2 * (2 * 4 * 16 * 16) * 4 * 3 * 3
HALF_FLOP = 2 * (2 * 4 * 8 * 8) * 4 * 3 * 3


# --- whole models ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def resnet18_step(tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    """A training step of ResNet-18 on two images of 32 × 32, as this torch records it."""
    from torchvision.models import resnet18

    path = tmp_path_factory.mktemp("resnet18") / "recorded.json"
    return recorded(train(resnet18(num_classes=10), torch.randn(2, 3, 32, 32)), path)


def test_a_training_step_of_resnet18_without_settings(resnet18_step: list[Event], tmp_path: Path) -> None:
    """Forward: 32 × 32 images through 20 convolutions and a linear layer, by the textbook's table of layers."""
    old = products(read_back(stripped(resnet18_step), tmp_path / "old.json"))
    assert counts(old) == counts(products(read_back(resnet18_step, tmp_path / "full.json")))
    first = 16 * 16 * 64 * 3 * 49
    stages = 4 * 8 * 8 * 64 * 64 * 9
    for size, channels in ((4, 128), (2, 256), (1, 512)):
        area, before = size * size, channels // 2
        stages += area * (channels * before * 9 + 3 * channels * channels * 9 + channels * before)
    forward = 2 * 2 * (first + stages + 512 * 10)
    assert sum(each.expected_flop for each in old if each.phase == "forward") == forward
    backward = sum(each.expected_flop for each in old if each.phase == "backward")
    assert backward == 2 * forward - 2 * 2 * first


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4),
        nn.Conv2d(4, 8, 3, groups=2),
        nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1),
        nn.ConvTranspose2d(4, 4, 2, stride=2, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 8, 1, stride=2),
    ],
    ids=str,
)
def test_layers_in_training(layer: nn.Module, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), layer, nn.ReLU(), nn.Flatten())
    full, old = both(train(model, torch.randn(2, 3, 9, 9)), tmp_path)
    assert counts(old) == counts(full)
    assert None not in counts(full)


# --- calls of equal operands -----------------------------------------------------------------------------------------


def einsums() -> dict[str, Callable[[], Any]]:
    a, b = torch.ones(8, 8, 8), torch.ones(8, 8, 8)
    return {  # multiply-adds: 8 · 8 · 8 · 8, 8 · 8 · 8, 8 ** 5
        "bij,bjk->bik": lambda: torch.einsum("bij,bjk->bik", a, b),
        "bij,bij->b": lambda: torch.einsum("bij,bij->b", a, b),
        "bij,kjl->bikl": lambda: torch.einsum("bij,kjl->bikl", a, b),
    }


def tensordots() -> dict[str, Callable[[], Any]]:
    a, b = torch.ones(8, 8, 8), torch.ones(8, 8, 8)
    return {
        "1": lambda: torch.tensordot(a, b, dims=1),
        "2": lambda: torch.tensordot(a, b, dims=2),
        "3": lambda: torch.tensordot(a, b, dims=3),
    }


EQUAL_OPERANDS = {
    "einsum": (einsums, {"bij,bjk->bik": 2 * 8**4, "bij,bij->b": 2 * 8**3, "bij,kjl->bikl": 2 * 8**5}),
    "tensordot": (tensordots, {"1": 2 * 8**5, "2": 2 * 8**4, "3": 2 * 8**3}),
}


@pytest.mark.parametrize("name", EQUAL_OPERANDS)
def test_calls_of_equal_operands_are_counted_by_what_is_inside_each(name: str, tmp_path: Path) -> None:
    make, flop = EQUAL_OPERANDS[name]
    made = make()
    for order in permutations(made):
        events = recorded(lambda order=order: [made[key]() for key in order], tmp_path / "recorded.json")  # type: ignore[misc]
        found = read_back(stripped(events), tmp_path / "old.json")
        assert counts(products(found)) == [flop[key] for key in order], order
        assert found.totals["repaired"]["forward_flop"] == sum(flop.values())
        assert "wrong_number" not in [reason for reason, *_ in found.faults]


# --- a convolution and its gradients ---------------------------------------------------------------------------------


def step(*gradients: Sizes, convolutions: int = 1) -> list[Any]:
    """Convolutions that were recorded without settings; the first ones have gradients, of these sizes."""
    made = MadeUp()
    forward = [made.call("aten::conv2d", Tensor(*X), Tensor(*W), settings=False) for _ in range(convolutions)]
    for at, sizes in zip(forward, gradients, strict=False):
        operands = (Tensor(*sizes), Tensor(*X), Tensor(*W))
        made.call("aten::convolution_backward", *operands, phase="backward", thread=2, forward_index=at, settings=False)
    return list(clean(*made.tables()).instances)


def test_the_gradient_of_the_output_tells_its_size() -> None:
    forward, backward = step(HALF)
    assert (forward.expected_flop, backward.unit_flop) == (HALF_FLOP, HALF_FLOP)
    assert step(X)[0].expected_flop == WHOLE_FLOP
    assert step()[0].reason == "aten::conv2d: neither its stride nor the size of its output was recorded"
    assert step((2, 4, 99, 99))[0].reason == "aten::conv2d: the recorded sizes contradict each other"


# --- products inside stand -------------------------------------------------------------------------------------------


def test_products_inside_tell_how_many_gradients() -> None:
    one = ((8, 36), (36, 64))  # 2 · 8 · 36 · 64 = HALF_FLOP
    assert nested(one).units == 1
    assert nested(one, one).units == 2
    broken = nested(one, one, one)
    assert (broken.expected_flop, broken.reason) == (
        None,
        "aten::cudnn_convolution_backward: the products inside do not agree with its sizes",
    )


def test_gradients_that_were_asked_for_are_unknown_where_parts_have_none() -> None:
    *_, backward = step(HALF, convolutions=2)
    assert backward.expected_flop is None
    assert backward.reason == "aten::convolution_backward: the recording does not say which gradients were asked for"
