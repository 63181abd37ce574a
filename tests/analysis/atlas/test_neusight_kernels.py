"""NeuSight's kernels: sizes and times as read, FLOP and bytes by hand, and the bound compared with every kept row."""

from __future__ import annotations

import lzma
from pathlib import Path

import pandas as pd
import pytest

from analysis.atlas import against_roofline, faster, is_neusight, kept_kernels, packed_kernels, read_kernels

A100 = "NVIDIA A100-PCIE-40GB"
HEAD = "OPName,Latency,Device,CUDNN Version,Kernel Name,Kernels"


def write(folder, name, columns, *rows):
    path = folder / "neusight" / name
    path.parent.mkdir(exist_ok=True)
    text = "\n".join([f"{HEAD},{columns}", *rows]) + "\n"
    path.write_bytes(lzma.compress(text.encode()) if name.endswith(".xz") else text.encode())
    return path


@pytest.fixture
def files(tmp_path):
    return [
        write(tmp_path, "bmm.csv.xz", "B,M,N,K", f"bmm,0.5,{A100},8902,ampere_sgemm,;ampere_sgemm,6,64,32,128"),
        write(tmp_path, "linear.csv", "B,M,N,K", f"linear,1.25,{A100},8902,ampere_sgemm,;ampere_sgemm,2,64,32,128"),
        write(
            tmp_path, "conv.csv", "B,Input_Channel,Output_Channel,Kernel_Szie,Input_Size,Stride,Padding",
            f"conv,2,{A100},8902,sgemm,;cudnn::winograd_nonfused::f;sgemm,8,16,32,3,10,1,1",
            f"conv,2,{A100},8902,fft2d_r2c_32x32,;fft2d_r2c_32x32,8,16,32,3,10,1,1",
        ),
        write(tmp_path, "add.csv", "B,H", f"add,0.025,{A100},8902,vectorized,,100,1000"),
        write(tmp_path, "relu.csv", "B,H", f"relu,0.025,{A100},8902,vectorized,,100,1000"),
    ]  # fmt: skip


def test_rows_with_sizes_times_and_algorithms(files):
    assert all(is_neusight(path) for path in files)
    rows = read_kernels(files).set_index("op")
    assert rows.loc["bmm", "time_ns"] == 500_000, "0.5 ms"
    assert rows.loc["bmm", ["size_0", "size_1", "size_2", "size_3"]].tolist() == [6, 64, 32, 128]
    assert rows.loc["conv", "algorithm"].tolist() == ["winograd", "fft"]
    assert rows.loc["add", "algorithm"] == ""


def test_flop_bytes_and_bound_by_hand(files):
    found = against_roofline(read_kernels(files)).drop_duplicates("op").set_index("op")
    assert found.loc["bmm", "flop"] == 2 * 6 * 64 * 32 * 128
    assert found.loc["bmm", "nbytes"] == 4 * 6 * (64 * 128 + 128 * 32 + 64 * 32)
    assert found.loc["linear", "flop"] == 2 * 2 * 64 * 32 * 128
    assert found.loc["linear", "nbytes"] == 4 * (2 * 64 * 128 + 32 * 128 + 2 * 64 * 32), "weights once"
    assert found.loc["conv", "flop"] == 2 * 8 * 16 * 32 * 9 * 10 * 10
    assert found.loc["conv", "nbytes"] == 4 * (8 * 16 * 100 + 9 * 16 * 32 + 8 * 32 * 100)
    assert (found.loc["add", "nbytes"], found.loc["relu", "nbytes"]) == (3 * 4e5, 2 * 4e5)
    assert found.loc["add", "bound_s"] == pytest.approx(1.2e6 / 1555e9)
    assert found.loc["bmm", "over_ratio"] == pytest.approx(max(2 * 6 * 64 * 32 * 128 / 19.5e12, 344064 / 1555e9) / 5e-4)


def test_what_is_packed_is_read_again(files, tmp_path):
    rows = read_kernels(files)
    path = tmp_path / "kernels.csv.xz"
    path.write_bytes(packed_kernels(rows))
    pd.testing.assert_frame_equal(kept_kernels(path), rows, check_dtype=False)


@pytest.mark.parametrize(
    ("name", "columns", "row", "word"),
    [
        ("bmm.csv", "M", f"bmm,1,{A100},1,x,,1", "got none called B"),
        ("conv.csv", "B,Kernel_Szie", f"conv,1,{A100},1,x,,1,5", "a Kernel_Szie of 3 alone"),
        ("relu.csv", "B,H", f"relu,0,{A100},1,x,,1,1", "a Latency above 0"),
    ],
)
def test_another_table_is_refused(tmp_path, name, columns, row, word):
    with pytest.raises(ValueError, match=word):
        read_kernels([write(tmp_path, name, columns, row)])


def test_a_device_without_figures_is_refused(files):
    with pytest.raises(ValueError, match="no datasheet figures of Abacus 9"):
        against_roofline(read_kernels(files).assign(device="Abacus 9"))


# --- the table that is kept ---


@pytest.fixture(scope="module")
def kept():
    return against_roofline(kept_kernels())


def test_no_kernel_is_faster_than_its_bound_without_a_rule(kept):
    assert len(kept) > 206_000
    found = faster(kept)
    assert found[found["rule"] == ""].empty
    assert (found["rule"] == "algorithm").sum() == pytest.approx(3916, abs=1)
    assert (found["rule"] == "rounded").sum() == 3
    assert set(found.loc[found["rule"] == "rounded", "device"]) == {"Tesla V100-PCIE-32GB"}


def test_a_rule_explains_only_what_its_data_show(kept):
    found = faster(kept)
    unnamed = faster(found.assign(algorithm=""))
    assert (unnamed["rule"] == "").sum() > 3000, "without the kernels' names most have no reason"
    assert set(faster(kept.assign(over_ratio=5.0)).query("algorithm != ''")["rule"]) <= {"", "rounded"}
    twice = kept.assign(time_ns=kept["time_ns"] / 2, over_ratio=kept["over_ratio"] * 2)
    assert (faster(twice)["rule"] == "").sum() > 10_000, "a time in another unit would show"


def test_kernels_are_kept_within_the_limit():
    folder = Path("analysis")
    kept = [folder / "atlas/published_steps.csv.gz", folder / "atlas/published_kernels.csv.xz",
            folder / "atlas/deepbench_kernels.csv.xz",            folder / "predict/step_amounts.csv.gz"]  # fmt: skip
    assert sum(path.stat().st_size for path in kept) < 5_000_000
