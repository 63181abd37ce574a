"""The law of torch.profiler's FLOP: derived by hand, and as this torch writes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from cleaning.facts import inner_dtypes, profile_faults
from cleaning.facts.recorded_calls import call_faults, profiler_flop
from results.records import ProfiledOperation
from tests.support.nets.small_steps import Calls, parts
from tests.support.recordings.recordings import Tensor, call, mm, recorded

CONV = ((1, 1), (1, 1), (1, 1), 2)


@pytest.mark.parametrize(
    ("made", "flop"),
    [
        (mm(3, 4, 5), 2 * 3 * 4 * 5),
        (call("aten::addmm", Tensor(5), Tensor(3, 4), Tensor(4, 5), 1, 1), 2 * 3 * 4 * 5),
        (call("aten::bmm", Tensor(2, 3, 4), Tensor(2, 4, 5)), 2 * 2 * 3 * 4 * 5),
        (call("aten::baddbmm", Tensor(2, 3, 5), Tensor(2, 3, 4), Tensor(2, 4, 5)), 2 * 2 * 3 * 4 * 5),
        (call("aten::mul", Tensor(3, 4), Tensor(4)), 12),
        (call("aten::add", Tensor(3, 4), Tensor(4), 1), 12),
        # 2 images, 4 → 6 channels in two groups, 3 × 3 of 8 × 8 padded by 1, so 64 places; a number has 2 inputs · 9
        (call("aten::conv2d", Tensor(2, 4, 8, 8), Tensor(6, 2, 3, 3), None, *CONV), 2 * 2 * 64 * 6 * (2 * 9)),
        (call("aten::conv2d", Tensor(2, 4, 8, 8), Tensor(6, 2, 3, 3), None, (1, 1), "same", (1, 1), 2), None),
        (call("aten::mm", Tensor(3), Tensor(4, 5)), None),
        (call("aten::relu", Tensor(3, 4)), None),
        (call("aten::add", 1.0, Tensor(4)), None),
    ],
)
def test_the_law(made: ProfiledOperation, flop: int | None) -> None:
    assert profiler_flop(made) == flop


def net() -> nn.Module:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        x = self.grouped(self.conv(x)).flatten(2)
        return self.fc((torch.baddbmm(x, x, x.transpose(1, 2) @ x) * 2 + x).mean(1))

    layers = {"conv": nn.Conv2d(3, 4, 3, stride=2), "grouped": nn.Conv2d(4, 4, 3, groups=2, padding=1, dilation=1)}
    return Calls(forward, **layers, fc=nn.Linear(9, 2))


def test_this_torch_writes_what_the_law_says() -> None:
    """Each of its numbers is the law's, and the law has a number for each of its seven operators."""
    calls = recorded(parts(net))
    assert profile_faults(calls) == []
    counted = {each.name for each in calls if profiler_flop(each) is not None}
    assert counted == {
        "aten::conv2d",
        "aten::addmm",
        "aten::mm",
        "aten::bmm",
        "aten::baddbmm",
        "aten::mul",
        "aten::add",
    }
    assert inner_dtypes(calls) == {"float32"}


@pytest.mark.parametrize("lie", [{"found_flop": 60}, {"found_flop": None}, {"input_dtypes": ("floatx", "float")}])
def test_another_number_and_another_word_are_faults(lie: dict[str, Any]) -> None:
    assert list(call_faults(mm(3, 4, 5))) == []
    assert len(list(call_faults(replace(mm(3, 4, 5), **lie)))) == 1


def test_a_number_of_a_call_that_is_not_counted_is_a_fault() -> None:
    assert list(call_faults(call("aten::relu", Tensor(3, 4), found_flop=12))) == [
        "12 FLOP by its profiler, which counts none of such a call"
    ]


def test_the_dtype_is_that_of_the_innermost_product() -> None:
    """Under autocast the outer call has float32 operands, and the product inside of it is of bfloat16."""
    outer = call("aten::linear", Tensor(3, 4), Tensor(5, 4))
    inner = call(
        "aten::mm", Tensor(3, 4, dtype="c10::BFloat16"), Tensor(4, 5, dtype="c10::BFloat16"), index=1, parent=0
    )
    assert inner_dtypes([outer, inner]) == {"bfloat16"}
