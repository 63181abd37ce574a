"""Padding in a loop: what the meter counts of batches with an `attention_mask`, beside sums by hand and real masks."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import flopledger
from measure.meter.calls import CallKey, GeneralCall, MaskPairs, MaskPasses, SeenCall, passes_of
from measure.meter.masks import padding_masks
from measure.meter.masks.padding_masks import PaddingMasks, kept_pairs
from measure.meter.meter import UtilizationMeter
from measure.meter.metered_step import KEPT_STEPS
from results.store.reading import read_run
from tests.support.nets.masked_nets import Configured
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file

transformers = pytest.importorskip("transformers")

WORDS, WIDTH, HEADS, LONG = 50, 32, 4, 5
OF_PAIR = 3 * 2 * 2 * WIDTH
"""FLOP of a pair in one layer: a score and its use, all heads together WIDTH wide; twice as many backward."""

SIZES = {
    "vocab_size": WORDS, "hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 1,
    "num_attention_heads": HEADS,
}  # fmt: skip
WINDOWS = {"num_key_value_heads": HEADS, "sliding_window": 2}
T5 = {
    "d_model": 24, "d_ff": 48, "num_layers": 1, "num_heads": HEADS, "d_kv": WIDTH // HEADS, "vocab_size": WORDS,
    "decoder_start_token_id": 0,
}  # fmt: skip


def model_of(family: str, **more: Any) -> torch.nn.Module:
    config = getattr(transformers, f"{family}Config")
    if family == "T5":
        return transformers.T5ForConditionalGeneration(config(**T5 | more)).train()
    kind = "MaskedLM" if family == "Bert" else "CausalLM"
    return getattr(transformers, f"{family}For{kind}")(config(**SIZES | more)).train()


def mask(lengths: list[int], longest: int = LONG, left: bool = False) -> torch.Tensor:
    places = torch.arange(longest)
    kept = [places >= longest - each if left else places < each for each in lengths]
    return torch.stack(kept).long()


def batch(given: torch.Tensor | None, target: torch.Tensor | None = None, shape: tuple[int, int] = (2, LONG)) -> Any:
    """Inputs of a model: with a target, of an encoder and a decoder."""
    words = torch.randint(3, WORDS, tuple(given.shape) if given is not None else shape)
    found = {"input_ids": words, "labels": words}
    if target is not None:
        found |= {"labels": torch.randint(3, WORDS, target.shape), "decoder_attention_mask": target}
    return found | ({} if given is None else {"attention_mask": given})


def trained(model: torch.nn.Module, steps: list[Any], **options: Any) -> UtilizationMeter:
    """A meter of a loop over steps, each a batch or a list of batches whose gradients are summed."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    chosen = {"warm_up_steps": 0, "energy": False, "watch": False, "read_masks": True, "peak_flop_per_s": 1e12}
    meter = UtilizationMeter(model, loss_of=lambda output: output.loss, **chosen | options)
    for step in steps:
        with meter.step():
            optimizer.zero_grad()
            for each in step if isinstance(step, list) else [step]:
                model(**each).loss.backward()
            optimizer.step()
    return meter


def left_out(model: torch.nn.Module, steps: list[Any], **options: Any) -> float:
    """Pairs of all steps that the mask-exact number leaves out."""
    found = trained(model, steps, **options).summary()
    assert found.mask_exact_flop_per_step is not None, found.attention_reasons
    return (found.model_flop_per_step - found.mask_exact_flop_per_step) * found.steps / OF_PAIR


# Lengths 5 and 3, padded to 5: of 2 · 25 pairs
CLOSED = {
    "all keys of each query: 5·5 + 5·3": ("Bert", {}, False, 40),
    "up to the diagonal, 15, and of 3 keys 1 + 2 + 3 + 3 + 3": ("Llama", {}, False, 27),
    "up to the diagonal, 15, and of the last 3 keys 0 + 0 + 1 + 2 + 3": ("Llama", {}, True, 21),
    "2 keys at most, 1 + 2 + 2 + 2 + 2, and of 3 keys 1 + 2 + 2 + 1 + 0": (
        "Mistral",
        WINDOWS | {"sliding_window": 2},
        False,
        15,
    ),
}


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("case", CLOSED)
def test_the_pairs_of_two_lengths_are_those_of_a_sum_by_hand(case: str, implementation: str) -> None:
    family, more, left, kept = CLOSED[case]
    model = model_of(family, attn_implementation=implementation, **more)
    assert left_out(model, [batch(mask([5, 3], left=left))] * 2) == 2 * (50 - kept)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_an_encoder_a_decoder_and_what_is_between_have_masks_of_their_own(dropout: float) -> None:
    """Sources of 5 and 3 words, targets of 4 and 2 that are padded to 4.

    Encoder 5·5 + 5·3 of 50. Decoder 1 + 2 + 3 + 4, and of 2 keys 1 + 2 + 2 + 2, of 32. Between them 4·5 + 4·3 of 40."""
    model = model_of("T5", dropout_rate=dropout)
    given = batch(mask([5, 3]), mask([4, 2], longest=4))
    assert left_out(model, [given]) == (50 - 40) + (32 - 17) + (40 - 32)


def test_a_decoder_without_a_mask_of_its_own_attends_to_all_words_before() -> None:
    model = model_of("T5")
    given = batch(mask([5, 3])) | {"labels": torch.randint(3, WORDS, (2, 4))}
    assert left_out(model, [given]) == (50 - 40) + 2 * (16 - 10) + (40 - 32)


@pytest.mark.parametrize("rule", ["causal", "all", "window:1", "window:3", "window:9"])
def test_the_pairs_of_a_vector_are_those_of_masks_that_are_made_whole(rule: str) -> None:
    draws = torch.Generator().manual_seed(0)
    for keys in (1, 2, 7):
        given = torch.randint(0, 2, (4, keys), generator=draws).bool()
        i, j = torch.arange(keys)[:, None], torch.arange(keys)[None, :]
        reach = int(rule.partition(":")[2] or keys)
        allowed = torch.ones(1, keys) > 0 if rule == "all" else (j <= i) & (j > i - reach)  # of one query, or all
        assert kept_pairs(rule, torch.count_nonzero(given, dim=0)) == int((allowed & given[:, None, :]).sum())


def test_masks_with_holes_and_lengths_that_change_add_up_to_those_of_each_batch() -> None:
    """The other count reads the runs of each mask (`measure.model.batch_masks`), and is held against real masks."""
    draws = random.Random(0)
    for family, more in (("Bert", {}), ("Mistral", WINDOWS | {"sliding_window": 3}), ("Llama", {}), ("T5", {})):
        model = model_of(family, **more)
        drawn = [torch.randint(0, 2, (2, draws.choice((4, 7)))) for _ in range(5)]
        steps = [batch(each, torch.randint(0, 2, (2, 6)) if family == "T5" else None) for each in drawn]
        exact = [flopledger.count(model, (), kwargs=each, loss_of=lambda output: output.loss) for each in steps]
        found = trained(model, steps).summary()
        kept = [sum(flop or 0 for flop in each.by_convention("mask_exact")) for each in exact]
        assert found.mask_exact_flop_per_step * len(steps) == sum(kept) < sum(each.model_flop or 0 for each in exact)
        assert found.mask_exact_utilization_ratio == pytest.approx(
            found.utilization_ratio * found.mask_exact_flop_per_step / found.model_flop_per_step
        )


def test_each_window_has_its_own_masks_and_each_step_all_of_its_batches() -> None:
    model = model_of("Bert")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    meter = UtilizationMeter(model, warm_up_steps=1, energy=False, read_masks=True)
    seen = []
    for lengths in ([5, 5], [5, 1], [4, 2]):
        with meter.step():
            for each in (lengths, [5, 2]):
                model(**batch(mask(each))).loss.backward()
            optimizer.step()
        found = meter.window()
        seen.append(found.steps and (found.model_flop_per_step - found.mask_exact_flop_per_step) / OF_PAIR)
    assert seen == [0, 5 * (4 + 3), 5 * (4 + 3)]  # the first is the warm-up; 5 queries of each key that is left out


def test_a_forward_pass_alone_has_no_pairs_of_a_backward_pass() -> None:
    model = model_of("Bert")
    meter = UtilizationMeter(model, warm_up_steps=0, energy=False, read_masks=True, watch=False)
    with meter.step():
        model(**batch(mask([5, 1])))
        model(**batch(mask([5, 3]))).loss.backward()
    found = meter.summary()
    forward = OF_PAIR // 3
    assert found.model_flop_per_step - found.mask_exact_flop_per_step == 5 * 4 * forward + 5 * 2 * OF_PAIR


class Inside(torch.nn.Module):
    """A model of transformers in one of the loop's own."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, words: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return self.model(words, attention_mask=attention_mask, labels=words)


class OfOne(torch.nn.Module):
    """One that takes a batch as one argument."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, given: dict[str, torch.Tensor]) -> Any:
        return self.model(**given)


@pytest.mark.parametrize("way", ["positional", "inside", "one argument"])
def test_a_mask_is_found_by_its_name_wherever_it_is_given(way: str) -> None:
    inner = model_of("Bert")
    words = torch.randint(3, WORDS, (2, LONG))
    model = {"positional": inner, "inside": Inside(inner), "one argument": OfOne(inner)}[way]
    meter = UtilizationMeter(model, warm_up_steps=0, energy=False, read_masks=True)
    for lengths in ([5, 3], [2, 2]):
        given = mask(lengths)
        args = ({"input_ids": words, "attention_mask": given, "labels": words},) if way == "one argument" else (
            words, given
        )  # fmt: skip
        with meter.step():
            output = model(*args)
            (output.logits.sum() if way == "positional" else output.loss).backward()
    found = meter.summary()
    assert (found.model_flop_per_step - found.mask_exact_flop_per_step) * 2 == OF_PAIR * 5 * (2 + 6)


def test_a_step_whose_mask_is_not_read_has_no_mask_exact_number_and_the_reason() -> None:
    def reason(given: Any, **options: Any) -> str:
        found = trained(model, [given], **options).summary()
        assert found.mask_exact_flop_per_step is None
        assert found.mask_exact_utilization_ratio is None
        assert found.causal_flop_per_step == found.model_flop_per_step - OF_PAIR * 2 * (25 - 15)
        return found.attention_reasons["mask_exact"]

    model = model_of("Llama")
    assert "with read_masks=True the meter reads an attention_mask" in reason(batch(mask([5, 3])), read_masks=False)
    four = torch.zeros(2, 1, LONG, LONG)
    unread = reason(batch(None) | {"attention_mask": four})
    assert "of (sequences, keys)" in unread
    assert "read_masks" not in unread
    assert left_out(model, [batch(None)]) == 2 * (25 - 15)


class Two(torch.nn.Module):
    """A query and a passage in one call, each with a mask of its own."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, query: dict[str, torch.Tensor], passage: dict[str, torch.Tensor]) -> torch.Tensor:
        return self.model(**query).logits.sum() + self.model(**passage).logits.sum()


def test_of_two_masks_in_a_call_none_is_taken_for_the_other() -> None:
    model = Two(model_of("Bert"))
    meter = UtilizationMeter(model, warm_up_steps=0, energy=False, read_masks=True, watch=False)
    words = torch.randint(3, WORDS, (2, LONG))
    query, passage = ({"input_ids": words, "attention_mask": mask(each)} for each in ([5, 3], [2, 2]))
    with meter.step():
        model(query, passage).backward()
    found = meter.summary()
    assert found.model_flop_per_step is not None
    assert found.mask_exact_flop_per_step is None
    assert "reads one attention_mask" in found.attention_reasons["mask_exact"]


def test_the_padding_of_an_encoder_elsewhere_is_not_that_of_the_words() -> None:
    model = transformers.BertLMHeadModel(
        transformers.BertConfig(**SIZES, is_decoder=True, add_cross_attention=True, use_cache=False)
    ).train()
    given = batch(mask([5, 3])) | {"encoder_hidden_states": torch.randn(2, LONG, WIDTH)}
    found = trained(model, [given | {"encoder_attention_mask": mask([4, 4])}]).summary()
    assert found.causal_flop_per_step is not None
    assert found.mask_exact_flop_per_step is None


def test_whether_there_is_an_encoder_is_asked_of_the_model_inside() -> None:
    """As with the model alone, above."""
    given = batch(mask([5, 3]), mask([4, 2], longest=4))
    assert left_out(Configured(model_of("T5")), [given]) == (50 - 40) + (32 - 17) + (40 - 32)


@pytest.mark.parametrize(("rows", "is_read"), [(1, True), (2, True), (LONG, False)])
def test_a_mask_of_queries_by_keys_is_not_read(rows: int, is_read: bool) -> None:
    """Two sequences of LONG words."""
    key = CallKey("", (), True, None, 0)
    given = {"attention_mask": torch.ones(rows, LONG)}
    read = PaddingMasks(model_of("Llama")).read(key, (torch.zeros(2, LONG),), given)
    assert (read is not None) is is_read


@pytest.mark.parametrize("times", [1, 2])
def test_a_call_has_its_masks_no_longer_than_they_are_needed(times: int) -> None:
    class Read:
        def pairs(self) -> list[MaskPairs]:
            return [MaskPairs("all", 2, LONG, 8)]

    seen = SeenCall(CallKey("", (), True, None, 0), 2, print, print)
    calls = [GeneralCall(seen, False) for _ in range(times)]
    for call in calls:
        call.masks = Read()
    assert passes_of(calls)[seen.key].masks == {"all": MaskPasses(2, LONG, forward=8 * times, passes=times)}
    assert [call.masks for call in calls] == [None] * times


def test_a_backward_pass_in_a_later_step_is_none_whose_mask_is_known() -> None:
    model = model_of("Bert")
    meter = UtilizationMeter(model, warm_up_steps=0, energy=False, read_masks=True, watch=False)
    with meter.step():
        loss = model(**batch(mask([5, 3]))).loss
    with meter.step():
        loss.backward()
    found = meter.summary()
    assert found.steps == 2
    assert found.model_flop_per_step is not None
    assert found.mask_exact_flop_per_step is None
    assert "of each pass in its own step" in found.attention_reasons["mask_exact"]


def test_reading_masks_changes_no_weight() -> None:
    def weights(**options: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = model_of("Bert")
        trained(model, [batch(mask([5, 3])) for _ in range(3)], **options)
        return [each.detach() for each in model.parameters()]

    plain, read = weights(read_masks=False), weights()
    assert all(torch.equal(*pair) for pair in zip(plain, read, strict=True))


@pytest.mark.parametrize("function", ["PaddingMasks.read", "CallMasks.pairs", "PaddingMasks._masks_of"])
def test_a_fault_in_reading_is_one_warning_and_the_training_goes_on(
    function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def planted(*_arguments: Any) -> Any:
        raise RuntimeError("planted")

    monkeypatch.setattr(f"measure.meter.masks.padding_masks.{function}", planted)
    model = model_of("Bert")
    before = [each.detach().clone() for each in model.parameters()]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        meter = trained(model, [batch(mask([5, 3]))] * 4)
        found = meter.summary()
    assert [str(each.message) for each in seen if "planted" in str(each.message)] == [
        "flopledger: the meter stopped: RuntimeError: planted"
    ]
    assert "planted" in " ".join(found.warnings)
    assert not all(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))


def test_nothing_as_large_as_a_mask_of_queries_by_keys_is_made() -> None:
    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, operation: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = operation(*args, **(kwargs or {}))
            if isinstance(found, torch.Tensor):
                self.elements = max(self.elements, found.numel())
            return found

    model, length = model_of("Llama"), 4096
    given = {"attention_mask": mask([length, 7], longest=length)}
    key = UtilizationMeter(model, energy=False)._calls.assumed((torch.zeros(2, length),))[0].seen.key
    with Largest() as largest:
        read = PaddingMasks(model).read(key, (), given)
        assert read is not None
        (found,) = read.pairs()
    assert found == ("causal", 2, length, length * (length + 1) // 2 + 7 * length - 21)  # 21: 0 + 1 + … + 6
    assert 0 < largest.elements <= 2 * length


class SideStream:
    """A stream that has done nothing until the host waits for it or `done` says so. events: that were made."""

    def __init__(self) -> None:
        self.recorded = self.done = self.events = self.waits = 0


@pytest.fixture
def side_stream(monkeypatch: pytest.MonkeyPatch) -> SideStream:
    """Masks of a CPU are read as those of a device are, on this stream."""
    made = SideStream()

    class Event:
        device = torch.device("cpu")

        def __init__(self) -> None:
            made.events += 1
            self.number = 0

        def record(self, _stream: Any) -> None:
            made.recorded += 1
            self.number = made.recorded

        def query(self) -> bool:
            return self.number <= made.done

        def synchronize(self) -> None:
            made.waits += 1
            made.done = max(made.done, self.number)

    def count(mask: Any, tensor: torch.Tensor, copies: Any) -> Any:
        return padding_masks._Count(mask, len(tensor), *copies.begin(torch.count_nonzero(tensor, dim=0)))

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: None)
    monkeypatch.setattr(padding_masks, "_count", count)
    return made


def test_a_step_is_complete_once_its_masks_are_there_and_a_summary_waits_for_them(side_stream: SideStream) -> None:
    model = model_of("Bert")
    lengths = [[5, each] for each in (1, 3, 4, 2)]
    meter = trained(model, [batch(mask(each)) for each in lengths])
    assert meter.window().steps == 0
    side_stream.done = 2
    assert meter.window().steps == 2
    assert side_stream.waits == 0, "a window waits for nothing"
    found = meter.summary()
    assert (found.steps, side_stream.waits) == (4, 2)
    less = 5 * (4 + 2 + 1 + 3)  # 5 queries of each key that is left out
    assert (found.model_flop_per_step - found.mask_exact_flop_per_step) * 4 == OF_PAIR * less


def test_events_of_masks_are_used_again_and_no_mask_is_taken_for_another(side_stream: SideStream) -> None:
    model, draws = model_of("Bert"), random.Random(0)
    lengths = [[draws.randint(1, 5), draws.randint(1, 5)] for _ in range(100)]
    meter = UtilizationMeter(model, warm_up_steps=0, energy=False, watch=False, read_masks=True)
    for each in lengths:
        with meter.step():
            model(**batch(mask(each))).loss.backward()
        side_stream.done = side_stream.recorded - 2  # two steps behind
    found = meter.summary()
    less = sum(5 * (10 - sum(each)) for each in lengths)
    assert round((found.model_flop_per_step - found.mask_exact_flop_per_step) * found.steps) == OF_PAIR * less
    assert side_stream.recorded == len(lengths)
    assert side_stream.events < 2 * KEPT_STEPS, "about those of the steps that wait to be added up"


@pytest.mark.parametrize("way", ["torch.compile", "compile()", "a function around it"])
def test_masks_of_a_compiled_model_are_read(way: str) -> None:
    """As of the model alone: up to the diagonal 15, and of 3 keys 1 + 2 + 3 + 3 + 3; of 1 key 5."""
    model = model_of("Llama")
    model.config.use_cache = False
    called: Any = model
    if way == "torch.compile":
        called = torch.compile(model, backend="eager")
    elif way == "compile()":
        model.compile(backend="eager")
    given = [batch(mask(each)) for each in ([5, 3], [5, 1], [5, 5])]
    measured = called if way == "torch.compile" else model
    meter = UtilizationMeter(measured, warm_up_steps=0, energy=False, read_masks=True, peak_flop_per_s=1e12)

    def loss_of(batched: Any) -> torch.Tensor:
        return called(**batched).loss

    run = torch.compile(loss_of, backend="eager") if way == "a function around it" else loss_of
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")  # torch's, at a hook
        for each in given:
            with meter.step():
                run(each).backward()
    found = meter.summary()
    assert found.steps == len(given)
    assert found.warnings == ()
    assert found.mask_exact_flop_per_step is not None, found.attention_reasons
    kept = (15 + 12) + (15 + 5) + (15 + 15)
    assert round((found.model_flop_per_step - found.mask_exact_flop_per_step) * 3) == OF_PAIR * (3 * 50 - kept)


@pytest.mark.gpu
def test_masks_on_a_gpu_are_read_as_those_on_a_cpu() -> None:
    model = model_of("Bert").cuda()
    steps = [{name: each.cuda() for name, each in batch(mask(lengths)).items()} for lengths in ([5, 3], [2, 1])]
    assert left_out(model, steps) == 5 * (2 + 3 + 4)


def test_a_run_directory_has_the_pairs_of_all_steps_in_one(tmp_path: Path) -> None:
    meter = trained(model_of("Bert"), [batch(mask([5, length])) for length in (1, 3, 4)], out=tmp_path / "run")
    meter.close()
    (run,) = read_run(tmp_path / "run").runs
    assert run.attention["mask_exact/float32"] == OF_PAIR * 5 * (4 + 2 + 1) // 3
    assert run.attention["causal/float32"] == 0
