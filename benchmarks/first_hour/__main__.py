"""Pastes the blocks of docs/first-hour.md into a fresh clone and a fresh environment, and times each task.

    python -m benchmarks.first_hour --out DIR                  # clone, environment, ten tasks; a JSON line each
    python -m benchmarks.first_hour --out DIR --python PYTHON  # with an environment that is there

Each task has three minutes (`--limit`). It fails where its last command ends with another exit code than the page says,
or where the tables that it prints lack a heading of those on the page. What task N prints is DIR/N.txt. Not claimed:
times on another machine, or on an idle one; the load is printed beside them.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.first_hour.page import PAGE, Task, layout, tasks

ROOT = Path(__file__).parents[2]
LIMIT_S = 180.0
NEEDED = ("requirements.txt", "requirements-counters.txt", "requirements-models.txt")


@dataclass(frozen=True)
class Done:
    """What became of one task. load: processes
    that wanted a processor when it began. wrong: empty if it went well."""

    task: int
    title: str
    seconds: float
    load: float
    exit_code: int
    wrong: str


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a new folder for clone and environment")
    parser.add_argument("--python", type=Path, metavar="FILE", help="of an environment that has the requirements")
    parser.add_argument("--limit", type=float, default=LIMIT_S, metavar="S", help="of each task")
    parser.add_argument("--tasks", default="", metavar="N,N", help="only these")
    options = parser.parse_args(arguments)
    out = options.out.resolve()
    clone = out / "clone"
    if not clone.exists():
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    python = options.python.absolute() if options.python else environment(out, clone)
    chosen = {int(number) for number in filter(None, options.tasks.split(","))}
    failed = False
    for task in tasks(PAGE.read_text(encoding="utf-8")):
        if chosen and task.number not in chosen:
            continue
        done, printed = run(task, clone, python, options.limit)
        (out / f"{task.number}.txt").write_text(printed.replace(f"{clone}/", ""), encoding="utf-8")
        failed |= bool(done.wrong)
        with (out / "tasks.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(done)) + "\n")
        print(line_of(done), flush=True)
    return 1 if failed else 0


def line_of(done: Done) -> str:
    """The task, its time and load, and what went wrong, in one line."""
    times = f"{done.seconds:.0f} s at a load of {done.load:.1f}"
    return "; ".join(filter(None, (f"{done.task:2} {done.title}: {times}", done.wrong)))


def environment(out: Path, clone: Path) -> Path:
    """The Python of a new virtual environment with what the page installs."""
    began_s = time.monotonic()
    python = out / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(out / "venv")], check=True)
    words = [word for name in NEEDED for word in ("-r", name)]
    subprocess.run([str(python), "-m", "pip", "install", "-q", *words], cwd=clone, check=True)
    print(f"environment: {time.monotonic() - began_s:.0f} s", flush=True)
    return python


def run(task: Task, clone: Path, python: Path, limit_s: float) -> tuple[Done, str]:
    """Saves the task's files and pastes its block; what became of it, and what was printed on stdout."""
    for name, content in task.files:
        (clone / name).write_text(content, encoding="utf-8")
    environ = {
        **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "COLUMNS")},
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    }
    load, began_s = os.getloadavg()[0], time.monotonic()
    try:
        done = subprocess.run(
            ["bash", "-c", task.shell],
            cwd=clone,
            env=environ,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        code, out, err = done.returncode, done.stdout, done.stderr
        wrong = wrong_in(task, code, out, err)
    except subprocess.TimeoutExpired as late:
        code, out, wrong = -1, _text(late.stdout), f"not done after {limit_s:.0f} s"
    seconds = round(time.monotonic() - began_s, 1)
    return Done(task.number, task.title, seconds, round(load, 1), code, wrong), out


def wrong_in(task: Task, code: int, out: str, err: str) -> str:
    """What is not as the page says, in one line; empty: nothing."""
    if code != task.exit_code:
        last = (err.strip().splitlines() or [""])[-1]
        return f"exit code {code}, expected {task.exit_code}: {last}"
    missing = [line for line in layout(task.shown) if line not in layout(out)]
    return f"the page shows a heading that is not printed: {missing[0]}" if missing else ""


def _text(said: bytes | str | None) -> str:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said or ""


if __name__ == "__main__":
    sys.exit(main())
