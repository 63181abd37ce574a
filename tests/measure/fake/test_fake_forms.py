"""What is worked out from sizes is what PyTorch's own fake kernel returns: sizes, strides, dtype and bytes."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from measure.fake.mode import FakeMode, fake_mode
from measure.fake.shape_rules import FORMS, SELF, UNKNOWN
from measure.fake.shape_rules_joining import JOINED
from measure.fake.shape_rules_layers import LAYERS

aten = torch.ops.aten
RULES = FORMS | JOINED | LAYERS
DTYPES = (torch.float32, torch.bfloat16, torch.int64)

SHAPES: dict[str, Callable[[torch.dtype], torch.Tensor]] = {
    "contiguous": lambda dtype: torch.empty(2, 3, 4, 5, dtype=dtype),
    "flat": lambda dtype: torch.empty(6, 4, dtype=dtype),
    "channels last": lambda dtype: torch.empty(2, 3, 4, 5, dtype=dtype).to(memory_format=torch.channels_last),
    "transposed": lambda dtype: torch.empty(4, 6, dtype=dtype).t(),
    "expanded": lambda dtype: torch.empty(2, 1, 4, 5, dtype=dtype).expand(2, 3, 4, 5),
    "sliced": lambda dtype: torch.empty(2, 3, 4, 9, dtype=dtype)[..., ::2],
    "a part of each row": lambda dtype: torch.empty(4, 9, dtype=dtype)[:, 2:6],
    "a column": lambda dtype: torch.empty(5, 3, dtype=dtype)[:, 1],
    "time before batch": lambda dtype: torch.empty(4, 3, 5, dtype=dtype).transpose(0, 1),
    "broadcast over time": lambda dtype: torch.empty(3, 1, 5, dtype=dtype).expand(3, 4, 5),
    "of one row": lambda dtype: torch.empty(1, 3, 1, 1, dtype=dtype),
    "of one column": lambda dtype: torch.empty(4, 1, dtype=dtype),
    "one number": lambda dtype: torch.empty((), dtype=dtype),
    "nothing": lambda dtype: torch.empty(0, 3, dtype=dtype),
    "odd strides of one element": lambda dtype: torch.empty(20, dtype=dtype).as_strided((1, 4), (7, 1)),
}


def other(x: torch.Tensor, *sizes: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.empty(sizes, dtype=dtype or x.dtype)


def pairs(x: torch.Tensor) -> list[Any]:
    sizes = [(), (5,), (3, 1, 1), (3, 4, 1), (3, 1, 5), (2, 1, 4, 1), (7, 1, 1, 1, 1), (4,), (6, 1), (1, 4)]
    tensors = [x, torch.empty_like(x), *(other(x, *each) for each in sizes), other(x, dtype=torch.int64)]
    return [*((x, y) for y in tensors), *((x, number) for number in (2, 0.5, True)), (2, x), (torch.empty(x.shape), x)]


def dims(x: torch.Tensor) -> list[Any]:
    return [(x, each, keep) for each in ([0], [-1], [0, 1], [1, 0], [0, 0], [9], []) for keep in (False, True)]


def factories(low: tuple[Any, ...] = ()) -> list[Any]:
    kinds = ({}, {"dtype": torch.float64}, {"device": torch.device("cpu"), "pin_memory": False}, {"dtype": torch.int64})
    return [(*low, size, kwargs) for size in ([2, 3], [], [0, 2]) for kwargs in kinds]


def normed(x: torch.Tensor) -> list[Any]:
    if x.dim() < 2:
        return []
    given = [torch.empty(x.shape[1], dtype=torch.float32) for _ in range(4)]
    same = [other(x, x.shape[1]) for _ in range(4)]
    wrong = [other(x, x.shape[1] + 1) for _ in range(4)]
    calls = [(x, *each, train, 0.1, 1e-5) for each in (given, same, wrong) for train in (True, False)]
    return [*calls, (x, None, None, None, None, True, 0.1, 1e-5), (x, None, None, None, None, False, 0.1, 1e-5)]


def normed_backward(x: torch.Tensor) -> list[Any]:
    if x.dim() < 2:
        return []
    grads = (torch.empty_like(x), other(x, *x.shape), other(x, *x.shape, dtype=torch.float32))
    masks = ([True] * 3, [True, False, False], [True, True, False])
    w = torch.empty(x.shape[1])
    return [(g, x, w, w, w, w, w, train, 1e-5, mask) for g in grads for train in (True, False) for mask in masks]


def layered(x: torch.Tensor) -> list[Any]:
    sizes = [list(x.shape[-count:]) for count in (1, 2) if x.dim() >= count] + [[9], []]
    return [
        (x, size, *given, 1e-5)
        for size in sizes
        for given in ((None, None), (other(x, *size),) * 2, (other(x, *size, dtype=torch.float32), None))
    ]


def layered_backward(x: torch.Tensor) -> list[Any]:
    if x.dim() < 2:
        return []
    size, kept = x.shape[-1:], other(x, *x.shape[:-1], 1)
    masks = ([True] * 3, [True, False, False], [False, True, True])
    weights = ((other(x, *size),) * 2, (None, None), (other(x, *size, dtype=torch.float64),) * 2)
    return [(torch.empty_like(x), x, list(size), kept, kept, *given, mask) for given in weights for mask in masks]


def convolved(x: torch.Tensor) -> list[Any]:
    if x.dim() != 4:
        return [
            (other(x, 2, 4, 9), other(x, 6, 2, 3), other(x, 6), [2], [1], [1], False, [0], 2),
            (other(x, 4, 9), other(x, 6, 4, 3), None, [2], [1], [1], False, [0], 1),
        ]
    c = x.shape[1]
    weights = [
        (other(x, 6, c, 3, 3), 1),
        (other(x, 6, c, 1, 1), 1),
        (other(x, 2 * c, 1, 3, 3), c),
        (other(x, 6, c + 1, 1, 1), 1),
    ]
    last = other(x, 6, c, 3, 3).to(memory_format=torch.channels_last)
    settings = [([1, 1], [1, 1], [1, 1]), ([2, 1], [0, 2], [2, 1]), ([3], [1], [1]), ([1, 1], [0, 0], [4, 4])]
    return [
        (x, w, bias, *each, turned, [0, 0], groups)
        for w, groups in [*weights, (last, 1)]
        for bias in (None, other(x, w.shape[0]))
        for each in settings
        for turned in (False, True)
    ]


def convolved_backward(x: torch.Tensor) -> Iterator[Any]:
    for given, w, bias, *rest in convolved(x):
        if rest[3] or given.dim() == 2:
            continue
        try:
            grad = torch.empty_like(aten.convolution.default(given, w, bias, *rest))
        except RuntimeError:
            continue
        for mask in ([True, True, bias is not None], [False, True, False], [True, False, False]):
            yield grad, given, w, [w.shape[0]] if bias is not None else None, *rest, mask


def chosen(x: torch.Tensor) -> list[Any]:
    targets = [torch.zeros(n, dtype=torch.int64) for n in x.shape[:1]] + [torch.zeros(9, dtype=torch.int64)]
    return [(x, t, weight, mean, -100) for t in targets for weight in (None, other(x, x.shape[-1] if x.dim() else 1))
            for mean in (0, 1, 2)]  # fmt: skip


def chosen_backward(x: torch.Tensor) -> list[Any]:
    calls = [call for call in chosen(x) if x.dim() == 2 and call[1].shape == x.shape[:1]]
    return [(other(x, *(() if c[3] else c[1].shape)), *c, other(x)) for c in calls]


def lstm_tensors(x: torch.Tensor) -> list[Any]:
    """Input, weights, biases and states of a layer of 4 over 7 steps of 2 samples of 3."""
    return [other(x, *sizes) for sizes in ((7, 2, 3), (16, 3), (16, 4), (16,), (16,), (2, 4), (2, 4))]


def lstm(x: torch.Tensor) -> list[Any]:
    made = lstm_tensors(x)
    return [(*made, back, [], mode, 4, 1, True, False, first, True) for back in (False, True) for mode in (2, 3)
            for first in (False, True)]  # fmt: skip


def lstm_backward(x: torch.Tensor) -> list[Any]:
    made = lstm_tensors(x)
    grads = [other(x, 7, 2, 4), other(x, 2, 4), other(x, 2, 4)]
    return [(*made, *grads, *grads, False, 2, 4, 1, True, True, False, [], False, other(x, 0))]


def twice(x: torch.Tensor) -> list[Any]:
    return [(x, x), (torch.empty_like(x), x), (x, other(x, *x.shape)), (x, other(x, *x.shape, dtype=torch.float64)),
            (x, other(x, 1))]  # fmt: skip


CALLS: dict[Any, Callable[[torch.Tensor], Any]] = {
    **{getattr(aten, f"{name}{end}").Tensor: pairs for name in ("add", "sub", "mul", "div") for end in ("", "_")},
    **{getattr(aten, f"{name}{end}").Scalar: lambda x: [(x, n) for n in (2, 0.5, True)]
       for name in ("add", "sub", "mul", "div") for end in ("", "_")},
    **dict.fromkeys((aten.clone.default, aten.empty_like.default, aten.zeros_like.default, aten.ones_like.default),
                    lambda x: [(x,), *((x, {"memory_format": each}) for each in
                               (torch.contiguous_format, torch.preserve_format, torch.channels_last))]),
    **dict.fromkeys((aten.sum.dim_IntList, aten.mean.dim), dims),
    **dict.fromkeys((aten._softmax.default, aten._log_softmax.default),
                    lambda x: [(x, dim, widened) for dim in (-1, 0, 1, 7) for widened in (False, True)]),
    **dict.fromkeys((aten._softmax_backward_data.default, aten._log_softmax_backward_data.default),
                    lambda x: [(*two, dim, dtype) for two in twice(x) for dim in (0, -1, 9)
                               for dtype in (x.dtype, torch.float16)]),
    **dict.fromkeys((aten.tanh_backward.default, aten.sigmoid_backward.default, aten.gelu_backward.default), twice),
    **dict.fromkeys((aten.empty.memory_format, aten.zeros.default, aten.ones.default, aten.randn.default,
                     aten.rand.default), lambda _x: factories()),
    aten.randn.generator: lambda _x: [(size, {**kwargs, "generator": None}) for size, kwargs in factories()],
    aten.randint.default: lambda _x: factories((9,)),
    aten.randint.generator: lambda _x: [(9, size, {**kw, "generator": None}) for size, kw in factories()],
    aten.randint.low: lambda _x: factories((1, 9)),
    aten.randint.low_generator: lambda _x: [(1, 9, size, {**kw, "generator": None}) for size, kw in factories()],
    **dict.fromkeys((aten.new_zeros.default, aten.new_empty.default), lambda x: factories((x,))),
    aten._to_copy.default: lambda x: [(x, {"dtype": d}) for d in (torch.float64, torch.int32)]
    + [(x, {"dtype": torch.float32, "memory_format": torch.channels_last}), (x, {"device": torch.device("cpu")})],
    aten.threshold_backward.default: lambda x: [(*two, 0) for two in twice(x)],
    aten.pow.Tensor_Scalar: lambda x: [(x, 2), (x, 0.5), (x, True)],
    aten.lerp_.Scalar: lambda x: [(x, torch.empty_like(x), 0.1), (x, other(x, 9), 0.1), (x, other(x, 1), 0.1)],
    aten.addcmul_.default: lambda x: [(x, *two, {"value": 2}) for two in twice(x)],
    aten.addcdiv_.default: lambda x: [(x, *two, {"value": -0.1}) for two in twice(x)],
    aten.fill_.Scalar: lambda x: [(x, 0), (x, 0.5), (x, 1)],
    aten.copy_.default: lambda x: [(x, y) for _, y in twice(x)],
    aten.mm.default: lambda x: [(x, other(x, *x.shape[-1:], 3)), (x, other(x, 3, *x.shape[:1]).t()), (x, x),
                                (other(x, 3, 6), x), (x, other(x, 4, 1)), (x, other(x, 4, 2, dtype=torch.float64))],
    aten.bmm.default: lambda x: [(other(x, 2, 3, 4), other(x, 2, 4, n)) for n in (0, 1, 5)]
    + [(other(x, 2, 3, 4), other(x, 3, 4, 5)), (other(x, 2, 4, 3).transpose(1, 2), other(x, 2, 4, 5))],
    aten.addmm.default: lambda x: [(other(x, n), x, other(x, 4, n)) for n in (0, 1, 5)]
    + [(other(x, 5), x, other(x, 5, 4).t()), (other(x, 3), x, other(x, 4, 5)), (other(x, 6, 5), x, other(x, 4, 5)),
       (other(x, 5), x, other(x, 4, 5), {"beta": 0}), (other(x), x, other(x, 4, 5))],
    aten.cat.default: lambda x: [([x, x], 0), ([x, x], -1), ([x], 1), ([x, other(x, 2, 7, 4, 5)], 1),
                                 ([x, other(x, 9)],), ([x, other(x, *x.shape, dtype=torch.float64)], 0),
                                 ([x, other(x, 0)], 0)],
    aten.stack.default: lambda x: [([x, x], 0), ([x, x], -1), ([x], 1), ([x, other(x, 9)],), ([x, x], 9)],
    aten.select_backward.default: lambda x: [(x, [3, *x.shape], 0, 1), (x, [3, *x.shape], 0, 5),
                                             (x, [*x.shape, 2], -1, -1), (x, [9, 9, 9], 0, 1)],
    aten.constant_pad_nd.default: lambda x: [(x, pad, *value) for value in ((), (0.5,)) for pad in (
        [1, 2], [0, 1, 2, 3], [0, 0], [-1, 2], [-1, -1], [1], [1] * 10, [0, 0, 1, 0, 0, 2])],
    aten.where.self: lambda x: [(c, *two) for two in twice(x) for c in (x > 0, torch.empty_like(x), other(
        x, 1, dtype=torch.bool), other(x, *x.shape, dtype=torch.bool))],
    **{getattr(aten, name).Scalar: lambda x: [(x, n) for n in (2, 0.5, True)]
       for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    **dict.fromkeys((aten.randn_like.default, aten.rand_like.default),
                    lambda x: [(x,), (x, {"pin_memory": False}), (x, {"dtype": torch.float64})]),
    aten.native_batch_norm.default: normed,
    aten.native_batch_norm_backward.default: normed_backward,
    aten.native_layer_norm.default: layered,
    aten.native_layer_norm_backward.default: layered_backward,
    aten.convolution.default: convolved,
    aten.convolution_backward.default: convolved_backward,
    aten.nll_loss_forward.default: chosen,
    aten.nll_loss_backward.default: chosen_backward,
    aten.embedding.default: lambda x: [(other(x, 7, 3), x), (other(x, 7, 3, dtype=torch.float32), x),
                                       (other(x, 7), x), (torch.empty(3, 7).t(), x)],
    aten.embedding_dense_backward.default: lambda x: [
        (x, torch.zeros(x.shape[:-1], dtype=torch.int64), 7, -1, False),
        (x, torch.zeros(9, dtype=torch.int64), 7, -1, False),
    ],
    aten.native_dropout.default: lambda x: [(x, 0.1, train) for train in (True, False, None)],
    aten.mkldnn_rnn_layer.default: lstm,
    aten.mkldnn_rnn_layer_backward.default: lstm_backward,
}  # fmt: skip


def form(value: Any) -> Any:
    """A tensor as sizes, strides, dtype and bytes; of a rule's output, those of a tensor so made."""
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[2], torch.dtype):
        value = torch.empty_strided(value[0], value[1], dtype=value[2], device="meta")
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride(), value.dtype, value.storage_offset(), value.untyped_storage().nbytes()
    return [form(each) for each in value] if isinstance(value, (tuple, list)) else value


@pytest.fixture(scope="module")
def mode() -> Iterator[FakeMode]:
    made = fake_mode()
    made.shortcuts = False
    with made:
        yield made


def outline(args: Any, seen: dict[int, int]) -> Any:
    """What a call's arguments are to fake tensors: forms, which are one tensor, and all else as it is."""
    if isinstance(args, torch.Tensor):
        return seen.setdefault(id(args), len(seen)), form(args)
    if isinstance(args, dict):
        return "kwargs", tuple((name, outline(value, seen)) for name, value in args.items())
    if isinstance(args, (tuple, list)):
        return type(args), tuple(outline(each, seen) for each in args)
    return type(args), args


FEW = ("contiguous", "channels last", "a part of each row", "one number", "nothing")
"""Shapes at which a dtype other than float32 is tried: dtypes promote by dimension, and strides do not ask for them."""

QUICK = [(torch.float32, name) for name in SHAPES] + [(dtype, name) for dtype in DTYPES[1:] for name in FEW]


@pytest.mark.parametrize("func", RULES, ids=str)
def test_what_is_worked_out_is_what_the_kernel_returns(func: Any, mode: FakeMode) -> None:
    holds(func, QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("func", RULES, ids=str)
def test_what_is_worked_out_is_what_the_kernel_returns_for_each_shape_of_each_dtype(func: Any, mode: FakeMode) -> None:
    holds(func, itertools.product(DTYPES, SHAPES))


def holds(func: Any, wanted: Iterable[tuple[torch.dtype, str]]) -> None:
    """Each call once: those without the tensor itself come again for each of its shapes."""
    known, done = 0, set()
    for dtype, name in wanted:
        x = SHAPES[name](dtype)
        try:
            calls = list(CALLS.get(func, lambda x: [(x,)])(x))
        except (RuntimeError, IndexError):  # no such call with these sizes
            continue
        for call in calls:
            if (key := outline(call, {})) not in done:
                done.add(key)
                known += worked_out(func, *call)
    assert known > 0  # a rule that never answers would be no use


def worked_out(func: Any, *args: Any) -> bool:
    kwargs = args[-1] if isinstance(args[-1], dict) else {}
    args = args[:-1] if kwargs or args[-1] == {} else args
    try:
        found = RULES[func](*args, **kwargs)
    except (TypeError, AttributeError, IndexError):  # as where rules are asked
        return False
    if found is UNKNOWN:
        return False
    expected = func(*args, **kwargs)  # where a rule answers, the kernel does not refuse
    if found is SELF:
        assert expected is args[0], (func, args)
    else:
        assert form(found) == form(expected), (func, args, kwargs)
    return True


def test_every_rule_is_of_a_call_that_may_be_made_again() -> None:
    from measure.dispatch.schemas import plan_of

    assert [str(func) for func in RULES if not (plan_of(func).again or plan_of(func).returns_self)] == []


def test_mistakes_are_the_kernels_to_tell() -> None:
    with fake_mode(), pytest.raises(RuntimeError, match=r"dim|shape|size"):
        torch.empty(2, 3) @ torch.empty(4, 5)
    with fake_mode(), pytest.raises(RuntimeError):
        F.conv2d(torch.empty(1, 3, 8, 8), torch.empty(4, 2, 3, 3))
    with fake_mode(), pytest.raises(RuntimeError):
        torch.empty(2, 3).add_(torch.empty(2, 4))
