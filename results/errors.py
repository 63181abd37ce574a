"""Defines the faults that measuring meets, besides `ValueError` (the caller's mistake), and puts messages on one line.

Nothing here decides what happens next: a command turns `Unavailable` into a row with a reason and goes on, and stops
the one analysis that met `Inconsistent`.
"""


class Unavailable(Exception):
    """Something this machine or installation does not offer: no GPU, no permission, no such counter."""


class DeviceLost(Unavailable):
    """The device is gone for good, or must be reset: nothing more can be measured on it in this session."""


class Inconsistent(Exception):
    """The data contradict each other, so that no number can be given from them."""


class StoreFault(Exception):
    """The run directory could not be written; whole rows are kept and the run can be resumed."""


def one_line(text: str, longest: int) -> str:
    """Put the text on one line of at most `longest` characters, cut between two words.

    A word that fills more than half of it (a path, a mangled name) is cut inside.
    """
    line = " ".join(text.split())
    if len(line) <= longest:
        return line
    start, _, _ = line[: longest - 1].rpartition(" ")
    return f"{start} …" if len(start) >= longest // 2 else f"{line[: longest - 1]}…"
