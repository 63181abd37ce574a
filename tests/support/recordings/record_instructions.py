"""What each ATen call of a small model's training step executes, counted by valgrind: for tests/data/instructions.

    python -m tests.support.recordings.record_instructions resnet18 tests/data/instructions

A file has a model's name, the version of torch, and (operator, kind → lanes) of each call, in order. Minutes a model.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data" / "instructions"


def recorded(name: str) -> dict[str, Any]:
    """What the file of a model says."""
    found: dict[str, Any] = json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))
    return found


def main() -> None:
    import torch

    from measure.instructions import count_calls
    from runners.instructions.models import MAKER

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    calls = count_calls(options.model, MAKER)
    content = json.dumps({"model": options.model, "torch": torch.__version__, "calls": calls}, indent=0)
    file = options.folder / f"{options.model}.json.gz"
    file.write_bytes(gzip.compress(content.encode(), mtime=0))


if __name__ == "__main__":
    main()
