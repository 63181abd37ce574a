"""Every counter's rule against the counter itself: on small networks, every FLOP of difference has a cause.

The counters are the installed ones, each in a process of its own; the rules see recordings and no total.
"""

from __future__ import annotations

import functools

import account_nets
import pytest
from account_counts import BATCHES, counted, recorded

from cleaning.accounts.causes import CAUSES
from cleaning.accounts.reconcile import reconcile
from cleaning.accounts.registry import RULES
from measure.counters import isolate

UNTRACEABLE = "sampling subclasses deformable modulated encoder packed in_place data_decides einops_contraction"

CRASHES = {
    "fvcore": "vectors checkpointed_with_reentry",
    "ptflops": "packed module_keywords",
    "pthflops": f"{UNTRACEABLE} attention_with_weights vectors named_convolution timm_attention vision_block "
    "module_keywords several_inputs",
    "deepspeed": "packed",
    "calflops": "packed",
    "thop": "module_keywords",
}
"""Counter → the nets that it gives no number for: torch.fx cannot trace what asks a tensor for its length or value,
pthflops takes a tuple for a count, fvcore has no rule for a vector as an operand, packed sequences have no shape."""

CRASHES_ONCE = {"calflops": {("resizing_by_each_side", 1)}}
"""calflops compares a factor's length with the batch: two factors go with a batch of two, and no other."""


@pytest.fixture(autouse=True, scope="module")
def server():
    isolate.prepare()


@functools.cache
def accounts(counter):
    """(accounts, causes) of a counter over all nets and batches."""
    found, causes = [], []
    for (name, size), rows in counted(counter).items():
        mine, why = reconcile(name, size, recorded(name, size), rows)
        found += mine
        causes += why
    return found, causes


@pytest.mark.parametrize("counter", RULES)
def test_every_flop_of_difference_has_a_cause(counter):
    found, _ = accounts(counter)
    left = {(a.model, a.batch_size, a.phase): a.unexplained_flop for a in found if a.unexplained_flop}
    assert left == {}
    failed = {(a.model, a.batch_size) for a in found if a.status != "ok"}
    crashes = {(name, size) for name in CRASHES.get(counter, "").split() for size in BATCHES}
    assert failed == crashes | CRASHES_ONCE.get(counter, set())
    assert {(a.model, a.batch_size) for a in found} == {(name, size) for name in account_nets.NETS for size in BATCHES}
    assert all(a.unexplained_flop == 0 for a in found if a.status == "ok")


def test_the_causes_add_up_to_the_difference():
    """Again, by hand: exact + causes = native, of each counter, net, batch and pass."""
    for counter in RULES:
        found, causes = accounts(counter)
        for account in found:
            if account.status == "ok":
                where = (account.model, account.batch_size, account.phase)
                mine = [c.flop for c in causes if (c.model, c.batch_size, c.phase) == where]
                assert account.exact_flop + sum(mine) == pytest.approx(account.native_value, abs=1e-6)


def test_the_vocabulary_is_that_of_the_rules():
    """Each cause is shown by some net, and no rule gives another."""
    assert {cause.cause for counter in RULES for cause in accounts(counter)[1]} == set(CAUSES)


def causes_of(counter, name, size=1, phase="forward"):
    """Cause → what it adds, of one net."""
    sums = {}
    for cause in accounts(counter)[1]:
        if (cause.model, cause.batch_size, cause.phase) == (name, size, phase):
            sums[cause.cause] = sums.get(cause.cause, 0) + cause.flop
    return sums
