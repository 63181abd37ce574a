"""`python -m runners.audit`."""

from __future__ import annotations

import sys

from runners.audit.command import main
from runners.cli import exit_code

if __name__ == "__main__":
    sys.exit(exit_code(main))
