"""The rows of PyProf's output, one a kernel: of the table of its last step (CSV), or of the dicts of the one before.

Plain or gzip. Dicts and markers are read as literals, never evaluated. A file that is cut, or lacks what is needed, is
refused in one line that says how to make it again. Not claimed: what rows belong together (`pyprof.py`).
"""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

from measure.trace.json_events import open_text
from measure.trace.nesting import NODE
from measure.trace.pyprof_arguments import LINEAR, literal
from results.text_files import beyond, limit

HOW_TO_MAKE = (
    "run PyProf's last step again: python -m pyprof.prof --csv "
    "-c idx,seq,altseq,tid,layer,dir,sub,mod,op,kernel,params,sil,device,stream,grid,block,flops net.dict"
)

NOTHING = ("", "-", "na", "None")
"""PyProf's words for what it does not know."""


@dataclass(slots=True)
class PyprofRow:
    """One kernel as PyProf tells of it. index: its number in PyProf's output, from 1; -1: there is none."""

    op: str
    module: str = ""
    direction: str = ""
    sub: int = -1
    sequence: tuple[int, ...] = ()
    other_sequence: tuple[int, ...] = ()
    thread: int = -1
    layer: str = ""
    kernel: str = ""
    params: str = ""
    time_ns: int = 0
    device: int = -1
    stream: int = -1
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    flop: int | None = None
    marker: Mapping[str, Any] | None = None
    index: int = -1

    @property
    def family(self) -> str:
        """The function, that of a bias being the layer's."""
        return "linear" if self.op in LINEAR else self.op

    @property
    def has_function(self) -> bool:
        """Whether PyProf knows which function launched it. A file without the column Module shows it by the name."""
        if self.module:
            return self.module not in NOTHING
        return self.op not in NOTHING and "::" not in self.op and not NODE.fullmatch(self.op)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Its numbers in the autograd graph, also those that PyProf thinks less likely."""
        return (*self.sequence, *self.other_sequence)


def read_rows(path: str) -> Iterator[PyprofRow]:
    """The rows of a file. Raises ValueError, one line."""
    with open_text(path, newline="") as file:
        try:
            begin = file.read(1)
            file.seek(0)
            yield from _dict_rows(file, path) if begin == "{" else _csv_rows(file, path)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{path}: the gzip data are cut or damaged ({error}); {HOW_TO_MAKE}") from error


def _csv_rows(file: IO[str], path: str) -> Iterator[PyprofRow]:
    reader = csv.reader(file, strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _check(header, path)
        place = {name.lower(): at for at, name in enumerate(header)}
        for cells in reader:
            if not cells:
                continue
            if len(cells) != len(header):
                why = "the file is cut" if len(cells) < len(header) else "fields with commas must stand in quotes"
                misfit = f"line {reader.line_num} has {len(cells)} fields instead of {len(header)}: {why}"
                raise ValueError(f"{path}: {misfit}; {HOW_TO_MAKE}")
            yield _csv_row(lambda name, cells=cells: cells[place[name]].strip() if name in place else "")  # type: ignore[misc]
    except csv.Error as error:
        raise ValueError(f"{path}: line {reader.line_num} is cut or no CSV ({error}); {HOW_TO_MAKE}") from error


def _check(header: Sequence[str], path: str) -> None:
    there = {name.lower() for name in header}
    missing = [name for name in ("Op", "Params") if name.lower() not in there]
    missing += ["Kernel"] if not there & {"kernel", "flops"} else []
    if missing:
        options = ",".join(missing).lower()
        raise ValueError(f"{path}: no column {' and no column '.join(missing)} (-c {options}); {HOW_TO_MAKE}")


def _csv_row(cell: Callable[[str], str]) -> PyprofRow:
    flop = _int(cell("flops"))  # -1 of PyProf's words for nothing
    return PyprofRow(
        op=cell("op"),
        module=cell("module"),
        direction=cell("direction"),
        sub=_int(cell("sub")),
        sequence=_ints(cell("seqid")),
        other_sequence=_ints(cell("altseqid")),
        thread=_int(cell("tid")),
        layer="" if cell("layer") in NOTHING else cell("layer"),
        kernel=cell("kernel"),
        params=cell("params"),
        time_ns=max(_int(cell("sil(ns)")), 0),
        device=_int(cell("device")),
        stream=_int(cell("stream")),
        grid=_ints(cell("grid")) or None,
        block=_ints(cell("block")) or None,
        flop=flop if flop >= 0 else None,
        index=_int(cell("idx")),
    )


def _dict_rows(file: IO[str], path: str) -> Iterator[PyprofRow]:
    longest = limit("line_bytes")
    for number, line in enumerate(iter(lambda: file.readline(longest + 1), ""), 1):
        if not line.strip():
            continue
        if len(line) > longest:
            raise ValueError(beyond(f"{path}: line {number} is too long", "line_bytes"))
        kernel = literal(line)
        if kernel is None:
            raise ValueError(f"{path}: line {number} is cut or no dict of pyprof.parse; {_HOW_TO_PARSE}")
        if "kShortName" not in kernel or "op" not in kernel:
            raise ValueError(f"{path}: line {number} lacks kShortName or op; {_HOW_TO_PARSE}")
        yield _dict_row(kernel)


_HOW_TO_PARSE = "run PyProf's parse step again: python -m pyprof.parse net.sqlite > net.dict"


_KEY_OF = {
    "op": "op", "module": "mod", "direction": "dir", "sub": "subSeqId", "seqid": "seqId", "altseqid": "altSeqId",
    "tid": "tid", "layer": "layer", "kernel": "kLongName", "sil(ns)": "kDuration", "device": "device",
    "stream": "stream", "grid": "grid", "block": "block",
}  # fmt: skip
"""Column of the table → the key of the dict that it is made of."""


def _dict_row(kernel: Mapping[str, Any]) -> PyprofRow:
    def cell(column: str) -> str:
        value = kernel.get(_KEY_OF.get(column, ""))
        if column in ("op", "module", "layer") and isinstance(value, list | tuple):
            value = next(iter(value), "")
        return str(value or kernel["kShortName"]) if column == "kernel" else "" if value is None else str(value)

    markers = map(literal, kernel.get("marker") or ())
    marker = next((marker for marker in markers if marker is not None and "op" in marker), None)
    row = _csv_row(cell)
    return row if marker is None else replace(row, op=str(marker["op"]), params=str(marker), marker=marker)


def _int(text: str) -> int:
    try:
        return round(float(text))
    except (ValueError, OverflowError):
        return -1


def _ints(text: str) -> tuple[int, ...]:
    parts = text.strip("()[]").replace(" ", "").split(",")
    return tuple(int(part) for part in parts if part.isdigit())
