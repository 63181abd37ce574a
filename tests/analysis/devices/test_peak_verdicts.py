"""Verdicts on other tables: each kind of wrong figure is recognised by a figure that a table really has."""

from __future__ import annotations

import pytest

from analysis.devices import judge, lookup
from analysis.devices.peak_verdicts import DRIVER_NAMES, VERDICTS

# (device, format, TFLOP/s) → (verdict, words of what it was taken for). Sheets' figures, typed.
CASES = {
    ("NVIDIA A100-SXM4-80GB", "bf16", 312): ("right", ""),
    ("NVIDIA H100 80GB HBM3", "bf16", 989): ("right", ""),  # 989.4 rounded
    ("NVIDIA A100-SXM4-80GB", "bf16", 319): ("wrong", "1.02 × ours"),  # beyond 2 %
    ("NVIDIA H100 80GB HBM3", "bf16", 1979): ("wrong", "2:4 sparsity (2.00 ×)"),
    ("NVIDIA L40S", "bf16", 312): ("wrong", "that of NVIDIA A100-SXM4-80GB"),
    ("NVIDIA L40S", "bf16", 121): ("wrong", "that of NVIDIA L4"),
    ("NVIDIA A10G", "fp16", 125): ("wrong", "that of NVIDIA A10"),
    ("NVIDIA GeForce RTX 3090", "fp16", 142): ("wrong", "fp16 accumulation"),
    ("NVIDIA GeForce RTX 4090", "bf16", 82.6): ("wrong", "the fp32 vector units"),
    ("NVIDIA RTX A6000", "bf16", 77.4): ("wrong", "its tf32"),
    ("NVIDIA RTX A6000", "bf16", 312): ("wrong", "that of NVIDIA A100-SXM4-80GB"),  # 309.7 is the sparse one
    ("NVIDIA B200", "bf16", 2382): ("wrong", "highest clock"),  # 148 × 4096 × 2 × 1.965 GHz
    ("AMD Instinct MI250X / MI250", "bf16", 383): ("wrong", "two devices"),
    ("NVIDIA H100 NVL", "bf16", 1979): ("wrong", "with 2:4 sparsity that of NVIDIA H100 80GB HBM3"),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", "bf16", 165.2): ("no figure here", ""),
    ("Tesla V100-SXM2-16GB", "bf16", 125): ("no figure here", ""),
    ("a card that nobody knows", "bf16", 1): ("no figure here", ""),
}


@pytest.mark.parametrize(("asked", "expected"), CASES.items())
def test_a_figure_gets_its_verdict_and_what_it_was_taken_for(asked, expected):
    device, dtype, tera = asked
    found = judge(device, dtype, tera * 1e12)
    assert (found.verdict, found.said_flop_per_s) == (expected[0], tera * 1e12)
    assert expected[1] in found.took
    assert bool(found.took) == (found.verdict == "wrong")


def test_no_figure_is_a_refusal_or_unknown_to_both():
    assert judge("NVIDIA L40S", "bf16", None).verdict == "refused"
    assert judge("NVIDIA L40S", "bf16", None).ours_flop_per_s == 362.05e12
    assert judge("Tesla V100-SXM2-16GB", "bf16", None).verdict == "both unknown"


def test_a_table_of_rates_is_judged_by_its_rate():
    # 132 multiprocessors × 1024 multiply-adds of an A100 × 2 × 1.98 GHz, for a card whose rate is 2048
    found = judge("NVIDIA H100 80GB HBM3", "bf16", 132 * 1024 * 2 * 1.98e9, by_rate=True)
    assert (found.verdict, found.took) == ("wrong", "an A100's rate")
    own = judge("NVIDIA H100 80GB HBM3", "bf16", 132 * 2048 * 2 * 1.98e9, by_rate=True)
    assert (own.verdict, own.took) == ("wrong", "its rate at the highest clock")


def test_names_are_asked_as_drivers_print_them():
    assert len(DRIVER_NAMES) == len(set(DRIVER_NAMES)) >= 45
    assert sum(lookup(name) is not None for name in DRIVER_NAMES) >= 35
    assert len(set(VERDICTS)) == 5
