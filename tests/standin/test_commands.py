"""Known answer: doctor, ceiling, profile and a predicted footprint find what was planted in a stand-in device."""

import json
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.standin

HERE = Path(__file__).parent


def command(device, name, *words):
    """The JSON that a command of runners prints on this device."""
    done = device.run(sys.executable, "-m", f"runners.{name}", *words, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_doctor_names_what_is_planted_and_does_not_contradict_itself(standin):
    """No /proc/driver/nvidia here, as in containers and WSL2; a limit, another user's process, lowered power."""
    answer = command(standin(event_reasons=0x24, other_process_mib=1000, power_limit_w=400), "doctor")
    lines = {line["topic"]: line for line in answer["checks"]}
    assert answer["fit"]
    assert lines["driver"]["state"] == "ok"
    assert lines["device"]["state"] == "warn", "no hardware"
    assert lines["device"]["fact"].startswith("cuda:0: Stand-in of NVIDIA H100 80GB HBM3")
    assert lines["throttling"]["fact"] == "sw_power_cap, sw_thermal_slowdown"
    assert lines["other users"]["fact"] == "1 compute process on the GPU"
    assert lines["power limit"]["state"] == "warn"
    costs = " ".join(line["cost"] for line in answer["checks"])
    assert "no NVIDIA GPU can be measured" not in costs


EFFICIENCY, MEMORY_GBPS = 0.01, 1200


@pytest.mark.slow
def test_ceilings_of_products_and_memory_are_the_planted_ones(standin):
    device = standin(efficiency=EFFICIENCY, kernel_ns=1000, elementwise_gbps=MEMORY_GBPS, memory_gbps=MEMORY_GBPS)
    rows = command(device, "ceiling", "--device", "cuda", "--precisions", "fp32", "--budget", "12")["rows"]
    best = max(row["flop_per_s"] for row in rows if row["flop_per_s"])
    assert best == pytest.approx(EFFICIENCY * 66.9e12, rel=0.005)
    moved = [row["bytes_per_s"] for row in rows if row["bytes_per_s"] and row["family"] == "memory"]
    assert moved
    assert max(moved) == pytest.approx(MEMORY_GBPS * 1e9, rel=0.005)


KERNEL_NS = 200_000


@pytest.mark.parametrize("twice", [0, 1])
def test_a_profile_finds_each_kernel_by_its_call(standin, twice):
    """An operator's time is the planted duration × its kernels, of which memsets take almost none; a kernel that CUPTI
    recorded twice is one."""
    words = ("resnet18", "--batch-size", "4", "--size", "image_size=64", "--device", "cuda", "--ceiling-budget", "0")
    answer = command(standin(kernel_ns=KERNEL_NS, cupti_twice=twice), "profile", *words, "--steps", "2")
    rows = [row for row in answer["operations"] if row["kernels"] and row["time_s"]]
    convolutions = [row for row in rows if row["kind"] == "convolution" and row["phase"] == "forward"]
    assert len(convolutions) == 20  # resnet18 has 20 convolutions, its shortcuts' three among them
    for row in rows:
        planted = row["time_s"] / (KERNEL_NS * 1e-9)
        assert planted == pytest.approx(round(planted), rel=0.02), row["name"]
        assert 1 <= round(planted) <= row["kernels"], row["name"]
    assert {row["kernels"] for row in convolutions} == {1.0}
    assert {row["phase"] for row in rows} == {"forward", "loss", "backward", "optimizer"}


RESERVE_BYTES = 4096


def test_the_allocators_history_is_the_predicted_footprint(standin):
    """Highest bytes of tensors, predicted on fake tensors and seen in the allocator of the CUDA build. Of resnet18 more
    is seen: what the 15 batch normalisations whose gradients are still to come keep beside their tensors, as planted.
    The workspaces of convolutions, forward and backward, are no tensors."""
    device = standin(batch_norm_reserve_bytes=RESERVE_BYTES, workspace_bytes=64 << 20)
    done = device.run(sys.executable, str(HERE / "programs" / "footprint_on_device.py"), "resnet18", "16", "vgg11", "8")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["vgg11"]["tensors_bytes"] == pytest.approx(found["vgg11"]["predicted_bytes"], abs=64)
    extra = found["resnet18"]["tensors_bytes"] - found["resnet18"]["predicted_bytes"]
    assert extra == pytest.approx(15 * RESERVE_BYTES, abs=64)
