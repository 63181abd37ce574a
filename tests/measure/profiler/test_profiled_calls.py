"""Rows from made-up recordings, as CUDA gives them: threads, phases, modules, links and device times."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace as Node
from typing import Any

import pytest
from torch.autograd import DeviceType

from measure.profiler.events import to_operations
from results.errors import Unavailable
from results.records.operations import ProfiledOperation

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


def test_calls_of_both_threads_are_in_the_phase_of_their_time():
    recording, _ = a_step_on_cuda()
    assert [(row.name, row.phase, row.module, row.thread) for row in recording.rows()] == [
        ("aten::conv2d", "forward", "conv", 1),
        ("aten::convolution", "forward", "conv", 1),
        ("aten::cudnn_convolution", "forward", "conv", 1),
        ("aten::convolution_backward", "backward", "conv", 2),
        ("aten::_foreach_add_", "optimizer", "", 1),
    ]


def test_ranges_and_the_engines_frames_are_no_calls_and_parents_skip_them():
    recording, _ = a_step_on_cuda()
    recording.range("module.conv.inside", 55, 165)
    recording.host("aten::empty", 60, 70)
    rows = recording.rows()
    assert [(row.index, row.parent, row.name) for row in rows[:4]] == [
        (0, None, "aten::conv2d"),
        (1, 0, "aten::convolution"),
        (2, 1, "aten::cudnn_convolution"),
        (3, 2, "aten::empty"),
    ]
    assert [row.parent for row in rows[4:]] == [None, None]
    assert rows[3].module == "conv.inside"
    assert [row.start_s for row in rows] == [3e-8, 4e-8, 5e-8, 6e-8, 3.2e-7, 8.2e-7]
    assert [row.time_s for row in rows] == [1.6e-7, 1.4e-7, 1.2e-7, 1e-8, 3.7e-7, 1.5e-7]


def test_of_two_calls_that_begin_together_the_longer_is_the_parent():
    recording = Recording()
    for name, end in (("aten::innermost", 15), ("aten::outer", 30), ("aten::inner", 20)):
        recording.host(name, 10, end)
    assert [(row.name, row.parent) for row in recording.rows()] == [
        ("aten::outer", None),
        ("aten::inner", 0),
        ("aten::innermost", 1),
    ]


def test_a_gradient_leads_to_its_forward_call_across_threads():
    rows = a_step_on_cuda()[0].rows()
    assert [row.forward_index for row in rows] == [None, None, None, 0, None]
    assert [row.sequence_nr for row in rows] == [0, 0, None, 0, None]  # from the step's first


def test_device_time_is_of_all_kernels_inside():
    recording, launches = a_step_on_cuda()
    recording.kernel("implicit_convolve_sgemm", 400, 430, by=launches["forward"])
    recording.kernel("winograd", 430, 437, by=launches["forward"])
    recording.kernel("dgrad", 900, 2000, by=launches["backward"])  # it may run after its range
    recording.kernel("Memcpy HtoD", 2000, 2003, by=launches["optimizer"])
    rows = recording.rows(cuda=True)
    assert [row.device_time_s for row in rows] == [3.7e-8, 3.7e-8, 3.7e-8, 1.1e-6, 3e-9]
    assert all(row.device_time_s is None for row in recording.rows(cuda=False))


def test_a_kernel_that_was_recorded_twice_is_one():
    recording, launches = a_step_on_cuda()
    recording.kernel("dgrad", 900, 950, by=launches["backward"])
    event = recording._events[-1]
    recording._events.append(event)
    recording.kernel("dgrad", 950, 1000, by=launches["backward"])  # another launch of the same name
    assert sum(row.device_time_s for row in recording.rows(cuda=True)) == pytest.approx(1e-7)


def test_mirrored_ranges_and_earlier_steps_are_no_kernels():
    recording, launches = a_step_on_cuda()
    recording.kernel("dgrad", 900, 950, by=launches["backward"])
    recording.kernel("flopledger.step", 400, 950, by=1)
    recording.kernel("Optimizer.step#SGD.step", 900, 950, by=0)
    recording.kernel("user's own", 900, 950, by=launches["forward"], is_user_annotation=True)
    recording.kernel("of the step before", -500, -400, by=99999)
    rows, notes = to_operations(recording, "batch", cuda=True)
    assert [row.device_time_s for row in rows] == [0, 0, 0, 5e-8, 0]
    assert notes == ()


def test_kernels_that_no_call_launched_are_told():
    recording, launches = a_step_on_cuda()
    frame = recording.host("autograd::engine::evaluate_function: FusedBackward", 720, 760, start_thread_id=ENGINE)
    recording.kernel("dgrad", 900, 950, by=launches["backward"])
    recording.kernel("triton_fused", 950, 980, by=frame)
    recording.kernel("graph", 980, 982, by=99999)
    rows, notes = to_operations(recording, "batch", cuda=True)
    assert sum(row.device_time_s for row in rows if row.parent is None) == pytest.approx(5e-8)
    assert notes == ("2 of 3 kernels and copies, 3.2e-08 s, have no recorded call",)


def test_a_kernel_of_a_frame_that_is_no_call_is_the_next_calls_above():
    recording, _ = a_step_on_cuda()
    inside = recording.range("module.conv.inside", 55, 165)
    recording.kernel("of the range", 400, 430, by=inside)
    assert [row.device_time_s for row in recording.rows(cuda=True)] == [3e-8, 3e-8, 3e-8, 0, 0]


def test_only_the_last_step_counts():
    recording, _ = a_step_on_cuda()
    recording.range("step", 5000, 6000)
    recording.range("forward", 5000, 5500)
    recording.host("aten::relu", 5100, 5200, sequence_nr=900)
    recording.host("aten::after", 6000, 6001)
    (row,) = recording.rows()
    assert (row.name, row.phase, row.index, row.start_s, row.sequence_nr) == ("aten::relu", "forward", 0, 1e-7, 0)


def test_a_recording_without_our_step_is_unavailable():
    recording = Recording()
    recording.events().clear()
    recording.host("aten::relu", 0, 1)
    with pytest.raises(Unavailable, match="recorded no step"):
        recording.rows()


def linked(recording: Recording, of: int) -> str:
    """Name of the forward call of a gradient whose node has this number."""
    recording.range("backward", 500, 900)
    recording.node("Backward0", 510, 600, of=of)
    recording.host("aten::gradient", 520, 590, start_thread_id=ENGINE)
    rows = recording.rows()
    assert rows[-1].name == "aten::gradient"
    assert [row.index for row in rows] == list(range(len(rows)))
    return "" if rows[-1].forward_index is None else rows[rows[-1].forward_index].name


def said(*calls: tuple[str, int, int, int]) -> Recording:
    recording = Recording()
    for name, start, end, number in calls:
        recording.host(name, start, end, sequence_nr=number)
    return recording


CAST_THEN_CONVOLVE = [
    ("aten::conv2d", 10, 100, 3), ("aten::to", 20, 30, 3), ("aten::_to_copy", 21, 29, 3), ("aten::to", 30, 40, 4),
    ("aten::conv2d", 40, 90, 4), ("aten::convolution", 50, 80, 4),
]  # fmt: skip
"""Under autocast: the weight is cast (a node: 3), the images are (no node), the convolution is the next node (4)."""


@pytest.mark.parametrize(
    ("calls", "number", "expected"),
    [
        ([("aten::conv2d", 0, 9, 3), ("aten::convolution", 1, 8, 3)], 3, "aten::conv2d"),
        ([("aten::detach_", 0, 1, 3), ("aten::relu", 2, 3, 3)], 3, "aten::relu"),  # the first makes no node
        ([("aten::relu", 2, 3, 3), ("aten::detach_", 4, 5, 4)], 3, "aten::relu"),
        ([("aten::relu", 2, 3, 4)], 3, ""),  # from before the step
        ([("aten::index_put_", 2, 3, 3), ("aten::relu", 4, 5, 6)], 5, "aten::index_put_"),  # a call of three nodes
        ([("aten::outer", 0, 20, 3), ("aten::a", 1, 5, 3), ("aten::b", 6, 19, 4)], 4, "aten::b"),  # a took no part
        ([("MyFunction", 2, 9, 3), ("aten::exp", 4, 5, -1)], 3, ""),  # a function of one's own is no operator's call
    ],
)
def test_the_call_that_made_a_node(calls, number, expected):
    assert linked(said(*calls), number) == expected


@pytest.mark.parametrize(("number", "index"), [(3, 1), (4, 4)])
def test_autocasts_inner_call_is_the_one_whose_gradient_follows(number: int, index: int):
    recording = said(*CAST_THEN_CONVOLVE)
    recording.node("Other", 910, 920, of=7 - number)
    linked(recording, number)
    assert recording.rows()[-1].forward_index == index


def test_the_numbers_of_two_threads_are_apart():
    recording = said(("aten::relu", 0, 9, 7))
    recording.host("aten::exp", 20, 30, sequence_nr=7, start_thread_id=ENGINE)
    assert linked(recording, 7) == "aten::relu"
    assert [row.sequence_nr for row in recording.rows()] == [0, 0, 0]


def test_what_the_engine_adds_up_belongs_to_its_node_and_what_it_stores_to_none():
    recording, _ = a_step_on_cuda()
    recording.host("aten::sum", 699, 700, start_thread_id=ENGINE)  # inside of the engine's frame, after the node
    recording.node("torch::autograd::AccumulateGrad", 710, 750, of=-1)
    recording.host("aten::detach", 720, 740, start_thread_id=ENGINE)
    rows = {row.name: row for row in recording.rows()}
    assert (rows["aten::sum"].forward_index, rows["aten::sum"].module) == (0, "conv")
    stored = rows["aten::detach"]
    assert (stored.forward_index, stored.sequence_nr, stored.module, stored.phase) == (None, None, "", "backward")


def test_a_modules_forward_inside_of_a_node_is_recomputed():
    recording = said(("aten::first", 10, 20, 3))
    recording.range("backward", 500, 900)
    recording.node("CheckpointFunctionBackward", 510, 800, of=3)
    recording.range("module.block", 520, 600, thread=ENGINE)
    recording.host("aten::again", 530, 590, start_thread_id=ENGINE, sequence_nr=0)
    recording.host("aten::inside", 540, 580, start_thread_id=ENGINE)
    recording.host("autograd::engine::evaluate_function: ReluBackward0", 610, 700, start_thread_id=ENGINE,
                   fwd_thread_id=ENGINE, sequence_nr=0)  # fmt: skip
    recording.host("aten::gradient", 620, 690, start_thread_id=ENGINE)
    recording.host("aten::own", 710, 720, start_thread_id=ENGINE)
    found = {row.name: (row.phase, row.module, row.forward_index) for row in recording.rows()}
    assert found == {
        "aten::first": ("", "", None),
        "aten::again": ("recompute", "block", None),
        "aten::inside": ("recompute", "block", None),
        "aten::gradient": ("backward", "block", 1),
        "aten::own": ("backward", "", 0),
    }


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("aten::add_", True),
        ("torchvision::nms", True),
        ("my_library::op", True),
        ("prims::add", True),
        ("profiler::_record_function_enter_new", False),
        ("prim::device", False),
        ("torch::autograd::CopySlices", False),
        ("detach", False),
        ("ProfilerStep#1", False),
        ("Torch-Compiled Region: 0/0", False),
        ("void at::native::elementwise<4>(int)", False),
    ],
)
def test_what_is_an_operators_call(name: str, kept: bool):
    recording = Recording()
    recording.host(name, 10, 20, sequence_nr=1)
    assert [row.name for row in recording.rows()] == [name] * kept


class Tensor:
    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = list(sizes)


def test_lists_of_tensors_have_sizes_where_events_have_none():
    """As torch 2.11 gives them: [] among an event's sizes, the tensors in its tree of events."""
    recording = Recording()
    number = recording.host("aten::cat", 10, 20)
    event = recording.events()[-1]
    event.forget("structured_input_shapes")
    event.tell(shapes=[[5], [], []], dtypes=["float", "TensorList", "Scalar"], concrete_inputs=[None, None, 0])
    inputs = [Tensor([5]), [Tensor([1, 2]), Tensor([3])], 0]
    leaf = Node(name="aten::cat", correlation_id=number, children=[], extra_fields=Node(inputs=inputs))
    recording.experimental_event_tree = lambda: [Node(name="root", correlation_id=0, children=[leaf])]
    (row,) = recording.rows()
    assert row.input_shapes == ((5,), ((1, 2), (3,)), ())
    assert row.input_dtypes == ("float", "TensorList", "Scalar")
    assert row.concrete_inputs == (None, None, 0)


def test_without_any_kernel_device_times_are_unknown():
    rows, notes = to_operations(a_step_on_cuda()[0], "batch", cuda=True)
    assert [row.device_time_s for row in rows] == [None] * 5
    assert "no kernels" in notes[0]
