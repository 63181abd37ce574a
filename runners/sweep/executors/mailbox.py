"""A slot in a batch job: orders and results are files in a directory that both machines see.

Each file appears whole, under a number that is used once. The slot reads its orders in turn and ends when it is told
to, or when the other side has been silent for `SILENCE_S`, by its own clock: times of two machines are not compared.
"""

from __future__ import annotations

import importlib
import os
import pickle
import time
from pathlib import Path
from typing import Any

from runners.sweep.executors.result import SlotSettings

POLL_S = 0.2
BEAT_S = 5.0
SILENCE_S = 300.0

END, BEAT, FACTS, FAULT = "end", "beat", "facts", "fault"


class Mailbox:
    """One slot's directory. Both sides make one of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, name: str, value: Any) -> None:
        """Leaves a value, whole or not at all. Raises OSError."""
        hidden = self.folder / f".{name}.{os.getpid()}"
        hidden.write_bytes(pickle.dumps(value))
        hidden.replace(self.folder / name)

    def get(self, name: str) -> Any:
        """A value; None if it is not there. Raises OSError."""
        try:
            return pickle.loads((self.folder / name).read_bytes())
        except FileNotFoundError:
            return None

    def take(self, name: str) -> Any:
        """A value, which is not there any more; None if it was not."""
        value = self.get(name)
        if value is not None:
            (self.folder / name).unlink()
        return value


def serve(folder: str, settings: SlotSettings, slot: str, silence_s: float = SILENCE_S) -> str:
    """The slot of a job: measures what is ordered, until the end; why it ended. slot: "module:class" of it."""
    module, _, name = slot.partition(":")
    mailbox, made = Mailbox(Path(folder)), getattr(importlib.import_module(module), name)(settings)
    try:
        mailbox.put(FACTS, made.place())
        return _answer_orders(mailbox, made, silence_s)
    except (ValueError, OSError) as fault:
        mailbox.put(FAULT, " ".join(str(fault).split()))
        return "fault"
    finally:
        made.close()


def _answer_orders(mailbox: Mailbox, slot: Any, silence_s: float) -> str:
    number, beat, heard_s = 0, None, time.monotonic()
    while mailbox.get(END) is None:
        if (now := mailbox.get(BEAT)) != beat:
            beat, heard_s = now, time.monotonic()
        elif time.monotonic() - heard_s > silence_s:
            return "silence"
        order = mailbox.take(f"order-{number}")
        if order is None:
            time.sleep(POLL_S)
            continue
        mailbox.put(f"result-{number}", slot.measure(order))
        number, heard_s = number + 1, time.monotonic()
    return "end"
