"""`python -m runners.atlas`."""

from __future__ import annotations

import sys

from runners.atlas.command import main
from runners.cli import exit_code

if __name__ == "__main__":
    sys.exit(exit_code(main))
