"""Law, definition, injected fault: Nsight Systems exports of every generation read alike; other files are refused."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from measure.trace import nsys
from measure.trace.attribute import attribute
from measure.trace.pyprof_arguments import literal
from measure.trace.read import detect
from measure.trace.recording import CALL_COLUMNS, KERNEL_COLUMNS, Recording
from tests.measure.trace.made_up_files import step
from tests.support.made_up_operations.nsys_export import ENGINE, MAIN, PROCESS, TABLES, Export


def call_names(recording: Recording) -> list[str]:
    """The name of each kernel's call, "" if it has none."""
    names = recording.calls["name"].tolist()
    return [names[call] if call >= 0 else "" for call in recording.kernels["call"]]


@pytest.mark.parametrize("year", TABLES)
def test_every_generation_reads_alike(tmp_path: Path, year: int) -> None:
    path = step(year).write(tmp_path / "report.sqlite")
    assert detect(path) == "nsys"
    recording = nsys.read(path)
    assert list(recording.calls.columns) == list(CALL_COLUMNS)
    assert list(recording.kernels.columns) == list(KERNEL_COLUMNS)
    kernels, calls = recording.kernels, recording.calls
    assert kernels["name"].tolist() == ["void conv<float>(float*)", "wgrad"]
    assert kernels["start_ns"].tolist() == [300, 700]
    assert kernels["time_ns"].tolist() == [50, 100]
    assert kernels["launch_start_ns"].tolist() == [120, 530]
    assert kernels["launch_end_ns"].tolist() == [130, 540]
    assert kernels["launch_thread"].tolist() == [MAIN, ENGINE]
    assert kernels["process"].tolist() == [PROCESS, PROCESS]
    assert kernels["grid"].tolist() == [(4, 2, 1)] * 2
    assert kernels["block"].tolist() == [(64, 1, 1)] * 2
    assert calls["sequence_nr"].tolist() == [5, 5, -1, 5, -1]
    assert calls["external_id"].tolist() == [9, 10, 11, 12, 13]
    assert calls["input_shapes"][0] == ((8, 3, 9, 9), (4, 3, 3, 3), (), (), (), (), ())
    assert calls["input_shapes"][3] is None
    assert recording.ranges["name"].tolist() == ["ProfilerStep#2"]
    assert recording.device_name == "NVIDIA H200"
    assert recording.source == "nsys"


def test_kernels_find_call_phase_and_forward_call(tmp_path: Path) -> None:
    recording = attribute(nsys.read(step().write(tmp_path / "report.sqlite")))
    assert call_names(recording) == ["aten::cudnn_convolution", "aten::convolution_backward"]
    assert recording.kernels["phase"].tolist() == ["forward", "backward"]
    assert recording.kernels["link"].tolist() == ["containment"] * 2
    assert recording.calls["forward_index"].tolist()[-1] == 0  # aten::conv2d
    assert recording.steps == 1


def test_copies_and_fills_are_kernels_of_their_kind(tmp_path: Path) -> None:
    made = step()
    made.launch(5, 140, 150, name="cudaMemcpyAsync_v3020")
    made.launch(6, 160, 170, name="cudaMemsetAsync_v3020")
    where = {"deviceId": 0, "streamId": 7, "globalPid": PROCESS << 24, "bytes": 4}
    made.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=400, end=410, correlationId=5, copyKind=1, **where)
    made.add("CUPTI_ACTIVITY_KIND_MEMSET", start=420, end=425, correlationId=6, value=0, **where)
    kernels = attribute(nsys.read(made.write(tmp_path / "report.sqlite"))).kernels
    assert kernels["what"].tolist() == ["kernel", "memcpy", "memset", "kernel"]
    assert kernels["name"].tolist()[1:3] == ["Memcpy HtoD", "Memset"]
    assert kernels["time_ns"].tolist() == [50, 10, 5, 100]
    assert kernels["grid"].tolist()[1] is None
    assert kernels["link"].tolist() == ["containment"] * 4


@pytest.mark.parametrize(("kernel_end", "range_end"), [(1500, 990), (950, 1500)])
def test_a_range_without_an_end_ends_with_the_capture(tmp_path: Path, kernel_end: int, range_end: int) -> None:
    made = step()
    made.push("aten::mul, op_id = 99", 980, range_end, ENGINE)
    made.push("aten::linear, seq = 9, op_id = 50", 850, None)
    made.launch(3, 860, 865)
    made.kernel("gemm", 3, 900, kernel_end)
    recording = attribute(nsys.read(made.write(tmp_path / "report.sqlite")))
    assert call_names(recording)[-1] == "aten::linear"
    assert recording.calls["time_ns"][recording.calls["name"] == "aten::linear"].tolist() == [1500 - 850]
    assert "1 ranges have no end: they end with the capture" in recording.problems


# --- names of ranges -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aten::add", ("aten::add", -1, -1, None)),
        ("aten::add, seq = 12", ("aten::add", 12, -1, None)),
        ("aten::add, op_id = 7", ("aten::add", -1, 7, None)),
        ("aten::add, seq = 12, op_id = 7", ("aten::add", 12, 7, None)),
        ("aten::add, seq = 12, op_id = 7, sizes = [[2], []]", ("aten::add", 12, 7, "[[2], []]")),
        (
            "aten::cat, op_id = 7, sizes = [[[2], [3]], []], input_op_ids = [(6,0), (5,1)]",
            ("aten::cat", -1, 7, "[[[2], [3]], []]"),
        ),
        ("AddBackward, stashed seq=4", ("AddBackward", 4, -1, None)),
        ("mine, with, commas", ("mine, with, commas", -1, -1, None)),
        ("f, seq = 3, then more", ("f, seq = 3, then more", -1, -1, None)),
    ],
)
def test_emit_nvtx_names_are_taken_apart(text: str, expected: tuple[Any, ...]) -> None:
    assert nsys.parse(text) == expected


def marker(op: str, *arguments: dict[str, Any], mod: str = "torch.nn.functional") -> str:
    """What PyProf pushes."""
    return str({"mod": mod, "op": op, "args": list(arguments)})


def tensor(*sizes: int, name: str = "") -> dict[str, Any]:
    return {"name": name, "type": "tensor", "shape": sizes, "dtype": "float16"}


def value(given: Any, name: str = "") -> dict[str, Any]:
    return {"name": name, "type": type(given).__name__, "value": given}


def test_a_marker_gives_its_arguments_to_the_call_in_it(tmp_path: Path) -> None:
    made = Export()
    text = marker("conv2d", tensor(8, 3, 9, 9), tensor(4, 3, 3, 3), value(2, "stride"), value((1, 1), "padding"))
    made.push("{'traceMarker': ['train.py:1']}", 90, 210)
    made.push(text, 95, 205)
    made.push("aten::conv2d, seq = 5", 100, 200)
    made.push("aten::convolution, seq = 5", 110, 190)
    made.push(marker("relu", tensor(8, 4, 9, 9)), 300, 400)
    made.push("aten::clamp_min, seq = 6", 310, 390)
    made.launch(1, 120, 130)
    made.kernel("conv", 1, 500, 600)
    calls = nsys.read(made.write(tmp_path / "report.sqlite")).calls
    assert calls["name"].tolist() == ["aten::conv2d", "aten::convolution", "aten::relu", "aten::clamp_min"]
    # conv2d(input, weight, bias, stride, padding, dilation, groups): one number stands for both directions
    assert calls["input_shapes"][0] == ((8, 3, 9, 9), (4, 3, 3, 3), (), (), (), (), ())
    assert calls["concrete_inputs"][0] == (None, None, None, (2, 2), (1, 1), (1, 1), 1)
    assert calls["input_dtypes"][0] == ("float16", "float16", "", "", "", "", "")
    assert calls["input_shapes"][1] is None
    assert calls["input_shapes"][2] == ((8, 4, 9, 9),)


def test_our_ranges_are_told_by_domain_and_once(tmp_path: Path) -> None:
    made = step()
    made.domain(4, "flopledger")
    made.domain(5, "NCCL")
    for name, start, end in (("step", 90, 900), ("forward", 95, 450), ("backward", 451, 850)):
        made.in_domain(4, name, start, end)
        made.push(f"flopledger.{name}, op_id = {start}", start + 1, end - 1)  # emit_nvtx's copy of the annotation
    made.push("flopledger.module.features.0, op_id = 98", 98, 220)
    made.in_domain(5, "ncclAllReduce", 300, 310, 59)
    made.in_domain(6, "nobody", 320, 330, 59)
    recording = attribute(nsys.read(made.write(tmp_path / "report.sqlite")))
    names = sorted(recording.ranges["name"])
    assert names == [
        "NCCL.ncclAllReduce",
        "ProfilerStep#2",
        "domain 6.nobody",
        "flopledger.backward",
        "flopledger.forward",
        "flopledger.module.features.0",
        "flopledger.step",
    ]
    assert recording.kernels["phase"].tolist() == ["forward", "backward"]
    assert recording.kernels["module"].tolist() == ["features.0", "features.0"]


def test_rows_in_any_order_give_the_same(tmp_path: Path) -> None:
    made, mixed = step(), step()
    for table, rows in mixed.rows.items():
        random.Random(table).shuffle(rows)
    first = attribute(nsys.read(made.write(tmp_path / "first.sqlite")))
    second = attribute(nsys.read(mixed.write(tmp_path / "second.sqlite")))
    assert first.calls.equals(second.calls)
    assert first.kernels.equals(second.kernels)


# --- what is no recording --------------------------------------------------------------------------------------------


def without_cupti(path: Path) -> None:
    step().write(path, without=[name for name in TABLES[2026] if name.startswith("CUPTI")])


def without_kernels(path: Path) -> None:
    made = step()
    del made.rows["CUPTI_ACTIVITY_KIND_KERNEL"]
    made.write(path)


def cut(path: Path) -> None:
    whole = step().write(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def damaged(path: Path) -> None:
    made = step()
    for at in range(2000):
        made.kernel("k", 10 + at, 2000 + at, 2001 + at)
    whole = made.write(path).read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))


def binary(path: Path) -> None:
    path.write_bytes(b"\x0a\x0bNVIDIA\x00" * 100)


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no CUPTI tables": (without_cupti, "no CUPTI tables"),
    "no kernels": (without_kernels, "hold no kernels"),
    "the binary report": (binary, "this is not an SQLite file"),
    "cut": (cut, "cut"),
    "damaged": (damaged, "cut or damaged"),
    "missing": (lambda path: None, "No such file"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_export_is_refused_with_how_to_make_one(tmp_path: Path, what: str) -> None:
    make, reason = REFUSED[what]
    path = tmp_path / "report.nsys-rep"
    make(path)
    with pytest.raises(ValueError, match=r"nsys profile --trace=cuda,nvtx.*nsys export --type=sqlite") as found:
        nsys.read(path)
    text = str(found.value)
    assert text.startswith(f"{path}: ")
    assert reason in text
    assert "\n" not in text


@pytest.mark.parametrize(("name", "node"), [("cudaGraphLaunch_v10000", None), ("cudaGraphLaunch", 4), ("unknown", 4)])
def test_replayed_graphs_are_told_by_launch_or_node(tmp_path: Path, name: str, node: int | None) -> None:
    made = step()
    made.launch(9, 860, 870, name=name)
    made.kernel("a", 9, 900, 910, graphNodeId=node)
    made.kernel("b", 9, 911, 920, graphNodeId=node)
    recording = nsys.read(made.write(tmp_path / "report.sqlite"))
    assert recording.kernels["link"].tolist() == ["none", "none", "graph", "graph"]
    assert any(problem.startswith("2 kernels were replayed by CUDA graphs") for problem in recording.problems)


def test_the_binary_report_is_no_export_and_is_told_as_such(tmp_path: Path) -> None:
    binary(tmp_path / "report.nsys-rep")
    with pytest.raises(ValueError, match=r"not its export; record: nsys profile .* nsys export --type=sqlite"):
        detect(tmp_path / "report.nsys-rep")


def test_markers_are_literals_and_never_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    assert literal(f"{{'mod': open({str(ran)!r}, 'w'), 'op': 'x', 'args': []}}") is None
    assert not ran.exists()
    assert literal("{'mod': 'm', 'op': 'x'}") == {"mod": "m", "op": "x"}
    assert literal("{'cut': ") is None
    assert literal("forward") is None
