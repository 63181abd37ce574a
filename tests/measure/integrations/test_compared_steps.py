"""Trainers under the meter with gradient hooks in one of eight steps: the number is the one with hooks in each step."""

import logging
import warnings

import pytest
import torch

import flopledger

WIDTH, BATCH, STEPS = 16, 4, 40


def _lightning_result(folder, accumulated, **options):
    lightning = pytest.importorskip("lightning")
    from flopledger.lightning import UtilizationCallback

    class Net(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(WIDTH, WIDTH)

        def forward(self, x):
            return self.layer(x)

        def training_step(self, batch, _index):
            return self(batch).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    callback = UtilizationCallback(energy=False, warm_up_steps=1, peak_flop_per_s=1e12, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's own: few workers
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", callbacks=[callback], logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=str(folder),
            accumulate_grad_batches=accumulated,
        )  # fmt: skip
        trainer.fit(Net(), torch.utils.data.DataLoader(torch.randn(STEPS * BATCH, WIDTH), batch_size=BATCH))
    return callback


def _trainer_result(folder, accumulated, **options):
    transformers = pytest.importorskip("transformers")
    from flopledger.transformers import UtilizationCallback

    sizes = {"vocab_size": 32, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    data = [{"input_ids": each, "labels": each} for each in torch.randint(0, 32, (64, 8))]
    callback = UtilizationCallback(energy=False, warm_up_steps=1, peak_flop_per_s=1e12, **options)
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=STEPS, per_device_train_batch_size=BATCH, gradient_accumulation_steps=accumulated,
        logging_steps=STEPS, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[callback]).train()
    return callback


class _Metered:
    def __init__(self, meter):
        self.meter, self.result = meter, meter.summary()


def _accelerate_result(_folder, accumulated, **options):
    accelerate = pytest.importorskip("accelerate")

    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    model = torch.nn.Linear(WIDTH, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(torch.randn(STEPS * accumulated * BATCH, WIDTH), batch_size=BATCH)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    meter = flopledger.UtilizationMeter(model, energy=False, warm_up_steps=1, **options)
    for batch in loader:
        with accelerator.accumulate(model):
            if not meter.is_open:
                meter.begin()
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                meter.update()
    return _Metered(meter)


@pytest.mark.parametrize("accumulated", [1, 2])
@pytest.mark.parametrize("train", [_lightning_result, _trainer_result, _accelerate_result])
def test_the_number_is_that_with_hooks_in_each_step(train, accumulated, tmp_path):
    each, some = (train(tmp_path, accumulated, hook_every=every, watch=False) for every in (1, 8))
    assert each.result.steps == some.result.steps == STEPS - 1
    assert each.result.model_flop_per_step == some.result.model_flop_per_step
    assert each.result.model_flop_per_step > 0
    assert each.meter._step.expected_calls == 0  # no step was only compared
    assert some.meter._step.expected_calls >= 1
    assert some.meter._step.equal_calls == some.meter._step.expected_calls
