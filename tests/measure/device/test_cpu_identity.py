"""Which processor, and what of it may be used: read from made-up /proc and /sys, and nothing guessed.

What libraries print of their products: lines as oneDNN and MKL write them, and this machine's own.
"""

import os
from pathlib import Path

import pytest
import torch

from measure.device import environment
from measure.device.cpu_identity import Allowance, allowance, processor
from measure.device.product_instructions import EMULATED, REFERENCE, UNKNOWN, instructions, log, of_implementation
from results.errors import Unavailable

XEON = """processor\t: {}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R) Silver 4114 CPU @ 2.20GHz
stepping\t: 4
flags\t\t: fpu fma avx2 avx512f
"""

ARM = """processor\t: {}
BogoMIPS\t: 2100.00
Features\t: fp asimd sve
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: {}
CPU revision\t: 1
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    return tmp_path


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


def hyper_threaded(root: Path) -> None:
    """Two packages of two cores with two hardware threads each: processors 0 to 7, siblings 4 apart."""
    for number in range(8):
        topology = f"sys/devices/system/cpu/cpu{number}/topology"
        write(root, f"{topology}/physical_package_id", str(number % 4 // 2))
        write(root, f"{topology}/core_id", str(number % 2))
        write(root, f"{topology}/thread_siblings_list", f"{number % 4},{number % 4 + 4}")
    for node, processors in enumerate(("0-1,4-5", "2-3,6-7")):
        write(root, f"sys/devices/system/node/node{node}/cpulist", processors)


def test_x86_and_arm(root: Path) -> None:
    write(root, "proc/cpuinfo", "\n".join(XEON.format(number) for number in range(2)))
    found = processor()
    assert (found.vendor, found.family, found.model, found.stepping) == ("GenuineIntel", "6", "85", "4")
    assert found.name.startswith("Intel(R) Xeon(R) Silver 4114")
    assert found.flags == {"fpu", "fma", "avx2", "avx512f"}
    write(root, "proc/cpuinfo", "\n".join(ARM.format(number, "0xd40") for number in range(2)))
    found = processor()
    assert (found.vendor, found.family, found.model) == ("0x41", "8", "0xd40")
    assert found.flags == {"fp", "asimd", "sve"}


def test_what_nobody_says_and_cores_of_two_kinds_are_refused(root: Path) -> None:
    with pytest.raises(Unavailable, match="does not say which processor this is"):
        processor()
    write(root, "proc/cpuinfo", ARM.format(0, "0xd05") + "\n" + ARM.format(1, "0xd0b"))
    with pytest.raises(Unavailable, match="cores of several kinds"):
        processor()
    write(root, "proc/cpuinfo", XEON.format(0))
    write(root, "sys/devices/cpu_atom/cpus", "16-23")
    with pytest.raises(Unavailable, match="cores of several kinds"):
        processor()


@pytest.mark.parametrize(
    ("affinity", "cores", "nodes"),
    [(range(8), (0, 1, 2, 3), 2), ({1, 5}, (1,), 1), ({4, 5, 6}, (4, 5, 6), 2), ({0, 4, 1}, (0, 1), 1)],
)
def test_a_core_counts_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, affinity: set[int], cores: tuple[int, ...], nodes: int
) -> None:
    hyper_threaded(root)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(affinity), raising=False)
    found = allowance()
    assert (found.cores, found.hardware_threads, found.numa_nodes) == (cores, 2, nodes)
    assert found.quota is None


@pytest.mark.parametrize(
    ("threads", "quota", "usable", "pinned"),
    [(8, None, 4.0, 4), (2, None, 2.0, 2), (8, 1.5, 1.5, 1), (8, 0.5, 0.5, 1), (1, 3.0, 1.0, 1)],
)
def test_the_peak_scales_with_threads_and_quota(threads: int, quota: float | None, usable: float, pinned: int) -> None:
    allowed = Allowance(tuple(range(8)), (0, 1, 2, 3), 2, 1, quota)
    assert allowed.usable_cores(threads) == usable
    assert allowed.pinned(threads) == (0, 1, 2, 3)[:pinned]


def test_the_quota_of_the_control_group(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hyper_threaded(root)
    write(root, "sys/fs/cgroup/cpu.max", "150000 100000")
    assert allowance().quota == 1.5


MKL = "MKL_VERBOSE oneMKL 2024.0 Product build 20240605 for Intel(R) 64 architecture {} enabled processors, Lnx 2.60GHz"


@pytest.mark.parametrize(
    ("implementation", "dtype", "found"),
    [
        ("brg_conv_fwd:avx10_1_512_amx", "bf16", "amx_bf16"),
        ("brgconv:avx512_core_amx", "s8", "amx_int8"),
        ("brgemm_matmul:avx10_1_512_amx_fp16", "f16", "amx_fp16"),
        ("brg_conv_fwd:avx10_1_512", "f16", "avx512_fp16"),
        ("jit:avx512_core_bf16", "bf16", "avx512_bf16"),
        ("jit:avx512_core", "f32", "avx512f"),
        ("jit:avx512_core", "bf16", EMULATED),
        ("jit:avx2", "f32", "fma"),
        ("brgconv:avx2_vnni", "u8", "avx_vnni"),
        ("jit:sse41", "f32", "sse2"),
        ("jit:sve_256", "f32", "sve"),
        ("ref:any", "f16", REFERENCE),
        ("gemm:jit", "f32", UNKNOWN),
    ],
)
def test_an_implementation_and_a_dtype_name_instructions(implementation: str, dtype: str, found: str) -> None:
    assert of_implementation(implementation, dtype) == found


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_a_real_convolution_is_heard_and_other_output_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    layer, images = torch.nn.Conv2d(16, 16, 3), torch.randn(2, 16, 12, 12)
    with log() as said:
        layer(images)
        print("by Python", flush=True)
        os.write(1, b"by the system\n")
    assert instructions(said).keys() == {"convolution/float32"}
    assert capfd.readouterr().out == "by Python\nby the system\n"
    with log() as silent:
        pass
    assert instructions(silent) == {}
