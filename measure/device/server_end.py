"""Imported by the server that forks children, first of all: it dies with the process that started it.

A server that still imports torch would else outlive a parent that was killed. Anywhere else this does nothing: the
variable names the parent, and only while the server starts.
"""

import os

from measure.device.processes import SERVER_OF
from results import die_with_parent

if os.environ.pop(SERVER_OF, "") == str(os.getppid()):
    die_with_parent()
