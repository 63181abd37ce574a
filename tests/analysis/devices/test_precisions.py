"""The unit of a float32 product: tf32 where the policy allows it and the device is no CPU."""

from __future__ import annotations

import pytest

from analysis.devices.precisions import PRECISIONS, unit_of


@pytest.mark.parametrize(
    ("policy", "device", "unit"),
    [("fp32", "cuda", "fp32"), ("tf32", "cuda:1", "tf32"), ("fp32", "cpu", "fp32"), ("tf32", "cpu", "fp32")],
)
def test_tf32_needs_the_policy_and_a_device_that_has_it(policy: str, device: str, unit: str) -> None:
    assert unit_of("float32", PRECISIONS[policy], device) == unit
