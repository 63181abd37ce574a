"""Changes that are tried: ranked by what they brought, with planted ones of a known ratio and planted faults."""

import dataclasses
import time

import pytest
import torch

import flopledger
from measure.what_if import CHANGES, TrialParts, what_if
from measure.what_if.changes import workers
from measure.what_if.parts import resized, samples_of
from results import Unavailable
from results.records import CHANGE_NAMES

WIDTH, BATCH = 16, 8
STEP_S, SLOW_S = 0.02, 0.06
"""A step that sleeps is as long on a busy machine as on an idle one, to a few ms."""


def _step(model, optimizer, batch):
    inputs, targets = batch
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
    time.sleep(STEP_S)


def _model(optimizer=torch.optim.SGD):
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH))
    return model, optimizer(model.parameters(), lr=0.01)


BATCHES = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)


def _sleeping(seconds):
    def change(parts, _number):
        def slower(model, optimizer, batch):
            parts.step(model, optimizer, batch)
            time.sleep(seconds)

        return dataclasses.replace(parts, step=slower)

    return change


def _failing(_parts, _number):
    raise RuntimeError("planted")


def _too_large(_parts, _number):
    raise torch.OutOfMemoryError("planted")


def test_the_names_are_those_that_the_command_offers():
    assert tuple(CHANGES) == CHANGE_NAMES


def test_a_planted_slow_down_is_last_with_its_ratio_and_a_fault_is_a_row():
    model, optimizer = _model()
    before = [each.clone() for each in model.parameters()]
    own = {"slow": _sleeping(SLOW_S), "failing": _failing, "large": _too_large}
    rows = what_if(_step, model, optimizer, BATCHES, changes=["tf32", "batch_size"], own=own, quick=True)
    by_name = {row.change: row for row in rows}
    assert [row.change for row in rows] == [f"batch_size={2 * BATCH}", "none", "slow", "tf32", "failing", "large"]
    slow = by_name["slow"]
    assert slow.ratio == pytest.approx(STEP_S / (STEP_S + SLOW_S), rel=0.3)
    assert slow.low <= slow.ratio <= slow.high < 1
    assert by_name[f"batch_size={2 * BATCH}"].ratio == pytest.approx(2, rel=0.3)  # twice the samples in a step's sleep
    assert by_name["none"].ratio == 1
    assert (by_name["tf32"].status, by_name["tf32"].reason) == (
        "unavailable", "TF32 is of CUDA devices, this step runs on cpu",
    )  # fmt: skip
    assert (by_name["failing"].status, by_name["failing"].reason) == ("crashed", "RuntimeError: planted")
    assert by_name["large"].status == "out_of_memory"
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert not optimizer.state


def test_memory_holds_weights_optimizer_state_and_gradients():
    """Adam: two states of each weight, each 4 bytes; at its highest, a step holds the gradients, too."""
    model, optimizer = _model(torch.optim.Adam)
    weights = 4 * sum(each.numel() for each in model.parameters())
    rows = what_if(_step, model, optimizer, BATCHES, changes=["batch_size=800"], quick=True)
    small, large = sorted(row.memory_bytes for row in rows)
    assert small >= 4 * weights + 2 * 4 * BATCH * WIDTH
    activation = 4 * (800 - BATCH) * WIDTH
    assert large - small >= 3 * activation  # inputs, targets, and at least one activation


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("channel_last", "got 'channel_last', nearest channels_last"),
        ("batch_size=0", "expected a whole number of at least 1, got '0'"),
        ("bf16=2", "expected bf16 without a number"),
    ],
)
def test_a_name_that_is_none_is_one_line(asked, words):
    with pytest.raises(ValueError, match=r"\A.*\Z") as fault:
        what_if(_step, *_model(), BATCHES, changes=[asked])
    assert words in str(fault.value)


def test_a_step_that_trains_another_model_is_refused():
    model, optimizer = _model()
    with pytest.raises(ValueError, match="calls the model it is given"):
        what_if(lambda _model, _optimizer, batch: _step(model, optimizer, batch), model, optimizer, BATCHES)
    with pytest.raises(ValueError, match="got neither"):
        what_if(_step, model, optimizer)


@pytest.mark.parametrize(
    ("change", "optimizer", "words"),
    [
        ("channels_last", torch.optim.SGD, "no weights of four dimensions"),
        ("workers", torch.optim.SGD, "there is no loader"),
        ("fused_optimizer", torch.optim.Adadelta, "Adadelta has no fused implementation"),
        ("cuda_graph", torch.optim.SGD, "CUDA graphs are of CUDA devices"),
        ("pinned_memory", torch.optim.SGD, "copies to a CUDA device"),
        (f"batch_size={BATCH}", torch.optim.SGD, f"has {BATCH} samples already"),
    ],
)
def test_what_does_not_apply_says_why(change, optimizer, words):
    model, chosen = _model(optimizer)
    (row,) = what_if(_step, model, chosen, BATCHES, changes=[change])
    assert (row.status, row.ratio) == ("unavailable", None)
    assert words in row.reason


def test_autocast_is_seen_in_the_step():
    def autocast(model, optimizer, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            _step(model, optimizer, batch)

    (row,) = what_if(autocast, *_model(), BATCHES, changes=["bf16"])
    assert row.reason == "the step runs under autocast already"


def _parts(model, optimizer, **more):
    return TrialParts(_step, model, optimizer, BATCHES, **more)


def test_each_change_changes_what_it_says():
    model = torch.nn.Conv2d(3, 4, 3)
    images = torch.randn(2, 3, 8, 8)
    parts = TrialParts(lambda *_: None, model, torch.optim.SGD(model.parameters()), images)
    changed = CHANGES["channels_last"](parts.copied(), None)
    assert changed.model.weight.is_contiguous(memory_format=torch.channels_last)
    assert changed.batch.is_contiguous(memory_format=torch.channels_last)
    assert model.weight.is_contiguous()
    with pytest.raises(Unavailable, match="already"):
        CHANGES["channels_last"](changed, None)

    seen = []
    changed = CHANGES["bf16"](_parts(*_model()).copied(), None)
    changed.model[0].register_forward_hook(lambda _m, _i, output: seen.append(output.dtype))
    assert changed.model(BATCHES[0]).dtype == torch.float32
    assert seen == [torch.bfloat16]

    changed = CHANGES["fused_optimizer"](_parts(*_model()).copied(), None)
    changed.ready()()
    assert [group["fused"] for group in changed.optimizer.param_groups] == [True]
    assert isinstance(CHANGES["compile"](_parts(*_model()), None).model, torch._dynamo.OptimizedModule)


def test_a_copy_trains_its_own_weights():
    model, optimizer = _model()
    before = [each.clone() for each in model.parameters()]
    copied = _parts(model, optimizer).copied()
    copied.ready()()
    assert not any(torch.equal(a, b) for a, b in zip(before, copied.model.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_loader_is_made_anew_with_its_own_settings():
    data = torch.utils.data.TensorDataset(*BATCHES)
    loader = torch.utils.data.DataLoader(data, batch_size=4, drop_last=True, collate_fn=_stacked)
    parts = _parts(*_model(), loader=loader)
    assert parts.samples == 4
    changed = workers(parts, 2)
    assert (changed.loader.num_workers, changed.loader.batch_size, changed.loader.drop_last) == (2, 4, True)
    assert changed.loader.collate_fn is _stacked
    assert CHANGES["batch_size"](parts, 2).loader.batch_size == 2
    run = parts.ready()
    for _ in range(3):  # more than one epoch of two batches
        run()


def _stacked(rows):
    return torch.utils.data.default_collate(rows)


def test_a_batch_is_resized_by_its_samples_alone():
    batch = {"x": torch.arange(6).reshape(3, 2), "scale": torch.ones(2), "n": 3}
    larger = resized(batch, 5)
    assert larger["x"].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]]
    assert larger["scale"].shape == (2,)
    assert larger["n"] == 3
    assert samples_of(larger) == 5
    with pytest.raises(ValueError, match="expected a batch with a tensor"):
        samples_of({"n": 3})


def test_it_is_public():
    assert flopledger.what_if is what_if
