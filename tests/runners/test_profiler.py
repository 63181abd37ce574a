"""Definition, law, injected fault: the profiler in DeepSpeed's shape, where DeepSpeed's own (0.19.8) has faults.

The faults are those of counters.md's list: what DeepSpeed prints instead stands beside the expected value.
"""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from reports.profile_tree import tree_text
from results.errors import Unavailable
from runners.profiler import Profiler, profile_model
from tests.measure.profile.left_behind import Fails, functions, state
from tests.support.nets.step_nets import Checkpointed


class Calls(nn.Module):
    """A model whose forward is a function of the model and its inputs."""

    def __init__(self, forward: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self._run = forward
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *inputs: Any) -> Any:
        return self._run(self, *inputs)


def counted(model: nn.Module, *inputs: Any, **more: Any) -> tuple[int, int, int]:
    """(all FLOP, MACs, parameters) of a forward pass."""
    return profile_model(model, args=inputs, print_profile=False, as_strings=False, warm_up=0, **more)  # type: ignore


def macs(forward: Callable[..., Any], *inputs: Any, **parts: nn.Module) -> int:
    return counted(Calls(forward, **parts), *inputs)[1]


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Sequential(nn.Linear(16, 4)))


MLP_MACS = 8 * 16 + 16 * 4
"""A sample."""


# --- one call ---


def test_numbers_and_words():
    """Other FLOP: a bias's addition and a relu's comparison an element."""
    flop, found, parameters = counted(mlp(), torch.ones(3, 8))
    assert (found, parameters) == (3 * MLP_MACS, 8 * 16 + 16 + 16 * 4 + 4)
    assert flop == 2 * found + 3 * (16 + 16 + 4)
    assert profile_model(mlp(), (3, 8), print_profile=False) == ("1.26 kFLOP", "576 MAC", "212")


@pytest.mark.parametrize(
    "given",
    [
        {"input_shape": (2, 8)},
        {"args": [torch.ones(2, 8)]},
        {"kwargs": {"input": torch.ones(2, 8)}},
        {"input_shape": (2, 8), "input_constructor": torch.ones},
        {"input_shape": (2, 8), "input_constructor": lambda shape: {"input": torch.ones(shape)}},
    ],
)
def test_ways_to_give_inputs(given: dict[str, Any]):
    assert profile_model(mlp(), print_profile=False, as_strings=False, **given)[1] == 2 * MLP_MACS


def test_generation_is_profiled():
    class Generating(nn.Linear):
        def generate(self, x: torch.Tensor) -> torch.Tensor:
            return self(self(x))

    assert counted(Generating(4, 4), torch.ones(1, 4), mode="generate")[1] == 2 * 16


def listened(model: nn.Module, *batches: torch.Tensor, ignored: Any = None) -> Profiler:
    """A profiler over a forward of each batch."""
    profiler = Profiler(model)
    profiler.start_profile(ignored)
    for batch in batches:
        model(batch)
    profiler.stop_profile()
    return profiler


# --- inside of a loop ---


def test_a_training_loop():
    model = mlp()
    profiler = Profiler(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(4):
        if step == 1:
            profiler.start_profile()
        optimizer.zero_grad()
        model(torch.ones(3, 8)).sum().backward()
        optimizer.step()
    profiler.stop_profile()
    assert profiler.get_total_macs() == 3 * MLP_MACS  # of one forward; DeepSpeed adds the three up
    assert profiler.get_total_flops() == 2 * 3 * MLP_MACS + 3 * (16 + 16 + 4)
    assert profiler.get_total_params() == 212
    assert (profiler.get_total_macs(True), profiler.get_total_params(True)) == ("576 MAC", "212")


def test_forwards_of_other_sizes_are_left_out_and_told(capsys: pytest.CaptureFixture[str]):
    profiler = listened(mlp(), *(torch.ones(size, 8) for size in (3, 2, 3)))
    assert profiler.get_total_macs() == 3 * MLP_MACS
    assert len(profiler._finished_profile().step_times_s) == 2
    profiler.print_model_profile(profile_step=7)
    assert "1 of 3 forwards are left out" in capsys.readouterr().out


def test_a_model_that_calls_itself_gives_nothing_back_and_runs_while_an_error_is_handled():
    def forward(model: Calls, x: torch.Tensor) -> None:
        if len(x) > 1:
            model(x[1:])
        model.layer(x)

    model = Calls(forward, layer=nn.Linear(4, 4))
    profiler = Profiler(model)
    profiler.start_profile()
    try:
        raise KeyError("something of the caller's")
    except KeyError:
        model(torch.ones(3, 4))
    profiler.stop_profile()
    assert profiler.get_total_macs() == (3 + 2 + 1) * 16


def test_out_of_order():
    model = mlp()
    profiler = Profiler(model)
    with pytest.raises(ValueError, match="no profile was started"):
        profiler.stop_profile()
    with pytest.raises(ValueError, match="expected a finished profile"):
        profiler.print_model_profile()  # DeepSpeed: ZeroDivisionError
    profiler.start_profile()
    with pytest.raises(ValueError, match="started already"):
        profiler.start_profile()
    with pytest.raises(ValueError, match="expected at least one whole forward"):
        profiler.stop_profile()


def test_two_profilers_at_once_are_refused_and_count_nothing_twice():
    """DeepSpeed's share their lists; what is patched twice counts double for the life of the process."""
    model = mlp()
    first, second = Profiler(model), Profiler(model)
    first.start_profile()
    with pytest.raises(Unavailable, match="another profiler is active"):
        second.start_profile()
    model(torch.ones(3, 8))
    first.stop_profile()
    assert first.get_total_macs() == 3 * MLP_MACS


# --- DeepSpeed's faults ---


def test_the_root_has_a_time_and_what_it_does_itself_is_counted():
    """DeepSpeed's engine: 1.8e9 s, the Unix epoch, and the products in the root's own forward are lost."""
    model = Calls(lambda model, x: F.linear(model.layer(x), model.layer.weight), layer=nn.Linear(8, 8))
    profiler = Profiler(model)
    profiler.start_profile()
    began_s = time.perf_counter()
    model(torch.ones(4, 8))
    took_s = time.perf_counter() - began_s
    profiler.stop_profile()
    assert profiler.get_total_macs() == 2 * (4 * 8 * 8)
    assert 0 < profiler.get_total_duration() <= took_s
    assert {row.module for row in profiler._finished_profile().operations if row.model_flop} == {"layer", ""}


@pytest.mark.parametrize("ignored", ["2", nn.ReLU])
def test_ignored_modules_reduce_the_total(ignored: Any):
    """DeepSpeed moves their FLOP to the parent."""
    model = mlp()
    profiler = listened(model, torch.ones(3, 8), ignored=[ignored])
    left = {"2": (3 * 8 * 16, 3 * 16 + 3 * 16, 8 * 16 + 16), nn.ReLU: (3 * MLP_MACS, 3 * 16 + 3 * 4, 212)}[ignored]
    assert profiler.get_total_macs() == left[0]
    assert profiler.get_total_flops() == 2 * left[0] + left[1]
    assert profiler.get_total_params() == left[2]
    assert counted(model, torch.ones(3, 8), ignore_modules=[ignored])[1] == left[0]


def test_recurrent_layers_and_einsum_have_macs():
    """4 gates of an LSTM, 3 of a GRU, each a product with the input and one with the state. DeepSpeed: 0 MACs."""
    x = torch.ones(5, 2, 6)  # 5 steps of 2 sequences
    assert macs(lambda model, x: model.layer(x), x, layer=nn.LSTM(6, 8)) == 5 * 2 * 4 * 8 * (6 + 8)
    assert macs(lambda model, x: model.layer(x), x, layer=nn.GRU(6, 8)) == 5 * 2 * 3 * 8 * (6 + 8)
    a, b = torch.ones(2, 3, 4), torch.ones(2, 4, 5)
    assert macs(lambda _, a, b: torch.einsum("bij,bjk->bik", a, b), a, b) == 2 * 3 * 4 * 5


@pytest.mark.parametrize("name", ["__add__", "__iadd__", "__sub__", "__mul__", "sigmoid", "tanh"])
def test_operators_and_activations_are_other_flop(name: str):
    """One an element. DeepSpeed: 0."""
    given = [torch.ones(3, 7), torch.ones(3, 7)][: 2 if name.startswith("__") else 1]
    flop, found, _ = counted(Calls(lambda _, x, *more: getattr(x.clone(), name)(*more)), *given)
    assert found == 0
    assert flop >= 3 * 7
    assert flop == 3 * 7 or name in ("sigmoid", "tanh")


def test_an_exception_leaves_nothing_patched_and_later_counts_as_they_were():
    """DeepSpeed's functions stay replaced, and an unrelated count doubles: 13.53 M instead of 6.77 M."""
    model, batch = Fails(), torch.ones(3, 4)
    before, all_functions = state(model), functions()
    expected = counted(mlp(), torch.ones(3, 8))
    with pytest.raises(ValueError, match=r"the model failed in module body\.3"):
        counted(model, batch)
    profiler = Profiler(model)
    profiler.start_profile()
    with pytest.raises(RuntimeError):
        model(batch)
    with pytest.raises(ValueError, match="expected at least one whole forward"):
        profiler.stop_profile()
    fields = [field for field in range(len(before)) if field not in (5, 7)]  # what the forward itself did: running
    # means, and the random numbers of a dropout
    assert [state(model)[field] for field in fields] == [before[field] for field in fields]
    assert functions() == all_functions
    assert counted(mlp(), torch.ones(3, 8)) == expected


def test_modes_are_kept_and_no_gradient_is_made():
    """DeepSpeed leaves the model in eval mode, and runs with gradients on."""
    seen = []

    def forward(model: Calls, x: torch.Tensor) -> torch.Tensor:
        seen.append((model.training, torch.is_grad_enabled()))
        return model.layer(x)

    model = Calls(forward, layer=nn.Linear(4, 4))
    counted(model, torch.ones(2, 4))
    assert set(seen) == {(False, False)}
    assert model.training
    assert model.layer.training


class Engine:
    """What DeepSpeed's profiler asks an engine: eight devices, four a model, batches of 3; times in ms."""

    world_size, dp_world_size, mp_world_size, has_moe_layers = 8, 2, 4, False

    def train_micro_batch_size_per_gpu(self) -> int:
        return 3

    def wall_clock_breakdown(self) -> bool:
        return True

    def timers(self, name: str) -> Any:
        return SimpleNamespace(elapsed=lambda reset: 1000.0)


def test_totals_of_a_model_in_parts_are_deepspeeds_but_for_the_samples(capsys: pytest.CaptureFixture[str]):
    """Parameters and forward FLOP of the model are those of a device × 4 in both. Samples: two models of 3 each a step;
    DeepSpeed has 8 × 3 in its 3 s, for it multiplies by every device."""
    from deepspeed.profiling import flops_profiler

    model, engine = mlp(), Engine()
    theirs = flops_profiler.FlopsProfiler(model, engine)
    theirs.start_profile()
    model(torch.ones(3, 8))
    theirs.stop_profile()
    capsys.readouterr()
    theirs.print_model_profile(detailed=False)
    theirs.end_profile()
    said = dict(line.rsplit(": ", 1) for line in capsys.readouterr().out.splitlines() if ":  " in line)
    said = {name.strip(" :"): value.strip() for name, value in said.items()}
    mine = Profiler(model, engine)
    mine.start_profile()
    model(torch.ones(3, 8))
    mine.stop_profile()
    told = " ".join(tree_text(mine._finished_profile()).split())
    assert said["params of model = params per GPU * mp_size"] == "848"
    assert "parameters of the model (× 4) 848" in told
    assert said["samples/second"] == str(8 * 3 / 3)
    assert mine._finished_profile().samples == 2 * 3
    assert "world size 8 = 2 data parallel × 4 model parallel" in told


def test_frozen_attention_is_counted_whole():
    """Frozen and in eval mode it takes torch's fast path: DeepSpeed counts 0 of the attention itself."""
    model = nn.MultiheadAttention(16, 2, batch_first=True).requires_grad_(False)
    tokens, width = 5, 16
    expected = tokens * width * 4 * width + 2 * tokens * tokens * width  # four projections; scores and their use
    x = torch.ones(1, tokens, width)
    assert macs(lambda model, x: model.layer(x, x, x), x, layer=model) == expected


def test_convolutions_of_all_forms():
    weight = torch.ones(4, 3, 4, 4)
    strided = lambda _, x: F.conv2d(x, weight, stride=[2, 2])  # noqa: E731  DeepSpeed: TypeError
    assert macs(strided, torch.ones(1, 3, 8, 8)) == 4 * 3 * 3 * (3 * 4 * 4)
    unbatched = lambda _, x: F.conv2d(x, weight)  # noqa: E731  DeepSpeed: AssertionError
    assert macs(unbatched, torch.ones(3, 8, 8)) == 4 * 5 * 5 * (3 * 4 * 4)
    same = lambda _, x: F.conv2d(x, weight, padding="same")  # noqa: E731  DeepSpeed: 7 × 7 outputs
    assert macs(same, torch.ones(1, 3, 8, 8)) == 4 * 8 * 8 * (3 * 4 * 4)


@pytest.mark.parametrize("function", [F.relu6, F.hardswish, F.hardtanh])
def test_clamping_activations_are_counted(function: Callable[[torch.Tensor], torch.Tensor]):
    """At least one an element, in a module too. DeepSpeed: 0."""
    assert counted(Calls(lambda _, x: function(x)), torch.ones(3, 7))[0] >= 3 * 7
    assert counted(nn.Sequential(nn.ReLU6()), torch.ones(3, 7))[0] >= 3 * 7


def test_a_backward_pass_with_recomputation_adds_nothing():
    """DeepSpeed, if the profile spans it, adds the block's forward again."""
    model = Checkpointed()
    profiler = Profiler(model)
    profiler.start_profile()
    model(torch.ones(2, 8)).sum().backward()
    profiler.stop_profile()
    assert profiler.get_total_macs() == 3 * (2 * 8 * 8)
