"""FLOP that a call executes, by the processor's own counters of floating-point instructions (Linux's perf events).

A call runs once for each event, alone on its counter, so that nothing is scaled. Counted is what this thread does in
user mode. Before anything is answered, a product whose FLOP are known is counted: where the counters say something
else, they are not believed.

Each count stands for as many FLOP as `Event.flop` says; a fused multiply-add counts twice by itself. Intel:
FP_ARITH_INST_RETIRED (perfmon-events.intel.com, Broadwell and later). AMD: FpRetSseAvxOps, PMCx003 (PPR of family 17h
model 31h; Zen 2 to 4). Arm: FP_FIXED_OPS_SPEC and FP_SCALE_OPS_SPEC (Neoverse V1's PMU guide), which also count what
was speculated in vain.

Not claimed: which kinds of operations they were, comparisons, x87, AMX, and instructions on 16-bit numbers. These
events were not tried on hardware: the machines of this project offer none. Most virtual machines do not.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from analysis.devices import identify
from measure.device import processor
from results import Unavailable

PMUS = ("cpu", "armv8_pmuv3_0", "armv8_pmuv3")
"""Folders of sys/bus/event_source/devices that are a processor's counters."""
PARANOID = "proc/sys/kernel/perf_event_paranoid"
SCALABLE = "proc/sys/abi/sve_default_vector_length"

SYSCALLS = {"x86_64": 298, "aarch64": 241}
ENABLE, DISABLE, RESET = 0x2400, 0x2401, 0x2403
"""perf_event_open(2): its number by machine, and its requests of ioctl."""
TIMES = 1 | 2
"""read_format: the time that the event was asked for, and the time that it was counted."""
FLAGS = 1 | 1 << 5 | 1 << 6
"""Off at first; without the kernel and the hypervisor."""
ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
"""struct perf_event_attr in its first version, 64 bytes."""

KNOWN_SIZE, TOLERANCE = 64, 0.05
"""Of the square matrices whose product is counted first, and by how much its FLOP may be off."""


@dataclass(frozen=True)
class Event:
    """config: as the processor's manual numbers it, unit mask in bits 8 to 15. flop: of one count."""

    config: int
    flop: float


_INTEL = tuple(Event(mask << 8 | 0xC7, flop) for mask, flop in ((0x03, 1), (0x04, 2), (0x18, 4), (0x60, 8), (0x80, 16)))
"""Scalars; 128 bits of 64; 128 of 32 and 256 of 64; 256 of 32 and 512 of 64; 512 of 32."""
_AMD = (Event(0x0F << 8 | 0x03, 1),)
"""Additions, multiplications, divisions and roots, multiply-adds: in FLOP."""
_ARM_FIXED, _ARM_SCALABLE = 0x80C1, 0x80C0

EVENTS: Mapping[str, tuple[Event, ...]] = {
    **dict.fromkeys(("Broadwell", "Skylake client", "Ice Lake server", "Golden Cove server"), _INTEL),
    **dict.fromkeys(("Skylake server, two units", "Skylake server, one unit"), _INTEL),
    **dict.fromkeys(("Zen 2", "Zen 3", "Zen 4"), _AMD),
    **dict.fromkeys(("Neoverse N2", "Neoverse V1", "Neoverse V2"), (Event(_ARM_FIXED, 1),)),
}
"""Microarchitecture, as analysis/devices/processors.csv names it → what to add up."""


class SystemCalls(Protocol):
    """The system calls that counting needs. Each raises OSError."""

    def open(self, attributes: bytes) -> int:
        """A file of an event of this thread: ATTRIBUTES."""

    def control(self, file: int, request: int) -> None:
        """ENABLE, DISABLE or RESET."""


class Linux:
    """The real ones."""

    def __init__(self) -> None:
        number = SYSCALLS.get(platform.machine())
        if number is None:
            raise Unavailable(
                f"no performance counters: expected one of {', '.join(SYSCALLS)}, got {platform.machine()}"
            )
        self._number, self._library = number, ctypes.CDLL(None, use_errno=True)

    def open(self, attributes: bytes) -> int:
        every_processor, no_group, no_flags = -1, -1, 0
        file = self._library.syscall(
            ctypes.c_long(self._number), attributes, 0, every_processor, no_group, ctypes.c_ulong(no_flags)
        )
        return self._answer(file)

    def control(self, file: int, request: int) -> None:
        self._answer(self._library.ioctl(file, ctypes.c_ulong(request), 0))

    @staticmethod
    def _answer(answer: int) -> int:
        if answer < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return answer


@dataclass(frozen=True)
class FlopCounters:
    """The counters of one processor. type: the kernel's number of them."""

    type: int
    events: tuple[Event, ...]
    kernel: SystemCalls
    paranoid: str = ""

    def flop(self, call: Callable[[], object]) -> int:
        """FLOP that the call executes; it runs once for each event. Raises Unavailable where one cannot be counted."""
        return round(sum(event.flop * self._count(event, call) for event in self.events))

    def _count(self, event: Event, call: Callable[[], object]) -> int:
        attributes = ATTRIBUTES.pack(self.type, ATTRIBUTES.size, event.config, 0, 0, TIMES, FLAGS, 0, 0, 0)
        try:
            file = self.kernel.open(attributes)
        except OSError as fault:
            raise Unavailable(self._why(event, fault)) from fault
        try:
            self.kernel.control(file, RESET)
            self.kernel.control(file, ENABLE)
            try:
                call()
            finally:
                self.kernel.control(file, DISABLE)
            content = os.read(file, 24)
        except OSError as fault:
            raise Unavailable(self._why(event, fault)) from fault
        finally:
            os.close(file)
        if len(content) != 24:
            raise Unavailable(f"event {event.config:#x}: expected 24 bytes, got {len(content)}")
        count, asked_ns, counted_ns = struct.unpack("=QQQ", content)
        if counted_ns < asked_ns or not asked_ns:
            raise Unavailable(
                f"event {event.config:#x} was counted for {counted_ns} of {asked_ns} ns: others use the counters"
            )
        return int(count)

    def _why(self, event: Event, fault: OSError) -> str:
        allowed = fault.errno in (errno.EACCES, errno.EPERM)
        level = f" (perf_event_paranoid is {self.paranoid})" if allowed and self.paranoid else ""
        return f"event {event.config:#x}: {fault.strerror}{level}"


def flop_counters(root: Path = Path("/"), kernel: SystemCalls | None = None) -> FlopCounters:
    """Those of this machine. Raises Unavailable, in one line, where it has none, or none that are known."""
    folder = root / "sys/bus/event_source/devices"
    number = next(filter(None, (_text(folder / name / "type") for name in PMUS)), "")
    if not number.isdigit():
        raise Unavailable(
            "no performance counters: /sys/bus/event_source/devices has none of a processor (most virtual machines)"
        )
    found = processor()
    name = identify(found).name
    if name not in EVENTS:
        raise Unavailable(f"no events of floating-point instructions are known of {name}: expected {', '.join(EVENTS)}")
    events = EVENTS[name]
    if "sve" in found.flags:
        length = _text(root / SCALABLE)
        if not length.isdigit():
            raise Unavailable(f"/{SCALABLE}: expected the bytes of a vector, got {length!r}")
        events = (*events, Event(_ARM_SCALABLE, int(length) / 16))  # a count is of 128 bits
    return FlopCounters(int(number), events, Linux() if kernel is None else kernel, _text(root / PARANOID))


def count_flop(names: Sequence[str], counters: FlopCounters) -> dict[str, dict[str, int]]:
    """Operator → {"flop": executed}, on one thread; each runs twice before. Raises Unavailable where the counters do
    not say what a known product has."""
    import torch

    from measure.instructions.operators import make

    with _one_thread(), torch.no_grad():
        a, b = torch.rand(KNOWN_SIZE, KNOWN_SIZE), torch.rand(KNOWN_SIZE, KNOWN_SIZE)
        expected, found = 2 * KNOWN_SIZE**3, _warm(counters, lambda: torch.mm(a, b))
        if abs(found / expected - 1) > TOLERANCE:
            raise Unavailable(f"the counters are not believed: a product of {expected:,} FLOP had {found:,}")
        return {name: {"flop": _warm(counters, make(name))} for name in names}


def _warm(counters: FlopCounters, call: Callable[[], object]) -> int:
    call()
    call()
    return counters.flop(call)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
