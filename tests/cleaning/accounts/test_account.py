"""Definition, law: causes of a counter's difference by hand; they add up, and one FLOP more is one unexplained."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from analysis.counters import COUNTERS
from analysis.operators.registry import model_flop
from cleaning.accounts import explain as account_explain
from cleaning.accounts.explain import FLOP_PER_NATIVE, PHASES, at_least, counted_by, explain, reconcile
from cleaning.accounts.items import CAUSES, PRODUCT, Item
from measure.counters.model_calls import record
from results.records.counts import FlopCount
from tests.support.account_nets.account_nets_layers import Lambda

BATCH = 2

WITH_BACKWARD = ("flopledger", "flop_counter_mode", "torch_profiler", "calflops")

CONV, DEPTHWISE, TRANSPOSED, HEAD = 43_200, 3_600, 1_024, 48
"""Multiply-adds of the four products of the network below, for a batch of 2."""


def network():
    """conv 3→8, 3 × 3, padding 1, on 2 × 100 positions: 2·100 · 27·8 = 43,200 multiply-adds and 1,600 biases
    depthwise 8, 3 × 3, stride 2, padding 1, on 2 × 25: 2·25 · 9·8 = 3,600; batch norm, ReLU, pooling of 400 elements
    transposed 8→4, 2 × 2, stride 2, of 2 × 4 positions: 2·4 · 8·4·4 = 1,024 and 2·16·4 = 128 biases
    linear 4→6: 2·4·6 = 48 and 12 biases"""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Conv2d(8, 8, 3, stride=2, padding=1, groups=8, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 6),
    )


@pytest.fixture(scope="module")
def recording():
    return record(network(), (torch.ones(BATCH, 3, 10, 10),))


@pytest.fixture(scope="module")
def tokens():
    """Linear layers on tokens, an embedding, a module of two parents."""
    layer = nn.Linear(6, 6)
    model = nn.Sequential(nn.Embedding(9, 6), nn.Sequential(layer), nn.Sequential(nn.ReLU(), layer))
    return record(model, (torch.zeros(BATCH, 5, dtype=torch.int64),))


def row(counter, native, phase="forward", **more):
    values = {"native_unit": COUNTERS[counter].unit, "native_value": native, "flop": 0, "status": "ok"} | more
    return FlopCount(counter=counter, workload="w", batch_size=BATCH, phase=phase, **values)


def account_of(counter, found, native, phase="forward", **more):
    (account,), causes = reconcile("w", BATCH, found, [row(counter, native, phase, **more)])
    return account, {(cause.cause, cause.module): cause.flop for cause in causes}


class TestExact:
    def test_the_exact_count_is_twice_the_multiply_adds(self, recording):
        assert at_least(recording, PHASES["forward"]) == 2 * (CONV + DEPTHWISE + TRANSPOSED + HEAD)

    def test_of_the_backward_pass_the_first_convolution_needs_one_product_alone(self, recording):
        """The images want no gradient: 2·43,200 for its weights; the others both."""
        assert at_least(recording, PHASES["backward"]) == 2 * CONV + 4 * (DEPTHWISE + TRANSPOSED + HEAD)


class TestByHand:
    """The whole account of one network, from the counters' documented rules."""

    def test_thop(self, recording):
        """A multiply-add is 1; the norm 4 an element, adaptive pooling (16 + 1) · 8; a transposed convolution at 2·16
        positions of its output instead of 2·4."""
        native = CONV + DEPTHWISE + 4 * TRANSPOSED + HEAD + 4 * 400 + 17 * 8
        account, causes = account_of("thop", recording, native)
        assert causes == {
            ("multiply_add_as_1", "0"): -CONV,
            ("multiply_add_as_1", "1"): -DEPTHWISE,
            ("multiply_add_as_1", "5"): -TRANSPOSED,
            ("multiply_add_as_1", "8"): -HEAD,
            ("transposed_at_output", "5"): 3 * TRANSPOSED,
            ("normalization_counted", "2"): 1_600,
            ("pooling_counted", "6"): 136,
        }
        assert account.unexplained_flop == 0
        assert account.largest_cause == "transposed_at_output"


class TestConservation:
    """Exact + causes + unexplained = native, whatever a rule says."""

    @given(data=st.data())
    def test_of_any_items(self, recording, data):
        length = len(recording.operations)
        places = st.integers(0, length)
        numbers = st.one_of(st.integers(-(10**9), 10**9), st.fractions(-1000, 1000))
        words = st.sampled_from(sorted(CAUSES))
        made = st.builds(
            lambda native, cause, bounds, fault: Item(native, cause, "matmul", "m", min(bounds), max(bounds), fault),
            numbers,
            st.one_of(st.just(PRODUCT), words),
            st.tuples(places, places),
            words,
        )
        items = data.draw(st.lists(made, max_size=6))
        unit = data.draw(st.sampled_from(sorted(FLOP_PER_NATIVE)))
        phase = data.draw(st.sampled_from(["forward", "backward"]))
        account = explain(recording, phase, unit, items, lambda _: "functional_not_seen")
        truth = sum(model_flop(op) for op in recording.operations if op.phase == phase)
        assert truth + sum(account.values(), Fraction(0)) == sum((Fraction(item.native) for item in items), Fraction(0))
        assert all(account.values())

    @pytest.mark.parametrize(
        ("counter", "phase"), [*((c, "forward") for c in COUNTERS), *((c, "backward") for c in WITH_BACKWARD)]
    )
    def test_one_more_is_exactly_one_unexplained(self, counter, phase, recording, tokens):
        for found in (recording, tokens):
            # what a counter gives if its rule is right: the sum of its items
            items, _ = counted_by(counter, found, phase)
            native = sum(Fraction(item.native) for item in items)
            assert account_of(counter, found, native, phase)[0].unexplained_flop == 0
            for more in (1, -1, 10**12):
                assert account_of(counter, found, native + more, phase)[0].unexplained_flop == more


class TestRulesAreBlind:
    def test_the_units_of_counters_are_those_that_can_be_converted(self):
        assert {entry.unit for entry in COUNTERS.values()} == set(FLOP_PER_NATIVE)


class TestRows:
    def test_a_counter_that_failed_is_a_row_without_causes(self, recording):
        for status in ("invalid", "crashed", "timeout", "unavailable"):
            failed = row("thop", None, status=status, reason="no more", native_unit="", flop=None)
            (account,), causes = reconcile("w", BATCH, recording, [failed])
            assert causes == []
            assert (account.status, account.reason) == (status, "no more")
            assert account.unexplained_flop is None
            assert account.flop_ratio is None
            assert account.exact_flop == at_least(recording, PHASES["forward"])

    def test_the_narrowest_item_around_an_operation_has_it(self, recording):
        """A wide item around all products, a narrow one around the first: the wide one has the others."""
        first = next(op for op in recording.operations if model_flop(op))
        everything = Item(0, PRODUCT, "matmul", "", 0, len(recording.operations), "broadcast_from_first")
        narrow = Item(2 * CONV, PRODUCT, "convolution", "0", first.index, first.index + 1, "even_kernel")
        account = explain(recording, "forward", "flop", [everything, narrow], lambda _: "functional_not_seen")
        assert account == {("broadcast_from_first", "convolution", ""): -2 * (DEPTHWISE + TRANSPOSED + HEAD)}
        assert account_explain.FLOP_PER_NATIVE == {"flop": 1, "mac": 2}


def test_complex_numbers_are_a_cause_of_every_rule_that_goes_by_sizes():
    """3 × 4 by 4 × 2 of complex numbers: 24 multiply-adds, of 4 real ones each: 192 FLOP, taken for 48."""
    model = Lambda(lambda m, x: (x @ m.weight).abs(), weight=nn.Parameter(torch.ones(4, 2, dtype=torch.complex64)))
    found = record(model, (torch.ones(3, 4, dtype=torch.complex64),), plain=False)
    assert at_least(found, PHASES["forward"]) == 192
    for counter in ("flop_counter_mode", "torch_profiler", "deepspeed"):
        (account,), causes = reconcile("w", BATCH, found, [row(counter, 48)])
        assert account.unexplained_flop == 0
        assert [(cause.cause, cause.flop) for cause in causes] == [("complex_as_real", -144)]
    (account,), causes = reconcile("w", BATCH, found, [row("fvcore", 24)])
    assert {(cause.cause, cause.flop) for cause in causes} == {("multiply_add_as_1", -96), ("complex_as_real", -72)}
