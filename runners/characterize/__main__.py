"""`python -m runners.characterize`."""

import sys

from runners.characterize.command import main
from runners.cli.exits import exit_code

if __name__ == "__main__":
    sys.exit(exit_code(main))
