"""How many random inputs make a parser fail in a way that is not ours?

    python -m benchmarks.fuzz --executions 10000                    # of all parsers together
    python -m benchmarks.fuzz --executions 1000 --parser nsys --seed 3

Each parser reads edited files of its corpus in a process of its own, with 1 GiB of memory beyond what its
imports take. A finding is an exception that is not ours, a message of more than one line or without words, more than
10 s of processor time, or the process dying. Inputs of findings are written to --keep.
"""

import argparse
import hashlib
import multiprocessing
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.fuzz.mutations import mutate
from benchmarks.fuzz.parsers import PARSERS
from results.errors import Inconsistent, StoreFault, Unavailable

OURS = (ValueError, Unavailable, Inconsistent, StoreFault)
MOST_S = 10
MOST_BYTES = 1 << 30


class _TooLong(BaseException):
    """Raised by the alarm."""


@dataclass(frozen=True)
class Finding:
    """One input that a parser fails on, and how."""

    parser: str
    what: str
    data: bytes


def fault_of(parser: str, data: bytes, folder: Path) -> str:
    """How this parser fails on this input; "" where it reads it or refuses it in one line of words. Runs in the process
    of the caller, who sets the handler of the alarm."""
    try:
        signal.setitimer(signal.ITIMER_PROF, MOST_S)
        PARSERS[parser].read(PARSERS[parser].file(data, folder))
    except OURS as fault:
        words = str(fault)
        if "\n" in words:
            return f"{type(fault).__name__} of {words.count(chr(10)) + 1} lines"
        if words.strip() in ("", type(fault).__name__):
            return f"{type(fault).__name__} without words in {_place(fault)}"
    except _TooLong:
        return f"more than {MOST_S} s of processor time"
    except Exception as fault:  # noqa: BLE001  that is what is looked for
        return f"{type(fault).__name__}: {' '.join(str(fault).split())[:200]} in {_place(fault)}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return ""


def _place(fault: BaseException) -> str:
    """File and line of the last frame of ours."""
    root, place, frame = str(Path(__file__).parents[2]), "?", fault.__traceback__
    while frame is not None:
        file = frame.tb_frame.f_code.co_filename
        if file.startswith(root):
            place = f"{file[len(root) + 1 :]}:{frame.tb_lineno}"
        frame = frame.tb_next
    return place


def _alarm(*_: Any) -> None:
    raise _TooLong


def _child(parser: str, executions: int, seed: int, folder: Path, answers: Connection) -> None:
    """Reads seeds and edits of them; sends each finding and, before each input, its number."""
    signal.signal(signal.SIGPROF, _alarm)
    seeds = PARSERS[parser].seeds(parser)
    PARSERS[parser].read(PARSERS[parser].file(seeds[0], folder))  # imports what is needed, in its own time
    for data in seeds:
        if what := fault_of(parser, data, folder):
            answers.send((parser, f"of the corpus itself: {what}", data))
    most = MOST_BYTES + int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for number in range(executions):
        data = _input(parser, seeds, number, seed)
        answers.send(number)
        if what := fault_of(parser, data, folder):
            answers.send((parser, what, data))
    answers.send(None)


def _input(parser: str, seeds: Sequence[bytes], number: int, seed: int) -> bytes:
    chance = random.Random(f"{parser} {seed} {number}")
    data = chance.choice(seeds)
    return mutate(data, chance, tuple(seeds))


def fuzz(parser: str, executions: int, seed: int) -> tuple[list[Finding], int]:
    """The findings, and how many inputs were read."""
    findings: list[Finding] = []
    done = 0
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        ours, theirs = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("fork").Process(
            target=_child, args=(parser, executions, seed, folder, theirs), daemon=True
        )
        process.start()
        theirs.close()
        try:
            while (told := _next(ours)) is not None:
                if isinstance(told, int):
                    done = told + 1
                else:
                    findings.append(Finding(*told))
        except EOFError:
            process.join(5)
            data = _input(parser, PARSERS[parser].seeds(parser), done - 1, seed) if done else b""
            findings.append(Finding(parser, f"the process ended with {process.exitcode} at input {done - 1}", data))
        process.kill()
        process.join()
    return findings, done


def _next(ours: Connection) -> Any:
    if not ours.poll(60 * MOST_S):
        raise EOFError  # it waits, or hangs in what no signal interrupts
    return ours.recv()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executions", type=int, default=1_000, help="of all parsers together (1000)")
    parser.add_argument(
        "--parser", choices=tuple(PARSERS), action="append", help="this one alone; several: several times"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the inputs of findings")
    options = parser.parse_args(arguments)
    names = options.parser or list(PARSERS)
    failed, total = 0, 0
    for name in names:
        began = time.monotonic()
        findings, done = fuzz(name, max(1, options.executions // len(names)), options.seed)
        total += done
        kinds = {finding.what: finding for finding in findings}
        print(f"{name}: {done} inputs, {len(findings)} findings, {time.monotonic() - began:.0f} s", flush=True)
        for what, finding in kinds.items():
            print(f"  {what}", flush=True)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{name}-{hashlib.sha256(finding.data).hexdigest()[:12]}").write_bytes(finding.data)
        failed += len(findings)
    print(f"{failed} findings of {total} inputs")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
