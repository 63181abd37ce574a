"""Whether this process was suspended while something was timed: stopped and continued, or asleep with its machine.

A process that was stopped (Ctrl-Z, `kill -STOP`) gets the signal SIGCONT as it goes on. While a machine sleeps,
CLOCK_MONOTONIC stands still on Linux and CLOCK_BOOTTIME does not. In either nothing ran, and a block that was being
timed says nothing of a step.

Not claimed: a frozen container, and a virtual machine that its host pauses, give neither sign.
"""

import signal
import threading
import time
from types import FrameType
from typing import Self

SUSPENDED = "suspended"
"""The part of a timed block in which the process was suspended, and how a warning of it begins."""

WARNING = f"{SUSPENDED}: the process was stopped, or the machine slept, while blocks were timed: they are not used"

ASLEEP_S = 0.01
"""Two readings of the clocks are microseconds apart; a machine that sleeps takes longer."""


class SuspensionWatch:
    """While it is entered, counts suspensions of this process.

    Signals are seen in the main thread alone: entered in another one, it sees sleep only.
    """

    def __init__(self) -> None:
        self._continued = 0
        self._before: object = None
        self._is_listening = False
        self._asleep_s = asleep_s()

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGCONT, self._on_continue)
            self._is_listening = True
        return self

    def __exit__(self, *_fault: object) -> None:
        if self._is_listening:
            signal.signal(signal.SIGCONT, self._before or signal.SIG_DFL)  # type: ignore[arg-type]
            self._is_listening = False

    def was_suspended(self) -> bool:
        """Whether there was a suspension since the last call, or since the watch was made."""
        asleep, before = asleep_s(), self._asleep_s
        stopped, self._continued, self._asleep_s = self._continued > 0, 0, asleep
        return stopped or asleep - before > ASLEEP_S

    def _on_continue(self, number: int, frame: FrameType | None) -> None:
        self._continued += 1
        if callable(self._before):
            self._before(number, frame)


def asleep_s() -> float:
    """How long this machine has slept since it was started; 0 where the system has no clock that tells."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
