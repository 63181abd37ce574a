"""Law: a fake result that is made again is what torch answers to this very call, whatever changed in between.

Models are built without weights where a count needs none: nothing is allocated, and inputs keep their values.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from measure.operations.fake_mode import FakeMode, fake_mode
from measure.operations.fake_results import SELF, built_on_meta, modules_on_meta
from measure.operations.schemas import plan_of
from measure.operations.tracer import clear_cache
from results.errors import Unavailable
from tests.measure.operations.traced_nets import NETS
from tests.support.nets.small_steps import Calls, fake_trace, parts, run


class Reads(nn.Module):
    """Its construction reads a value."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(int(torch.ones(3).sum().item())))


aten = torch.ops.aten


@pytest.fixture
def mode() -> Iterator[FakeMode]:
    clear_cache()
    with fake_mode() as made:
        yield made


def known(func: Any) -> int:
    return len(plan_of(func).returned)


def test_the_same_call_is_made_again_with_memory_of_its_own(mode: FakeMode) -> None:
    x = torch.empty(3, 4)
    first, second = torch.erf(x), torch.erf(x)
    assert known(aten.erf.default) == 1
    assert (second.shape, second.stride(), second.dtype, second.device) == (x.shape, (4, 1), x.dtype, x.device)
    assert len({t.untyped_storage()._cdata for t in (x, first, second)}) == 3
    assert vars(second) == vars(first)
    assert vars(mode._memo.new((2,), (1,), torch.float32)) == vars(first)


def test_in_place_gives_the_argument_itself_and_views_share_its_memory(mode: FakeMode) -> None:
    x, y = torch.empty(2, 3), torch.empty(2, 3)
    for each in (x, y, x):
        assert each.add_(1) is each
        assert each.hypot_(y) is each
    assert set(plan_of(aten.hypot_.default).returned.values()) == {SELF}
    for _ in range(2):
        for view in (x.view(6), x[1], *x.split(1), *x.unbind(0), x.detach()):
            assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
    assert x[1].storage_offset() == 3


def test_values_are_not_kept(mode: FakeMode) -> None:
    for number in (3, 4):
        constant = torch.tensor(number)
        assert (constant + 1).item() == number + 1  # torch knows values of such tensors
    mode.enter_phase("forward")
    for func in (torch.nonzero, torch.Tensor.item):
        for _ in range(2):
            with pytest.raises(Unavailable):
                func(torch.empty(1))


def test_operators_that_write_or_depend_on_values_are_not_made_again() -> None:
    never = (aten.add_.Tensor, aten.view.default, aten.nonzero.default, aten.item.default, aten.resize_.default,
             aten.add.out, aten.masked_select.default, aten._local_scalar_dense.default, aten.t_.default)  # fmt: skip
    assert [str(func) for func in never if plan_of(func).again] == []
    assert plan_of(aten.erf.default).again
    assert plan_of(aten.native_batch_norm.default).again


class Checked(FakeMode):
    """Asks torch about each call that is answered without it, too."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.asked: Counter[str] = Counter()
        self._inside = False
        super().__init__()

    def _answer(self, plan: Any, seen: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        out = super()._answer(plan, seen, func, types, args, kwargs)
        if seen is not None and not self._inside:
            self._inside = True
            expected = self._run(func, types, args, kwargs)
            self._inside = False
            self.asked[plan.kind] += 1
            if described(out) != described(expected) or (plan.returns_self and out is not args[0]):
                self.wrong.append(f"{func}: {described(out)}, torch {described(expected)}")
        return out


def described(out: Any) -> Any:
    if isinstance(out, (tuple, list)):
        return [described(each) for each in out]
    if not isinstance(out, torch.Tensor):
        return out
    kept = {name: value for name, value in vars(out).items() if name != "fake_mode"}
    return (tuple(out.shape), out.stride(), out.dtype, out.storage_offset(), out.untyped_storage().nbytes(), out.device,
            out.requires_grad, kept)  # fmt: skip


def changed_in_place() -> None:
    x = torch.empty(2, 3)
    torch.erf(x)
    torch.erf(x.t_())
    torch.erf(x.resize_(5))
    x.data = torch.empty(7, dtype=torch.float64)
    torch.erf(x)


def under_another_default() -> None:
    for dtype in (torch.float32, torch.float64):
        torch.set_default_dtype(dtype)
        torch.true_divide(torch.empty(3, dtype=torch.int64), 2)


def normed(train: bool, x: torch.Tensor | None = None, mask: tuple[bool, ...] = (True, False, True)) -> None:
    x, channel = torch.empty(2, 3, 4, 4) if x is None else x, torch.empty(3)
    for weight in (channel, None):
        kept = aten.native_batch_norm.default(x, weight, weight, channel, channel, train, 0.1, 1e-5)[1:]
        means = kept if train else (None, None)
        aten.native_batch_norm_backward.default(
            torch.empty_like(x), x, weight, channel, channel, *means, train, 1e-5, mask
        )


TOLD_APART: dict[str, Callable[[], Any]] = {
    "sizes": lambda: [torch.erf(torch.empty(4, n)) for n in (4, 5)],
    "strides": lambda: [torch.erf(x) for x in (torch.empty(4, 4), torch.empty(4, 4).t())],
    "dtypes": lambda: [torch.erf(torch.empty(4, 4, dtype=d)) for d in (torch.float32, torch.float64)],
    "types of numbers": lambda: [torch.empty(3, dtype=torch.int64) * n for n in (2, 2.0, True)],
    "a number": lambda: [torch.narrow_copy(torch.empty(3), 0, 0, n) for n in (1, 2)],
    "numbers in a list": lambda: [F.pad(torch.empty(3), (0, n)) for n in (1, 2)],
    "their types": lambda: [torch._foreach_add([torch.empty(3, dtype=torch.int64)], [n]) for n in (1, 1.0)],
    "formats": lambda: [torch.empty(2, 3, 4, 5).clone(memory_format=f) for f in (None, torch.channels_last)],
    "a dtype by keyword": lambda: [torch.sum(torch.empty(2, 3), dtype=d) for d in (None, torch.float64)],
    "a keyword": lambda: [aten.var.correction(torch.empty(2, 3), [0], **{k: True}) for k in ("correction", "keepdim")],
    "a normalised form": lambda: [
        normed(True, x)
        for x in (torch.empty(4, 3), torch.empty(2, 3, 5, dtype=torch.bfloat16), torch.empty(2, 5, 3).transpose(1, 2))
    ],
    "gradients that are needed": lambda: [normed(True, mask=(first, True, not first)) for first in (True, False)],
    "training": lambda: [normed(train) for train in (True, False)],
    "a form that changes in place": changed_in_place,
    "the default dtype": under_another_default,
}
"""What tells calls apart → calls that are alike but for it."""


@pytest.mark.parametrize("what", TOLD_APART)
def test_calls_that_differ_in_one_thing_get_what_torch_answers_to_each(what: str) -> None:
    clear_cache()
    before, checked = torch.get_default_dtype(), Checked()
    try:
        with checked:
            for _ in range(2):
                TOLD_APART[what]()
    finally:
        torch.set_default_dtype(before)
    assert checked.wrong == []
    assert checked.asked


ATTENTION = parts(
    lambda: Calls(
        lambda s, x: s.fc(F.scaled_dot_product_attention(q := s.q(x).unsqueeze(1), q, q, is_causal=True).mean((1, 2))),
        q=nn.Linear(8, 8),
        fc=nn.Linear(8, 2),
    ),
    (2, 4, 8),
    optimizer="adamw",
    autocast=torch.bfloat16,
)


@pytest.mark.parametrize("net", [*NETS, "attention"])
def test_a_step_gets_what_torch_answers(net: str) -> None:
    build = NETS.get(net, ATTENTION)
    mode = Checked()
    recorded = run(build(mode), mode)
    assert mode.wrong == []
    assert sum(mode.asked.values()) > 50
    assert recorded == fake_trace(build)


def test_what_modules_hold_has_no_values_and_inputs_have_theirs():
    with modules_on_meta():
        model, x = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)), torch.ones(2, 8)
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"meta"}
    assert float(x.sum()) == 16


def test_a_model_that_reads_values_while_it_is_built_is_built_with_them():
    assert {p.device.type for p in built_on_meta(Reads).parameters()} == {"cpu"}
    assert {p.device.type for p in built_on_meta(lambda: nn.Linear(2, 2)).parameters()} == {"meta"}
