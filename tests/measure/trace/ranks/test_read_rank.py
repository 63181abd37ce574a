"""Definition, injected fault: a rank's trace as a timeline by hand, from made-up events and recordings of gloo."""

import json
from pathlib import Path
from typing import Any

import pytest

from measure.trace.read import rank_files, read_rank
from tests.support.recordings import record_ranks

RANKS = Path(__file__).parents[3] / "data" / "ranks"

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SIZES = {"Collective name": "allreduce", "In msg nelems": 1000, "dtype": "BFloat16", "Group size": 4}
GROUP = {"Process Group Name": "7", "Process Group Ranks": "[0, 1, 2, 3]"}


def event(category: str, name: str, start_us: int, us: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start_us, "dur": us, "args": args}


def write(path: Path, events: list[dict[str, Any]], rank: object = 3, **header: Any) -> Path:
    facts = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4}, "host_name": "node-a"}
    path.write_text(json.dumps({**facts, **header, "traceEvents": events}))
    return path


DEVICE = [
    event("user_annotation", "ProfilerStep#5", 0, 100),
    event("user_annotation", "ProfilerStep#6", 100, 100),
    event("cuda_runtime", "cudaLaunchKernel", 10, 2, correlation=1),
    event("cuda_runtime", "cudaLaunchKernel", 20, 2, correlation=2),
    event("cuda_runtime", "cudaLaunchKernel", 110, 2, correlation=3),
    event("kernel", "sgemm", 40, 50, correlation=1, stream=7),
    event("kernel", NCCL, 60, 80, correlation=2, stream=20, **SIZES, **GROUP),
    event("kernel", "sgemm", 150, 30, correlation=3, stream=7),
    event("gpu_memcpy", "Memcpy HtoD", 30, 5, correlation=9),
    event("gpu_user_annotation", "nccl:all_reduce", 60, 80),
    event("cpu_op", "aten::mm", 10, 5),
]


def test_kernels_copies_collectives_and_steps_of_a_device(tmp_path: Path) -> None:
    found = read_rank(write(tmp_path / "trace.json", DEVICE))
    assert (found.rank, found.world_size, found.host, found.device) == (3, 4, "node-a", True)
    assert found.compute.tolist() == [[40_000, 90_000], [150_000, 180_000]]
    assert found.memory.tolist() == [[30_000, 35_000]]
    (row,) = found.collectives.to_dict("records")
    # launched at 20 µs, so of step 5, although it runs until 140; 1000 elements of two bytes
    assert row == {
        "start_ns": 60_000, "end_ns": 140_000, "kind": "all_reduce", "group": "7", "group_size": 4,
        "ranks": "[0, 1, 2, 3]", "nbytes": 2000, "step": 5,
    }  # fmt: skip
    # from the first kernel of a step to that of the next one; the last ends with its last kernel
    assert found.steps.to_numpy().tolist() == [[5, 40_000, 150_000], [6, 150_000, 180_000]]


def test_times_are_of_the_clock_that_the_header_counts_from(tmp_path: Path) -> None:
    base = 1_790_000_000_000_000_000
    found = read_rank(write(tmp_path / "trace.json", DEVICE, baseTimeNanoseconds=base))
    assert int(found.compute[0, 0]) == base + 40_000
    assert int(found.steps["start_ns"].iloc[0]) == base + 40_000


def test_recordings_of_gloo_have_the_gradients_bytes_in_each_step() -> None:
    for number, path in enumerate(rank_files(RANKS)):
        found = read_rank(path)
        assert (found.rank, found.world_size) == (number, record_ranks.RANKS)
        first = record_ranks.FIRST_STEP
        assert found.steps["number"].tolist() == list(range(first, first + record_ranks.STEPS))
        # weights and biases of all layers, four bytes each
        gradients = record_ranks.LAYERS * (record_ranks.WIDTH + 1) * record_ranks.WIDTH * 4
        assert found.collectives.groupby("step")["nbytes"].sum().tolist() == [gradients] * record_ranks.STEPS


BAD = {
    "no rank": ({"rank": None}, "expected the rank in distributedInfo"),
    "a word": ({"rank": "zero"}, "expected the rank in distributedInfo"),
    "no list": ({"distributedInfo": 7}, "expected the rank in distributedInfo"),
}


@pytest.mark.parametrize("how", BAD)
def test_a_trace_that_names_no_rank_is_refused(tmp_path: Path, how: str) -> None:
    more, words = BAD[how]
    with pytest.raises(ValueError, match=words):
        read_rank(write(tmp_path / "trace.json", DEVICE, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("broken", [{"ts": None}, {"ts": "soon"}, {"ts": -5}, {"args": 3}])
def test_an_event_of_another_form_is_one_line(tmp_path: Path, broken: dict[str, Any]) -> None:
    path = write(tmp_path / "trace.json", [{**event("kernel", NCCL, 1, 1), **broken}])
    with pytest.raises(ValueError, match=r"trace\.json: the event .* is not as its recorder writes it") as fault:
        read_rank(path)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("duration", [float("nan"), -1, None, 2**61])
def test_a_step_with_a_kernel_without_a_usable_duration_is_left_out(tmp_path: Path, duration: object) -> None:
    """The kernel of step 6 begins at 150 µs; of step 5 the collective at 60 µs."""
    spoilt = [{**each, "dur": duration} if each["ts"] == 150 else each for each in DEVICE]
    found = read_rank(write(tmp_path / "trace.json", spoilt))
    assert (found.steps["number"].tolist(), found.untimed) == ([5], 1)
    every = [{**each, "dur": duration} if each["ts"] in (60, 150) else each for each in DEVICE]
    with pytest.raises(ValueError, match="2 kernels or copies have no usable duration, in each step"):
        read_rank(write(tmp_path / "trace.json", every))
