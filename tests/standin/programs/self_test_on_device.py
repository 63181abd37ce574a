"""Run as a program on a stand-in device: the checks of the self-test under one plan after another, each in its child.

Argument: a folder with files NAME.plan, and NAME.environment (lines "NAME value") where a lie is one of the
environment. What no device has a part in is done once, before there is any: imports, and what is counted and predicted
on fake tensors. Times are SHORT ones: the same checks over shorter blocks, as a stand-in's clock needs no long ones.
Prints {name: {check: its row}} as JSON.
"""

import json
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import torch
import torchvision  # noqa: F401

import measure.ceiling.ceilings
import measure.device.telemetry
import measure.operations.tracer
import measure.profile.allocations
import measure.profile.recording
from measure.device.environment import device_facts
from runners import self_test
from runners import self_test as known_work
from runners.self_test import CHECKS, DeviceUnderTest, guarded
from runners.workers import traced_step

SHORT = (
    (self_test, "RATE_S", 0.4),
    (self_test, "LONG_S", 0.2),
)
SHORT += (
    (self_test, "MOST_BLOCKS", 60),
)  # as long as this machine is too busy for the wall to agree with a device at all
AT_ONCE = 3
"""Children: most of their time they wait for the device."""
SMALL = (8, 64)
"""Batch and pixels of the model whose memory is predicted."""

CHECKED = {
    **{name: check for name, check in CHECKS.items() if not name.startswith("memory")},
    "memory resnet18": known_work.memory("resnet18", *SMALL),
}
"""All, with the smaller model of those whose memory is predicted, on small images."""


def small_steps() -> dict[str, measure.operations.tracer.Trace]:
    """The steps that checks trace on fake tensors, by what is asked for."""
    found = {}
    for size, pixels in ((known_work.BATCH, known_work.IMAGE_SIZE), SMALL):
        asked = traced_step.StepOptions(known_work.MODEL, "fp32", "sgd", "cuda", hyper={"image_size": pixels})
        found[f"{asked} {size}"] = traced_step.trace_batch(asked, size)
    return found


def answers() -> dict[str, dict[str, object]]:
    """Each check's row on the device of this process."""
    torch.cuda.init()
    facts = device_facts("cuda")
    asked = DeviceUnderTest("cuda", str(facts["name"]), facts["multiprocessors"])
    return {name: asdict(guarded(name, check, asked)) for name, check in CHECKED.items()}


def started(plan: Path, call: Callable[[], object]) -> IO[bytes]:
    """A child on the device of a plan; what it says is the answer to a call."""
    reader, writer = os.pipe()
    if not os.fork():
        os.environ |= {"STANDIN_PLAN": str(plan), "STANDIN_STATE": str(plan.with_suffix(".state"))}
        lines = plan.with_suffix(".environment")
        if lines.exists():
            os.environ |= dict(line.split() for line in lines.read_text().splitlines())
        with open(writer, "wb") as pipe:
            pickle.dump(call(), pipe)
        os._exit(0)
    os.close(writer)
    return open(reader, "rb")


def ended(pipe: IO[bytes]) -> Any:
    """A child's answer; empty if it died."""
    with pipe:
        said = pipe.read()
    os.wait()
    return pickle.loads(said) if said else {}


if __name__ == "__main__":
    for module, name, seconds in SHORT:
        setattr(module, name, seconds)
    plans = sorted(Path(sys.argv[1]).glob("*.plan"))
    traced = ended(started(plans[0], small_steps))  # in a child, too: torch forks no process that knows of a device
    traced_step.trace_batch = lambda asked, size: traced[f"{asked} {size}"]
    found = {}
    for first in range(0, len(plans), AT_ONCE):
        children = {plan.stem: started(plan, answers) for plan in plans[first : first + AT_ONCE]}
        found |= {name: ended(pipe) for name, pipe in children.items()}
    print(json.dumps(found))
