"""A rank's export of Nsight Systems as a timeline, and three of them as `runners.trace DIR` compares them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from measure.trace.ranks import rank_files, read_rank
from runners.trace import command
from tests.support.fakes.commands import refused, running
from tests.support.made_up_operations.nsys_export import PROCESS, Export

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BASE_NS = 1_790_000_000_000_000_000
STEP_NS, STEPS, LATE_FROM, LATE_NS, UNSAID_NS = 1_000_000, 4, 12, 200_000, 40_000
"""A step of 1 ms: 0.6 ms of computing and an all-reduce; of rank 1 from step 12 on 0.2 ms more."""


def export(rank: int, late_ns: int = 0, environment: str | None = None) -> Export:
    """Steps 10 to 13 of a rank, whose session began as many seconds after BASE_NS, and 40 µs that it does not say."""
    made = Export()
    made.tables |= {
        "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime",
        "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
    }
    shift = -rank * 1_000_000_000
    made.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=BASE_NS - shift - UNSAID_NS * rank)
    said = f"HOME=/root;RANK={rank};WORLD_SIZE=3;PATH=/bin" if environment is None else environment
    made.add("TARGET_INFO_SYSTEM_ENV", name="DeviceEnvironment", value=said)
    made.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value="node")
    made.add("TARGET_INFO_GPU", id=1, cuDevice=0, name="NVIDIA H200")
    for place in range(STEPS):
        begin = 5_000_000_000 + shift + place * STEP_NS
        late = late_ns if 10 + place >= LATE_FROM else 0
        made.push(f"ProfilerStep#{10 + place}", begin, begin + STEP_NS)
        for launch in range(2):
            made.launch(10 * place + launch + 1, begin + 1000 * launch + 100, begin + 1000 * launch + 200)
        made.kernel("sgemm", 10 * place + 1, begin + 10_000, begin + 610_000 + late)
        # all leave together, when the latest one, by 0.2 ms in the last two steps, has come and 0.1 ms more has passed
        end = begin + 710_000 + (LATE_NS if 10 + place >= LATE_FROM else 0)
        made.kernel(NCCL, 10 * place + 2, begin + 610_000 + late, end, streamId=20)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for rank in range(3):
        export(rank, LATE_NS if rank == 1 else 0).write(tmp_path / f"report{rank + 5}.sqlite")
    return tmp_path


def test_an_export_says_rank_host_clock_steps_and_collectives(folder: Path) -> None:
    found = read_rank(rank_files(folder)[1])
    assert (found.rank, found.world_size, found.host, found.device_name) == (1, 3, "node", "NVIDIA H200")
    begin = BASE_NS + 5_000_000_000 - UNSAID_NS
    assert found.compute[0].tolist() == [begin + 10_000, begin + 610_000]
    first = found.collectives.to_dict("records")[0]
    assert (first["start_ns"], first["end_ns"], first["kind"], first["step"]) == (
        begin + 610_000, begin + 710_000, "all_reduce", 10,
    )  # fmt: skip
    # from a step's first kernel to the next step's; the last one ends with its last kernel
    assert found.steps["number"].tolist() == [10, 11, 12, 13]
    assert found.steps["end_ns"].tolist()[:1] == [begin + STEP_NS + 10_000]


def test_the_rank_that_is_late_is_named_with_its_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two others wait 0.2 ms each in two of four steps, whatever their sessions say of when they began."""
    code, out, _ = running(command.main, capsys)(folder, "--times-only", "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert (found["straggler"]["rank"], found["straggler"]["since"]) == (1, LATE_FROM)
    assert {wait["rank"]: wait["wait_s"] for wait in found["waits"] if wait["for_rank"] == 1} == {
        0: pytest.approx(LATE_NS / 1e9 / 2),
        2: pytest.approx(LATE_NS / 1e9 / 2),
    }


def test_without_an_environment_the_name_says_the_rank(tmp_path: Path) -> None:
    assert read_rank(export(0, environment="").write(tmp_path / "node7_rank12.sqlite")).rank == 12
    assert read_rank(export(0, environment="LOCAL_RANK=1;RANK=x").write(tmp_path / "report3.sqlite")).rank == 3


def test_what_is_no_ranks_export_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = running(command.main, capsys)
    export(0, environment="").write(tmp_path / "report.sqlite")
    refused(run(tmp_path), "expected the rank in the export's environment (RANK) or in the file's name")
    (tmp_path / "report.sqlite").unlink()
    two = export(0)
    two.kernel("sgemm", 99, 10, 20, process=PROCESS + 1)
    two.write(tmp_path / "report.sqlite")
    refused(run(tmp_path), "expected kernels of one rank's process, got those of 2")
