"""Injected fault: a misspelt quantity in the plan of a stand-in is refused by Python and by the device."""

import subprocess
import sys

import pytest

from tests.standin.device.stand_in import quantities

pytestmark = pytest.mark.standin


def test_a_misspelt_quantity_is_refused_by_python_and_by_the_device(standin, libraries):
    assert "kernel_ns" in quantities()
    with pytest.raises(ValueError, match=r"expected quantities of plan\.def, got kernel_nz"):
        standin(kernel_nz=1)
    device = standin()
    device.plan_file.write_text("kernel_nz 1\n")
    done = subprocess.run(
        [sys.executable, "-c", "import ctypes; ctypes.CDLL('libcudart.so.13').cudaGetDeviceCount(ctypes.c_void_p())"],
        env=device.environment(), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode < 0
    assert "stand-in: no such quantity in the plan: kernel_nz" in done.stderr
