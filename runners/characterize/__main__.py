"""`python -m runners.characterize`."""

from __future__ import annotations

import sys

from runners.characterize.command import main
from runners.cli.exits import exit_code

if __name__ == "__main__":
    sys.exit(exit_code(main))
