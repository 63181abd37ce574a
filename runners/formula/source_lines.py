"""Lines of a model's own code: the one that raised, and the one after which two steps go different ways.

The model's own is what is neither Python's library, PyTorch's, nor of the packages that measure it: a user's file, or
torchvision, timm, transformers and `workloads/`. What an operation does inside is not looked at.
"""

import linecache
import sys
import sysconfig
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from results.garbage_collector import collector_off

ROOMS = ("analysis", "cleaning", "measure", "reports", "results", "runners")
EDGES = (
    "catalogue/base", "catalogue/catalogue", "catalogue/model_names",
    "sources/any_model", "sources/timm", "sources/transformers", "sources/user_models",
    "training/building", "training/step",
)  # fmt: skip
"""Files of `workloads/` that hold no model."""

MOST = 4_000_000
"""Instructions of a step that are compared, at most."""

LONGEST = 80
"""Letters of a line that are shown."""


class Spot(NamedTuple):
    """An instruction. first: line of its function; instruction: its place there."""

    file: str
    function: str
    first: int
    instruction: int
    line: int


@cache
def is_own(file: str) -> bool:
    """Whether a source file is the model's own."""
    if file.startswith("<"):
        return False
    root = Path(__file__).parents[2]
    paths = sysconfig.get_paths()
    library = file.startswith(paths["stdlib"]) and "-packages" not in file
    torch = {f"{Path(paths[name]) / 'torch'}/" for name in ("purelib", "platlib")}
    ours = (*(f"{root / room}/" for room in ROOMS), *(f"{root / 'workloads' / edge}.py" for edge in EDGES))
    return not (library or file.startswith((*torch, *ours)) or "/torch/" in file)


def raised_at(fault: BaseException) -> str:
    """The innermost line of the model's own code that a fault came through, its causes' first; "" if there is none."""
    found, link = "", fault.__traceback__
    if fault.__cause__ is not None and (inner := raised_at(fault.__cause__)):
        return inner
    while link is not None:
        if is_own(link.tb_frame.f_code.co_filename):
            found = line(link.tb_frame.f_code.co_filename, link.tb_lineno)
        link = link.tb_next
    return found


def line(file: str, number: int) -> str:
    """A line as a person looks it up: file, number, text."""
    text = " ".join(linecache.getline(file, number).split())
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]} …"
    return f"{_short(file)}, line {number}" + (f": {text}" if text else "")


def _short(file: str) -> str:
    """Below the working directory or an installation its own path from there, else all of it."""
    for place in (*sysconfig.get_paths().values(), str(Path.cwd())):
        if file.startswith(f"{place}/"):
            return file[len(place) + 1 :]
    return file


def parted_at(one: Callable[[], object], other: Callable[[], object]) -> str:
    """The line of the model's own code after which two calls go different ways, of the forward pass if it is there that
    they do; "" where they do not. Both must have been called before, so that nothing is done for the first time."""
    tracks = [_followed(call) for call in (one, other)]
    begins = [next((i for i, spot in enumerate(track) if spot.function == "forward"), 0) for track in tracks]
    forward = [track[begin:] for track, begin in zip(tracks, begins, strict=True)]
    building = [track[:begin] for track, begin in zip(tracks, begins, strict=True)]
    spot = _last_common(*forward) or _last_common(*building)
    return "" if spot is None else line(spot.file, spot.line)


def _last_common(one: list[Spot], other: list[Spot]) -> Spot | None:
    """What both did last before they differ."""
    for place, (first, second) in enumerate(zip(one, other, strict=False)):
        if first != second:
            return one[place - 1] if place else None
    if len(one) == len(other):
        return None
    return next(iter((one if len(one) < len(other) else other)[-1:]), None)


def _followed(call: Callable[[], object]) -> list[Spot]:
    """The instructions of the model's own code that a call goes through."""
    if sys.version_info >= (3, 13):  # whose `settrace` gives no instructions of a function that is running already
        return _monitored(call)
    found: list[Spot] = []

    def follow(frame: FrameType, event: str, _argument: Any) -> Any:
        code = frame.f_code
        if event == "call":
            if not is_own(code.co_filename):
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
        elif event == "opcode" and len(found) < MOST:
            found.append(Spot(code.co_filename, code.co_name, code.co_firstlineno, frame.f_lasti, frame.f_lineno))
        return follow

    sys._getframe().f_trace_opcodes = True  # Python 3.12 tells instructions only where a frame asked before `settrace`
    before = sys.gettrace()
    with collector_off():  # what others do when garbage is collected is no part of the model
        sys.settrace(follow)
        try:
            call()
        finally:
            sys.settrace(before)
    return found


def _monitored(call: Callable[[], object]) -> list[Spot]:
    """Follows a call by `sys.monitoring`. Raises ValueError where other tools have taken each number for one."""
    watch: Any = sys.monitoring  # type: ignore[attr-defined]
    tool = next((number for number in range(6) if watch.get_tool(number) is None), None)
    if tool is None:
        raise ValueError("expected a free tool of sys.monitoring, got none: other debuggers or profilers have all")
    found: list[Spot] = []
    lines: dict[CodeType, dict[int, int]] = {}

    def start(code: CodeType, _offset: int) -> Any:
        if not is_own(code.co_filename):
            return watch.DISABLE
        if code not in lines:
            lines[code] = {at: line or 0 for first, end, line in code.co_lines() for at in range(first, end, 2)}
            watch.set_local_events(tool, code, watch.events.INSTRUCTION)
        return None

    def instruction(code: CodeType, offset: int) -> None:
        if len(found) < MOST:
            found.append(Spot(code.co_filename, code.co_name, code.co_firstlineno, offset, lines[code].get(offset, 0)))

    watch.use_tool_id(tool, "flopledger")
    watch.register_callback(tool, watch.events.PY_START, start)
    watch.register_callback(tool, watch.events.INSTRUCTION, instruction)
    with collector_off():  # what others do when garbage is collected is no part of the model
        watch.set_events(tool, watch.events.PY_START)
        try:
            call()
        finally:
            watch.set_events(tool, 0)
            for code in lines:
                watch.set_local_events(tool, code, 0)
            watch.free_tool_id(tool)
            watch.restart_events()
    return found
