"""What collectives move, against rings and trees that are walked message by message."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from analysis.devices.memory import Link, between, links, within
from analysis.devices.peaks import lookup
from analysis.project.accelerator import Group, all_reduce_s, half_s

FAST = Link("fast", "nvlink", 100.0, 2.0)
SLOW = Link("slow", "network", 10.0, 3.0)


def ring(devices: int, total: int) -> tuple[list[int], int]:
    """An all-reduce of `total` bytes walked: (bytes that each device sent, steps). The sums must be right."""
    size = total // devices
    data = [np.arange(total, dtype=float) * (device + 1) for device in range(devices)]
    right, sent, steps = sum(data), [0] * devices, 0
    for phase, step in itertools.product((0, 1), range(devices - 1)):
        # a device sends one chunk to its right: first sums on their way, then finished ones
        moves = [(device, (device - step + phase) % devices) for device in range(devices)]
        chunks = [data[device][chunk * size : (chunk + 1) * size].copy() for device, chunk in moves]
        for (device, chunk), values in zip(moves, chunks, strict=True):
            place = slice(chunk * size, (chunk + 1) * size)
            neighbour = data[(device + 1) % devices]
            neighbour[place] = values + neighbour[place] if phase == 0 else values
            sent[device] += size
        steps += 1
    assert all(np.array_equal(each, right) for each in data)
    return sent, steps


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_a_ring_takes_what_it_is_walked_to_send(devices: int) -> None:
    """Both halves; latencies apart, as seconds of a link of 1 byte/s."""
    sent, steps = ring(devices, 24 * devices)
    bytes_alone, steps_alone = (
        2 * half_s(total, Group(devices, devices, link, link))
        for total, link in ((24 * devices, Link("", "nvlink", 1.0, 0.0)), (0, Link("", "nvlink", 1.0, 1.0)))
    )
    assert set(sent) == {bytes_alone}
    assert steps == steps_alone == 2 * (devices - 1)


@pytest.mark.parametrize("devices", [2, 4, 8, 16])
def test_two_trees_send_twice_the_bytes_at_most(devices: int) -> None:
    """Two trees over the same devices, the second shifted by one: even places are leaves in one of them.

    Each carries half of the bytes up, once a device but the root, and down, once a child. The time has twice the bytes.
    """
    sent = [0.0] * devices
    for shift in (0, 1):
        for child in range(1, devices):  # in-order binary tree over 1 … n − 1 below a root at 0: odd places are leaves
            low = child & -child
            parent = (child ^ low) | (low << 1)
            parent = parent if parent < devices else child ^ low
            sent[(child + shift) % devices] += 0.5  # up
            sent[(parent + shift) % devices] += 0.5  # down
    assert max(sent) <= 2
    assert sum(sent) == pytest.approx(2 * (devices - 1))


def test_time_by_hand_within_a_node() -> None:
    # 4 devices, 400 B: 3 steps of 2 s and 300 B at 100 B/s a half: 18 s; two trees 4 steps and 800 B: 16 s
    group = Group(4, 4, FAST, SLOW)
    assert half_s(400, group) == pytest.approx(9.0)
    assert all_reduce_s(400, group) == pytest.approx(16.0)
    assert all_reduce_s(4000, group) == pytest.approx(2 * (6 + 30))  # many bytes: the ring sends fewer
    assert all_reduce_s(400, Group(4, 4, FAST, SLOW, achieved=0.5)) == pytest.approx(8 + 16)
    assert all_reduce_s(100, Group(2, 2, FAST, SLOW)) == pytest.approx(2 * (2 + 0.5))
    assert all_reduce_s(400, Group(1, 1, FAST, SLOW)) == 0.0


def test_layers_beat_a_ring_through_all_nodes() -> None:
    """2 nodes of 4, 800 B. In layers: 6 + 600/100 within, then 200 B between 2: 3 + 100/10; a flat ring 21 + 70."""
    group = Group(8, 4, FAST, SLOW)
    assert half_s(800, group) == pytest.approx(12 + 13)
    assert half_s(800, group) < 7 * 3 + 700 / 10
    alone = Group(2, 1, FAST, SLOW)
    assert half_s(800, alone) == pytest.approx(3 + 400 / 10)


def test_links_of_known_nodes() -> None:
    """Half of what datasheets print for both ways: 600 GB/s for an A100, 900 for an H100; PCIe 4: 31.5 a way."""
    table = links()
    a100, h100, l40s = (lookup(name) for name in ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L40S"))
    assert a100
    assert h100
    assert l40s
    assert (within(a100).bytes_per_s, between(a100).bytes_per_s) == (300e9, 25e9)
    assert (within(h100).bytes_per_s, between(h100).bytes_per_s) == (450e9, 50e9)
    assert within(l40s) == table["PCIe 4 x16"]
    for generation, transfers in ((3, 8e9), (4, 16e9), (5, 32e9)):
        assert table[f"PCIe {generation} x16"].bytes_per_s == pytest.approx(transfers * 16 * 128 / 130 / 8, rel=1e-3)
    assert all(link.latency_s < 1e-5 and math.isfinite(link.bytes_per_s) for link in table.values())
