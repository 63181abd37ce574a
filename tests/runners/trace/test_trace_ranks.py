"""`runners.trace DIR` over recordings of three gloo processes, of which one was made late from a known step on."""

from __future__ import annotations

import gzip
import json
import random
import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest

from reports.shared.numbers import percent
from reports.trace.ranks import WIDTH_PT
from runners import trace
from tests.support.recordings import record_ranks

RANKS = Path(__file__).parents[2] / "data" / "ranks"

FORWARD = record_ranks.LAYERS * 2 * record_ranks.BATCH * record_ranks.WIDTH**2
STEP_FLOP = FORWARD + 2 * FORWARD - FORWARD // record_ranks.LAYERS
"""The first layer's input needs no gradient."""


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    try:
        code = trace.main([str(word) for word in words])
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def document(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    code, out, err = run(capsys, *words, "--format", "json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
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


def test_times_alone_leave_flop_out(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, RANKS, "--times-only")
    assert [row["flop"] for row in found["ranks"]] == [None] * record_ranks.RANKS
    assert found["straggler"]["rank"] == record_ranks.SLOW


def test_the_table_begins_with_what_a_step_is_spent_on(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, RANKS, "--times-only")
    assert (code, err) == (0, "")
    assert out.startswith("3 ranks, 5 steps\nA step takes ")
    assert f"Rank {record_ranks.SLOW} is waited for" in out
    assert f"in each step from {record_ranks.FROM_STEP} on" in " ".join(out.split())
    assert "Without a device, computing is the operator calls on the host." in out


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
    _, out, _ = run(capsys, folder, "--times-only")
    assert "Clocks of 1 ranks were set by the ends of collectives" in " ".join(out.split())


def test_a_missing_rank_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(RANKS, tmp_path / "ranks")
    (folder / "rank2.json.gz").unlink()
    code, out, _ = run(capsys, folder, "--times-only")
    assert code == 0
    assert out.startswith("2 of 3 ranks")
    assert "Waits for the 1 ranks without a recording are not known." in out


def test_the_page_has_the_tables_and_a_bar_a_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The bars of a rank add up to the width of its step; a host's name is text."""
    folder = shutil.copytree(RANKS, tmp_path / "ranks")
    held = json.loads(gzip.decompress((folder / "rank2.json.gz").read_bytes()))
    (folder / "rank2.json.gz").write_bytes(gzip.compress(json.dumps(held | {"host_name": "<script>"}).encode()))
    code, _, err = run(capsys, folder, "--times-only", "--html", tmp_path / "page.html")
    assert (code, err) == (0, f"written: {tmp_path / 'page.html'}\n")
    page = (tmp_path / "page.html").read_text()
    assert f"Rank {record_ranks.SLOW} is waited for" in page
    assert "&lt;script&gt;" in page
    cells = [re.findall(r"<t[hd][^>]*>([^<]*)", row) for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL)]
    idle = {row["rank"]: row["idle_s"] / row["window_s"] for row in document(capsys, folder, "--times-only")["ranks"]}
    assert [row[0] for row in cells if len(row) == 7][1:] == ["0", "1", "2"]
    assert [row[-1] for row in cells if len(row) == 7][1:] == [percent(idle[rank]) for rank in range(3)]
    (drawn,) = re.findall(r"src='data:image/svg\+xml,([^']*)'", page)
    bars = re.findall(
        r"<title>rank (\d) [^<]*</title><rect x=\"([\d.]+)\" y=\"[\d.]+\" width=\"([\d.]+)\"", unquote(drawn)
    )
    ends = {int(rank): float(left) + float(width) for rank, left, width in bars}
    assert ends == {rank: pytest.approx(WIDTH_PT, abs=0.1) for rank in range(3)}


REFUSED = {
    "csv": (("--format", "csv"), "--format csv: expected a file"),
    "PyProf's rule": (("--pyprof",), "--pyprof: expected a file"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_options_of_a_file_are_refused(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    words, says = REFUSED[how]
    code, out, err = run(capsys, RANKS, *words)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


def test_a_trace_twice_or_cut_and_a_folder_without_any_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(RANKS, tmp_path / "ranks")
    shutil.copy(folder / "rank0.json.gz", folder / "again.json.gz")
    whole = (folder / "rank1.json.gz").read_bytes()
    for words in ("two of rank 0", "rank1.json.gz", "one a rank"):
        code, out, err = run(capsys, folder)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert words in err
        if words == "two of rank 0":
            (folder / "again.json.gz").unlink()
            (folder / "rank1.json.gz").write_bytes(whole[: len(whole) // 2])
        else:
            for file in folder.iterdir():
                file.unlink()


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
