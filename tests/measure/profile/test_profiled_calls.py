"""Definition, injected fault: threads, phases, modules, links and device times of made-up CUDA recordings."""

import pytest

from measure.profile.events import to_operations
from results.errors import Unavailable
from tests.measure.profile.made_up_events import ENGINE, Recording, a_step_on_cuda


def test_calls_of_both_threads_are_in_the_phase_of_their_time():
    recording, _ = a_step_on_cuda()
    assert [(row.name, row.phase, row.module, row.thread) for row in recording.rows()] == [
        ("aten::conv2d", "forward", "conv", 1),
        ("aten::convolution", "forward", "conv", 1),
        ("aten::cudnn_convolution", "forward", "conv", 1),
        ("aten::convolution_backward", "backward", "conv", 2),
        ("aten::_foreach_add_", "optimizer", "", 1),
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


def test_what_the_engine_adds_up_belongs_to_its_node_and_what_it_stores_to_none():
    recording, _ = a_step_on_cuda()
    recording.host("aten::sum", 699, 700, start_thread_id=ENGINE)  # inside of the engine's frame, after the node
    recording.node("torch::autograd::AccumulateGrad", 710, 750, of=-1)
    recording.host("aten::detach", 720, 740, start_thread_id=ENGINE)
    rows = {row.name: row for row in recording.rows()}
    assert (rows["aten::sum"].forward_index, rows["aten::sum"].module) == (0, "conv")
    stored = rows["aten::detach"]
    assert (stored.forward_index, stored.sequence_nr, stored.module, stored.phase) == (None, None, "", "backward")


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


def test_without_any_kernel_device_times_are_unknown():
    rows, notes = to_operations(a_step_on_cuda()[0], "batch", cuda=True)
    assert [row.device_time_s for row in rows] == [None] * 5
    assert "no kernels" in notes[0]
