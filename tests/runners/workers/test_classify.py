"""Definition: the status and the reason of an exception, by real messages of torch and of CUDA's libraries."""

import pytest
import torch

from results.errors import Inconsistent, Unavailable
from results.records.cell import STATUSES
from runners.workers.pool import LONGEST_REASON, classify, run

CUDA_OOM = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.81 GiB of which 3.81 GiB is "
    "free. Of the allocated memory 130.00 GiB is allocated by PyTorch"
)
CPU_OOM = (
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "4000000000000000 bytes. Error code 12 (Cannot allocate memory)"
)
ILLEGAL = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported"


class AcceleratorError(RuntimeError):
    """As torch's own of this name, which older versions of it lack."""


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (torch.OutOfMemoryError(CUDA_OOM), "out_of_memory"),
        (RuntimeError(CPU_OOM), "out_of_memory"),
        (AcceleratorError("CUDA error: out of memory"), "out_of_memory"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "out_of_memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "out_of_memory"),
        (RuntimeError("std::bad_alloc"), "out_of_memory"),
        (MemoryError(), "out_of_memory"),
        (AcceleratorError(ILLEGAL), "device_error"),
        (AcceleratorError("unspecified launch failure"), "device_error"),
        (RuntimeError(ILLEGAL), "device_error"),
        (RuntimeError("CUDA error: device-side assert triggered"), "device_error"),
        (RuntimeError("CUDA error: no kernel image is available for execution on the device"), "device_error"),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), "device_error"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`"), "device_error"),
        (Unavailable("tf32 on cpu: TF32 is a unit of NVIDIA GPUs"), "unavailable"),
        (ValueError("resnet18 cannot take this batch"), "invalid"),
        (Inconsistent("expected device time to pass"), "invalid"),
        (KeyError("width"), "crashed"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x8 and 9x8)"), "crashed"),
        (AssertionError(), "crashed"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{type(value).__name__} {str(value)[:24]}",
)
def test_status(fault, status):
    found = classify(fault)
    assert found.status == status
    assert found.status in STATUSES
    assert found.reason
    assert "\n" not in found.reason


def test_the_real_exceptions_of_this_torch():
    for make in (lambda: torch.empty(10**15), lambda: bytearray(10**17)):
        with pytest.raises((RuntimeError, MemoryError)) as raised:
            make()
        assert classify(raised.value).status == "out_of_memory"
    if hasattr(torch, "AcceleratorError"):
        assert classify(torch.AcceleratorError(ILLEGAL)).status == "device_error"


@pytest.mark.parametrize(
    ("refused", "lost", "status"),
    [
        (0, False, "crashed"),
        (3, False, "out_of_memory"),
        (0, True, "device_error"),
        (3, True, "device_error"),
    ],
)
def test_no_engine_is_no_memory_or_no_device(monkeypatch, refused, lost, status):
    """torch swallows what each of cuDNN's algorithms met, and at last finds none: the device is asked what it was."""

    def synchronize():
        if lost:
            raise AcceleratorError("CUDA error: unknown error")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {"num_ooms": refused})
    fault = classify(RuntimeError("FIND was unable to find an engine to execute this computation"))
    assert fault.status == status
    assert fault.reason.endswith(" (CUDA error: unknown error)") == lost


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", True),
        ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(...)`", True),
        ("CUDA error: unspecified launch failure", False),
        ("unspecified launch failure", False),
    ],
)
def test_where_a_library_says_that_it_failed_the_device_is_asked_why(monkeypatch, said, more):
    def broken():
        raise AcceleratorError(ILLEGAL)

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", broken)
    found = classify(AcceleratorError(said))
    because = " (CUDA error: an illegal memory access was encountered)" if more else ""
    assert (found.status, found.reason) == ("device_error", f"AcceleratorError: {said}{because}")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert classify(AcceleratorError(said)).reason == f"AcceleratorError: {said}", "the device itself is well"


def test_a_fault_names_the_line_of_the_users_file(tmp_path, monkeypatch):
    (tmp_path / "net_of_a_user.py").write_text(
        "def one(x):\n    return two(x)\n\n\ndef two(x):\n    return x.upper(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    fault = run("net_of_a_user:one", ("a",))
    assert fault.reason == "TypeError: str.upper() takes no arguments (1 given) (net_of_a_user.py:6 in two)"


def test_a_long_reason_is_cut_and_the_detail_is_not():
    found = classify(RuntimeError("x" * 5000))
    assert len(found.reason) == LONGEST_REASON
    assert "x" * 5000 in found.detail
