"""`python -m runners.instructions`."""

from __future__ import annotations

import sys

from runners.cli import exit_code
from runners.instructions.command import main

if __name__ == "__main__":
    sys.exit(exit_code(main))
