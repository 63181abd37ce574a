"""Which ceilings are asked for the algorithm of their kernels, and what comes of it."""

from __future__ import annotations

import pytest
import torch

from measure.ceiling import ceilings as ceiling_ceilings
from measure.ceiling.algorithms import above_sheet
from measure.ceiling.ceilings import Bench
from measure.ceiling.trials import Trial
from results.records.samples import Ceiling

V100, FP32 = "Tesla V100-SXM2-16GB", 15.7e12
"""Its sheet: 15.7 TFLOP/s of IEEE fp32."""


def row(rate: float, operation: str = "convolution", unit: str = "fp32") -> Ceiling:
    return Ceiling(
        sitting="", device="cuda", precision="fp32", unit=unit, operation=operation, shape="", flop_per_s=rate
    )


@pytest.mark.parametrize(
    ("made", "name", "asked"),
    [
        (row(1.1 * FP32), V100, True),
        (row(0.9 * FP32), V100, False),
        (row(1.1 * FP32, operation="matmul"), V100, False),
        (row(200e12, unit="fp16"), V100, False),  # tensor units have no such algorithm
        (row(1.1 * FP32), "Abacus 1", False),
    ],
)
def test_convolutions_of_vector_units_above_the_sheet_are_asked(made: Ceiling, name: str, asked: bool) -> None:
    assert above_sheet(made, name) is asked


@pytest.mark.parametrize(
    ("kernels", "algorithm"),
    [(["volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"], "winograd"), (["volta_scudnn_128x64"], "")],
)
def test_its_kernels_name_the_algorithm(monkeypatch: pytest.MonkeyPatch, kernels: list[str], algorithm: str) -> None:
    bench = object.__new__(Bench)
    bench.device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: V100)
    monkeypatch.setattr(bench, "prepared", lambda trial: lambda: None)
    monkeypatch.setattr(ceiling_ceilings, "kernel_names", lambda call: kernels)
    trial = Trial("convolution", (1, 64, 8), "channels_last")
    assert bench.explained(row(1.1 * FP32), trial).family == algorithm
    assert bench.explained(row(0.9 * FP32), trial).family == ""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_device_tells_the_names_of_its_kernels() -> None:
    from measure.ceiling.algorithms import kernel_names

    a = torch.ones(64, 64, device="cuda")
    assert kernel_names(lambda: a @ a)
