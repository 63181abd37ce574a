"""Known answer: recordings of others (V100, MI300X, PyProf's own output), and one of our own on this CPU.

GFLOP in comments are those of the recordings' catalogue. Where a comparison is of convolutions alone, it says so.
"""

import functools
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

import flopledger
from analysis.trace.kernel_names import fft_tiles
from cleaning.trace.clean import STATES, CleanedTrace, clean
from measure.trace.attribute import attribute
from measure.trace.read import read
from measure.trace.recording import Recording

TUNED = "pyprof_prof_r50_v100_autotune_firstiter_raw.csv"

REAL = os.environ.get("FLOPLEDGER_TRACES", "")
real = pytest.mark.skipif(not REAL, reason="FLOPLEDGER_TRACES is not set")

V100 = "kineto_v100_resnet50_train_b32_torch19_202106.json.gz"
MI300 = "tracelens_mi300_resnet_train_actckpt.json.gz"
PYPROF = "pyprof_prof_r50_v100_raw.csv"
DICT = "pyprof_parse_r50_v100.dict.gz"
NSYS = ("r50_v100_nsys2022ddl_seq_pyprofmarkers.sqlite", "r50_v100_nsys2026ddl_opid_sizes_duplaunch.sqlite")

CONVOLUTIONS = 261_576_720_384
"""Forward pass of ResNet-50's 53 convolutions, batch 32 at 224: 32 · 8.1743 GFLOP."""

LINEAR = 2 * 32 * 2048 * 1000
FIRST = 2 * 32 * 64 * 112 * 112 * 3 * 7 * 7
"""Forward pass of the first convolution, whose input needs no gradient."""

FORWARD = CONVOLUTIONS + LINEAR  # 261.708
BACKWARD = 2 * FORWARD - FIRST  # 515.86


def attributed(file: str | Path) -> Recording:
    """A recording with its calls and kernels in place, as PyProf's come from their reader."""
    recording = read(Path(REAL) / file)
    return recording if recording.source == "pyprof" else attribute(recording)


@functools.cache
def cleaned(file: str) -> CleanedTrace:
    recording = attributed(file)
    return clean(recording.calls, recording.kernels)


def flop(found: CleanedTrace, kind: str, phase: str, state: str) -> int:
    """FLOP of a kind of products."""
    of = (i for i in found.instances if (i.kind, i.phase) == (kind, phase))
    return sum(getattr(instance, f"{state}_flop") or 0 for instance in of)


@real
@pytest.mark.parametrize(("file", "steps"), [(V100, 6), (PYPROF, 1), (DICT, 1), (NSYS[0], 1), (NSYS[1], 1)])
def test_resnet50_on_a_v100(file: str, steps: int) -> None:
    """Linear layer included: 261.708 forward, 515.86 backward a step."""
    found = cleaned(file)
    assert found.totals["repaired"] == {
        "forward_flop": steps * FORWARD,
        "backward_flop": steps * BACKWARD,
        "recompute_flop": None,
    }
    assert round(FORWARD / 1e9, 3) == 261.708
    assert round(BACKWARD / 1e9, 2) == 515.86
    assert found.unexplained_time_ratio == 0


@real
@pytest.mark.parametrize(("file", "steps"), [(V100, 6), (DICT, 1), (NSYS[0], 1), (NSYS[1], 1)])
def test_our_rule_finds_what_pyprof_itself_found(file: str, steps: int) -> None:
    """The CSV has PyProf's own numbers of one of these steps; the others have none, and get our rule's."""
    found, own = cleaned(file), cleaned(PYPROF)
    for kind, phase, extra in (
        ("convolution", "forward", 0),
        ("convolution", "backward", 0),
        ("matmul", "forward", 32 * 1000),  # of the bias, which PyProf counts and our rule leaves out
        ("matmul", "backward", 0),
    ):
        assert flop(found, kind, phase, "raw") == steps * (flop(own, kind, phase, "raw") - extra), (kind, phase)


@real
def test_resnet50_of_a_v100_without_its_kernels(tmp_path: Path) -> None:
    """Old torch's calls in the kernels' place: a call for each gradient, none of which has settings."""
    with gzip.open(Path(REAL) / V100) as file:
        document = json.load(file)
    device = ("Kernel", "Runtime", "Memcpy", "Memset")
    document["traceEvents"] = [event for event in document["traceEvents"] if event.get("cat") not in device]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    recording = attribute(read(path))
    assert set(recording.kernels["what"]) == {"call"}
    found = clean(recording.calls, recording.kernels)
    for state in STATES:
        assert found.totals[state]["forward_flop"] == 6 * FORWARD
        assert found.totals[state]["backward_flop"] == 6 * BACKWARD
    assert found.faults == ()


@real
def test_an_mi300_with_checkpointing() -> None:
    """Convolutions alone: 108.814 forward, 101.733 recomputed, 210.55 backward, of three steps."""
    found = cleaned(MI300)
    assert [round(flop(found, "convolution", phase, "repaired") / 1e9, 3) for phase in ("forward", "recompute")] == [
        108.814,
        101.733,
    ]
    assert round(flop(found, "convolution", "backward", "repaired") / 1e9, 2) == 210.55
    linear = 3 * 2 * 10 * 512 * 1000
    assert flop(found, "matmul", "forward", "repaired") == linear
    assert flop(found, "matmul", "backward", "repaired") == 2 * linear
    assert found.totals["raw"] == {"forward_flop": 0, "backward_flop": 0, "recompute_flop": 0}  # PyProf knew no AMD
    assert [reason for reason, _, _ in found.faults] == ["unlisted_kernel"]
    kernels = found.kernels
    assert 0 < found.unexplained_time_ratio < 0.3  # kernels without a recorded launch
    assert (kernels["link"] == "none").sum() == 968


# --- a recording of our own ------------------------------------------------------------------------------------------


def _step(path: Path, device: str) -> tuple[int, int]:
    """A training step of a small net recorded to a file; its forward and backward FLOP by FlopCounterMode."""
    import torch
    from torch import nn
    from torch.utils.flop_counter import FlopCounterMode

    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.Flatten(),
        nn.Linear(784, 10),
    ).to(device)
    inputs, target = torch.randn(2, 3, 16, 16, device=device), torch.tensor([1, 2], device=device)

    def step() -> None:
        nn.functional.cross_entropy(net(inputs), target).backward()

    step()
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds, record_shapes=True, acc_events=True) as profile:
        step()
        if device == "cuda":
            torch.cuda.synchronize()
    profile.export_chrome_trace(str(path))
    with FlopCounterMode(display=False) as forward:
        net(inputs)
    with FlopCounterMode(display=False) as both:
        step()
    return forward.get_total_flops(), both.get_total_flops() - forward.get_total_flops()


@pytest.fixture(scope="module")
def own(tmp_path_factory: Any) -> tuple[CleanedTrace, tuple[int, int]]:
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    truth = _step(path, "cpu")
    recording = attribute(read(path))
    return clean(recording.calls, recording.kernels), truth


def test_a_step_on_this_cpu_is_what_flop_counter_mode_counts(own: Any) -> None:
    found, (forward, backward) = own
    for state in STATES:
        assert found.totals[state] == {"forward_flop": forward, "backward_flop": backward, "recompute_flop": None}
    assert found.faults == ()
    assert found.unexplained_time_ratio == 0


def test_fused_gradients_count_as_they_are_computed_and_are_named(tmp_path: Path) -> None:
    """conv_tbc: 10 steps of 2 rows, 3 taps of 5 × 7; then 20 tokens of an LSTM of 4 gates, (7 + 8) × 8. The kernels
    compute the gradients of data and of the first state of zeros, 2 rows of 4 gates by 8 × 8, which no count needs."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    class Net(torch.nn.LSTM):
        def forward(self, x: Any) -> Any:
            return super().forward(torch.conv_tbc(x, weight, torch.zeros(7), 1))[0]

    weight, net, x = torch.nn.Parameter(torch.randn(3, 5, 7)), Net(7, 8), torch.randn(10, 2, 5)
    net.register_parameter("of_taps", weight)
    convolution, recurrent = 2 * 20 * 3 * 5 * 7, 2 * 20 * 4 * 15 * 8
    step = flopledger.count(net, x)
    assert step.forward_flop == convolution + recurrent
    assert step.backward_flop == convolution + 2 * recurrent - 2 * 2 * 4 * 8 * 8
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True) as recorded:
        net(x).sum().backward()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    recording = attribute(read(tmp_path / "trace.json"))
    found = clean(recording.calls, recording.kernels)
    assert found.totals["repaired"]["forward_flop"] == step.forward_flop
    assert found.totals["repaired"]["backward_flop"] == 2 * step.forward_flop
    assert found.assumed_gradients == 2


@pytest.mark.gpu
def test_a_step_on_cuda_is_what_flop_counter_mode_counts(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    forward, backward = _step(path, "cuda")
    recording = attribute(read(path))
    found = clean(recording.calls, recording.kernels)
    assert set(recording.kernels["what"]) >= {"kernel"}
    assert found.totals["repaired"] == {"forward_flop": forward, "backward_flop": backward, "recompute_flop": None}
    assert found.unexplained_time_ratio == 0


@real
def test_the_law_of_tiles_on_a_v100() -> None:
    """Every convolution of 3 × 3 and more that FFT_TILING was tried on: one launch a tile."""
    found = cleaned(TUNED)
    launches = found.kernels[found.kernels["name"] == "volta_gcgemm_32x32_nt"].groupby("instance").size()
    seen = {}
    for instance in found.instances:
        inputs, weight = (*instance.input_shapes, (), ())[:2]
        if instance.index in launches.index and weight and weight[2] >= 3:
            seen[inputs[2:], weight[2:]] = launches[instance.index]
            assert launches[instance.index] == fft_tiles(inputs[2:], weight[2:]), instance
    assert {((224, 224), (7, 7)): 81, ((56, 56), (3, 3)): 4, ((28, 28), (3, 3)): 1}.items() <= seen.items()
