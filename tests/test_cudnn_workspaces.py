"""The allowance for cuDNN's workspaces, held against those of two published histories and against sums by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_operations import operation

from analysis import cudnn_workspaces
from analysis.cudnn_workspaces import FORWARD, INPUT, WEIGHT, Convolution, allowance_bytes, moments, passing_bytes
from analysis.cudnn_workspaces import recorded as histories
from analysis.workspaces import where_there_is_room
from reports.footprint_published import as_allowed, workspaces

MIB = 2**20
PLAIN = operation("aten.relu", {"self": (1,)}, [(1,)])

THREE = {"input": (2, 5, 9, 8), "weight": (7, 5, 3, 3)}
"""Winograd's: tiles of 4 × 4 over 9 × 8 are 3 × 2 of each of two images; 5 · 7 = 35 pairs of channels, 12 channels."""
THREE_BYTES = 4 * (36 * 35 + 36 * 12 * (2 * 3 * 2))

ONE = {"input": (2, 4, 6, 6), "weight": (8, 4, 1, 1)}
"""Its input has 2 · 4 · 36 numbers, its weights 32."""


def convolution(inputs, outputs, stride=1, dilation=1, groups=1, dtype="float32", **more):
    return operation(
        "aten.convolution", inputs, [outputs], dtype,
        stride=[stride] * 2, dilation=[dilation] * 2, groups=groups, transposed=False, **more,
    )  # fmt: skip


def backward(inputs, outputs, mask):
    made = [inputs[name] for name, asked in zip(("input", "weight"), mask, strict=False) if asked]
    return operation(
        "aten.convolution_backward", {"grad_output": outputs, **inputs}, made,
        stride=[1, 1], dilation=[1, 1], groups=1, transposed=False, output_mask=[*mask, False],
    )  # fmt: skip


def test_no_workspace_that_was_recorded_is_above_the_allowance() -> None:
    """A block has up to 1 MiB more than was asked for. ResNet-50 has 53 convolutions and ResNet-18 20, each with three
    passes but for the first, whose input needs no gradient."""
    rows = histories()
    assert sum(row.calls for row in rows) == (3 * 53 - 1) + (3 * 20 - 1)
    for row in rows:
        assert row.workspace_bytes <= allowance_bytes(row.sizes, row.which) + MIB * row.block, row


def test_all_gradients_of_weights_of_three_by_three_are_winograds_to_the_byte() -> None:
    """13 in each. Of the other passes of the V100 all but those of 64 channels."""
    exact: Counter[tuple[bool, str]] = Counter()
    for row in histories():
        if row.sizes.winograd:
            exact[row.block, row.which] += row.calls * as_allowed(row)
    assert exact == {(True, WEIGHT): 13, (True, FORWARD): 10, (True, INPUT): 10,
                     (False, WEIGHT): 13, (False, FORWARD): 0, (False, INPUT): 0}  # fmt: skip


@pytest.mark.parametrize(
    ("inputs", "outputs", "more", "nbytes"),
    [
        (THREE, (2, 7, 9, 8), {}, THREE_BYTES),
        (THREE, (2, 7, 9, 8), {"dtype": "bfloat16"}, THREE_BYTES // 2),
        (ONE, (2, 8, 6, 6), {}, MIB),
        # strided, dilated or in groups: input, output, and the weights twice
        (THREE, (2, 7, 5, 4), {"stride": 2}, 4 * (2 * 5 * 72 + 2 * 7 * 20 + 2 * 315) + MIB),
        (THREE, (2, 7, 9, 8), {"dilation": 2}, 4 * (2 * 5 * 72 + 2 * 7 * 72 + 2 * 315) + MIB),
        ({"input": (1, 4, 8, 8), "weight": (6, 2, 3, 3)}, (1, 6, 8, 8), {"groups": 2},
         4 * (256 + 384 + 2 * 108) + MIB),
        # depthwise, of sound, and transposed: none
        ({"input": (1, 4, 8, 8), "weight": (8, 1, 3, 3)}, (1, 8, 8, 8), {"groups": 4}, 0),
        ({"input": (1, 4, 8), "weight": (8, 4, 3)}, (1, 8, 8), {}, 0),
    ],
)  # fmt: skip
def test_the_forward_pass_by_hand(inputs, outputs, more, nbytes: int) -> None:
    assert passing_bytes(convolution(inputs, outputs, **more)) == nbytes


def test_a_transposed_one_has_none() -> None:
    asked = convolution(THREE, (2, 7, 9, 8))
    assert passing_bytes(replace(asked, attributes={**asked.attributes, "transposed": True})) == 0


@pytest.mark.parametrize(
    ("inputs", "outputs", "mask", "nbytes"),
    [
        (THREE, (2, 7, 9, 8), (True, True), THREE_BYTES),
        (THREE, (2, 7, 9, 8), (True, False), THREE_BYTES),
        (THREE, (2, 7, 9, 8), (False, False), 0),
        # 1 × 1: its input again while the weights' gradient is not there yet, then that of the weights
        (ONE, (2, 8, 6, 6), (True, True), 4 * 288 - 4 * 32 + MIB),
        (ONE, (2, 8, 6, 6), (True, False), 4 * 288 + MIB),
        (ONE, (2, 8, 6, 6), (False, True), 4 * 32 + MIB),
    ],
)
def test_the_backward_pass_by_hand(inputs, outputs, mask, nbytes: int) -> None:
    assert passing_bytes(backward(inputs, outputs, mask)) == nbytes


def test_each_image_has_tiles_of_its_own() -> None:
    """The gradient of the input has the input's size, without padding larger than the output's: 6 × 6 and 4 × 4."""
    sizes = Convolution((1, 1, 6, 6), (1, 1, 3, 3), (1, 1, 4, 4), (1, 1), (1, 1), 1, 4)
    assert allowance_bytes(sizes, FORWARD) == allowance_bytes(sizes, WEIGHT) == 4 * 36 * (1 + 2)
    assert allowance_bytes(sizes, INPUT) == 4 * 36 * (1 + 2 * 4)


def test_a_step_has_a_moment_more_than_operations() -> None:
    step = [PLAIN, convolution(THREE, (2, 7, 9, 8)), PLAIN]
    assert moments(step) == [0, 0, THREE_BYTES, 0]
    (room,) = where_there_is_room(step, [10, THREE_BYTES, 5, 20], "cuda")
    assert (room.library, room.nbytes, room.needed) == ("cuDNN", 5, False)
    (room,) = where_there_is_room(step, [10, 2 * THREE_BYTES, 5, 20], "cuda")
    assert (room.nbytes, room.source) == (0, "where there is room; none at the peak")
    assert where_there_is_room(step, [10, 20, 5, 20], "cpu") == ()
    assert where_there_is_room([PLAIN], [10, 20], "cuda") == ()


def test_the_page_has_a_line_a_kind() -> None:
    text = (Path(__file__).parents[1] / "docs" / "footprint.md").read_text(encoding="utf-8")
    assert "\n".join(workspaces(histories())) in text


@pytest.mark.parametrize("change", [("forward", "backward"), ("https://", "http://")])
def test_a_row_that_is_none(change: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = cudnn_workspaces.TABLE.read_text(encoding="utf-8").splitlines()[:2]
    (tmp_path / "rows.csv").write_text("\n".join(lines).replace(*change), encoding="utf-8")
    monkeypatch.setattr(cudnn_workspaces, "TABLE", tmp_path / "rows.csv")
    with pytest.raises(ValueError, match="expected one of"):
        histories.__wrapped__()
