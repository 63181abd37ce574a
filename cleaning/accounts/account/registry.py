"""Which counter has an account, and where its rule is: one line a counter. Rules are imported when asked for."""

from __future__ import annotations

import importlib
from typing import Any

RULES = {
    "flopledger": "cleaning.accounts.rules.flopledger",
    "flop_counter_mode": "cleaning.accounts.rules.flop_counter_mode",
    "torch_profiler": "cleaning.accounts.rules.torch_profiler",
    "fvcore": "cleaning.accounts.rules.fvcore",
    "ptflops": "cleaning.accounts.rules.ptflops",
    "ptflops_aten": "cleaning.accounts.rules.ptflops_aten",
    "pthflops": "cleaning.accounts.rules.pthflops",
    "deepspeed": "cleaning.accounts.rules.deepspeed",
    "calflops": "cleaning.accounts.rules.calflops",
    "thop": "cleaning.accounts.rules.thop",
    "torchinfo": "cleaning.accounts.rules.torchinfo",
}
"""Counter → module with UNIT ("mac" or "flop", of its native total) and count(recording, phase) -> Counted."""


def rule_of(counter: str) -> Any:
    """The module with a counter's rule. Raises KeyError for a counter that has none."""
    return importlib.import_module(RULES[counter])
