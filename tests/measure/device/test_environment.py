"""Definition, injected fault: facts of a machine from files of known content, and None where nothing is."""

import os
from pathlib import Path

import pytest

from measure.device import environment
from results.errors import Unavailable
from results.text_files import hashed

XEON = """processor\t: {0}
model name\t: Intel(R) Xeon(R)   Platinum 8480+
physical id\t: {1}
core id\t\t: {2}
flags\t\t: fpu fma avx2 avx512f avx512_vnni avx512_bf16 avx512_fp16 amx_bf16 amx_tile
"""

OPEN_DRIVER = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)\n"
    "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
)
OLD_DRIVER = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.256.02  Thu May  2 14:37:44 UTC 2024\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty file system in place of the real one, no NVML, and no variable that says anything."""

    def absent() -> str:
        raise Unavailable("NVML: library not found")

    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr("measure.device.nvml.driver_version", absent)
    for name in list(os.environ):
        if name.startswith((*environment.VARIABLE_PREFIXES, "NVIDIA_", "KUBERNETES_")) or name == "container":
            monkeypatch.delenv(name)
    return tmp_path


def put(machine: Path, path: str, text: str) -> None:
    (machine / path).parent.mkdir(parents=True, exist_ok=True)
    (machine / path).write_text(text, encoding="utf-8")


def test_a_processor_with_two_threads_a_core_has_half_as_many_cores(machine: Path) -> None:
    # two sockets × two cores × two threads: 8 entries, 4 cores
    entries = [XEON.format(8 * i, socket, core) for i in range(2) for socket in range(2) for core in range(2)]
    put(machine, "proc/cpuinfo", "\n".join(entries))
    assert environment.cpu_name() == "Intel(R) Xeon(R) Platinum 8480+"
    assert environment.physical_cores() == 4
    flags = environment.isa_flags()
    assert {flag for flag, present in flags.items() if not present} == {"asimd", "sve"}


@pytest.mark.parametrize(("text", "version"), [(OPEN_DRIVER, "580.95.05"), (OLD_DRIVER, "470.256.02"), ("?", None)])
def test_driver_version(machine: Path, text: str, version: str | None) -> None:
    put(machine, "proc/driver/nvidia/version", text)
    assert environment.driver_version() == version


def test_host_facts_of_a_known_machine(machine: Path) -> None:
    put(machine, "proc/meminfo", "MemTotal:       2097152 kB\nMemFree: 1 kB\n")
    put(machine, "etc/os-release", 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12"\n')
    put(machine, "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    put(machine, "sys/fs/cgroup/cpu.max", "150000 100000\n")
    facts = environment.host_facts()
    assert (facts["host_memory_bytes"], facts["cpu_quota"]) == (2 * 1024**3, 1.5)
    assert facts["os"] == "Debian GNU/Linux 12"
    assert facts["governor"] == "powersave"


def test_only_variables_that_matter_are_kept_and_no_secret_or_uuid(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef"
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", uuid)
    monkeypatch.setenv("NVIDIA_API_KEY", "secret")
    monkeypatch.setenv("TORCH_TOKEN", "secret")
    monkeypatch.setenv("HOMEPAGE", "x")
    monkeypatch.setenv("LD_PRELOAD", "/home/me/libone.so:/opt/libtwo.so.2 libthree.so")
    assert environment.variables() == {
        "CUDA_VISIBLE_DEVICES": f"GPU-{hashed(uuid)}",
        "LD_PRELOAD": "libone.so:libtwo.so.2:libthree.so",
        "OMP_NUM_THREADS": "4",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    }


def test_an_absent_cuda_device_has_every_key_and_says_why() -> None:
    facts = environment.device_facts("cuda:99")
    assert facts["name"] is None
    assert facts["error"]
    assert "\n" not in facts["error"]


@pytest.mark.gpu
def test_a_gpu_has_name_sizes_and_clock() -> None:
    """Needs one CUDA device."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    facts = environment.device_facts("cuda:0")
    assert facts["error"] is None
    assert facts["multiprocessors"] > 0
    assert facts["clock_hz"] > 1e8
    assert len(facts["uuid_hash"]) == 16


def test_an_empty_machine_gives_none_and_no_exception(machine: Path) -> None:
    facts = environment.host_facts()
    absent = ("container", "cpu_physical", "cpu_quota", "cpu_isa", "host_memory_bytes", "governor", "driver")
    assert [facts[key] for key in absent] == [None] * len(absent)
