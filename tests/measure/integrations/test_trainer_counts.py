"""FLOP of a step in trainers of other packages: those of `flopledger.count` for the same model and batch.

Packages that are not among the requirements are skipped where they are absent.
"""

import importlib
import warnings

import pytest
import torch

import flopledger
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file

VOCABULARY, HIDDEN, BATCH, LENGTH = 64, 32, 4, 16


def _package(name):
    return pytest.importorskip(name, reason=f"{name} is not installed")


def _llama(transformers):
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, **sizes)
    )


def _adapters(peft):
    return peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


def _with_labels():
    words = torch.randint(0, VOCABULARY, (BATCH, LENGTH))
    return {"input_ids": words, "labels": words, "attention_mask": torch.ones_like(words)}


def _tokenizer(transformers):
    """One token for each word."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{number}": number for number in range(VOCABULARY - 2)} | {"[UNK]": VOCABULARY - 2, "[PAD]": 63}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, unk_token="[UNK]", pad_token="[PAD]", eos_token="[PAD]"
    )


@pytest.mark.parametrize("adapters", [False, True], ids=["whole", "low rank"])
def test_a_step_of_trls_trainer(adapters, tmp_path):
    """Its output layer leaves the last position out, which has no label, and makes the logits twice."""
    trl, datasets, peft = map(_package, ("trl", "datasets", "peft"))
    import transformers

    from flopledger.transformers import UtilizationCallback

    texts = [" ".join(f"w{(7 * row + place) % 60}" for place in range(LENGTH - 1)) for row in range(32)]
    callback = UtilizationCallback(energy=False, warm_up_steps=1, peak_flop_per_s=1e12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TRL's and transformers' own
        arguments = trl.SFTConfig(
            str(tmp_path), max_steps=4, per_device_train_batch_size=BATCH, logging_steps=2, report_to=[], bf16=False,
            use_cpu=True, save_strategy="no", disable_tqdm=True, max_length=32, gradient_checkpointing=False,
        )  # fmt: skip
        trainer = trl.SFTTrainer(
            model=_llama(transformers), args=arguments, train_dataset=datasets.Dataset.from_dict({"text": texts}),
            processing_class=_tokenizer(transformers), callbacks=[callback],
            peft_config=_adapters(peft) if adapters else None,
        )  # fmt: skip
        trainer.train()
    found = callback.result
    assert (found.steps, found.unknown_calls, found.recompute_flop_per_step) == (3, 0, 0)
    exact = flopledger.count(trainer.model, (), kwargs=_with_labels(), loss_of=lambda output: output.loss)
    one = 2 * BATCH * HIDDEN * VOCABULARY  # a product of the output layer with one position of each sequence
    passes = 2 if adapters else 3  # forward, inputs' gradient, and the weights' unless they are frozen
    assert found.model_flop_per_step == exact.model_flop + one * ((passes + 1) * (LENGTH - 1) - passes * LENGTH)
    logged = [row for row in trainer.state.log_history if "loss" in row]
    assert all(row["flopledger/model_flop_per_step"] == found.model_flop_per_step for row in logged)


def test_a_step_of_a_model_of_peft():
    transformers, peft = map(_package, ("transformers", "peft"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own
        model = peft.get_peft_model(_llama(transformers), _adapters(peft))
        meter = flopledger.UtilizationMeter(model, energy=False, warm_up_steps=0)
        for _ in range(4):
            with meter.step():
                model(**_with_labels()).loss.backward()
        exact = flopledger.count(model, (), kwargs=_with_labels(), loss_of=lambda output: output.loss)
    assert meter.summary().model_flop_per_step == exact.model_flop > 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning:keras")
def test_a_step_of_keras(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = _package("keras")
    if keras.backend.backend() != "torch":
        pytest.skip("keras has another backend already")
    numpy = importlib.import_module("numpy")
    model = keras.Sequential(
        [keras.Input((16, 16, 3)), keras.layers.Conv2D(8, 3), keras.layers.Flatten(), keras.layers.Dense(10)]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    meter = flopledger.UtilizationMeter(model, energy=False, warm_up_steps=1)

    class Utilization(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            meter.begin()

        def on_train_batch_end(self, batch, logs=None):
            meter.update()

    images, labels = numpy.random.rand(32, 16, 16, 3).astype("float32"), numpy.random.randint(0, 10, 32)
    model.fit(images, labels, batch_size=8, callbacks=[Utilization()], verbose=0, validation_data=(images, labels))
    convolution, dense = 2 * 8 * 14 * 14 * 8 * 3 * 9, 2 * 8 * 14 * 14 * 8 * 10  # one pass of each, batch 8
    exact = flopledger.count(model, torch.zeros(8, 16, 16, 3)).model_flop
    found = meter.summary()
    assert found.model_flop_per_step == exact == 2 * convolution + 3 * dense  # no gradient of the images
    assert found.steps == 3


@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_step_of_accelerate(accumulated):
    accelerate = _package("accelerate")

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
