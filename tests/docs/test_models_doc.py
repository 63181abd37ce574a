"""Command: the file that docs/models.md shows in full builds its model, makes batches and trains."""

import textwrap
from pathlib import Path

import pytest
import torch

from workloads.any_model import get
from workloads.step import TrainingStep

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


@pytest.fixture
def shown(tmp_path: Path) -> str:
    text = PAGE.read_text(encoding="utf-8")
    block = text[text.index("    # two_inputs.py") : text.index("<!-- -->")]
    (tmp_path / "two_inputs.py").write_text(textwrap.dedent(block))
    return f"{tmp_path}/two_inputs.py:build"


def test_the_whole_file_of_the_page_trains(shown: str) -> None:
    workload = get(shown, width=128)
    model = workload.build(**workload.hyper)
    batch = workload.batch(workload.hyper, 8, torch.device("cpu"), torch.Generator().manual_seed(0))
    assert [tuple(part.shape) for part in batch.inputs] == [(8, 256), (8, 20)]
    assert model.image.out_features == 128
    step = TrainingStep(model, workload.loss, torch.optim.SGD(model.parameters(), lr=0.5), [batch], "cpu")
    losses = []
    for _ in range(5):
        step()
        losses.append(float(step.last_loss))  # type: ignore[arg-type]
    assert losses[-1] < losses[0], "on one batch of labels"
