"""Injected fault: a call that a stand-in library lacks answers "not supported" and fails the test that made it."""

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
