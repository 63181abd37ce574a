"""Known answer, definition, injected fault: `runners.trace DIR` of three processes, one made late from a known step."""

import gzip
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runners import trace
from tests.support.fakes.commands import refused, running, telling
from tests.support.recordings import record_ranks

REFUSED = {
    "csv": (("--format", "csv"), "--format csv: expected a file"),
    "PyProf's rule": (("--pyprof",), "--pyprof: expected a file"),
}

RANKS = Path(__file__).parents[2] / "data" / "ranks"

FORWARD = record_ranks.LAYERS * 2 * record_ranks.BATCH * record_ranks.WIDTH**2
STEP_FLOP = FORWARD + 2 * FORWARD - FORWARD // record_ranks.LAYERS
"""The first layer's input needs no gradient."""


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    return running(trace.main, capsys)(*words)


def document(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    found: dict[str, Any] = telling(trace.main, capsys)(*words)
    return found


def test_the_late_rank_is_named_with_the_step_and_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, RANKS)
    late = found["straggler"]
    assert (late["rank"], late["since"]) == (record_ranks.SLOW, record_ranks.FROM_STEP)
    slept_s = record_ranks.SLEEP_S * 3 / 5  # in three of the five steps
    for wait in (wait for wait in found["waits"] if wait["for_rank"] == record_ranks.SLOW):
        assert wait["wait_s"] == pytest.approx(slept_s, rel=0.15)
    idle = {row["rank"]: row["idle_s"] for row in found["ranks"]}
    assert idle[record_ranks.SLOW] > 0.9 * slept_s


def test_flop_of_each_rank_are_those_of_its_share_of_the_batch(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, RANKS)
    assert [row["flop"] for row in found["ranks"]] == [STEP_FLOP] * record_ranks.RANKS
    assert found["flop_per_s"] == pytest.approx(3 * STEP_FLOP / found["step_time_s"])
    assert found["utilization_ratio"] is None, "a CPU has no peak"


def test_clocks_an_hour_apart_change_no_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = document(capsys, RANKS, "--times-only")
    folder = shutil.copytree(RANKS, tmp_path / "ranks")
    held = json.loads(gzip.decompress((folder / "rank2.json.gz").read_bytes()))
    held |= {"baseTimeNanoseconds": held["baseTimeNanoseconds"] + 3_600_000_000_000, "host_name": "elsewhere"}
    (folder / "rank2.json.gz").write_bytes(gzip.compress(json.dumps(held).encode()))
    there = document(capsys, folder, "--times-only")
    assert there["clock_shifts"][2]["shift_s"] == pytest.approx(-3600, abs=0.01)
    assert there["straggler"]["rank"] == here["straggler"]["rank"]
    waits = [{(each["rank"], each["for_rank"]): each["wait_s"] for each in one["waits"]} for one in (here, there)]
    # the ends of gloo's all_reduce are some ms apart here, which is what a clock can be set to
    assert waits[1][2, 1] == pytest.approx(waits[0][2, 1], abs=0.005)


def test_a_missing_rank_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(RANKS, tmp_path / "ranks")
    (folder / "rank2.json.gz").unlink()
    code, out, _ = run(capsys, folder, "--times-only")
    assert (code, out.startswith("2 of 3 ranks")) == (0, True)
    assert "Waits for the 1 ranks without a recording are not known." in out


def test_a_trace_twice_or_cut_and_a_folder_without_any_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(RANKS, tmp_path / "ranks")
    shutil.copy(folder / "rank0.json.gz", folder / "again.json.gz")
    refused(run(capsys, folder), "two of rank 0")
    (folder / "again.json.gz").unlink()
    whole = (folder / "rank1.json.gz").read_bytes()
    (folder / "rank1.json.gz").write_bytes(whole[: len(whole) // 2])
    refused(run(capsys, folder), "rank1.json.gz")
    (tmp_path / "empty").mkdir()
    refused(run(capsys, tmp_path / "empty"), "one a rank")


COLLECTIVE_KERNELS = (
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)",
    "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclAllReduceRingLLKernel_sum_f32(ncclColl)",
    "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
    "ncclSymkDevKernel_AllGather_LL(ncclSymkDevArgs)",
    "rcclGenericKernel<1, false>(channelMasks, ncclDevComm*, ncclWork*)",
    "void ncclKernel_AllToAll_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
)


@pytest.mark.parametrize("seed", range(4))
def test_computing_exposed_copies_and_idle_are_the_window_on_every_rank(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kernels, collectives by any name and copies at random in one step of each of two ranks; each µs is looked at."""
    dice, ticks = random.Random(seed), {}
    for rank in range(2):
        covered = {kind: np.zeros(10_000, bool) for kind in ("compute", "collective", "copy")}
        events = [{"cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 10_000}]
        for number in range(40):
            kind = dice.choice([*covered])
            name = {"compute": "sgemm", "collective": dice.choice(COLLECTIVE_KERNELS), "copy": "Memcpy DtoH"}[kind]
            start, length = dice.randrange(100, 8000), dice.randrange(1, 300)
            covered[kind][start : start + length] = True
            category = "gpu_memcpy" if kind == "copy" else "kernel"
            ids = {"correlation": number, "device": 0, "stream": dice.randrange(7, 12)}
            events.append({"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": number, "dur": 1, "args": ids})
            events.append({"cat": category, "name": name, "ts": start, "dur": length, "args": ids})
        facts = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
        whole = {**facts, "traceEvents": [{"ph": "X", "pid": 1, "tid": 1, **event} for event in events]}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(whole))
        ran = np.flatnonzero(covered["compute"] | covered["collective"])
        ticks[rank] = {kind: flags[ran[0] : ran[-1] + 1] for kind, flags in covered.items()}
    for row in document(capsys, tmp_path, "--times-only")["ranks"]:
        compute, collective, copy = ticks[row["rank"]].values()
        expected = {
            "window_s": len(compute),
            "compute_s": compute.sum(),
            "communication_s": collective.sum(),
            "exposed_s": (collective & ~compute).sum(),
            "overlapped_s": (collective & compute).sum(),
            "memory_s": (copy & ~compute & ~collective).sum(),
            "idle_s": (~compute & ~collective & ~copy).sum(),
        }
        assert {name: round(row[name] * 1e6) for name in expected} == expected


@pytest.mark.parametrize("how", REFUSED)
def test_options_of_a_file_are_refused(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, says = REFUSED[how]
    refused(run(capsys, RANKS, *words), says)
