"""A Kineto trace (torch.profiler's JSON) as a `Recording`: of NVIDIA, AMD or a CPU, since torch 1.8, of any size.

Columns are filled event by event while the file streams through, so that memory grows with what is kept: calls,
kernels, their launches, annotations, frames of modules. Times become ns of the Unix clock where the trace says from
when it counts (`baseTimeNanoseconds`). "Concrete Inputs" are read as literals, never evaluated.

Not claimed: that two traces number threads alike. A kernel's row says nothing of its host process; it gets that of its
launch. Annotations mirrored to the device (gpu_user_annotation) are left out.
"""

import ast
import importlib.util
import json
import marshal
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import GenericAlias
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from measure.trace.attribution.recording import (
    LAUNCH_PLACES,
    Recording,
    calls_table,
    flows_table,
    kernels_table,
    objects,
    ranges_table,
    sizes_of,
    table,
)
from measure.trace.readers.collectives import ARGUMENTS, NAMED, ON_HOST, Collective, collective_of
from measure.trace.readers.json_events import (
    HOW_TO_RECORD,
    MORE,
    Decode,
    by_launch,
    events,
    gaps,
    is_numbered,
    launch_rows,
    to_ns,
)
from results.process import collector_off
from results.text_files import counted

msgspec: Any = importlib.import_module("msgspec") if importlib.util.find_spec("msgspec") else None
RAW: Any = None if msgspec is None else msgspec.Raw
"""The type of values that are kept as they are written."""

OF_BACKWARD = ("Sequence number", "Fwd thread id")
LISTS = ("Input Dims", "Input dims", "Input type", "Concrete Inputs", "grid", "block")
"""Arguments of an event that are lists, most of which are written again and again."""

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

LISTED = 3
"""Names of kernels without a usable duration that are listed."""

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


def read(path: str | Path) -> Recording:
    """The recording in a trace file, .json or .json.gz, not yet attributed.

    Raises ValueError, one line, for a file that cannot be read to its end or holds neither calls nor kernels.
    """
    columns = _Columns()
    with collector_off():
        header = read_events(path, columns.take, _decoder())
    if not len(columns.calls.names) and not len(columns.kernels.names):
        raise ValueError(
            f"{path}: the trace holds neither operator calls nor kernels, as where the loop ends while its schedule "
            f"waits for another cycle: give schedule() repeat=1; {HOW_TO_RECORD}"
        )
    return _recording(str(path), columns, header)


@cache
def _decoder() -> Decode | None:
    """A list of events as text → the fields that are read of them, lists as they are written; [] where it is no list of
    events. Without msgspec there is none: Python's own parser gives all fields."""
    if msgspec is None:
        return None
    plain = ("device", "stream", "correlation", "External id", "external id", "Ev Idx", *OF_BACKWARD, *ARGUMENTS)
    fields = dict.fromkeys(("ph", "cat", "name", "pid", "tid", "ts", "dur", "id"), Any)
    form: Any = TypedDict  # mypy takes only fields that are written out
    args = form("args", dict.fromkeys(plain, Any) | dict.fromkeys(LISTS, RAW), total=False)
    event = form("event", fields | {"args": args}, total=False)
    decoder = msgspec.json.Decoder(GenericAlias(list, (event,)), float_hook=str)

    def decoded(text: str) -> list[dict[str, Any]]:
        try:
            events: list[dict[str, Any]] = decoder.decode(text)
        except msgspec.MsgspecError:
            return []
        return events

    return decoded


def read_events(
    path: str | Path, take: Callable[[dict[str, Any]], None], decode: Decode | None = None
) -> dict[str, Any]:
    """Hands over each event of a trace; what the file says beside them. Raises ValueError, one line, for a file that
    cannot be read to its end, or an event that is not as its recorder writes it."""
    header: dict[str, Any] = {}
    event: dict[str, Any] = {}
    try:
        for event in events(path, header, decode):
            take(event)
    except RecursionError as error:
        raise ValueError(f"{path}: lists within lists, more than a recorder writes") from error
    except _MALFORMED as error:
        if str(error).startswith(f"{path}: "):
            raise
        expected = "" if str(error).startswith("expected") else "a field of another type or range: "
        text = f"the event {_line(json.dumps(event, default=_parsed))[:80]}"
        raise ValueError(f"{path}: {text} is not as its recorder writes it ({_line(expected, error)})") from error
    return header


_MALFORMED = (TypeError, ValueError, AttributeError, KeyError, ArithmeticError)
"""What the parts of an event that have another type than the profiler gives them lead to."""


def _line(*parts: object) -> str:
    return " ".join("".join(map(str, parts)).encode("ascii", "backslashreplace").decode().split())


class _Events:
    """One kind of event: names, rows of whole numbers with these fields, and columns of objects, as they come."""

    def __init__(self, *fields: str) -> None:
        self.fields = fields
        self.names: list[str] = []
        self.rows = array("q")
        self.objects: dict[str, list[Any]] = {}

    def column(self, name: str) -> Any:
        """A view of what is kept, which nothing may be added to any more."""
        return np.asarray(self.rows, np.int64)[self.fields.index(name) :: len(self.fields)]


class _Columns:
    """Everything of a trace that is kept."""

    def __init__(self) -> None:
        place = ("process", "thread", "start_ns", "time_ns")
        numbers = ("external_id", "event_index")
        self.calls = _Events(*place, *numbers, "sequence_nr", "forward_thread")
        self.kernels = _Events("device", "stream", "start_ns", "time_ns", "untimed", "correlation")
        self.launches = _Events(*place, "correlation")
        self.ranges = _Events(*place, *numbers)
        self.frames = _Events(*place)
        self.calls.objects = {"input_shapes": [], "input_dtypes": [], "concrete_inputs": []}
        self.kernels.objects = {"what": [], "grid": [], "block": [], "collective": []}
        self.ranges.objects = {"collective": []}
        self.flows: dict[str, dict[Any, tuple[int, int, int]]] = {"s": {}, "f": {}}
        self.unread: Counter[str] = Counter()
        self.begins = self.ends = False
        self.end_ns = -1
        reads = (str, sizes_of, _types, _values, _grid, NAMED.match)
        self._known: dict[Any, dict[str | bytes, Any]] = {read: {} for read in reads}
        self._names: dict[str, tuple[str, bool]] = {}  # of calls: the one object for it, whether an annotation has it
        self._numbers: dict[Any, int] = {}
        self._takes = {
            "call": self._call,
            "range": self._range,
            "frame": self._frame,
            "launch": self._launch,
            "kernel": self._kernel,
            "memcpy": self._kernel,
            "memset": self._kernel,
        }
        self._take_of: dict[Any, Any] = {}

    def take(self, event: dict[str, Any]) -> None:
        """Keep what is wanted of one event."""
        category = event.get("cat")
        if event.get("ph") == "X":
            take = self._take_of.get(category, self)
            if take is self:
                take = self._take_of[category] = self._takes.get(CATEGORIES.get(str(category).lower(), ""))
            if take is not None:
                take(event, event.get("args") or {})
            elif category == WINDOW:
                self.begins = True
            elif str(category).lower() not in NOT_READ | CATEGORIES.keys():
                self.unread[str(category)] += to_ns(event.get("dur")) > 0
        elif event.get("name") == WINDOW_END:
            self.ends = True
            self.end_ns = to_ns(event.get("ts"))
        elif category == "fwdbwd" and event.get("ph") in self.flows:
            at = (self._number(event.get("pid")), self._number(event.get("tid")), to_ns(event.get("ts")))
            self.flows[event["ph"]][event.get("id")] = at

    def _call(self, event: dict[str, Any], args: dict[str, Any]) -> None:
        name = _name(event)
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = (name, bool(ANNOTATION.match(name) or ON_HOST.match(name)))
        if known[1]:
            self._range(event, args)
            return
        calls = self.calls
        calls.names.append(known[0])
        sequence, thread = args.get("Sequence number"), args.get("Fwd thread id")
        backward = -1 if sequence is None else _int(sequence), max(_int(thread), 0) if thread else 0
        calls.rows.extend(self._place(event) + _numbers(args) + backward)
        dims = args.get("Input Dims")
        dims = args.get("Input dims") if dims is None else dims
        kinds, concrete = args.get("Input type"), args.get("Concrete Inputs")
        objects = calls.objects
        objects["input_shapes"].append(None if dims is None else self._once(sizes_of, dims))
        objects["input_dtypes"].append(None if kinds is None else self._once(_types, kinds))
        objects["concrete_inputs"].append(None if concrete is None else self._once(_values, concrete))

    def _range(self, event: dict[str, Any], args: dict[str, Any]) -> None:
        self.ranges.names.append(name := self._once(str, _name(event)))
        self.ranges.rows.extend((*self._place(event), *_numbers(args)))
        self.ranges.objects["collective"].append(self._collective(name, args) if ON_HOST.match(name) else None)

    def _collective(self, name: str, args: dict[str, Any]) -> Collective | None:
        dims, kinds = args.get("Input Dims"), args.get("Input type")
        sizes, dtypes = dims and self._once(sizes_of, dims), kinds and self._once(_types, kinds)
        return collective_of(name, args, sizes, dtypes)

    def _frame(self, event: dict[str, Any], args: dict[str, Any]) -> None:
        if (name := _name(event)).startswith(MODULE_FRAME):
            self.frames.names.append(self._once(str, name))
            self.frames.rows.extend(self._place(event))

    def _launch(self, event: dict[str, Any], args: dict[str, Any]) -> None:
        if "correlation" in args:
            self.launches.names.append(self._once(str, _name(event)))
            self.launches.rows.extend((*self._place(event), _int(args["correlation"])))

    def _kernel(self, event: dict[str, Any], args: dict[str, Any]) -> None:
        kernels = self.kernels
        kernels.names.append(name := self._once(str, _name(event)))
        named = self._once(NAMED.match, name)
        kernels.objects["collective"].append(self._collective(name, args) if named else None)
        device, stream = _int(args.get("device", event.get("pid"))), _int(args.get("stream"))
        start_ns, time_ns = _start_ns(event), to_ns(event.get("dur"))
        usable = 0 <= time_ns <= LONGEST_S * 1e9
        time = (start_ns, time_ns if usable else 0, not usable)
        kernels.rows.extend((device, stream, *time, _int(args.get("correlation"))))
        kernels.objects["what"].append(CATEGORIES[str(event["cat"]).lower()])
        for side in ("grid", "block"):
            sizes = args.get(side)
            kernels.objects[side].append(None if sizes is None else self._once(_grid, sizes))

    def _place(self, event: dict[str, Any]) -> tuple[int, int, int, int]:
        process, thread = event.get("pid"), event.get("tid")
        start_ns, time_ns = to_ns(event.get("ts")), to_ns(event.get("dur"))
        return (
            process if type(process) is int else self._number(process),
            thread if type(thread) is int else self._number(thread),
            start_ns if start_ns >= 0 else _start_ns(event),
            time_ns if time_ns > 0 else 0,
        )

    def _number(self, value: Any) -> int:
        """A process or thread as a number: torch 1.9 wrote "25738"; of a word, a serial number below -1."""
        if type(value) is int:
            return value
        known = self._numbers.get(value)
        if known is None:
            known = _int(value)
            self._numbers[value] = known = known if known >= 0 else -2 - len(self._numbers)
        return known

    def _once(self, read: Callable[[Any], Any], value: Any) -> Any:
        """What `read` makes of a value: one object for all that are written alike."""
        kind, known = type(value), self._known[read]
        key = value if kind is str else bytes(value) if kind is RAW else marshal.dumps(value, PLAIN)
        if key not in known:
            plain = _parsed(value) if kind is RAW else value
            known[key] = None if plain is None else read(plain)
        return known[key]


def _parsed(raw: Any) -> Any:
    return json.loads(bytes(raw), parse_float=str)


def _types(words: Any) -> tuple[str, ...]:
    return tuple(map(str, words))


def _values(texts: Any) -> tuple[Any, ...]:
    return tuple(map(_value, texts))


def _numbers(args: Mapping[str, Any]) -> tuple[int, int]:
    """The recorder's numbers of an event; -1: none."""
    number, index = args.get("External id"), args.get("Ev Idx")
    number = args.get("external id") if number is None else number
    return _int(number), -1 if index is None else _int(index)


def _value(text: Any) -> Any:
    """ "[1, 1]" → (1, 1); "" (a tensor, or nothing) → None; what is no literal stays text."""
    if not isinstance(text, str):
        return _tuples(text)
    try:
        return _tuples(ast.literal_eval(text.strip())) if text.strip() and len(text) <= LONGEST else text or None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _name(event: Mapping[str, Any]) -> str:
    name = event.get("name", "")
    if not isinstance(name, str):
        raise TypeError(f"expected a name, got {name!r}")
    return name


def _start_ns(event: Mapping[str, Any]) -> int:
    start_ns = to_ns(event.get("ts"))
    if start_ns < 0:
        raise ValueError(f"expected a time (ts), got {event.get('ts')!r}")
    return start_ns


def _int(value: Any) -> int:
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else -1
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 19 else -1


def _tuples(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    return tuple([_tuples(item) if isinstance(item, list) else item for item in value])


def _grid(value: Any) -> Any:
    return _tuples(value) if isinstance(value, list) else None


def _recording(path: str, columns: _Columns, header: Mapping[str, Any]) -> Recording:
    base_ns = max(_int(header.get("baseTimeNanoseconds", 0)), 0)
    calls = _calls(columns.calls, base_ns)
    kernels, doubles = _kernels(columns, base_ns)
    both = (columns.ranges, columns.frames)
    places = {name: np.concatenate([part.column(name) for part in both]) for name in columns.frames.fields}
    places["start_ns"] += base_ns
    collectives = columns.ranges.objects["collective"] + [None] * len(columns.frames.names)
    ranges = ranges_table(name=[*columns.ranges.names, *columns.frames.names], collective=collectives, **places)
    ranges = ranges.sort_values(["start_ns", "time_ns", "name"], ascending=[True, False, True], ignore_index=True)
    lost = _lost_launches(columns.launches, kernels, base_ns)
    numbered = ("external_id", "event_index", "thread", "start_ns")
    numbers = {
        name: np.concatenate([part.column(name) for part in (columns.calls, columns.ranges)]) for name in numbered
    }
    facts = header.get("distributedInfo")
    rank, world = (facts.get(name) if isinstance(facts, Mapping) else None for name in ("rank", "world_size"))
    return Recording(
        source="kineto",
        path=path,
        calls=calls,
        kernels=kernels,
        device_name=_device_name(header, kernels),
        problems=(*_problems(calls, kernels, doubles, len(lost)), *_unread(columns, header)),
        ranges=ranges,
        flows=_flows(columns.flows, base_ns),
        lost_launches=lost,
        ends=columns.ends or not columns.begins,
        gaps=gaps(numbers, base_ns),
        numbered=is_numbered(numbers),
        end_ns=columns.end_ns + base_ns if columns.end_ns >= 0 else -1,
        rank=rank if type(rank) is int and rank >= 0 else None,
        world_size=world if type(world) is int else None,
        host=str(header.get("host_name") or ""),
    )


def _calls(events: _Events, base_ns: int) -> pd.DataFrame:
    order = np.lexsort((events.column("external_id"), -events.column("time_ns"), events.column("start_ns")))
    names = ("process", "thread", "time_ns", "external_id", "sequence_nr", "forward_thread")
    return calls_table(
        name=objects(events.names)[order],
        start_ns=events.column("start_ns")[order] + base_ns,
        **{name: events.column(name)[order] for name in names},
        **{name: objects(values)[order] for name, values in events.objects.items()},
    )


def _kernels(columns: _Columns, base_ns: int) -> tuple[pd.DataFrame, int]:
    """Kernels in the order of start, each with its launch; and how many rows of launches were one too many."""
    found = columns.kernels
    ints = {name: found.column(name) for name in found.fields}
    order = np.lexsort((ints["correlation"], ints["stream"], ints["device"], ints["start_ns"]))
    ints = {name: values[order] for name, values in ints.items()}
    launches, start_ns = columns.launches, columns.launches.column("start_ns") + base_ns
    places = (launches.column("process"), launches.column("correlation"), start_ns)
    rows = launch_rows(*places, start_ns + launches.column("time_ns"), launches.column("thread"), launches.names)
    ints["start_ns"] += base_ns
    host = {"process": np.full(len(order), -1, np.int64), **{name: ints[name] for name in ("correlation", "start_ns")}}
    launched, doubles = by_launch(host, rows, np.zeros(len(order), bool))
    kernels = kernels_table(
        name=objects(found.names)[order],
        **launched,
        **ints,
        **{name: objects(values)[order] for name, values in found.objects.items()},
    )
    return kernels, doubles


def _lost_launches(events: _Events, kernels: pd.DataFrame, base_ns: int) -> pd.DataFrame:
    """Where kernels were launched that were not recorded."""
    launches = np.fromiter((bool(KERNEL_LAUNCH.search(name)) for name in events.names), bool, len(events.names))
    ran = np.isin(events.column("correlation"), kernels["correlation"].to_numpy(np.int64))
    lost = np.flatnonzero(launches & ~ran)
    starts = events.column("start_ns")[lost] + base_ns
    places = {name: events.column(name)[lost] for name in ("process", "thread")}
    return table(LAUNCH_PLACES, **places, start_ns=starts)


def _flows(found: dict[str, dict[Any, tuple[int, int, int]]], base_ns: int) -> pd.DataFrame:
    both = sorted((found["s"][number], found["f"][number]) for number in found["s"].keys() & found["f"].keys())
    names = ("process", "thread", "ns")
    columns: dict[str, list[int]] = {f"{side}_{name}": [] for side in ("forward", "backward") for name in names}
    for forward, backward in both:
        for side, at in (("forward", forward), ("backward", backward)):
            for name, value in zip(names, at, strict=True):
                columns[f"{side}_{name}"].append(value + base_ns if name == "ns" else value)
    return flows_table(**columns)


def _device_name(header: Mapping[str, Any], kernels: pd.DataFrame) -> str:
    """The names of the devices that ran something; of a trace without kernels "", whatever the machine has.

    Kernels may number devices otherwise than the header does: then all must have one name.
    """
    properties = header.get("deviceProperties")
    of_id = {
        entry.get("id"): str(entry.get("name", ""))
        for entry in (properties if isinstance(properties, list) else ())
        if isinstance(entry, dict)
    }
    ran = [of_id.get(device, "") for device in sorted(set(kernels["device"].tolist()))]
    if ran and not any(ran) and len(set(of_id.values())) == 1:
        ran = list(of_id.values())
    return ", ".join(dict.fromkeys(name for name in ran if name))


def _unread(columns: _Columns, header: Mapping[str, Any]) -> Iterator[str]:
    """What the file holds that is not read."""
    if header.get(MORE):
        yield "the file goes on behind its first document: only that was read"
    for category, count in columns.unread.items():
        if count:
            yield f"not read: {counted(count, 'event')} of category {_line(category)[:40]}"


def _problems(calls: pd.DataFrame, kernels: pd.DataFrame, doubles: int, lost: int) -> list[str]:
    problems = []
    if lost:
        problems.append(
            f"launches of kernels of which none was recorded: {lost}; the calls that made them have no time"
        )
    if not len(kernels):
        problems.append("no kernels: operator calls take their place")
    untimed = kernels["name"][kernels["untimed"] > 0].map(_line)
    if len(untimed):
        names = ", ".join(name[:40] for name in dict.fromkeys(untimed[:LISTED]))
        problems.append(
            f"no usable duration: {len(untimed)} of the kernels, copies and fills ({names}); no time, rate or busy "
            "share that they touch is known"
        )
    unlaunched = int((kernels["launch_start_ns"] < 0).sum())
    if unlaunched:
        problems.append(f"{unlaunched} of {len(kernels)} kernels, copies and fills have no recorded launch")
    if doubles > 0 and len(kernels):
        problems.append(f"{doubles} rows of launches share their correlation number with another: one of each was kept")
    if not len(calls):
        problems.append("no operator calls: record with ProfilerActivity.CPU, too")
    elif not calls["input_shapes"].notna().any():
        problems.append("no shapes: record with record_shapes=True")
    elif not calls["concrete_inputs"].notna().any():
        problems.append("no concrete inputs (torch 2.0 and earlier record none): strides and groups must be inferred")
    if len(calls) and not (calls["sequence_nr"] >= 0).any():
        problems.append("no sequence numbers: no backward call finds its forward call (or nothing was trained)")
    return problems
