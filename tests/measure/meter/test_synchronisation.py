"""Law: the meter never waits for the device inside a loop; every call that would is counted.

Events of a device are made up: a step has completed on it two steps after it was given to it. What reads a tensor's
value on the host (`item`, `tolist`, a copy to the CPU) is an operation that the dispatcher sees: it is counted, too.
"""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from measure.meter.meter import UtilizationMeter
from measure.meter.step_times import CompletedSteps
from measure.timing.clocks import CudaClock

WAITING = ("_local_scalar_dense", "_to_copy", "copy_", "nonzero", "equal")
STEPS, BEHIND = 200, 2


class Device:
    """Completes what was recorded up to `BEHIND` steps ago. waits: calls that wait for it."""

    def __init__(self):
        self.recorded = self.completed = self.waits = 0


@pytest.fixture
def device(monkeypatch):
    made = Device()

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self, _stream):
            made.recorded += 1
            self.number = made.recorded

        def query(self):
            return self.number <= made.completed

        def synchronize(self):
            made.waits += 1
            made.completed = max(made.completed, self.number)

        def elapsed_time(self, end):
            assert end.query(), "asked of an event that has not completed, it waits"
            return 1.0 * (end.number - self.number)

    def waits(*_arguments):
        made.waits += 1

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device=None: None)
    monkeypatch.setattr(torch.cuda, "synchronize", waits)
    return made


class Counted(TorchDispatchMode):
    """Counts operations by which the host waits for a value."""

    def __init__(self):
        super().__init__()
        self.waits = 0

    def __torch_dispatch__(self, operation, _types, args=(), kwargs=None):
        self.waits += operation.overloadpacket.__name__ in WAITING
        return operation(*args, **(kwargs or {}))


def test_a_loop_waits_for_the_device_at_none_of_its_steps(device):
    model, inputs = torch.nn.Linear(8, 4), torch.randn(2, 8)
    meter = UtilizationMeter(model, warm_up_steps=0, energy=False)
    meter._times = CompletedSteps(CudaClock("cuda:0"))
    meter._step.mark, meter._step._pending = meter._times.clock.event, meter._times.pending
    with Counted() as counted:
        for number in range(STEPS):
            with meter.step():
                model(inputs).sum().backward()
            device.completed = device.recorded - 2 * BEHIND  # two events a step
            if number % 50 == 49:
                meter.window()
    assert (device.waits, counted.waits) == (0, 0)
    assert meter.summary().steps == STEPS
    assert device.waits > 0  # the end of a loop may wait: the counter works
