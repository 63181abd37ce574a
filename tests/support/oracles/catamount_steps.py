"""Catamount's models counted by its rules with the terms of its graphs on top."""

from __future__ import annotations

from benchmarks.pages.catamount import rules, traced
from reports.formula.catamount_page import CatamountModel, sums


def counted(model: str, batch: int, **hyper: int) -> tuple[int, ...]:
    """(parameters, FLOP, bytes, total footprint) of one step at these sizes."""
    step, parameters, sizes = traced(model, batch, **hyper)
    own = rules(step, parameters)
    added = sums(CatamountModel(model, {**sizes, "batch": batch}, "", own, own)).values()
    return tuple(map(sum, zip(own, added, strict=True)))
