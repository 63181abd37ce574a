"""Known answer, definition, injected fault: sparse figures of sheets, mixed peaks by hand, each refusal's reason."""

import pytest

from analysis.devices import peaks
from analysis.devices.format_peaks import mixed_peak, peak, peak_refusal

H100 = "NVIDIA H100 80GB HBM3"


# Figures with sparsity as the sheets print them (TFLOP/s), typed from the sheets, one device.
SPARSE = {
    ("NVIDIA A100-SXM4-80GB", "bf16"): 624,
    (H100, "fp8"): 3957.8,
    ("NVIDIA L40S", "fp16"): 733,  # the sheet rounds 362.05 up
    ("NVIDIA B200", "fp4"): 144e3 / 8,  # HGX, eight of them
    ("NVIDIA GeForce RTX 5090", "fp4"): 3352,
    ("NVIDIA RTX A4000", "fp16"): 153.4,
    ("AMD Instinct MI300X", "fp16"): 2614.9,
}


@pytest.mark.parametrize(("asked", "figure"), SPARSE.items())
def test_sparse_figures_are_those_of_the_sheets(asked, figure):
    found = peak(*asked, sparsity=True)
    assert found.flop_per_s == pytest.approx(figure * 1e12, rel=1e-3)
    assert peak_refusal(*asked, sparsity=True) is None


@pytest.mark.parametrize("name", ["NVIDIA A10G", "NVIDIA H20", "AMD Instinct MI210", "Tesla V100-SXM2-16GB"])
def test_no_sparse_figure_is_made_up(name):
    assert peak(name, "fp16") is not None
    assert peak(name, "fp16", sparsity=True) is None
    assert "states no fp16 figure with sparsity" in (peak_refusal(name, "fp16", sparsity=True) or "")


@pytest.mark.parametrize(
    ("name", "dtype", "words"),
    [
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16", "a laptop GPU"),
        ("NVIDIA GeForce RTX 2080 Super with Max-Q Design", "fp16", "a laptop GPU"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "bf16", "a slice"),
        ("Tesla P100-SXM2-16GB", "fp16", "no tensor units"),
        ("NVIDIA B200", "mxfp8", "under fp8"),
        ("NVIDIA B300 SXM6 AC", "int8", "published figures differ"),
        ("NVIDIA B300 SXM6 AC", "fp4", "published dense figures differ"),
        ("NVIDIA H800", "bf16", "tables differ"),
        ("NVIDIA GB10", "fp4", "with sparsity alone"),
        ("trn2", "bf16", "AWS Trainium2"),
        ("TPU v4", "fp8", "states no figure"),
        ("AMD Instinct MI300X", "nvfp4", "NVIDIA's"),
        (H100, "fp4", "states no fp4 figure"),
    ],
)
def test_what_has_no_peak_says_why(name, dtype, words):
    assert peak(name, dtype) is None
    assert words in (peak_refusal(name, dtype) or "")


def test_a_mixed_peak_is_the_time_of_each_part_at_its_own_peak():
    # 3 PFLOP of fp8 at 1,978.9 TFLOP/s and 1 of bf16 at 989.4: 1.51599 s + 1.01071 s in ms
    mixed = mixed_peak(H100, {"torch.float8_e4m3fn": 3e15, "bf16": 1e15, "fp32": 0})
    assert mixed.flop_per_s == pytest.approx(4e15 / (1.51599 + 1.01071), rel=1e-5)
    assert (mixed.single.unit, mixed.single.flop_per_s) == ("fp8", 1978.9e12)
    assert {unit: each.flop_per_s for unit, each in mixed.by_unit.items()} == {"fp8": 1978.9e12, "bf16": 989.4e12}


def test_a_mixed_peak_leaves_nothing_out():
    assert mixed_peak("Tesla V100-SXM2-16GB", {"fp16": 1e12, "bf16": 1}) is None
    for work in ({}, {"bf16": 0}, {"bf16": -1.0}, {"bf16": float("nan")}):
        with pytest.raises(ValueError, match="FLOP above 0 by dtype"):
            mixed_peak(H100, work)


def test_formats_have_several_names():
    assert peak("NVIDIA B200", "torch.float4_e2m1fn_x2") == peak("NVIDIA B200", "nvfp4") == peak("NVIDIA B200", "fp4")
    with pytest.raises(ValueError, match=r"expected one of fp64, .*fp4 or torch's name"):
        peak("NVIDIA B200", "fp5")


def test_empty_columns_that_came_later_leave_a_row_its_id():
    later = dict.fromkeys((*peaks.LATER_COLUMNS, "sparse", "refused"), "")
    row = {"name": "X", "fp32_flop_per_s": "1e12", **later}
    assert peaks._row_id(row) == peaks.digest({"name": "X", "fp32_flop_per_s": "1e12"})
    assert peaks._row_id({**row, "sparse": "fp32", "refused": "fp8: none"}) == peaks._row_id(row)
    assert peaks._row_id({**row, "fp4_flop_per_s": "4e12"}) != peaks._row_id(row)
