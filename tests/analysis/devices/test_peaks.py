"""Known answer, definition: names as drivers print them, and figures of documents against an independent product."""

import pytest

from analysis.devices import peaks
from analysis.devices.precisions import UNITS

T = 1e12
MAX_Q = "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"

# What drivers print → the row it means. None: not in the table, however alike.
NAMES: dict[str, str | None] = {
    # with and without the vendor (drivers before 2021 leave it out), in any case and spacing
    "NVIDIA A100-SXM4-40GB": "NVIDIA A100-SXM4-40GB",
    "A100-SXM4-40GB": "NVIDIA A100-SXM4-40GB",
    "  nvidia   a100-sxm4-40gb ": "NVIDIA A100-SXM4-40GB",
    "NVIDIA A100-SXM4-80GB": "NVIDIA A100-SXM4-80GB",
    "A100-SXM-80GB": "NVIDIA A100-SXM4-80GB",
    "NVIDIA A100-PCIE-40GB": "NVIDIA A100-PCIE-40GB",
    "A100-PCIE-40GB": "NVIDIA A100-PCIE-40GB",
    "NVIDIA A100 80GB PCIe": "NVIDIA A100 80GB PCIe",
    "Tesla V100-SXM2-16GB": "Tesla V100-SXM2-16GB",
    "Tesla V100-SXM2-32GB": "Tesla V100-SXM2-16GB",
    "Tesla V100-DGXS-32GB": "Tesla V100-DGXS-32GB",
    "Tesla V100-DGXS-16GB": "Tesla V100-DGXS-32GB",
    "Tesla V100-PCIE-32GB": "Tesla V100-PCIE-16GB",
    "Tesla V100S-PCIE-32GB": "Tesla V100S-PCIE-32GB",
    "Tesla P100-PCIE-16GB": "Tesla P100-PCIE-16GB",
    "Tesla P100-SXM2-16GB": "Tesla P100-SXM2-16GB",
    "Tesla K80": "Tesla K80",
    "GeForce GTX TITAN X": "NVIDIA GeForce GTX TITAN X",
    "Tesla M40 24GB": "Tesla M40",
    "Tesla P4": "Tesla P4",
    "TITAN X (Pascal)": "NVIDIA TITAN X (Pascal)",
    "GeForce GTX 1080 Ti": "NVIDIA GeForce GTX 1080 Ti",
    "TITAN Xp": "NVIDIA TITAN Xp",
    "AMD Instinct MI100": "AMD Instinct MI100",
    "Tesla T4": "Tesla T4",
    "GeForce RTX 2080 Ti": "NVIDIA GeForce RTX 2080 Ti",
    "GeForce RTX 3090": "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 3090": "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 3080": "NVIDIA GeForce RTX 3080",
    "NVIDIA GeForce RTX 4080": "NVIDIA GeForce RTX 4080",
    "NVIDIA GeForce RTX 4080 SUPER": "NVIDIA GeForce RTX 4080 SUPER",
    "NVIDIA GeForce RTX 4090": "NVIDIA GeForce RTX 4090",
    "NVIDIA GeForce RTX 5090": "NVIDIA GeForce RTX 5090",
    "TITAN RTX": "NVIDIA TITAN RTX",
    "Quadro RTX 6000": "Quadro RTX 6000",
    "Quadro RTX 8000": "Quadro RTX 8000",
    "RTX A6000": "NVIDIA RTX A6000",
    "RTX A4000": "NVIDIA RTX A4000",
    "NVIDIA RTX A4000": "NVIDIA RTX A4000",
    "NVIDIA A100-PG509-200": "NVIDIA A100-PG509-200",
    "NVIDIA RTX A6000": "NVIDIA RTX A6000",
    "NVIDIA RTX 6000 Ada Generation": "NVIDIA RTX 6000 Ada Generation",
    "NVIDIA A10": "NVIDIA A10",
    "NVIDIA A10G": "NVIDIA A10G",
    "NVIDIA A30": "NVIDIA A30",
    "A40": "NVIDIA A40",
    "NVIDIA L4": "NVIDIA L4",
    "NVIDIA L40": "NVIDIA L40",
    "NVIDIA L40S": "NVIDIA L40S",
    "NVIDIA H100 PCIe": "NVIDIA H100 PCIe",
    "NVIDIA H100 80GB HBM3": "NVIDIA H100 80GB HBM3",
    "NVIDIA H100 NVL": "NVIDIA H100 NVL",
    "NVIDIA H200": "NVIDIA H200",
    "NVIDIA H200 NVL": "NVIDIA H200 NVL",
    "NVIDIA GH200 480GB": "NVIDIA GH200 480GB",
    "NVIDIA GH200 144G HBM3e": "NVIDIA GH200 144G HBM3e",
    "NVIDIA H20": "NVIDIA H20",
    "NVIDIA B200": "NVIDIA B200",
    "NVIDIA GB200": "NVIDIA GB200",
    "NVIDIA B300 SXM6 AC": "NVIDIA B300 SXM6 AC",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    MAX_Q: MAX_Q,
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "AMD Instinct MI300X": "AMD Instinct MI300X",
    "AMD Instinct MI300X VF": "AMD Instinct MI300X",
    "AMD Instinct MI300X HF": "AMD Instinct MI300X",
    "AMD Instinct MI210": "AMD Instinct MI210",
    "AMD Instinct MI250X / MI250": "AMD Instinct MI250X / MI250",
    "Tesla P40": "Tesla P40",
    "NVIDIA GeForce RTX 2060": "NVIDIA GeForce RTX 2060",
    "NVIDIA GeForce RTX 2060 SUPER": "NVIDIA GeForce RTX 2060 SUPER",
    "NVIDIA GeForce RTX 2070": "NVIDIA GeForce RTX 2070",
    "NVIDIA GeForce RTX 2070 SUPER": "NVIDIA GeForce RTX 2070 SUPER",
    "NVIDIA GeForce RTX 2080": "NVIDIA GeForce RTX 2080",
    "NVIDIA GeForce RTX 2080 SUPER": "NVIDIA GeForce RTX 2080 SUPER",
    "NVIDIA GeForce RTX 3050": "NVIDIA GeForce RTX 3050",
    "NVIDIA GeForce RTX 3060": "NVIDIA GeForce RTX 3060",
    "NVIDIA GeForce RTX 3060 Ti": "NVIDIA GeForce RTX 3060 Ti",
    "NVIDIA GeForce RTX 3070": "NVIDIA GeForce RTX 3070",
    "NVIDIA GeForce RTX 3070 Ti": "NVIDIA GeForce RTX 3070 Ti",
    "NVIDIA GeForce RTX 3080 Ti": "NVIDIA GeForce RTX 3080 Ti",
    "NVIDIA GeForce RTX 3090 Ti": "NVIDIA GeForce RTX 3090 Ti",
    "NVIDIA RTX A2000": "NVIDIA RTX A2000",
    "NVIDIA RTX A2000 12GB": "NVIDIA RTX A2000",
    "NVIDIA RTX A4500": "NVIDIA RTX A4500",
    "NVIDIA RTX A5000": "NVIDIA RTX A5000",
    "NVIDIA RTX A5500": "NVIDIA RTX A5500",
    "NVIDIA A2": "NVIDIA A2",
    "NVIDIA A800 80GB PCIe": "NVIDIA A800 80GB PCIe",
    "NVIDIA A800-SXM4-80GB": "NVIDIA A800-SXM4-80GB",
    "NVIDIA GeForce RTX 4060": "NVIDIA GeForce RTX 4060",
    "NVIDIA GeForce RTX 4060 Ti": "NVIDIA GeForce RTX 4060 Ti",
    "NVIDIA GeForce RTX 4070": "NVIDIA GeForce RTX 4070",
    "NVIDIA GeForce RTX 4070 SUPER": "NVIDIA GeForce RTX 4070 SUPER",
    "NVIDIA GeForce RTX 4070 Ti": "NVIDIA GeForce RTX 4070 Ti",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "NVIDIA GeForce RTX 4070 Ti SUPER",
    "NVIDIA GeForce RTX 4090 D": "NVIDIA GeForce RTX 4090 D",
    "NVIDIA L20": "NVIDIA L20",
    "NVIDIA RTX 2000 Ada Generation": "NVIDIA RTX 2000 Ada Generation",
    "NVIDIA RTX 4000 SFF Ada Generation": "NVIDIA RTX 4000 SFF Ada Generation",
    "NVIDIA RTX 4000 Ada Generation": "NVIDIA RTX 4000 Ada Generation",
    "NVIDIA RTX 4500 Ada Generation": "NVIDIA RTX 4500 Ada Generation",
    "NVIDIA RTX 5000 Ada Generation": "NVIDIA RTX 5000 Ada Generation",
    "NVIDIA RTX 5880 Ada Generation": "NVIDIA RTX 5880 Ada Generation",
    "NVIDIA GB300": "NVIDIA GB300",
    "NVIDIA GeForce RTX 5050": "NVIDIA GeForce RTX 5050",
    "NVIDIA GeForce RTX 5060": "NVIDIA GeForce RTX 5060",
    "NVIDIA GeForce RTX 5060 Ti": "NVIDIA GeForce RTX 5060 Ti",
    "NVIDIA GeForce RTX 5070": "NVIDIA GeForce RTX 5070",
    "NVIDIA GeForce RTX 5070 Ti": "NVIDIA GeForce RTX 5070 Ti",
    "NVIDIA GeForce RTX 5080": "NVIDIA GeForce RTX 5080",
    "NVIDIA RTX PRO 2000 Blackwell": "NVIDIA RTX PRO 2000 Blackwell",
    "NVIDIA RTX PRO 4000 Blackwell": "NVIDIA RTX PRO 4000 Blackwell",
    "NVIDIA RTX PRO 5000 Blackwell": "NVIDIA RTX PRO 5000 Blackwell",
    "AMD Instinct MI325X": "AMD Instinct MI325X",
    "AMD Instinct MI325X VF": "AMD Instinct MI325X",
    "AMD Instinct MI300A": "AMD Instinct MI300A",
    "AMD Instinct MI350X": "AMD Instinct MI350X",
    "AMD Instinct MI350X VF": "AMD Instinct MI350X",
    "AMD Instinct MI355X": "AMD Instinct MI355X",
    "AMD Instinct MI355X VF": "AMD Instinct MI355X",
    "AMD Radeon RX 7900 XTX": "AMD Radeon RX 7900 XTX",
    "Radeon RX 7900 XTX": "AMD Radeon RX 7900 XTX",
    "AMD Radeon RX 7900 XT": "AMD Radeon RX 7900 XT",
    "Radeon RX 7900 XT": "AMD Radeon RX 7900 XT",
    "AMD Radeon PRO W7900": "AMD Radeon PRO W7900",
    "Radeon PRO W7900": "AMD Radeon PRO W7900",
    "AMD Radeon PRO W7800 48GB": "AMD Radeon PRO W7800 48GB",
    "Radeon PRO W7800 48GB": "AMD Radeon PRO W7800 48GB",
    "AMD Radeon RX 9070 XT": "AMD Radeon RX 9070 XT",
    "Radeon RX 9070 XT": "AMD Radeon RX 9070 XT",
    "AMD Radeon RX 9070": "AMD Radeon RX 9070",
    "Radeon RX 9070": "AMD Radeon RX 9070",
    "Intel Gaudi 2": "Intel Gaudi 2",
    "GAUDI2": "Intel Gaudi 2",
    "Intel Gaudi 3": "Intel Gaudi 3",
    "GAUDI3": "Intel Gaudi 3",
    "Intel Arc B580": "Intel Arc B580",
    "Intel(R) Arc(TM) B580 Graphics": "Intel Arc B580",
    "TPU v2": "Google TPU v2 (core)",
    "TPU v3": "Google TPU v3 (core)",
    "TPU v4": "Google TPU v4",
    "TPU v5 lite": "Google TPU v5e",
    "TPU v5e": "Google TPU v5e",
    "TPU v5": "Google TPU v5p",
    "TPU v5p": "Google TPU v5p",
    "TPU v6 lite": "Google TPU v6e",
    "TPU v6e": "Google TPU v6e",
    "TPU7x": "Google TPU7x (core)",
    "TPU v7x": "Google TPU7x (core)",
    "AWS Trainium1": "AWS Trainium1",
    "AWS Trainium": "AWS Trainium1",
    "AWS Inferentia2": "AWS Inferentia2",
    "AWS Trainium2": "AWS Trainium2",
    "AWS Trainium3": "AWS Trainium3",
    # namesakes, slices and other chips that a substring would take for one of the above
    "NVIDIA GeForce RTX 3080 Laptop GPU": None,
    "NVIDIA GeForce RTX 4090 Laptop GPU": None,
    "NVIDIA GeForce RTX 2080 Ti with Max-Q Design": None,
    "NVIDIA A100-SXM4-40GB MIG 1g.5gb": None,
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": None,
    "NVIDIA A100-SXM-64GB": None,
    "NVIDIA A100X": None,
    "NVIDIA H800": None,
    "NVIDIA H20-3e": None,
    "NVIDIA L40G": None,
    "NVIDIA L2": None,
    "NVIDIA L40S-48Q": None,
    "GRID A100-40C": None,
    "NVIDIA A10-24Q": None,
    "NVIDIA A16": None,
    "NVIDIA RTX A4000 Laptop GPU": None,
    "Quadro RTX 4000": None,
    "NVIDIA PG509-210": None,
    "NVIDIA RTX A6000-48Q": None,
    "NVIDIA RTX 6000": None,
    "NVIDIA RTX PRO 6000 Blackwell": None,
    "NVIDIA H100": None,
    "NVIDIA A100": None,
    "NVIDIA GH200": None,
    "Tesla V100-SXM3-32GB": None,
    "Tesla V100-FHHL-16GB": None,
    "Tesla V100-SXM2-32GB-LS": None,
    "Tesla P100-PCIE-12GB": None,
    "Tesla K40m": None,
    "Tesla M4": None,
    "TITAN X": None,
    "NVIDIA GeForce GTX 1080": None,
    "NVIDIA GeForce GTX TITAN": None,
    "AMD Instinct MI50/MI60": None,
    "TITAN V": None,
    "AMD Instinct MI308X": None,
    "AMD EPYC": None,
    "Apple M3 Max": None,
    "NVIDIA": None,
    "": None,
}

# Figures typed from the documents (TFLOP/s), not from the table.
SHEETS = {
    "NVIDIA A100-SXM4-40GB": {"fp64": 9.7, "fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624},
    "NVIDIA H100 80GB HBM3": {"fp32": 66.9, "tf32": 494.7, "bf16": 989.4, "fp8": 1978.9},
    "NVIDIA H100 PCIe": {"fp32": 51.2, "tf32": 378, "bf16": 756, "fp8": 1513},
    "NVIDIA H100 NVL": {"fp32": 60, "bf16": 835.5},
    "NVIDIA H200": {"fp32": 67, "tf32": 494.5, "bf16": 989.5, "fp8": 1979},
    "NVIDIA H200 NVL": {"bf16": 835.5},
    "NVIDIA L40S": {"fp32": 91.6, "tf32": 183, "fp16": 362.05, "bf16": 362.05, "fp8": 733},
    "NVIDIA L40": {"fp32": 90.5, "tf32": 90.5, "bf16": 181.05, "fp8": 362},
    "NVIDIA L4": {"fp32": 30.3, "bf16": 121},
    "NVIDIA A10": {"bf16": 125},
    "NVIDIA A10G": {"bf16": 70},
    "NVIDIA GeForce RTX 3080": {"fp32": 29.8, "tf32": 29.8, "fp16": 59.5},
    "NVIDIA GeForce RTX 3090": {"fp32": 35.6, "fp16": 71},
    "NVIDIA GeForce RTX 4080": {"fp32": 48.7, "fp16": 97.5},
    "NVIDIA GeForce RTX 4090": {"fp32": 82.6, "fp16": 165.2, "fp8": 330.3},
    "NVIDIA RTX A4000": {"fp32": 19.2, "fp16": 153.4 / 2, "bf16": 153.4 / 2},  # the sheet's tensor figure is sparse
    "AMD Instinct MI210": {"fp64": 22.6, "fp32": 45.3, "fp16": 181, "bf16": 181, "int8": 181},
    "Tesla V100-DGXS-32GB": {"fp16": 500 / 4},  # a DGX Station has four
    "NVIDIA RTX A6000": {"fp32": 38.7, "tf32": 77.4, "bf16": 154.8},
    "NVIDIA RTX 6000 Ada Generation": {"fp32": 91.1, "fp8": 1457 / 2},
    "NVIDIA H20": {"fp32": 44, "tf32": 74, "bf16": 148, "fp8": 296},
    "NVIDIA B200": {"fp32": 600 / 8, "tf32": 18e3 / 16, "bf16": 36e3 / 16, "fp8": 72e3 / 16},  # HGX, sparse tensor
    "NVIDIA B300 SXM6 AC": {"fp64": 10 / 8, "fp32": 600 / 8, "tf32": 18e3 / 16, "bf16": 36e3 / 16, "fp8": 72e3 / 16},
    "Tesla V100-SXM2-16GB": {"fp32": 15.7, "fp16": 125},
    "Tesla V100S-PCIE-32GB": {"fp32": 16.4, "fp16": 130},
    "Tesla K80": {"fp32": 8.74 / 2, "fp64": 2.91 / 2},  # the board holds two devices
    "NVIDIA TITAN RTX": {"fp32": 16.3, "fp16": 130},
    "Tesla M40": {"fp32": 7},
    "Tesla P4": {"fp32": 5.5},
    "NVIDIA TITAN X (Pascal)": {"fp32": 11, "int8": 44},
    "AMD Instinct MI100": {"fp64": 11.5, "fp32": 46.1, "fp16": 184.6, "bf16": 92.3, "int8": 184.6},
    # Figures of other tables than those that the rows were made from, or of the makers' own pages
    "NVIDIA GeForce RTX 5080": {"fp4": 1801 / 2, "fp32": 56.28},  # AI TOPS are fp4 with sparsity
    "NVIDIA GeForce RTX 5070 Ti": {"fp4": 1406 / 2, "fp32": 43.94},
    "NVIDIA GeForce RTX 5070": {"fp4": 988 / 2},
    "NVIDIA GeForce RTX 5050": {"fp4": 210.53, "fp32": 13.17},
    "NVIDIA GeForce RTX 4070": {"fp32": 29.15, "bf16": 165.2 / 512 * 184 / 2520 * 2475},  # an RTX 4090's, scaled
    "NVIDIA GeForce RTX 4060 Ti": {"fp32": 22.06, "bf16": 165.2 / 512 * 136 / 2520 * 2535},
    "NVIDIA GeForce RTX 4090 D": {"fp32": 73.54},
    "NVIDIA GeForce RTX 3070 Ti": {"fp32": 21.75, "fp16": 71 / 328 * 192 / 1695 * 1770},  # an RTX 3090's, scaled
    "NVIDIA GeForce RTX 3090 Ti": {"fp32": 40, "fp16": 80},
    "NVIDIA GeForce RTX 2080 SUPER": {"fp32": 11.15, "fp16": 44.6},
    "NVIDIA GeForce RTX 2070 SUPER": {"fp16_cuda_core": 18.12},
    "NVIDIA RTX A5000": {"fp32": 27.77, "bf16": 154.8 / 336 * 256 / 1800 * 1695},  # an RTX A6000's, scaled
    "NVIDIA RTX 5000 Ada Generation": {"fp32": 65.3, "bf16": 364.2 / 568 * 400 / 2505 * 2550},
    "NVIDIA RTX PRO 5000 Blackwell": {"fp32": 66.94},
    "Tesla P40": {"fp32": 12, "int8": 47},
    "NVIDIA A800-SXM4-80GB": {"bf16": 312, "tf32": 156},
    "NVIDIA L20": {"bf16": 119.5},
    "NVIDIA GB300": {"fp32": 80, "bf16": 5000 / 2, "fp8": 10000 / 2, "fp4": 15000},
    "AMD Instinct MI300A": {"bf16": 228 * 2048 * 2.1e-3, "fp8": 228 * 4096 * 2.1e-3},  # units × FLOP a clock × GHz
    "AMD Instinct MI355X": {"bf16": 256 * 4096 * 2.4e-3, "fp8": 256 * 8192 * 2.4e-3},
    "AMD Radeon RX 9070 XT": {"fp8": 1557 / 4},  # of int4 with sparsity, which is twice int4 and four times fp8
    "AMD Radeon RX 7900 XT": {"bf16": 103.0, "fp32": 51.5},
    "AMD Instinct MI250": {"bf16": 362.1 / 2},
    "Intel Gaudi 3": {"bf16": 1835},
    "Google TPU v6e": {"bf16": 234.9e3 / 256},  # a pod of 256 chips
    "Google TPU v5e": {"bf16": 50.63e3 / 256, "int8": 100e3 / 256},
    "Google TPU v3 (core)": {"bf16": 123 / 2},
    "AWS Trainium3": {"mxfp8": 315 * 8},  # eight cores of 315
    "AWS Trainium2": {"bf16": 667, "fp8": 1299},
    "AWS Inferentia2": {"bf16": 190, "int8": 380},
}

ROUNDED = {
    **dict.fromkeys(("NVIDIA GeForce RTX 3070 Ti", "NVIDIA GeForce RTX 4070", "NVIDIA RTX A5000"), 4e-3),
    **dict.fromkeys(("AMD Instinct MI355X", "AMD Radeon RX 9070 XT", "NVIDIA GeForce RTX 5070"), 2e-3),
    **dict.fromkeys(("Google TPU v5e", "NVIDIA GeForce RTX 5070 Ti"), 7e-3),
    "AWS Trainium3": 2e-3,
}
"""Devices whose figure is compared with one that was rounded to fewer digits."""

TENSOR = ("tf32", "fp16", "bf16", "fp8", "int8", "fp16_fp16acc")
SMALL = (*TENSOR[:5], "fp6", "fp4")

# (row, units) → figure ÷ (multiprocessors × rate × 2 × boost clock) - 1, where it is beyond 1 %, and why.
DEVIATIONS: dict[str, list[tuple[tuple[str, ...], float, str]]] = {
    "NVIDIA L40S": [(("fp16", "bf16"), -0.012, "the sheet prints 362.05, 366.4 follows from 2520 MHz")],
    "NVIDIA H100 PCIe": [(TENSOR, -0.077, "tensor units quoted at 1620 of 1755 MHz")],
    "NVIDIA H100 80GB HBM3": [(TENSOR, -0.076, "tensor units quoted at 1830 of 1980 MHz")],
    "NVIDIA H100 NVL": [(TENSOR[:5], -0.134, "tensor units quoted at 1545 of 1785 MHz")],
    "NVIDIA H200": [(TENSOR[:5], -0.076, "as H100 SXM"), (("fp64",), 0.016, "33.5 rounded up to 34")],
    "NVIDIA H200 NVL": [(TENSOR[:5], -0.134, "as H100 NVL")],
    "NVIDIA GH200 480GB": [(TENSOR[:5], -0.076, "as H100 SXM"), (("fp64",), 0.016, "33.5 rounded up to 34")],
    "NVIDIA GH200 144G HBM3e": [(TENSOR[:5], -0.076, "as H100 SXM"), (("fp64",), 0.016, "33.5 rounded up to 34")],
    "Tesla M40": [(("fp32",), 0.023, "6.84 rounded up to 7")],
    "Tesla P4": [(("fp32",), 0.0105, "5.44 rounded up to 5.5")],
    "Tesla P40": [(("fp32",), 0.0205, "11.76 rounded up to 12")],
    "NVIDIA H20": [
        (("fp32",), 0.113, "44 printed; 78 multiprocessors give 39.5 at 1980 MHz"),
        (TENSOR[:5], -0.064, "tensor units quoted at 1853 MHz"),
    ],
    "NVIDIA B200": [(SMALL, -0.056, "tensor units quoted at 1856 of 1965 MHz")],
    "NVIDIA GB200": [(SMALL, -0.026, "tensor units quoted at 2008 of 2062 MHz")],
    "NVIDIA B300 SXM6 AC": [
        (TENSOR[:4], -0.087, "tensor units quoted at 1856 of 2032 MHz"),
        (("fp32",), -0.026, "B200's 75 printed for the faster clock"),
        (("fp64",), 0.039, "10 for eight devices, a rounded figure"),
    ],
}

ROWS = {row.name: row for row in peaks.all_devices()}


@pytest.mark.parametrize(("name", "expected"), NAMES.items())
def test_each_name_means_one_row_or_none(name: str, expected: str | None) -> None:
    found = peaks.lookup(name)
    assert (found.name if found else None) == expected


SECOND = {"NVIDIA GeForce RTX 3080 (12 GB)", "NVIDIA GeForce RTX 2060 (12 GB)", "AMD Instinct MI250"}
"""Rows whose printed name is another row's, too: told apart by the count of multiprocessors."""


def test_every_row_is_named_in_the_test() -> None:
    assert {name for name in NAMES.values() if name} == ROWS.keys() - SECOND


def test_every_printed_name_leads_back_to_its_row() -> None:
    for row in ROWS.values():
        for spelling in row.names:
            assert peaks.lookup(spelling, row.multiprocessors) is row


def test_one_printed_name_for_two_parts_is_told_apart_by_the_count() -> None:
    shared = "NVIDIA GeForce RTX 3080"
    ten, twelve = peaks.lookup(shared, 68), peaks.lookup(shared, 70)
    assert (ten.name, twelve.name) == (shared, "NVIDIA GeForce RTX 3080 (12 GB)")
    assert "12 GB" in ten.note  # whoever asks by name alone is told
    assert peaks.lookup(shared, 46) is None
    dies = [peaks.lookup("AMD Instinct MI250X / MI250", count) for count in (110, 104)]
    assert [die.name for die in dies if die] == ["AMD Instinct MI250X / MI250", "AMD Instinct MI250"]
    cards = [peaks.lookup("NVIDIA GeForce RTX 2060", count) for count in (30, 34)]
    assert [card.name for card in cards if card] == ["NVIDIA GeForce RTX 2060", "NVIDIA GeForce RTX 2060 (12 GB)"]
    assert peaks.lookup("NVIDIA A100-SXM4-40GB", 14) is None  # a slice


@pytest.mark.parametrize(("name", "figures"), SHEETS.items())
def test_figures_are_those_of_the_documents(name: str, figures: dict[str, float]) -> None:
    for unit, figure in figures.items():
        assert ROWS[name].peaks[unit] == pytest.approx(figure * T, rel=ROUNDED.get(name, 1e-3)), unit


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.name)
def test_each_figure_is_multiprocessors_times_rate_times_clock(row: peaks.Device) -> None:
    allowed = {unit: ratio for units, ratio, _ in DEVIATIONS.get(row.name, []) for unit in units}
    for unit, clock_hz in row.clock_hz.items():
        assert clock_hz / row.boost_hz - 1 == pytest.approx(allowed.pop(unit, 0.0), abs=0.01), unit
    assert not allowed  # no exception without a figure


def test_every_row_says_where_it_is_from() -> None:
    for row in ROWS.values():
        assert row.source
        assert row.evidence
        assert row.verified.keys() == {*row.peaks, "bandwidth"}
        assert set(row.verified.values()) <= {"retrieved", "derived", "memory"}
        assert row.peaks.keys() <= {*UNITS, *peaks.EXTRA_UNITS}


def test_a_peak_follows_the_clock() -> None:
    row = ROWS["NVIDIA H100 80GB HBM3"]
    assert row.clock_hz["bf16"] == pytest.approx(1830e6, rel=1e-3)
    # 132 multiprocessors × 2048 × 2 × 1 GHz
    assert row.at_clock("bf16", 1e9) == pytest.approx(540.672 * T, rel=1e-9)
    assert row.at_clock("bf16", row.clock_hz["bf16"]) == pytest.approx(row.peaks["bf16"])
    assert row.at_clock("fp6", 1e9) is None
    assert ROWS["NVIDIA H20"].at_clock("fp64", 1e9) is None


def test_the_derived_bound_is_the_product() -> None:
    bound = peaks.derived_upper_bound("8.0", 108, 1.41e9, geforce=False)
    assert bound["bf16"] == pytest.approx(311.87 * T, rel=1e-4)  # 108 × 1024 × 2 × 1.41e9
    assert bound["fp32"] == pytest.approx(19.49 * T, rel=1e-3)  # 108 × 64 × 2 × 1.41e9
    consumer = peaks.derived_upper_bound("8.6", 46, 1.725e9, geforce=True)
    assert consumer["fp16"] == pytest.approx(40.6 * T, rel=1e-3)  # RTX 3070: 46 × 256 × 2 × 1.725e9
    assert peaks.derived_upper_bound("8.6", 46, 1.725e9, geforce=False)["fp16"] == 2 * consumer["fp16"]
    assert peaks.derived_upper_bound("99.9", 1, 1e9, geforce=False) == {}
    with pytest.raises(ValueError, match="0 multiprocessors"):
        peaks.derived_upper_bound("8.0", 0, 1e9, geforce=False)


def test_a_stand_in_has_the_peaks_of_its_device_and_keeps_its_own_name() -> None:
    name = "Stand-in of NVIDIA H100 80GB HBM3"
    device = peaks.lookup(name, 132)
    assert device == peaks.lookup("NVIDIA H100 80GB HBM3", 132)
    assert peaks.spelling(device, name) == name, "the mark is never lost"
    assert [peaks.is_stand_in(each) for each in (name, device.name, "A Stand-in of")] == [True, False, False]
    assert peaks.lookup("Stand-in of a device that nobody knows") is None


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("rtx 4090", "NVIDIA GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("MI300X", "AMD Instinct MI300X"),
        ("instinct mi300x", "AMD Instinct MI300X"),
    ],
)
def test_a_person_may_type_words_that_one_device_has(typed, name):
    assert peaks.device_called(typed).name == name
    if typed != name:
        assert peaks.lookup(typed) is None
