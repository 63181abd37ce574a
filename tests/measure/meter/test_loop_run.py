"""A loop's run directory: what the report reads of it is what the meter said."""

import csv
import json

import pytest
import torch

from measure.meter.meter import UtilizationMeter
from results.records.samples import Ceiling
from results.store.store import read_run
from runners.report import command

WIDTH, BATCH, STEPS = 64, 8, 40
LAYER = 2 * BATCH * WIDTH * WIDTH


def _net():
    return torch.nn.Sequential(torch.nn.Conv1d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(4 * (WIDTH - 2), WIDTH))


def _train(out, model=None, sizes=(BATCH,), **options):
    model = model or _net()
    optimizer = torch.optim.AdamW(model.parameters())
    options = {"warm_up_steps": 2, "energy": False, "peak_flop_per_s": 1e12, "optimizer": optimizer} | options
    with UtilizationMeter(model, out=out, **options) as meter:
        for number in range(STEPS + 2):
            with meter.step():
                optimizer.zero_grad()
                model(torch.randn(sizes[number % len(sizes)], 1, WIDTH)).sum().backward()
                optimizer.step()
        return meter.summary()


def _table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_report_of_a_loop_says_what_the_meter_said(tmp_path, capsys):
    found = _train(tmp_path / "loop")
    assert command.main([str(tmp_path / "loop")]) == 0
    told = capsys.readouterr().out
    rows = _table(tmp_path / "loop" / "utilization.csv")
    (row,) = [each for each in rows if each["denominator"] == "user"]
    assert row["numerator_source"] == "flopledger.UtilizationMeter"
    # Conv1d: 4 × 62 outputs × 3 taps; Linear: 248 × 64; forward and weights, and the input of the second
    conv, linear = 2 * BATCH * 4 * 62 * 3, 2 * BATCH * 248 * 64
    assert int(row["model_flop"]) == found.model_flop_per_step == 2 * conv + 3 * linear
    assert float(row["utilization_ratio"]) == pytest.approx(found.utilization_ratio, rel=1e-9)
    assert float(row["time_s"]) == pytest.approx(found.step_time_s, rel=1e-9)
    assert "Sequential" in told
    assert "adamw" in told
    (run,) = read_run(tmp_path / "loop").runs
    assert run.executed == {"convolution/float32": 2 * conv, "matmul/float32": 3 * linear}
    assert (run.batch_size, run.precision, run.data, run.items_per_step) == (BATCH, "fp32", "loop", BATCH)
    assert (tmp_path / "loop" / "report.html").stat().st_size > 10_000
    assert list((tmp_path / "loop" / "figures").glob("utilization_by_model.*"))


TRUE_OF_THIS_MACHINE = {"alone", "converged", "warnings", "one_machine"}
"""Gates that may fail here: other work, a wide interval, code that is not committed."""


def test_no_gate_fails_on_a_loop(tmp_path, capsys):
    _train(tmp_path / "loop", name="resnet18")  # a name of the catalogue says nothing of a user's model
    assert command.main([str(tmp_path / "loop")]) == 0
    capsys.readouterr()
    command.main([str(tmp_path / "loop"), "--check", "--format", "json"])
    gates = json.loads(capsys.readouterr().out)
    assert {each["gate"] for each in gates if each["verdict"] == "fail"} <= TRUE_OF_THIS_MACHINE
    passed = {each["gate"] for each in gates if each["verdict"] == "pass"}
    assert passed >= {"committed", "hardware", "flags", "batch", "synchronised", "at_most_one", "rebuilt"}


@pytest.mark.parametrize("asked", ["slower:2%", "flop:0", "bytes:0"])
def test_each_condition_on_two_loops_has_an_outcome_and_flop_decides(asked, tmp_path, capsys):
    """Loops of 1 and of 2 more layers: of a loop FLOP are counted, and there is no table of its step for the rest."""
    for name, layers in (("a", 1), ("b", 2)):
        more = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers)]
        _train(tmp_path / name, torch.nn.Sequential(*_net(), *more), name="mine")
    words = ["--fail-if", asked, "--margin", "10", "--format", "json"]
    code = command.main([str(tmp_path / "a"), str(tmp_path / "b"), *words])
    (found,) = json.loads(capsys.readouterr().out)["checks"]
    condition = asked.partition(":")[0]
    assert found["condition"] == condition
    if condition == "flop":
        assert (code, found["outcome"], found["value_b"] - found["value_a"]) == (5, "met", 3 * LAYER)
    else:
        expected = "undecided" if condition == "slower" else "not compared"
        assert (code, found["outcome"]) == (0, expected)
        assert condition == "slower" or "no table of the step: FLOP alone" in found["reason"]


def test_a_loop_that_goes_on_is_another_attempt(tmp_path):
    _train(tmp_path / "loop")
    _train(tmp_path / "loop")
    data = read_run(tmp_path / "loop")
    assert [run.attempt for run in data.runs] == [2]
    assert [sitting.sitting for sitting in data.sittings] == ["s0", "s1"]
    assert not data.problems


def test_what_is_known_of_a_loop_with_an_unknown_call_is_at_least(tmp_path):
    """The net of the test above and an operator without a rule after it, once a step."""

    @torch.library.custom_op("h21::product", mutates_args=())
    def product(x: torch.Tensor) -> torch.Tensor:
        return x @ x.T @ x

    product.register_fake(lambda x: torch.empty_like(x))
    product.register_autograd(lambda context, gradient: gradient)

    class Unruled(torch.nn.Module):
        def forward(self, x):
            return torch.ops.h21.product(x)

    found = _train(tmp_path / "loop", model=torch.nn.Sequential(_net(), Unruled()))
    (run,) = read_run(tmp_path / "loop").runs
    assert (run.executed, run.unknown_calls) == ({}, 1)
    conv, linear = 2 * BATCH * 4 * 62 * 3, 2 * BATCH * 248 * 64
    assert run.at_least_flop == found.at_least_flop_per_step == 2 * conv + 3 * linear
    assert command.main([str(tmp_path / "loop")]) == 0
    (row,) = {
        (each["model_flop"], each["at_least_flop"], each["unknown_calls"], each["utilization_ratio"])
        for each in _table(tmp_path / "loop" / "utilization.csv")
    }
    assert row == ("", str(run.at_least_flop), "1", "")


def test_ceilings_that_were_given_are_a_denominator(tmp_path):
    from measure.device.environment import device_facts

    name = device_facts("cpu").name
    best = Ceiling(
        sitting="elsewhere", device="cpu", precision="fp32", unit="fp32", operation="matmul", shape="1024x1024x1024",
        flop_per_s=5e11, device_name=name,
    )  # fmt: skip
    found = _train(tmp_path / "loop", ceilings=[best])
    assert command.main([str(tmp_path / "loop")]) == 0
    rows = {each["denominator"]: each for each in _table(tmp_path / "loop" / "utilization.csv")}
    assert float(rows["ceiling"]["utilization_ratio"]) == pytest.approx(found.ceiling_utilization_ratio, rel=1e-9)
