"""`python -m runners.sweep`."""

import sys

from runners.cli.exits import exit_code
from runners.sweep.command import main

if __name__ == "__main__":
    sys.exit(exit_code(main))
