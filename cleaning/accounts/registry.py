"""Which counter has an account, and where its rule is: one line a counter. Rules are imported when asked for."""

from __future__ import annotations

import importlib
from typing import Any

RULES = {
    "flopledger": "cleaning.accounts.flopledger",
    "flop_counter_mode": "cleaning.accounts.flop_counter_mode",
    "torch_profiler": "cleaning.accounts.torch_profiler",
    "fvcore": "cleaning.accounts.fvcore",
    "ptflops": "cleaning.accounts.ptflops",
    "ptflops_aten": "cleaning.accounts.ptflops_aten",
    "pthflops": "cleaning.accounts.pthflops",
    "deepspeed": "cleaning.accounts.deepspeed",
    "calflops": "cleaning.accounts.calflops",
    "thop": "cleaning.accounts.thop",
    "torchinfo": "cleaning.accounts.torchinfo",
}
"""Counter → module with UNIT ("mac" or "flop", of its native total) and count(recording, phase) -> Counted."""


def rule_of(counter: str) -> Any:
    """The module with a counter's rule. Raises KeyError for a counter that has none."""
    return importlib.import_module(RULES[counter])
