"""The plan of each operator that was called so far, and with it what is known of its signatures.

They are kept for one default dtype at a time: it decides what `empty` makes and what an integer tensor times 0.5 is.
"""

from __future__ import annotations

from typing import Any

import torch

from measure.dispatch.schemas import Plan

_PLANS: dict[torch.dtype, dict[int, Plan]] = {}
"""Default dtype → id of an operator → its plan, which keeps the operator alive."""


def plan_of(func: Any) -> Plan:
    """The plan of an operator under the default dtype of now."""
    plans = _PLANS.get(torch.get_default_dtype())
    if plans is None:
        plans = _PLANS[torch.get_default_dtype()] = {}
    plan = plans.get(id(func))
    if plan is None:
        plan = plans[id(func)] = Plan(func)
    return plan


def clear_cache() -> None:
    """Forget what is known of operators and signatures, as in a new process. Only benchmarks and tests need it."""
    _PLANS.clear()
