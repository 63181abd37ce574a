"""Injected fault, known answer, law: whatever a counter in its own process does becomes rows, and nothing stays."""

import ast
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.counters import COUNTERS, CounterEntry, kind_of_operator
from cleaning.counts import batches_to_count, extrapolate
from measure.counters import isolation
from measure.counters.isolation import count_isolated
from results.records.counts import FlopCount
from tests.measure.counters.harness.isolated import TINY, run
from tests.support.processes import is_alive, wait_until_gone
from workloads.catalogue.catalogue import factory


@pytest.fixture(autouse=True, scope="module")
def server():
    isolation.prepare()


def statuses(rows):
    return [(row.batch_size, row.status) for row in rows]


FAILURES = {
    "crashing": (["crashed", "crashed"], "SIGSEGV", "null pointer"),  # its last words
    "crashing_later": (["ok", "crashed"], "SIGSEGV"),
    "leaving": (["crashed", "crashed"], "status 3"),
    "orphaning": (["crashed", "crashed"], "SIGABRT"),  # seen before its limit, though another process holds the pipe
    "raising": (["invalid", "invalid"], "RuntimeError: cannot count this model"),
    "exhausted": (["out_of_memory", "out_of_memory"],),
    "silent": (["invalid", "invalid"],),
}
"""Counter → status at a batch of 1 and of 2, and words of the first reason."""


class TestOutcomes:
    def test_rows_come_back_and_the_noise_does_not(self, capfd):
        rows = run("printing")
        assert [(row.batch_size, row.operator, row.flop, row.status) for row in rows] == [
            (1, "", 20, "ok"),
            (1, "conv", 20, "ok"),
            (2, "", 40, "ok"),
            (2, "conv", 40, "ok"),
        ]
        assert capfd.readouterr() == ("", "")

    def test_the_total_carries_time_and_memory(self):
        (total,) = run("hungry", batch_sizes=(1,))
        assert 0 < total.duration_s < 60
        assert 95_000_000 < total.peak_memory_bytes < 400_000_000  # 100 MB held, and what torch needs for a batch

    @pytest.mark.parametrize("counter", FAILURES)
    def test_a_counter_that_fails_is_a_row_with_its_reason_and_what_was_counted_before_is_kept(self, counter):
        expected, *words = FAILURES[counter]
        rows = run(counter)
        assert statuses(rows) == list(zip((1, 2), expected, strict=True))
        failed = [row for row in rows if row.status != "ok"]
        assert all(each in failed[0].reason for each in words)
        assert {(row.native_value, row.flop) for row in failed} == {(None, None)}
        assert all("not tried after a batch of 1" in row.reason for row in failed[1:])

    def test_a_hang_ends_at_its_limit_with_all_that_it_started(self):
        start_s = time.monotonic()
        (row,) = run("hanging", batch_sizes=(1,), timeout_s=4.0)
        assert time.monotonic() - start_s < 30
        assert row.status == "timeout"
        assert "4 s" in row.reason
        wait_until_gone(int(row.reason.rsplit(" ", 1)[1]))

    @pytest.mark.parametrize(("size", "said"), [(2, "nan (total)"), (4, "inf (conv)")])
    def test_a_count_that_is_no_number_is_a_fault(self, size, said):
        rows = run("not_a_number", batch_sizes=(1, size))
        assert statuses(rows) == [(1, "ok"), (1, "ok"), (size, "invalid")]
        assert rows[-1].reason == f"Inconsistent: expected a count at a batch of {size}, the counter gave {said}"
        assert rows[-1].native_value is rows[-1].flop is None

    def test_a_missing_counter_says_what_to_type(self):
        registry = {"absent": CounterEntry("no_such_counter_package:count", requires="absent>=1")}
        rows = run("absent", registry=registry)
        assert statuses(rows) == [(1, "unavailable"), (2, "unavailable")]
        assert "python -m pip install 'absent>=1'" in rows[0].reason


@pytest.mark.parametrize("counter", COUNTERS)
def test_real_counters_know_the_synthetic_answer(counter):
    """2 layers of 8 × 8 at a batch of 3: 2 · 3 · 64 multiply-adds, and 3 · 3 · 64 backward; 2 · 64 weights."""
    name = "synthetic_matmul"
    rows = count_isolated(counter, name, TINY, (3,), 120, factory=factory(name))
    (total, linear) = [row for row in rows if (row.scope, row.phase) == ("total", "forward")]
    assert (linear.native_value, linear.native_unit) in ((384, "mac"), (768, "flop"))
    assert linear.flop == total.flop == 768
    assert kind_of_operator(counter, linear.operator) == "matmul"
    backward = [row.flop for row in rows if (row.scope, row.phase, row.operator) == ("total", "backward", "")]
    assert backward == BACKWARD.get(counter, [])
    assert [row.parameters for row in rows if row.parameters is not None] == PARAMETERS.get(counter, [2 * 64])
    assert total.parameters == (None if counter in PARAMETERS else 2 * 64)


BACKWARD = {
    **{name: [2 * 3 * 3 * 64] for name in ("flopledger", "flop_counter_mode", "torch_profiler")},
    "calflops": [2 * 768],  # twice the forward pass, though the input needs no gradient
}
PARAMETERS = {name: [] for name in ("flop_counter_mode", "torch_profiler", "pthflops")}  # they tell of none


def test_what_to_install_is_what_the_requirements_say():
    root = Path(__file__).parents[4]
    lines = [line for file in root.glob("requirements*.txt") for line in file.read_text().splitlines()]
    assert {package for entry in COUNTERS.values() for package in entry.requires.split()} <= set(lines)
    assert [name for name, entry in COUNTERS.items() if not entry.requires] == [
        "flopledger",
        "flop_counter_mode",
        "torch_profiler",
    ]


def test_a_limit_on_memory_that_is_lower_than_the_free_memory_stays():
    code = "import resource; from tests.measure.counters.harness.isolated import run\n"
    code += "resource.setrlimit(resource.RLIMIT_DATA, (6 << 30,) * 2); print([row.status for row in run('printing')])"
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True)
    assert {*ast.literal_eval(done.stdout)} == {"ok"}


def test_a_counter_that_answered_and_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(isolation, "GRACE_S", 0.2)
    before_s = time.monotonic()
    assert statuses(run("lingering", (1,))) == [(1, "ok")]
    assert time.monotonic() - before_s < 60


@pytest.mark.parametrize(
    ("batch_size", "counted"), [(1, (1, 2)), (2, (1, 2)), (8, (1, 2, 8)), (16, (1, 2, 16)), (128, (1, 2, 16))]
)
def test_batches_to_count(batch_size, counted):
    assert batches_to_count(batch_size) == counted


def made(batch_size, native, operator="", **fields):
    values = {"native_value": native, "native_unit": "mac", "flop": 2 * native, "phase": "forward"} | fields
    return FlopCount(counter="fake", workload="w", batch_size=batch_size, operator=operator, **values)


class TestExtrapolation:
    whole = st.integers(min_value=0, max_value=2**62)

    @given(slope=whole, constant=whole, third=st.integers(3, 64), at=st.integers(65, 4096))
    def test_the_law_is_exact_beyond_doubles(self, slope, constant, third, at):
        rows = [made(b, slope * b + constant) for b in (1, 2, third)]
        (row,) = extrapolate(rows, at)
        assert (row.native_value, row.flop) == (slope * at + constant, 2 * (slope * at + constant))
        assert row.extrapolated
        assert row.batch_size == at

    @given(slope=whole, constant=whole, third=st.integers(3, 64), at=st.integers(65, 4096))
    def test_a_single_unit_breaks_it(self, slope, constant, third, at):
        rows = [made(1, slope + constant), made(2, 2 * slope + constant), made(third, slope * third + constant + 1)]
        (row,) = extrapolate(rows, at)
        assert row.status == "invalid"
        assert row.flop is None
        assert "not affine" in row.reason

    def test_each_operator_has_its_own_law(self):
        rows = [made(b, n, operator=o) for b, n, o in ((1, 10, ""), (1, 4, "conv"), (2, 13, ""), (2, 7, "conv"))]
        assert [(row.operator, row.native_value) for row in extrapolate(rows, 10)] == [("", 37), ("conv", 31)]

    def test_an_operator_that_comes_and_goes_has_none(self):
        rows = [made(1, 10), made(2, 20), made(2, 3, operator="conv")]
        total, conv = extrapolate(rows, 10)
        assert (total.native_value, total.status) == (100, "ok")
        assert (conv.native_value, conv.status) == (None, "invalid")
        assert "none at [1]" in conv.reason

    def test_one_point_is_no_law(self):
        late = made(2, 0, native_value=None, flop=None, status="timeout", reason="late")
        (row,) = extrapolate([made(1, 10), late], 64)
        assert (row.status, row.reason, row.batch_size, row.flop) == ("timeout", "late", 64, None)
        (row,) = extrapolate([made(1, 10), made(1, 4, operator="conv")], 64)
        assert (row.status, row.operator, row.flop, row.native_value) == ("unavailable", "", None, None)


def test_a_parent_that_is_killed_takes_counter_and_server_along(tmp_path):
    """Also while the counter's own limit is far: its parent is gone within seconds, and so is the server."""
    code = "from measure.counters import isolation; isolation.prepare()\n"
    code += "from tests.measure.counters.harness.isolated import run; run('hanging', timeout_s=500.0)"
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    with subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.DEVNULL) as parent:
        end_s = time.monotonic() + 120.0
        started: dict[int, dict[str, Any]] = {}
        while not any("sleep" in info["name"] for info in started.values()):
            assert time.monotonic() < end_s, "the counter never began"
            time.sleep(0.1)
            children: dict[int, dict[str, Any]] = {}
            for process in psutil.Process(parent.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    children[process.pid] = process.as_dict(["name", "cmdline"])
            started = children
        others = [pid for pid, info in started.items() if "resource_tracker" not in " ".join(info["cmdline"])]
        pids = [pid for pid in others if is_alive(pid)]  # without what has done its work in the meantime
        assert len(pids) >= 3  # the server, the counter, and what that started
        parent.kill()
        parent.wait()
    wait_until_gone(*pids)
