"""Definition, injected fault: each known fault of a recording has its reason, and totals are those of the sizes.

Sizes are small enough to count by hand: CONV is a convolution of 2 · 32 · 64 · 56 · 56 · 64 · 3 · 3 FLOP.
"""

from typing import Any

import pandas as pd
import pytest

from analysis.utilization.numerators import Numerator, profiled
from cleaning.profile import profile_counts
from cleaning.trace.clean import STATES, CleanedTrace, clean, clean_recording
from cleaning.trace.totals import UNCLEAR_OPERATOR, UNKNOWN_OPERATOR, Outside, PhaseTotal, Unnamed
from results.errors import Inconsistent
from results.records.cell import Run
from results.records.counts import OperationInstance
from tests.support.made_up_operations.made_up_kernels import (
    AMPERE,
    DGRAD,
    EXPLICIT,
    FFT,
    HOPPER,
    IM2COL,
    IMPLICIT,
    OFFSETS,
    POINTWISE,
    SCUDNN,
    SGEMM,
    SPLIT_K,
    UNKNOWN,
    US,
    WGRAD,
    WINOGRAD,
    MadeUp,
    convolution,
    fft,
    gradients,
)
from tests.support.recordings.recordings import Tensor, a_run


def old_gradients(*inside: str, time_ns: tuple[int, ...] = (10, 20)) -> CleanedTrace:
    """What torch before 1.11 recorded of a convolution's gradients on a machine without a device: sizes alone."""
    made = MadeUp()
    forward = made.call("aten::cudnn_convolution", Tensor(*INPUT), Tensor(*WEIGHT), settings=False)
    tensors = (Tensor(*INPUT), Tensor(*OUTPUT), Tensor(*WEIGHT))
    back = made.call(
        "aten::cudnn_convolution_backward", *tensors, settings=False, phase="backward", forward_index=forward
    )
    sizes = {"input": (None, Tensor(*OUTPUT), Tensor(*WEIGHT)), "weight": (None, Tensor(*OUTPUT), Tensor(*INPUT))}
    for which, time in zip(inside, time_ns, strict=False):
        name = f"aten::cudnn_convolution_backward_{which}"
        made.kernel(made.call(name, *sizes[which], parent=back, settings=False), name, what="call", time_ns=time * US)
    return cleaned(made)


INPUT, WEIGHT, OUTPUT = (32, 64, 56, 56), (64, 64, 3, 3), (32, 64, 56, 56)
CONV = 2 * 32 * 64 * 56 * 56 * 64 * 3 * 3


def cleaned(made: MadeUp) -> CleanedTrace:
    return clean(*made.tables())


def states(found: CleanedTrace, phase: str = "forward") -> list[int | None]:
    """FLOP of a phase as found, deduplicated, repaired."""
    return [found.totals[state][f"{phase}_flop"] for state in STATES]


def only(found: CleanedTrace) -> OperationInstance:
    (instance,) = found.instances
    return instance


def one_convolution(*names: str, **more: Any) -> CleanedTrace:
    made = MadeUp()
    made.kernel(convolution(made, INPUT, WEIGHT), *names, **more)
    return cleaned(made)


# --- one product: PyProf's rule, and what it misses -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "more", "counted", "repaired", "fault"),
    [
        ((OFFSETS, SCUDNN), {}, (CONV, CONV), [0, CONV], ()),
        ((SCUDNN,), {"source_flop": 7}, (7, 7), [CONV], ("wrong_number", 1, CONV - 7)),
        ((SCUDNN,), {"source_flop": 0}, (0, 0), [CONV], ("no_marker", 1, CONV)),
        ((OFFSETS, IMPLICIT), {}, (0, 0), [0, CONV], ("renamed_kernel", 1, CONV)),
        ((OFFSETS, EXPLICIT), {}, (0, 0), [0, CONV], ("unlisted_kernel", 1, CONV)),
        ((OFFSETS, AMPERE), {}, (0, 0), [0, CONV], ("unlisted_kernel", 1, CONV)),
        ((OFFSETS, UNKNOWN), {}, (0, 0), [0, CONV], ("unknown_kernel", 1, CONV)),
        ((), {}, (None, None), [], ("no_kernel", 1, CONV)),
    ],
)
def test_a_convolution_counts_once_and_what_was_wrong_has_its_reason(
    names: tuple[str, ...],
    more: dict[str, Any],
    counted: tuple[int | None, int | None],
    repaired: list[int],
    fault: tuple[str, int, int] | tuple[()],
) -> None:
    """PyProf gives a listed kernel the whole convolution; a number that the recording says comes before the rule."""
    found = one_convolution(*names, **more)
    assert states(found) == [*counted, CONV]
    assert found.kernels["repaired_flop"].tolist() == repaired
    assert found.faults == ((fault,) if fault else ())
    assert (only(found).verdict, only(found).reason) == (("under", fault[0]) if fault else ("right", ""))


def test_a_matmul_gets_it_for_every_kernel_and_a_linear_layer_for_those_of_its_list() -> None:
    for name, number in (("aten::linear", 1), ("aten::mm", 2)):
        made = MadeUp()
        weight = Tensor(16, 8) if name == "aten::linear" else Tensor(8, 16)
        made.kernel(made.call(name, Tensor(4, 8), weight), SGEMM, POINTWISE)
        assert states(cleaned(made)) == [number * 2 * 4 * 8 * 16, 2 * 4 * 8 * 16, 2 * 4 * 8 * 16]


# --- too often -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "tiles"), [(56, 4), (112, 16), (224, 64)])
def test_fft_tiles_count_once(size: int, tiles: int) -> None:
    made = MadeUp()
    made.kernel(convolution(made, (2, 3, size, size), (8, 3, 3, 3)), *fft(tiles))
    found, flop = cleaned(made), 2 * 2 * 8 * size * size * 3 * 3 * 3
    assert states(found) == [tiles * flop, flop, flop]
    assert found.faults == (("fft_tiling", 1, -(tiles - 1) * flop),)
    assert (only(found).verdict, only(found).reason) == ("over", "fft_tiling")
    (row,) = found.log
    assert (row.step, row.before, row.after) == ("deduplicated", str(tiles * flop), str(flop))


def test_a_split_k_reduction_is_no_second_product() -> None:
    made = MadeUp()
    made.kernel(made.call("aten::linear", Tensor(4, 8), Tensor(16, 8)), SGEMM, time_ns=5)
    made.kernel(0, SPLIT_K, time_ns=50)  # longer, and not kept
    found = cleaned(made)
    assert states(found) == [2048, 1024, 1024]
    assert found.faults == (("split_k", 1, -1024),)
    assert found.kernels["deduplicated_flop"].tolist() == [1024, 0]


def linear_and_gradients(reduced: bool) -> MadeUp:
    """A linear layer with both gradients; reduced: the first gradient by split-K."""
    made = MadeUp()
    forward = made.call("aten::linear", Tensor(4, 8), Tensor(16, 8))
    made.kernel(forward, SGEMM)
    node = made.call("AddmmBackward0", phase="backward", forward_index=forward)
    made.kernel(made.call("aten::mm", Tensor(4, 16), Tensor(16, 8), parent=node), SGEMM, *[SPLIT_K] * reduced)
    made.kernel(made.call("aten::mm", Tensor(16, 4), Tensor(4, 8), parent=node), SGEMM)
    return made


def test_the_gradients_of_a_linear_layer_are_its_first_two_kernels() -> None:
    found = cleaned(linear_and_gradients(reduced=False))
    assert states(found, "backward") == [2048] * 3
    found = cleaned(linear_and_gradients(reduced=True))
    assert states(found, "backward") == [2048, 1024, 2048]  # right by luck: the reduction has the second's number
    assert [(i.verdict, i.reason) for i in found.instances[1:]] == [("over", "split_k"), ("under", "split_k")]
    assert [i.forward_index for i in found.instances] == [None, 0, 0]


TUNED = [IMPLICIT, IMPLICIT, OFFSETS, SCUDNN, IM2COL, EXPLICIT, *fft(4), WINOGRAD, OFFSETS, SCUDNN]


def test_trials_leave_count_and_time() -> None:
    found = one_convolution(*TUNED)
    assert states(found) == [7 * CONV, CONV, CONV]  # 4 tiles, 2 SCUDNN, WINOGRAD
    assert found.faults == (("autotune", 1, -6 * CONV),)
    run = found.kernels[found.kernels["fault"] != "autotune"]
    assert run["name"].tolist() == [OFFSETS, SCUDNN]
    assert run.index.tolist() == [len(TUNED) - 2, len(TUNED) - 1]
    assert only(found).kernel_time_s == pytest.approx(2 * 10 * US * 1e-9)
    assert only(found).kernels == len(TUNED)


def test_rows_of_a_launch_that_a_join_doubled() -> None:
    made = MadeUp()
    made.kernel(convolution(made, INPUT, WEIGHT), OFFSETS, SCUDNN)
    made.kernel(made.call("aten::add", Tensor(2)), POINTWISE, source_flop=2)
    calls, kernels = made.tables()
    found = clean(calls, pd.concat([kernels, kernels], ignore_index=True))
    assert states(found) == [2 * CONV, CONV, CONV]
    assert found.faults == (("duplicate_launch", 1, -CONV),)
    assert found.kernels["fault"].tolist() == ["", "duplicate_launch"] * 3
    assert found.kernels["deduplicated_flop"].tolist()[-2:] == [2, 0]
    assert [i.kernel_time_s for i in found.instances] == pytest.approx([20e-6, 10e-6])


# --- too seldom ------------------------------------------------------------------------------------------------------


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "mask", "units", "counted", "repaired", "fault"),
    [
        ((*fft(4), *fft(4)), (True, True, False), 2, (8, 2), None, "fft_tiling"),
        ((DGRAD, WGRAD), (True, True, False), 2, (1, 1), [1, 1], "renamed_kernel"),  # the second
        ((OFFSETS, AMPERE, AMPERE), (True, True, False), 2, (0, 0), [0, 1, 1], "unlisted_kernel"),
        ((WGRAD,), (False, True, True), 1, (0, 0), [1], "renamed_kernel"),
        ((WGRAD,), (False, False, True), 0, (0, 0), [0], ""),
    ],
)
def test_a_gradient_for_input_and_weight_each_on_a_kernel_of_its_own(
    names: tuple[str, ...],
    mask: tuple[bool, ...],
    units: int,
    counted: tuple[int, int],
    repaired: list[int] | None,
    fault: str,
) -> None:
    made = MadeUp()
    forward = convolution(made, INPUT, WEIGHT)
    made.kernel(forward, SCUDNN)
    made.kernel(gradients(made, forward, OUTPUT, mask), *names)
    found = cleaned(made)
    assert (found.instances[1].units, found.instances[1].forward_index) == (units, 0)
    assert states(found, "backward") == [times * CONV for times in (*counted, units)]
    assert found.faults == (((fault, 1, (units - counted[0]) * CONV),) if fault else ())
    if repaired is not None:
        assert found.kernels["repaired_flop"].tolist() == [times * CONV for times in (1, *repaired)]


def old_step(**inside: list[str]) -> MadeUp:
    """A convolution and its gradients as torch 1.9 recorded them: no settings, one call a gradient.

    inside: kernels of the calls for a gradient (`input`, `weight`); a gradient without has no call.
    """
    made = MadeUp()
    other = made.call("aten::mm", Tensor(2, 3), Tensor(3, 2))  # so that the convolution is not the first
    made.kernel(other, SGEMM)
    forward = made.call("aten::conv2d", Tensor(*INPUT), Tensor(*WEIGHT), None, settings=False)
    made.kernel(made.call("aten::cudnn_convolution", parent=forward), SCUDNN)
    node = made.call("CudnnConvolutionBackward", phase="backward", forward_index=forward)
    tensors = Tensor(*INPUT), Tensor(*OUTPUT), Tensor(*WEIGHT)
    outer = made.call("aten::cudnn_convolution_backward", *tensors, parent=node, settings=False)
    for word, names in inside.items():
        made.kernel(made.call(f"aten::cudnn_convolution_backward_{word}", parent=outer), *names)
    return made


def test_the_calls_inside_tell_which_gradients_were_asked_for() -> None:
    assert states(cleaned(old_step(weight=[WGRAD])), "backward")[2] == CONV


def test_a_gradient_without_sizes_has_those_of_its_forward_call() -> None:
    made = MadeUp()
    data, kernel = (INPUT[0], 3, *INPUT[2:]), (WEIGHT[0], 3, *WEIGHT[2:])
    for sizes in ((data, kernel), (INPUT, WEIGHT)):
        made.kernel(convolution(made, *sizes), SCUDNN)
    for forward in (1, 0):
        made.kernel(made.call("aten::convolution_backward", phase="backward", forward_index=forward), DGRAD, WGRAD)
    found = cleaned(made)
    assert [i.units for i in found.instances] == [1, 1, 2, 1]  # the network's input needs no gradient
    first = CONV * 3 // INPUT[1]
    assert states(found, "backward") == [CONV + first, CONV + first, 2 * CONV + first]
    assert found.assumed_gradients == 2  # nothing says that neither layer is frozen
    assert cleaned(old_step(weight=[WGRAD])).assumed_gradients == 0  # the calls inside say it


# --- nothing to go by ------------------------------------------------------------------------------------------------


def test_without_sizes_the_gap_stays_and_is_told() -> None:
    made = MadeUp()
    made.kernel(made.call("aten::conv2d"), SCUDNN, time_ns=30)
    made.kernel(convolution(made, INPUT, WEIGHT), SCUDNN, time_ns=70)
    made.kernel(-1, SGEMM, time_ns=100)
    made.kernel(-1, POINTWISE, time_ns=500)
    found = cleaned(made)
    assert states(found) == [None] * 3
    assert [found.phase_totals[state]["forward_flop"] for state in STATES] == [PhaseTotal(None, CONV, 1, 30 / 100)] * 3
    assert (found.instances[0].verdict, found.instances[0].repaired_flop) == ("unknown", None)
    assert "no sizes" in found.instances[0].reason
    assert found.faults == (("no_sizes", 1, 0),)
    assert found.unexplained_time_ratio == 130 / 200
    assert found.outside_time_ratio == 100 / 200  # the kernel of no call: in no phase, and kept apart


def test_one_call_without_a_count_is_enough_in_its_phase_alone() -> None:
    made = MadeUp()
    made.kernel(made.call("aten::conv2d"), SCUDNN, time_ns=1)
    for _ in range(999):
        made.kernel(convolution(made, INPUT, WEIGHT), SCUDNN, time_ns=1)
    made.kernel(convolution(made, INPUT, WEIGHT, phase="backward"), SCUDNN)
    found = cleaned(made)
    assert found.phase_totals["repaired"]["forward_flop"] == PhaseTotal(None, 999 * CONV, 1, 0.001)
    assert found.phase_totals["repaired"]["backward_flop"] == PhaseTotal(CONV, CONV, 0, 0.0)


def test_a_product_of_which_the_recording_counts_a_part_has_no_count() -> None:
    """Two products inside one call, one of them without a number: their sum is none."""
    made = MadeUp()
    outer = made.call("aten::matmul", settings=False)
    inner = made.call("aten::mm", Tensor(4, 8), Tensor(8, 16), parent=outer)
    blind = made.call("aten::mm", parent=outer)
    for call in (inner, blind):
        made.kernel(call, made.calls[call]["name"], what="call")
    found = cleaned(made)
    assert only(found).repaired_flop is None
    assert [found.phase_totals[state]["forward_flop"].at_least for state in STATES] == [1024] * 3
    assert states(found) == [None] * 3


FMHA = "_ZN7ck_tile6kentryILi2ENS_38FmhaBatchPrefillWithPagedKVCacheKernelINS_40BlockFmhaBatchPrefillPipelineE"


@pytest.mark.parametrize("name", ["vllm::unified_attention_with_output", "FlashAttnFunc"])
def test_an_operator_that_is_not_known_and_makes_products_is_a_call_without_a_count(name: str) -> None:
    made = MadeUp()
    made.kernel(convolution(made, INPUT, WEIGHT), SCUDNN, time_ns=60)
    made.kernel(made.call(name, Tensor(2, 3)), FMHA, POINTWISE, time_ns=40)
    made.kernel(made.call("mine::add", Tensor(2)), POINTWISE)
    found = cleaned(made)
    assert [found.phase_totals[state]["forward_flop"] for state in STATES] == [PhaseTotal(None, CONV, 1, 0.4)] * 3
    assert [call.name for call in found.unknown_calls] == [name]
    assert (found.unexplained_time_ratio, found.outside_time_ratio) == (0.4, 0.0)
    told = {i.name: i.reason for i in found.instances}
    assert (told.get(name, UNKNOWN_OPERATOR), told["mine::add"]) == (UNKNOWN_OPERATOR, "")


def test_an_operator_and_kernels_that_nobody_knows_may_be_products() -> None:
    """A convolution of 60 ns, and 40 ns of a kernel whose name says nothing in an operator that is not known."""
    made = MadeUp()
    made.kernel(convolution(made, INPUT, WEIGHT), SCUDNN, time_ns=60)
    made.kernel(made.call("mine::layer"), POINTWISE, UNKNOWN, time_ns=40)
    outer = made.call("mine::sorted", phase="backward")
    made.kernel(made.call("aten::sort", parent=outer), UNKNOWN)  # an operator that is known launched it
    made.kernel(made.call("mine::add"), POINTWISE)  # a kernel that says what it does
    made.kernel(-1, UNKNOWN)  # of no call: of no phase
    found = cleaned(made)
    assert [found.phase_totals[state]["forward_flop"] for state in STATES] == [PhaseTotal(None, CONV, 1, 0.4)] * 3
    assert found.phase_totals["repaired"]["backward_flop"] == PhaseTotal()
    assert [(call.name, call.reason) for call in found.unknown_calls] == [("mine::layer", UNCLEAR_OPERATOR)]
    assert {i.name: i.reason for i in found.instances}["mine::layer"] == UNCLEAR_OPERATOR


def test_on_a_host_an_operator_of_another_library_that_calls_nothing_may_be_a_product() -> None:
    made = MadeUp()
    product = made.call("aten::mm", Tensor(4, 8), Tensor(8, 16), time_ns=3 * US)
    made.call("aten::some_new_copy", Tensor(4))
    made.call("c10d::allreduce_", Tensor(4))
    made.call("aten::add", Tensor(4), Tensor(4), parent=made.call("mine::seen", Tensor(4)))
    made.call("mine::hidden", Tensor(4), time_ns=US)
    calls, kernels = made.tables()
    assert set(kernels["what"]) <= {"call"}
    found = clean(calls, kernels)
    assert [(call.name, call.time_ns) for call in found.unknown_calls] == [("mine::hidden", US)]
    total = found.phase_totals["repaired"]["forward_flop"]
    assert (total.flop, total.at_least, total.unknown_calls) == (None, 1024, 1)  # 2 · 4 · 8 · 16
    assert product == 0


def test_an_operator_whose_gradient_is_a_product_is_a_product_itself() -> None:
    """Of a hidden 4 × 8 by 8 × 16 the gradient is a product of as many FLOP: 1024."""
    made = MadeUp()
    hidden = made.call("mine::hidden", Tensor(4, 8))
    made.call("aten::detach", Tensor(4, 8), parent=hidden)
    seen = made.call("mine::seen", Tensor(4, 8))
    made.call("aten::mm", Tensor(4, 8), Tensor(8, 16), parent=seen)
    distance = made.call("aten::_some_new_distance", Tensor(4, 8))  # PyTorch's own are known by name
    for forward in (hidden, seen, distance):
        made.call("aten::mm", Tensor(4, 16), Tensor(16, 8), phase="backward", forward_index=forward)
    found = cleaned(made)
    assert [(call.name, call.reason) for call in found.unknown_calls] == [("mine::hidden", UNCLEAR_OPERATOR)]
    total = found.phase_totals["repaired"]["forward_flop"]
    assert (total.flop, total.at_least, total.unknown_calls) == (None, 1024, 1)
    assert found.totals["repaired"]["backward_flop"] == 3 * 1024


def test_products_of_no_phase_and_of_an_optimizer_stand_apart() -> None:
    made = MadeUp()
    made.kernel(convolution(made, INPUT, WEIGHT), SCUDNN)
    for _ in range(2):
        made.kernel(convolution(made, INPUT, WEIGHT, phase=""), SCUDNN, time_ns=50 * US)
    made.kernel(made.call("aten::conv2d", phase="optimizer"), SCUDNN, time_ns=7 * US)  # of no sizes
    convolution(made, INPUT, WEIGHT, phase="optimizer")  # without a kernel
    found = cleaned(made)
    assert found.totals["repaired"] == {"forward_flop": CONV, "backward_flop": None, "recompute_flop": None}
    assert found.outside_phases["none"] == Outside(
        2, dict.fromkeys(STATES, PhaseTotal(2 * CONV, 2 * CONV, 0, 0.0)), pytest.approx(100e-6)
    )
    assert found.outside_phases["optimizer"].totals["repaired"] == PhaseTotal(None, CONV, 1, 1.0)
    assert (found.outside_phases["optimizer"].calls, found.outside_phases["optimizer"].time_s) == (2, None)
    assert cleaned(MadeUp()).outside_phases["none"] == Outside(0, dict.fromkeys(STATES, PhaseTotal()), None)


def test_kernels_of_a_product_without_a_count_are_unexplained_whatever_their_names() -> None:
    """36 calls of an attention whose kernels' names say nothing: not "unexplained 0 %"."""
    made = MadeUp()
    made.kernel(convolution(made, INPUT, WEIGHT), SCUDNN, time_ns=64)
    for _ in range(36):
        made.kernel(made.call("aten::scaled_dot_product_attention"), UNKNOWN, time_ns=1)
    found = cleaned(made)
    assert found.unexplained_time_ratio == 0.36
    assert found.phase_totals["repaired"]["forward_flop"].unknown_calls == 36
    assert found.unnamed == Unnamed(0.36, ((UNKNOWN, pytest.approx(36e-9)),))


# --- places ----------------------------------------------------------------------------------------------------------


def test_a_product_in_a_product_is_one_and_others_are_outermost_operators() -> None:
    made = MadeUp()
    outer = convolution(made, INPUT, WEIGHT)
    inner = made.call("aten::cudnn_convolution", parent=outer)
    made.kernel(inner, SCUDNN)
    made.kernel(made.call("aten::copy_", parent=inner), POINTWISE)
    norm = made.call("aten::batch_norm", Tensor(*INPUT), module="bn")
    made.kernel(made.call("aten::cudnn_batch_norm", parent=norm), "void cudnn::bn_fw(int)", time_ns=5)
    made.call("aten::view", Tensor(2))  # launches nothing
    found = cleaned(made)
    assert [(i.name, i.kernels, i.kind) for i in found.instances] == [
        ("aten::conv2d", 2, "convolution"),
        ("aten::batch_norm", 1, "normalization"),
    ]
    assert (found.instances[1].module, found.instances[1].kernel_time_s) == ("bn", 5e-9)
    assert found.instances[1].expected_flop is None
    assert found.kernels["instance"].tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("index", 0, "each call of a recording once"),
        ("parent", 77, "77 is named as parent"),
        ("parent", 1, "inside them"),
    ],
)
def test_calls_that_contradict_each_other(column: str, value: int, what: str) -> None:
    made = MadeUp()
    for _ in range(2):
        made.kernel(convolution(made, INPUT, WEIGHT), SCUDNN)
    calls, kernels = made.tables()
    calls.loc[1, column] = value
    with pytest.raises(Inconsistent, match=what):
        clean(calls, kernels)


# --- machines without a device ---------------------------------------------------------------------------------------


# --- in a sweep ------------------------------------------------------------------------------------------------------


def test_a_sweeps_recording_with_a_call_without_a_count_gives_no_numerator() -> None:
    """A product of 1024 FLOP forward, one of an operator that is not known, and a kernel of no call."""
    made = MadeUp()
    made.kernel(made.call("aten::mm", Tensor(4, 8), Tensor(8, 16)), SGEMM, time_ns=60)
    back = made.call("aten::mm", Tensor(8, 4), Tensor(4, 16), phase="backward")
    made.kernel(back, SGEMM, time_ns=100)
    step = clean_recording(a_run(), "batch", *made.tables(), "kineto")
    assert (step.kernels, step.busy_s) == (2, pytest.approx(160e-9))
    run = a_run(methods=("batch",))
    assert numerator(made, run).model_flop == 2 * 1024
    made.kernel(made.call("FlashAttnFunc"), FMHA, time_ns=20)
    lost = numerator(made, run)
    assert (lost.model_flop, lost.at_least_flop, lost.unknown_calls) == (None, 2 * 1024, 1)
    assert "1 of 2 products have no count, the first FlashAttnFunc" in lost.reason
    del made.calls[-1], made.kernels[-1]
    made.kernel(-1, HOPPER, time_ns=40)
    outside = numerator(made, run)
    assert (outside.model_flop, outside.unknown_calls) == (None, 0)
    assert outside.reason == "20 % of the time of kernels that make products is in no recorded call"


def numerator(made: MadeUp, run: Run) -> Numerator:
    """The numerator of a batch by this recording."""
    found = clean_recording(run, "batch", *made.tables(), "kineto")
    counts = profile_counts(run, found.operations, None, "kineto", {"batch": found.outside_time_ratio})
    (made_of,) = profiled("batch", counts, found.operations, run)
    return made_of


@pytest.mark.parametrize(
    ("tuned", "run"),
    [
        ([IMPLICIT, SCUDNN, *fft(4)], len(fft(4))),
        ([IMPLICIT, *fft(4), *fft(4)], len(fft(4))),  # a trial and the run of one algorithm
        ([*fft(4), IM2COL, EXPLICIT, IM2COL, EXPLICIT], 4),  # pieces of a batch
        ([*fft(4), OFFSETS, SCUDNN, OFFSETS, AMPERE, OFFSETS, SCUDNN], 2),
    ],
)
def test_the_run_is_what_comes_last(tuned: list[str], run: int) -> None:
    found = one_convolution(*tuned)
    assert found.kernels["fault"].ne("autotune").tolist() == [False] * (len(tuned) - run) + [True] * run
    assert states(found)[2] == CONV


def test_totals_by_phase() -> None:
    made = MadeUp()
    for phase in ("forward", "loss", "recompute", "optimizer", ""):
        made.kernel(convolution(made, INPUT, WEIGHT, phase=phase), SCUDNN)
    found = cleaned(made)
    assert [states(found, phase) for phase in ("forward", "backward", "recompute")] == [
        [2 * CONV] * 3,
        [None] * 3,
        [CONV] * 3,
    ]


def test_groups_one_kernel_each_are_right_and_fewer_are_too_few() -> None:
    for kernels, faults in (
        (4, ()),
        (1, (("grouped", 1, CONV // 4 - CONV // 16),)),
        (5, (("multi_kernel", 1, -CONV // 16),)),
    ):
        made = MadeUp()
        made.kernel(convolution(made, INPUT, (64, 16, 3, 3), groups=4), *[SCUDNN] * kernels)
        found = cleaned(made)
        assert states(found) == [kernels * CONV // 16, min(kernels, 4) * CONV // 16, CONV // 4], kernels
        assert found.faults == faults


def test_old_recordings_without_settings() -> None:
    found = cleaned(old_step(input=[DGRAD], weight=[WGRAD]))
    assert states(found) == [CONV + 24] * 3
    assert states(found, "backward") == [CONV, CONV, 2 * CONV]
    assert found.instances[2].units == 2


def test_a_number_without_sizes_counts_once() -> None:
    made = MadeUp()
    made.kernel(made.call("aten::conv2d"), *fft(4))
    calls, kernels = made.tables()
    kernels["source_flop"] = [100 if name == FFT else 0 for name in kernels["name"]]
    found = clean(calls, kernels)
    assert states(found) == [400, 100, 100]
    assert only(found).verdict == "unknown"


def test_kernels_of_a_graph_share_a_launch_and_are_no_doubles() -> None:
    made = MadeUp()
    call = made.call("aten::mm", Tensor(4, 8), Tensor(8, 16))
    made.kernel(call, SGEMM, SGEMM, correlation=5)
    assert cleaned(made).faults == (("multi_kernel", 1, -1024),)


def test_a_call_whose_sizes_give_nothing_is_repaired_from_the_one_around_it() -> None:
    made = MadeUp()
    outer = convolution(made, INPUT, WEIGHT)
    made.kernel(made.call("aten::empty", Tensor(2), parent=outer), "aten::empty", what="call")
    found = cleaned(made)
    assert states(found) == [0, 0, CONV]
    assert found.faults == (("not_counted", 1, CONV),)


def test_the_number_of_a_bias_is_not_the_products() -> None:
    made = MadeUp()
    call = made.call("aten::linear", Tensor(4, 8), Tensor(16, 8))
    made.kernel(call, POINTWISE, source_flop=4 * 16)
    made.kernel(call, SGEMM, source_flop=1024)
    found = cleaned(made)
    assert states(found) == [1088, 1024, 1024]
    assert found.faults == (("not_product", 1, -64),)


@pytest.mark.parametrize("time_ns", [(10, 20), (20, 10)])
def test_calls_of_one_gradient_each_count_one_each(time_ns: tuple[int, ...]) -> None:
    found = old_gradients("input", "weight", time_ns=time_ns)
    assert states(found, "backward") == [2 * CONV] * 3
    assert found.kernels["repaired_flop"].tolist() == [CONV, CONV]
    assert found.faults == (("no_kernel", 1, CONV),)  # the forward call is no row
    assert [i.units for i in found.instances] == [1, 2]


def test_nothing_known_of_a_phase_is_unknown_and_not_zero() -> None:
    made = MadeUp()
    made.kernel(made.call("aten::conv2d", phase="backward"), SCUDNN, source_flop=0)
    found = cleaned(made)
    assert states(found, "backward") == [None, None, None]  # 0 is what PyProf writes for what it cannot count
    assert states(found, "forward") == [None, None, None]
    assert found.phase_totals["repaired"]["backward_flop"] == PhaseTotal(None, 0, 1, 1.0)
    assert found.phase_totals["repaired"]["forward_flop"] == PhaseTotal()


def test_a_call_without_a_count_whose_kernels_were_not_recorded_has_no_known_time() -> None:
    made = MadeUp()
    made.call("aten::conv2d")
    made.kernel(convolution(made, INPUT, WEIGHT), SCUDNN)
    found = cleaned(made)
    assert found.phase_totals["repaired"]["forward_flop"] == PhaseTotal(None, CONV, 1, None)


def test_calls_in_the_place_of_kernels() -> None:
    made = MadeUp()
    outer = convolution(made, INPUT, WEIGHT)
    pad, each = Tensor(*INPUT), ((1, 1), (1, 1), (1, 1), 1)
    inner = made.call("aten::mkldnn_convolution", pad, Tensor(*WEIGHT), None, *each, parent=outer)
    copy = made.call("aten::copy_", Tensor(2), parent=outer)
    for call in (inner, copy):
        made.kernel(call, made.calls[call]["name"], what="call")
    found = cleaned(made)
    assert states(found) == [CONV] * 3
    assert found.faults == ()
    assert found.unexplained_time_ratio == 0
