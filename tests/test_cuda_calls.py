"""What the harness asks of torch.cuda, without a GPU: torch's own checks of arguments run, the driver is made up."""

from __future__ import annotations

import pytest
import torch

from measure.protocols import CPU_PROTOCOL
from results.records import Cell
from runners import cell as inside


class Chosen(Exception):
    """The driver was told which card is the current one; nothing after that is asked here."""


@pytest.mark.parametrize(("device", "number"), [("cuda", 0), ("cuda:1", 1)])
def test_the_cells_card_becomes_the_current_one(monkeypatch, device, number):
    """torch.cuda.set_device refuses "cuda" without a number, which is what a cell of the first card says."""

    def choose(index: int) -> None:
        raise Chosen(index)

    monkeypatch.setattr(torch._C, "_cuda_setDevice", choose, raising=False)  # a CPU build has none
    monkeypatch.setattr("measure.precision.supported", lambda *_: None)
    with pytest.raises(Chosen) as said:
        inside.measure(Cell(model="synthetic_convolution", batch_size=2, device=device), CPU_PROTOCOL)
    assert said.value.args == (number,)
