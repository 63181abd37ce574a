"""`python -m runners.doctor`."""

import sys

from runners.cli.exits import exit_code
from runners.doctor.command import main

if __name__ == "__main__":
    sys.exit(exit_code(main))
