"""What a sweep plans from its options, those of the run it resumes, and the device: no process, no torch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from measure.counters.harness.registry import COUNTERS
from runners.sweep import command as sweep_command
from runners.sweep import options as sweep_options
from runners.sweep.plan import Grid, cells, check, remaining
from runners.workers.devices import ProbeResult
from runners.workers.pool import Worker
from runners.workers.worker import WorkerFault

CPU = ProbeResult(device="cpu", refused={"tf32": "tf32 on cpu: a CPU has none"})
H100 = ProbeResult(device="cuda")
V100 = ProbeResult(device="cuda", refused={"tf32": "no", "amp-bf16": "no"})


def parsed(*arguments: str) -> argparse.Namespace:
    return sweep_options.parser().parse_args(arguments)


def grid(*arguments: str, stored: dict[str, Any] | None = None, probed: ProbeResult = CPU) -> Grid:
    return sweep_options.grid_of(parsed(*arguments), stored or {}, probed)


def test_defaults_follow_from_the_device() -> None:
    assert (grid().batch_sizes, grid().precisions) == ((8,), ("fp32",))
    assert (grid(probed=H100).batch_sizes, grid(probed=H100).precisions) == ((64,), ("fp32", "tf32", "amp-bf16"))
    assert grid(probed=V100).precisions == ("fp32",)
    assert grid().models == ("resnet18", "mobilenet_v2")


def test_on_a_cpu_freed_memory_is_retained_and_the_ceiling_is_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(found: Grid) -> set[tuple[str, bool]]:
        return {(cell.malloc, cell.paired_ceiling) for cell in cells(found)}

    monkeypatch.delenv(sweep_options.MALLOC, raising=False)
    assert settings(grid()) == {("retain", True)}
    assert settings(grid(probed=H100)) == {("default", False)}
    assert settings(grid("--parallel", "ddp=2")) == {("retain", False)}
    monkeypatch.setenv(sweep_options.MALLOC, "default")
    assert settings(grid()) == {("default", True)}
    monkeypatch.setenv(sweep_options.MALLOC, "keep")
    with pytest.raises(ValueError, match="FLOPLEDGER_MALLOC: expected default or retain, got 'keep'"):
        sweep_options.check_options(parsed(), {})
    monkeypatch.delenv(sweep_options.MALLOC)
    monkeypatch.setattr(sweep_options.platform, "libc_ver", lambda: ("", ""))
    assert settings(grid()) == {("default", True)}, "a C library that cannot retain it"


def test_a_precision_that_the_device_lacks_is_a_mistake_with_the_ones_it_has() -> None:
    with pytest.raises(ValueError, match=r"a CPU has none; expected of fp32, amp-bf16, amp-fp16, got tf32"):
        grid("--precisions", "fp32,tf32")


def test_a_suite_brings_its_models_and_sizes_and_options_win() -> None:
    suite = grid("--suite", "post2021")
    assert (len(suite.models), suite.num_classes, suite.image_size) == (13, 10, 224)
    assert grid("--suite", "post2021", "--size", "num_classes=1000").num_classes == 1000
    assert suite.counters == tuple(COUNTERS)
    assert grid("--suite", "post2021", "--counters", "fvcore").counters == ("fvcore",)
    resumed = grid("--suite", "post2021", stored=grid("--models", "vgg11").as_json())
    assert resumed.counters == grid().counters == ("fvcore", "ptflops"), "what the run had goes first"
    assert grid("--suite", "post2021", "--models", "vit_b_16").models[-1] == "vit_b_16"


def test_a_resumed_run_says_what_it_measures_that_these_options_do_not_ask_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Three models at two batches, of which one cell is there, then one model at a third batch."""
    before, now = (
        grid("--models", "vgg11,alexnet,resnet18", "--batch-sizes", "1,2"),
        grid("--models", "alexnet", "--batch-sizes", "2,4"),
    )
    planned = sweep_options.union(now, [before])
    assert len(planned) == 7
    done = {cells(before)[0].cell_id: "ok"}
    todo = remaining(planned, done)
    sweep_command._say_what_is_left(planned, todo, cells(now))
    there, owed = capsys.readouterr().err.splitlines()
    asked = {cell.cell_id for cell in cells(now)} - set(done)
    assert there == "1 of 7 cells are there already"
    assert owed == (
        f"6 cells to measure: {len(asked)} that these options ask for, then {6 - len(asked)} that earlier sessions of "
        "this run asked for and left"
    )
    assert {cell.cell_id for cell in todo[: len(asked)]} == asked, "these first"
    sweep_command._say_what_is_left(cells(now), cells(now), cells(now))
    assert capsys.readouterr().err == ""


def test_the_suite_of_fathom_brings_each_workload_with_its_own_batch_and_optimizer() -> None:
    suite = grid("--suite", "fathom")
    assert (suite.batch_sizes, suite.optimizer, suite.image_size, suite.num_classes) == ((), ("own",), None, None)
    sizes = {cell.model: cell.batch_size for cell in cells(suite)}
    assert sizes == {"seq2seq": 64, "memnet": 32, "fathom-speech": 32, "autoenc": 128, "residual": 16,
                     "fathom-vgg": 8, "fathom-alexnet": 64, "deepq": 32}  # fmt: skip
    assert Grid.from_json(suite.as_json()) == suite
    chosen = grid("--suite", "fathom-small", "--batch-sizes", "2,3", "--optimizer", "sgd")
    assert (chosen.batch_sizes, chosen.optimizer) == ((2, 3), ("sgd",))
    assert {cell.model for cell in cells(chosen)} == {f"{name}@small" for name in sizes}


def test_the_suite_of_a_gpu_measures_what_is_worth_most_first() -> None:
    """15 models in bfloat16, of which alexnet at three batches and by a counter; in fp32 and tf32; then at three other
    batches, two of which alexnet has had; then two compiled: 6 × 15 + 2."""
    stages = sweep_options.grids_of(parsed("--suite", "gpu"), {}, H100)
    planned = sweep_options.union(stages[0], stages[1:])
    assert len(planned) == 6 * 15 + 2
    everything = {cell.model for cell in planned}
    assert len(everything) == 15
    for first, cells_of, precision in (
        (0, 17, "amp-bf16"),
        (17, 15, "fp32"),
        (32, 15, "tf32"),
        (47, 45 - 2, "amp-bf16"),
    ):
        part = planned[first : first + cells_of]
        assert {cell.model for cell in part} == everything
        assert {cell.precision for cell in part} == {precision}
    assert {cell.batch_size for cell in planned[:47] if cell.model not in ("gpt", "alexnet")} == {256}
    assert {cell.batch_size for cell in planned[14:17] if cell.model == "alexnet"} == {256, 64, 1}
    assert {cell.counters for cell in planned if cell.model == "alexnet"} == {(), ("flop_counter_mode",)}
    assert {cell.layout for cell in planned if cell.model != "gpt"} == {"channels_last"}
    assert {(cell.model, cell.compile) for cell in planned[-2:]} == {("mobilenet_v2", True), ("efficientnet_b0", True)}


def test_stages_of_a_suite_follow_the_device_and_the_options() -> None:
    of_v100 = sweep_options.grids_of(parsed("--suite", "gpu"), {}, V100)
    assert {each.precisions for each in of_v100} == {("fp32",)}
    given = sweep_options.grids_of(parsed("--suite", "gpu", "--precisions", "amp-fp16", "--quick"), {}, V100)
    assert len(given) == 14
    assert {(each.precisions, each.quick) for each in given} == {(("amp-fp16",), True)}
    for words in (("--models", "vgg11"), ("--batch-sizes", "auto")):
        with pytest.raises(ValueError, match=f"{words[0]}.*: expected without --suite gpu"):
            sweep_options.grids_of(parsed("--suite", "gpu", *words), {}, H100)
    old = ProbeResult(device="cuda", refused=dict.fromkeys(("fp32", "tf32", "amp-bf16"), "no"))
    with pytest.raises(ValueError, match="expected a device with one of its precisions"):
        sweep_options.grids_of(parsed("--suite", "gpu"), {}, old)


def test_a_suite_in_stages_is_resumed_with_or_without_its_name() -> None:
    first, *others = sweep_options.grids_of(parsed("--suite", "gpu", "--quick"), {}, H100)
    stored = sweep_options.as_options(first, others)
    planned = [cell.cell_id for cell in sweep_options.union(first, others)]
    for words in ((), ("--suite", "gpu")):
        again = sweep_options.grids_of(parsed(*words), stored, H100)
        earlier = sweep_command._earlier(again, stored)
        assert [cell.cell_id for cell in sweep_options.union(again[0], earlier)] == planned


def test_a_model_without_batch_or_optimizer_of_its_own_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="--batch-sizes: expected sizes, as resnet18 has none of its own"):
        cells(grid("--suite", "fathom", "--models", "resnet18"))
    with pytest.raises(ValueError, match="--optimizer: resnet18 has none of its own; expected sgd, "):
        check(grid("--models", "memnet,resnet18", "--optimizer", "own"))
    check(grid("--suite", "fathom-small"))


def test_recordings_are_kept_where_they_are_asked_for_and_stay_so_on_resuming() -> None:
    asked = grid("--methods", "batch", "--profile", "kineto")
    assert [cell.profile for cell in cells(asked)] == ["kineto"] * 2
    assert {cell.cell_id for cell in cells(asked)}.isdisjoint(c.cell_id for c in cells(grid("--methods", "batch")))
    assert grid(stored=asked.as_json()) == asked
    assert grid().profile == ""
    old = {name: value for name, value in grid("--methods", "batch").as_json().items() if name != "profile"}
    assert grid(stored=old) == grid("--methods", "batch"), "a run of before there was the option"


def test_sizes_by_name_reach_the_cells_and_stay_on_resuming() -> None:
    asked = grid("--models", "wordlm,charlm", "--size", "hidden=8,seq=3")
    assert [cell.hyper for cell in cells(asked)] == [{"hidden": 8, "seq": 3}] * 2
    assert grid(stored=asked.as_json()) == asked
    assert grid("--models", "wordlm").hyper == {}
    old = {name: value for name, value in grid().as_json().items() if name != "hyper"}
    assert grid(stored=old) == grid(), "a run of before there was the option"


def test_lists_of_layouts_compilers_and_optimizers() -> None:
    asked = grid("--layout", "channels_last,channels_first", "--compile", "off,on", "--optimizer", "adam,sgd")
    assert (asked.layout, asked.compile, asked.optimizer) == (
        ("channels_last", "channels_first"), (False, True), ("adam", "sgd"),
    )  # fmt: skip
    assert len(cells(asked)) == 2 * 2 * 2 * 2
    with pytest.raises(SystemExit):
        parsed("--compile", "maybe")


def test_epoch_pipeline_and_methods_reach_the_cells() -> None:
    asked = grid("--methods", "exact,epoch,one", "--epoch-images", "50", "--input-pipeline")
    assert (asked.methods, asked.epoch_images, asked.input_pipeline) == (("exact", "epoch", "one"), 50, True)
    assert {(cell.methods, cell.epoch_images, cell.input_pipeline) for cell in cells(asked)} == {
        (("one", "epoch", "exact"), 50, True)
    }
    assert (grid().epoch_images, grid().input_pipeline) == (10_000, False)
    assert grid(stored=asked.as_json()) == asked


def test_images_are_asked_of_a_process_and_held_to_the_grid(monkeypatch) -> None:
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(sweep_command, "_worker_answer", lambda *task: asked.append(task) or 20)
    sweep_command._check_data(grid("--batch-sizes", "64"))
    assert asked == [], "random data have no end"
    sweep_command._check_data(grid("--batch-sizes", "20", "--data", "cifar10:here"))
    assert asked == [("runners.workers.batches:images", "cifar10:here")]
    with pytest.raises(ValueError, match="--epoch-images: expected at most 20"):
        sweep_command._check_data(grid("--batch-sizes", "4", "--data", "cifar10:here", "--methods", "epoch"))


def test_resuming_without_options_plans_the_same_cells() -> None:
    first = grid("--models", "vgg11", "--batch-sizes", "1,2", "--quick", "--compile", "on", "--cudnn-benchmark", "off")
    again = grid(stored=first.as_json())
    assert again == first
    assert cells(again) == cells(first)
    assert all(cell.quick and cell.compile and not cell.cudnn_benchmark for cell in cells(again))


def test_resuming_with_other_options_forgets_no_cell() -> None:
    first = grid("--models", "vgg11", "--batch-sizes", "1,2")
    second = grid("--batch-sizes", "4", stored=first.as_json())
    options = sweep_options.as_options(second, [first])
    assert (second.models, second.batch_sizes) == (("vgg11",), (4,))
    third = grid(stored=options)
    earlier = [Grid.from_json(kept) for kept in options[sweep_options.EARLIER]]
    assert third == second
    assert {cell.batch_size for cell in sweep_options.union(third, earlier)} == {1, 2, 4}
    assert len(sweep_options.union(first, [first])) == 2


def test_compiling_for_a_cpu_without_a_compiler_is_one_line_before_anything_is_measured(monkeypatch) -> None:
    monkeypatch.setenv("CXX", "some++ -m64")
    asked: list[str] = []
    compiled = grid("--models", "vgg11", "--batch-sizes", "1", "--compile", "off,on")
    with pytest.raises(ValueError, match=r"--compile: expected a C\+\+ compiler, found no some\+\+ -m64: install one"):
        sweep_command._check_compiler(compiled, lambda name: asked.append(name))
    assert asked == ["some++"]
    sweep_command._check_compiler(compiled, lambda name: f"/usr/bin/{name}")
    sweep_command._check_compiler(grid("--models", "vgg11", "--batch-sizes", "1"), lambda _: None)


def test_a_probe_that_is_killed_is_no_mistake_of_the_callers(monkeypatch, capsys, tmp_path):
    died = WorkerFault("crashed", "the worker died of SIGKILL")
    monkeypatch.setattr(Worker, "call", lambda *_arguments, **_options: died)
    assert sweep_command.main(["--models", "resnet18", "--out", str(tmp_path / "run")]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "error: the worker died of SIGKILL; nothing was measured"
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("ended", "code"), [(KeyboardInterrupt, 130), (sweep_command.Terminated, 143)])
def test_what_is_stopped_before_its_directory_is_there_promises_no_resume(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ended: type[KeyboardInterrupt],
    code: int,
) -> None:
    def stop(device: str) -> None:
        raise ended

    monkeypatch.setattr(sweep_command, "_probe", stop)
    assert sweep_command.main(["--models", "resnet18", "--out", str(tmp_path / "run")]) == code
    assert capsys.readouterr().err.splitlines()[-1] == "stopped; nothing was measured"
    assert not (tmp_path / "run").exists()
