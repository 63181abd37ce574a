"""`python -m runners.formula`."""

import sys

from runners.cli.exits import exit_code
from runners.formula.command import main

if __name__ == "__main__":
    sys.exit(exit_code(main))
