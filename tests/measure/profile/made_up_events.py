"""Recordings of torch's profiler, made up event by event, as CUDA gives them."""

from typing import Any

from torch.autograd import DeviceType

from measure.profile.events import to_operations
from results.records.counts import ProfiledOperation

MAIN, ENGINE = 41, 57
"""torch's numbers of the step's own thread and of the one that runs CUDA's backward pass."""


class Event:
    """What torch's `_KinetoEvent` answers, as far as anybody asks. Times in ns."""

    def __init__(self, name: str, start: int, end: int, number: int, **more: Any) -> None:
        self._told = {
            "name": name, "start_ns": start, "duration_ns": end - start, "correlation_id": number, "scope": 0,
            "start_thread_id": MAIN, "fwd_thread_id": 0, "sequence_nr": -1, "device_type": DeviceType.CPU,
            "linked_correlation_id": 0, "is_async": False, "is_user_annotation": False, "flops": 0,
            "structured_input_shapes": [], "dtypes": [], "concrete_inputs": [], **more,
        }  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        if name not in self._told:
            raise AttributeError(name)
        return lambda: self._told[name]

    def tell(self, **more: Any) -> None:
        self._told |= more

    def forget(self, name: str) -> None:
        """As in a torch that does not have it yet."""
        del self._told[name]


class Recording:
    """Events in the order in which they are said; each gets the next number."""

    def __init__(self, ended: int = 1000) -> None:
        self._events: list[Event] = []
        self.range("step", 0, ended)

    def events(self) -> list[Event]:
        return self._events

    def host(self, name: str, start: int, end: int, **more: Any) -> int:
        number = more.pop("number", len(self._events) + 1)
        self._events.append(Event(name, start, end, number, **more))
        return int(number)

    def range(self, name: str, start: int, end: int, thread: int = MAIN) -> int:
        return self.host(f"flopledger.{name}", start, end, scope=7, start_thread_id=thread)

    def node(self, name: str, start: int, end: int, of: int, thread: int = ENGINE) -> None:
        """A node with this number of the main thread, inside of the engine's frame."""
        more = {"start_thread_id": thread, "fwd_thread_id": MAIN if of >= 0 else 0, "sequence_nr": of}
        self.host(f"autograd::engine::evaluate_function: {name}", start, end, **more)
        self.host(name, start + 1, end - 1, scope=1, **more)

    def kernel(self, name: str, start: int, end: int, by: int, **more: Any) -> None:
        self.host(name, start, end, linked_correlation_id=by, device_type=DeviceType.CUDA, **more)

    def rows(self, cuda: bool = False) -> tuple[ProfiledOperation, ...]:
        return to_operations(self, "batch", cuda=cuda)[0]


def a_step_on_cuda() -> tuple[Recording, dict[str, int]]:
    """A convolution in module "conv", its gradient on the engine's thread, an update. Numbers of what launches."""
    recording = Recording()
    recording.range("optimizer", 0, 10)
    recording.range("forward", 10, 300)
    recording.range("module.conv", 20, 200)
    recording.host("aten::conv2d", 30, 190, sequence_nr=700, flops=4608)
    recording.host("aten::convolution", 40, 180, sequence_nr=700)
    launches = {"forward": recording.host("aten::cudnn_convolution", 50, 170)}
    recording.range("backward", 300, 800)
    recording.node("ConvolutionBackward0", 310, 700, of=700)
    launches["backward"] = recording.host("aten::convolution_backward", 320, 690, start_thread_id=ENGINE)
    recording.range("optimizer", 800, 990)
    recording.host("Optimizer.step#SGD.step", 810, 980, scope=7)
    launches["optimizer"] = recording.host("aten::_foreach_add_", 820, 970)
    return recording, launches
