"""Law, injected fault: retained memory is used again without page faults; where it cannot be kept, it is refused."""

import platform
import resource
import subprocess
import sys
from types import SimpleNamespace

import pytest

from measure.device import malloc
from measure.device.malloc import retain_freed_memory
from results.errors import Unavailable

PAGES = malloc._PROBE_BYTES // resource.getpagesize()
ON_GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")

PROGRAM = """
import ctypes, resource
from measure.device import malloc
from measure.device.malloc import retain_freed_memory
before = malloc.faults_of_a_second_block(ctypes.CDLL(None))
retain_freed_memory()
kept = malloc.faults_of_a_second_block(ctypes.CDLL(None))
import torch
def tensors():  # of torch's own allocator, on an address that is a multiple of 64, one for each power of two to 256 MiB
    start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for power in range(10, 27):
        torch.ones(1 << power)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start
tensors()
print(before, kept, tensors())
"""


@ON_GLIBC
def test_a_freed_block_is_written_again_without_page_faults() -> None:
    """In a process of its own, since what mallopt sets cannot be unset."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    before, kept, tensors = map(int, done.stdout.split())
    huge_pages = before < PAGES / 2  # where the system hands out 2 MiB at a time, faults are few before, too
    assert huge_pages or before >= PAGES
    assert kept < PAGES / 100
    assert tensors < (1 << 29) / resource.getpagesize() / 100  # the tensors have just under 2^29 bytes together


GROWING = """
import resource
from measure.device import malloc
from measure.device.malloc import extend_heap, retain_freed_memory
retain_freed_memory()
import torch
resident = malloc._resident_bytes()
kept = [torch.ones(1 << 20) for _ in range(50)]  # 4 MiB each
del kept[::2]  # holes that a block of a quarter does not fit into
free = malloc.free_bytes() or 0
new = extend_heap(0.25)
start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(resident // 4 // 4)
first = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start
print(resident, free, new, first)
"""


@ON_GLIBC
def test_growing_into_the_extended_heap_is_no_page_fault() -> None:
    """A block of a quarter of the memory from before: without the room it would be a fault for each page."""
    done = subprocess.run([sys.executable, "-c", GROWING], capture_output=True, text=True, check=True)
    resident, free, new, first = map(int, done.stdout.split())
    assert free > resident, "expected a machine with more free memory than torch takes"
    assert new > 0.1 * resident
    assert first < resident / 4 / resource.getpagesize() / 10


@pytest.mark.parametrize(
    ("answer", "faults", "words"),
    [
        (0, 0, "mallopt refused"),
        (1, PAGES, "100% of a freed block was still given back"),
        (1, PAGES // 2, "50% of a freed block was still given back"),
    ],
)
def test_what_does_not_work_is_refused(answer: int, faults: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(malloc.ctypes, "CDLL", lambda _name: SimpleNamespace(mallopt=lambda *_: answer))
    monkeypatch.setattr(malloc, "faults_of_a_second_block", lambda _library: faults)
    with pytest.raises(Unavailable, match=words):
        retain_freed_memory()
    if answer:
        monkeypatch.setattr(malloc, "faults_of_a_second_block", lambda _library: PAGES // 10)
        retain_freed_memory()
