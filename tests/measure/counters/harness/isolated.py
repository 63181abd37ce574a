"""Counters that misbehave, each run as a counter is: in a process of its own."""

from analysis.counters import CounterEntry
from measure.counters.isolation import count_isolated
from workloads.catalogue.catalogue import factory

FAKES = {
    name: CounterEntry(f"tests.support.fakes.fake_counters:{name}", requires="nothing")
    for name in (
        "printing",
        "hungry",
        "crashing",
        "crashing_later",
        "leaving",
        "hanging",
        "lingering",
        "orphaning",
        "raising",
        "exhausted",
        "silent",
        "not_a_number",
    )
}

TINY = {"width": 8, "depth": 2}


def run(counter, batch_sizes=(1, 2), timeout_s=60.0, registry=FAKES):
    return count_isolated(
        counter,
        "synthetic_matmul",
        TINY,
        batch_sizes,
        timeout_s,
        factory=factory("synthetic_matmul"),
        registry=registry,
    )
