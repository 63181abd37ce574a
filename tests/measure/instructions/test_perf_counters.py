"""Counters of floating-point instructions, over made-up files of /sys and /proc, and events that are files."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from measure.device import environment
from measure.instructions.perf_counters import (
    ATTRIBUTES,
    DISABLE,
    ENABLE,
    RESET,
    Event,
    FlopCounters,
    count_flop,
    flop_counters,
)
from results import Unavailable

ICE_LAKE = """processor : 0
vendor_id : GenuineIntel
cpu family : 6
model : 106
model name : Intel(R) Xeon(R) Platinum 8370C
stepping : 6
flags : fpu sse2 avx2 fma avx512f
"""
NEOVERSE = "processor : 0\nFeatures : fp asimd sve\nCPU implementer : 0x41\nCPU architecture: 8\nCPU part : 0xd40\n"
NEOVERSE += "CPU variant : 0x1\nCPU revision : 1\n"


class Files:
    """The kernel's part: each event is a file that holds its count, and was counted all the time but for `lost_ns`.

    counts: config → counts of the calls that it is asked about, in order.
    """

    def __init__(self, folder: Path, counts: dict[int, Sequence[int]], lost_ns: int = 0, refuses: int = 0) -> None:
        self._folder, self._lost_ns, self._refuses = folder, lost_ns, refuses
        self._counts = {config: iter(values) for config, values in counts.items()}
        self.requests: list[int] = []
        self.types: set[int] = set()

    def open(self, attributes: bytes) -> int:
        if self._refuses:
            raise OSError(self._refuses, os.strerror(self._refuses))
        kind, size, config, *_ = ATTRIBUTES.unpack(attributes)
        assert size == len(attributes) == 64
        self.types.add(kind)
        file = self._folder / f"{config:x}"
        file.write_bytes(struct.pack("=QQQ", next(self._counts[config]), 1000, 1000 - self._lost_ns))
        return os.open(file, os.O_RDONLY)

    def control(self, file: int, request: int) -> None:
        self.requests.append(request)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    put(tmp_path, "proc/cpuinfo", ICE_LAKE)
    put(tmp_path, "proc/sys/kernel/perf_event_paranoid", "4\n")
    put(tmp_path, "sys/bus/event_source/devices/cpu/type", "4\n")
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    return tmp_path


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


INTEL = {0x3C7: 7, 0x4C7: 5, 0x18C7: 3, 0x60C7: 2, 0x80C7: 1}


def test_each_count_stands_for_the_lanes_of_its_registers(root: Path) -> None:
    """7 scalars, 5 of two lanes, 3 of four, 2 of eight, 1 of sixteen: 7 + 10 + 12 + 16 + 16 FLOP."""
    files, calls = Files(root, {config: [count] for config, count in INTEL.items()}), []
    counters = flop_counters(root, files)
    assert counters.flop(lambda: calls.append(len(files.requests))) == 61
    assert files.requests == [RESET, ENABLE, DISABLE] * 5
    assert calls == [2, 5, 8, 11, 14], "between being turned on and off"
    assert files.types == {4}


def test_scalable_vectors_count_by_their_length(root: Path) -> None:
    """Vectors of 32 bytes: a count of 128 bits is two. 10 + 2 · 6."""
    put(root, "proc/cpuinfo", NEOVERSE)
    put(root, "proc/sys/abi/sve_default_vector_length", "32\n")
    files = Files(root, {0x80C1: [10], 0x80C0: [6]})
    assert flop_counters(root, files).flop(lambda: None) == 22
    put(root, "proc/sys/abi/sve_default_vector_length", "")
    with pytest.raises(Unavailable, match="expected the bytes of a vector, got ''"):
        flop_counters(root, files)


def test_a_counter_that_was_shared_is_no_count(root: Path) -> None:
    counters = flop_counters(root, Files(root, {config: [9] for config in INTEL}, lost_ns=1))
    with pytest.raises(Unavailable, match="0x3c7 was counted for 999 of 1000 ns: others use the counters"):
        counters.flop(lambda: None)


def test_what_the_system_refuses_has_its_setting(root: Path) -> None:
    with pytest.raises(Unavailable, match=r"event 0x3c7: Permission denied \(perf_event_paranoid is 4\)"):
        flop_counters(root, Files(root, {}, refuses=errno.EACCES)).flop(lambda: None)
    with pytest.raises(Unavailable, match=r"event 0x3c7: No such file or directory$"):
        flop_counters(root, Files(root, {}, refuses=errno.ENOENT)).flop(lambda: None)


def test_a_machine_without_counters_and_a_processor_without_events_say_so(root: Path) -> None:
    put(root, "proc/cpuinfo", ICE_LAKE.replace("106", "63"))  # Haswell, whose event 0xC7 is another
    with pytest.raises(Unavailable, match="known of Haswell: expected Broadwell"):
        flop_counters(root, Files(root, {}))
    (root / "sys/bus/event_source/devices/cpu/type").unlink()
    with pytest.raises(Unavailable, match="no performance counters: /sys/bus/event_source/devices has none"):
        flop_counters(root, Files(root, {}))


def test_counters_that_miss_a_known_product_are_not_believed(root: Path) -> None:
    """64³ multiply-adds are 524,288 FLOP, and one call of an operator follows."""
    one = (Event(0x1, 2.0),)
    good = FlopCounters(4, one, Files(root, {0x1: [64**3, 4096]}))
    assert count_flop(["mm_16x16x16"], good) == {"mm_16x16x16": {"flop": 8192}}
    bad = FlopCounters(4, one, Files(root, {0x1: [64**3 // 2, 4096]}))
    with pytest.raises(Unavailable, match="not believed: a product of 524,288 FLOP had 262,144"):
        count_flop(["mm_16x16x16"], bad)
