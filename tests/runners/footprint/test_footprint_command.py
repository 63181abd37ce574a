"""Definition, command, injected fault: `runners.footprint` on small models, by hand and by brute force; its refusals.

Numbers are derived beside them from one model: 16 features → 8 → tanh → 4, both layers with biases, mean of the output.
"""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.devices.memory import Memory
from runners import footprint as command
from tests.support.fakes.commands import refused, running, telling

NETS = '''
import torch
from torch import nn


def small(width=8):
    return nn.Sequential(nn.Linear(16, width), nn.Tanh(), nn.Linear(width, 4)), (torch.randn(1, 16),)


def normed():
    """Takes no batch of one."""
    return nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8)), (torch.randn(2, 16),)


def dropped():
    return nn.Sequential(nn.Linear(16, 64), nn.Dropout(), nn.Linear(64, 4)), (torch.randn(1, 16),)


def flat():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2)), (torch.randn(1, 3, 8, 8),)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 8)

    def forward(self, x):
        return self.lstm(x)[0]


def recurrent():
    return Recurrent(), (torch.randn(1, 5, 8),)


class Bounded(nn.Tanh):
    def forward(self, x):
        if len(x) > 37:
            raise ValueError("37 samples at most")
        return super().forward(x)


def bounded():
    blocks = [nn.Sequential(Bounded(), nn.Tanh(), nn.Tanh()) for _ in range(4)]
    return nn.Sequential(nn.Linear(16, 64), *blocks, nn.Linear(64, 4)), (torch.randn(1, 16),)


class Fixed(nn.Linear):
    def forward(self, x):
        if len(x) != 8:
            raise ValueError("8 samples, as exported")
        return super().forward(x)


def fixed():
    return Fixed(16, 4), (torch.randn(8, 16),)


class Broken(nn.Linear):
    def forward(self, x):
        raise KeyError("no such part")


def broken():
    return Broken(4, 4), (torch.randn(1, 4),)
'''

WEIGHTS = (16 * 8 + 8 + 8 * 4 + 4) * 4
"""Bytes of all parameters: 172 numbers."""


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("nets") / "nets.py"
    file.write_text(NETS)
    return str(file)


Into = Callable[..., tuple[str, ...]]


@pytest.fixture
def into(monkeypatch: pytest.MonkeyPatch) -> Into:
    """The words that fit a step into a made-up device of so many bytes, of which a share stays free."""

    def words(nbytes: int, margin_ratio: float = 0.1, name: str = "made up") -> tuple[str, ...]:
        monkeypatch.setattr(command, "memory_of", lambda _name: Memory(name, nbytes, "made up", "given"))
        monkeypatch.setattr(command, "MARGIN_RATIO", margin_ratio)
        return "--fit", name

    return words


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    return telling(command.main, capsys)(*arguments)


def test_the_document_by_hand(nets: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Batch 1024 of plain SGD on one parameter after the other: weights 688 and the input 64 KiB always.

    Kept for backward: the first layer's output is overwritten by nobody, but only tanh's (32 KiB) is needed; the last
    layer's output (16 KiB) lives as long as the step, its mean and the mean's gradient 4 bytes each. In the backward
    pass the gradient of the output (4 bytes spread: a view), then that of the last layer's input (32 KiB) and what tanh
    makes of it (32 KiB) are there at once.
    """
    found = told(capsys, f"{nets}:small", "--batch-size", "1024", "--optimizer", "sgd-plain", "--device", "cpu")
    kib = 1024
    assert found["by_category"]["weight"] == WEIGHTS
    assert found["by_category"]["input"] == 64 * kib
    assert found["by_category"]["optimizer_state"] == found["by_category"]["buffer"] == 0
    assert found["eager_peak_bytes"] == sum(found["by_category"].values())
    assert found["peak_at"]["operation"] == "aten.tanh_backward"
    assert (found["peak_at"]["module"], found["peak_at"]["phase"]) == ("1", "backward")
    assert found["by_category"]["activation"] // kib == 32 + 16
    assert WEIGHTS < found["lower_bound_bytes"] == found["minimal_bytes"] <= found["eager_peak_bytes"]  # proven
    assert (found["largest_batch"], found["fit"]) == (None, None)
    assert found["eager_peak_bytes"] <= found["allocated_bytes"] <= found["reserved_bytes"]
    assert found["workspace_bytes"] == 0  # on a CPU nothing is known before
    assert found["largest"][0] == {
        "bytes": 64 * kib, "category": "input", "module": "0", "made_by": None, "phase": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("optimizer", "state"),
    [("sgd-plain", 0), ("sgd", WEIGHTS), ("adamw", 2 * WEIGHTS + 4 * 4), ("none", 0)],  # adamw: and 4 counts of steps
)
def test_state_of_optimizers(nets: str, optimizer: str, state: int, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, f"{nets}:small", "--optimizer", optimizer, "--device", "cpu")
    assert found["by_category"]["optimizer_state"] == state


def test_cudas_optimizers_work_on_all_parameters_at_once(nets: str, capsys: pytest.CaptureFixture[str]) -> None:
    """AdamW takes the root of all second moments at once: one more copy of the parameters. Batch 1: its step peaks.

    One after the other the largest is 16 · 8 numbers, whose root and whose root ÷ correction are there together.
    """
    arguments = (f"{nets}:small", "--batch-size", "1", "--optimizer", "adamw")
    cuda, cpu = (told(capsys, *arguments, "--device", device) for device in ("cuda", "cpu"))
    assert cuda["by_category"]["temporary"] == WEIGHTS
    assert cpu["by_category"]["temporary"] == 2 * 16 * 8 * 4
    assert cuda["peak_at"]["phase"] == cpu["peak_at"]["phase"] == "optimizer"


def test_autocast_accumulation_and_frozen_weights(nets: str, capsys: pytest.CaptureFixture[str]) -> None:
    small = (f"{nets}:small", "--batch-size", "64")
    cast = told(capsys, *small, "--precision", "amp-bf16")
    assert cast["by_category"]["cast"] > 0
    once, twice, often = (told(capsys, *small, "--accumulate", n) for n in ("1", "2", "9"))
    assert once["by_category"]["cast"] == 0
    assert twice["eager_peak_bytes"] == often["eager_peak_bytes"] > once["eager_peak_bytes"]
    assert any("two of the 9 batches" in note for note in often["notes"])
    frozen = told(capsys, *small, "--frozen", "0.*")
    assert frozen["eager_peak_bytes"] < once["eager_peak_bytes"]


def test_storages_of_unknown_size_are_told(nets: str, capsys: pytest.CaptureFixture[str], into: Into) -> None:
    """oneDNN's LSTM keeps a workspace for its backward pass that fake tensors do not know."""
    found = told(capsys, f"{nets}:recurrent", *into(200_000_000), "--batch-size", "4")
    assert found["unknown_storages"] == 1
    assert "1 storage has no known size: bytes are at least those of the others" in found["notes"]
    absent = ("eager_peak_bytes", "minimal_bytes", "allocated_bytes", "reserved_bytes", "largest_batch")
    assert {name: found[name] for name in absent} == dict.fromkeys(absent)
    assert found["at_least"]["allocated_bytes"] >= found["at_least"]["eager_peak_bytes"] >= found["lower_bound_bytes"]
    assert sum(found["by_category"].values()) == found["at_least"]["eager_peak_bytes"]
    assert (found["fit"]["needed_bytes"], found["fit"]["predicted_batch"]) == (None, None)
    most = found["at_most_batch"]
    needed = found["fit"]["at_least_needed_bytes"]
    assert needed[str(most)] <= found["fit"]["available_bytes"] < needed[str(most + 1)]


@pytest.mark.parametrize("name", ["small", "normed"])
def test_the_largest_batch_is_that_of_brute_force(
    nets: str, name: str, capsys: pytest.CaptureFixture[str], into: Into
) -> None:
    model = f"{nets}:{name}"
    arguments = (model, "--device", "cpu")
    needs = {n: told(capsys, *arguments, "--batch-size", str(n))["eager_peak_bytes"] for n in range(2, 40, 3)}
    for batch, memory in ((11, needs[11]), (10, needs[11] - 1)):
        found = told(capsys, *arguments, *into(memory, 0))
        assert found["at_most_batch"] == batch
        assert found["largest_batch"] == found["batch_size"] == 8, "the largest multiple of 8"
        assert found["fit"]["needed_bytes"][str(batch)] <= memory < found["fit"]["needed_bytes"][str(batch + 1)]


def test_files(nets: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / "out"
    assert command.main([f"{nets}:small", "--out", str(out), "--format", "csv"]) == 0
    said = capsys.readouterr()
    (row,) = csv.DictReader(io.StringIO(said.out))
    document = json.loads((out / "footprint.json").read_text())
    assert int(row["eager_peak_bytes"]) == document["eager_peak_bytes"]
    moments = list(csv.DictReader(io.StringIO((out / "timeline.csv").read_text())))
    assert max(int(each["live_bytes"]) for each in moments) == document["eager_peak_bytes"]
    for each in moments:
        parts = [int(value) for name, value in each.items() if name.endswith("_bytes") and name != "live_bytes"]
        assert sum(parts) == int(each["live_bytes"])


def test_what_the_model_raises_is_one_line(nets: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(running(command.main, capsys)(f"{nets}:broken"), "KeyError", code=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resnet5"], "nearest: resnet50"),
        (["resnet50", "--fit", "h100"], "nearest NVIDIA H100 PCIe or NVIDIA H100 80GB HBM3 or NVIDIA H100 NVL"),
        (["resnet50", "--fit", "NVIDA A30"], "nearest NVIDIA A30"),
        (["resnet50", "--fit", "NVIDIA B300 SXM6 AC"], "a device of known memory, got"),
        (["resnet50", "--fit", ""], "expected a device of known memory, got ''"),
        (["resnet50", "--optimizer", "adamx"], "nearest adam"),
        (["resnet50", "--precison", "fp32"], "nearest --precision"),
        (["resnet50", "--batch-size", "0"], "a whole number of at least 1"),
        (["{nets}:small", "--frozen", "*"], "a parameter that is trained, got none; --frozen * has all"),
        (["{nets}:normed", "--batch-size", "1"], "normed at batch 1"),
    ],
)
def test_mistakes(nets: str, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused(running(command.main, capsys)(*(word.format(nets=nets) for word in arguments)), words)


def test_a_model_that_does_not_fit(nets: str, capsys: pytest.CaptureFixture[str], into: Into) -> None:
    code, out, err = running(command.main, capsys)(f"{nets}:small", *into(1024), "--device", "cpu", "--format", "json")
    assert (code, json.loads(out)["largest_batch"], json.loads(out)["batch_size"]) == (1, 0, 1)
    assert "does not fit at batch 1" in err
