"""Where the stand-in cannot be built it says why: tests are skipped with that reason, in .ci/run they fail."""

import subprocess
import sys

import pytest

from tests.standin.conftest import built_or_skipped
from tests.standin.device import stand_in
from tests.standin.device.stand_in import SOURCES, Absent, build, quantities

pytestmark = pytest.mark.standin


def without(monkeypatch, tmp_path, lacking):
    """This machine without a compiler, or with wheels that bring no headers."""
    if lacking == "gcc":
        monkeypatch.setenv("PATH", str(tmp_path))
        return "no gcc on PATH"
    monkeypatch.setattr(stand_in, "site", lambda: tmp_path)
    return "no header cuda_runtime_api.h under site-packages/nvidia (a CUDA 13 build of torch brings it)"


@pytest.mark.parametrize("lacking", ["gcc", "headers"])
def test_what_lacks_is_the_reason_of_the_skip(monkeypatch, tmp_path, lacking):
    reason = without(monkeypatch, tmp_path, lacking)
    with pytest.raises(Absent) as absent:
        build(tmp_path / "libraries")
    assert str(absent.value) == reason
    monkeypatch.delenv("FLOPLEDGER_CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no stand-in device: no "):
        built_or_skipped(tmp_path / "libraries")
    monkeypatch.setenv("FLOPLEDGER_CI", "1")
    with pytest.raises(pytest.fail.Exception, match="continuous integration needs the stand-in device: no "):
        built_or_skipped(tmp_path / "libraries")


def test_sources_bring_no_header_of_a_vendor():
    """Those included between quotes are ours; none of a vendor's lies in the repository."""
    assert {path.name for path in SOURCES.rglob("*.h")} == {"standin.h", "work.h"}
    words = "".join(path.read_text() for path in SOURCES.iterdir() if path.suffix in (".c", ".h", ".def"))
    assert "NVIDIA CORPORATION" not in words.upper()


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
