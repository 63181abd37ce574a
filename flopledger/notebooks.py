"""Helps the notebooks: installs their requirements from the first cell, and shrinks their problem sizes for tests.

    %run -m flopledger.notebooks [requirements-counters.txt …]

This installs requirements.txt and the named files of the checkout, and prints one line: ready, or pip's reason. Without
a checkout nothing is installed, since an installed wheel has what it needs. Installed versions of torch and torchvision
(Colab's, built for its device) stay; pip refuses if one is outside this project's range. No restart is needed. Later
commands write lines of 100 columns without progress bars or colours, which notebook cells cannot show. `choose` returns
the small size if FLOPLEDGER_SMALL is set, as in tests. `folder` names a new folder in FLOPLEDGER_NOTEBOOK_OUT or
results/runs.
"""

import os
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

CHECKOUT = Path(__file__).resolve().parents[1]
HELD = ("torch", "torchvision")
PLAIN = {"TERM": "dumb", "NO_COLOR": "1", "COLUMNS": "100", "LINES": "50"}  # rich wants both sizes


def held() -> list[str]:
    """Return a pip requirement for each installed package that must keep its version."""
    lines = []
    for name in HELD:
        try:
            lines.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            continue
    return lines


def command(files: list[str], pins: list[str]) -> list[str]:
    """Return pip's arguments."""
    paths = [part for name in ("requirements.txt", *files) for part in ("-r", str(CHECKOUT / name))]
    return [sys.executable, "-m", "pip", "install", "--quiet", *paths, *pins]


def main(files: list[str]) -> str:
    """Install the requirements, and return a line: which versions are ready, or why pip failed."""
    if not (CHECKOUT / "requirements.txt").is_file():
        without = f"; installed from a wheel, without {', '.join(files)}" if files else "; installed from a wheel"
        return f"ready: {', '.join(held())}{without}"
    pins = held()
    done = subprocess.run(command(files, pins), capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.splitlines() or ["no reason given"]
        reason = next((line for line in lines if line.startswith("ERROR")), lines[0])
        with_pins = f" beside {', '.join(pins)}" if pins else ""
        return f"pip could not install{with_pins}: {reason}"
    return f"ready: {', '.join(held())}"


T = TypeVar("T")


def choose(full: T, *, small: T) -> T:
    """Return `full`, or `small` if FLOPLEDGER_SMALL is set."""
    return small if os.environ.get("FLOPLEDGER_SMALL") else full


def folder(name: str) -> Path:
    """Return a path for the files of one run of a notebook, with the time in its name. Nothing is created."""
    base = Path(os.environ.get("FLOPLEDGER_NOTEBOOK_OUT", "results/runs"))
    return base / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def on_cuda() -> bool:
    """Return whether there is a CUDA device."""
    import torch

    return torch.cuda.is_available()


def train_step(model: Any, optimizer: Any, batch: Any) -> None:
    """Run one step on images and labels."""
    from torch.nn.functional import cross_entropy

    images, labels = batch
    optimizer.zero_grad()
    cross_entropy(model(images), labels).backward()
    optimizer.step()


if __name__ == "__main__":
    os.environ.update(PLAIN)
    print(main(sys.argv[1:]))
