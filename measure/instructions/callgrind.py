"""Runs operators once each under valgrind's callgrind, with counting on around the one call, and reads what it counted.

One process runs them all: importing torch takes half a minute there. An operator runs twice before it is counted, so
that code that a library generates, and caches that it fills, are there. One thread.

Not claimed: what the library would run with wider vectors. Valgrind 3.19 has the instructions of AVX2 and FMA.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from measure.instructions.decoding import Code, Execution, arithmetic, check_decoder
from results import Unavailable, one_line

SOURCE = Path(__file__).with_name("switch.c")
TOOL = "valgrind --tool=callgrind"
INSTRUCTIONS = "AVX2"
NEEDS = "install valgrind with its headers (Debian: valgrind) and a C compiler"

SETTINGS = {"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": INSTRUCTIONS}
"""One thread and, in every library, instructions that valgrind knows."""

BOOKKEEPING = re.compile(r"/(libpython[^/]*|python[\d.]*|_ctypes[^/]*|_queue[^/]*|libstdc\+\+[^/]*)$")
"""Objects whose arithmetic is not the operator's: the interpreter's, and the C++ library's, which calculates how large
hash tables become (`_Prime_rehash_policy`), as those in which autograd lists the nodes of a graph."""

MAKER = "measure.instructions.operators:make"
"""What makes the call of an operator of `operators.py`, which needs torch."""

TRIGGER = "desc: Trigger: Client Request: "
"""What a dump says before the words that were written with it."""

CALLS = "calls.json"
"""The file that says which call of a step was counted under which number."""

TIMEOUT_S, STEP_TIMEOUT_S = 540.0, 1800.0
"""Of operators together, and of a model's step."""

LONGEST = 300
"""Characters of what a program said, in a reason."""


def count_instructions(names: Sequence[str], timeout_s: float = TIMEOUT_S) -> dict[str, dict[str, int]]:
    """Operator → kind → lanes executed; with "instructions", all that were executed, of any kind.

    An operator that fails has {"failed": 1}. Raises Unavailable where a tool is missing or the process died.
    """
    found = {name: {"failed": 1} for name in names}
    with _run_folder(names, MAKER, timeout_s) as folder:
        found.update((name, lanes) for name, lanes in _dumps(folder) if name in found)
    return found


def count_calls(name: str, maker: str, timeout_s: float = STEP_TIMEOUT_S) -> list[tuple[str, dict[str, int]]]:
    """(ATen operator, kind → lanes executed) of each call of a step, in order; calls alike are counted once.

    maker: "module:function", which returns the step of this name as a call without arguments. Raises Unavailable.
    """
    with _run_folder([name], maker, timeout_s) as folder:
        calls, found = json.loads((folder / CALLS).read_text(encoding="utf-8")), dict(_dumps(folder))
    return [(operator, found[str(first)]) for operator, first in calls]


@contextlib.contextmanager
def _run_folder(names: Sequence[str], maker: str, timeout_s: float) -> Iterator[Path]:
    """The folder with what callgrind wrote of these calls, and the code that was generated meanwhile."""
    check_decoder()  # half a minute and more before it is needed
    with tempfile.TemporaryDirectory(prefix="flopledger-") as folder:
        switch = compile_switch(Path(folder))
        _run_operators(names, maker, switch, Path(folder), timeout_s)
        yield Path(folder)


def _dumps(folder: Path) -> Iterator[tuple[str, dict[str, int]]]:
    """(what was written with the counts, kind → lanes) of each dump."""
    code = Code({int(file.stem, 16): file.read_bytes() for file in folder.glob("*.code")})
    for file in folder.glob("counts.*"):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        trigger = next((line for line in lines if line.startswith(TRIGGER)), "")
        if trigger:
            counts = executions(lines)
            yield trigger.removeprefix(TRIGGER), {**arithmetic(counts, code), "instructions": sum(counts.values())}


def compile_switch(folder: Path) -> Path:
    """The library that turns counting on and off. Raises Unavailable without valgrind, its headers or a compiler."""
    compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    for program in ("valgrind", compiler[0]):
        if shutil.which(program) is None:
            raise Unavailable(f"no {program} on PATH: {NEEDS}")
    library = folder / "switch.so"
    command = [*compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise Unavailable(f"{NEEDS}: {one_line(made.stderr, LONGEST)}")
    return library


def _run_operators(names: Sequence[str], maker: str, switch: Path, folder: Path, timeout_s: float) -> None:
    command = [
        *shlex.split(TOOL), "--dump-instr=yes", "--dump-line=no", "--instr-atstart=no", "--compress-pos=no",
        "--compress-strings=no", "--smc-check=all-non-file", f"--callgrind-out-file={folder / 'counts'}",
        sys.executable, "-m", f"{__package__}.operators", str(switch), str(folder), json.dumps(list(names)), maker,
    ]  # fmt: skip
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, **SETTINGS, "PYTHONPATH": path}
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout_s, env=environment, cwd=folder
        )
    except subprocess.TimeoutExpired as fault:
        raise Unavailable(
            f"no end within {timeout_s:g} s under valgrind: name fewer operators, or a smaller model"
        ) from fault
    if ran.returncode:
        raise Unavailable(f"valgrind ended with {ran.returncode}: {one_line(ran.stderr[-LONGEST:], LONGEST)}")


def executions(lines: Iterable[str]) -> Counter[Execution]:
    """How often each address was executed, from a dump without compression (callgrind's format, version 1).

    A line after `calls=` holds what the callee cost and is no execution here. Objects of `BOOKKEEPING` are left out.
    """
    counts: Counter[Execution] = Counter()
    for name, address, times in _costs(lines):
        if not BOOKKEEPING.search(name):
            counts["" if name == "???" else name, address] += times
    return counts


def _costs(lines: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    name, after_call = "", False
    for line in lines:
        if line.startswith("ob="):
            name = line[3:]
        elif line.startswith("calls="):
            after_call = True
        elif line.startswith("0x"):
            if not after_call:
                address, *_, times = line.split()
                yield name, int(address, 16), int(times)
            after_call = False
