"""Ideal fusion of real models' steps, traced on fake tensors: bytes of a kernel by hand, and who moves most."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from analysis.operators import registry
from analysis.profile.fusion import fused
from measure.operations.tracer import Trace, trace
from measure.profile.rows import in_groups, operation_rows
from reports.profile.explanation import DEPTHWISE, explained, movers
from results.records.step_profile import StepProfile
from runners.workers.any_model import _parts
from tests.support.made_up.made_up_profile import MACHINE, PROFILE
from workloads.sources.any_model import get


@cache
def traced(model: str, batch: int) -> Trace:
    return trace(lambda mode: _parts(get(model), batch, mode))


def test_the_stem_of_resnet18() -> None:
    """Convolution, normalisation, relu in place and pooling at batch 32 are one kernel. It reads images (32·3·224²) and
    weights (64·3·7²); writes the convolution's output and relu's (32·64·112² each), which the backward pass reads, and
    what pooling gives (32·64·56²), all of 4 B, with its indices of 8 B; 4 tensors of 64 channels in, 4 out."""
    found = traced("resnet18", 32)
    groups = fused(found.operations, found.storages)
    stem = {operation.module for operation, (group, _) in zip(found.operations, groups, strict=True) if group == 0}
    assert stem == {"conv1", "bn1", "relu", "maxpool"}
    image, weight, out, pooled = 32 * 3 * 224**2, 64 * 3 * 7**2, 32 * 64 * 112**2, 32 * 64 * 56**2
    assert groups[0] == (0, 4 * (image + weight + 2 * out + pooled) + 8 * pooled + 4 * 8 * 64)


@pytest.mark.parametrize(("model", "batch"), [("resnet18", 32), ("vit_b_16", 2)])
def test_every_product_leads_and_half_of_the_bytes_stay_inside(model: str, batch: int) -> None:
    found = traced(model, batch)
    groups = fused(found.operations, found.storages)
    products = [operation for operation in found.operations if registry.kind_of(operation.name) in registry.PRODUCTS]
    assert all(groups[operation.index][0] == operation.index for operation in products)
    assert len(products) > 40
    unfused = sum(registry.cost(operation).moved_bytes for operation in found.operations)
    assert 0.4 < sum(nbytes for _, nbytes in groups) / unfused < 0.6


def test_what_moves_mobilenets_bytes() -> None:
    """On a machine of 20 FLOP a byte: normalisation, activations and depthwise convolutions move most of the bytes and
    calculate little."""
    found = traced("mobilenet_v2", 32)
    rows, _ = operation_rows(found.operations, (), "fp32", "cpu")
    machine = replace(MACHINE, peak_by_unit={"fp32": 2e11}, bytes_per_s=1e10)
    operations = in_groups(rows, fused(found.operations, found.storages))
    profile: StepProfile = replace(
        PROFILE, model="mobilenet_v2", batch_size=32, operations=operations, modules=(), machine=machine
    )
    most = movers(profile)[:3]
    assert {name for name, *_ in most} == {"normalisation", "activations", DEPTHWISE}
    total = sum(row.read_bytes + row.written_bytes for row in operations)
    assert sum(nbytes for _, nbytes, _ in most) > 0.6 * total
    assert 0 < sum(flop for *_, flop in most) < 0.1 * sum(row.model_flop for row in operations)
    assert "normalisation, activations and depthwise convolutions move" in explained(profile)[1]
    assert "this machine can do 20 FLOP" in explained(profile)[2]
    assert "depthwise convolution uses each number for one channel of its result" in explained(profile)[2]
