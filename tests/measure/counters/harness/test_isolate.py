"""A counter in a process of its own: whatever it does becomes rows, and nothing of it stays behind."""

from __future__ import annotations

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

from analysis.utilization.counter_operators import kind_of_operator
from measure.counters.harness import child, isolation
from measure.counters.harness.batch_law import extrapolate
from measure.counters.harness.isolation import batches_to_count, count_isolated
from measure.counters.harness.registry import COUNTERS, check_counter, install_line
from measure.device.processes import last_words
from results.errors import Unavailable
from results.records.counts import FlopCount
from tests.support.processes import is_alive, wait_until_gone
from workloads import synthetic
from workloads.catalogue.catalogue import factory, hyper_of

FAKES = {
    name: (f"tests.support.fakes.fake_counters:{name}", "nothing")
    for name in (
        "printing",
        "hungry",
        "shapes",
        "deep",
        "crashing",
        "crashing_later",
        "leaving",
        "hanging",
        "sharing",
        "lingering",
        "orphaning",
        "raising",
        "exhausted",
        "silent",
        "not_a_number",
    )
}
TINY = {"width": 8, "depth": 2}


@pytest.fixture(autouse=True, scope="module")
def server():
    isolation.prepare()


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


def statuses(rows):
    return [(row.batch_size, row.status) for row in rows]


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

    def test_the_adapter_gets_the_whole_batch_and_a_model_in_eval_mode(self):
        assert [row.native_value for row in run("shapes", batch_sizes=(1, 3))] == [8, 24]

    def test_a_crash_is_a_row_with_the_signal_and_the_last_words(self):
        first, second = run("crashing")
        assert first.status == second.status == "crashed"
        assert "SIGSEGV" in first.reason
        assert "null pointer" in first.reason
        assert second.reason.startswith("not tried after a batch of 1")
        assert first.flop is None
        assert first.native_value is None

    def test_a_later_crash_keeps_what_was_counted(self):
        assert statuses(run("crashing_later", batch_sizes=(1, 2, 16))) == [(1, "ok"), (2, "crashed"), (16, "crashed")]

    def test_leaving_is_a_crash_with_its_status(self):
        rows = run("leaving", batch_sizes=(1,))
        assert statuses(rows) == [(1, "crashed")]
        assert "status 3" in rows[0].reason

    def test_a_hang_ends_at_its_limit_with_all_that_it_started(self):
        start_s = time.monotonic()
        (row,) = run("hanging", batch_sizes=(1,), timeout_s=4.0)
        assert time.monotonic() - start_s < 30
        assert row.status == "timeout"
        assert "4 s" in row.reason
        wait_until_gone(int(row.reason.rsplit(" ", 1)[1]))

    def test_a_death_is_seen_at_once_even_if_another_process_holds_the_pipe(self):
        start_s = time.monotonic()
        rows = run("orphaning", batch_sizes=(1,), timeout_s=120.0)
        assert statuses(rows) == [(1, "crashed")]
        assert "SIGABRT" in rows[0].reason
        assert time.monotonic() - start_s < 60

    def test_an_exception_is_one_line(self):
        rows = run("raising")
        assert statuses(rows) == [(1, "invalid"), (2, "invalid")]
        assert rows[0].reason == "RuntimeError: cannot count this model"

    def test_memory_that_runs_out_has_its_own_status(self):
        assert statuses(run("exhausted", batch_sizes=(1,))) == [(1, "out_of_memory")]

    def test_no_row_is_a_fault(self):
        assert statuses(run("silent", batch_sizes=(1,))) == [(1, "invalid")]

    @pytest.mark.parametrize(("size", "said"), [(2, "nan (total)"), (4, "inf (conv)")])
    def test_a_count_that_is_no_number_is_a_fault(self, size, said):
        rows = run("not_a_number", batch_sizes=(1, size))
        assert statuses(rows) == [(1, "ok"), (1, "ok"), (size, "invalid")]
        assert rows[-1].reason == f"Inconsistent: expected a count at a batch of {size}, the counter gave {said}"
        assert rows[-1].native_value is rows[-1].flop is None

    def test_a_missing_counter_says_what_to_type(self):
        registry = {"absent": ("no_such_counter_package:count", "absent>=1")}
        rows = run("absent", registry=registry)
        assert statuses(rows) == [(1, "unavailable"), (2, "unavailable")]
        assert "python -m pip install 'absent>=1'" in rows[0].reason

    def test_sizes_a_workload_does_not_have_are_a_row(self):
        rows = count_isolated(
            "shapes",
            "synthetic_matmul",
            {"depht": 2},
            (1,),
            60,
            factory="workloads.synthetic:get",
            registry=FAKES,
        )
        assert rows[0].status == "invalid"
        assert "no depht" in rows[0].reason

    def test_an_unknown_counter_is_the_callers_mistake(self):
        with pytest.raises(ValueError, match="unknown counter 'fvcorr'; nearest: fvcore"):
            count_isolated("fvcorr", "resnet18", {}, (1,), 60, factory="workloads.vision.models:get")
        with pytest.raises(ValueError, match=r"there are flopledger, flop_counter_mode, .*, torchinfo"):
            check_counter("xyz")


@pytest.mark.parametrize("counter", COUNTERS)
def test_real_counters_know_the_synthetic_answer(counter):
    """2 layers of 8 × 8 at a batch of 3: 2 · 3 · 64 multiply-adds, and 3 · 3 · 64 backward; 2 · 64 weights."""
    name = "synthetic_matmul"
    rows = count_isolated(counter, name, TINY, (3,), 120, factory=factory(name))
    answer = synthetic.answer(name, hyper_of(name, **TINY), 3)
    (total, linear) = [row for row in rows if (row.scope, row.phase) == ("total", "forward")]
    assert (linear.native_value, linear.native_unit) in ((384, "mac"), (768, "flop"))
    assert linear.flop == total.flop == answer.forward_flop == 768
    assert kind_of_operator(counter, linear.operator) == "matmul"
    backward = [row.flop for row in rows if (row.scope, row.phase, row.operator) == ("total", "backward", "")]
    assert answer.backward_flop == 2 * 3 * 3 * 64
    assert backward == BACKWARD.get(counter, [])
    assert [row.parameters for row in rows if row.parameters is not None] == PARAMETERS.get(counter, [2 * 64])
    assert total.parameters == (None if counter in PARAMETERS else 2 * 64)
    assert {row.scope: row.flop for row in rows if row.phase == "forward" and not row.operator} == {
        "total": 768,
        "0": 384,
        "1": 384,
    }


BACKWARD = {
    **{name: [2 * 3 * 3 * 64] for name in ("flopledger", "flop_counter_mode", "torch_profiler")},
    "calflops": [2 * 768],  # twice the forward pass, though the input needs no gradient
}
PARAMETERS = {name: [] for name in ("flop_counter_mode", "torch_profiler", "pthflops")}  # they tell of none


class TestModules:
    """Of a network of three levels: the fake counter's rows "stage", "stage.block", "stage.block.conv"."""

    def test_the_smallest_batch_keeps_totals_of_modules_down_to_blocks(self):
        rows = run("deep", batch_sizes=(2, 1))
        assert [(row.batch_size, row.phase, row.scope, row.operator) for row in rows] == [
            (2, "forward", "total", ""),
            (2, "forward", "total", "conv"),
            (2, "backward", "total", ""),
            (1, "forward", "total", ""),
            (1, "forward", "total", "conv"),
            (1, "forward", "stage", ""),
            (1, "forward", "stage.block", ""),
            (1, "backward", "total", ""),
            (1, "backward", "stage", ""),
        ]

    def test_time_and_memory_are_told_once_a_batch(self):
        rows = run("deep", batch_sizes=(1,))
        assert [(row.phase, row.scope, row.operator) for row in rows if row.duration_s is not None] == [
            ("forward", "total", "")
        ]
        assert rows[0].peak_memory_bytes is not None


def test_what_to_install_is_what_the_requirements_say():
    root = Path(__file__).parents[4]
    lines = [line for file in root.glob("requirements*.txt") for line in file.read_text().splitlines()]
    assert {package for _, requirement in COUNTERS.values() for package in requirement.split()} <= set(lines)
    assert [name for name, (_, requirement) in COUNTERS.items() if not requirement] == [
        "flopledger",
        "flop_counter_mode",
        "torch_profiler",
    ]


def test_what_is_there_anyway_has_nothing_to_type():
    assert install_line("") == "nothing to install: this project or torch brings it"
    assert install_line("fvcore>=0.1") == "python -m pip install 'fvcore>=0.1'"
    assert install_line("one<2 two>=3") == "python -m pip install 'one<2' 'two>=3'"


@pytest.mark.parametrize(
    ("counter", "package"),
    [
        *((name, name) for name in ("pthflops", "deepspeed", "calflops", "thop", "torchinfo")),
        ("calflops", "transformers"),
    ],
)
def test_each_extra_that_is_missing_says_what_to_type(counter, package, monkeypatch):
    target, requirement = COUNTERS[counter]
    gone = [name for name in sys.modules if name.split(".")[0] in (package, counter)]
    for name in (*gone, target.partition(":")[0]):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    task = child.Task(counter, target, requirement, "", "w", {}, (1,), 60, "")
    with pytest.raises(Unavailable) as told:
        child._adapter(task)
    assert str(told.value).startswith(f"{counter} cannot be imported (")
    assert str(told.value).endswith(f": {install_line(requirement)}")
    assert package in install_line(requirement)


COUNT_TWICE = """
from tests.measure.counters.harness.test_isolate import run, statuses
if __name__ == "__main__":
    print(statuses(run("sharing", (1,)) + run("sharing", (2,))))
"""


@pytest.mark.slow
def test_what_a_counter_shares_is_freed_before_its_process_is_ended(tmp_path):
    """Else Python says at the end of a sweep that semaphores were leaked."""
    script = tmp_path / "script.py"
    script.write_text(COUNT_TWICE)
    folders = os.pathsep.join(map(str, (Path(__file__).parents[3], Path(__file__).parents[4])))
    environment = {**os.environ, "PYTHONPATH": folders}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("[(1, 'ok'), (2, 'ok')]\n", "", 0)


def test_a_counter_that_answered_and_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr(isolation, "GRACE_S", 0.2)
    before_s = time.monotonic()
    assert statuses(run("lingering", (1,))) == [(1, "ok")]
    assert time.monotonic() - before_s < 60


def test_the_parent_imports_no_torch():
    code = (
        "import sys, measure.counters.harness.isolation, measure.counters.harness.registry, workloads.catalogue.catalogue, workloads.catalogue.files\n"  # noqa: E501
        "sys.exit([name for name in ('torch', 'torchvision', 'fvcore', 'ptflops') if name in sys.modules] or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[4], capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


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

    def test_a_counted_batch_is_given_as_counted(self):
        rows = [made(1, 5), made(2, 7, reason="said"), made(2, 3, operator="conv")]
        assert extrapolate(rows, 2) == rows[1:]

    def test_each_operator_has_its_own_law(self):
        rows = [made(b, n, operator=o) for b, n, o in ((1, 10, ""), (1, 4, "conv"), (2, 13, ""), (2, 7, "conv"))]
        assert [(row.operator, row.native_value) for row in extrapolate(rows, 10)] == [("", 37), ("conv", 31)]

    def test_an_operator_that_comes_and_goes_has_none(self):
        rows = [made(1, 10), made(2, 20), made(2, 3, operator="conv")]
        total, conv = extrapolate(rows, 10)
        assert (total.native_value, total.status) == (100, "ok")
        assert (conv.native_value, conv.status) == (None, "invalid")
        assert "none at [1]" in conv.reason

    def test_two_points_suffice_if_the_third_failed(self):
        rows = [made(1, 10), made(2, 20), made(16, 0, native_value=None, flop=None, status="timeout", reason="late")]
        assert extrapolate(rows, 64)[0].native_value == 640

    def test_one_point_is_no_law(self):
        late = made(2, 0, native_value=None, flop=None, status="timeout", reason="late")
        (row,) = extrapolate([made(1, 10), late], 64)
        assert (row.status, row.reason, row.batch_size, row.flop) == ("timeout", "late", 64, None)
        (row,) = extrapolate([made(1, 10), made(1, 4, operator="conv")], 64)
        assert (row.status, row.operator, row.flop, row.native_value) == ("unavailable", "", None, None)

    def test_each_phase_has_its_own_law(self):
        rows = [made(b, n, phase=p) for b, p, n in ((1, "forward", 3), (1, "backward", 5), (2, "forward", 6))]
        forward, backward = extrapolate([*rows, made(2, 11, phase="backward")], 10)
        assert (forward.phase, forward.native_value) == ("forward", 30)
        assert (backward.phase, backward.native_value) == ("backward", 59)  # 6 a sample, less one


def test_what_torchs_profiler_prints_is_nobodys_last_words():
    assert last_words("USDT:2026-11-22 12309:12309 Handler.cpp:39] profiler_start\n") == ""
    assert last_words("about to die\nUSDT:2026-11-22 12309:12309 x] profiler_stop\n") == "; it printed: about to die"


def test_a_parent_that_is_killed_takes_counter_and_server_along(tmp_path):
    """Also while the counter's own limit is far: its parent is gone within seconds, and so is the server."""

    code = "from measure.counters.harness import isolation; isolation.prepare()\n"
    code += "from tests.measure.counters.harness.test_isolate import run; run('hanging', timeout_s=500.0)"
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
