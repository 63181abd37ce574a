"""Memories of devices: every name of the table of peaks but those left out on purpose, and amounts as text."""

from __future__ import annotations

import pytest

from analysis.devices import memory as devices_memory
from analysis.devices.peaks import all_devices

UNKNOWN = {
    *("NVIDIA B300 SXM6 AC", "NVIDIA GB300"),
    # cards of two sizes have one name
    *("NVIDIA GeForce RTX 2060", "NVIDIA GeForce RTX 3050", "NVIDIA GeForce RTX 3060"),
    *("NVIDIA GeForce RTX 4060 Ti", "NVIDIA GeForce RTX 5060 Ti"),
    # the runtime shows cores, or no page was read that says it
    *("TPU v2", "TPU v3", "TPU v4", "TPU v5", "TPU v5p", "TPU7x", "TPU v7x"),
    *("AWS Trainium", "AWS Trainium1", "AWS Trainium2", "AWS Trainium3", "AWS Inferentia2"),
}


def test_every_device_with_a_peak_has_a_memory_or_is_left_out() -> None:
    named = {name for device in all_devices() for name in device.names}
    assert {name for name in named if devices_memory.lookup(name) is None} == UNKNOWN
    assert set(devices_memory.names()) == named - UNKNOWN


@pytest.mark.parametrize(
    "name", [name for name in devices_memory.names() if devices_memory.lookup(name).verification == "name"]
)
def test_a_name_that_says_it_agrees(name: str) -> None:
    memory = devices_memory.lookup(name)
    assert f"{memory.memory_bytes // 10**9}GB" in name.replace("G HBM", "GB HBM")


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [("NVIDIA H100 80GB HBM3", 80), ("h100 80gb hbm3", 80), ("Tesla T4", 16), ("NVIDIA H200", 141)],
)
def test_known_ones(name: str, gigabytes: int) -> None:
    assert devices_memory.lookup(name).memory_bytes == gigabytes * 10**9


def test_no_part_of_a_name_is_enough() -> None:
    assert devices_memory.lookup("H100") is None
