"""Definition, law, injected fault: what a precision sets and reads back, restores afterwards, and refuses.

No device is needed for the flags.
"""

import contextlib

import pytest
import torch

from analysis.devices.precisions import PRECISIONS, expected_cuda, unit_of
from measure.device import apply_precision
from measure.device.apply_precision import apply, check, read_flags, session, supported
from results.errors import Unavailable

CLEAN: dict[str, str] = {}


@pytest.fixture(autouse=True)
def as_found(monkeypatch):
    for name in apply_precision.RECORDED_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    with apply_precision.restored():
        yield


@pytest.mark.parametrize(
    ("dtype", "precision", "device", "unit"),
    [
        ("float32", "fp32", "cuda", "fp32"),
        ("float32", "tf32", "cuda:1", "tf32"),
        ("float32", "tf32", "cpu", "fp32"),  # which has no such unit
        ("float32", "amp-bf16", "cuda", "tf32"),  # what autocast leaves as it is
        ("bfloat16", "amp-bf16", "cuda", "bf16"),
        ("float8_e4m3fn", "fp32", "cuda", "fp8"),
    ],
)
def test_a_dtype_runs_on_the_unit_that_the_policy_allows(dtype, precision, device, unit):
    assert unit_of(dtype, PRECISIONS[precision], device) == unit


@pytest.mark.parametrize("name", PRECISIONS)
@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
def test_what_is_applied_reads_back_as_the_policy(name, device):
    apply(PRECISIONS[name], device)
    assert check(read_flags(), PRECISIONS[name], device, cudnn_benchmark=True, deterministic=False) == []


def test_fp32_on_cuda_is_ieee_in_convolutions_too():
    # torch's own default leaves them on TF32
    torch.backends.cudnn.allow_tf32 = True
    apply(PRECISIONS["fp32"], "cuda")
    flags = read_flags()
    assert flags["cudnn.conv.fp32_precision"] in ("none", "ieee")
    assert flags["cuda.matmul.fp32_precision"] == "ieee"
    apply(PRECISIONS["tf32"], "cuda")
    flags = read_flags()
    assert flags["cudnn.conv.fp32_precision"] == flags["cuda.matmul.fp32_precision"] == "tf32"


@pytest.mark.parametrize("flag", sorted(expected_cuda(PRECISIONS["fp32"])))
def test_every_flag_that_matters_is_checked(flag):
    apply(PRECISIONS["fp32"], "cuda")
    flags = read_flags() | {flag: "surprise"}
    (said,) = check(flags, PRECISIONS["fp32"], "cuda")
    assert said.startswith(f"{flag}: expected ")
    assert said.endswith("found surprise")


def test_deterministic_products_get_their_workspace(monkeypatch):
    apply(PRECISIONS["fp32"], "cpu", deterministic=True)
    assert "env.CUBLAS_WORKSPACE_CONFIG" not in read_flags()
    apply(PRECISIONS["fp32"], "cuda", deterministic=True)
    assert read_flags()["env.CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    apply(PRECISIONS["fp32"], "cuda", deterministic=True)
    assert read_flags()["env.CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


def test_a_session_leaves_the_process_as_it_was():
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    before = read_flags()
    with contextlib.suppress(KeyError), session(PRECISIONS["fp32"], "cuda") as flags:
        assert flags["cuda.matmul.fp32_precision"] == "ieee"
        apply(PRECISIONS["fp32"], "cuda", cudnn_benchmark=False, deterministic=True)
        assert read_flags()["deterministic_algorithms"] is True
        raise KeyError
    assert read_flags() == before


def test_an_override_in_the_environment_is_seen_in_the_flags():
    flags = read_flags({"NVIDIA_TF32_OVERRIDE": "1", "HOME": "/"})
    assert flags["env.NVIDIA_TF32_OVERRIDE"] == "1"
    assert "env.HOME" not in flags
    apply(PRECISIONS["fp32"], "cuda")
    flags = read_flags({"NVIDIA_TF32_OVERRIDE": "1"})
    assert check(flags, PRECISIONS["fp32"], "cuda") == ["env.NVIDIA_TF32_OVERRIDE: expected unset, found 1"]
    apply(PRECISIONS["fp32"], "cpu")
    assert check(read_flags({"NVIDIA_TF32_OVERRIDE": "1"}), PRECISIONS["fp32"], "cpu") == []  # no such unit there


# --- supported ---


class Gpu:
    """torch.cuda of one device of some compute capability."""

    def __init__(self, monkeypatch, capability, bf16=None, count=1):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index=None: capability)
        monkeypatch.setattr(torch.cuda, "device", lambda index: contextlib.nullcontext())
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", self.bf16)
        self.native = capability >= (8, 0) if bf16 is None else bf16

    def bf16(self, including_emulation=True):
        return True if including_emulation else self.native


def accepted(device: str, environ=CLEAN) -> list[str]:
    names = []
    for name in PRECISIONS:
        with contextlib.suppress(Unavailable):
            supported(PRECISIONS[name], device, environ)
            names.append(name)
    return names


@pytest.mark.parametrize(
    ("capability", "names"),
    [
        ((6, 0), ["fp32"]),
        ((7, 0), ["fp32", "amp-fp16"]),
        ((7, 5), ["fp32", "amp-fp16"]),  # torch would emulate bf16
        ((8, 0), ["fp32", "tf32", "amp-bf16", "amp-fp16"]),
        ((9, 0), ["fp32", "tf32", "amp-bf16", "amp-fp16"]),
    ],
)
def test_each_generation_computes_what_it_has_units_for(monkeypatch, capability, names):
    Gpu(monkeypatch, capability)
    assert accepted("cuda:0") == names


@pytest.mark.parametrize("override", apply_precision.OVERRIDES)
def test_overrides_refuse_what_they_override(monkeypatch, override):
    Gpu(monkeypatch, (9, 0))
    assert accepted("cuda", {override: "0"}) == ["amp-bf16", "amp-fp16"]
    with pytest.raises(Unavailable, match=f"{override}=0"):
        supported(PRECISIONS["fp32"], "cuda", {override: "0"})
    assert "fp32" in accepted("cpu", {override: "0"})


@pytest.mark.parametrize(("native", "names"), [(True, ["fp32", "amp-bf16"]), (False, ["fp32"])])
def test_a_cpu_has_no_tf32_and_no_fp16_units(monkeypatch, native, names):
    monkeypatch.setattr(apply_precision, "_cpu_has_bf16", lambda: native)
    assert accepted("cpu") == names


@pytest.mark.gpu
def test_fp32_products_and_convolutions_are_ieee_on_cuda():
    """Needs compute capability 8.0. TF32 keeps 10 bits: relative error near 1e-3; IEEE near 1e-6."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    a, b = torch.randn(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    x, w = torch.randn(8, 64, 28, 28, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda")
    errors = {}
    for name in ("fp32", "tf32"):
        with session(PRECISIONS[name], "cuda"):
            pairs = [(a @ b, a.double() @ b.double())]
            convolve = torch.nn.functional.conv2d
            pairs.append((convolve(x, w), convolve(x.double(), w.double())))
            errors[name] = [float((got - exact).abs().max() / exact.abs().max()) for got, exact in pairs]
    assert max(errors["fp32"]) < 2e-5
    assert min(errors["tf32"]) > 5e-5


def test_rounding_in_onednn_is_refused_on_a_cpu():
    assert accepted("cpu", {"DNNL_DEFAULT_FPMATH_MODE": "BF16"}) == []
    assert "fp32" in accepted("cpu", {"DNNL_DEFAULT_FPMATH_MODE": "STRICT"})
