"""Backward ÷ forward of a training step: exact by kind, and all that 3 × forward misses named, to the last FLOP."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from cleaning.accounts.account.backward_ratio import INPUT, WEIGHT, Backward, backward
from results.records.accounts import Account
from results.records.operations import Operation
from runners.count import command
from tests.support.made_up_operations.made_up_operations import operation

X, H, Y = 100, 101, 102
"""Storages: the data, and what is made of it."""


def mm(index: int, module: str, reads: tuple[int, int], writes: int, rows: int, k: int, n: int) -> Operation:
    """rows × k @ k × n forward: 2 · rows · k · n FLOP."""
    made = operation("aten.mm", {"self": (rows, k), "mat2": (k, n)}, [(rows, n)])
    return dataclasses.replace(made, index=index, module=module, kind="matmul", reads=reads, writes=(writes,))


def gradient(index: int, of: Operation, reads: int, **more: Any) -> Operation:
    """A product of the backward pass that costs what `of` does and reads the gradient and one of its factors."""
    return dataclasses.replace(
        of, index=index, phase="backward", forward_index=of.index, reads=(900 + index, reads), writes=(index,), **more
    )


def conv(index: int, mask: list[bool] | None = None, forward_index: int | None = None) -> Operation:
    """1 × 2 × 3 × 3 by 4 kernels of 2 × 1 × 1: 2 · 36 · 2 = 144 FLOP forward, as much for each gradient."""
    shapes: dict[str, Any] = {"input": (1, 2, 3, 3), "weight": (4, 2, 1, 1)}
    name, phase, attributes, outputs = "aten.convolution", "forward", {}, [(1, 4, 3, 3)]
    if mask is not None:
        name, phase, attributes = "aten.convolution_backward", "backward", {"output_mask": [*mask, False]}
        shapes = {"grad_output": (1, 4, 3, 3), **shapes}
        outputs = [(1, 2, 3, 3), (4, 2, 1, 1)]
    made = operation(name, shapes, outputs, groups=1, transposed=False, stride=[1, 1], **attributes)
    return dataclasses.replace(
        made,
        index=index,
        module="conv",
        phase=phase,
        kind="convolution",
        forward_index=forward_index,
        reads=(X, 0) if mask is None else (H, X, 0),
        writes=(H,),
    )


FIRST = mm(1, "head", (H, 1), Y, 5, 6, 7)
"""2 · 5 · 6 · 7 = 420 FLOP, of H and the weight in storage 1."""


def missing(table: list[Operation]) -> dict[str, tuple[int, tuple[str, ...]]]:
    found = backward("net", 2, table)
    named = {each.reason: (each.flop, each.modules) for each in found.missing}
    assert sum(flop for flop, _ in named.values()) == 2 * found.forward_flop - found.backward_flop
    return named


def test_the_first_product_lacks_the_gradient_of_the_data() -> None:
    # forward 144 + 420 = 564; backward 144 (weight alone) + 2 · 420 = 984; 2 · 564 − 984 = 144
    table = [conv(0), FIRST, gradient(2, FIRST, H), gradient(3, FIRST, 1), conv(4, [False, True], 0)]
    found = backward("net", 2, table)
    assert (found.forward_flop, found.backward_flop) == (564, 984)
    assert found.ratio == pytest.approx(984 / 564)
    assert found.closed.ratio == pytest.approx(2 - 144 / 564)
    assert found.estimate_error == pytest.approx(3 * 564 / (564 + 984) - 1)
    assert missing(table) == {INPUT: (144, ("conv",))}


def test_a_frozen_convolution_lacks_its_weights_gradient_and_before_all_trained_ones_both() -> None:
    both = [FIRST, gradient(2, FIRST, H), gradient(3, FIRST, 1)]
    assert missing([conv(0), *both, conv(4, [True, False], 0)]) == {WEIGHT: (144, ("conv",))}
    assert missing([conv(0), *both]) == {INPUT: (144, ("conv",)), WEIGHT: (144, ("conv",))}


def test_of_a_matrix_product_the_factor_that_is_read_tells_which_gradient_it_is() -> None:
    trained = [conv(0), conv(4, [True, True], 0)]
    assert missing([*trained, FIRST, gradient(2, FIRST, 1)]) == {WEIGHT: (420, ("head",))}  # reads the weight: of H
    assert missing([*trained, FIRST, gradient(2, FIRST, H)]) == {INPUT: (420, ("head",))}


def attention(index: int, phase: str = "forward") -> Operation:
    """2 sequences, 3 heads, 5 queries and keys of 4, values of 4: scores 2 · 2·3·5·5 · 4 = 1,200 FLOP, their sum as
    much; backward twice that; what runs has the scores once more, 1,200."""
    sizes: dict[str, Any] = dict.fromkeys(("query", "key", "value"), (2, 3, 5, 4))
    name = "aten._scaled_dot_product_flash_attention_for_cpu"
    if phase == "backward":
        name, sizes = f"{name}_backward", {"grad_out": (2, 3, 5, 4), **sizes}
    made = operation(name, sizes, [(2, 3, 5, 4)], is_causal=False)
    forward_index = index - 1 if phase == "backward" else None
    return dataclasses.replace(
        made, index=index, module="attention", kind="attention", phase=phase, forward_index=forward_index
    )


def test_what_runs_a_second_time_is_no_model_flop_and_stands_beside() -> None:
    again = dataclasses.replace(FIRST, index=7, phase="recompute")
    table = [attention(0), FIRST, attention(1, "backward"), again, gradient(8, FIRST, H), gradient(9, FIRST, 1)]
    table[1] = dataclasses.replace(FIRST, index=5)
    table[4:] = [dataclasses.replace(each, forward_index=5) for each in table[4:]]
    found = backward("net", 2, table)
    assert (found.forward_flop, found.backward_flop) == (2820, 2 * 2820)
    assert (found.again_flop, found.scores_flop) == (420, 1200)
    assert found.estimate_error == 0
    assert found.executed_error == pytest.approx(3 * 2820 / (3 * 2820 + 420 + 1200) - 1)


def account(counter: str, phase: str, flop: int | None, status: str = "ok") -> Account:
    return Account(model="net", batch_size=2, counter=counter, phase=phase, flop=flop, status=status)


def made(table: list[Operation] | None = None) -> Backward:
    table = table or [conv(0), FIRST, gradient(2, FIRST, H), gradient(3, FIRST, 1), conv(4, [False, True], 0)]
    accounts = [
        *(account("twice", "forward", 600), account("twice", "backward", 1200)),
        account("forward_only", "forward", 600),
        *(account("nothing", "forward", 0), account("nothing", "backward", 5)),
        account("crashed", "forward", None, "crashed"),
    ]
    return backward("net", 2, table, accounts)


def test_ratios_by_kind_and_of_the_counters_that_have_both_passes() -> None:
    found = {(r.source, r.level, r.name): (r.forward_flop, r.backward_flop, r.ratio) for r in made().ratios}
    assert found["exact", "kind", "convolution"] == (144, 144, 1)
    assert found["exact", "kind", "matmul"] == (420, 840, 2)
    assert found["exact", "operation", "aten.mm"] == (420, 840, 2)
    assert found["exact", "module", "head"] == (420, 840, 2)
    assert found["exact", "model", ""][:2] == (564, 984)
    assert found["twice", "model", ""] == (600, 1200, 2)
    assert {source for source, _, _ in found} == {"exact", "twice"}


NET = """
from torch import nn
def build():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Sequential(nn.Linear(16, 8), nn.ReLU()), nn.Linear(8, 2))
"""


def answer(tmp_path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    (tmp_path / "net.py").write_text(NET)
    model = f"{tmp_path / 'net.py'}:build"
    assert (
        command.main([model, "--input", "3x4x4", "--counters", "exact", "--ratios", "--format", "json", *options]) == 0
    )
    return json.loads(capsys.readouterr().out)["backward"]


def test_frozen_and_checkpointed_layers_of_a_real_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A sample of 3 × 4 × 4: convolution 4 · 2·2 · 27 = 432 multiply-adds, 864 FLOP; linear 16 → 8: 256; 8 → 2: 32."""
    plain = answer(tmp_path, capsys)
    assert plain["missing"] == [{"reason": INPUT, "flop": 864, "modules": ["0"]}]
    assert plain["ratio"] == plain["closed_form_ratio"] == pytest.approx(2 - 864 / 1152)
    assert (plain["recomputed_flop"], plain["scores_again_flop"]) == (0, 0)

    frozen = answer(tmp_path, capsys, "--frozen", "0,2.0.weight")
    # the convolution has neither gradient; 2.0 has a bias to train and no product; the last one has both
    assert {each["reason"]: each["flop"] for each in frozen["missing"]} == {INPUT: 864 + 256, WEIGHT: 864 + 256}
    assert frozen["closed_form_ratio"] is None
    assert frozen["ratio"] == pytest.approx(64 / 1152)

    again = answer(tmp_path, capsys, "--checkpoint", "2")
    assert (again["recomputed_flop"], again["ratio"]) == (256, plain["ratio"])
    # 3 · 1152 ÷ (1152 + 1440 + 256) − 1
    assert again["three_times_forward_executed_error"] == pytest.approx(3456 / 2848 - 1)
