"""Every counter on every net of `account_nets`, and what the nets call: one process a counter, all nets in it."""

import contextlib
import dataclasses
import functools
import importlib
import io
import warnings

import torch
from torch import nn

from measure.counters.isolation import count_isolated
from measure.counters.model_calls import record
from measure.counters.registry import COUNTERS
from results.records.counts import FlopCount
from results.records.rows import WHOLE
from tests.support.account_nets import account_nets
from workloads.catalogue.base import Batch, Workload, mean_loss

BATCHES = (1, 2)

TRAINED = ("Auxiliary", "EvaluatedOnly", "frozen", "small", "checkpointed")
"""Nets whose training step is recorded, too; of the others, exact is their evaluation."""


@functools.cache
def recorded(name, size):
    """What a net calls at a batch size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's of complex numbers cast, and of old names: nothing of ours
        found = record(account_nets.get(name).build(), account_nets.inputs_of(name, size))
        if name not in TRAINED:
            return found
        from runners.sweep.cell import training

        return dataclasses.replace(found, training=training(account_nets.get(name), size))


@functools.cache
def counted(counter):
    """Rows of a counter by net and batch size; a net that it cannot count is one row with the reason."""
    registry = {counter: ("tests.support.oracles.account_counts:count_all", COUNTERS[counter][1])}
    rows = count_isolated(
        counter, counter, {}, BATCHES, 600, factory="tests.support.oracles.account_counts:named", registry=registry
    )
    found = {}
    for row in rows:
        found.setdefault((row.workload, row.batch_size), []).append(row)
    return found


def named(counter):
    """A workload that holds nothing but the counter's name, for `count_all`."""
    return Workload(
        name=counter,
        task="general",
        hyper={},
        build=nn.Identity,
        batch=lambda *_: Batch((torch.zeros(1),), None),
        loss=mean_loss,
        items=lambda *_: 1,
        item="sample",
        source=__name__,
    )


def count_all(model, inputs, *, workload, batch_size):
    """The adapter of the counter that `workload` names, on all nets."""
    target, _, function = COUNTERS[workload][0].partition(":")
    adapter = getattr(importlib.import_module(target), function)
    return [row for name in account_nets.NETS for row in _rows(adapter, workload, name, batch_size)]


def _rows(adapter, counter, name, size):
    model, inputs = account_nets.get(name).build().eval(), account_nets.inputs_of(name, size)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            rows = adapter(model, inputs, workload=name, batch_size=size)
    except Exception as fault:  # noqa: BLE001  as in measure.counters.child
        reason = f"{type(fault).__name__}: {fault}"
        return [
            FlopCount(counter=counter, workload=name, batch_size=size, phase="forward", status="invalid", reason=reason)
        ]
    return [row for row in rows if row.scope == WHOLE]
