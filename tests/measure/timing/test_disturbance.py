"""Definition, known answer: what kept a process from its processors, from made-up files and on a simulated host."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from analysis.stats.summary import BATCHES, LAG1, summarise
from measure.timing.blocks import BlockTimer, WarmUp, blocks_in_order, measure_blocks
from measure.timing.clocks import Clock
from measure.timing.disturbance import (
    LEAST_FAULTS,
    absent,
    disturbance,
    page_fault_warning,
    since,
)
from measure.timing.stopping import Protocol, Timing, contended_rules, disturbance_warning, placement_warning
from results.errors import Unavailable
from results.records.cell import Sample
from tests.support.fakes.hosts import Host


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two threads that waited for 2 and 3 s, 1.25 s of steal."""
    for thread, wait_ns in (("11", 2_000_000_000), ("12", 3_000_000_000)):
        put(tmp_path, f"proc/self/task/{thread}/schedstat", f"7000000000 {wait_ns} 42\n")
    put(tmp_path, "proc/stat", "cpu  22206 25228 9549 69432 956 0 224 125 0 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n")
    monkeypatch.setattr("measure.timing.disturbance.ROOT", tmp_path)
    monkeypatch.setattr("os.sysconf", lambda name: 100)
    return tmp_path


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_what_the_system_counts(root: Path) -> None:
    before = disturbance()
    assert before == {"run_wait_s": 5.0, "steal_s": 1.25}
    put(root, "proc/self/task/11/schedstat", "7000000000 2250000000 43\n")
    assert since(before, disturbance()) == {"run_wait_s": 0.25, "steal_s": 0.0}


def test_what_no_system_counts_is_unknown_with_a_reason(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert absent(on_cpu=False) == {}
    monkeypatch.setattr("measure.timing.disturbance.ROOT", root / "nowhere")
    assert disturbance() == {"run_wait_s": None, "steal_s": None}

    def no_code(_code: bytes) -> int:
        raise Unavailable("no code")

    monkeypatch.setattr("measure.device.cores.address_of", no_code)
    reasons = absent(on_cpu=True)
    assert reasons["steal_s"] == "/proc/stat: No such file or directory"
    assert reasons["core_round_trip_s"] in ("no code", "expected two processors, the process may use only one")
    assert set(reasons) == {*disturbance(), "core_round_trip_s"}


def test_each_block_has_what_came_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([{"run_wait_s": 1.0, "steal_s": 2.0}, {"run_wait_s": 1.5, "steal_s": 2.5}])
    monkeypatch.setattr("measure.timing.blocks.disturbance", lambda: next(readings))
    with BlockTimer(lambda: None, Clock()) as timer:
        block = timer.block(3, "measure")
    assert (block.run_wait_s, block.steal_s) == (0.5, 0.5)


class Machine(Host):
    """A host whose steps take `step_s`, and longer in the steps of `held`, which wait for a processor, and in those of
    `apart`, in which its processors are far from each other.

    device_s: what a step takes on a device that no wait touches; None: there is none.
    """

    def __init__(
        self, held: Iterable[int], step_s: float = 0.5, device_s: float | None = None, apart: Iterable[int] = ()
    ) -> None:
        self.held, self.step_s, self.device_s, self.apart = set(held), step_s, device_s, set(apart)
        super().__init__()
        self.wait_s, self.calls = 0.0, 0
        self.extra_s = 0.0  # the wait in a step that is held; 0: twice a step

    def step(self) -> None:
        if self.calls in self.held:
            wait_s = self.extra_s or 2 * self.step_s
            self.wait_s += wait_s
            self.now_s += wait_s
        self.now_s += self.step_s * (1.25 if self.calls in self.apart else 1.0)
        self.calls += 1

    def event(self) -> float:
        return self.calls

    def between_s(self, start: float, end: float) -> float | None:
        return None if self.device_s is None else (end - start) * self.device_s

    def disturbance(self) -> dict[str, float]:
        return {"run_wait_s": self.wait_s, "steal_s": 0.0}

    def round_trip(self) -> float:
        return 4e-7 if self.calls - 1 in self.apart else 1e-7


CPU = Protocol.for_device("cpu")


def timed(machine: Machine, monkeypatch: pytest.MonkeyPatch, protocol: Protocol = CPU) -> Timing:
    monkeypatch.setattr("measure.timing.stopping.CONTENDED_CAP_S", 1e9)  # a rule of its own
    monkeypatch.setattr("measure.timing.blocks.disturbance", machine.disturbance)
    monkeypatch.setattr("measure.timing.blocks.round_trip", machine.round_trip)
    return measure_blocks(machine.step, machine, protocol, step_s=machine.step_s)


def test_blocks_that_waited_are_measured_again_and_are_not_in_the_step_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one step. The second and fourth of the first five wait; two more take their place."""
    timing = timed(Machine(held=(1, 3)), monkeypatch)
    assert (timing.status, len(timing.blocks), timing.summary.mean) == ("ok", 5, pytest.approx(0.5))
    assert [(block.part, block.wall_s, block.run_wait_s) for block in timing.aside] == [("disturbed", 1.5, 1.0)] * 2
    assert [block.part for block in blocks_in_order(WarmUp([], steady=True), timing)] == [
        "measure", "disturbed", "measure", "disturbed", "measure", "measure", "measure",
    ]  # fmt: skip
    assert disturbance_warning(timing) == (
        "disturbed: 2 of 7 blocks waited for a processor and are not used: "
        "mean of the others 500 ms, of all 785.7 ms a step"  # (5 · 0.5 + 2 · 1.5) ÷ 7
    )


def test_where_most_blocks_wait_all_are_used_as_soon_as_they_meet_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the first wait: 0.5 s and then 1.5 s a block, until their interval is narrow enough."""
    machine = Machine(held=range(1, 1000))
    timing = timed(machine, monkeypatch, replace(CPU, cap_s=1000.0))
    assert (timing.status, timing.aside) == ("ok", ())
    widths = ((n, summarise([0.5] + [1.5] * (n - 1), rule=BATCHES).half_width_ratio) for n in range(5, 1000))
    needed = next(n for n, width in widths if width <= 0.03)
    assert len(timing.blocks) == machine.calls == needed
    share = f"{needed - 1} of {needed}"
    assert disturbance_warning(timing).startswith(f"disturbed: {share} blocks waited for a processor and are used: ")


def test_a_wait_of_the_host_is_not_in_the_time_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    timing = timed(Machine(held=range(0, 1000, 2), device_s=0.5), monkeypatch)
    assert (timing.aside, timing.summary.mean) == ((), pytest.approx(0.5))
    assert {block.core_round_trip_s for block in timing.blocks} == {None}, "it is not of the device"


def test_blocks_of_the_rarer_placement_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 0.5 s, of 0.625 s while the processors are apart: in the second and third of eight. In the second and
    the fourth the placement changed, which the reading after a block alone does not show: neither is used."""
    timing = timed(Machine(held=(), apart=(1, 2)), monkeypatch)
    assert (timing.status, len(timing.blocks), timing.summary.mean) == ("ok", 5, pytest.approx(0.5))
    assert [(block.part, block.wall_s) for block in timing.aside] == [
        ("moved", 0.625), ("moved", 0.625), ("moved", 0.5),
    ]  # fmt: skip
    # (2 · 625 + 500) ÷ 3 = 583.3
    assert placement_warning(timing) == (
        "moved: 3 of 8 blocks are not used: the host had moved the processors (a cache line took 400 ns between them, "
        "100 ns in the others): 583.3 ms a step, 500 ms in the others"
    )
    assert disturbance_warning(timing) == ""


def block(wall_s: float, wait_s: float | None, steps: int = 10) -> Sample:
    return Sample(part="measure", steps=steps, start_s=0.0, wall_s=wall_s, run_wait_s=wait_s)


def of(*blocks: Sample) -> Timing:
    return Timing(blocks, summarise([1.0]), "ok", "", None, None)


def test_where_what_follows_widens_the_interval_of_all_blocks_measuring_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps of 2 s. The first five meet the rules; two of them wait for 0.11 s. The next three wait for 3 s each: twice
    the time of the first five is over, neither all nor the undisturbed three meet the rules, and the cap is far."""
    waits = dict(enumerate((0.0, 0.11, 0.0, 0.11, 0.0, 3.0, 3.0, 3.0)))
    machine = Machine(held={n for n, wait_s in waits.items() if wait_s}, step_s=2.0)

    def step() -> None:
        machine.extra_s = waits.get(machine.calls, 0.0)
        Machine.step(machine)

    monkeypatch.setattr(machine, "step", step)
    timing = timed(machine, monkeypatch, replace(CPU, target_ci_ratio=0.05, interval_rule=LAG1))
    assert (timing.status, len(timing.blocks), len(timing.aside)) == ("ok", 5, 5)
    assert timing.summary.mean == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("blocks", "cap_s"),
    [
        ([block(2.0, 0.099), block(1.0, None)], 60.0),
        ([block(2.0, 0.1), block(2.0, 0.1)], 25.0),
        ([replace(block(2.0, 0.0), steal_s=0.1)], 25.0),  # the host of a virtual machine
        ([replace(block(2.0, 1.0), device_s=2.0)], 60.0),
    ],
)
def test_where_others_take_five_percent_of_the_processors_less_time_is_spent(blocks: list[Sample], cap_s: float):
    """5 % of 2 s are 0.1 s; a device has time of its own. A cap that is shorter already stays."""
    assert contended_rules(blocks, Protocol.for_device("cpu")).cap_s == cap_s
    assert contended_rules(blocks, Protocol.for_device("cpu", quick=True)).cap_s == 12.0


# --- page faults ---


@pytest.mark.parametrize(
    ("system_s", "faults", "said"),
    [
        (1.0, 10 * LEAST_FAULTS, True),
        (0.9, 10 * LEAST_FAULTS, False),  # a tenth is 1 of 10
        (5.0, 10 * LEAST_FAULTS - 10, False),
        (0.0, 0, False),
    ],
)
def test_from_a_tenth_and_ten_thousand_faults_a_step_on(system_s, faults, said):
    before, after = (
        SimpleNamespace(ru_minflt=faults * use, ru_utime=(10.0 - system_s) * use, ru_stime=system_s * use)
        for use in (1, 2)
    )
    words = page_fault_warning(before, after, 10)  # type: ignore[arg-type]
    assert bool(words) == said
    if said:
        assert words == (
            "page_faults: 10000 a step, and 10% of the processor time was the system's: freed memory goes back "
            "to the system and is allocated again"
        )
        kept = page_fault_warning(before, after, 10, "retain")  # type: ignore[arg-type]
        assert kept == "page_faults: 10000 a step, and 10% of the processor time was the system's"


def test_a_thread_that_ended_leaves_the_wait_unknown(root: Path) -> None:
    before = disturbance()
    (root / "proc/self/task/12/schedstat").unlink()
    (root / "proc/self/task/12").rmdir()
    assert since(before, disturbance())["run_wait_s"] is None


def test_a_placement_that_comes_to_stay_is_the_one_that_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three blocks near, the others far: five of these follow the one in which it changed."""
    timing = timed(Machine(held=(), apart=range(3, 1000)), monkeypatch)
    assert (timing.status, len(timing.blocks), timing.summary.mean) == ("ok", 5, pytest.approx(0.625))
    assert [block.wall_s for block in timing.aside] == [0.5, 0.5, 0.5, 0.625]


def test_disturbed_blocks_that_are_used_are_counted_with_both_means() -> None:
    """Two blocks of 10 steps in 0.2 s, 20 ms a step, one of 10 in 0.5 s that waited for 0.2 s: 90 ms ÷ 3 of all."""
    calm, held = block(0.2, 0.009), block(0.5, 0.2)
    assert disturbance_warning(of(calm, held, calm)) == (
        "disturbed: 1 of 3 blocks waited for a processor and are used: mean of the others 20 ms, of all 30 ms a step"
    )
    assert disturbance_warning(of(held, replace(held, run_wait_s=0.3))) == (
        "disturbed: 2 of 2 blocks waited for a processor and are used: 50 ms a step, 25 ms without their waits"
    )
    two_threads = replace(held, run_wait_s=0.6)
    assert disturbance_warning(of(two_threads)).endswith("are used: 50 ms a step")
    aside = replace(of(held), aside=(replace(held, part="disturbed"),))
    assert disturbance_warning(aside) == "disturbed: 2 of 2 blocks waited for a processor and are not used"
    assert disturbance_warning(of(calm, calm)) == ""
    assert disturbance_warning(of(calm, block(0.5, None))) == ""
    assert disturbance_warning(of(calm, block(0.5, None), held)).startswith("disturbed: 1 of 3 blocks waited")
