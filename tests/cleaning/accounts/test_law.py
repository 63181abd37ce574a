"""The law of the batch: its constant named by module or operator, and the counter that breaks it with the operator."""

import dataclasses
from pathlib import Path

import pytest

from cleaning.accounts.account.batch_law import exact_laws
from results.records.accounts import AccountLaw
from results.records.calls import CallRecording
from results.records.counts import FlopCount
from results.records.operations import Operation
from runners.count import command
from runners.count import output as count_output
from tests.support.made_up_operations.made_up_operations import operation

NET = '''
import torch
from torch import nn

class Net(nn.Module):
    """head sees each sample, position the same 5 places whatever the batch."""

    def __init__(self):
        super().__init__()
        self.position = nn.Linear(3, 2)
        self.head = nn.Linear(4, 2)
        self.register_buffer("places", torch.ones(5, 3))

    def forward(self, x):
        return self.head(x), self.position(self.places)

def build():
    return Net()
'''


def matmul(module: str, rows: int, k: int, n: int, phase: str = "forward") -> Operation:
    """rows × k @ k × n: 2 · rows · k · n FLOP."""
    made = operation("aten.mm", {"self": (rows, k), "mat2": (k, n)}, [(rows, n)])
    return dataclasses.replace(made, module=module, phase=phase, kind="matmul")


def step(batch: int, constant: int = 5) -> CallRecording:
    """head: 2 · b · 4 · 2 = 16 b forward, twice that backward; position: 2 · 5 · 3 · 2 = 60 forward alone; a loss of
    2 · b · 2 · 1 = 4 b that belongs to no module, and an update of 2 · 100 · 1 · 1 that belongs to neither pass."""
    return CallRecording(
        operations=(),
        calls=(),
        modules=(),
        batch=batch,
        training=(
            matmul("head", batch, 4, 2),
            matmul("position", constant, 3, 2),
            matmul("", batch, 2, 1, "loss"),
            *[matmul("head", batch, 4, 2, "backward")] * 2,
            matmul("head", 100, 1, 1, "optimizer"),
        ),
    )


def line_of(each: AccountLaw) -> tuple[str, str, int | None, int | None, bool | None]:
    return each.phase, each.part, each.slope, each.constant, each.holds


def test_the_exact_law_has_its_constant_by_module() -> None:
    found = exact_laws("net", {size: step(size) for size in (1, 2, 4, 32)}, (1, 2, 4, 32))
    assert [line_of(each) for each in found] == [
        ("forward", "", 16 + 4, 60, True),
        ("forward", "position", 0, 60, True),
        ("backward", "", 32, 0, True),
    ]
    assert found[0].reason == "note: the constant is of position (60)"
    assert {(each.counter, each.native_unit, each.batches) for each in found} == {("exact", "flop", (1, 2, 4, 32))}


def test_what_breaks_the_exact_law_is_named_by_its_module() -> None:
    # position has 5 rows at batches 1, 2 and 4 and 7 at 32: on no line, 60 · 7 / 5 = 84
    steps = {size: step(size, 5 if size < 32 else 7) for size in (1, 2, 4, 32)}
    total, part, *_ = exact_laws("net", steps, (1, 2, 4, 32))
    assert line_of(total) == ("forward", "", None, None, False)
    assert total.reason.endswith("broken by position")
    assert (part.part, part.holds) == ("position", False)
    assert part.reason == "on no line: counted 1: 60, 2: 60, 4: 60, 32: 84"


def test_a_batch_that_could_not_be_traced_is_said_and_two_decide_nothing() -> None:
    refused = CallRecording((), (), (), batch=1, untrained="ValueError: more than 1 value per channel")
    found = exact_laws("net", {1: refused, 2: step(2), 4: step(4)}, (1, 2, 4, 32))
    total = found[0]
    assert line_of(total) == ("forward", "", 20, 60, None)
    assert total.batches == (2, 4)
    assert "two batches are always on a line" in total.reason
    assert "batch 1: ValueError: more than 1 value per channel" in total.reason
    assert "batch 32: not traced" in total.reason
    (nothing,) = exact_laws("net", {1: refused}, (1,))
    assert (nothing.status, nothing.reason) == ("unavailable", "batch 1: ValueError: more than 1 value per channel")


def rows(series: dict[int, int], operator: str = "", printed: dict[int, int] | None = None) -> list[FlopCount]:
    return [
        FlopCount(
            counter="c",
            workload="net",
            batch_size=size,
            phase="forward",
            operator=operator,
            native_unit="mac",
            native_value=native,
            printed=None if printed is None else printed[size],
        )
        for size, native in series.items()
    ]


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET)
    return f"{tmp_path / 'net.py'}:build"


def test_a_real_model_with_two_real_counters(net: str) -> None:
    """head: a linear layer 4 → 2, 16 FLOP a sample; position: 5 × 3 → 2, 60 FLOP, both as much backward, because
    nothing asks for the gradients of their inputs. ptflops has 8 + 2 and 30 + 10 multiply-adds and biases, over b."""
    found = count_output.batch_laws(net, {"input": "4"}, ("flop_counter_mode", "ptflops"), 8, 300, lambda _: None)
    assert [(each.counter, *line_of(each)) for each in found if not each.part] == [
        ("exact", "forward", "", 16, 60, True),
        ("exact", "backward", "", 16, 60, True),
        ("flop_counter_mode", "forward", "", 16, 60, True),
        ("flop_counter_mode", "backward", "", 16, 60, True),
        ("ptflops", "forward", "", None, None, False),
    ]
    assert [each.part for each in found if each.counter == "exact" and each.part] == ["position", "position"]
    assert found[0].batches == (1, 2, 4, 32)
    ptflops = next(each for each in found if each.counter == "ptflops")
    assert ptflops.batches == (1, 2, 4, 8)
    assert "its constant of 40 too" in ptflops.reason


def test_the_command_shows_and_writes_it(net: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    ended = command.main([net, "--input", "4", "--law", "--counters", "pthflops", "--format", "csv", "--out", str(out)])
    shown = capsys.readouterr().out
    assert ended == 0
    assert shown == (out / "laws.csv").read_text()
    lines = shown.splitlines()
    assert lines[0].split(",")[:4] == ["model", "counter", "phase", "part"]
    assert ",exact,forward,position,flop," in shown
