"""`runners.project --budget`, `--reach` and `--parallel` from end to end, and the inverse of a learning curve."""

from __future__ import annotations

import csv
import io
import json
import math
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import numpy as np
import pytest

from analysis.project.compute.budget import Curve, error_at
from analysis.project.compute.scaling_laws import LAWS, loss, optimum
from analysis.project.frontier import domain as frontier_domain
from analysis.project.frontier import frontier
from analysis.project.frontier.accelerator import Accelerator
from analysis.project.frontier.learning_curves import ModelSize
from analysis.project.frontier.shipped_formulas import shipped
from runners.project import command, output
from runners.project.budget_transformer import shape
from tests.runners.project.test_project_compute import refused, told

H100 = ("--device", "NVIDIA H100 80GB HBM3")


def test_a_budget_of_gpu_days_is_the_laws_optimum(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "--budget", "64 GPU-days", *H100, "--domain", "transformer")
    got = {name: each["value"] for name, each in found["answers"].items()}
    assert got["gpu_hours"] == 64 * 24
    assert got["flop"] == pytest.approx(64 * 86400 * 989.4e12 * found["utilization"]["ratio"])
    constants = LAWS["besiroglu2024"].constants()
    parameters, tokens = optimum(constants, np.asarray([got["flop"]]))
    assert got["parameters"] == pytest.approx(parameters[0])
    assert got["tokens"] == pytest.approx(tokens[0])
    assert got["loss"] == pytest.approx(loss(constants, parameters, tokens)[0])
    assert got["perplexity"] == pytest.approx(math.exp(got["loss"]))
    assert got["days"] == pytest.approx(8)  # on 8 devices
    assert {swing["input"] for swing in found["hangs_on"]["loss"]} == {"law", "utilization"}
    assert set(found["contrast"]) == {"hoffmann2022", "kaplan2020"}
    assert found["family"] == "language-model"


def test_an_interval_holds_what_its_ends_of_utilization_give(capsys: pytest.CaptureFixture[str]) -> None:
    """More FLOP, less loss: with the law known, the ends of the loss are the losses at the ends of the FLOP."""
    found = told(capsys, "--budget", "64 GPU-days", *H100, "--law", "hoffmann2022", "--utilization", "0.3..0.5")
    constants = LAWS["hoffmann2022"].constants()
    for end, other in (("low", "high"), ("high", "low")):
        flop = np.asarray([found["answers"]["flop"][end]])
        assert found["answers"]["loss"][other] == pytest.approx(loss(constants, *optimum(constants, flop))[0], rel=1e-4)
    assert [swing["input"] for swing in found["hangs_on"]["loss"]] == ["utilization"]
    assert any("no interval" in note for note in found["notes"])


def test_the_inverse_takes_the_budget(capsys: pytest.CaptureFixture[str]) -> None:
    bought_loss = told(capsys, "--budget", "64 GPU-days", *H100)["answers"]["loss"]["value"]
    found = told(capsys, "--reach", repr(bought_loss), *H100)["answers"]
    assert found["gpu_hours"]["value"] == pytest.approx(64 * 24, rel=1e-6)
    assert found["loss"] == {name: pytest.approx(bought_loss) for name in ("value", "low", "high")}


def test_a_size_of_the_callers_and_a_budget_of_flop(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "--budget", "1e22 FLOP", *H100, "--parameters", "7e9", "--devices", "64")
    assert found["answers"]["tokens"]["value"] == pytest.approx(1e22 / 6 / 7e9)
    assert found["answers"]["flop"]["low"] == 1e22 == found["answers"]["flop"]["high"]
    assert found["contrast"] == {}
    best = told(capsys, "--budget", "1e22 FLOP", *H100)["answers"]["loss"]["value"]
    assert found["answers"]["loss"]["value"] > best
    back = told(capsys, "--reach", repr(found["answers"]["loss"]["value"]), *H100, "--parameters", "7e9")
    assert back["answers"]["flop"]["value"] == pytest.approx(1e22)


def test_a_loss_near_the_irreducible_one_has_no_upper_end(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "--reach", "1.83", "--device", "NVIDIA H200")
    assert found["answers"]["flop"]["high"] is None
    assert found["answers"]["flop"]["value"] > 1e28
    assert any(note.startswith("extrapolated") for note in found["notes"])
    assert command.main(["--reach", "1.83", "--device", "NVIDIA H200"]) == 0
    assert "to no end" in capsys.readouterr().out


def test_what_fits_is_said_and_what_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    fits = told(capsys, "--budget", "64 GPU-days", *H100)["fit"]
    assert fits["plan"]["data"] * fits["plan"]["tensor"] * fits["plan"]["pipeline"] == 8 == fits["devices"]
    assert fits["held_bytes"]["total"] <= fits["memory_bytes"] == 72e9
    assert fits["batch_sequences"] % 8 == 0
    small = told(capsys, "--budget", "1e24 FLOP", "--device", "NVIDIA GeForce RTX 3090", "--parameters", "70e9")["fit"]
    assert small["plan"] is None
    assert small["least_devices"] > 8
    # 70e9 parameters at 16 bytes are 1.1e12, 52 times 21.6e9
    assert small["least_devices"] >= 64


def test_shapes_are_those_that_people_train() -> None:
    """GPT-3 and LLaMA's 7 billion: 96 × 12288 with 96 heads; 32 × 4096 with 32."""
    gpt3, small = shape(175e9, 2048, 51200), shape(6.7e9, 2048, 50304)
    assert (gpt3.layers, gpt3.width, gpt3.heads) == (96, 12288, 96)
    assert (small.layers, small.width, small.heads) == (32, 4096, 32)
    for parameters in (1e8, 1e9, 3e10, 1e12):
        assert shape(parameters, 2048, 50304).parameters == pytest.approx(parameters, rel=0.1)


def word_lm() -> tuple[frontier_domain.Domain, Any]:
    import tomllib

    text = (frontier_domain.FOLDER / "word_lm.toml").read_text(encoding="utf-8")
    domain = frontier_domain.from_tables(tomllib.loads(text), "word_lm")
    return domain, shipped()[domain.model].with_sizes({k: v for k, v in domain.sizes.items() if isinstance(v, int)})


def at_data(domain: Any, formulas: Any, data: float) -> SimpleNamespace:
    """A model of the size for so much data, trained once over it: the curve's own direction."""
    numbers = domain.values()
    parameters = ModelSize(numbers["sigma"], numbers["beta_p"]).parameters(data)
    sizes = domain.sizes_at(frontier.grown_for(domain, formulas, parameters))
    step_flop = formulas.at("model_flop", **{**sizes, "batch": domain.sub_batch})
    error = float(error_at(numbers, np.asarray(data, dtype=np.float64)))
    return SimpleNamespace(
        parameters=parameters, error=error, flop=step_flop * data / numbers["per_sample"] / domain.sub_batch
    )


def test_a_domains_budget_is_the_inverse_of_its_curve() -> None:
    """Today's 768e6 words have an error of 3.37, on 940 · 768e6^0.68 parameters; an epoch's FLOP buy them again."""
    domain, formulas = word_lm()
    today = at_data(domain, formulas, 768e6)
    assert today.error == pytest.approx(3.37)
    assert today.parameters == pytest.approx(940 * 768e6**0.68)
    # 80 places are computed for each sentence of 25.37 words, at 6 FLOP a parameter but those that are looked up
    assert 5 * today.parameters < today.flop / (768e6 / 25.37 * 80) < 6 * today.parameters
    many = Curve(domain, formulas).bought(np.asarray([today.flop, 3.3 * today.flop, 10 * today.flop]))
    assert many["data"][0] == pytest.approx(768e6)
    assert many["data"][2] / many["data"][0] == pytest.approx(10 ** (1 / 1.68), rel=0.02)  # FLOP as data^(1 + 0.68)
    between = at_data(domain, formulas, float(many["data"][1]))  # no point of the curve
    assert between.flop == pytest.approx(3.3 * today.flop, rel=2e-3)
    assert many["error"][1] == pytest.approx(between.error, rel=1e-4)
    assert many["parameters"][1] == pytest.approx(between.parameters, rel=1e-4)


def test_a_domain_by_name_and_by_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ("--budget", "10 GPU-years", "--device", "NVIDIA H200", "--utilization", "0.2..0.4")
    named = told(capsys, *asked, "--domain", "word_lm")
    path = tmp_path / "mine.toml"
    path.write_bytes((frontier_domain.FOLDER / "word_lm.toml").read_bytes())
    filed = told(capsys, *asked, "--domain", str(path))
    assert named["answers"] == filed["answers"]
    assert named["units"] == {"error": "nat/word", "data": "word"}
    assert named["answers"]["error"]["low"] < named["answers"]["error"]["value"] < 3.37
    assert named["answers"]["gpu_hours"]["value"] == 10 * 8766


def test_a_budget_of_draws_is_that_of_each_alone() -> None:
    """Each draw of sigma and beta_p against a domain that has these numbers."""
    from dataclasses import replace

    domain, formulas = word_lm()
    draws = {"sigma": np.asarray([700.0, 940.0, 1500.0]), "beta_p": np.asarray([0.66, 0.68, 0.7])}
    budgets = at_data(domain, formulas, 768e6).flop * np.asarray([1.0, 30.0, 1000.0])
    found = Curve(domain, formulas).bought(budgets, draws)
    for at, flop in enumerate(budgets):
        numbers = {**domain.numbers, **{name: (float(each[at]),) * 3 for name, each in draws.items()}}
        alone = at_data(replace(domain, numbers=numbers), formulas, float(found["data"][at]))
        assert alone.flop == pytest.approx(flop, rel=2e-3)
        assert alone.parameters == pytest.approx(found["parameters"][at])
        assert alone.error == pytest.approx(found["error"][at])


def test_ends_of_a_learning_curve_are_carried_into_a_budget(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """2.5 % of the draws are beyond a twentieth of the way from each end of beta_g; all buy the same data."""
    text = (frontier_domain.FOLDER / "word_lm.toml").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(text.replace("beta_g = -0.066", "beta_g = [-0.066, -0.086, -0.056]"))
    asked = ("--budget", "1e21 FLOP", "--device", "NVIDIA H200", "--utilization", "0.3", "--domain")
    plain, drawn = told(capsys, *asked, "word_lm"), told(capsys, *asked, str(tmp_path / "mine.toml"))
    data, error = (drawn["answers"][name] for name in ("data", "error"))
    assert data["low"] == data["value"] == data["high"] == plain["answers"]["data"]["value"]
    assert error["value"] == plain["answers"]["error"]["value"]
    for end, beta_g in (("low", -0.085), ("high", -0.0565)):
        assert error[end] == pytest.approx(3.37 * (data["value"] / 768e6) ** beta_g, rel=1e-4)
    assert [swing["input"] for swing in drawn["hangs_on"]["error"]] == ["beta_g"]
    assert any("beta_g of the file" in note for note in drawn["notes"])
    assert any("no interval" in note for note in plain["notes"])


def test_a_domains_budget_says_which_batch_fits(capsys: pytest.CaptureFixture[str]) -> None:
    """At fp32, that of a projection with the same parameters and memory."""
    asked = ("--budget", "1e20 FLOP", "--device", "Tesla V100-SXM2-32GB", "--precision", "fp32", "--domain", "image")
    found = told(capsys, *asked)
    domain = frontier_domain.shipped("image")
    formulas, parameters = shipped()["resnet152"], found["answers"]["parameters"]["value"]
    width = frontier.grown_for(domain, formulas, parameters)
    target = Accelerator("v", 1.0, 1.0, 32e9)
    largest = frontier.largest_batch(domain, formulas, target, width)
    assert largest > 1
    words = f"a step has the file's sub-batch of 32 on each device; its 32 GB hold up to {largest:,} at that size"
    assert words in found["notes"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budget", "64", *H100), 'expected an amount such as "64 GPU-days"'),
        (("--budget", "64 days", *H100), "unknown unit: expected GPU-hours, GPU-days"),
        (("--budget", "-1 GPU-days", *H100), 'expected an amount such as "64 GPU-days"'),
        (("--budget", "0 GPU-days", *H100), "a number above 0"),
        (("--reach", "1.8", *H100), "the irreducible loss is 1.817 nats, got 1.8"),
        (("--reach", "2.0", *H100, "--parameters", "1e7"), "does not get below"),
        (("--budget", "1e3 FLOP", *H100), "guessing among 50304 tokens is 10.8"),
        (("--budget", "1 GPU-days", *H100, "--parameters", "1e15"), "expected a budget that the law is for"),
        (("--budget", "1 GPU-days", *H100, "--law", "kaplan"), "expected besiroglu2024 or hoffmann2022"),
        (("--budget", "1 GPU-days", *H100, "--domain", "wordlm"), "unknown domain: expected transformer, word_lm"),
        (("--budget", "1 GPU-days", *H100, "--domain", "x.toml"), "--domain: expected a file, got x.toml"),
        (("--budget", "1 GPU-days", *H100, "--domain", "speech"), "--utilization: expected with speech"),
        (
            ("--budget", "1e5 FLOP", *H100, "--domain", "speech", "--utilization", "0.3"),
            "less than the smallest model takes",
        ),
        (("--budget", "1 GPU-days", *H100, "--domain", "image", "--law", "hoffmann2022"), "--domain transformer"),
        (("--parallel", "--parameters", "7e9", "--devices", "8", "--batch", "8", "--device", "H100"), "nearest:"),
        (("--parallel", "--layers", "8", "--devices", "8", "--batch", "8", *H100), "--layers, --width and --heads"),
        (("--parallel", "--parameters", "7e10", "--devices", "1", "--batch", "8", *H100), "no plan fits: expected"),
        (
            ("--parallel", "--parameters", "7e9", "--devices", "8", "--batch", "8", *H100, "--tensor", "5"),
            "that divide, got 8 devices",
        ),
        (
            ("--parallel", "--parameters", "7e9", "--devices", "8", "--batch", "8", *H100, "--within", "NVLink"),
            "unknown link",
        ),
        (("--parallel", "--parameters", "7e9", "--devices", "8", "--batch", "8", *H100, "--memory", "3x"), "--memory"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(capsys, *arguments)


def test_two_questions_at_once_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--budget", "1 GPU-days", "--reach", "2", *H100]) == 2
    assert "got --budget and --reach" in capsys.readouterr().err


def test_plans_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--parallel", "--parameters", "7e9", "--devices", "8", "--batch", "64", *H100, "--zero", "3"]
    found = told(capsys, *asked)
    assert {plan["zero"] for plan in found["plans"]} == {3}
    assert [plan["step_s"] for plan in found["plans"]] == sorted(plan["step_s"] for plan in found["plans"])
    assert all(plan["total_bytes"] <= 72e9 for plan in found["plans"])
    assert command.main([*asked, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [float(row["step_s"]) for row in rows] == [plan["step_s"] for plan in found["plans"]]
    assert command.main([*asked, "--most", "2"]) == 0
    table = capsys.readouterr().out
    assert f"and {len(rows) - 2} more that fit" in table
    assert max(map(len, table.splitlines())) <= 120


def test_slower_links_and_less_memory_are_heard(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--parallel", "--parameters", "7e9", "--devices", "16", "--batch", "64", *H100)
    fast = told(capsys, *asked)["plans"]
    slow = told(capsys, *asked, "--between", "Ethernet 100", "--within", "PCIe 3 x16", "--memory", "40GB")["plans"]
    assert slow[0]["step_s"] > fast[0]["step_s"]
    assert max(plan["total_bytes"] for plan in slow) <= 40e9
    assert json.dumps(slow)  # plain values


def test_a_budget_of_flop_does_not_depend_on_the_utilization():
    """7,200 FLOP at 1 FLOP/s: two hours at full utilization."""
    options = Namespace(budget=(7200, output.FLOP))
    flop, hours = output.budget_flop(options, 1.0, {"utilization": numpy.array([0.5, 1.0])})
    assert flop.tolist() == [7200, 7200]
    assert hours == pytest.approx([4.0, 2.0])
    options = Namespace(budget=(3.0, next(unit for unit, each in output.HOURS.items() if each == 1)))
    flop, hours = output.budget_flop(options, 1e12, {"utilization": numpy.array([0.5, 1.0])})
    assert hours.tolist() == [3.0, 3.0]
    assert flop == pytest.approx([0.5 * 1e12 * 3 * 3600, 1e12 * 3 * 3600])
