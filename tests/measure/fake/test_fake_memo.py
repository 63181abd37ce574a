"""A result that is made again is that of this very call: no stale answer, whatever changed in between.

Models are built without weights where a count needs none: nothing is allocated, and inputs keep their values.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from measure.counters.harness.isolation import count_isolated
from measure.dispatch.schemas import plan_of
from measure.fake.building import built_on_meta, modules_on_meta
from measure.fake.cache import SELF
from measure.fake.mode import FakeMode, fake_mode
from measure.operations.tracer import clear_cache
from results.errors import Unavailable
from runners.count import command
from runners.workers.any_model import FACTORY, FAST
from tests.measure.operations.test_operations_fake import NETS
from tests.support.fakes.commands import running
from tests.support.nets.small_steps import Calls, fake_trace, parts, run

aten = torch.ops.aten


@pytest.fixture
def mode() -> Iterator[FakeMode]:
    clear_cache()
    with fake_mode() as made:
        yield made


def known(func: Any) -> int:
    return len(plan_of(func).made)


def test_the_same_call_is_made_again_with_memory_of_its_own(mode: FakeMode) -> None:
    x = torch.empty(3, 4)
    first, second = torch.erf(x), torch.erf(x)
    assert known(aten.erf.default) == 1
    assert (second.shape, second.stride(), second.dtype, second.device) == (x.shape, (4, 1), x.dtype, x.device)
    assert len({t.untyped_storage()._cdata for t in (x, first, second)}) == 3
    assert vars(second) == vars(first)
    assert vars(mode._memo.new((2,), (1,), torch.float32)) == vars(first)


def test_a_kept_result_is_not_looked_for_again(mode: FakeMode, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.empty(3, 4)
    torch.erf(x)
    monkeypatch.setattr(FakeMode, "_run", lambda *_: pytest.fail("torch was asked"))
    assert torch.erf(x).shape == (3, 4)


def test_sizes_strides_and_dtypes_tell_calls_apart(mode: FakeMode) -> None:
    x = torch.empty(4, 4)
    calls = [x, x.t(), torch.empty(4, 5), x.double(), torch.empty(16).as_strided((4, 4), (4, 1), 0)]
    found = [(out.shape, out.stride(), out.dtype) for out in map(torch.erf, calls)]
    assert found == [(c.shape, c.stride(), c.dtype) for c in calls]
    assert known(aten.erf.default) == 4  # the last is the first again


def test_numbers_and_their_types_tell_calls_apart(mode: FakeMode) -> None:
    whole = torch.empty(3, dtype=torch.int64)
    assert [(whole * n).dtype for n in (2, 2.0, True)] == [torch.int64, torch.float32, torch.int64]
    assert [torch.cumsum(torch.empty(2, 3), d).shape for d in (0, 1)] == [(2, 3), (2, 3)]
    assert [F.pad(whole, (0, n)).shape for n in (1, 2, 1)] == [(4,), (5,), (4,)]
    assert [torch.narrow_copy(whole, 0, 0, n).shape for n in (1, 2)] == [(1,), (2,)]


def test_numbers_in_a_list_are_told_apart_by_type(mode: FakeMode) -> None:
    whole = [torch.empty(3, dtype=torch.int64)]
    for number, dtype in ((1, torch.int64), (1.0, torch.float32), (1, torch.int64)):
        (out,) = torch._foreach_add(whole, [number])
        assert out.dtype is dtype


def test_keywords_tell_calls_apart(mode: FakeMode) -> None:
    x = torch.empty(2, 3, 4, 5)
    last = x.clone(memory_format=torch.channels_last)
    assert (x.clone().stride(), last.stride()) == (x.stride(), (60, 1, 15, 3))
    assert [torch.sum(x, dtype=d).dtype for d in (None, torch.float64, None)] == [x.dtype, torch.float64, x.dtype]


def test_training_is_an_argument(mode: FakeMode) -> None:
    x, c = torch.empty(2, 3, 4, 4), torch.empty(3)
    kept = [aten.native_batch_norm.default(x, c, c, c, c, train, 0.1, 1e-5)[1].shape for train in (True, False, True)]
    assert kept == [(3,), (0,), (3,)]


def test_autocast_casts_before(mode: FakeMode) -> None:
    a, b = torch.empty(2, 3), torch.empty(3, 4)
    found = []
    for on in (False, True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            found.append((a @ b).dtype)
    assert found == [torch.float32, torch.bfloat16, torch.float32]


def test_a_tensor_whose_form_changes_in_place_has_another_signature(mode: FakeMode) -> None:
    x = torch.empty(2, 3)
    assert torch.erf(x).shape == (2, 3)
    x.t_()
    assert (torch.erf(x).shape, torch.erf(x).stride()) == ((3, 2), (1, 3))
    x.resize_(5)
    assert torch.erf(x).shape == (5,)
    x.data = torch.empty(7, dtype=torch.float64)
    assert (torch.erf(x).shape, torch.erf(x).dtype) == ((7,), torch.float64)


def test_in_place_gives_the_argument_itself_and_views_share_its_memory(mode: FakeMode) -> None:
    x, y = torch.empty(2, 3), torch.empty(2, 3)
    for each in (x, y, x):
        assert each.add_(1) is each
        assert each.hypot_(y) is each
    assert set(plan_of(aten.hypot_.default).made.values()) == {SELF}
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


def test_another_mode_and_default_dtype_make_their_own(mode: FakeMode) -> None:
    x = torch.empty(3, dtype=torch.int64)
    assert torch.true_divide(x, 2).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.true_divide(x, 2).dtype is torch.float64
        assert torch.empty(2).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    with fake_mode() as inner:
        assert vars(torch.erf(torch.empty(3)))["fake_mode"] is inner


def test_tensors_with_values_have_no_signature(mode: FakeMode) -> None:
    memo, plan = mode._memo, plan_of(aten.erf.default)
    assert memo.signature(plan, (torch.empty(2),), {}) is not None
    assert memo.signature(plan, (torch.tensor(2.0),), {}) is None  # torch knows its value
    assert memo.signature(plan, (_real(),), {}) is None
    assert memo.signature(plan, (nn.Parameter(torch.empty(2)),), {}) is not None


def _real() -> torch.Tensor:
    with torch._C._DisableTorchDispatch():
        return torch.zeros(2)


def test_what_is_not_new_is_not_kept(mode: FakeMode) -> None:
    memo, x = mode._memo, torch.empty(2, 3)
    assert memo._parts((x.neg(), None), [x]) == (((2, 3), (3, 1), torch.float32), None)
    y = x.neg()
    for out in (x, x[1], (y, y), (y, y[1]), x.expand(5, 2, 3), x.double()[1:], (x.neg(), 1), 1, torch.tensor(1)):
        assert memo._parts(out, [x]) is None, out


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


class Reads(nn.Module):
    """Its construction reads a value."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(int(torch.ones(3).sum().item())))


def test_what_modules_hold_has_no_values_and_inputs_have_theirs():
    with modules_on_meta():
        model, x = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4)), torch.ones(2, 8)
    assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"meta"}
    assert float(x.sum()) == 16


def test_a_model_that_reads_values_while_it_is_built_is_built_with_them():
    assert {p.device.type for p in built_on_meta(Reads).parameters()} == {"cpu"}
    assert {p.device.type for p in built_on_meta(lambda: nn.Linear(2, 2)).parameters()} == {"meta"}


HUGE = """
import torch
from torch import nn
def build():
    return nn.Sequential(*(nn.Linear(2**17, 2**17, bias=False) for _ in range(4))), torch.ones(1, 2**17)
"""


def counted(model: str, hyper: dict[str, int]) -> list:
    return count_isolated("exact", model, hyper, (1,), 60.0, factory=FACTORY, registry={"exact": (FAST, "")})


def test_weights_that_no_machine_holds_are_counted(tmp_path):
    """4 products of 2¹⁷ × 2¹⁷, of weights of 275 GB; the first layer's input asks for no gradient."""
    (tmp_path / "huge.py").write_text(HUGE)
    forward, backward, _ = counted(f"{tmp_path}/huge.py:build", {})
    assert (forward.flop, backward.flop) == (4 * 2 * 2**34, 7 * 2 * 2**34)
    assert forward.peak_memory_bytes < 1.5e9


def test_gpt_of_175_billion_parameters_is_counted_in_a_process_of_its_own():
    """12 d² a layer and the head: 2 FLOP for each of a token, and 4 · length · d of attention a layer."""
    forward, *_ = counted("gpt", {"d_model": 12288, "layers": 96, "heads": 96, "seq": 2048})
    d, length = 12288, 2048
    vocabulary = (forward.parameters - 96 * 12 * d * d) // d  # and a few biases, norms and positions
    products = forward.flop - 2048 * 96 * (24 * d * d + 4 * length * d)
    assert forward.parameters > 170e9
    assert 0 < products <= 2 * 2048 * d * vocabulary


@pytest.mark.skipif(sys.platform != "linux", reason="what is free is read from Linux")
def test_counters_that_need_weights_are_left_out_with_the_reason(capsys, tmp_path):
    """32 layers of 12 · 8192² weights of 4 bytes, and as many gradients: 206 GB."""
    sizes = {"model_type": "gpt2", "n_embd": 8192, "n_layer": 32, "n_head": 64, "vocab_size": 64, "n_positions": 16}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    arguments = (f"hf:{tmp_path}", "--counters", "exact,fvcore", "--format", "json")
    code, out, _ = running(command.main, capsys)(*arguments)
    told = json.loads(out)
    (ours, theirs) = told["counters"]
    assert (code, ours["status"], theirs["status"]) == (0, "ok", "unavailable")
    assert "weights and gradients are 20" in theirs["reason"]
    assert told["exact"]["forward_flop"] > 2 * 16 * 32 * 12 * 8192**2
