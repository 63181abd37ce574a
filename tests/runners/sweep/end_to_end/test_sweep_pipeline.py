"""Law, definition: stages and divided experts under torchrun do the single device's FLOP, or a row says why not."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from results.records.cell import RankCollective, RankRow, Run
from results.store.reading import RunData, read_run
from tests.support.fakes.real_sweeps import QUICK, Sweep, rows, under_torchrun

DAMAGED_MEMORY = "malloc(): unaligned tcache chunk"
"""What the C library prints as it ends a process whose list of free memory was written over."""


pytestmark = pytest.mark.cluster

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 512,
}


def swept_ranks(
    sweep: Callable[..., Sweep], folder: Path, *arguments: object, code: int, within_s: float = 180.0
) -> RunData:
    """The run at folder/run of a quick sweep that ends with this code. sweep: of `under_torchrun`.

    Cells of which a rank died of damaged memory are measured once more, as a user would: torch 2.15 over gloo ends so
    in rare cases, without our profiler, too (docs/limits.md, "Machines").
    """
    for more in ((), ("--resume", "--retry", "failed")):
        with sweep(*QUICK, *arguments, "--out", folder / "run", *more, cwd=folder) as running:
            ended = running.end(within_s)
        data = read_run(folder / "run")
        if not any(run.status == "crashed" and DAMAGED_MEMORY in run.reason for run in data.runs):
            break
    assert ended == code, running.said
    return data


def swept_config(
    sweep: Callable[..., Sweep], folder: Path, config: Mapping[str, Any], plans: Sequence[str], within_s: float = 200.0
) -> RunData:
    """The run of a model of transformers, four samples, under these plans, all ranks having done the counted work.
    sweep: of `under_torchrun`."""
    (folder / "config.json").write_text(json.dumps(config))
    model = ("--models", f"hf:{folder}/config.json", "--batch-sizes", 4, "--methods", "exact", "--cell-timeout", 150)
    data = swept_ranks(sweep, folder, *model, "--parallel", *plans, code=0, within_s=within_s)
    assert "executed_differs" not in (folder / "run" / "utilization.csv").read_text()
    return data


WIDTH, TOKENS, BATCH, LAYERS = 32, 16, 8, 4

NET = f"""
import torch
from torch import nn

class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear({WIDTH}, {WIDTH}) for _ in range({LAYERS}))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x

class Attending(Layers):
    def forward(self, x):
        for layer in self.layers:
            y = layer(x)[:, None]
            x = x + nn.functional.scaled_dot_product_attention(y, y, y, is_causal=True)[:, 0]
        return x

class Deciding(Layers):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x) if x.sum() > 0 else layer(-x)
        return x

def layers():
    return Layers()
def attending():
    return Attending()
def deciding():
    return Deciding()
"""

PRODUCT = 2 * BATCH * TOKENS * WIDTH**2


def test_stages_do_the_single_devices_work_or_say_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.py").write_text(NET)
    models = ",".join(f"{tmp_path}/net.py:{name}" for name in ("layers", "attending", "deciding"))
    grid = ("--models", models, "--input", f"{TOKENS}x{WIDTH}", "--batch-sizes", BATCH, "--methods", "exact")
    plans = ("--parallel", "ddp=1", "pp=2", "--cell-timeout", 60)
    data = swept_ranks(under_torchrun(monkeypatch, 2), tmp_path, *grid, *plans, code=1)
    found = {(run.model.rpartition(":")[2], run.parallel): run for run in data.runs}
    check_pipeline(data, found["layers", "pp=2,m=4"], tmp_path / "run")
    assert found["attending", "pp=2,m=4"].executed == found["attending", "ddp=1"].executed
    assert [key for key, run in found.items() if run.status != "ok"] == [("deciding", "pp=2,m=4")]
    assert "executed_differs" not in (tmp_path / "run" / "utilization.csv").read_text()


def check_pipeline(data: RunData, run: Run, folder: Path) -> None:
    """Two of four layers a stage; four micro-batches of 2 · 16 · 32 numbers go there, their gradients back."""
    assert run.status == "ok", run.reason
    assert run.executed == {"matmul/float32": (3 * LAYERS - 1) * PRODUCT}
    first, last = rows(data, RankRow, run)
    assert first.executed == {"matmul/float32": (3 * 2 - 1) * PRODUCT}
    assert last.executed == {"matmul/float32": 3 * 2 * PRODUCT}
    assert (first.place, last.place) == ("pp=0", "pp=1")
    assert [row.parameters for row in (first, last)] == [2 * (WIDTH**2 + WIDTH)] * 2
    assert run.parameters == LAYERS * (WIDTH**2 + WIDTH)
    assert run.first_loss is not None
    assert run.last_loss is not None
    sent = {(row.rank, row.kind): (row.calls, row.given_bytes) for row in rows(data, RankCollective, run)}
    whole = 4 * BATCH * TOKENS * WIDTH
    assert sent[0, "send"] == sent[1, "send"] == (4, whole)
    with (folder / "parallel.csv").open() as file:
        (row,) = (row for row in csv.DictReader(file) if row["cell_id"] == run.cell_id)
    assert float(row["bubble_ratio"]) == pytest.approx(1 / 5)
    assert 0 < float(row["compute_ratio"]) < 1


def test_experts_of_two_ranks_do_the_single_devices_work_wherever_tokens_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank holds half of the experts, three weights each, and all else; tokens go there and back twice a layer."""
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    config = {**CONFIG, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], **experts}
    data = swept_config(under_torchrun(monkeypatch, 2), tmp_path, config, ("ddp=1", "ddp=2,ep=2"))
    found = {run.parallel: run for run in data.runs}
    run, layers = found["ddp=2,ep=2"], CONFIG["num_hidden_layers"]
    assert run.executed == found["ddp=1"].executed
    away = layers * 4 // 2 * 3 * CONFIG["hidden_size"] * CONFIG["intermediate_size"]
    assert [row.parameters for row in rows(data, RankRow, run)] == [run.parameters - away] * 2
    calls = {row.kind: row.calls for row in rows(data, RankCollective, run)}
    assert calls["all_to_all"] == layers * (2 * 2 + 1), "tokens there and back, forward and backward, and their number"
