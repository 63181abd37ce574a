"""Runs `flopledger NAME …`, or `python -m flopledger NAME …`: the commands that a checkout has as `python -m runners
NAME …`."""

from runners.__main__ import console

if __name__ == "__main__":
    console()
