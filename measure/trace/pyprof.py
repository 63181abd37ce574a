"""Reads PyProf's output as a `Recording`: the table of its last stage (CSV), or the dicts of the stage before that.

PyProf writes for each kernel the function that launched it, its sizes, direction and autograd number. So `read` takes a
path and returns kernels with their call, and calls with phase and forward call. A kernel's `link` is "sequence": the
number gives its call. A call is a run of rows that agree in number, direction, module, function and sizes. PyProf
records a kernel's duration but no start: `index` keeps the order of rows, and every start is -1. Dicts and markers are
read as literals, never evaluated. PyProf marks some backward calls as forward (ReluBackward1, kernels outside of known
functions). Those whose name or thread shows it are backward here. No column says whether a layer's input gradient was
computed. It is assumed for all products but the network's first, which needs a kernel with dgrad in its name.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from analysis.trace.calls import Missing
from analysis.trace.operations import is_product
from measure.trace.json_events import open_text
from measure.trace.nesting import NODE
from measure.trace.pyprof_arguments import (
    LINEAR,
    Arguments,
    call_name,
    gradient_name,
    linear_of_gradient,
    literal,
    of_gradient,
    of_marker,
    of_params,
)
from measure.trace.recording import Recording, calls_table, kernels_table
from results.text_files import beyond, limit

HOW_TO_MAKE = (
    "run PyProf's last step again: python -m pyprof.prof --csv "
    "-c idx,seq,altseq,tid,layer,dir,sub,mod,op,kernel,params,sil,device,stream,grid,block,flops net.dict"
)
HOW_TO_PARSE = "run PyProf's parse step again: python -m pyprof.parse net.sqlite > net.dict"

NOTHING = ("", "-", "na", "None")
"""PyProf's words for an unknown value."""

COLUMNS = {
    "op": "op", "module": "mod", "direction": "dir", "sub": "subSeqId", "seqid": "seqId", "altseqid": "altSeqId",
    "tid": "tid", "layer": "layer", "kernel": "kLongName", "params": "", "sil(ns)": "kDuration", "device": "device",
    "stream": "stream", "grid": "grid", "block": "block", "flops": "", "idx": "",
}  # fmt: skip
"""Column of the table, in small letters → the key of the dict that it is made of."""

Row = dict[str, str]
"""One kernel: column → text, empty where there is none. The Params of a dict are its marker."""


@dataclass(slots=True)
class _Call:
    """The rows of one call, and its properties, which `_resolve` fills in. forward: index of the forward call."""

    first: Row
    rows: list[Row] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # in the autograd graph, of all rows
    phase: str = ""
    name: str = ""
    arguments: Arguments | None = None
    forward: int = -1
    step: int = -1


def read(path: str | Path) -> Recording:
    """Return the recording in a CSV or dict file, plain or gzip: attributed already.

    Raises ValueError, one line, for a column that is missing, a line that is cut, or a file without kernels.
    """
    with open_text(path, HOW_TO_MAKE, newline="") as file:
        begin = file.read(1)
        file.seek(0)
        rows = list(_dict_rows(file, str(path)) if begin == "{" else _table_rows(file, str(path)))
    if not rows:
        raise ValueError(f"{path}: no kernels in it; {HOW_TO_MAKE}")
    calls = _calls(rows)
    try:
        steps = _resolve(calls)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{path}: the arguments of a call are not as PyProf writes them ({error})") from error
    call_of = [index for index, call in enumerate(calls) for _ in call.rows]
    arguments = [call.arguments or Arguments(None, None, None) for call in calls]
    modules = ["" if call.first["layer"] in NOTHING else call.first["layer"] for call in calls]
    flop = [_int(row["flops"]) for row in rows]
    numbers = {_int(row["idx"]) for row in rows}
    numbered, phases = min(numbers) > 0, {call.phase for call in calls}
    return Recording(
        source="pyprof",
        path=str(path),
        calls=calls_table(
            name=[call.name for call in calls],
            phase=[call.phase for call in calls],
            module=modules,
            step=[call.step for call in calls],
            sequence_nr=[call.numbers[-1] if call.numbers else -1 for call in calls],
            thread=[_int(call.first["tid"]) for call in calls],
            input_shapes=[given.shapes for given in arguments],
            input_dtypes=[given.dtypes for given in arguments],
            concrete_inputs=[given.values for given in arguments],
            forward_index=[call.forward for call in calls],
        ),
        kernels=kernels_table(
            name=[row["kernel"] for row in rows],
            time_ns=[max(_int(row["sil(ns)"]), 0) for row in rows],
            device=[_int(row["device"]) for row in rows],
            stream=[_int(row["stream"]) for row in rows],
            launch_thread=[_int(row["tid"]) for row in rows],
            grid=[_ints(row["grid"]) or None for row in rows],
            block=[_ints(row["block"]) or None for row in rows],
            call=call_of,
            link=["sequence"] * len(rows),
            phase=[calls[index].phase for index in call_of],
            module=[modules[index] for index in call_of],
            source_flop=[None if number < 0 else number for number in flop],  # -1: PyProf wrote an unknown value
            params=[None if row["params"].startswith("{") else row["params"] for row in rows],
        ),
        steps=steps,
        problems=tuple(_problems(rows, calls, steps, numbered)),
        missing=_missing(max(numbers) - len(numbers), phases) if numbered else (),
        numbered=numbered,
    )


def _missing(lost: int, phases: set[str]) -> tuple[Missing, ...]:
    """Return the number of missing rows for each phase, since a gap does not show to which phase its rows belong."""
    many = "1 numbered row is" if lost == 1 else f"{lost} numbered rows are"
    why = f"{many} not in the file, by PyProf's column Idx"
    return tuple(Missing(phase, lost, why) for phase in sorted(phases & {"forward", "backward"}) if lost)


# --- rows ------------------------------------------------------------------------------------------------------------


def _table_rows(file: IO[str], path: str) -> Iterator[Row]:
    reader = csv.reader(file, strict=True)
    try:
        names = [name.strip().lower() for name in next(reader, [])]
        missing = [name for name in ("Op", "Params") if name.lower() not in names]
        missing += ["Kernel"] if not {"kernel", "flops"} & {*names} else []
        if missing:
            options = ",".join(missing).lower()
            raise ValueError(f"{path}: no column {' and no column '.join(missing)} (-c {options}); {HOW_TO_MAKE}")
        for cells in filter(None, reader):
            if len(cells) != len(names):
                why = "the file is cut" if len(cells) < len(names) else "fields with commas must be in quotes"
                misfit = f"line {reader.line_num} has {len(cells)} fields instead of {len(names)}: {why}"
                raise ValueError(f"{path}: {misfit}; {HOW_TO_MAKE}")
            by_name = dict(zip(names, cells, strict=True))
            yield {column: by_name.get(column, "").strip() for column in COLUMNS}
    except csv.Error as error:
        raise ValueError(f"{path}: line {reader.line_num} is cut or no CSV ({error}); {HOW_TO_MAKE}") from error


def _dict_rows(file: IO[str], path: str) -> Iterator[Row]:
    longest = limit("line_bytes")
    for number, line in enumerate(iter(lambda: file.readline(longest + 1), ""), 1):
        if not line.strip():
            continue
        if len(line) > longest:
            raise ValueError(beyond(f"{path}: line {number} is too long", "line_bytes"))
        kernel = literal(line)
        if kernel is None:
            raise ValueError(f"{path}: line {number} is cut or no dict of pyprof.parse; {HOW_TO_PARSE}")
        if "kShortName" not in kernel or "op" not in kernel:
            raise ValueError(f"{path}: line {number} lacks kShortName or op; {HOW_TO_PARSE}")
        yield _row(kernel)


def _row(kernel: Mapping[str, Any]) -> Row:
    """Return the row of a dict, with the first of several functions, modules and layers."""

    def text(key: str) -> str:
        value = kernel.get(key)
        if key in ("op", "mod", "layer") and isinstance(value, list | tuple):
            value = next(iter(value), "")
        return "" if value is None else str(value)

    row = {column: text(key) for column, key in COLUMNS.items()}
    row["kernel"] = row["kernel"] or str(kernel["kShortName"])
    markers = [marker for marker in map(literal, kernel.get("marker") or ()) if marker is not None and "op" in marker]
    return row | {"op": str(markers[0]["op"]), "params": str(markers[0])} if markers else row


def _int(text: str) -> int:
    try:
        return round(float(text))
    except (ValueError, OverflowError):
        return -1


def _ints(text: str) -> tuple[int, ...]:
    parts = text.strip("()[]").replace(" ", "").split(",")
    return tuple(int(part) for part in parts if part.isdigit())


def _family(row: Row) -> str:
    """Return the function of a row; a bias has the function of its layer."""
    return "linear" if row["op"] in LINEAR else row["op"]


def _numbers(row: Row) -> tuple[int, ...]:
    """Return the row's numbers in the autograd graph, including those that PyProf holds for less likely."""
    return (*_ints(row["seqid"]), *_ints(row["altseqid"]))


def _has_function(row: Row) -> bool:
    """Return whether PyProf knows which function launched the row's kernel. Without a column Module its name shows
    it."""
    if row["module"]:
        return row["module"] not in NOTHING
    return row["op"] not in NOTHING and "::" not in row["op"] and not NODE.fullmatch(row["op"])


# --- calls -----------------------------------------------------------------------------------------------------------


def _calls(rows: Sequence[Row]) -> list[_Call]:
    calls: list[_Call] = []
    counts_kernels = any(_int(row["sub"]) > 0 for row in rows)  # otherwise Sub is 0 in every row
    for row in rows:
        if not calls or not _goes_on(calls[-1], row, counts_kernels):
            calls.append(_Call(row))
        call = calls[-1]
        if call.first["op"] == "bias" and row["op"] != "bias":
            call.first = row
        call.rows.append(row)
        call.numbers += [number for number in _ints(row["seqid"]) if number not in call.numbers]
    return calls


def _goes_on(call: _Call, row: Row, counts_kernels: bool) -> bool:
    """Return whether a row is of the same call as the rows before it. counts_kernels: whether the column Sub counts the
    kernels of a call."""
    first, before, family = call.first, call.rows[-1], _family(row)
    if family != _family(first) or any(first[name] != row[name] for name in ("direction", "module", "tid")):
        return False
    linear, sequence = family == "linear", _ints(row["seqid"])
    if _ints(first["seqid"]) != sequence and not (linear and {*_numbers(first)} & {*_numbers(row)}):
        return False
    if counts_kernels and _int(row["sub"]) == 0 and before["op"] == row["op"] and _ints(before["seqid"]) == sequence:
        return False
    # of a linear layer the Params of its gradients' kernels differ, and so do those of its bias
    differ = linear and (row["direction"] == "bprop" or "bias" in (first["op"], row["op"]))
    return differ or first["params"] == row["params"]


def _resolve(calls: Sequence[_Call]) -> int | None:
    """Fill in phase, name, arguments, forward call and step of each call. Return the number of steps; None if there is
    no backward pass or no product.

    The forward call of a backward call is the last one before it with its number, of a known function if there is one.
    A step begins at the first product of the file, and at the first product after a backward call. Without numbers, the
    last gradient of a product in a step is taken for that of the step's first product: autograd calculates it last.
    """
    firsts: list[int] = []
    numbered: dict[int, int] = {}
    last_gradient: dict[int, int] = {}
    may_begin = True
    for index, (call, phase) in enumerate(zip(calls, _phases(calls), strict=True)):
        row, call.phase = call.first, phase
        if phase == "forward":
            call.name, call.arguments = call_name(row["module"], row["op"]), _forward_arguments(row)
            if may_begin and is_product(call.name):
                firsts.append(index)
                may_begin = False
            for number in call.numbers:
                if _has_function(row) or number not in numbered or not _has_function(calls[numbered[number]].first):
                    numbered[number] = index
        else:
            may_begin = True
            call.forward = next((numbered[number] for number in _numbers(row) if number in numbered), -1)
        call.step = max(len(firsts) - 1, 0)
        if row["direction"] == "bprop" and _has_function(row) and is_product(gradient_name(row["op"])):
            last_gradient[call.step] = index
    for index, call in enumerate(calls):
        if call.phase == "backward":
            of_first = call.forward in firsts
            if call.forward < 0 and firsts and last_gradient.get(call.step) == index:
                row, first = call.first, calls[firsts[call.step]].first  # of linear layers' gradients the Params differ
                of_first = _family(row) == _family(first) and (row["op"] in LINEAR or row["params"] == first["params"])
            _resolve_gradient(calls, call, of_first)
    return len(firsts) or None if "backward" in {call.phase for call in calls} else None


def _phases(calls: Sequence[_Call]) -> list[str]:
    """Return the phase of each call, by PyProf's direction, by its name, and by its thread."""
    threads = [_int(call.first["tid"]) for call in calls]
    backward = [call.first["direction"] == "bprop" or _backward_by_name(call.first["op"]) for call in calls]
    # a thread with a call that must be forward (it makes a node or is a layer) is not the engine's own
    makes = {
        thread
        for row, thread, back in zip((call.first for call in calls), threads, backward, strict=True)
        if not back
        and (_ints(row["seqid"]) or (_has_function(row) and is_product(call_name(row["module"], row["op"]))))
    }
    engine = {thread for thread, back in zip(threads, backward, strict=True) if back and thread >= 0} - makes
    is_backward = [back or thread in engine for thread, back in zip(threads, backward, strict=True)]
    return ["backward" if back else "forward" for back in is_backward]


def _backward_by_name(op: str) -> bool:
    return bool(NODE.fullmatch(op)) or (op.startswith("aten::") and "_backward" in op)


def _forward_arguments(row: Row) -> Arguments | None:
    marker = literal(row["params"]) if row["params"].startswith("{") else None
    return of_params(row["op"], row["params"]) if marker is None else of_marker(marker)


def _resolve_gradient(calls: Sequence[_Call], call: _Call, of_first: bool) -> None:
    op, has_function, known = call.first["op"], _has_function(call.first), None
    if call.first["direction"] != "bprop":  # backward by name or thread: it keeps its own name
        call.name = op if _backward_by_name(op) else call_name(call.first["module"], op)
        call.arguments = _forward_arguments(call.first)
        return
    if call.forward >= 0:
        partner = calls[call.forward]
        known = partner.arguments
        if not has_function and _has_function(partner.first) and not op.startswith("aten::"):
            op = partner.first["op"]
    if not has_function and op == call.first["op"]:
        call.name = f"{op}Backward" if op not in NOTHING and not _backward_by_name(op) and "::" not in op else op
        return
    call.name = gradient_name(op)
    if known is None:
        known = linear_of_gradient(call.first["params"]) if op in LINEAR else of_params(op, call.first["params"])
    of_input = not of_first or any("dgrad" in row["kernel"] for row in call.rows)
    call.arguments = of_gradient(op, known, of_input) if known is not None else None


def _problems(rows: Sequence[Row], calls: Sequence[_Call], steps: int | None, numbered: bool) -> list[str]:
    renamed = sum(call.phase == "backward" and call.first["direction"] == "fprop" for call in calls)
    lacks = {
        "no sequence numbers (-c seq): calls are distinguished by size, and gradients have no forward call": not any(
            _ints(row["seqid"]) for row in rows
        ),
        "no numbers of rows (-c idx): whether rows were taken out of the file cannot be seen": not numbered,
        "no directions (-c dir): what is not backward by name or thread counts as forward": not any(
            row["direction"] for row in rows
        ),
        "no times of kernels (-c sil)": not any(_int(row["sil(ns)"]) > 0 for row in rows),
        "no names of kernels (-c kernel): why a kernel was counted or not is unknown": not any(
            row["kernel"] for row in rows
        ),
        "no FLOPs in the file itself (-c flops)": all(_int(row["flops"]) < 0 for row in rows),
        "a step begins at the first product after a backward pass": steps is not None,
        f"{renamed} calls that PyProf took for forward are backward by name or thread": renamed > 0,
    }
    first = "PyProf keeps no start times: the order of rows is taken for the order of time"
    return [first, *(problem for problem, is_so in lacks.items() if is_so)]
