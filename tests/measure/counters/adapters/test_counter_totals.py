"""Definition, known answer, law: rows of counters by hand, totals that each gives by itself, nothing left behind."""

import contextlib
import warnings
from types import SimpleNamespace

import calflops as upstream_calflops
import einops
import pthflops as upstream_pthflops
import pytest
import torch
import torch.nn.functional as F
import torchinfo as upstream_torchinfo
from calflops import calculate_flops
from deepspeed.profiling.flops_profiler import get_model_profile, profiler
from ptflops import get_model_complexity_info
from torch import nn

from measure.counters.adapters import ptflops as of_ptflops
from measure.counters.adapters.hooked import thop, torchinfo
from measure.counters.adapters.ptflops import ptflops, ptflops_aten
from measure.counters.adapters.traced import fvcore, pthflops
from measure.counters.adapters.wrapped import calflops, deepspeed
from results.errors import Inconsistent
from tests.support.nets.counted_nets import (
    IMAGES,
    PARAMETERS,
    Broken,
    Pair,
    Recurrent,
    Small,
    by_operator,
    counting,
    shared,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # as both adapters do where they import these
    import thop as upstream_thop
    from fvcore.nn import FlopCountAnalysis, parameter_count


def left_alone(model):
    """Whether no hook, attribute or buffer of a counter is on the model."""
    names = ("__flops__", "__macs__", "__params__", "total_ops", "total_params")
    hooks = [held for module in model.modules() for held in (module._forward_hooks, module._forward_pre_hooks)]
    return not any(hooks) and not any(hasattr(module, name) for module in model.modules() for name in names)


def leaves_nothing(count, mode, patched=tuple):
    """Counts `Small` twice: in this (training, gradients on), alike, and with the model and torch as they were.

    patched: gives the functions that the counter replaces while it counts. The model, counted.
    """
    model, before, own = Small().train(), patched(), set(vars(torch.Tensor))
    saved = set(model.state_dict())
    with torch.set_grad_enabled(not mode[1]):  # so that it is the counter who sets it
        first = count(model, torch.randn(IMAGES), batch_size=2)
    assert set(model.seen) == {mode}
    assert left_alone(model)
    assert set(model.state_dict()) == saved
    assert patched() == before
    assert set(vars(torch.Tensor)) == own
    assert count(model, torch.randn(IMAGES), batch_size=2) == first
    return model


def raises_and_leaves_nothing(count, patched=tuple):
    """A model that raises does so through the counter, and it and torch are as they were."""
    model, before = Broken(), patched()
    saved = set(model.state_dict())
    with pytest.raises(RuntimeError, match="no such thing"):
        count(model, torch.randn(2, 4))
    assert left_alone(model)
    assert set(model.state_dict()) == saved
    assert patched() == before


def by_calflops(model, *inputs, both=False):
    options = {"include_backPropagation": both, "print_results": False, "output_as_string": False}
    flop, _mac, parameters = calculate_flops(model, args=list(inputs), **options)
    return flop, parameters


def by_fvcore(model, *inputs):
    return FlopCountAnalysis(model.eval(), inputs).total(), parameter_count(model)[""]


def by_deepspeed(model, *inputs):
    flop, _mac, parameters = get_model_profile(model, args=list(inputs), print_profile=False, as_string=False)
    return flop, parameters


def by_thop(model, *inputs):
    return upstream_thop.profile(model, inputs, verbose=False)


def by_torchinfo(model, *inputs):
    summary = upstream_torchinfo.summary(model, input_data=list(inputs), verbose=0)
    return summary.total_mult_adds, summary.total_params


PRINTED = {
    "calflops": by_calflops, "deepspeed": by_deepspeed, "fvcore": by_fvcore, "thop": by_thop,
    "torchinfo": by_torchinfo,
}  # fmt: skip
"""Counter → what its user sees of a model: FLOP or multiply-adds, and parameters."""

IN_FLOP = {
    "F.conv2d": 2 * (43_200 + 3_600),
    "F.conv2d elementwise": 1_600,
    "F.batch_norm": 2 * 400,
    "F.relu": 400 + 12,  # the module calls it; the function too
    "F.max_pool2d": 400,  # its input
    "F.conv_transpose2d": 2 * 1_024,
    "F.conv_transpose2d elementwise": 128,
    "F.adaptive_avg_pool2d": 128,
    "F.linear": 2 * 48,  # its bias is not counted
}
ROWS = {
    "deepspeed": {name: (flop, "flop", flop) for name, flop in IN_FLOP.items()},
    # the transposed convolution's biases are those of an output of (2 − 2) // 2 + 1 = 1 × 1, not 4 × 4: 2·4
    "calflops": {name: (flop, "flop", flop) for name, flop in IN_FLOP.items()}
    | {"F.conv_transpose2d elementwise": (8, "flop", 8)},
    # the transposed convolution at its 4·4 outputs instead of 2·2 inputs; pooling 4 × 4 + 1 an output
    "thop": {
        "Conv2d": (46_800, "mac", 93_600),
        "BatchNorm2d": (4 * 400, "flop", 1_600),
        "ConvTranspose2d": (4 * 1_024, "mac", 8_192),
        "AdaptiveAvgPool2d": (17 * 8, "flop", 136),
        "Linear": (48, "mac", 96),
    },
    # weights and biases times positions, or times the batch of 2; the transposed convolution has 2·16 positions
    "torchinfo": {
        "Conv2d": (216 * 200 + 72 * 50, "mac", 93_600),
        "Conv2d elementwise": (8 * 200, "flop", 1_600),
        "BatchNorm2d": (16 * 2, "flop", 32),
        "ConvTranspose2d": (128 * 32, "mac", 8_192),
        "ConvTranspose2d elementwise": (4 * 32, "flop", 128),
        "Linear": (24 * 2, "mac", 96),
        "Linear elementwise": (6 * 2, "flop", 12),
    },
    "fvcore": {
        "conv": (46_800 + 1_024, "mac", 95_648),
        "batch_norm": (2 * 400, "flop", 800),
        "adaptive_avg_pool2d": (128, "flop", 128),  # its input
        "linear": (48, "mac", 96),
    },
    # normalisation 2 an element; activations and pooling their inputs: the module, and again the function it calls
    "ptflops": {
        "Conv2d": (46_800, "mac", 93_600),
        "Conv2d elementwise": (1_600, "flop", 1_600),
        "BatchNorm2d": (2 * 400, "flop", 800),
        "ReLU": (400, "flop", 400),
        "F.relu": (400 + 12, "flop", 412),
        "MaxPool2d": (400, "flop", 400),
        "F.max_pool2d": (400, "flop", 400),
        "ConvTranspose2d": (1_024, "mac", 2_048),
        "ConvTranspose2d elementwise": (128, "flop", 128),
        "AdaptiveAvgPool2d": (128, "flop", 128),
        "F.adaptive_avg_pool2d": (128, "flop", 128),
        "Linear": (48, "mac", 96),
        "Linear elementwise": (12, "flop", 12),
    },
}
"""Counter → operator → (native value, unit, FLOP) of `Small`."""

BESIDE = {
    "deepspeed": (PARAMETERS + 20, {"aten.sigmoid": 1}, {}),
    "calflops": (PARAMETERS + 20 - 72, {"aten.sigmoid": 1}, {}),  # it leaves out the frozen layer
    "thop": (PARAMETERS, {"ReLU": 1, "MaxPool2d": 1, "Dropout": 1}, {"Sigmoid": 1}),
    "torchinfo": (
        PARAMETERS + 20,
        {"aten.relu": 2, "aten.max_pool2d_with_indices": 1, "aten.mean": 1, "aten.sigmoid": 1},
        {},
    ),
    "fvcore": (
        PARAMETERS + 20,
        {"aten::relu": 2, "aten::flatten": 1, "aten::dropout": 1},
        {"aten::max_pool2d": 1, "aten::sigmoid": 1},
    ),
    "ptflops": (PARAMETERS + 20 - 72, {"Dropout": 1}, {"Sigmoid": 1}),  # without the frozen layer, too
}
"""Counter → parameters, and calls that are ignored and that are not understood."""


ADAPTERS = {each.__name__: each for each in (calflops, deepspeed, fvcore, ptflops, thop, torchinfo)}


@pytest.mark.parametrize("counter", ROWS)
def test_a_model_of_known_sizes(counter):
    total, *rows = counting(ADAPTERS[counter])(Small(), torch.randn(IMAGES), batch_size=2)
    assert by_operator(rows) == ROWS[counter]
    native, flop = (sum(row[place] for row in ROWS[counter].values()) for place in (0, 2))
    assert (total.native_value, total.flop) == (native, flop)
    assert (total.parameters, total.ignored, total.not_understood) == BESIDE[counter]
    if counter in PRINTED:
        assert PRINTED[counter](Small(), torch.randn(IMAGES)) == (native, total.parameters)
    assert ("note: modules never called: unused" in total.reason) == (counter == "fvcore")
    assert {(row.counter, row.workload, row.batch_size) for row in (total, *rows)} == {(counter, "w", 2)}


def test_ptflops_prints_what_modules_did_divided_by_the_batch():
    images = torch.randn(IMAGES)
    (total, *_) = counting(ptflops)(Small(), images, batch_size=2)
    (alone, *_) = counting(ptflops)(Small(), images[:1])
    printed, _ = get_model_complexity_info(
        Small(), IMAGES[1:], print_per_layer_stat=False, as_strings=False, input_constructor=lambda _: images
    )
    functions = 412 + 400 + 128
    assert total.printed == printed == (total.native_value - functions) // 2 + functions
    assert f"ptflops printed {printed}:" in total.reason
    assert (2 * alone.native_value, alone.reason, alone.printed) == (total.native_value, "", None)


def test_the_backward_pass_of_calflops_is_twice_the_forward_pass_though_a_layer_is_frozen():
    model, images = Small(), torch.randn(IMAGES)
    rows = counting(calflops)(model, images, batch_size=2)
    forward, backward = (row for row in rows if (row.scope, row.operator) == ("total", ""))
    both, _ = by_calflops(model, images, both=True)
    assert forward.native_value + backward.native_value == both
    assert (backward.native_value, backward.flop) == (2 * forward.flop, 2 * forward.flop)
    assert backward.reason == "note: 2 × its forward pass, not counted"
    doubled = {name: (2 * n, unit, 2 * flop) for name, (n, unit, flop) in by_operator(rows).items()}
    assert by_operator(rows, "backward") == doubled


def test_a_recurrent_layer_has_its_products_although_deepspeed_gives_it_none():
    """Beside 2 a multiply-add, a layer, direction and step: − 2·64 for the first addition of each dot product,
    + 10·16 for the cell, + 128 biases = 160; of 2 layers, 10 steps, 2 directions."""
    model, sequence = Recurrent(), torch.randn(2, 5, 8)
    total, *rows = counting(deepspeed)(model, sequence, batch_size=2)
    assert by_operator(rows) == {
        "LSTM": (2 * Recurrent.MAC, "flop", 2 * Recurrent.MAC),
        "LSTM elementwise": (160 * 2 * 10 * 2, "flop", 6_400),
    }
    assert by_deepspeed(model, sequence)[0] == total.native_value


@pytest.mark.parametrize(
    ("layer", "gates", "beside"),
    [
        (nn.LSTM(8, 16, num_layers=2, bidirectional=True, batch_first=True), 4, 4 * (1 + 2) + 4),
        (nn.GRU(8, 16, num_layers=2, bidirectional=True, batch_first=True), 3, 3 * (1 + 2) + 1 + 3),
        (nn.RNN(8, 16, num_layers=2, bidirectional=True, batch_first=True), 1, 1 + 2),
        (nn.LSTM(8, 16, num_layers=2, bidirectional=True, batch_first=True, bias=False), 4, 4 + 4),
    ],
)
def test_recurrent_layers_of_thop(layer, gates, beside):
    """Weights gates·16·(8 + 16) and gates·16·(32 + 16) a direction; beside them so many operations a hidden unit."""
    model = nn.Sequential(layer)
    total, *rows = counting(thop)(model, torch.randn(2, 5, 8), batch_size=2)
    name, mac = type(layer).__name__, gates * 16 * (24 + 48) * 2 * 10
    assert by_operator(rows) == {
        name: (mac, "mac", 2 * mac),
        f"{name} elementwise": (beside * 16 * 4 * 10, "flop", beside * 16 * 4 * 10),
    }
    assert by_thop(model, torch.randn(2, 5, 8))[0] == total.native_value


def functions():
    """Some that counters replace; baddbmm, too, which calflops itself forgets."""
    of_tensors = (torch.matmul, torch.mm, torch.baddbmm, torch.Tensor.add, torch.einsum, einops.einsum)
    return (F.linear, F.relu, F.interpolate, F.adaptive_avg_pool2d, torch.add, *of_tensors)


@pytest.mark.parametrize(
    ("adapter", "gradients"),
    [(calflops, True), (deepspeed, True), (fvcore, True), (ptflops, True), (thop, False), (torchinfo, False)],
)
def test_it_runs_in_eval_mode_and_leaves_model_and_torch_as_they_were(adapter, gradients):
    leaves_nothing(counting(adapter), (False, gradients), functions)


@pytest.mark.parametrize("adapter", [calflops, deepspeed, thop])
def test_a_model_that_raises_leaves_nothing(adapter):
    raises_and_leaves_nothing(counting(adapter), functions)


@pytest.mark.parametrize("adapter", [calflops, deepspeed, fvcore, ptflops, thop, torchinfo])
def test_several_inputs_and_outputs_also_after_a_model_that_raised(adapter):
    """Two layers of 60 multiply-adds."""
    with contextlib.suppress(RuntimeError, Inconsistent):
        counting(adapter)(Broken(), torch.randn(2, 4))
    (total, *_) = counting(adapter)(Pair(), torch.randn(5, 4), torch.randn(5, 4), batch_size=5)
    assert total.flop == 2 * 2 * 60


WRONG_TOTALS = [
    (
        calflops, upstream_calflops, "calculate_flops", (123.0, 0.0, 0),
        r"gave 123\.0 FLOP, its rules 3 × 0",
    ),
    (deepspeed, profiler, "get_module_flops", 123, "gave 123 FLOP, its rules 64"),
    (thop, upstream_thop, "profile", (123.0, 0.0), r"gave 123\.0, its rules 0"),
    (ptflops, of_ptflops, "get_model_complexity_info", (123, 0), "printed 123"),
    (ptflops_aten, of_ptflops, "run_ptflops", (123, 0), "printed 123, its rules gave 0"),
    (pthflops, upstream_pthflops, "count_ops", (123, []), "gave 123, its rules 0"),
    (
        torchinfo, upstream_torchinfo, "summary", SimpleNamespace(summary_list=[], total_mult_adds=123, total_params=0),
        "gave 123, its leaves 0",
    ),
]  # fmt: skip
"""Adapter, where its counter gives a total, what it gives instead, and the words of the fault."""


@pytest.mark.parametrize(("adapter", "owner", "name", "wrong", "words"), WRONG_TOTALS)
def test_rules_that_do_not_add_up_to_the_counters_number_are_a_fault(monkeypatch, adapter, owner, name, wrong, words):
    monkeypatch.setattr(owner, name, lambda *_, **__: wrong)
    with pytest.raises(Inconsistent, match=words):
        counting(adapter)(shared(), torch.randn(1, 4))


def test_a_recurrent_layer_of_ptflops():
    _, *rows = counting(ptflops)(Recurrent(), torch.randn(2, 5, 8), batch_size=2)
    assert by_operator(rows)["LSTM"][0] == Recurrent.MAC


def test_a_model_that_ptflops_cannot_run_is_a_fault_with_its_words():
    with pytest.raises(Inconsistent, match="no such thing"):
        counting(ptflops)(Broken(), torch.randn(2, 4))
