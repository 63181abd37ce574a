"""A simulated clock: a host, and a device that works off a queue."""


class FakeClock:
    """A host, and a device that works off a queue in order. Reading the time costs nothing."""

    def __init__(self, has_device: bool = True) -> None:
        self.now_s = 1000.0
        self.free_s = 0.0  # when the device will have done what it was given
        self.has_device = has_device
        self.synchronised = 0

    def issue(self, host_s: float, device_s: float) -> None:
        """Host spends host_s, then the device has device_s more to do."""
        self.now_s += host_s
        self.free_s = max(self.free_s, self.now_s) + device_s
        if not self.has_device:
            self.now_s = self.free_s

    def wall_s(self) -> float:
        return self.now_s

    def event(self) -> float:
        return max(self.free_s, self.now_s)

    def between_s(self, start: float, end: float) -> float | None:
        return end - start if self.has_device else None

    def synchronize(self) -> None:
        self.synchronised += 1
        self.now_s = max(self.now_s, self.free_s)
