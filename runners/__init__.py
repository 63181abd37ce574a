"""The commands: they parse, call, print and choose an exit code, and no other package does.

While a command imports what it needs, Ctrl-C ends it with exit code 130.
"""

import os
import signal
import sys
from typing import Any


def end_at_once(*_: Any) -> None:
    """The handler of SIGINT while a command is imported: nothing was begun, and a traceback of imports says nothing."""
    os._exit(128 + signal.SIGINT)


if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, end_at_once)  # argv is so while Python looks for the command that `python -m` names
