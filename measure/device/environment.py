"""Collects facts about the machine and the software of a measurement for the manifest; it judges none of them.

`environment`, `host_facts`, `torch_facts` and `device_facts` return dicts of facts by name. Nothing here changes a
setting. A fact that a machine does not offer is None, never an exception (a missing file, an unknown processor, a torch
that cannot be imported). `host_facts` does not import torch, for processes that must stay without it. Serial numbers
are hashed, and variables that may hold a secret are left out. Precision flags are read by
`measure/device/apply_precision.py`, the GPU's state by `measure/device/telemetry.py`. Not claimed: that the machine was
idle or its clock constant while a workload ran, since load and governor are read once.
"""

import contextlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analysis.devices.peaks import is_stand_in
from results.errors import Unavailable, one_line
from results.text_files import hashed

ROOT = Path("/")
"""Where /proc, /sys and /etc are read; tests point it elsewhere."""

PACKAGES = ("torch", "torchvision", "triton", "nvtx", "nvidia-ml-py", "fvcore", "ptflops", "numpy")

VARIABLE_PREFIXES = (
    "PYTORCH_", "CUDA_", "TORCH", "CUDNN_", "CUBLAS_", "NCCL_", "OMP_", "MKL_", "KMP_", "GOMP_", "MALLOC_",
)  # fmt: skip
PRELOADED = "LD_PRELOAD"
VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "GLIBC_TUNABLES",
    PRELOADED,
)
"""Environment variables that change what torch computes with, or how fast."""

SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")

ISA_FLAGS = (
    "fma",
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "asimd",
    "sve",
)


Facts = Mapping[str, Any]
"""Name → value, as in the manifest; None: unknown on this machine. Sizes in bytes, frequencies in Hz."""


def environment() -> Facts:
    """Return all facts of host, packages and torch. Their names differ from those of `device_facts`."""
    packages = {name.replace("-", "_"): package_version(name) for name in PACKAGES}
    return {**host_facts(), **packages, **torch_facts()}


def host_facts() -> Facts:
    """Return facts of the operating system, processor and load, and `variables`. Imports no torch."""
    fields = dict(line.split("=", 1) for line in read("etc/os-release").splitlines() if "=" in line)
    return {
        "python": platform.python_version(),
        "os": fields.get("PRETTY_NAME", "").strip('"') or platform.system() or None,
        "kernel": platform.release() or None,
        "machine": platform.machine() or None,
        "container": container(),
        "cpu": cpu_name(),
        "cpu_logical": os.cpu_count(),
        "cpu_physical": physical_cores(),
        "cpu_usable": _usable_cpus(),
        "cpu_quota": cpu_quota(),
        "cpu_isa": isa_flags(),
        "host_memory_bytes": _memory_bytes(),
        "governor": governor(),
        "load_1min": load_average(),
        "driver": driver_version(),
        "variables": variables(),
    }


_OF_TORCH: Mapping[str, Callable[[Any], Any]] = {
    "torch": lambda torch: str(torch.__version__),
    "cuda": lambda torch: torch.version.cuda,
    "hip": lambda torch: getattr(torch.version, "hip", None),
    "cudnn": lambda torch: torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
    "cuda_available": lambda torch: torch.cuda.is_available(),
    "cuda_devices": lambda torch: torch.cuda.device_count(),
    "torch_threads": lambda torch: torch.get_num_threads(),
    "torch_interop_threads": lambda torch: torch.get_num_interop_threads(),
    "torch_cpu_capability": lambda torch: torch.backends.cpu.get_cpu_capability(),
    "mkldnn": lambda torch: torch.backends.mkldnn.is_available(),
}


def torch_facts() -> Facts:
    """Return the facts that only torch knows. Imports torch; "torch_error": why that fails, in which case most others
    are None."""
    facts: dict[str, Any] = {**dict.fromkeys(_OF_TORCH), "torch_error": None}
    try:
        import torch
    except Exception as fault:  # noqa: BLE001 - a broken installation raises anything; it becomes a fact
        return {**facts, "torch": package_version("torch"), "torch_error": _line(fault)}
    for name, read in _OF_TORCH.items():
        with contextlib.suppress(Exception):  # a reading that this version or build lacks is unknown
            facts[name] = read(torch)
    return facts


_OF_DEVICE = (
    *("device", "name", "stand_in", "compute_capability", "multiprocessors", "memory_bytes", "l2_bytes", "clock_hz"),
    *("memory_clock_hz", "memory_bus_bits", "uuid_hash", "physical_cores", "logical_cores", "isa", "threads", "error"),
)


def device_facts(device: str) -> Facts:
    """Return the properties of the device; None where one does not apply. device: "cpu", "cuda" or "cuda:1". Imports
    torch.

    The clock is the highest that the driver reports, not the present one. "error": why nothing else is known.
    """
    if not device.startswith("cpu"):
        facts = _cuda_facts(device)
    else:
        facts = {
            "name": cpu_name(),
            "stand_in": False,
            "memory_bytes": _memory_bytes(),
            "physical_cores": physical_cores(),
            "logical_cores": os.cpu_count(),
            "isa": isa_flags(),
            "threads": torch_facts()["torch_threads"],
        }
    return {**dict.fromkeys(_OF_DEVICE), "device": device, **facts}


def _cuda_facts(device: str) -> dict[str, Any]:
    try:
        import torch

        properties = torch.cuda.get_device_properties(torch.device(device))
    except Exception as fault:  # noqa: BLE001 - no torch, no CUDA build, no driver, no such device: all become a fact
        return {"error": _line(fault)}
    uuid, khz = getattr(properties, "uuid", None), getattr(properties, "clock_rate", None)
    memory_khz = getattr(properties, "memory_clock_rate", None)
    return {
        "name": properties.name,
        "stand_in": is_stand_in(properties.name),
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "clock_hz": None if khz is None else int(khz * 1000),
        "memory_clock_hz": None if memory_khz is None else int(memory_khz * 1000),
        "memory_bus_bits": getattr(properties, "memory_bus_width", None),
        "uuid_hash": hashed(str(uuid)) if uuid else None,
    }


def host_state() -> dict[str, Any]:
    """Return what makes times on this host scatter: load, governor, and the number of usable processors."""
    return {"load_1min": load_average(), "governor": governor(), "cpu_usable": _usable_cpus()}


def variables() -> dict[str, str]:
    """Return the environment variables that change what torch does, by name; uuids of devices in them are hashed, and
    libraries are named without their folders."""
    values = {
        name: re.sub(r"(GPU|MIG)-[0-9a-fA-F-]{36}", lambda uuid: f"{uuid.group(1)}-{hashed(uuid.group(0))}", value)
        for name, value in sorted(os.environ.items())
        if (name in VARIABLES or name.startswith(VARIABLE_PREFIXES)) and SECRET.search(name) is None
    }
    if PRELOADED in values:
        paths = re.split(r"[:\s]+", values[PRELOADED])
        values[PRELOADED] = ":".join(os.path.basename(path) for path in paths if path)
    return values


def cpu_name() -> str | None:
    """Return the processor's own model string."""
    name = _first(r"^(?:model name|cpu model|Model)\s*:(.*)$", "proc/cpuinfo") or ""
    return " ".join(name.split()) or platform.processor() or None


def physical_cores() -> int | None:
    """Return the number of cores, each counted once whatever its hardware threads; None if unknown."""
    ids = re.compile(r"^(physical id|core id)\s*:\s*(\d+)", re.MULTILINE)
    processors = [dict(ids.findall(text)) for text in read("proc/cpuinfo").split("\n\n")]
    return len({(ids.get("physical id"), ids["core id"]) for ids in processors if "core id" in ids}) or None


def isa_flags() -> dict[str, bool] | None:
    """Return the vector and matrix instructions of the processor; None if unknown."""
    flags = _first(r"^(?:flags|Features)\s*:(.*)$", "proc/cpuinfo")
    return None if flags is None else {flag: flag in flags.split() for flag in ISA_FLAGS}


def governor() -> str | None:
    """Return the frequency governor of the first core; None in most virtual machines."""
    return read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None


def load_average() -> float | None:
    """Return the mean number of runnable tasks in the last minute; None if unknown."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def driver_version() -> str | None:
    """Return the version of NVIDIA's kernel driver; None if unknown. Two sessions are comparable only by this version.

    It is read from /proc, which needs no library and no permission, else from NVML: WSL and sandboxes with a private
    /proc lack the file.
    """
    if version := _first(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", "proc/driver/nvidia/version"):
        return version
    from measure.device import nvml

    try:
        return nvml.driver_version()
    except Unavailable:
        return None


def container() -> str | None:
    """Return the kind of container in which this process runs; None if there is no sign of one."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    for mark, kind in (("run/.containerenv", "podman"), (".dockerenv", "docker")):
        if (ROOT / mark).exists():
            return kind
    by_systemd = os.environ.get("container")  # noqa: SIM112 - its name is in lower case
    return by_systemd or _first(r"(kubepods|docker|libpod|lxc|containerd)", "proc/1/cgroup")


def package_version(name: str) -> str | None:
    """Return the installed version by its metadata, without importing it."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _usable_cpus() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def cpu_quota() -> float | None:
    """Return how many processors the container may use on average (cgroup v2, else v1); None without a limit."""
    quota, _, period = read("sys/fs/cgroup/cpu.max").strip().partition(" ")
    if not quota:
        quota, period = (read(f"sys/fs/cgroup/cpu/cpu.cfs_{name}_us").strip() for name in ("quota", "period"))
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _memory_bytes() -> int | None:
    total = _first(r"^MemTotal:\s*(\d+) kB", "proc/meminfo")
    return int(total) * 1024 if total else None


def _first(pattern: str, path: str) -> str | None:
    """Return the group of the first match in a file; None where there is none."""
    match = re.search(pattern, read(path), re.MULTILINE)
    return match and match.group(1)


def read(path: str) -> str:
    """Return a file's text, or "" where it cannot be read."""
    try:
        return (ROOT / path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _line(fault: BaseException) -> str:
    """Return an exception as one line."""
    return one_line(f"{type(fault).__name__}: {fault}", 300)
