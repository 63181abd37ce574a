"""Looks up the memory sizes of devices, and the rates and latencies of the links between devices.

`lookup` takes a name exactly as the driver prints it, and returns a `Memory` of `memories.csv`. Datasheets' round
gigabytes are 10⁹ bytes; drivers offer up to 2 % less, or slightly more. `verification` is `name` (the driver's name has
the size), `retrieved` (a public text has it) or `memory` (recalled, not looked up, or the text differs). `within` and
`between` take a `Device`, and return its `Link` of `interconnects.csv` inside a node and between nodes. Rates are in
one direction, half of NVLink datasheets' figures. Latencies are of one ring step (NVIDIA/nccl, src/graph/tuning.cc at
01afd20). Not claimed: contention between switches, or that a collective reaches the rate. `ACHIEVED` is assumed (on
NVLink 4 reduce-scatter was seen at 360 of 450 GB/s, NVIDIA/nccl issue 1281).
"""

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from analysis.devices.peaks import Device, normalise

MEMORIES = Path(__file__).with_name("memories.csv")


@dataclass(frozen=True)
class Memory:
    """The memory size of a device. name: the device's name as drivers print it."""

    name: str
    memory_bytes: int
    source: str
    verification: str


def lookup(name: str) -> Memory | None:
    """Return the memory of the device that prints this name; None where it is not known."""
    return _by_name().get(normalise(name))


def names() -> list[str]:
    """Return every name of the table."""
    return [memory.name for memory in _by_name().values()]


@functools.cache
def _by_name() -> Mapping[str, Memory]:
    memories: dict[str, Memory] = {}
    with MEMORIES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            for name in row["names"].split("|"):
                memory_bytes = int(row["memory_gb"]) * 10**9
                memories[normalise(name)] = Memory(name, memory_bytes, row["source"], row["verification"])
    return memories


INTERCONNECTS = Path(__file__).with_name("interconnects.csv")


ACHIEVED = 0.8
"""Share of a link's rate that a collective of large messages reaches. Assumed."""

WITHIN: Mapping[str, str] = {
    "Tesla P100-SXM2-16GB": "PCIe 3 x16",
    "Tesla V100-SXM2-16GB": "NVLink 2",
    "Tesla V100-DGXS-32GB": "NVLink 2",
    "NVIDIA A100-SXM4-40GB": "NVLink 3",
    "NVIDIA A100-SXM4-80GB": "NVLink 3",
    "NVIDIA H100 80GB HBM3": "NVLink 4",
    "NVIDIA H200": "NVLink 4",
    "NVIDIA H20": "NVLink 4",
    "NVIDIA B200": "NVLink 5",
    "NVIDIA GB200": "NVLink 5",
    "NVIDIA B300 SXM6 AC": "NVLink 5",
}
"""Boards that are sold in nodes joined by NVLink; for others PCIe of their generation is assumed."""

PCIE: Mapping[str, str] = {**dict.fromkeys(("3", "5", "6", "7"), "PCIe 3 x16"), "8": "PCIe 4 x16"}
"""Major compute capability → PCIe; PCIe 5 for all others."""

BETWEEN: Mapping[str, str] = {"8": "InfiniBand HDR", "9": "InfiniBand NDR", "10": "InfiniBand NDR"}
"""Major compute capability → the port that NVIDIA's own nodes have for each device; EDR for all others."""

NODE_DEVICES = 8
"""Devices of a node, if the user does not say how many."""


@dataclass(frozen=True)
class Link:
    """A link between devices. bytes_per_s: of one device in one direction; latency_s: of one step of a ring."""

    name: str
    kind: str
    bytes_per_s: float
    latency_s: float
    source: str = "given"
    verification: str = "given"


@functools.cache
def links() -> Mapping[str, Link]:
    """Return every link of the table by name."""
    with INTERCONNECTS.open(encoding="utf-8", newline="") as file:
        return {
            row["name"]: Link(
                row["name"],
                row["kind"],
                float(row["bytes_per_s"]),
                float(row["latency_s"]),
                row["source"],
                row["verification"],
            )
            for row in csv.DictReader(file)
        }


def within(device: Device) -> Link:
    """Return the default link between devices of one node."""
    major = device.compute_capability.partition(".")[0]
    return links()[WITHIN.get(device.name, PCIE.get(major, "PCIe 5 x16"))]


def between(device: Device) -> Link:
    """Return the default link of each device to other nodes."""
    return links()[BETWEEN.get(device.compute_capability.partition(".")[0], "InfiniBand EDR")]
