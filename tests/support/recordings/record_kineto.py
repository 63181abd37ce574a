"""A small training step under torch's profiler and our ranges: for live tests, and for the recordings in tests/data.

    python -m tests.support.recordings.record_kineto tests/data/kineto_torch215.json.gz           # with our own ranges
    python -m tests.support.recordings.record_kineto tests/data/kineto_torch215_plain.json.gz --plain
    python -m tests.support.recordings.record_kineto tests/data/kineto_torch215_stack.json.gz --plain --stack

The network has a grouped convolution under checkpointing, so that its forward pass is recalculated, a layer that is
called twice, and a loss. --plain: as anybody would record, without our ranges; --stack: with torch's frames of modules.
What names the machine is left out of the files, and of the Python frames all but those of modules.
"""

import argparse
import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from measure.model.module_paths import ModuleRanges
from measure.timing.profiler_ranges import Ranges
from results.process import collector_off

STEPS = 2


class Net(nn.Module):
    """Convolution, checkpointed grouped convolution, a linear layer, another one called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.again = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.BatchNorm2d(4), nn.ReLU())
        self.middle = nn.Linear(4 * 8 * 8, 5)
        self.twice = nn.Linear(5, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.first(x))
        x = checkpoint(self.again, x, use_reentrant=False)
        x = self.middle(x.flatten(1))
        return self.twice(self.twice(x))


def training() -> tuple[nn.Module, Callable[..., Any]]:
    """The model and one step of its training, which announces its phases."""
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, classes = torch.randn(2, 3, 8, 8), torch.tensor([1, 2])

    def step(mark: Callable[[str], None]) -> None:
        optimizer.zero_grad()
        mark("forward")
        output = model(images)
        mark("loss")
        loss = F.cross_entropy(output, classes)
        mark("backward")
        loss.backward()
        mark("optimizer")
        optimizer.step()
        mark("end")

    return model, step


def with_ranges(path: Path) -> Any:
    """Two steps as `measure.profile.recording` runs them, exported to a file; torch's own recording of the
    same."""
    model, step = training()
    ranges = Ranges(True)
    ranged = ranges.step(step)
    profiler = torch.autograd.profiler.profile(use_kineto=True, record_shapes=True, with_flops=True)
    with ModuleRanges(model), profiler, collector_off():
        for _ in range(STEPS):
            with ranges.around("batch"):
                ranged(lambda _: None)
    profiler.export_chrome_trace(str(path))
    return profiler.kineto_results


def plain(path: Path, stack: bool) -> None:
    """Two steps as anybody records them: no annotation but torch's own."""
    _, step = training()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True, with_stack=stack
    ) as profiler:
        for _ in range(STEPS):
            step(lambda _: None)
    profiler.export_chrome_trace(str(path))


def shrink(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace without what names a machine or its files."""
    events = [
        event
        for event in trace["traceEvents"]
        if event.get("cat") != "python_function" or event["name"].startswith("nn.Module: ")
    ]
    kept = {name: value for name, value in trace.items() if name not in ("host_name", "traceName", "trace_id")}
    return {**kept, "traceEvents": [event for event in events if event.get("ph") != "M"]}


def main() -> None:
    """Write one file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("path", type=Path)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--stack", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        raw = Path(directory) / "trace.json"
        if options.plain:
            plain(raw, options.stack)
        else:
            with_ranges(raw)
        trace = shrink(json.loads(raw.read_text()))
    options.path.write_bytes(gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), 9, mtime=0))


if __name__ == "__main__":
    main()
