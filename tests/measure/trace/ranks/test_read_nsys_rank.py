"""Definition, command, injected fault: Nsight Systems exports of ranks as timelines, also by `runners.trace DIR`."""

import json
from pathlib import Path

import pytest

from measure.trace import nsys
from measure.trace.read import rank_files, read_rank
from runners import trace
from tests.support.fakes.commands import running
from tests.support.made_up_operations.nsys_export import PROCESS, Export

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BASE_NS = 1_790_000_000_000_000_000
STEP_NS, STEPS, LATE_FROM, LATE_NS, UNSAID_NS = 1_000_000, 4, 12, 200_000, 40_000
"""A step of 1 ms: 0.6 ms of computing and an all-reduce; of rank 1 from step 12 on 0.2 ms more."""


def export(rank: int, late_ns: int = 0, environment: str | None = None) -> Export:
    """Steps 10 to 13 of a rank, whose session began as many seconds after BASE_NS, and 40 µs that it does not say."""
    shift = -rank * 1_000_000_000
    said = f"HOME=/root;RANK={rank};WORLD_SIZE=3;PATH=/bin" if environment is None else environment
    made = session(BASE_NS - shift - UNSAID_NS * rank, said)
    fill(made, late_ns, shift)
    return made


def session(begin_ns: int, environment: str, host: str = "node") -> Export:
    """An export without kernels."""
    made = Export()
    made.tables |= {
        "TARGET_INFO_SESSION_START_TIME": "utcEpochNs utcTime",
        "TARGET_INFO_SYSTEM_ENV": "globalVid devStateName name nameEnum value",
    }
    made.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=begin_ns)
    made.add("TARGET_INFO_SYSTEM_ENV", name="DeviceEnvironment", value=environment)
    made.add("TARGET_INFO_SYSTEM_ENV", name="Hostname", value=host)
    return made


def fill(made: Export, late_ns: int, shift: int, process: int = PROCESS, device: int = 0, width: int = 0) -> None:
    """Steps of a process. width: of the square product that each multiplies, on the record by its sizes; 0: none."""
    made.add("TARGET_INFO_GPU", id=device + 1, cuDevice=device, name="NVIDIA H200")
    for place in range(STEPS):
        begin = 5_000_000_000 + shift + place * STEP_NS
        late = late_ns if 10 + place >= LATE_FROM else 0
        made.push(f"ProfilerStep#{10 + place}", begin, begin + STEP_NS, process=process)
        if width:
            sizes = f"[[{width}, {width}], [{width}, {width}]]"
            made.push(f"aten::mm, op_id = {place + 1}, sizes = {sizes}", begin + 50, begin + 900, process=process)
        for launch in range(2):
            made.launch(
                10 * place + launch + 1, begin + 1000 * launch + 100, begin + 1000 * launch + 200, process=process
            )
        where = {"process": process, "deviceId": device}
        made.kernel("sgemm", 10 * place + 1, begin + 10_000, begin + 610_000 + late, **where)
        # all leave together, when the latest one, by 0.2 ms in the last two steps, has come and 0.1 ms more has passed
        end = begin + 710_000 + (LATE_NS if 10 + place >= LATE_FROM else 0)
        made.kernel(NCCL, 10 * place + 2, begin + 610_000 + late, end, streamId=20, **where)


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
    code, out, _ = running(trace.main, capsys)(folder, "--times-only", "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert (found["straggler"]["rank"], found["straggler"]["since"]) == (1, LATE_FROM)
    assert {wait["rank"]: wait["wait_s"] for wait in found["waits"] if wait["for_rank"] == 1} == {
        0: pytest.approx(LATE_NS / 1e9 / 2),
        2: pytest.approx(LATE_NS / 1e9 / 2),
    }


def test_an_export_of_a_host_has_a_rank_for_each_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """nsys before torchrun: one file and one clock, three processes, of which the last one has the first device."""
    made = session(BASE_NS, "HOME=/root;PATH=/bin")
    for rank in range(3):
        fill(made, LATE_NS if rank == 1 else 0, 0, PROCESS + 2 - rank, rank, 256 << rank)
    path = made.write(tmp_path / "report.sqlite")
    code, out, _ = running(trace.main, capsys)(tmp_path, "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert [row["rank"] for row in found["ranks"]] == [0, 1, 2]
    assert (found["straggler"]["rank"], found["straggler"]["since"]) == (1, LATE_FROM)
    assert {wait["rank"]: wait["wait_s"] for wait in found["waits"] if wait["for_rank"] == 1} == {
        rank: pytest.approx(LATE_NS / 1e9 / 2) for rank in (0, 2)
    }
    assert [shift["shift_s"] for shift in found["clock_shifts"]] == [0, 0, 0]
    assert [row["flop"] for row in found["ranks"]] == [2 * (256 << rank) ** 3 for rank in range(3)]
    assert any("numbered in the order of their devices" in line for line in found["problems"])
    with pytest.raises(ValueError, match="expected one rank, got the processes of 3"):
        read_rank(path)
    assert any(line.startswith("3 processes had kernels, and are added up") for line in nsys.read(path).problems)
