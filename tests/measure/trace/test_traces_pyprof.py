"""Definition, injected fault: PyProf's rows become calls that can be counted; cut files are refused, no text is run."""

import csv
import gzip
import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from analysis.trace.calls import Missing
from analysis.trace.operations import product_flop
from cleaning.trace.clean import clean
from measure.trace import pyprof, pyprof_arguments
from measure.trace.read import detect
from measure.trace.recording import CALL_COLUMNS, KERNEL_COLUMNS, Recording
from results.errors import Unavailable
from results.records.counts import ProfiledOperation
from tests.measure.trace.made_up_dicts import DICT_LINES, FIRST, FUNCTIONAL, line

HEADER = """
    Idx SeqId AltSeqId TId Layer Trace Direction Sub Module Op Kernel Params Sil(ns) TC Device Stream Grid Block FLOPs
    Bytes
""".split()  # noqa: SIM905

CONV = "N=2,C=3,H=8,W=8,K=4,P=8,Q=8,R=3,S=3,ph=1,pw=1,U=1,V=1,dh=1,dw=1,g=1,fp32,"
CONV_FLOP = 2 * (2 * 4 * 8 * 8) * (3 * 3 * 3)
NEXT = "N=2,C=4,H=8,W=8,K=6,P=4,Q=4,R=3,S=3,ph=1,pw=1,U=2,V=2,dh=1,dw=1,g=2,fp16,"
NEXT_FLOP = 2 * (2 * 6 * 4 * 4) * (2 * 3 * 3)  # two groups: 4 / 2 channels each
FC_FLOP = 2 * 2 * 5 * 7


def row(seq: Any, direction: str, sub: int, op: str, kernel: str, params: str, flop: Any = 0, **more: Any) -> dict:
    """One line of PyProf's table."""
    plain = dict.fromkeys(HEADER, "-")
    thread = "12" if direction == "bprop" else "11"
    told = {"SeqId": seq, "Direction": direction, "Sub": sub, "Op": op, "Kernel": kernel, "Params": params}
    kept = {"TId": thread, "Module": FUNCTIONAL, "Sil(ns)": 1000, "Device": 0, "Stream": 7, "FLOPs": flop, "Bytes": 1}
    return {**plain, "Grid": "4,2,1", "Block": "64,1,1", **kept, **told, **more}


STEP_ROWS = (
    row(1, "fprop", 0, "conv2d", "offsets", CONV),
    row(1, "fprop", 1, "conv2d", "volta_scudnn_a", CONV, f"{CONV_FLOP}.0"),
    row(1, "fprop", 2, "conv2d", "volta_scudnn_a", CONV, f"{CONV_FLOP}.0"),
    row(2, "fprop", 0, "relu", "elementwise", "[2,4,8,8]fp32", 512),
    row(3, "fprop", 0, "conv2d", "implicit_convolve_sgemm", NEXT),
    row(4, "fprop", 0, "bias", "elementwise", "M=5,N=2,fp32,", 10, AltSeqId=5),
    row(5, "fprop", 0, "linear", "sgemm", "M=5,N=2,K=7,fp32,", FC_FLOP, AltSeqId=4),
    row(5, "fprop", 1, "linear", "splitKreduce_kernel", "M=5,N=2,K=7,fp32,", FC_FLOP, AltSeqId=4),
    row(5, "bprop", 0, "linear", "sgemm_nn", "M=7,N=2,K=5,fp32,", FC_FLOP),
    row(5, "bprop", 1, "linear", "splitKreduce_kernel", "M=7,N=5,K=2,fp32,", FC_FLOP),
    row(5, "bprop", 2, "linear", "sgemm_nt", "X=(2,7),W=(5,7),fp32,"),
    row("-", "fprop", 0, "aten::add_", "elementwise", "na=na,", Module="na", TId="12"),
    row(3, "bprop", 0, "conv2d", "cudnn::detail::dgrad_engine", NEXT, NEXT_FLOP),
    row(3, "bprop", 1, "conv2d", "wgrad_alg0_engine", NEXT),
    row("-", "fprop", 0, "ReluBackward1", "elementwise", "na=na,", AltSeqId=2, Module="na", TId="12"),
    row(1, "bprop", 0, "conv2d", "wgrad_alg0_engine", CONV),
)


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = HEADER, quoting: int = csv.QUOTE_ALL) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", quoting=quoting, lineterminator="\n")
    writer.writeheader()
    for number, each in enumerate(rows, 1):
        writer.writerow({**each, "Idx": number})
    return text.getvalue()


def read(folder: Path, rows: Sequence[Mapping[str, Any]] = STEP_ROWS, **how: Any) -> Recording:
    path = folder / "pyprof.csv"
    path.write_text(table(rows, **how))
    return pyprof.read(path)


def flop(call: Any) -> int:
    """Model FLOP of a row of calls, counted as any recorded call is."""
    return product_flop(
        ProfiledOperation(
            work="batch",
            index=int(call["index"]),
            parent=None,
            name=call["name"],
            phase=call["phase"],
            module="",
            sequence_nr=None,
            forward_index=None,
            thread=0,
            input_shapes=call["input_shapes"] or (),
            input_dtypes=call["input_dtypes"] or (),
            concrete_inputs=call["concrete_inputs"] or (),
            found_flop=None,
            start_s=0.0,
            time_s=0.0,
        )
    )


def counted(recording: Recording) -> list[tuple[str, str, int]]:
    """Name, phase and FLOP of every product."""
    found = []
    for _, call in recording.calls.iterrows():
        try:
            found.append((call["name"], call["phase"], flop(call)))
        except Unavailable:
            continue
    return found


def test_rows_become_calls_that_can_be_counted(tmp_path: Path) -> None:
    recording = read(tmp_path)
    assert list(recording.calls.columns) == list(CALL_COLUMNS)
    assert list(recording.kernels.columns) == list(KERNEL_COLUMNS)
    assert counted(recording) == [
        ("aten::conv2d", "forward", CONV_FLOP),
        ("aten::conv2d", "forward", NEXT_FLOP),
        ("aten::linear", "forward", FC_FLOP),
        ("aten::linear_backward", "backward", 2 * FC_FLOP),
        ("aten::convolution_backward", "backward", 2 * NEXT_FLOP),
        ("aten::convolution_backward", "backward", CONV_FLOP),  # the images need no gradient
    ]
    assert recording.steps == 1
    assert recording.source == "pyprof"


def test_kernels_keep_what_the_file_says_and_know_their_call(tmp_path: Path) -> None:
    kernels = read(tmp_path).kernels
    assert len(kernels) == len(STEP_ROWS)
    assert kernels["call"].tolist() == [0, 0, 0, 1, 2, 3, 3, 3, 4, 4, 4, 5, 6, 6, 7, 8]
    assert set(kernels["link"]) == {"sequence"}
    assert kernels["name"].tolist()[1] == "volta_scudnn_a"
    assert kernels["source_flop"].tolist()[:4] == [0, CONV_FLOP, CONV_FLOP, 512]
    assert kernels["params"].tolist()[0] == CONV
    assert kernels["time_ns"].tolist() == [1000] * len(STEP_ROWS)
    assert (kernels["start_ns"] == -1).all()
    assert kernels["grid"].tolist()[0] == (4, 2, 1)
    assert kernels["block"].tolist()[0] == (64, 1, 1)
    assert kernels["phase"].tolist() == ["forward"] * 8 + ["backward"] * 8


def test_gradients_find_their_forward_call(tmp_path: Path) -> None:
    calls = read(tmp_path).calls
    names = calls["name"].tolist()
    found = {names[at]: names[forward] for at, forward in enumerate(calls["forward_index"]) if forward >= 0}
    assert found == {
        "aten::linear_backward": "aten::linear",
        "aten::convolution_backward": "aten::conv2d",
        "ReluBackward1": "aten::relu",
    }
    assert calls["forward_index"].tolist() == [-1, -1, -1, -1, 3, -1, 2, 1, 0]
    assert calls["sequence_nr"].tolist() == [1, 2, 3, 5, 5, -1, 3, -1, 1]


@pytest.mark.parametrize(("first", "last"), [(0, 1), (0, 3), (5, 6), (4, 9)])
def test_rows_that_were_taken_out_leave_gaps_in_the_numbers(tmp_path: Path, first: int, last: int) -> None:
    head, *lines = table(STEP_ROWS).splitlines(keepends=True)
    path = tmp_path / "cut.csv"
    path.write_text(head + "".join(lines[:first] + lines[last:]))
    recording = pyprof.read(path)
    many = "1 numbered row is" if last - first == 1 else f"{last - first} numbered rows are"
    why = f"{many} not in the file, by PyProf's column Idx"
    assert recording.missing == (Missing("backward", last - first, why), Missing("forward", last - first, why))
    found = clean(recording.calls, recording.kernels, recording.missing)
    totals = found.phase_totals["repaired"]
    assert (totals["forward_flop"].flop, totals["backward_flop"].flop) == (None, None)


def test_steps_begin_with_the_first_product_after_a_backward_pass(tmp_path: Path) -> None:
    numbers = ("SeqId", "AltSeqId")
    later = [{**each, **{n: each[n] + 10 for n in numbers if each[n] != "-"}} for each in STEP_ROWS]
    recording = read(tmp_path, [*STEP_ROWS, *later])
    assert recording.steps == 2
    assert recording.calls["step"].tolist() == [0] * 9 + [1] * 9
    assert counted(recording)[:6] == counted(recording)[6:]
    forward_only = [each for each in STEP_ROWS if each["Direction"] == "fprop" and each["TId"] == "11"]
    assert read(tmp_path, forward_only).steps is None


@pytest.mark.parametrize(
    ("op", "params", "expected"),
    [
        ("mm", "M=2,N=3,K=4,fp32,", 2 * 2 * 3 * 4),
        ("addmm", "M=2,N=3,K=4,fp32,", 2 * 2 * 3 * 4),
        ("bmm", "B=5,M=2,N=3,K=4,fp16,", 2 * 5 * 2 * 3 * 4),
        ("matmul", "A=(5,2,4),B=(4,3),fp32,", 2 * 5 * 2 * 3 * 4),
        ("__matmul__", "A=(2,4),B=(4,3),fp32,", 2 * 2 * 3 * 4),
        ("linear", "X=(6,2,4),W=(3,4),fp32,", 2 * 6 * 2 * 3 * 4),
        ("conv1d", CONV.replace("H=8", "H=1").replace("R=3", "R=1").replace("ph=1", "ph=0"), CONV_FLOP // 24),
    ],
)
def test_params_of_products(tmp_path: Path, op: str, params: str, expected: int) -> None:
    recording = read(tmp_path, [row(1, "fprop", 0, op, "gemm", params)])
    assert [f for _, _, f in counted(recording)] == [expected]


@pytest.mark.parametrize("op", ["mm", "addmm"])
def test_a_matrix_products_gradients_are_two_products(tmp_path: Path, op: str) -> None:
    params = "M=2,N=3,K=4,fp32,"
    rows = [row(1, "fprop", 0, "linear", "g", "M=2,N=2,K=2,fp32,"), row(2, "fprop", 0, op, "g", params)]
    rows += [row(2, "bprop", 0, op, "g", params), row(2, "bprop", 1, op, "g", params)]
    assert counted(read(tmp_path, rows))[-1] == ("aten::linear_backward", "backward", 2 * 2 * 2 * 3 * 4)


@pytest.mark.parametrize("changed", ["dh=100,", "dh=0,", "dh=-3,", "U=0,", "U=-1,", f"dh={10**31},"])
def test_a_gradient_of_a_window_that_fits_nowhere_has_no_sizes(changed: str) -> None:
    """A dilation of 100 gave an output of -96 rows, and a step of -300 kFLOP."""
    name = changed.partition("=")[0] + "="
    assert name in NEXT
    text = re.sub(name + r"\d+,", changed, NEXT)
    forward = pyprof_arguments.of_params("conv2d", text)
    assert forward is None or pyprof_arguments.of_gradient("conv2d", forward, of_input=True) is None


# --- dicts -----------------------------------------------------------------------------------------------------------


FIRST_FLOP = 2 * (2 * 4 * 6 * 6) * (3 * 3 * 3)
SECOND_FLOP = 2 * (2 * 5 * 3 * 3) * (4 * 2 * 2)


def plain(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.mark.parametrize("put", [plain, lambda path, text: path.write_bytes(gzip.compress(text.encode()))])
def test_dicts_give_calls_with_all_arguments(tmp_path: Path, put: Callable[[Path, str], None]) -> None:
    path = tmp_path / "net.dict"
    put(path, DICT_LINES)
    assert detect(path) == "pyprof"
    recording = pyprof.read(path)
    assert counted(recording) == [
        ("aten::conv2d", "forward", FIRST_FLOP),
        ("aten::conv2d", "forward", SECOND_FLOP),
        ("aten::convolution_backward", "backward", 2 * SECOND_FLOP),
        ("aten::convolution_backward", "backward", FIRST_FLOP),
    ]
    assert recording.calls["forward_index"].tolist() == [-1, -1, 1, 0]
    assert recording.kernels["name"].tolist()[0] == "void conv_a<float>(float*)"
    assert recording.kernels["time_ns"].tolist() == [500] * 5
    assert recording.kernels["grid"].tolist()[0] == (1, 2, 3)
    assert recording.kernels["source_flop"].isna().all()
    assert "no FLOPs in the file itself (-c flops)" in recording.problems


# --- what is no recording --------------------------------------------------------------------------------------------


def refused(path: Path, match: str) -> None:
    with pytest.raises(ValueError, match=match) as found:
        pyprof.read(path)
    assert str(found.value).startswith(f"{path}: ")
    assert "\n" not in str(found.value)
    assert "python -m pyprof." in str(found.value)


def test_a_table_cut_anywhere_is_refused_or_ends_with_a_line(tmp_path: Path) -> None:
    path, whole = tmp_path / "pyprof.csv", table(STEP_ROWS)
    lines = whole.count("\n")
    for size in range(len(whole) - 2, len(whole) - 400, -7):
        path.write_text(whole[:size])
        if whole[size - 1] == "\n" or whole[size] == "\n":
            assert len(pyprof.read(path).kernels) < lines
            continue
        refused(path, r"line \d+ (is cut|has \d+ fields instead of 20: the file is cut)")


@pytest.mark.parametrize(
    "columns",
    [
        "Op Params FLOPs",
        "Op Params Kernel",
        "Idx Direction Sub Module Op Kernel Params Sil(ns)",  # PyProf's own choice
        "Op Params Kernel FLOPs Direction",
        "SeqId Direction Sub Op Kernel Params FLOPs",
    ],
)
@pytest.mark.parametrize("quoting", [csv.QUOTE_ALL, csv.QUOTE_MINIMAL])
def test_any_columns_with_op_and_params_will_do(tmp_path: Path, columns: str, quoting: int) -> None:
    recording = read(tmp_path, columns=columns.split(), quoting=quoting)
    assert len(recording.kernels) == len(STEP_ROWS)
    forward = [found for found in counted(recording) if found[1] == "forward"]
    if "Direction" in columns:
        assert [f for _, _, f in forward] == [CONV_FLOP, NEXT_FLOP, FC_FLOP]
        assert sum(f for _, phase, f in counted(recording) if phase == "backward") == (
            2 * FC_FLOP + 2 * NEXT_FLOP + CONV_FLOP
        )
    assert recording.kernels["source_flop"].isna().all() == ("FLOPs" not in columns)


def test_cut_dicts_and_cut_gzip_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.dict"
    path.write_text(DICT_LINES[:-20])
    refused(path, "line 5 is cut or no dict")
    path.write_bytes(gzip.compress(DICT_LINES.encode())[:-12])
    refused(path, "gzip data are cut")
    path.write_text("{'op': ['x']}\n")
    refused(path, "line 1 lacks kShortName")


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ("Idx Op Kernel FLOPs", r"no column Params \(-c params\)"),
        ("Idx Params Kernel FLOPs", r"no column Op \(-c op\)"),
        ("Idx Op Params Sil(ns)", r"no column Kernel \(-c kernel\)"),
        ("Idx Kernel", r"no column Op and no column Params \(-c op,params\)"),
    ],
)
def test_a_missing_column_is_named(tmp_path: Path, columns: str, match: str) -> None:
    path = tmp_path / "pyprof.csv"
    path.write_text(table(STEP_ROWS, columns.split()))
    refused(path, match)


def test_no_text_is_ever_run(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    run = f"open({str(ran)!r}, 'w')"
    path = tmp_path / "net.dict"
    path.write_text(DICT_LINES + f"{{'kShortName': {run}, 'op': []}}\n")
    with pytest.raises(ValueError, match=r"line 6 is cut or no dict"):
        pyprof.read(path)
    path.write_text(line("conv_a", [1], "fprop", FIRST.replace("'conv2d'", run)))
    assert len(pyprof.read(path).kernels) == 1
    assert not ran.exists()
