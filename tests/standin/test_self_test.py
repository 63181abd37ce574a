"""Injected fault: `runners.doctor --self-test` on a stand-in; each false answer fails its checks and no other.

An honest device passes. All false answers are tried in one process, in short times; the command itself is `slow`.
"""

import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.standin

HERE = Path(__file__).parent
EFFICIENCY = 0.2
"""So little that products are long against what a launch takes on a busy machine, which the wall sees and events do
not; so much that tensor units are above what vector units could do."""

HONEST = {"efficiency": EFFICIENCY, "elementwise_gbps": 2000}

ALL = ("fp32", "tf32", "amp-bf16", "amp-fp16")
PRODUCTS = {f"rate {precision}" for precision in ALL}
CONVOLUTIONS = {f"convolution {precision}" for precision in ALL}
MEMORY = {"memory resnet18", "memory mobilenet_v2"}


def both(precision):
    return {f"rate {precision}", f"convolution {precision}"}


LIES = {
    "rates above the sheet": ({"efficiency": 1.3}, PRODUCTS | CONVOLUTIONS),
    "fp32 runs as tf32": ({"tf32_always": 1}, both("fp32")),  # 0.2 × 494.7 = 1.5 × 66.9 TFLOP/s
    "tf32 runs as fp32": ({"tf32_never": 1}, both("tf32")),
    "bf16 is emulated in fp32": ({"bf16_emulated": 1}, both("amp-bf16")),
    "bf16 and fp16 above the sheet": ({"half_tflops": 6 * 989.4}, both("amp-bf16") | both("amp-fp16")),
    "convolutions in a tenth of their time": ({"convolution_scale": 0.1}, CONVOLUTIONS),
    "events a tenth too long": ({"time_scale": 1.1}, {"events"}),
    "events with an offset of 0.4 ms": ({"event_offset_ns": 4e5}, {"sleep"}),  # 4.04 + 0.4 is 1.8 × (2.02 + 0.4)
    "one convolution of ten is not run": ({"convolution_skipped": 10}, {"count"}),
    "slower for 60 launches in 120": ({"wave_launches": 60, "wave_ratio": 0.3}, {"intervals"}),
    "batch normalisation keeps 4 MiB": ({"batch_norm_reserve_bytes": 4 << 20}, MEMORY),
}
"""What is wrong with the device → its plan, and the checks that must fail, all others must not."""

OVERRULED = "flags overruled by a variable"
OVERRULING = {"NVIDIA_TF32_OVERRIDE": "1"}
"""A lie of the environment, which no getter of torch shows. Rates of fp32 and tf32 are not measured under it."""

UNAVAILABLE = {"honest": {"ieee fp32"}, OVERRULED: {"ieee fp32", *both("fp32"), *both("tf32")}}
"""Checks without an answer: nothing is rounded on a stand-in."""


def with_verdict(rows, *verdicts):
    return {name for name, row in rows.items() if row["verdict"] in verdicts}


# ---- in short ----


@pytest.fixture(scope="module")
def answers(standin_of_module):
    """{lie, or "honest": {check: its row}}, short checks in one process."""
    device = standin_of_module()
    steady = {"busy_w": 600, "idle_w": 600}  # a second of polling must not depend on how busy this machine is
    plans = {"honest": {}, OVERRULED: {}, **{lie: plan for lie, (plan, _) in LIES.items()}}
    for lie, plan in plans.items():
        lines = "".join(f"{name} {value}\n" for name, value in {**HONEST, **steady, **plan}.items())
        (device.folder / f"{lie}.plan").write_text(lines)
    (device.folder / f"{OVERRULED}.environment").write_text("".join(f"{n} {v}\n" for n, v in OVERRULING.items()))
    done = device.run(
        sys.executable, str(HERE / "programs" / "self_test_on_device.py"), str(device.folder), timeout_s=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_fails_its_checks_and_no_other(answers, lie):
    rows = answers[lie]
    assert with_verdict(rows, "failed", "reported") == LIES[lie][1] & set(rows), rows
    assert with_verdict(rows, "unavailable") == UNAVAILABLE["honest"], rows
    assert all(row["reason"] for row in rows.values() if row["verdict"] != "ok")


def test_every_check_but_that_of_rounding_is_failed_by_a_lie(answers):
    found = set().union(*(with_verdict(answers[lie], "failed", "reported") for lie in (*LIES, OVERRULED)))
    assert set(answers["honest"]) - found == {"ieee fp32"}


def test_an_honest_device_passes_each_check(answers):
    rows = answers["honest"]
    assert with_verdict(rows, "failed") == set()
    assert with_verdict(rows, "unavailable") == UNAVAILABLE["honest"]
    assert "computes nothing" in rows["ieee fp32"]["reason"]
    for precision, peak in (("fp32", 66.9e12), ("tf32", 494.7e12), ("amp-bf16", 989.4e12), ("amp-fp16", 989.4e12)):
        assert rows[f"rate {precision}"]["found"] == pytest.approx(EFFICIENCY * peak, rel=0.01)
        assert rows[f"convolution {precision}"]["found"] == pytest.approx(EFFICIENCY * peak, rel=0.03)


# ---- the command ----


def self_test(device, *words):
    """(exit code, {check: its row}, the document)."""
    arguments = ("--self-test", "--device", "cuda", "--format", "json", *words)
    done = device.run(sys.executable, "-m", "runners.doctor", *arguments)
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    return done.returncode, {row["check"]: row for row in answer["checks"]}, answer


@pytest.mark.slow
def test_a_device_that_breaks_in_the_middle_fails_and_says_why(standin):
    """From its 400th launch on, which torch 2.11 to 2.15 reach after the first check, every call answers an illegal
    address: no check after it has an answer."""
    code, rows, answer = self_test(standin(**HONEST, illegal_address_in=1, fault_launch=400))
    assert (code, answer["verdict"]) == (1, "failed")
    assert rows["rate fp32"]["verdict"] == "ok"
    assert {"events", "sleep", "count", "intervals", *MEMORY} <= with_verdict(rows, "failed")
    assert "illegal memory access" in rows["events"]["reason"]


@pytest.mark.slow
def test_an_honest_device_passes(standin):
    device = standin(**HONEST)
    code, rows, answer = self_test(device, "--save", "attached.json")
    assert (code, answer["verdict"]) == (0, "ok")
    assert with_verdict(rows, "ok") == set(rows) - UNAVAILABLE["honest"]
    assert (answer["device"], answer["stand_in"]) == ("Stand-in of NVIDIA H100 80GB HBM3", True)
    assert answer["seconds"] < 180
    assert json.loads((device.folder / "attached.json").read_text()) == answer
