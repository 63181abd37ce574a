"""Law, injected fault: fake tensors give the trace that real ones give, and refuse what they cannot answer."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from analysis.operators.registry import total
from measure.operations.fake_mode import fake_mode, to_fake
from measure.operations.tracer import Trace, clear_cache, trace
from results.errors import Unavailable
from results.records.counts import Operation
from tests.measure.operations.traced_nets import NETS
from tests.support.nets.small_steps import (
    Calls,
    Small,
    at_work,
    check_laws,
    fake_trace,
    named,
    one,
    parts,
    real_trace,
    run,
)


def without_workspace(o: Operation) -> tuple[Any, ...]:
    """Shapes of inputs and outputs. A fake recurrent layer's workspace is empty: its size is the kernel's secret."""
    inputs = [s for s, name in zip(o.input_shapes, o.input_names, strict=True) if name != "workspace"]
    return inputs, [s for s, dtype in zip(o.output_shapes, o.output_dtypes, strict=True) if dtype != "uint8"]


@pytest.mark.parametrize("net", NETS)
def test_laws_and_repetition(net: str) -> None:
    first = fake_trace(NETS[net])
    check_laws(first)
    assert first.notes == ()
    clear_cache()
    assert fake_trace(NETS[net]) == first


@pytest.mark.parametrize("net", NETS)
def test_fake_and_real_tensors_agree(net: str) -> None:
    fake, real = fake_trace(NETS[net]), real_trace(NETS[net])
    check_laws(real)
    assert real.notes == ("real tensors (cpu)",)

    def facts(recorded: Trace) -> list[tuple[Any, ...]]:
        return [(o.name, o.kind, o.phase, o.module, *without_workspace(o), o.attributes) for o in at_work(recorded)]

    def units(recorded: Trace) -> list[tuple[str, ...]]:
        # Not normalisation: under autocast torch's rule for fake tensors gives saved statistics the dtype of the data.
        counted = ("convolution", "matmul", "attention", "recurrent")
        return [(*o.input_dtypes, *o.output_dtypes) for o in recorded.operations if o.kind in counted]

    assert facts(fake) == facts(real)
    assert units(fake) == units(real)
    assert total(fake.operations).model_flop == total(real.operations).model_flop > 0


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_gradient_scaling_takes_a_good_step(optimizer: str) -> None:
    recorded = fake_trace(parts(Small, optimizer=optimizer, autocast=torch.float16))
    check_laws(recorded)
    assert recorded.notes == ("scalars read in the optimizer were taken to be 0",)
    assert one(recorded, "aten.convolution").input_dtypes == ("float16", "float16")
    unscale = one(recorded, "aten._amp_foreach_non_finite_check_and_unscale_")
    assert unscale.input_names[:5] == tuple(f"self[{i}]" for i in range(5))
    assert set(unscale.reads[:5]) == {s.id for s in recorded.storages if s.role == "gradient" and s.born_index >= 0}
    assert set(unscale.reads[:6]) == set(unscale.writes)  # the gradients and found_inf, not the scale
    updates = "aten.addcdiv_" if optimizer == "adam" else "aten.mul_"
    assert len(named(recorded, updates, "optimizer")) >= 5  # the parameters were updated
    one(recorded, "aten._amp_update_scale_")


def test_data_dependent_operations_fall_back_to_real_tensors() -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        chosen = x[torch.nonzero(x.sum(1) > -1e9).flatten()]
        return self.fc(chosen)

    build = parts(lambda: Calls(forward, fc=nn.Linear(3, 2)), (2, 3))
    with pytest.raises(Unavailable, match=r"fake tensors cannot run aten\.nonzero"):
        fake_trace(build)
    recorded = trace(build)
    check_laws(recorded)
    assert recorded.notes == ("fake tensors cannot run aten.nonzero.default", "real tensors (cpu)")
    assert one(recorded, "aten.nonzero").output_shapes == ((2, 1),)


def test_to_fake_keeps_what_a_module_is() -> None:
    mode = fake_mode()
    with torch.device("meta"):
        shared = nn.Linear(4, 4, dtype=torch.float64)
        model = nn.Sequential(shared, nn.BatchNorm1d(4), shared, nn.Conv2d(3, 2, 3), nn.Linear(4, 4))
    model[4].weight = shared.weight
    model[3].weight.requires_grad_(False)
    model[3].to(memory_format=torch.channels_last)
    model[1].extra = [torch.ones(2), 7]
    weight = model[0].weight
    faked = to_fake(model, mode)
    assert faked is model
    assert model[0].weight is model[2].weight is model[4].weight is not weight
    assert isinstance(model[0].weight, nn.Parameter)
    assert (model[0].weight.dtype, model[0].weight.device.type) == (torch.float64, "cpu")
    assert model[1].running_mean in set(model.buffers())
    assert not model[3].weight.requires_grad
    assert model[3].weight.is_contiguous(memory_format=torch.channels_last)
    assert model[1].extra[1] == 7
    every = [*model.parameters(), *model.buffers(), model[1].extra[0]]
    assert all(type(t).__name__ == "FakeTensor" and t.fake_mode is mode for t in every)
    rnn = to_fake(nn.LSTM(2, 3), mode)
    assert all(a is b for a, b in zip(rnn._flat_weights, rnn.parameters(), strict=True))


@pytest.mark.parametrize("width", [29, 31])  # sizes of no other test: the first call of a signature is another
def test_gradients_that_a_fake_rule_returns_as_one_tensor_are_two_as_of_the_kernel(width: int) -> None:
    """Both bias gradients of an LSTM layer; torch's cache of fake results makes two of them from the second call on."""

    def make() -> nn.Module:
        return Calls(lambda m, x: m.lstm(x)[0][:, -1], lstm=nn.LSTM(width, width, batch_first=True))

    first, second = (run(parts(make, (2, 3, width))(mode), mode, steps_before=0) for mode in (fake_mode(), fake_mode()))
    backward = one(first, "aten.mkldnn_rnn_layer_backward")
    assert backward.output_shapes[3] == backward.output_shapes[4] == (4 * width,)
    assert len(set(backward.writes)) == len(backward.output_shapes)
    assert first.storages == second.storages


def test_ctc_loss_is_traced_on_fake_tensors_where_its_lengths_are_tensors() -> None:
    def recorded(*lengths: Any) -> Trace:
        def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
            logits = self.fc(x).log_softmax(2)
            return F.ctc_loss(logits, torch.ones(2, 3, dtype=torch.long), *lengths).expand(4, 2)

        return fake_trace(parts(lambda: Calls(forward, fc=nn.Linear(3, 5)), (4, 2, 3)))

    found = recorded(torch.full((2,), 4), torch.full((2,), 2))
    states = (2, 4, 2 * 3 + 1)  # batch × frames × (2 · labels + 1), of as many labels as there is room for
    assert one(found, "aten._ctc_loss", "forward").output_shapes == ((2,), states)
    assert one(found, "aten._ctc_loss_backward", "backward").output_shapes == ((4, 2, 5),)
    with pytest.raises(Unavailable):
        recorded((4, 4), (2, 2))
