"""A Kineto trace (torch.profiler's JSON) as a `Recording`: of NVIDIA, AMD or a CPU, since torch 1.8, of any size.

Columns are filled event by event while the file streams through, so that memory grows with what is kept. Times become
ns of the Unix clock where the trace has `baseTimeNanoseconds`. "Concrete Inputs" are read as literals, never
evaluated. Annotations mirrored to the device (gpu_user_annotation) are left out; a kernel gets the host process of
its launch.

`_gaps` finds which numbered events a trace lacks. "External id" counts calls and annotations from 1: all of them in
PyTorch 1.8 to 1.10, since then in blocks of at least 512 for each thread (torch/csrc/profiler/collection.h,
containers.h: AppendOnlyList), of which the recorded ones are the first. "Ev Idx" counts what is exported, thread by
thread. Recorders without it count on in the second recording of a process, so that the first number may be any.

Not claimed: that the last calls of the last thread are there (nothing is numbered after them), or, without "Ev Idx",
the first ones; that two traces number threads alike.
"""

import ast
import json
import marshal
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.trace.calls import named
from measure.trace.json_events import HOW_TO_RECORD, MORE, events, to_ns
from measure.trace.nesting import ints
from measure.trace.recording import (
    LAUNCH_COLUMNS,
    NAMED,
    ON_HOST,
    Collective,
    Recording,
    calls_in_order,
    calls_table,
    collective_of,
    device_names,
    flows_table,
    gaps_table,
    kernels_in_order,
    kernels_table,
    lacks,
    objects,
    ranges_in_order,
    ranges_table,
    sizes_of,
    table,
    with_launches,
)
from results.process import collector_off
from results.text_files import counted

CATEGORIES = {
    "operator": "call",
    "cpu_op": "call",
    "user_annotation": "range",
    "python_function": "frame",
    "kernel": "kernel",
    "memcpy": "memcpy",
    "gpu_memcpy": "memcpy",
    "memset": "memset",
    "gpu_memset": "memset",
    "runtime": "launch",
    "cuda_runtime": "launch",
    "cuda_driver": "launch",
    "hip_runtime": "launch",
    "hip_driver": "launch",
    "xpu_runtime": "launch",
    "xpu_driver": "launch",
    "mtia_runtime": "launch",
    "privateuse1_runtime": "launch",
    "privateuse1_driver": "launch",
    "mtia_ccp_events": "kernel",
    "hpu_op": "kernel",
}
"""Category of an event, in small letters (torch 1.8 wrote "Operator", "Kernel") → what it is to us."""

NOT_READ = frozenset(
    (
        "gpu_user_annotation",
        "trace",
        "overhead",
        "cuda_sync",
        "cuda_event",
        "external_correlation",
        "collective_comm",
        "cuda_profiler_range",
    )
)
"""Categories with durations that say nothing of what ran: mirrors, waits, the profiler's own."""

PLAIN = 2
"""A version of `marshal` in which equal values are equal bytes, and 1 is not true."""

LONGEST_S = 86_400.0
"""A kernel that lasts longer than a day has no usable duration: Kineto has written 236 years."""

LONGEST = 1 << 16
"""Characters of a value that is read as a literal; a parser takes thousand times as many bytes."""

WINDOW, WINDOW_END = "Trace", "Record Window End"
"""Category of the event that spans what was recorded, and name of the one at its end. Kineto writes both of them."""

KERNEL_LAUNCH = re.compile(r"Launch(?!HostFunc)")
"""In the names of calls that launch kernels."""

MODULE_FRAME = "nn.Module: "
ANNOTATION = re.compile(r"ProfilerStep#|Optimizer\.|flopledger\.|enumerate\(DataLoader\)#|DistributedDataParallel\.")
"""Names of annotations, which torch 1.8 to 1.10 recorded as operators."""

BLOCK = 512
"""Numbers of a block, or a divisor of how many there are."""


def read(path: str | Path) -> Recording:
    """Return the recording in a trace file, .json or .json.gz, not yet attributed.

    Raises ValueError, one line, for a file that cannot be read to its end, for an event that is not as its recorder
    writes it, and where there are neither calls nor kernels.
    """
    rows = _Rows()
    header: dict[str, Any] = {}
    event: dict[str, Any] = {}
    try:
        with collector_off():
            for event in events(path, header):
                rows.take(event)
    except RecursionError as error:
        raise ValueError(f"{path}: lists within lists, more than a recorder writes") from error
    except _MALFORMED as error:
        if str(error).startswith(f"{path}: "):
            raise
        expected = "" if str(error).startswith("expected") else "a field of another type or range: "
        text = f"the event {_line(json.dumps(event))[:80]}"
        raise ValueError(f"{path}: {text} is not as its recorder writes it ({_line(expected, error)})") from error
    if not rows.calls.objects and not rows.kernels.objects:
        raise ValueError(
            f"{path}: the trace holds neither operator calls nor kernels, as where the loop ends while its schedule "
            f"waits for another cycle: give schedule() repeat=1; {HOW_TO_RECORD}"
        )
    return _recording(str(path), rows, header)


_MALFORMED = (TypeError, ValueError, AttributeError, KeyError, ArithmeticError)
"""What the parts of an event that have another type than the profiler gives them lead to."""


def _line(*parts: object) -> str:
    return " ".join("".join(map(str, parts)).encode("ascii", "backslashreplace").decode().split())


class _Columns:
    """Events of one kind: whole numbers in one array, row after row, and any other values in one list."""

    def __init__(self, numbers: str, objects: str = "name") -> None:
        self.names = numbers.split(), objects.split()
        self.numbers = array("q")
        self.objects: list[Any] = []

    def frame(self, base_ns: int) -> pd.DataFrame:
        """Return the events as a table, on the clock of the recording. Nothing may be added to them any more."""
        (numbers, others), values = self.names, np.asarray(self.numbers, np.int64)
        columns = {name: values[index :: len(numbers)] for index, name in enumerate(numbers)}
        columns["start_ns"] = columns["start_ns"] + base_ns
        columns |= {name: objects(self.objects[index :: len(others)]) for index, name in enumerate(others)}
        return pd.DataFrame(columns, copy=False)


class _Rows:
    """Everything of a trace that is kept."""

    def __init__(self) -> None:
        span, numbers = "process thread start_ns time_ns", "external_id event_index"
        arguments = "name input_shapes input_dtypes concrete_inputs"
        self.calls = _Columns(f"{span} {numbers} sequence_nr forward_thread", arguments)
        self.kernels = _Columns(
            "device stream start_ns time_ns untimed correlation process", "name what grid block collective"
        )
        self.launches = _Columns(f"{span} correlation")
        self.ranges = _Columns(f"{span} {numbers}", "name collective")
        self.frames = _Columns(span)
        self.flows: dict[str, dict[Any, tuple[int, int, int]]] = {"s": {}, "f": {}}
        self.unread: Counter[str] = Counter()
        self.begins = self.ends = False
        self.end_ns = -1
        reads = (sizes_of, _types, _values, _grid, NAMED.match, _is_annotation)
        self._known: dict[Any, dict[str | bytes, Any]] = {read: {} for read in reads}
        self._names: dict[str, str] = {}
        self._numbers: dict[Any, int] = {}
        kernel = self._kernel
        takes = {"call": self._call, "range": self._range, "frame": self._frame, "launch": self._launch}
        takes |= {"kernel": kernel, "memcpy": kernel, "memset": kernel}
        self._takes: dict[str, Any] = {category: takes[kind] for category, kind in CATEGORIES.items()}

    def take(self, event: dict[str, Any]) -> None:
        """Keep what is wanted of one event."""
        category = event.get("cat")
        if event.get("ph") == "X":
            take = self._takes.get(category) or self._takes.get(str(category).lower())  # type: ignore[arg-type]
            if take is not None:
                name = event.get("name", "")
                if type(name) is not str:
                    raise TypeError(f"expected a name, got {name!r}")
                take(event, event.get("args") or {}, self._names.setdefault(name, name))  # one object for equal names
            elif category == WINDOW:
                self.begins = True
            elif str(category).lower() not in NOT_READ:
                self.unread[str(category)] += to_ns(event.get("dur")) > 0
        elif event.get("name") == WINDOW_END:
            self.ends = True
            self.end_ns = to_ns(event.get("ts"))
        elif category == "fwdbwd" and event.get("ph") in self.flows:
            self.flows[event["ph"]][event.get("id")] = self._span(event)[:3]

    def _call(self, event: dict[str, Any], args: dict[str, Any], name: str) -> None:
        if self._once(_is_annotation, name):
            self._range(event, args, name)
            return
        thread = args.get("Fwd thread id")
        backward = _int(args.get("Sequence number")), max(_int(thread), 0) if thread else 0
        self.calls.numbers.extend(self._span(event) + _numbers(args) + backward)
        dims = args.get("Input Dims")
        dims = args.get("Input dims") if dims is None else dims
        once, kinds, values = self._once, args.get("Input type"), args.get("Concrete Inputs")
        self.calls.objects.extend((name, once(sizes_of, dims), once(_types, kinds), once(_values, values)))

    def _range(self, event: dict[str, Any], args: dict[str, Any], name: str) -> None:
        self.ranges.numbers.extend(self._span(event) + _numbers(args))
        self.ranges.objects.extend((name, self._collective(name, args) if ON_HOST.match(name) else None))

    def _collective(self, name: str, args: dict[str, Any]) -> Collective | None:
        dims, kinds = args.get("Input Dims"), args.get("Input type")
        return collective_of(name, args, self._once(sizes_of, dims), self._once(_types, kinds))

    def _frame(self, event: dict[str, Any], _args: dict[str, Any], name: str) -> None:
        if name.startswith(MODULE_FRAME):
            self.frames.numbers.extend(self._span(event))
            self.frames.objects.append(name)

    def _launch(self, event: dict[str, Any], args: dict[str, Any], name: str) -> None:
        if "correlation" in args:
            self.launches.numbers.extend((*self._span(event), _int(args["correlation"])))
            self.launches.objects.append(name)

    def _kernel(self, event: dict[str, Any], args: dict[str, Any], name: str) -> None:
        device, stream = _int(args.get("device", event.get("pid"))), _int(args.get("stream"))
        start_ns, time_ns = _start_ns(event), to_ns(event.get("dur"))
        usable = 0 <= time_ns <= LONGEST_S * 1e9
        time = (start_ns, time_ns if usable else 0, not usable)
        self.kernels.numbers.extend((device, stream, *time, _int(args.get("correlation")), -1))
        grid, block = self._once(_grid, args.get("grid")), self._once(_grid, args.get("block"))
        collective = self._collective(name, args) if self._once(NAMED.match, name) else None
        self.kernels.objects.extend((name, CATEGORIES[str(event["cat"]).lower()], grid, block, collective))

    def _span(self, event: dict[str, Any]) -> tuple[int, int, int, int]:
        process, thread, time_ns = event.get("pid"), event.get("tid"), to_ns(event.get("dur"))
        return (
            process if type(process) is int else self._number(process),
            thread if type(thread) is int else self._number(thread),
            _start_ns(event),
            time_ns if time_ns > 0 else 0,
        )

    def _number(self, value: Any) -> int:
        """Return a process or thread as a number: torch 1.9 wrote "25738"; of a word, a serial number below -1."""
        if value not in self._numbers:
            number = _int(value)
            self._numbers[value] = number if number >= 0 else -2 - len(self._numbers)
        return self._numbers[value]

    def _once(self, read: Callable[[Any], Any], value: Any) -> Any:
        """Apply `read` to a value: one object for all values that are written alike."""
        known = self._known[read]
        if value is None:
            return None
        key = value if type(value) is str else marshal.dumps(value, PLAIN)
        if key not in known:
            known[key] = read(value)
        return known[key]


def _types(names: Any) -> tuple[str, ...]:
    return tuple(map(str, names))


def _values(texts: Any) -> tuple[Any, ...]:
    return tuple(map(_value, texts))


def _value(text: Any) -> Any:
    """Read "[1, 1]" → (1, 1); "" (a tensor, or nothing) → None; what is no literal stays text."""
    if not isinstance(text, str):
        return _tuples(text)
    try:
        return _tuples(ast.literal_eval(text.strip())) if text.strip() and len(text) <= LONGEST else text or None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _grid(value: Any) -> Any:
    return _tuples(value) if isinstance(value, list) else None


def _is_annotation(name: str) -> bool:
    return bool(ANNOTATION.match(name) or ON_HOST.match(name))


def _start_ns(event: Mapping[str, Any]) -> int:
    start_ns = to_ns(event.get("ts"))
    if start_ns < 0:
        raise ValueError(f"expected a time (ts), got {event.get('ts')!r}")
    return start_ns


def _numbers(args: Mapping[str, Any]) -> tuple[int, int]:
    """Return the recorder's numbers of an event; -1: none."""
    number = args.get("External id")
    return _int(args.get("external id") if number is None else number), _int(args.get("Ev Idx"))


def _int(value: Any) -> int:
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else -1
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 19 else -1


def _recording(path: str, rows: _Rows, header: Mapping[str, Any]) -> Recording:
    base_ns = max(_int(header.get("baseTimeNanoseconds", 0)), 0)
    calls, ranges, launches = (part.frame(base_ns) for part in (rows.calls, rows.ranges, rows.launches))
    numbered = ["external_id", "event_index", "thread", "start_ns"]
    numbers = pd.concat([calls[numbered], ranges[numbered]], ignore_index=True)
    calls = calls_in_order(calls_table(**calls.drop(columns="event_index")))
    ranges = pd.concat([ranges.drop(columns=["external_id", "event_index"]), rows.frames.frame(base_ns)])
    kernels = rows.kernels.frame(base_ns)
    kernels, doubles = with_launches(kernels.assign(graph=False), launches)
    kernels = kernels_in_order(kernels_table(**kernels))
    ran = launches["correlation"].isin(kernels["correlation"]).to_numpy(bool)
    lost = launches[named(launches["name"], KERNEL_LAUNCH.search) & ~ran]
    sides = {
        side: pd.DataFrame.from_dict(
            rows.flows[kind],
            orient="index",
            columns=[f"{side}_process", f"{side}_thread", f"{side}_ns"],
            dtype=np.int64,
        )
        for side, kind in (("forward", "s"), ("backward", "f"))
    }
    flows = sides["forward"].join(sides["backward"], how="inner").astype(np.int64).sort_values([*sides["forward"]])
    flows[["forward_ns", "backward_ns"]] += base_ns
    listed = header.get("deviceProperties")
    devices = [entry for entry in (listed if isinstance(listed, list) else ()) if isinstance(entry, dict)]
    facts = header.get("distributedInfo")
    rank, world = (facts.get(name) if isinstance(facts, Mapping) else None for name in ("rank", "world_size"))
    ids = numbers["external_id"]
    return Recording(
        source="kineto",
        path=path,
        calls=calls,
        kernels=kernels,
        device_name=device_names(kernels, {entry.get("id"): str(entry.get("name", "")) for entry in devices}),
        problems=tuple(_problems(calls, kernels, doubles, len(lost), rows.unread, bool(header.get(MORE)))),
        ranges=ranges_in_order(ranges_table(**ranges)),
        flows=flows_table(**flows),
        lost_launches=table(LAUNCH_COLUMNS, **lost[[*LAUNCH_COLUMNS]]),
        ends=rows.ends or not rows.begins,
        gaps=_gaps(numbers),
        numbered=bool(len(ids)) and bool((ids >= 0).all()) and ids.is_unique,
        end_ns=rows.end_ns + base_ns if rows.end_ns >= 0 else -1,
        rank=rank if type(rank) is int and rank >= 0 else None,
        world_size=world if type(world) is int else None,
        host=str(header.get("host_name") or ""),
    )


def _gaps(events: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each gap in the numbers of calls and annotations. None if numbers are there twice: then several
    recordings are in one file."""
    known = events[events["external_id"] >= 0].sort_values("external_id", kind="stable")
    number = ints(known, "external_id")
    steps = np.diff(number)
    if not len(known) or not steps.all():
        return gaps_table()
    if (known["event_index"] < 0).all():
        number = number - number[0] + 1
    known = known.assign(number=number, block=(number - 1) // BLOCK)
    blocks: pd.DataFrame = known.groupby("block").agg(
        last=("number", "last"),
        count=("number", "size"),
        thread=("thread", "last"),
        before_ns=("start_ns", "min"),
        after_ns=("start_ns", "max"),
    )
    latest = known.groupby("thread")["block"].max()
    is_full = blocks.index.to_numpy() < latest[blocks["thread"]].to_numpy()
    blocks["count"] = np.where(is_full, BLOCK, blocks["last"] - BLOCK * blocks.index.to_numpy()) - blocks["count"]
    inside = blocks[blocks["count"] > 0]
    return pd.concat(
        [gaps_table(**inside[[*gaps_table()]]), _gaps_between_threads(events, int((steps - 1).sum()))],
        ignore_index=True,
    )


def _gaps_between_threads(events: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return gaps in the order of export between two threads: the last calls of the one or the first of the other. None
    where more than `most` numbers are left out within threads: what is no call is numbered, too, and is not in the
    file."""
    known = events[events["event_index"] >= 0].sort_values("event_index", kind="stable")
    lost, changes = np.diff(known["event_index"]) - 1, np.diff(known["thread"]) != 0
    if (lost < 0).any() or lost[~changes].sum() > most:
        return gaps_table()
    wide, start_ns = changes & (lost > 0), ints(known, "start_ns")
    return gaps_table(count=lost[wide], before_ns=start_ns[:-1][wide], after_ns=start_ns[1:][wide])


def _problems(
    calls: pd.DataFrame, kernels: pd.DataFrame, doubles: int, lost: int, unread: Mapping[str, int], goes_on: bool
) -> Iterator[str]:
    if lost:
        yield f"launches of kernels of which none was recorded: {lost}; the calls that made them have no time"
    if not len(kernels):
        yield "no kernels: operator calls take their place"
    untimed = kernels["name"][kernels["untimed"] > 0].map(_line)
    if len(untimed):
        names = ", ".join(name[:40] for name in dict.fromkeys(untimed[:3]))
        yield (
            f"no usable duration: {len(untimed)} of the kernels, copies and fills ({names}); no time, rate or busy "
            "share that they touch is known"
        )
    no_values = "no concrete inputs (torch 2.0 and earlier record none)"
    no_calls = "no operator calls: record with ProfilerActivity.CPU, too"
    yield from lacks(calls, kernels, doubles, no_calls, "record_shapes=True", no_values)
    if goes_on:
        yield "the file goes on behind its first document: only that was read"
    for category, count in unread.items():
        if count:
            yield f"not read: {counted(count, 'event')} of category {_line(category)[:40]}"
