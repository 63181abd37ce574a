"""The allowance for cuDNN's workspaces, compared with those of published histories and against sums by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.footprint.step import cudnn_observations
from analysis.footprint.step.caching_allocator import replay
from analysis.footprint.step.cudnn_observations import as_allowed, observations
from analysis.footprint.step.cudnn_workspaces import (
    FORWARD,
    INPUT,
    WEIGHT,
    Convolution,
    allowance_bytes,
    convolves,
    with_workspaces,
)
from analysis.footprint.step.live_bytes import BEFORE, live_bytes
from analysis.footprint.step.workspaces import where_there_is_room
from reports.footprint.published import workspaces
from results.records import Storage
from tests.support.made_up_operations.made_up_operations import operation

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


def taken(asked, precision="fp32"):
    """Its workspaces: by half of the operation."""
    return {each.born_index: each.nbytes for each in with_workspaces([asked], [], precision)[0]}


def test_no_workspace_that_was_recorded_is_above_the_allowance() -> None:
    """A block has up to 1 MiB more than was asked for. ResNet-50 has 53 convolutions and ResNet-18 20, each with three
    passes but for the first, whose input needs no gradient; 7 more are patches of pictures on an H100."""
    rows = observations()
    assert sum(row.calls for row in rows) == 3 * (3 * 53 - 1) + (3 * 20 - 1) + 7
    for row in rows:
        assert row.workspace_bytes <= allowance_bytes(row.sizes, row.which) + MIB * row.block, row


def test_all_gradients_of_weights_of_three_by_three_are_winograds_to_the_byte() -> None:
    """In float32: 13 in each step. Of the other passes of the V100 all but those of 64 channels."""
    exact: Counter[tuple[str, str]] = Counter()
    for row in observations():
        if row.sizes.winograd and row.precision == "fp32":
            exact[row.gpu, row.which] += row.calls * as_allowed(row)
    v100 = "Tesla V100-DGXS-32GB"
    assert exact == {(v100, WEIGHT): 2 * 13, (v100, FORWARD): 2 * 10, (v100, INPUT): 2 * 10,
                     ("", WEIGHT): 13, ("", FORWARD): 0, ("", INPUT): 0}  # fmt: skip


def test_on_tensor_cores_gradients_of_inputs_are_copies_of_all_three() -> None:
    """Those with a workspace at all, within 1 KiB beside the tables that are allowed for, or within a block."""
    rows = [row for row in observations() if row.precision == "tf32" and row.which == INPUT and row.workspace_bytes]
    assert sum(row.calls for row in rows) == 13 + 3 + 3 + 5  # 3 × 3, strided, and 1 × 1 on 7 × 7
    for row in rows:
        beyond = row.workspace_bytes - (allowance_bytes(row.sizes, INPUT) - MIB)
        assert 0 <= beyond <= 4096


@pytest.mark.parametrize(
    ("inputs", "outputs", "more", "nbytes"),
    [
        (THREE, (2, 7, 9, 8), {}, THREE_BYTES),
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
    assert taken(convolution(inputs, outputs, **more)) == ({0: nbytes} if nbytes else {})


def test_a_transposed_one_has_none() -> None:
    asked = convolution(THREE, (2, 7, 9, 8))
    assert taken(replace(asked, attributes={**asked.attributes, "transposed": True})) == {}


@pytest.mark.parametrize(
    ("inputs", "outputs", "mask", "halves"),
    [
        (THREE, (2, 7, 9, 8), (True, True), {0: THREE_BYTES, 1: THREE_BYTES}),
        (THREE, (2, 7, 9, 8), (True, False), {0: THREE_BYTES}),
        (THREE, (2, 7, 9, 8), (False, False), {}),
        # 1 × 1: its input and weights again, then the weights again
        (ONE, (2, 8, 6, 6), (True, True), {0: 4 * (288 + 32) + MIB, 1: 4 * 32 + MIB}),
        (ONE, (2, 8, 6, 6), (True, False), {0: 4 * (288 + 32) + MIB}),
        (ONE, (2, 8, 6, 6), (False, True), {0: 4 * 32 + MIB}),
    ],
)
def test_the_backward_pass_by_hand(inputs, outputs, mask, halves: dict[int, int]) -> None:
    assert taken(backward(inputs, outputs, mask)) == halves


def test_tensor_cores_by_hand() -> None:
    """5 channels of input fill 8 places of either size, the 5 of the weights too; 7 of the output 8. A result of
    half precision has four bytes a number, and of sums of weights' gradients parts of up to 32 MiB are kept."""
    inputs, weights, outputs = 2 * 8 * 72, 7 * 8 * 9, 2 * 8 * 72
    onward, back = convolution(THREE, (2, 7, 9, 8)), backward(THREE, (2, 7, 9, 8), (True, True))
    assert taken(onward, "tf32") == {0: 4 * (inputs + weights + 2 * outputs) + MIB}
    assert taken(back, "tf32") == {0: 4 * (inputs + weights + outputs) + MIB, 1: 4 * (inputs + outputs) + 33 * MIB}
    half = convolution(THREE, (2, 7, 9, 8), dtype="bfloat16")
    assert taken(half) == {0: 2 * (inputs + weights + 2 * outputs) + MIB}
    halves = replace(back, input_dtypes=("bfloat16",) * 3)
    assert taken(halves) == {0: 2 * (2 * inputs + weights + outputs) + MIB, 1: 2 * (inputs + outputs) + 33 * MIB}
    large = convolution({"input": (1, 4, 4000, 4000), "weight": (4, 4, 3, 3)}, (1, 4, 4000, 4000))
    assert taken(large, "tf32") == {0: 4 * (4 * 16_000_000 + 144) + 33 * MIB}


def test_each_image_has_tiles_of_its_own() -> None:
    """The gradient of the input has the input's size, without padding larger than the output's: 6 × 6 and 4 × 4."""
    sizes = Convolution((1, 1, 6, 6), (1, 1, 3, 3), (1, 1, 4, 4), (1, 1), (1, 1), 1, 4)
    assert allowance_bytes(sizes, FORWARD) == allowance_bytes(sizes, WEIGHT) == 4 * 36 * (1 + 2)
    assert allowance_bytes(sizes, INPUT) == 4 * 36 * (1 + 2 * 4)


GIVEN = [
    Storage(0, 1000, "weight", BEFORE, None),
    Storage(1, 50, "activation", 1, 2),
    Storage(2, 7, "gradient", 2, None),
    Storage(3, 9, "gradient", 2, None),
]
STEP = [
    replace(PLAIN, index=0),
    replace(convolution(THREE, (2, 7, 9, 8)), index=1, module="conv"),
    replace(backward(ONE, (2, 8, 6, 6), (True, True)), index=2, writes=(2, 3), module="back"),
]


def test_each_half_of_an_operation_has_its_own_workspace() -> None:
    """The gradient of the weights (number 3) comes in the second half of the last operation, all else in the first."""
    halves, moments = with_workspaces(STEP, GIVEN, "fp32")
    assert moments == 6
    of_input, of_weights = 4 * (288 + 32) + MIB, 4 * 32 + MIB
    expected = (1000, 1000, 1000, 1050 + THREE_BYTES, 1050, 1057 + of_input, 1066 + of_weights)
    assert live_bytes(halves, 6) == expected
    assert len({each.id for each in halves}) == len(halves) == len(GIVEN) + 3
    # blocks of 512 bytes: 2, 1 for each of three others, and what the largest workspace fills
    assert replay(halves, 6).allocated_bytes == 512 * (2 + 1 + 1 + -(-of_input // 512))


def test_how_far_they_lift_the_peak() -> None:
    (room,) = where_there_is_room(STEP, GIVEN, "cuda", "fp32")
    assert (room.library, room.nbytes, room.needed) == ("cuDNN", 1057 + 4 * (288 + 32) + MIB - 1066, False)
    assert room.source == "where there is room, in back"
    much = [*GIVEN, Storage(9, 10**9, "temporary", 0, 0)]
    (room,) = where_there_is_room(STEP, much, "cuda", "fp32")
    assert (room.nbytes, room.source) == (0, "where there is room; none at the peak")
    assert where_there_is_room(STEP, GIVEN, "cpu", "fp32") == ()
    assert where_there_is_room(STEP[:1], GIVEN[:1], "cuda", "fp32") == ()
    assert [convolves(part) for part in (STEP[:1], STEP[:2], STEP[2:])] == [False, True, True]


def test_the_page_has_a_line_a_kind() -> None:
    text = (Path(__file__).parents[4] / "docs" / "footprint.md").read_text(encoding="utf-8")
    assert workspaces(observations()) in text


@pytest.mark.parametrize("change", [("forward", "backward"), ("https://", "http://"), ("fp32", "fp8")])
def test_a_row_that_is_none(change: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = cudnn_observations.TABLE.read_text(encoding="utf-8").splitlines()[:2]
    (tmp_path / "rows.csv").write_text("\n".join(lines).replace(*change), encoding="utf-8")
    monkeypatch.setattr(cudnn_observations, "TABLE", tmp_path / "rows.csv")
    with pytest.raises(ValueError, match="expected one of"):
        observations.__wrapped__()
