"""Makes multiprocessing's fork server exit with its parent, and ignore Ctrl-C and SIGTERM.

Importing this module takes effect; nothing in it is called. The server imports it before all other modules, because
importing torch takes long. Meanwhile the server would otherwise outlive a parent that was killed, or print a traceback
at Ctrl-C. The server's children react to Ctrl-C as any process does. In other processes the import has no effect: the
variable with the parent's id is set only while the server starts. A server that cannot import this module (Python 3.11
gives it no `sys.path`) leaves the variable set, which is harmless.
"""

import multiprocessing
import os
import signal

from measure.device.processes import SERVER_OF
from results.process import die_with_parent

SERVER = os.getpid()


def in_children(number: int, frame: object) -> None:
    """Interrupt a child on SIGINT. The server ignores the signal, and ends with its parent."""
    if os.getpid() != SERVER:
        signal.default_int_handler(number, None)


def end_children(number: int, frame: object) -> None:
    """End a child on SIGTERM, but not the server. Where a whole process group is ended (torchrun does that), the parent
    still needs the server to keep its rows."""
    if os.getpid() != SERVER:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


if (parent := os.environ.pop(SERVER_OF, "")) and multiprocessing.parent_process() is None:
    if parent != str(os.getppid()):
        os._exit(0)  # the parent has ended already
    die_with_parent()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, in_children)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end_children)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
