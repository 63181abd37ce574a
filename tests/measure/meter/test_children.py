"""A loop that calls the parts of a model instead of the model."""

import torch

from measure.meter.meter import UtilizationMeter

WIDTH, BATCH = 32, 4
LAYER = 2 * BATCH * WIDTH * WIDTH


class Parts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return self.head(self.encoder(x))


def _found(call):
    model = Parts()
    meter = UtilizationMeter(model, warm_up_steps=0, energy=False, children=True)
    for _ in range(2):
        with meter.step():
            call(model, torch.randn(BATCH, WIDTH)).sum().backward()
    return meter.summary()


def test_children_that_are_called_by_themselves_count_as_the_model_does():
    parts = _found(lambda model, x: model.head(model.encoder(x)))
    whole = _found(lambda model, x: model(x))
    assert parts.model_flop_per_step == whole.model_flop_per_step == (1 + 1 + 1 + 2) * LAYER


def test_a_part_that_is_called_beside_the_model_is_counted_once_more():
    found = _found(lambda model, x: model(x) + model.head(x))
    assert found.model_flop_per_step == (5 + 2) * LAYER
