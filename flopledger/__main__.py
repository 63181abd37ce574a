"""`flopledger NAME …`, or `python -m flopledger NAME …`: the commands, as `python -m runners NAME …` in a checkout."""

from runners.__main__ import console

if __name__ == "__main__":
    console()
