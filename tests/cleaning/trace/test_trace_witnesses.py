"""Calls without settings are counted by witnesses that agree, or not at all; each by its own.

Recordings are made here by torch.profiler and stripped to what older versions kept
(`tests/support/recordings/stripped_recordings.py`). What is right is what the same recording says with its settings,
which other tests hold against our exact count, or is worked out beside the test.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cleaning.trace.clean import clean
from tests.support.made_up_operations.made_up_kernels import MadeUp
from tests.support.nets.small_steps import Calls
from tests.support.recordings.recordings import Tensor
from tests.support.recordings.stripped_recordings import (
    ENGINE_THREAD,
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


@pytest.mark.parametrize("number", [False, True])
def test_a_training_step_of_resnet18_as_torch_1_8_recorded_it(
    resnet18_step: list[Event], tmp_path: Path, number: bool
) -> None:
    """Forward: 32 × 32 images through 20 convolutions and a linear layer, by the textbook's table of layers."""
    old = products(read_back(stripped(resnet18_step, number=number), tmp_path / "old.json"))
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


def with_a_loader(events: list[Event]) -> list[Event]:
    """The step twice, each after a call of a data loader whose batch has the sizes of no tensor of the net."""
    ends = max(event["ts"] + event.get("dur", 0) for event in events) + 100
    again = [{**event, "ts": event["ts"] + ends} for event in events]
    loaders = []
    for copy in (events, again):
        thread = next(event["tid"] for event in copy if event["tid"] != ENGINE_THREAD)
        begins = min(event["ts"] for event in copy) - 50
        base = {**copy[0], "ts": begins, "tid": thread}
        loaders += [
            {**base, "name": "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "dur": 40, "args": {}},
            {**base, "ts": begins + 1, "name": "aten::stack", "dur": 5, "args": {"Input dims": [[[3, 9, 9]], []]}},
        ]
    return [*loaders, *events, *again]


def test_steps_that_nobody_marked_with_a_data_loader_between(resnet18_step: list[Event], tmp_path: Path) -> None:
    once = counts(products(read_back(stripped(resnet18_step), tmp_path / "once.json")))
    twice = counts(products(read_back(with_a_loader(stripped(resnet18_step)), tmp_path / "twice.json")))
    assert twice == [*once, *once]
    assert None not in once


def residual(follow: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor], **modules: nn.Module) -> nn.Module:
    """A strided convolution (4 → 6 channels) whose output and input go into `follow`."""
    made = {"conv": nn.Conv2d(4, 6, 3, stride=2, padding=1, bias=False), **modules}
    return Calls(lambda self, x: follow(self, self.conv(x), x), **made)


FOLLOWERS: dict[str, tuple[nn.Module, bool]] = {
    "batch norm": (residual(lambda s, y, x: s.bn(y).mean(), bn=nn.BatchNorm2d(6)), True),
    "activation": (residual(lambda s, y, x: F.relu(y).mean()), True),
    "addition": (residual(lambda s, y, x: (y + s.skip(x)).mean(), skip=nn.Conv2d(4, 6, 1, stride=2)), True),
    "pooling": (residual(lambda s, y, x: F.max_pool2d(y, 4).flatten().mean()), True),
    "concatenation": (residual(lambda s, y, x: torch.cat([y, F.avg_pool2d(x, 2)], 1).mean()), True),
    "another convolution": (residual(lambda s, y, x: s.next(y).flatten().mean(), next=nn.Conv2d(6, 2, 1)), True),
    "dropout": (residual(lambda s, y, x: F.dropout(y, 0.5).mean()), True),
    "nothing": (residual(lambda s, y, x: y), False),
    "the input again": (residual(lambda s, y, x: F.relu(x).mean()), False),
}
"""What follows the convolution → whether a recording without gradients then tells its count."""


@pytest.mark.parametrize("name", FOLLOWERS)
def test_what_follows_a_convolution_tells_its_output(name: str, tmp_path: Path) -> None:
    model, tells = FOLLOWERS[name]
    with torch.no_grad():
        full, old = both(lambda: model(torch.randn(2, 4, 16, 16)), tmp_path)
    flop = 2 * (2 * 6 * 8 * 8) * 4 * 9
    assert full[0].expected_flop == flop
    assert old[0].expected_flop == (flop if tells else None)
    assert tells or old[0].reason == "aten::conv2d: the recording says neither its stride nor what comes out of it"


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
@pytest.mark.parametrize("number", [False, True])
def test_layers_in_training(layer: nn.Module, number: bool, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), layer, nn.ReLU(), nn.Flatten())
    full, old = both(train(model, torch.randn(2, 3, 9, 9)), tmp_path, number=number)
    assert counts(old) == counts(full)
    assert None not in counts(full)


def test_what_is_inside_a_convolution_tells_its_output(tmp_path: Path) -> None:
    """Two convolutions of one input of which nothing follows: oneDNN's calls inside take the output."""
    layer, other = nn.Conv2d(4, 4, 3, stride=2, bias=False), nn.Conv1d(4, 4, 3, stride=2)

    def run() -> None:
        with torch.no_grad():
            layer(torch.ones(2, 4, 9, 9))
            other(torch.ones(2, 4, 9))

    full, old = both(run, tmp_path, inner=True)
    assert counts(old) == counts(full) == [2 * (2 * 4 * 4 * 4) * 4 * 9, 2 * (2 * 4 * 4) * 4 * 3]


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


def test_equal_calls_are_counted_by_what_is_inside_each() -> None:
    made = MadeUp()
    for inner in (3, 5):
        at = made.call("aten::einsum", None, Tensor((2, 3, 5), (2, 3, 5)), settings=False)
        made.call("aten::bmm", Tensor(2, inner, inner), Tensor(2, inner, inner), parent=at, settings=False)
    found = clean(*made.tables()).instances
    assert [each.expected_flop for each in found] == [2 * 2 * 3**3, 2 * 2 * 5**3]


# --- witnesses that contradict each other ----------------------------------------------------------------------------


def step(*takers: tuple[str, Sizes], gradient: Sizes | None = None, inside: Sizes | None = None) -> Any:
    """The instance of a convolution that was recorded without settings, with the witnesses that are named."""
    made = MadeUp()
    at = made.call("aten::conv2d", Tensor(*X), Tensor(*W), settings=False)
    if inside:
        below = made.call("aten::mkldnn_convolution", Tensor(*X), Tensor(*W), parent=at, settings=False)
        made.call("aten::as_strided_", Tensor(*inside), None, parent=below, settings=False)
    for name, sizes in takers:
        made.call(name, Tensor(*sizes), settings=False)
    if gradient:
        operands = (Tensor(*gradient), Tensor(*X), Tensor(*W))
        made.call("aten::convolution_backward", *operands, phase="backward", thread=2, settings=False)
    return clean(*made.tables()).instances[0]


def test_witnesses_that_agree() -> None:
    assert step(("aten::relu", HALF)).expected_flop == HALF_FLOP
    assert step(gradient=HALF).expected_flop == HALF_FLOP
    assert step(inside=HALF).expected_flop == HALF_FLOP
    assert step(("aten::relu", X), ("aten::add", HALF), gradient=HALF, inside=HALF).expected_flop == HALF_FLOP
    assert step(("aten::relu", X), gradient=X, inside=X).expected_flop == WHOLE_FLOP


def test_a_gradient_that_contradicts_the_next_call_gives_no_count() -> None:
    for instance in (
        step(("aten::relu", X), gradient=HALF),
        step(("aten::relu", HALF), inside=X),
        step(gradient=HALF, inside=X),
    ):
        assert instance.expected_flop is None
        assert instance.reason == "aten::conv2d: what was recorded of its output does not agree"


def test_several_sizes_of_later_calls_give_no_count() -> None:
    branch = step(("aten::batch_norm", X), ("aten::relu", HALF))
    assert branch.expected_flop is None
    assert branch.reason == "aten::conv2d: later calls take tensors of 2 sizes that could come out of it"


def test_a_pooling_call_does_not_explain_a_larger_tensor() -> None:
    """The first is of an older tensor, the second of the output: neither is more likely."""
    pool = "aten::adaptive_avg_pool2d"
    assert step((pool, (2, 4, 1, 1)), (pool, HALF)).expected_flop is None


def test_the_call_right_after_decides_unless_it_may_take_the_input_again() -> None:
    """A convolution of 4 into 6 channels: batch norm, and a pooling call before the size changes once more."""
    made = MadeUp()
    made.call("aten::conv2d", Tensor(*X), Tensor(6, 4, 3, 3), settings=False)
    for name, size in (("aten::batch_norm", 16), ("aten::max_pool2d", 16), ("aten::relu", 8)):
        made.call(name, Tensor(2, 6, size, size), settings=False)
    (found,) = [each for each in clean(*made.tables()).instances if each.kind == "convolution"]
    assert found.expected_flop == 6 * WHOLE_FLOP // 4
    again = step(("aten::batch_norm", X), ("aten::max_pool2d", X), ("aten::relu", HALF))
    assert again.expected_flop is None


def test_an_output_that_cannot_be_gives_no_count() -> None:
    instance = step(("aten::relu", HALF), gradient=(2, 4, 99, 99))
    assert instance.expected_flop is None
    assert "cannot come out of it" in instance.reason


# --- products inside stand -------------------------------------------------------------------------------------------


def nested(*inner: tuple[Sizes, Sizes], gradient: Sizes | None = None) -> Any:
    """A convolution, or its gradients, without settings around matrix products."""
    made = MadeUp()
    if gradient:
        operands = (Tensor(*X), Tensor(*gradient), Tensor(*W))
        at = made.call("aten::cudnn_convolution_backward", *operands, phase="backward", settings=False)
    else:
        at = made.call("aten::conv2d", Tensor(*X), Tensor(*W), settings=False)
    for left, right in inner:
        made.call("aten::mm", Tensor(*left), Tensor(*right), parent=at, settings=False)
    if not gradient:
        made.call("aten::relu", Tensor(*HALF), settings=False)
    return clean(*made.tables()).instances[0]


def test_products_inside_a_convolution_stand_against_what_is_inferred() -> None:
    """Of each image a product of (4 × 36) and (36 × 64): 2 · 2 · 4 · 36 · 64 = HALF_FLOP."""
    image = ((4, 36), (36, 64))
    assert nested(image, image).expected_flop == HALF_FLOP
    assert nested(image).expected_flop is None
    assert nested(image).reason == "aten::conv2d: what was recorded of its output does not agree"


def test_a_number_inside_that_stands_on_sizes_is_never_taken_out() -> None:
    """One product inside has no sizes, the other more than what the next call lets the convolution be."""
    made = MadeUp()
    at = made.call("aten::conv2d", Tensor(*X), Tensor(*W), settings=False)
    made.call("aten::mm", parent=at)
    product = made.call("aten::mm", Tensor(64, 64), Tensor(64, 64), parent=at, settings=False)
    made.kernel(product, "volta_sgemm_64x32_sliced1x4_tn", source_flop=2 * 64**3)
    made.call("aten::relu", Tensor(*HALF), settings=False)
    found = clean(*made.tables())
    assert HALF_FLOP < 2 * 64**3
    assert (found.instances[0].expected_flop, found.instances[0].repaired_flop) == (None, 2 * 64**3)
    assert "more than what was inferred" in found.instances[0].reason


def test_products_inside_tell_how_many_gradients() -> None:
    one = ((8, 36), (36, 64))  # 2 · 8 · 36 · 64 = HALF_FLOP
    assert nested(one, gradient=HALF).units == 1
    assert nested(one, one, gradient=HALF).units == 2
    broken = nested(one, one, one, gradient=HALF)
    assert (broken.expected_flop, broken.reason) == (
        None,
        "aten::cudnn_convolution_backward: the products inside do not agree with its sizes",
    )


# --- gradients without a number --------------------------------------------------------------------------------------


def twin_convolutions(trained: int) -> list[int | None]:
    """Two convolutions of equal operands (stride 1, 2); the last `trained` of them have gradients, nothing follows."""
    made = MadeUp()
    for _ in range(2):
        made.call("aten::conv2d", Tensor(*X), Tensor(*W), settings=False)
    for sizes in (HALF, X)[:trained]:
        operands = (Tensor(*sizes), Tensor(*X), Tensor(*W))
        made.call("aten::convolution_backward", *operands, phase="backward", thread=2, settings=False)
    found = clean(*made.tables()).instances
    return [each.unit_flop for each in found if each.phase == "forward"]


def test_gradients_without_numbers_belong_in_reverse_order() -> None:
    """The second convolution's input, X, is a tensor that the first may return: all agree. One gradient may be of
    either, so that it speaks of none."""
    assert twin_convolutions(2) == [WHOLE_FLOP, HALF_FLOP]
    assert twin_convolutions(1) == [WHOLE_FLOP, None]
