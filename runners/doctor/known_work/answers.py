"""What each check of the self-test is given, and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from analysis.devices import peaks
from cleaning.facts.self_test import FAILED, OK, REPORTED, UNAVAILABLE, CheckResult

__all__ = ["FAILED", "UNAVAILABLE", "OK", "REPORTED", "DeviceUnderTest", "Check", "CheckResult", "within"]


@dataclass(frozen=True)
class DeviceUnderTest:
    """The device that is tested. name: as its driver prints it."""

    device: str
    name: str
    multiprocessors: int | None = None

    @property
    def is_cuda(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def is_stand_in(self) -> bool:
        """Whether it computes nothing (docs/standin.md)."""
        return peaks.is_stand_in(self.name)


Check = Callable[[DeviceUnderTest], CheckResult]


def within(found: float, low: float, high: float, expected: str, reason: str) -> CheckResult:
    """ok where low ≤ found ≤ high; the reason is given where it is not."""
    fits = low <= found <= high
    return CheckResult("", OK if fits else FAILED, found, expected, "" if fits else reason)
