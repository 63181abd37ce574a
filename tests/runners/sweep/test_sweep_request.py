"""Definition, law: what a sweep plans, by its options, those of the run that it resumes, and the device."""

import argparse
from pathlib import Path
from typing import Any

import pytest

from analysis.counters import COUNTERS
from runners.sweep import __main__ as sweep_command
from runners.sweep import executors, request
from runners.sweep import options as sweep_options
from runners.sweep.plan import Grid, cells
from runners.workers.devices import ProbeResult

CPU = ProbeResult(device="cpu", refused={"tf32": "tf32 on cpu: a CPU has none"})
H100 = ProbeResult(device="cuda")
V100 = ProbeResult(device="cuda", refused={"tf32": "no", "amp-bf16": "no"})


def parsed(*arguments: str) -> argparse.Namespace:
    return sweep_options.parser().parse_args(arguments)


def grid(*arguments: str, stored: dict[str, Any] | None = None, probed: ProbeResult = CPU) -> Grid:
    return request.grid_of(parsed(*arguments), stored or {}, probed)


def test_defaults_follow_from_the_device() -> None:
    assert (grid().batch_sizes, grid().precisions) == ((8,), ("fp32",))
    assert (grid(probed=H100).batch_sizes, grid(probed=H100).precisions) == ((64,), ("fp32", "tf32", "amp-bf16"))
    assert grid(probed=V100).precisions == ("fp32",)
    assert grid().models == ("resnet18", "mobilenet_v2")


def test_defaults_are_those_that_help_names() -> None:
    options, default = parsed(), grid()
    assert (options.cell_timeout, options.executor, options.retry, options.format) == (900, "local", (), "table")
    assert (default.methods, default.counters) == (("theory", "exact"), ("fvcore", "ptflops"))
    assert (default.layout, default.compile, default.optimizer) == (("channels_first",), (False,), ("sgd",))
    assert (default.epoch_images, default.data, default.scaling) == (10_000, "synthetic", "strong")
    assert (default.cudnn_benchmark, default.repeat, default.seed, default.target_ci_ratio) == (True, 1, 0, None)
    assert not any((default.deterministic, default.quick, default.profile, default.frozen, default.checkpoint))


def test_on_a_cpu_freed_memory_is_retained_and_the_ceiling_is_paired(monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(found: Grid) -> set[tuple[str, bool]]:
        return {(cell.malloc, cell.paired_ceiling) for cell in cells(found)}

    monkeypatch.delenv(request.MALLOC, raising=False)
    assert settings(grid()) == {("retain", True)}
    assert settings(grid(probed=H100)) == {("default", False)}
    assert settings(grid("--parallel", "ddp=2")) == {("retain", False)}
    monkeypatch.setenv(request.MALLOC, "default")
    assert settings(grid()) == {("default", True)}
    monkeypatch.setenv(request.MALLOC, "keep")
    with pytest.raises(ValueError, match="FLOPLEDGER_MALLOC: expected default or retain, got 'keep'"):
        request.check_options(parsed(), {})
    monkeypatch.delenv(request.MALLOC)
    monkeypatch.setattr(request.platform, "libc_ver", lambda: ("", ""))
    assert settings(grid()) == {("default", True)}, "a C library that cannot retain it"


def test_a_suite_brings_its_models_and_sizes_and_options_win() -> None:
    suite = grid("--suite", "post2021")
    assert (len(suite.models), suite.num_classes, suite.image_size) == (13, 10, 224)
    assert grid("--suite", "post2021", "--size", "num_classes=1000").num_classes == 1000
    assert suite.counters == tuple(COUNTERS)
    assert grid("--suite", "post2021", "--counters", "fvcore").counters == ("fvcore",)
    resumed = grid("--suite", "post2021", stored=grid("--models", "vgg11").as_json())
    assert resumed.counters == grid().counters == ("fvcore", "ptflops"), "what the run had goes first"
    assert grid("--suite", "post2021", "--models", "vit_b_16").models[-1] == "vit_b_16"


def test_the_suite_of_a_gpu_measures_what_is_worth_most_first() -> None:
    """15 models in bfloat16, of which alexnet at three batches and by a counter; in fp32 and tf32; then at three other
    batches, two of which alexnet has had; then two compiled: 6 × 15 + 2."""
    stages = request.grids_of(parsed("--suite", "gpu"), {}, H100)
    planned = request.union(stages[0], stages[1:])
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


def test_a_suite_in_stages_is_resumed_with_or_without_its_name() -> None:
    first, *others = request.grids_of(parsed("--suite", "gpu", "--quick"), {}, H100)
    stored = request.as_options(first, others)
    planned = [cell.cell_id for cell in request.union(first, others)]
    for words in ((), ("--suite", "gpu")):
        again = request.grids_of(parsed(*words), stored, H100)
        earlier = sweep_command._earlier(again, stored)
        assert [cell.cell_id for cell in request.union(again[0], earlier)] == planned


def test_resuming_with_other_options_forgets_no_cell() -> None:
    first = grid("--models", "vgg11", "--batch-sizes", "1,2")
    second = grid("--batch-sizes", "4", stored=first.as_json())
    options = request.as_options(second, [first])
    assert (second.models, second.batch_sizes) == (("vgg11",), (4,))
    third = grid(stored=options)
    earlier = [Grid.from_json(kept) for kept in options[request.EARLIER]]
    assert third == second
    assert {cell.batch_size for cell in request.union(third, earlier)} == {1, 2, 4}
    assert len(request.union(first, [first])) == 2


@pytest.mark.parametrize(("ended", "code"), [(KeyboardInterrupt, 130), (sweep_command.Terminated, 143)])
def test_what_is_stopped_before_its_directory_is_there_promises_no_resume(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ended: type[KeyboardInterrupt],
    code: int,
) -> None:
    def stop(_executor: Any) -> None:
        raise ended

    monkeypatch.setattr(executors.Executor, "probe", stop)
    assert sweep_command.main(["--models", "resnet18", "--out", str(tmp_path / "run")]) == code
    assert capsys.readouterr().err.splitlines()[-1] == "stopped; nothing was measured"
    assert not (tmp_path / "run").exists()


def test_resuming_without_options_plans_the_same_cells() -> None:
    first = grid("--models", "vgg11", "--batch-sizes", "1,2", "--quick", "--compile", "on", "--cudnn-benchmark", "off")
    again = grid(stored=first.as_json())
    assert again == first
    assert cells(again) == cells(first)
    assert all(cell.quick and cell.compile and not cell.cudnn_benchmark for cell in cells(again))
