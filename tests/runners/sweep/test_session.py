"""Law, injected fault: a session over made-up workers makes one row of each cell, whatever becomes of it."""

import dataclasses
import errno
import os
import signal
from typing import Any

import pytest

from measure.timing.stopping import Protocol
from results.errors import StoreFault
from results.records.cell import MEASURED, STATUSES, Cell, Sample
from results.records.counts import ProfiledOperation
from results.store.layout import profile_file
from results.store.store import read_operations, read_profile, read_run
from runners.sweep.findings import PassFindings, trace_id
from runners.sweep.plan import CEILING_BUDGET_S, SPARE_RATIO, least_s
from runners.workers.pool import WorkerFault
from tests.support.fakes.fake_session import (
    CEILINGS,
    MEASURE,
    TRACE,
    WORK,
    Scene,
    cell,
    in_turn,
    measured,
    operation,
)
from tests.support.made_up.made_up_runs import Failing, Unsynced, operations

FAULTS = ("unavailable", "out_of_memory", "timeout", "device_error", "crashed", "invalid")


@pytest.fixture
def scene(tmp_path, monkeypatch):
    return Scene(tmp_path / "run", monkeypatch)


def statuses(scene: Scene) -> dict[str, str]:
    return {run.model: run.status for run in read_run(scene.path).runs}


class TestOneRowACell:
    MODELS = ("resnet18", "resnet34", "vgg11", "vgg13", "alexnet", "mobilenet_v2", "resnet50", "squeezenet1_1")

    def test_every_status_is_one_row_with_its_reason_and_the_sweep_goes_on(self, scene):
        outcomes = [WorkerFault(status, f"because {status}") for status in FAULTS]
        outcomes += [measured("not_converged", "too wide"), measured("ok")]
        scene.answers[MEASURE] = in_turn(*outcomes)
        runs = list(scene.rows([cell(model) for model in self.MODELS]))
        assert [run.status for run in runs] == [*FAULTS, "not_converged", "ok"]
        assert {*FAULTS, "not_converged", "ok", "interrupted"} == set(STATUSES)
        data = read_run(scene.path)
        assert data.problems == []
        assert [dataclasses.replace(run, committed={}) for run in data.all_runs] == runs
        assert [run.reason for run in data.runs] == [*(f"because {status}" for status in FAULTS), "too wide", ""]
        assert [run.status for run in runs if run.status not in MEASURED] == list(FAULTS)

    def test_each_measurement_keeps_its_rows(self, scene):
        scene.answers[MEASURE] = measured(first_loss=2.5, host_bound=None)
        (run,) = list(scene.rows([cell()]))
        data = read_run(scene.path)
        assert data.samples["index"].tolist() == [0, 1, 2]
        assert data.samples["wall_s"].tolist() == [0.5, 0.625, 0.75]
        assert data.telemetry["time_s"].tolist() == [1000.0, 1003.0]
        assert scene.watch.windows == [(1000.0, 1003.0)]
        assert (run.energy_j, run.energy_method) == (300.0, "polled")
        assert (run.parameters, run.items_per_step, run.first_loss) == (11, 2, 2.5)
        assert run.warnings == ("energy: made up",)
        assert set(data.runs[0].committed) >= {"samples.csv", "telemetry.csv", "flop_counts.csv"}

    def test_a_cell_known_not_to_train_asks_nobody(self, scene):
        (run,) = list(scene.rows([cell(batch_size=1, image_size=32)]))
        assert run.status == "invalid"
        assert "batch of at least 2" in run.reason
        assert scene.calls == scene.counted == []

    def test_rows_that_could_not_be_read_back_cost_the_cell_and_not_the_sweep(self, scene):
        broken = dataclasses.replace(measured(), run=dataclasses.replace(measured().run, parameters=1.5))
        scene.answers[MEASURE] = in_turn(broken, measured())
        runs = list(scene.rows([cell(), cell("vgg11")]))
        assert [run.status for run in runs] == ["crashed", "ok"]
        assert runs[0].reason.startswith("its rows cannot be kept: ")
        assert statuses(scene) == {"resnet18": "crashed", "vgg11": "ok"}

    def test_a_fault_of_the_parent_is_the_cells_alone(self, scene):
        scene.watch.fault = RuntimeError("a bug")
        runs = list(scene.rows([cell()]))
        assert (runs[0].status, runs[0].reason) == ("crashed", "RuntimeError: a bug")
        scene.watch.fault = None
        assert [run.status for run in list(scene.rows([cell("vgg11")]))] == ["ok"]
        assert statuses(scene) == {"resnet18": "crashed", "vgg11": "ok"}


class TestWorkers:
    def test_one_worker_for_the_cells_of_one_key(self, scene):
        list(scene.rows([cell(), cell("vgg11"), cell(batch_size=4)]))
        assert scene.said == ["start trace", "start measure", "end measure", "end trace"]

    @pytest.mark.parametrize(
        "change", [{"precision": "amp-bf16"}, {"compile": True}, {"repeat": 1}, {"device": "cuda"}]
    )
    def test_another_key_gets_a_fresh_worker(self, scene, change):
        list(scene.rows([cell(), cell(), cell(**change)]))
        assert [said for said in scene.said if "measure" in said] == ["start measure", "end measure"] * 2

    @pytest.mark.parametrize(("status", "workers"), [("not_converged", 1), ("invalid", 2)])
    def test_after_a_cell_that_was_no_measurement_too(self, scene, status, workers):
        scene.answers[MEASURE] = in_turn(measured(status, "x"), measured(), measured())
        list(scene.rows([cell(), cell("vgg11"), cell("vgg13")]))
        assert [said for said in scene.said if "measure" in said] == ["start measure", "end measure"] * workers

    def test_no_worker_is_left_at_the_end_whatever_happens(self, scene):
        scene.answers[MEASURE] = OSError(errno.EMFILE, "too many open files")
        with pytest.raises(OSError, match="too many"):
            list(scene.rows([cell()]))
        assert scene.said == ["start trace", "start measure", "end measure", "end trace"]


class TestCounts:
    def test_no_batch_is_counted_twice_and_each_cell_keeps_its_own(self, scene):
        cells = [cell(batch_size=1), cell(batch_size=64), cell(batch_size=8)]
        list(scene.rows(cells))
        assert [batches for *_, batches in scene.counted] == [(1, 2), (1, 2), (16,), (16,), (8,), (8,)]
        frame = read_run(scene.path).flop_counts
        found = {c.batch_size: set(frame[frame["cell_id"] == c.cell_id]["batch_size"]) for c in cells}
        assert found == {1: {1, 2}, 64: {1, 2, 16, 64}, 8: {1, 2, 8}}


class TestTraces:
    def test_written_once_for_cells_that_share_it_and_each_refers_to_it(self, scene):
        """fp32 and tf32 are one dtype policy; autocast, batch, optimizer and layout are not."""
        cells = [cell(device="cuda"), cell(device="cuda", precision="tf32"), cell(device="cuda", repeat=1)]
        runs = list(scene.rows(cells))
        assert scene.tasks("trace") == [TRACE]
        (identity,) = {run.trace_id for run in runs}
        assert read_operations(scene.path, identity)[0] == operations()
        assert len(list((scene.path / "operations").iterdir())) == 2

    @pytest.mark.parametrize(
        "change",
        [
            {"batch_size": 4},
            {"precision": "amp-bf16"},
            {"precision": "amp-fp16"},
            {"optimizer": "adam"},
            {"layout": "channels_last"},
            {"image_size": 64},
            {"model": "resnet34"},
        ],
    )
    def test_what_decides_a_table(self, change):
        assert trace_id(cell(**change), "2.15.0") != trace_id(cell(), "2.15.0")

    @pytest.mark.parametrize("change", [{"seed": 1}, {"quick": True}, {"compile": True}, {"repeat": 2}])
    def test_what_does_not(self, change):
        assert trace_id(cell(**change), "2.15.0") == trace_id(cell(), "2.15.0")

    def test_a_damaged_one_is_made_again(self, scene):
        (run,) = list(scene.rows([cell()]))
        for file in (scene.path / "operations").iterdir():
            file.write_bytes(file.read_bytes()[:40])
        scene.reopen()
        assert scene.store.done() == {}, "the cell's rows are not intact"
        (again,) = list(scene.rows([cell()]))
        assert (again.status, again.attempt, again.trace_id) == ("ok", 2, run.trace_id)
        assert read_operations(scene.path, run.trace_id)[0] == operations()
        assert statuses(scene) == {"resnet18": "ok"}

    @pytest.mark.parametrize("status", ["crashed", "timeout", "out_of_memory"])
    def test_a_tracer_that_fails_does_not_keep_a_cell_from_being_measured(self, scene, status):
        scene.answers[TRACE] = WorkerFault(status, "so it is")
        (run,) = list(scene.rows([cell()]))
        assert (run.status, run.trace_id) == ("ok", "")
        assert run.warnings[0] == f"trace: {status}: so it is"

    def test_a_model_that_cannot_take_its_sizes_is_not_trained(self, scene):
        scene.answers[TRACE] = WorkerFault(
            "invalid", "resnet18 cannot take this batch and these sizes: kernel too large"
        )
        (run,) = list(scene.rows([cell()]))
        assert (run.status, run.reason) == (
            "invalid",
            "resnet18 cannot take this batch and these sizes: kernel too large",
        )
        assert MEASURE not in scene.tasks()


class TestCeilings:
    def test_once_for_each_precision_in_the_worker_that_measures(self, scene):
        cells = [cell(), cell("vgg11"), cell(precision="amp-bf16"), cell(repeat=1)]
        list(scene.rows(cells))
        assert scene.asked(CEILINGS) == [
            ("s1", "cpu", "fp32", CEILING_BUDGET_S["cpu"], "default"),
            ("s1", "cpu", "amp-bf16", CEILING_BUDGET_S["cpu"], "default"),
        ]
        assert {call.name for call in scene.calls if call.task == CEILINGS} == {"measure"}
        assert [c.precision for c in read_run(scene.path).ceilings] == ["fp32", "amp-bf16"]
        assert scene.tasks("measure")[:2] == [CEILINGS, MEASURE], "before the first cell"

    def test_a_deterministic_cell_gets_a_worker_that_has_multiplied_nothing(self, scene):
        list(scene.rows([cell(deterministic=True), cell("vgg11", deterministic=True)]))
        assert [said for said in scene.said if "measure" in said] == ["start measure", "end measure"] * 2
        assert scene.tasks("measure") == [CEILINGS, MEASURE, MEASURE]

    def test_none_is_said_and_not_asked_again(self, scene):
        scene.answers[CEILINGS] = WorkerFault("crashed", "so it is")
        runs = list(scene.rows([cell(), cell("vgg11")]))
        assert [run.status for run in runs] == ["ok", "ok"]
        assert len(scene.asked(CEILINGS)) == 1
        assert "no ceiling of fp32 on cpu: crashed: so it is" in scene.stream.getvalue()


METHODS = ("theory", "one", "epoch", "exact")
"""Of four works at a batch of 2 and an epoch of 5."""


def with_passes(**more: Any) -> Cell:
    return cell(**{"methods": METHODS, "epoch_images": 5, **more})


def call_of(work: str, **more: Any) -> ProfiledOperation:
    return dataclasses.replace(operation(work), **more)


TASKS = [("one", False), ("last", False), ("epoch", False), ("one", True), ("batch", True), ("last", True)]
"""What is timed comes before the first profile, whose profiler slows what its process does later."""


def answered(cell_id: str, work: str, profiled: bool) -> PassFindings:
    """A pass that went well: a timed block, or a profiled operation."""
    if not profiled:
        return PassFindings(blocks=[Sample(part="measure", steps=3, start_s=1010.0, wall_s=0.3, work=work)])
    return PassFindings(operations=[call_of(work)], profiled=[work], warnings=["profile: note"])


class TestWorks:
    """Each is a task of its own in the worker that measured the cell."""

    @pytest.fixture(autouse=True)
    def well(self, scene):
        scene.answers[WORK] = answered

    def test_each_is_asked_for_after_the_cells_own_step(self, scene):
        of = with_passes()
        list(scene.rows([of]))
        assert scene.asked(WORK) == [(of.cell_id, *task) for task in TASKS]
        assert scene.tasks("measure") == [CEILINGS, MEASURE, *[WORK] * 6]

    @pytest.mark.parametrize(("device", "processes"), [("cpu", 1), ("cuda", 2)])
    def test_no_other_cell_is_timed_by_a_process_that_has_profiled_on_a_gpu(self, scene, device, processes):
        list(scene.rows([with_passes(device=device), with_passes(model="vgg11", device=device)]))
        assert scene.said.count("start measure") == processes

    def test_what_they_gave_is_kept_and_committed_with_the_cell(self, scene):
        (run,) = list(scene.rows([with_passes()]))
        assert (run.status, run.profiled, run.unprofiled) == ("ok", ("one", "batch", "last"), {})
        assert run.warnings.count("profile: note") == 1
        data = read_run(scene.path)
        assert data.problems == []
        assert data.samples["work"].fillna("").tolist() == ["", "", "", "one", "last", "epoch"]
        assert data.samples["index"].tolist() == list(range(6))
        assert data.runs[0].committed[profile_file(run.cell_id, 1)][0] == 3
        assert read_profile(scene.path, run.cell_id, 1) == [call_of(work) for work in ("one", "batch", "last")]

    @pytest.mark.parametrize("status", ["crashed", "timeout", "out_of_memory"])
    def test_one_that_ends_its_process_costs_itself_and_those_after_it(self, scene, status):
        def dies(cell_id, work, profiled):
            return WorkerFault(status, "so it is") if work == "batch" else answered(cell_id, work, profiled)

        scene.answers[WORK] = dies
        runs = list(scene.rows([with_passes(), cell("vgg11")]))
        assert [run.status for run in runs] == ["ok", "ok"]
        assert runs[0].profiled == ("one",)
        later = "not tried after batch: so it is"
        assert runs[0].unprofiled == {"batch": "so it is", "last": later}
        assert [task for _, *task in scene.asked(WORK)] == [[*task] for task in TASKS[:5]], "no other has the model"
        works = read_run(scene.path).samples["work"].fillna("").tolist()
        assert works == ["", "", "", "one", "last", "epoch", "", "", ""]

    def test_an_error_of_the_device_is_the_cells(self, scene):
        scene.answers[WORK] = WorkerFault("device_error", "CUDA error: an illegal memory access was encountered")
        runs = list(scene.rows([with_passes(), cell("vgg11")]))
        assert [run.status for run in runs] == ["device_error", "ok"]
        assert not (scene.path / "profiles").exists()

    def test_the_cells_limit_is_that_of_all_together(self, scene):

        def takes(seconds, answer):
            def task(*arguments):
                scene.clock.elapsed_s += seconds
                return answer(*arguments)

            return task

        scene.answers[MEASURE] = takes(10.0, lambda *_: measured())
        scene.answers[WORK] = takes(4.0, answered)
        list(scene.rows([with_passes()], cell_timeout_s=17.0))
        limits_s = [call.timeout_s for call in scene.calls if call.task in (MEASURE, WORK)]
        assert limits_s == [17.0, 7.0, 3.0, 0.0, 0.0, 0.0, 0.0]
        ((_, protocol),) = scene.asked(MEASURE)
        assert (protocol.passes, protocol.limit_s) == (("one", "batch", "last", "epoch"), 17.0)


class TestTimeBudget:
    def take(self, scene: Scene, seconds: float) -> None:
        def answer(*_):
            scene.clock.elapsed_s += seconds
            return measured()

        scene.answers[MEASURE] = answer

    @pytest.mark.parametrize(("budget_s", "fitting"), [(100.0, 3), (95.0, 2)])
    def test_no_cell_is_started_that_will_not_finish(self, scene, budget_s, fitting):
        """Cells of 30 s; the next is taken to need 36. Of 100 s two cells leave 40, three 10; of 95 s two leave 35."""
        self.take(scene, 30.0)
        models = ("resnet18", "resnet34", "vgg11", "vgg13", "alexnet")
        runs = list(scene.rows([cell(model) for model in models], time_budget_s=budget_s))
        assert len(runs) == len(read_run(scene.path).runs) == fitting
        assert f"time budget: {5 - fitting} of 5 cells not started; --resume goes on" in scene.stream.getvalue()

    def test_a_cell_that_does_not_settle_takes_its_share_and_no_more(self, scene):
        """Of 150 s ten cells have 15 s each, and the last one all that is left. Of 40 cells each may take three times
        its least: 3 × (1 + 2) s on a CPU."""
        self.take(scene, 0.0)
        list(scene.rows([cell(seed=seed) for seed in range(10)], time_budget_s=150.0))
        found = [protocol.longest_s for _, protocol in scene.asked(MEASURE)]
        assert (found[0], found[-1]) == pytest.approx((15.0, Protocol.for_device("cpu").longest_s))
        scene.calls.clear()
        list(scene.rows([cell(seed=seed) for seed in range(100, 140)], time_budget_s=150.0))
        assert scene.asked(MEASURE)[0][1].longest_s == pytest.approx(9.0)

    def test_the_first_cell_needs_its_ceiling_too(self, scene):
        """CPU: 1 s of warming up, 2 s of blocks, 8 s of ceiling, and a fifth to spare."""
        assert least_s(cell()) == pytest.approx(SPARE_RATIO * (1.0 + 2.0 + 8.0))
        assert least_s(cell(), ceiling_known=True) == pytest.approx(SPARE_RATIO * 3.0)
        self.take(scene, 0.0)
        assert list(scene.rows([cell()], time_budget_s=13.0)) == []
        scene.clock.elapsed_s = 0.0
        runs = list(scene.rows([cell(), cell("vgg11")], time_budget_s=13.3))
        assert len(runs) == 2


class TestInterruption:
    def test_what_was_measured_is_kept_and_the_cell_at_work_is_a_row(self, scene):
        scene.answers[MEASURE] = in_turn(measured(), KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            list(scene.rows([cell(), cell("vgg11"), cell("vgg13")]))
        assert statuses(scene) == {"resnet18": "ok", "vgg11": "interrupted"}
        assert scene.said[-2:] == ["end measure", "end trace"]
        scene.reopen()
        assert scene.store.done() == {cell().cell_id: "ok"}

    @pytest.mark.parametrize("call", range(8))
    def test_within_a_commit_it_waits_until_the_cell_is_kept(self, tmp_path, monkeypatch, call):
        """A real signal before the n-th write of the commit; a measured cell is not thrown away for it."""
        disk = Ringing(call)
        scene = Scene(tmp_path / "run", monkeypatch, disk)
        scene.answers[MEASURE] = lambda *_: disk.arm() or measured()
        with pytest.raises(KeyboardInterrupt):
            list(scene.rows([cell(), cell("vgg11")]))
        assert disk.rang
        assert statuses(scene) == {"resnet18": "ok"}
        assert len(read_run(scene.path).all_runs) == 1


class Ringing(Unsynced):
    """A disk that sends Ctrl-C to this process before its n-th open or write after `arm`."""

    def __init__(self, call: int) -> None:
        self.left: int | None = None
        self.call, self.rang = call, False

    def arm(self) -> None:
        self.left = self.call

    def ring(self) -> None:
        if self.left == 0:
            self.rang = True
            os.kill(os.getpid(), signal.SIGINT)
        if self.left is not None:
            self.left -= 1

    def open(self, path, flags):
        self.ring()
        return super().open(path, flags)

    def write(self, fd, data):
        self.ring()
        return super().write(fd, data)


class TestStoreFaults:
    @pytest.mark.parametrize("part", [0, 100])
    def test_a_full_disk_ends_the_session_and_keeps_whole_rows(self, tmp_path, monkeypatch, part):
        disk = Failing(part=part)
        scene = Scene(tmp_path / "run", monkeypatch, disk)
        scene.answers[MEASURE] = in_turn(measured(), measured(), measured())
        list(scene.rows([cell()]))
        disk.broken = True
        with pytest.raises(StoreFault, match="--resume goes on"):
            list(scene.rows([cell("vgg11"), cell("vgg13")]))
        assert statuses(scene) == {"resnet18": "ok"}
        disk.broken = False
        scene.reopen()
        runs = list(scene.rows([cell("vgg11")]))
        assert [run.status for run in runs] == ["ok"]
        assert statuses(scene) == {"resnet18": "ok", "vgg11": "ok"}


class TestALostDevice:
    LOST = "telemetry: DeviceLost: NVML: GPU is lost"

    def test_a_lost_device_ends_the_session_and_its_cause_is_in_the_row(self, scene):
        def dies():
            scene.watch.lost = self.LOST
            return WorkerFault("device_error", "AcceleratorError: CUDA error: unspecified launch failure")

        scene.answers[MEASURE] = lambda cell, protocol: dies() if cell.model == "vgg11" else measured()
        runs = list(scene.rows([cell(), cell("vgg11"), cell("resnet34"), cell("alexnet")]))
        assert [run.status for run in runs] == ["ok", "device_error"]
        assert [run.warnings for run in runs] == [("energy: made up",), (self.LOST,)]
        assert runs[1].reason == "AcceleratorError: CUDA error: unspecified launch failure"
        assert statuses(scene) == {"resnet18": "ok", "vgg11": "device_error"}
        last = scene.stream.getvalue().splitlines()[-1]
        assert self.LOST in last
        assert "2 cells not started; --resume goes on" in last
