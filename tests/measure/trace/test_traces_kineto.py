"""Law, definition, injected fault: Kineto traces are read as written, in any form, or refused in one line."""

import gzip
import json
import random
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from measure.trace import json_events, kineto
from measure.trace.read import READERS, detect
from measure.trace.recording import CALL_COLUMNS, KERNEL_COLUMNS, with_launches
from tests.measure.trace.made_up_files import cuda_trace, event, write

DATA = Path(__file__).parents[2] / "data"
OWN = sorted(DATA.glob("kineto_torch*.json.gz"))


def same(left: Any, right: Any) -> None:
    """Two recordings hold the same rows."""
    for name in ("calls", "kernels", "ranges", "flows"):
        pd.testing.assert_frame_equal(getattr(left, name), getattr(right, name))


# --- what is read ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.name)
def test_every_call_of_a_recording_is_read_as_it_is_written(path: Path) -> None:
    """Beside the whole file through the json module: names, places, sizes, numbers, in the order of start."""
    trace = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    written = sorted((e for e in trace["traceEvents"] if e.get("cat") == "cpu_op"), key=lambda e: e["ts"])
    calls = kineto.read(path).calls
    assert list(calls.columns) == list(CALL_COLUMNS)
    assert len(calls) == len(written) > 600
    for row, one in zip(calls.itertuples(index=False), written, strict=True):
        args = one["args"]
        assert row.name == one["name"]
        assert (row.process, row.thread, row.external_id) == (one["pid"], one["tid"], args["External id"])
        assert row.start_ns - trace["baseTimeNanoseconds"] == one["ts"] * 1000
        assert row.time_ns == one["dur"] * 1000
        assert row.sequence_nr == args.get("Sequence number", -1)
        assert row.forward_thread == args.get("Fwd thread id", 0)
        assert _lists(row.input_shapes) == args.get("Input Dims")
        assert _lists(row.input_dtypes) == args.get("Input type")
        assert _lists(row.concrete_inputs) == _values(args.get("Concrete Inputs"))


def _lists(value: Any) -> Any:
    return [_lists(item) for item in value] if isinstance(value, tuple) else value


def _values(texts: list[str] | None) -> Any:
    """What a JSON parser makes of the texts, with Python's words for truth and numbers without a digit at the end."""
    if texts is None:
        return None
    words = {"": None, "True": True, "False": False}
    return [words[text] if text in words else _number_or_list(text) for text in texts]


def _number_or_list(text: str) -> Any:
    clean = text.replace("True", "true").replace("False", "false")
    clean = clean + "0" if clean.endswith(".") else clean
    try:
        return json.loads(clean)
    except json.JSONDecodeError:
        return text


def test_kernels_copies_and_fills_with_their_launches(tmp_path: Path) -> None:
    recording = kineto.read(write(tmp_path / "t.json", {"traceEvents": cuda_trace(), "baseTimeNanoseconds": 1000}))
    kernels = recording.kernels
    assert list(kernels.columns) == list(KERNEL_COLUMNS)
    assert kernels["what"].tolist() == ["kernel", "memcpy", "memset"]
    assert kernels["start_ns"].tolist() == [41_250, 51_000, 61_000]  # 40.25 µs after 1 µs
    assert kernels["time_ns"].tolist() == [3_125, 1_000, 1_000]
    assert kernels["launch_start_ns"].tolist() == [14_000, 17_000, -1]  # of two launches with number 100 the shorter
    assert kernels["launch_end_ns"].tolist() == [15_000, 18_000, -1]
    assert kernels["process"].tolist() == [1, 1, -1]
    assert kernels["grid"].tolist() == [(1, 2, 3), None, None]
    assert recording.ranges["name"].tolist() == ["nn.Module: Linear_0"]
    assert any("1 of 3 kernels" in problem for problem in recording.problems)
    assert any("1 rows of launches" in problem for problem in recording.problems)


FORMS: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "a list": lambda trace: trace,
    "header before": lambda trace: {"schemaVersion": 1, "deviceProperties": [], "traceEvents": trace},
    "header after": lambda trace: {"traceEvents": trace, "traceName": "x", "with_stack": 1, "n": [1.5, None, True]},
    "old names": lambda trace: [{**e, "cat": OLD.get(e["cat"], e["cat"])} for e in trace],
    "threads as text": lambda trace: [{**e, "tid": str(e["tid"]), "pid": str(e["pid"])} for e in trace],
    "AMD": lambda trace: [{**e, "name": e["name"].replace("cuda", "hip").replace("cuL", "hipL")} for e in trace],
    "other events between": lambda trace: [x for e in trace for x in (e, {"ph": "i", "name": "[memory]"}, {"ph": "M"})],
    "rows in another order": lambda trace: random.Random(1).sample(trace, len(trace)),
    "launches twice": lambda trace: trace + [e for e in trace if "cuda_" in e["cat"]],
}
OLD = {
    "cpu_op": "Operator",
    "cuda_runtime": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_trace_does_not_matter(form: str, tmp_path: Path) -> None:
    trace = cuda_trace()
    expected = kineto.read(write(tmp_path / "plain.json", {"traceEvents": trace}))
    changed = FORMS[form](trace)
    assert changed != {"traceEvents": trace}
    found = kineto.read(write(tmp_path / "changed.json", changed))
    same(found, expected)
    (tmp_path / "changed.json.gz").write_bytes(gzip.compress(json.dumps(changed).encode()))
    same(kineto.read(tmp_path / "changed.json.gz"), expected)


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        (1623142623460111, 1623142623460111000),
        ("1752215574002805.123", 1752215574002805123),  # a double holds a quarter of a µs there
        ("3743411230047.5", 3743411230047500),
        ("0.001", 1),
        ("2.0019", 2001),
        ("1e3", 1_000_000),
        ("1.2e5", 120_000_000),  # three letters after the point, as in 2.001
        ("-1.5", -1500),
        (None, -1),
    ],
)
def test_microseconds_become_whole_nanoseconds(written: int | str | None, ns: int) -> None:
    assert json_events.to_ns(written) == ns


@pytest.mark.parametrize("broken", ["", "inf", '"a\x01b"', "[{}, {}]"])
def test_values_that_no_json_has_end_nothing(broken: str, tmp_path: Path) -> None:
    more = {"more": ["}, {", {"a": 1}, {"b": 2}], "device": 0, "Input Dims": [[2, 3], []], "Input type": ["float", ""]}
    one = [*cuda_trace(), event("cpu_op", "aten::mm}, {", 50, 2, **more), event("cpu_op", "NAME", 60, 2)]
    text = json.dumps(one * 3).replace('"NAME"', f'"x", "odd": {broken or 0}')
    (tmp_path / "t.json").write_text(text, encoding="utf-8")
    calls = kineto.read(tmp_path / "t.json").calls
    assert calls["name"].tolist() == ["aten::mm"] * 3 + ["aten::mm}, {"] * 3 + ["x"] * 3


def test_a_kernel_finds_its_launch_by_process_or_by_a_number_that_one_process_has() -> None:
    launches = pd.DataFrame(
        [("cudaLaunchKernel", process, number, 5 * process, 1, 1) for process, number in ((1, 7), (2, 7), (2, 8))],
        columns=["name", "process", "correlation", "start_ns", "time_ns", "thread"],
    )
    numbers = {"correlation": [7, 7, 7, 8, 9], "graph": False}
    kernels, doubles = with_launches(pd.DataFrame({"process": [2, 1, 3, 2, 2], **numbers}), launches)
    assert (kernels["launch_start_ns"].tolist(), doubles) == ([10, 5, -1, 10, -1], 0)
    kernels, doubles = with_launches(pd.DataFrame({"process": [-1] * 5, **numbers}), launches)
    assert (kernels["launch_start_ns"].tolist(), doubles) == ([-1, -1, -1, 10, -1], 0)


# --- what is refused -------------------------------------------------------------------------------------------------


def refused(path: Path) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        kineto.read(path)
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    return line


@pytest.mark.parametrize("form", [lambda t: t, lambda t: {"a": 1, "traceEvents": t, "b": {"c": [1, 2]}}])
def test_a_trace_cut_anywhere_is_refused(form: Callable[[Any], Any], tmp_path: Path) -> None:
    text = json.dumps(form(cuda_trace()))
    for at in range(1, len(text), 37):
        path = tmp_path / "t.json"
        path.write_text(text[:at])
        assert "record again" in refused(path)


REFUSED: dict[str, tuple[str, str]] = {
    "nothing": ("", "empty"),
    "spaces": ("  \n ", "empty"),
    "no JSON": ("hello", "begins with 'h'"),
    "another document": ('{"a": 1}', "no traceEvents"),
    "events that are none": ('{"traceEvents": 5}', "no traceEvents"),
    "no events": ('{"traceEvents": []}', "give schedule() repeat=1"),
    "only metadata": ('[{"ph": "M", "name": "process_name"}]', "neither operator calls nor kernels"),
    "rubbish between": ('[{"ph": "M"}, hello]', "ends in the middle"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_trace_is_refused(what: str, tmp_path: Path) -> None:
    text, reason = REFUSED[what]
    path = tmp_path / "t.json"
    path.write_text(text)
    assert reason in refused(path)


SPOILT: dict[str, dict[str, Any]] = {
    "a name that is none": {"name": 5},
    "a name of parts": {"name": ["aten::mm"]},
    "arguments that are none": {"args": 3},
    "no time": {"ts": None},
    "a time in words": {"ts": "soon"},
    "a time before all": {"ts": -5},
    "a process of parts": {"pid": [1]},
    "types that are one number": {"args": {"Input type": 3}},
    "beyond what a machine counts": {"ts": 10**30},
}


@pytest.mark.parametrize("how", SPOILT)
def test_an_event_of_other_types_is_refused_and_told(how: str, tmp_path: Path) -> None:
    spoilt = {**event("cpu_op", "aten::mm", 1, 2), **SPOILT[how]}
    told = refused(write(tmp_path / "t.json", [*cuda_trace(), spoilt]))
    assert "not as its recorder writes it" in told
    assert re.search(r"\((expected .*, got .*|a field of another type or range: .+)\)$", told)


# --- formats ---------------------------------------------------------------------------------------------------------

BEGINNINGS = {
    b"SQLite format 3\x00\x10": "nsys",
    b'{"traceEvents": []}': "kineto",
    b'\xef\xbb\xbf [ {"ph": "X"}]': "kineto",
    b"{'kShortName': 'x', 'kDuration': 1}\n": "pyprof",
    b'"Idx","Direction","Sub"\n': "pyprof",
}


@pytest.mark.parametrize("begins", BEGINNINGS)
def test_a_format_is_known_by_content(begins: bytes, tmp_path: Path) -> None:
    path = tmp_path / "anything"
    path.write_bytes(begins)
    assert detect(path) == BEGINNINGS[begins]
    path.write_bytes(gzip.compress(begins))
    assert detect(path) == BEGINNINGS[begins]
    assert BEGINNINGS[begins] in READERS


NO_FORMATS = [b"", b"\x7fELF\x00", b"one word", gzip.compress(b"", mtime=0), gzip.compress(b"word", mtime=0)]


@pytest.mark.parametrize("content", NO_FORMATS)
def test_no_format_is_refused_in_a_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "anything"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="expected a Kineto trace") as caught:
        detect(path)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="No such file"):
        detect(tmp_path / "none")


def test_bytes_and_control_characters_in_names_pass(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(json.dumps([event("cpu_op", "aten::mm", 1, 2), event("cpu_op", "NAME", 5, 2)]).encode())
    path.write_bytes(path.read_bytes().replace(b"NAME", b"a\x01\xff\tb"))
    assert kineto.read(path).calls["name"].tolist() == ["aten::mm", "a\x01\ufffd\tb"]
