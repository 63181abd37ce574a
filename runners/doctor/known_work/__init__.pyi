from .answers import FAILED, OK, UNAVAILABLE, Check, CheckResult, DeviceUnderTest

__all__ = [
    "Check",
    "CheckResult",
    "DeviceUnderTest",
    "FAILED",
    "OK",
    "UNAVAILABLE",
]
