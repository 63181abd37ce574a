"""Law: steps of Hugging Face's own Trainer and of Accelerate have the count of `flopledger.count`."""

import pytest
import torch

import flopledger

transformers = pytest.importorskip("transformers")
UtilizationCallback = pytest.importorskip("flopledger.transformers").UtilizationCallback

SIZES = {"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2}
LENGTH, BATCH, ACCUMULATED, STEPS = 16, 2, 2, 6


class Words(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        words = torch.randint(0, 64, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES))


def _trainer(model, folder, callback, **options):
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=STEPS, per_device_train_batch_size=BATCH, gradient_accumulation_steps=ACCUMULATED,
        logging_steps=2, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True, **options,
    )  # fmt: skip
    return transformers.Trainer(model=model, args=arguments, train_dataset=Words(), callbacks=[callback])


def _exact(model):
    words = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    return ACCUMULATED * flopledger.count(model, (), kwargs={"input_ids": words, "labels": words}).model_flop


def test_the_trainers_steps_have_the_exact_count(model, tmp_path):

    callback = UtilizationCallback(warm_up_steps=1, energy=False, peak_flop_per_s=1e12)
    trainer = _trainer(model, tmp_path, callback)
    trainer.train()
    found = callback.result
    assert found.steps == STEPS - 1
    assert (found.unverified_steps, found.lost_steps) == (0, 0)  # its last step was observed
    assert found.model_flop_per_step == _exact(model)
    assert found.unknown_calls == 0
    assert found.units == ("fp32",)
    logged = [row for row in trainer.state.log_history if "loss" in row]
    assert [row["flopledger/model_flop_per_step"] for row in logged] == [found.model_flop_per_step] * len(logged)
    assert all(0 < row["flopledger/utilization_ratio"] < 1 for row in logged)
    assert not any(module._forward_hooks for module in model.modules())


def test_recomputation_of_the_trainer_is_hardware_flop(model, tmp_path):

    callback = UtilizationCallback(warm_up_steps=1, energy=False, peak_flop_per_s=1e12)
    exact = _exact(model)
    _trainer(model, tmp_path, callback, activation_checkpointing=True).train()
    found = callback.result
    assert found.model_flop_per_step == exact
    assert found.recompute_flop_per_step > 0
    assert found.hfu_ratio > found.utilization_ratio


@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_step_of_accelerate(accumulated):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(torch.randn(8 * accumulated * BATCH, 16), batch_size=BATCH)
    prepared, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    meter = flopledger.UtilizationMeter(prepared, energy=False, warm_up_steps=1)
    for batch in loader:
        with accelerator.accumulate(prepared):
            if not meter.is_open:
                meter.begin()
            accelerator.backward(prepared(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                meter.update()
    exact = flopledger.count(model, torch.zeros(BATCH, 16)).model_flop
    found = meter.summary()
    assert found.model_flop_per_step == accumulated * exact > 0
    assert found.steps == 7
