"""Definition: steps of Lightning's own Trainer have the exact count, and the unit of its precision."""

import csv
import logging
import warnings
from pathlib import Path

import pytest
import torch

from tests.measure.integrations.lightning_nets import lightning_module

pytest.importorskip("lightning")
UtilizationCallback = pytest.importorskip("flopledger.lightning").UtilizationCallback

WIDTH, BATCH = 32, 4
LAYER = 2 * BATCH * WIDTH * WIDTH


def _module(calls_itself=True):
    encoder, head = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(2))
    return lightning_module(lambda m, x: m.head(m.encoder(x)), calls_itself, encoder=encoder, head=head)


def _train(module, callback, folder, **options):
    import lightning
    from lightning.pytorch.loggers import CSVLogger

    data = torch.utils.data.DataLoader(torch.randn(32, WIDTH), batch_size=BATCH)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's own: few workers, no validation loader
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", devices=1, callbacks=[callback], logger=CSVLogger(str(folder)),
            log_every_n_steps=2, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
            **options,
        )  # fmt: skip
        trainer.fit(module, data, data)
    return trainer


@pytest.mark.parametrize("calls_itself", [True, False], ids=["module", "parts"])
def test_lightnings_steps_have_the_exact_count(calls_itself, tmp_path):

    callback = UtilizationCallback(warm_up_steps=1, energy=False, peak_flop_per_s=1e12)
    trainer = _train(_module(calls_itself), callback, tmp_path)
    found = callback.result
    assert found.steps == 32 // BATCH - 1
    assert (found.unverified_steps, found.lost_steps) == (0, 0)  # its last step was observed
    assert found.model_flop_per_step == (1 + 1 + 1 + 2) * LAYER  # no gradient of the first layer's input
    assert found.unknown_calls == 0
    assert found.items_per_s == pytest.approx(BATCH / found.step_time_s)
    trainer.logger.save()
    table = Path(trainer.logger.log_dir, "metrics.csv").read_text(encoding="utf-8")
    assert "flopledger/utilization_ratio" in table.splitlines()[0]


def test_accumulated_batches_log_a_step_once(tmp_path):
    callback = UtilizationCallback(warm_up_steps=1, energy=False, peak_flop_per_s=1e12)
    trainer = _train(_module(), callback, tmp_path, accumulate_grad_batches=2)
    trainer.logger.save()
    with open(Path(trainer.logger.log_dir, "metrics.csv"), encoding="utf-8") as file:
        steps = [row["step"] for row in csv.DictReader(file) if row["flopledger/step_time_s"]]
    assert steps == ["2", "4"]  # 8 batches are 4 steps of the optimizer, logged at every second one


def test_under_lightnings_precision_plugin_the_unit_is_bf16(tmp_path):

    callback = UtilizationCallback(warm_up_steps=1, energy=False)
    _train(_module(), callback, tmp_path, precision="bf16-mixed")
    assert callback.result.units == ("bf16",)
