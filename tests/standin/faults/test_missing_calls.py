"""A call that is not in the stand-in answers "not supported" and fails the test that made it, in every library."""

from __future__ import annotations

import sys

import pytest

from tests.standin.conftest import makes

pytestmark = pytest.mark.standin

CALLS = {
    "libcudart.so.13": ("cudaMallocArray", 801),
    "libcublas.so.13": ("cublasSrotg_v2", 15),
    "libcublasLt.so.13": ("cublasLtMatrixTransform", 15),
    "libcudnn.so.9": ("cudnnCreateOpTensorDescriptor", 3000),
    "libcupti.so.13": ("cuptiEventGroupCreate", 27),
    "libcuda.so.1": ("cuTexRefCreate", 801),
    "libnvidia-ml.so.1": ("nvmlDeviceGetFanSpeed", 3),
}
"""Library → a call that nobody wrote, and what it answers."""

ASK = "import ctypes, sys; print(*(getattr(ctypes.CDLL(a), b)() for a, b in zip(sys.argv[1::2], sys.argv[2::2])))"


def test_each_library_tells_of_calls_that_are_not_there(libraries, tmp_path):
    """As a test's fixture does it: what comes after `yield` runs when the test is over."""
    fixture = makes(libraries, lambda: tmp_path / "device")
    device = next(fixture)(name="NVIDIA H100 80GB HBM3")
    words = [word for library, (name, _) in CALLS.items() for word in (library, name)]
    done = device.run(sys.executable, "-c", ASK, *words)
    assert list(map(int, done.stdout.split())) == [answer for _, answer in CALLS.values()], done.stderr
    assert device.missing() == sorted(name for name, _ in CALLS.values())
    with pytest.raises(AssertionError, match=f"{len(CALLS)} more items, first extra item: 'cuTexRefCreate'"):
        next(fixture)


def test_a_name_by_which_torch_asks_the_driver_is_told_too(libraries, tmp_path):
    """torch finds the driver's functions by name: one that no header has."""
    fixture = makes(libraries, lambda: tmp_path / "device")
    device = next(fixture)()
    ask = (
        "from ctypes import *; "
        "CDLL('libcudart.so.13').cudaGetDriverEntryPoint(b'cuNoSuchCall', byref(c_void_p()), 0, None)"
    )
    done = device.run(sys.executable, "-c", ask)
    assert done.returncode == 0, done.stderr
    with pytest.raises(AssertionError, match="cuNoSuchCall"):
        next(fixture)


def test_what_is_refused_on_purpose_fails_no_test(standin):
    device = standin()
    done = device.run(sys.executable, "-c", ASK, "libnvidia-ml.so.1", "nvmlDeviceGetNumGpuCores")
    assert done.stdout.split() == ["3"], done.stderr
    assert device.missing() == []
