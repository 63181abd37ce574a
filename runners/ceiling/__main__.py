"""`python -m runners.ceiling`."""

import sys

from runners.ceiling.command import main
from runners.cli.exits import exit_code

if __name__ == "__main__":
    sys.exit(exit_code(main))
