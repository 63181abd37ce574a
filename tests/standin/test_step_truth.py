"""Known answer: the kernels, gaps, phases, drift and memory planted in a stand-in are those found of a step.

All steps run in one process. Expected values follow from the plan and from how many kernels the device's page counted.
"""

import pytest

from tests.standin.device.stand_in import Task

pytestmark = pytest.mark.standin

KERNEL_NS = 200_000
GAP_NS = 10_000_000
"""So long that a host that is interrupted for some milliseconds does not make the device wait."""

DRIFT = 5e-5
"""So much that five blocks, the fewest, are not narrow, however few steps a busy machine has time for."""
SHORT = {"cap_s": 1.0, "min_time_s": 0.2, "warm_cap_s": 0.5, "warm_min_s": 0.2}
RULES = {"cap_s": 4.0, "min_time_s": 0.2, "warm_cap_s": 0.5}
MIB = 2**20
MEMORY_MIB, CONTEXT_MIB = 1024, 24
TASKS = {
    "gaps": Task("profile", (), {"gap_ns": GAP_NS}),
    "twice": Task("profile", (), {"gap_ns": GAP_NS, "cupti_twice": 1}),
    "eager": Task("phases", ("eager",)),
    "graphs": Task("phases", ("graphs",)),
    "compiled": Task("phases", ("compiled",)),
    "drift": Task("timing", (RULES,), {"drift_per_launch": DRIFT}),
    "device waits": Task("timing", (SHORT,), {"kernel_ns": 1000, "call_ns": 50_000}),
    "host waits": Task("timing", (SHORT,)),
    "largest": Task(
        "largest_batch",
        ("resnet18", 64, (MEMORY_MIB - CONTEXT_MIB) * MIB),
        {"memory_mib": MEMORY_MIB, "context_mib": CONTEXT_MIB, "kernel_ns": 100, "call_ns": 100},
    ),
}


@pytest.fixture(scope="module")
def answers(standin_of_module):
    return standin_of_module(kernel_ns=KERNEL_NS).tasks(TASKS)


def timed(answer):
    """Operations of a profiled step that took time on the device, in their order."""
    return [row for row in answer["profile"]["operations"] if row["kernels"] and row["time_s"]]


def given(row):
    """Kernels of an operation by its time: a memset or copy beside them takes next to none."""
    return round(row["time_s"] / (KERNEL_NS * 1e-9))


@pytest.mark.parametrize("recorded", ["gaps", "twice"])
def test_each_kernel_is_recorded_once(answers, recorded):
    """Kernels of a step by their times, against what the device was given; duplicates planted are taken out."""
    rows = timed(answers[recorded])
    assert sum(given(row) for row in rows) == answers[recorded]["step"]
    for row in rows:
        assert row["time_s"] == pytest.approx(given(row) * KERNEL_NS * 1e-9, rel=1e-3), row["name"]


@pytest.mark.parametrize("recorded", ["gaps", "twice"])
def test_gaps_are_time_in_which_the_device_waits(answers, recorded):
    """One gap before each kernel but the step's first: it begins when the host gives it, on a device that is idle."""
    first, *rest = timed(answers[recorded])
    assert first["waited_s"] >= (given(first) - 1) * GAP_NS * 1e-9
    for row in rest:
        assert row["waited_s"] == pytest.approx(given(row) * GAP_NS * 1e-9, rel=1e-3), row["name"]
    waited_s = answers[recorded]["profile"]["between_operations_time_s"]
    assert waited_s >= (answers[recorded]["step"] - 1) * GAP_NS * 1e-9


def test_kernels_belong_to_the_modules_that_launched_them(answers):
    """Module by module in a forward pass, against the device's count around each module's own call."""
    modules = {row["module"]: row for row in answers["gaps"]["profile"]["modules"]}
    for name, kernels in answers["gaps"]["forward"].items():
        assert modules[name]["forward_time_s"] == pytest.approx(kernels * KERNEL_NS * 1e-9, rel=1e-3), name


@pytest.mark.parametrize("kind", ["eager", "graphs", "compiled"])
def test_phases_are_their_kernels(answers, kind):
    """Kernels of each phase × their time; a copy into a graph's input takes next to nothing."""
    answer = answers[kind]
    assert {block["phase"] for block in answer["blocks"]} == {"forward", "loss", "backward", "optimizer"}
    for block in answer["blocks"]:
        planted_s = answer["kernels"][block["phase"]] * KERNEL_NS * 1e-9
        assert block["device_s"] / block["steps"] == pytest.approx(planted_s, rel=2e-3), block["phase"]


def test_graphs_were_launched_and_the_compiled_step_was_fused(answers):
    assert [answers[kind]["graphs"] for kind in ("eager", "graphs")] == [0, 2], "a graph each forward and backward"
    assert sum(answers["graphs"]["kernels"].values()) == sum(answers["eager"]["kernels"].values())
    assert answers["compiled"]["kernels"]["forward"] < answers["eager"]["kernels"]["forward"]


def test_blocks_of_a_device_that_slows_down_are_the_planted_ones(answers):
    """The n-th kernel lasts KERNEL_NS · (1 + DRIFT · n); a block has one untimed step before its own."""
    answer, n = answers["drift"], answers["drift"]["before"]
    for block in answer["blocks"]:
        n += answer["kernels"]  # the untimed step
        count = block["steps"] * answer["kernels"]
        planted_s = count * KERNEL_NS * 1e-9 * (1 + DRIFT * (n + (count + 1) / 2))  # the mean of n + 1 … n + count
        assert block["device_s"] == pytest.approx(planted_s, rel=1e-5)
        n += count


def test_a_step_whose_device_waits_is_host_bound_and_the_reverse(answers):
    """Calls that take the host 50 times as long as a kernel takes the device; kernels that take 67 times as long."""
    assert [answers[waits]["host_bound"] for waits in ("device waits", "host waits")] == [True, False]


def test_the_largest_batch_is_that_of_the_planted_memory(answers):
    """Predicted for what the context leaves: what fits trains, and no batch does that is above the other number."""
    found = answers["largest"]
    assert found["fits"] <= found["trained"] <= found["at_most"]
    assert found["trained"] == pytest.approx(found["at_most"], rel=0.025)
