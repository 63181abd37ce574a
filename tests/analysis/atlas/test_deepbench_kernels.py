"""DeepBench's sheets: sizes and times as read, FLOP and bytes by hand, and the bound compared with every kept row."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.atlas import deepbench_bounds, is_deepbench, kept_deepbench, packed_deepbench, read_deepbench
from analysis.devices import lookup

WIDTH_FIRST = "S (Filter width),R (Filter height),pad_w,pad_h,Horizontal stride,Vertical stride"
HEIGHT_FIRST = "R,S,pad_h,pad_w,Vertical stride,Horizontal stride"
TIMES = "Forward (msec),wrt Inputs (msec),wrt Parameters (msec),,P,Q,Total Time (msec),,,,Forward Algorithm"


def write(folder, sheet, *convolutions, precision="Float", order=WIDTH_FIRST, product="64,32,128,N,N,,0.5,1.0"):
    path = folder / f"DeepBench_{sheet}__Results.csv"
    lines = [
        f'Precision,"{precision}",,,',
        "Dense Matrix Multiplication,,M,N,K,A Transpose,B Transpose,,Time (msec),TERAFLOPS",
        f",DeepSpeech,{product}",
        "Convolution,,,,",
        f",,W,H,C,N,K ,{order},{TIMES}",
        *(f",Vision,{each}" for each in convolutions),
        "Recurrent Layers - LSTM,Source,Hidden Units,N,Timesteps,,Time Forward (msec)",
        ",,512,16,25,,1.0",
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_product_has_its_flop_and_bytes(tmp_path):
    (row,) = deepbench_bounds(read_deepbench([write(tmp_path, "NV_V100")])).to_dict("records")
    assert (row["op"], row["device"], row["unit"], row["line"]) == ("product", "Tesla V100-SXM2-16GB", "fp32", 3)
    assert row["flop"] == 2 * 64 * 32 * 128
    assert row["moved_bytes"] == 4 * (64 * 128 + 128 * 32 + 64 * 32)
    assert row["time_ns"] == 500_000


@pytest.mark.parametrize(("order", "filter_"), [(WIDTH_FIRST, "20,5"), (HEIGHT_FIRST, "5,20")])
def test_a_convolution_and_its_gradients(tmp_path, order, filter_):
    """700 × 161 pixels, a filter of 20 × 5, stride 2: 341 × 79 positions, in either order of the columns."""
    line = f"700,161,1,4,32,{filter_},0,0,2,2,0.6,N/A*,1.0,,,,,,,,WINOGRAD"
    rows = deepbench_bounds(read_deepbench([write(tmp_path, "NV_M40", line, order=order)]))
    forward, weights = rows[rows["op"] != "product"].to_dict("records")
    assert (forward["op"], weights["op"]) == ("forward", "weight gradient"), "the gradient of the first layer's input"
    positions = 4 * 341 * 79
    assert forward["flop"] == weights["flop"] == 2 * positions * 32 * 20 * 5
    assert forward["moved_bytes"] == 4 * (4 * 700 * 161 + 32 * 100 + positions * 32)
    assert (forward["algorithm"], weights["algorithm"]) == ("WINOGRAD", "")


def test_pixels_that_no_window_touches_are_not_read_but_their_gradient_is_written(tmp_path):
    """1 × 1 with stride 2 of 56 × 56: 28 × 28 pixels; its data gradient has all."""
    line = "56,56,256,16,128,1,1,0,0,2,2,0.1,0.1,0.1,,,,,,,,IMPLICIT_PRECOMP_GEMM"
    precision = "16 bit inputs, 16 bit multiplication, 32 bit addition"
    rows = deepbench_bounds(read_deepbench([write(tmp_path, "NV_T4", line, precision=precision)])).set_index("op")
    rest = 256 * 128 + 16 * 128 * 28 * 28
    assert rows.loc["forward", "moved_bytes"] == 2 * (16 * 256 * 28 * 28 + rest)
    assert rows.loc["weight gradient", "moved_bytes"] == 2 * (16 * 256 * 28 * 28 + rest)
    assert rows.loc["data gradient", "moved_bytes"] == 2 * (16 * 256 * 56 * 56 + rest)
    t4 = lookup("Tesla T4")
    seconds = rows.loc["forward", "moved_bytes"] / t4.bandwidth_bytes_per_s
    assert rows.loc["forward", "bound_s"] == pytest.approx(seconds), "by memory; its arithmetic takes less"
    assert rows.loc["forward", "flop"] / t4.peaks["fp16"] < seconds


def test_sheets_of_devices_without_peaks_are_left_out_and_specifications_are_no_sheets(tmp_path):
    known, unknown = write(tmp_path, "NV_M40"), write(tmp_path, "AMD_MI25")
    assert read_deepbench([known, unknown])["device"].unique().tolist() == ["Tesla M40"]
    assert is_deepbench(known)
    assert not is_deepbench(tmp_path / "DeepBench_NV_M40__Specs.csv")


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"precision": "Double"}, "expected a first line with a Precision of 'Float' or"),
        ({"product": "64,32,x,N,N,,0.5,1"}, "line 3: expected the sizes and times of a kernel"),
        ({"product": "64,32"}, "line 3: expected the sizes and times of a kernel"),
    ],
)
def test_another_sheet_is_refused(tmp_path, options, word):
    with pytest.raises(ValueError, match=word):
        read_deepbench([write(tmp_path, "NV_M40", **options)])


def test_what_is_packed_is_read_again(tmp_path):
    rows = read_deepbench([write(tmp_path, "NV_V100")])
    path = tmp_path / "kernels.csv.xz"
    path.write_bytes(packed_deepbench(rows))
    pd.testing.assert_frame_equal(kept_deepbench(path), rows, check_dtype=False)


# --- the table that is kept ---


@pytest.fixture(scope="module")
def kept():
    return deepbench_bounds(kept_deepbench())


def test_no_kernel_is_faster_than_its_bound_without_a_rule(kept):
    assert len(kept) > 4_700
    beyond = kept[kept["over_ratio"] > 1]
    assert beyond[beyond["rule"] == ""].empty
    assert not (beyond["unit"] == "fp16").any(), "no kernel on tensor cores is faster"
    assert set(kept.loc[kept["over_ratio"] <= 1, "rule"]) == {""}


def test_a_rule_explains_only_what_its_data_show(kept):
    beyond = kept[kept["over_ratio"] > 1]
    whole = deepbench_bounds(kept.assign(read_h=kept["h"], read_w=kept["w"]))
    assert (whole["rule"][whole["over_ratio"] > 1] == "").sum() == 6, "with all pixels read six have no reason"
    unnamed = deepbench_bounds(kept.assign(algorithm=""))
    lost = unnamed[(unnamed["over_ratio"] > 1) & (unnamed["rule"] == "")]
    assert len(lost) == pytest.approx((beyond["rule"].isin(["algorithm", "algorithm elsewhere"])).sum(), abs=10)
    faster = deepbench_bounds(kept.assign(time_ns=kept["time_ns"] / 4.1))
    assert (faster["rule"][faster["over_ratio"] > 1] == "").sum() > 1000, "a time in another unit would show"
