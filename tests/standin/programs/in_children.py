"""Run as a program with the stand-in's libraries: tasks, each in a child of this process with a plan of its own.

A child has torch imported and no context yet, so that another plan costs no import, which takes seconds. Argument: a
folder with NAME.json (["module:function", arguments]) and NAME.plan for each task. Prints {NAME: answer} as JSON.
"""

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import torchvision  # noqa: F401 - imported once, not by each child

AT_ONCE = 2
"""Children: most of their time they wait for the device."""


def answer(task: str, arguments: list[Any]) -> Any:
    """What the function returns, or {"raised": its traceback}."""
    module, _, function = task.partition(":")
    try:
        return getattr(importlib.import_module(module), function)(*arguments)
    except BaseException:  # noqa: BLE001 - told by the test that asked
        return {"raised": traceback.format_exc()}


def started(job: Path) -> tuple[int, int]:
    """A forked process whose device has the job's plan and a state of its own: its number, and where it answers."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ |= {"STANDIN_PLAN": str(job.with_suffix(".plan")), "STANDIN_STATE": str(job.with_suffix(".state"))}
        said = json.dumps(answer(*json.loads(job.read_text()))).encode()
        while said:
            said = said[os.write(writer, said) :]
        os._exit(0)
    os.close(writer)
    return child, reader


def ended(child: int, reader: int) -> Any:
    """What the process answers."""
    with open(reader, "rb") as pipe:
        said = pipe.read()
    _, code = os.waitpid(child, 0)
    return json.loads(said) if said else {"raised": f"the child ended with {code}"}


if __name__ == "__main__":
    jobs, answers = sorted(Path(sys.argv[1]).glob("*.json")), {}
    for first in range(0, len(jobs), AT_ONCE):
        children = {job.stem: started(job) for job in jobs[first : first + AT_ONCE]}
        answers |= {name: ended(*child) for name, child in children.items()}
    print(json.dumps(answers))
