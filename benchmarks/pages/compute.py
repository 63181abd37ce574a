"""docs/compute.md: tables of what published runs predict, and what two commands print.

    python -m benchmarks.pages.compute --write docs/compute.md

Runs nothing on a device. Without --write it prints the page.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
from pathlib import Path

from reports.project.compute_page import page
from runners.project import command

SHOWN = {
    "compute": ["--compute", "--gpu-hours", "300", "--device", "NVIDIA A100-SXM4-80GB", "--family", "cnn"],
    "budget": ["--budget", "64 GPU-days", "--device", "NVIDIA H100 80GB HBM3", "--domain", "transformer"],
}


def made() -> str:
    """The page. Raises RuntimeError where a command fails."""
    return page({name: _printed(arguments) for name, arguments in SHOWN.items()})


def _printed(arguments: list[str]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if command.main(arguments):
            raise RuntimeError(f"runners.project {arguments} failed")
    return out.getvalue()


def main() -> int:
    """Print or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE")
    path = parser.parse_args().write
    if path is None:
        print(made(), end="")
    else:
        path.write_text(made(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
