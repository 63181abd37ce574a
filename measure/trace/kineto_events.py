"""Collects the events of a Kineto trace as columns of numbers and objects, a table per kind of event (`Rows`).

`Rows.take` takes one event at a time while the file streams through, so that memory grows with the kept events only.
Equal values are one object. `kineto.py` makes DataFrames of the columns. "Concrete Inputs" are read as literals, never
evaluated. Annotations mirrored to the device (gpu_user_annotation) are left out. An event that differs from the form
that its recorder writes raises one of the exceptions in MALFORMED.
"""

import ast
import marshal
import re
from array import array
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from measure.trace.json_events import to_ns
from measure.trace.recording import (
    NAMED,
    ON_HOST,
    Collective,
    collective_of,
    objects,
    sizes_of,
)
from results.records.rows import tuples

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
"""Category of an event, in lower case (torch 1.8 wrote "Operator", "Kernel") → kind."""

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
"""Categories of events with durations that are no work: mirrors of other events, waits, the profiler's overhead."""

PLAIN = 2
"""A version of `marshal` in which equal values have equal bytes, and 1 and True differ."""

LONGEST_S = 86_400.0
"""A kernel that lasts longer than a day has no usable duration: Kineto has written durations of 236 years."""

LONGEST = 1 << 16
"""Maximum number of characters of a value that is read as a literal; the parser takes a thousand times as many
bytes."""

WINDOW, WINDOW_END = "Trace", "Record Window End"
"""Category of the event that spans what was recorded, and name of the one at its end. Kineto writes both of them."""

MODULE_FRAME = "nn.Module: "
ANNOTATION = re.compile(r"ProfilerStep#|Optimizer\.|flopledger\.|enumerate\(DataLoader\)#|DistributedDataParallel\.")
"""Names of annotations, which torch 1.8 to 1.10 recorded as operators."""

MALFORMED = (TypeError, ValueError, AttributeError, KeyError, ArithmeticError)
"""Exceptions that an event leads to if its parts have another type than the profiler gives them."""


class _Columns:
    """Events of one kind: whole numbers in one array, row after row, and any other values in one list."""

    def __init__(self, numbers: str, objects: str = "name") -> None:
        self.names = numbers.split(), objects.split()
        self.numbers = array("q")
        self.objects: list[Any] = []

    def frame(self, base_ns: int) -> pd.DataFrame:
        """Return the events as a table, on the clock of the recording. No event may be added afterwards."""
        (numbers, others), values = self.names, np.asarray(self.numbers, np.int64)
        columns = {name: values[index :: len(numbers)] for index, name in enumerate(numbers)}
        columns["start_ns"] = columns["start_ns"] + base_ns
        columns |= {name: objects(self.objects[index :: len(others)]) for index, name in enumerate(others)}
        return pd.DataFrame(columns, copy=False)


class Rows:
    """Collects all events of a trace that are kept."""

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
        """Keep the needed parts of one event."""
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
        backward = whole_number(args.get("Sequence number")), max(whole_number(thread), 0) if thread else 0
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
            self.launches.numbers.extend((*self._span(event), whole_number(args["correlation"])))
            self.launches.objects.append(name)

    def _kernel(self, event: dict[str, Any], args: dict[str, Any], name: str) -> None:
        device, stream = whole_number(args.get("device", event.get("pid"))), whole_number(args.get("stream"))
        start_ns, time_ns = _start_ns(event), to_ns(event.get("dur"))
        usable = 0 <= time_ns <= LONGEST_S * 1e9
        time = (start_ns, time_ns if usable else 0, not usable)
        self.kernels.numbers.extend((device, stream, *time, whole_number(args.get("correlation")), -1))
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
        """Return a process or thread as a number (torch 1.9 wrote "25738"); for other text a serial number below -1."""
        if value not in self._numbers:
            number = whole_number(value)
            self._numbers[value] = number if number >= 0 else -2 - len(self._numbers)
        return self._numbers[value]

    def _once(self, read: Callable[[Any], Any], value: Any) -> Any:
        """Return read(value), the same object for all values that are written alike; None for None."""
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
    """Read "[1, 1]" → (1, 1); "" (a tensor, or nothing) → None; what is not a literal stays text."""
    if not isinstance(text, str):
        return tuples(text)
    try:
        return tuples(ast.literal_eval(text.strip())) if text.strip() and len(text) <= LONGEST else text or None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _grid(value: Any) -> Any:
    return tuples(value) if isinstance(value, list) else None


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
    return whole_number(args.get("external id") if number is None else number), whole_number(args.get("Ev Idx"))


def whole_number(value: Any) -> int:
    if type(value) is int:
        return value if -(2**63) <= value < 2**63 else -1
    return int(value) if isinstance(value, str) and value.isdigit() and len(value) < 19 else -1
