"""Run as a program on a stand-in device: the checks of the self-test under one plan after another, each in its child.

Argument: a folder with files NAME.plan, and NAME.environment (lines "NAME value") where a lie is one of the
environment. torch is imported once. Times are SHORT ones: the same checks over shorter blocks, as a stand-in's clock
needs no long ones. Prints {name: {check: its row}} as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO

import torch
import torchvision  # noqa: F401

from measure.device.environment import device_facts
from runners.doctor.known_work import counts, energy, rates, times
from runners.doctor.known_work.answers import Asked
from runners.doctor.self_test import CHECKS, guarded

SHORT = ((rates, "RATE_S", 0.1), (times, "LONG_S", 0.2), (energy, "WARM_S", 0.3), (energy, "BUSY_S", 1.0))
AT_ONCE = 2
"""Children: most of their time they wait for the device."""
CHECKED = {
    **{name: check for name, check in CHECKS.items() if not name.startswith("memory")},
    "memory resnet18": counts.memory("resnet18", 8, 64),
}
"""All, with the smaller model of those whose memory is predicted, on small images."""


def answers() -> dict[str, dict[str, object]]:
    """Each check's row on the device of this process."""
    torch.cuda.init()
    facts = device_facts("cuda")
    asked = Asked("cuda", str(facts.name), facts.multiprocessors)
    return {name: asdict(guarded(name, check, asked)) for name, check in CHECKED.items()}


def started(plan: Path) -> IO[bytes]:
    """A child on the device of a plan; what it says is its answers."""
    reader, writer = os.pipe()
    if not os.fork():
        os.environ |= {"STANDIN_PLAN": str(plan), "STANDIN_STATE": str(plan.with_suffix(".state"))}
        lines = plan.with_suffix(".environment")
        if lines.exists():
            os.environ |= dict(line.split() for line in lines.read_text().splitlines())
        os.write(writer, json.dumps(answers()).encode())
        os._exit(0)
    os.close(writer)
    return open(reader, "rb")


def ended(pipe: IO[bytes]) -> dict[str, dict[str, object]]:
    """A child's answers; empty if it died."""
    with pipe:
        said = pipe.read()
    os.wait()
    return json.loads(said) if said else {}


if __name__ == "__main__":
    for module, name, seconds in SHORT:
        setattr(module, name, seconds)
    plans = sorted(Path(sys.argv[1]).glob("*.plan"))
    found = {}
    for first in range(0, len(plans), AT_ONCE):
        some = plans[first : first + AT_ONCE]
        children = {plan.stem: started(plan) for plan in some}
        found |= {name: ended(pipe) for name, pipe in children.items()}
    print(json.dumps(found))
