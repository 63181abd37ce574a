"""Runs a command: `flopledger NAME …` and `python -m flopledger NAME …` do what `python -m runners NAME …` does.

It reads the command line, and ends the process with the command's exit code.
"""

from runners.__main__ import console

if __name__ == "__main__":
    console()
