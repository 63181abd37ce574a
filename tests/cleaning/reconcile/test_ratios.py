"""Known answer, law, definition: backward ÷ forward by closed form against an independent count, and by hand."""

import dataclasses
import functools
import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from analysis.operators.registry import unneeded_flop
from cleaning.profile import clean_profile
from cleaning.reconcile.backward_ratio import cell_ratios, sides_of
from measure.operations.tracer import trace
from results.records.counts import FlopCount, Operation, Ratio
from tests.measure.operations.vision_steps import parts as model_parts
from tests.support.made_up_operations.made_up_operations import operation
from tests.support.nets.small_steps import Calls, parts, real_trace
from tests.support.recordings.recorded_nets import NETS
from tests.support.recordings.recordings import Tensor, a_run, call, mm, recorded, table_flop

# --- the closed form -------------------------------------------------------------------------------------------------

MULTIPLY_ADDS = {
    # model: (forward, backward, of these the first product's forward) at batch 1, 224 × 224, 10 classes, by a counter
    # of matrix products and convolutions on meta tensors that shares no code with ours
    "resnet18": (1_813_566_464, 3_509_118_976, 118_013_952),
    "resnet34": (3_663_254_528, 7_208_495_104, 118_013_952),
    "resnet50": (4_087_156_736, 8_056_299_520, 118_013_952),
    "resnet101": (7_799_377_920, 15_480_741_888, 118_013_952),
    "resnet152": (11_511_599_104, 22_905_184_256, 118_013_952),
    "vgg11": (7_605_035_008, 15_123_365_888, 86_704_128),
    "vgg13": (11_304_411_136, 22_522_118_144, 86_704_128),
    "vgg16": (15_466_209_280, 30_845_714_432, 86_704_128),
    "vgg19": (19_628_007_424, 39_169_310_720, 86_704_128),
    "wide_resnet50_2": (11_395_993_600, 22_673_973_248, 118_013_952),
    "alexnet": (710_133_440, 1_349_990_080, 70_276_800),
    "mobilenet_v2": (299_507_072, 588_176_128, 10_838_016),
    "efficientnet_b0": (384_547_552, 758_257_088, 10_838_016),
}
FAST = ("resnet18", "vgg11", "vgg19", "alexnet", "mobilenet_v2")


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in MULTIPLY_ADDS]
)
def test_the_closed_form_is_the_ratio_of_the_model(name: str) -> None:
    """2 - first ÷ forward equals backward ÷ forward, both of our own trace and of the independent count."""
    forward, backward, first = MULTIPLY_ADDS[name]
    table = trace(model_parts(name, 1, num_classes=10)).operations
    (row,) = [r for r in cell_ratios(a_run(model=name), (), sides_of(table), ()) if r.level == "model"]
    assert (row.forward_flop, row.backward_flop) == (2 * forward, 2 * backward)
    assert row.exact_ratio == 2 - first / forward == pytest.approx(row.ratio, rel=1e-12)
    assert row.ratio == backward / forward
    assert (row.source, row.state, row.reason, row.status) == ("flopledger", "cleaned", "", "ok")


def net(forward: Any, *shape: int, **children: nn.Module) -> tuple[Operation, ...]:
    return real_trace(parts(lambda: Calls(forward, **children), shape)).operations


def test_two_first_products_have_no_closed_form_and_are_named() -> None:
    """Both layers take the input: two products without its gradient, so backward = forward + 2 · head."""
    table = net(
        lambda s, x: s.head(torch.relu(s.a(x) + s.b(x))),
        2,
        5,
        a=nn.Linear(5, 3),
        b=nn.Linear(5, 3),
        head=nn.Linear(3, 2),
    )
    sides = sides_of(table)
    assert sides.exact_ratio is None
    assert sides.reason == "2 - first ÷ forward does not apply: aten.addmm b has 1, not 2"
    assert table_flop(table, "backward") == 2 * 2 * 5 * 3 * 2 + 2 * 2 * (2 * 3 * 2)
    (row,) = [r for r in cell_ratios(a_run(), (), sides_of(table), ()) if r.level == "model"]
    assert (row.exact_ratio, row.status, row.reason) == (None, "ok", sides.reason)
    assert row.ratio == pytest.approx((120 + 48) / (120 + 24))


def linear_chain(widths: list[int]) -> list[Operation]:
    """Forward and backward of linear layers of these widths, batch 3, the first without a gradient of its input."""
    table = []
    layers = list(itertools.pairwise(widths))
    for i, (k, n) in enumerate(layers):
        made = operation("aten.mm", {"self": (3, k), "mat2": (k, n)}, [(3, n)])
        table.append(dataclasses.replace(made, index=i, kind="matmul", module=f"l{i}"))
    for i, (k, n) in reversed(list(enumerate(layers))):
        of_weight = operation("aten.mm", {"self": (k, 3), "mat2": (3, n)}, [(k, n)])
        of_input = operation("aten.mm", {"self": (3, n), "mat2": (n, k)}, [(3, k)])
        for made in [of_weight, of_input][: 1 + (i > 0)]:
            shared = {"phase": "backward", "forward_index": i, "kind": "matmul", "module": f"l{i}"}
            table.append(dataclasses.replace(made, index=len(table), **shared))
    return table


@given(st.lists(st.integers(1, 9), min_size=2, max_size=6))
def test_the_closed_form_of_any_chain(widths: list[int]) -> None:
    table = linear_chain(widths)
    multiply_adds = [a * b for a, b in itertools.pairwise(widths)]
    assert sides_of(table).exact_ratio == 2 - multiply_adds[0] / sum(multiply_adds)
    assert sides_of(table).exact_ratio == pytest.approx(table_flop(table, "backward") / table_flop(table, "forward"))
    assert sides_of(table[:-1]).exact_ratio is None  # a gradient is lost
    assert sides_of([*table, dataclasses.replace(table[-1], index=99)]).exact_ratio is None  # one is there twice
    loose = dataclasses.replace(table[-1], index=99, forward_index=None)
    assert sides_of([*table, loose]).reason.endswith("FLOP of backward belong to no product of forward")


# --- from profiles ---------------------------------------------------------------------------------------------------


@functools.cache
def of_net(name: str) -> tuple[Ratio, ...]:
    table = real_trace(NETS[name]).operations
    return cell_ratios(a_run(), clean_profile(a_run(), recorded(NETS[name])).operations, sides_of(table), ())


def pick(rows: tuple[Ratio, ...], **fields: Any) -> list[Ratio]:
    return [row for row in rows if all(getattr(row, name) == value for name, value in fields.items())]


def test_a_cnn_by_every_level() -> None:
    """1 for the first layer, 2 for every other, as cleaned; the recorder itself saw no gradient of a convolution."""
    rows = of_net("cnn")
    cleaned = {"source": "torch_profiler", "work": "batch", "state": "cleaned"}
    assert [(r.name, r.ratio) for r in pick(rows, **cleaned, level="module")] == [
        ("0", 1.0), ("3", 2.0), ("4", 2.0), ("5", 2.0), ("6", 2.0), ("8", 2.0), ("9", 2.0),
    ]  # fmt: skip
    kinds = {r.name: r.ratio for r in pick(rows, **cleaned, level="kind")}
    assert kinds["matmul"] == 2
    first, others = 55_296, 31_872  # "0"; "3" + "4" + "5" + "6"
    assert kinds["convolution"] == (first + 2 * others) / (first + others)
    operations = {r.name: r.ratio for r in pick(rows, **cleaned, level="operation")}
    assert operations.keys() == {"aten::conv2d", "aten::conv_transpose2d", "aten::linear"}
    assert (operations["aten::linear"], operations["aten::conv_transpose2d"]) == (2, 2)
    (model,) = pick(rows, **cleaned, level="model")
    assert model.ratio == pytest.approx(model.exact_ratio)
    (found,) = pick(rows, **{**cleaned, "state": "found"}, level="model")
    assert (found.forward_flop, found.backward_flop, found.ratio, found.unknown_calls) == (None, None, None, 6)
    assert 0 < found.backward_at_least_flop < 0.5 * found.forward_at_least_flop  # type: ignore[operator]
    assert found.reason == "1 of 7 calls have no count in forward; 5 of 9 calls have no count in backward"
    (convolutions,) = pick(rows, **{**cleaned, "state": "found"}, level="kind", name="convolution")
    assert (convolutions.backward_flop, convolutions.ratio, convolutions.status) == (None, None, "unavailable")
    assert convolutions.reason == "1 of 5 calls have no count in forward; 5 of 5 calls have no count in backward"


@pytest.mark.parametrize("name", ["small", "cnn, bf16", "attention, plain", "attention, fused", "transformer"])
def test_a_cleaned_model_has_the_ratio_of_our_own_trace(name: str) -> None:
    rows = of_net(name)
    (profile,) = pick(rows, source="torch_profiler", state="cleaned", level="model")
    (own,) = pick(rows, source="flopledger", level="model")
    assert (profile.forward_flop, profile.backward_flop) == (own.forward_flop, own.backward_flop)
    assert profile.ratio == own.ratio


def test_a_recorded_lstm_has_gradients_that_nothing_needs() -> None:
    """oneDNN's call computes those of the input and of the zeros that it begins with; our count leaves them out."""
    (profile,) = pick(of_net("lstm"), source="torch_profiler", state="cleaned", level="model")
    (own,) = pick(of_net("lstm"), source="flopledger", level="model")
    operations = real_trace(NETS["lstm"]).operations
    unneeded = sum(map(unneeded_flop, operations))
    by_other_rules = [dataclasses.replace(each, rules=7, model_flop=1, other_flop=0) for each in operations]
    assert sum(map(unneeded_flop, by_other_rules)) == unneeded, "both sides by the present rules"
    assert profile.backward_flop == 2 * profile.forward_flop == own.backward_flop + unneeded
    assert unneeded > 0


def test_the_gradients_of_a_plain_attention_are_attentions() -> None:
    """Its backward pass is four bmm, recorded in no attention: they belong to their forward call's kind."""
    (row,) = pick(of_net("attention, plain"), source="torch_profiler", state="cleaned", level="kind", name="attention")
    assert row.ratio == 2
    assert pick(of_net("attention, plain"), source="torch_profiler", state="cleaned", level="kind", name="matmul")


def test_sums_of_levels_are_the_models() -> None:
    for name in ("cnn", "attention, plain", "gru"):
        for row in pick(of_net(name), source="torch_profiler", state="cleaned", level="model"):
            for level in ("kind", "module", "operation"):
                parts_of = pick(of_net(name), source=row.source, state=row.state, level=level)
                assert sum(part.forward_flop or 0 for part in parts_of) == row.forward_flop
                assert sum(part.backward_flop or 0 for part in parts_of) == row.backward_flop


# --- from our own trace ----------------------------------------------------------------------------------------------


# --- from counters ---------------------------------------------------------------------------------------------------


def count(counter: str, phase: str, flop: int | None, **more: Any) -> FlopCount:
    fields = {"cell_id": "c", "attempt": 1, "workload": "net", "batch_size": 2, "flop": flop, "native_unit": "flop"}
    return FlopCount(counter=counter, phase=phase, **{**fields, **more})


def test_counters_with_a_backward_pass() -> None:
    counts = [
        count("flop_counter_mode", "forward", 100),
        count("flop_counter_mode", "backward", 195),
        count("flop_counter_mode", "backward", 7, operator="aten.mm"),
        count("flop_counter_mode", "backward", 7, scope="features"),
        count("flop_counter_mode", "forward", 50, batch_size=1),
        count("flop_counter_mode", "forward", 800, batch_size=16),
        count("flop_counter_mode", "backward", 9999, batch_size=16),
        count("fvcore", "forward", 100),
        count("torch_profiler", "forward", 100),
        count("torch_profiler", "backward", None, status="unavailable", reason="too old"),
        count("flopledger", "forward", 100, cell_id="other"),
        count("flopledger", "backward", 100, cell_id="other"),
    ]
    mode, profiler = cell_ratios(a_run(), (), sides_of(linear_chain([3, 2, 4])), counts)[-2:]
    assert (mode.source, mode.state, mode.level, mode.work) == ("flop_counter_mode", "found", "model", "")
    assert (mode.forward_flop, mode.backward_flop, mode.ratio) == (100, 195, 1.95)
    assert mode.exact_ratio == 2 - 6 / 14
    assert (profiler.source, profiler.ratio, profiler.status, profiler.reason) == (
        "torch_profiler", None, "unavailable", "too old",
    )  # fmt: skip
    sources = {r.source for r in cell_ratios(a_run(), (), sides_of(None), counts)}
    assert sources == {"flop_counter_mode", "torch_profiler"}


def test_an_epoch_weighs_its_batches() -> None:
    """Two batches whose backward is twice the forward, a last one (of other sizes) where it is once: made up, so that
    a weight forgotten shows. Batch: 48 and 96; last: 100 and 100; epoch of 2 + 1: 196 and 292."""
    backward = {"phase": "backward", "forward_index": 0}
    calls = [
        mm(2, 3, 4, 0), mm(2, 4, 3, 1, **backward), mm(3, 2, 4, 2, **backward),
        mm(1, 5, 10, 0, work="last"), mm(5, 1, 10, 1, work="last", **backward),
    ]  # fmt: skip
    run = a_run(methods=("batch", "epoch"), epoch_images=5, profiled=("batch", "last"))
    rows = cell_ratios(run, clean_profile(run, calls).operations, sides_of(None), ())
    cleaned = {r.work: r for r in pick(rows, state="cleaned", level="model")}
    assert {work: (r.forward_flop, r.backward_flop, r.ratio) for work, r in cleaned.items()} == {
        "batch": (48, 96, 2.0),
        "epoch": (196, 292, 292 / 196),
    }
    assert "one" not in {r.work for r in rows}


def test_one_unknown_product_makes_its_ratio_unknown() -> None:
    unknown = call("aten::_grouped_mm", Tensor(2, 3), Tensor(3, 4), index=1, phase="backward", forward_index=0)
    rows = cell_ratios(a_run(), clean_profile(a_run(), [mm(2, 3, 4), unknown]).operations, sides_of(None), ())
    for row in pick(rows, state="cleaned"):
        assert (row.backward_flop, row.ratio, row.status) == (None, None, "unavailable")
        assert "1 of 1 calls have no count in backward" in row.reason
