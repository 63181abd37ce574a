"""Definition: the report of a profiled step, with every number derived by hand from `made_up_profile`."""

import json
import math
from dataclasses import replace

import pytest

from reports import profile as profile_data
from reports.profile_tree import aggregated_text, tree_text
from results.records.answers import Machine, StepModule
from tests.support.made_up.made_up_profile import (
    FUSED_MS,
    MODEL_FLOP,
    MODULES,
    MS,
    OPERATIONS,
    PROFILE,
    UNFUSED_MS,
    UTILIZATION,
    profile,
    untimed,
)


def line(text: str, start: str) -> str:
    """The one line that begins so, its columns set apart by one space."""
    (found,) = [each for each in text.splitlines() if each.strip().startswith(start)]
    return " ".join(found.split())


# --- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ("parameters  ", "parameters 100"),
        ("forward  ", "forward 5.00 kMAC = 10.0 kFLOP"),
        ("backward  ", "backward 20.0 kFLOP = 2.00 × forward"),
        ("a step", "a step 30.0 kFLOP"),
        ("other arithmetic", "other arithmetic 370 FLOP"),
        ("forward latency", "forward latency 9.50 ms, 1.05 MFLOP/s"),  # 8.5 and 1 waited; 10000 / 9.5 ms
        ("backward latency", "backward latency 16.5 ms, 1.21 MFLOP/s"),
        ("optimizer step latency", "optimizer step latency 2.00 ms"),
        ("step latency, profiled", "step latency, profiled 28.0 ms (mean of 2, 27.0 ms to 29.0 ms), 1.07 MFLOP/s"),
        (
            "step latency, not",
            "step latency, not profiled 25.0 ms (mean of 2, 24.0 ms to 26.0 ms), 1.20 MFLOP/s; profiled steps took "
            "12 % more",
        ),
        ("samples", "samples a second 80.0"),  # 2 in 25 ms
        (
            "utilization",
            "utilization of the measured peak 0.300; at most 0.937 attainable; 0.714 estimated if nothing is fused",
        ),
        ("operations", "operations 26.000 ms + between them 2.000 ms = step 28.000 ms"),
        ("FLOP of the tree", "FLOP of the tree 30,000 = of the step 30,000"),
        ("parameters of", "parameters of the tree 100 = of the model 100"),
    ],
)
def test_the_summary(start: str, said: str) -> None:
    text = tree_text(PROFILE, detailed=False)
    assert line(text, start) == said or f"{said} " in f"{' '.join(text.split())} "


def test_the_tree_has_every_module_with_all_below_it() -> None:
    """body: 80 of 100 parameters, 4 of 5 kMAC, 24 of 30 kFLOP, 7 of 8.5 ms, 14 of 16 ms; 24000 in 21 ms; 6 of 22.5."""
    text = tree_text(PROFILE)
    assert line(text, "├ body: Sequential") == (
        "├ body: Sequential 80.0 80% 4.00 k 24.0 k 80% 7.00 ms 82% 14.0 ms 88% 1.07 M 0.267 arithmetic"
    )
    assert line(text, "│ ├ 0: Conv2d").endswith("3, 8, kernel_size=(3, 3)")
    assert [each[:4] for each in text.splitlines() if each.startswith(("├", "│", "└"))] == [
        "├ bo",
        "│ ├ ",
        "│ └ ",
        "└ he",
    ]


def test_classes_add_up_and_the_first_few_are_named() -> None:
    """A second linear layer at depth 1 with 30 parameters: together 50, after Sequential's 80."""
    more = StepModule(module="other", type="Linear", own_parameters=30, parameters=30)
    found = profile(modules=(*MODULES, more), parameters=130)
    inner = aggregated_text(found, 1, 2)
    assert "Sequential 80.0, Linear 50.0" in inner
    assert "Linear" not in aggregated_text(found, 1, 1)


def test_recomputation_has_a_rate_beside_the_measured_one() -> None:
    """0.75 × 10 kFLOP more in 16.5 ms: 27500 / 0.0165; in a step of 28 ms: 37500 / 0.028."""
    found = profile(recompute_fwd_factor=0.75)
    text = tree_text(found)
    assert line(text, "backward with") == "backward with 0.75 × forward again 16.5 ms, 1.67 MFLOP/s"
    assert line(text, "step with") == "step with 0.75 × forward again 28.0 ms, 1.34 MFLOP/s"


def test_the_parts_of_a_model_on_several_devices_are_multiplied() -> None:
    """8 devices, 2 a model: 4 models of 2 samples each in 25 ms. DeepSpeed (0.19.8) says 8 × 2 samples: as many as if
    each device had a batch of its own."""
    found = replace(PROFILE, world_size=8, model_parallel=2)
    text = tree_text(found)
    assert line(text, "world size") == "world size 8 = 4 data parallel × 2 model parallel"
    assert line(text, "parameters of the model (") == "parameters of the model (× 2) 200"
    assert line(text, "forward of the model (") == "forward of the model (× 2) 10.0 kMAC = 20.0 kFLOP"
    assert line(text, "a step of the model") == "a step of the model (× 2) 60.0 kFLOP"
    assert line(text, "samples") == "samples a second 320"
    step = profile_data.document(found)["step"]
    assert (step["samples_per_s"], step["model_parallel"]) == (pytest.approx(320), 2)


# --- data ------------------------------------------------------------------------------------------------------------


def test_the_document_has_what_the_issue_names() -> None:
    found = json.loads(json.dumps(profile_data.document(PROFILE), allow_nan=False))
    step = found["step"]
    assert step["time_s"] == pytest.approx(0.028)
    assert (step["model_flop"], step["parameters"]) == (MODEL_FLOP, 100)
    assert step["utilization_ratio"] == pytest.approx(UTILIZATION)
    assert step["attainable_ratio"] == pytest.approx(7.5 / FUSED_MS)
    assert step["unfused_estimate_ratio"] == pytest.approx(7.5 / UNFUSED_MS)
    assert (step["denominator"], step["reason"], step["conserved"]) == ("ceiling", None, True)
    assert step["median_time_s"] == pytest.approx(0.028)
    half_s = 12.706 * 0.001  # of two steps, 1 ms from their mean: t of one degree of freedom × 1.414 ms / √2
    factor = math.exp(half_s / 0.028)
    assert (step["low_time_s"], step["high_time_s"]) == pytest.approx((0.028 / factor, 0.028 * factor), rel=1e-4)
    body = next(each for each in found["modules"] if each["module"] == "body")
    assert (body["parameters"], body["model_flop"], body["bound"]) == (80, 24_000, "arithmetic")
    assert (body["forward_time_s"], body["backward_time_s"]) == pytest.approx((7 * MS, 14 * MS))
    assert len(found["operations"]) == 9
    timed = sum(each["time_s"] for each in found["operations"])
    assert timed + found["between_operations_time_s"] == pytest.approx(step["time_s"])


def test_unknown_is_null_and_says_why() -> None:
    step = profile_data.document(untimed())["step"]
    unknown = (
        "time_s",
        "median_time_s",
        "low_time_s",
        "utilization_ratio",
        "attainable_ratio",
        "denominator",
        "samples_per_s",
        "forward_latency_s",
    )
    assert {name: step[name] for name in unknown} == dict.fromkeys(unknown)
    assert step["reason"] == "no peak of fp32"
    assert profile_data.document(untimed())["modules"][1]["bound"] is None


def test_an_operation_without_a_time_adds_none_to_the_step() -> None:
    lost = replace(OPERATIONS[0], index=9, name="aten.lost", time_s=None)
    texts = (tree_text(each, operations=True) for each in (PROFILE, profile(operations=(*OPERATIONS, lost))))
    first, second = (line(text, "convolution_backward") for text in texts)
    assert first == second


def test_what_was_recorded_as_calculated_again_is_told_by_itself() -> None:
    """A convolution of 8 kFLOP runs again for 1 ms of the backward pass: 20 + 8 kFLOP in 17.5 ms; no model FLOP."""
    again = replace(OPERATIONS[0], index=9, phase="recompute", time_s=1 * MS, waited_s=0.0)
    found = profile(operations=(*OPERATIONS, again), step_times_s=(0.029,))
    text = tree_text(found)
    assert line(text, "calculated again") == "calculated again in it 8.00 kFLOP = 0.800 × forward"
    assert line(text, "backward latency") == "backward latency 17.5 ms, 1.14 MFLOP/s"
    assert line(text, "backward with") == "backward with what ran again 17.5 ms, 1.60 MFLOP/s"
    assert line(text, "a step") == "a step 30.0 kFLOP"
    step = profile_data.document(found)["step"]
    assert (step["model_flop"], step["recompute_flop"], step["conserved"]) == (30_000, 8_000, True)


def test_the_datasheet_is_told_where_nothing_was_measured() -> None:
    sheet = Machine(device="cuda", datasheet_by_unit={"fp32": 8e6}, datasheet_bytes_per_s=1e9)
    step = profile_data.document(profile(machine=sheet))["step"]
    assert step["denominator"] == "datasheet"
    assert step["utilization_ratio"] == pytest.approx(UTILIZATION / 2)
